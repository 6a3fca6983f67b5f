// SPDX-License-Identifier: Apache-2.0
//! Scenarios of several cases: the same arms under several loads, each beside what somebody else measured there.
//!
//! Invariant: a case is the file with some of its keys set to other values, and nothing else.

use std::fmt::Write as _;

use serde::Serialize;

use super::file::{CaseEntry, File};
use super::{Report, Scenario, ScenarioError, file_error, line_of, set};

/// What somebody else's measurement says about an arm, in per cent of the first arm.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Told {
    /// The arm.
    pub arm: String,
    /// The change as it was printed.
    pub printed_percent: Option<f64>,
    /// The change of throughput that follows from the averages that were printed.
    pub recomputed_percent: Option<f64>,
}

/// One case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name; empty if the file has no cases.
    pub name: String,
    /// The scenario as it is there.
    pub scenario: Scenario,
    /// What was measured elsewhere.
    pub told: Vec<Told>,
}

/// What one case brought.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseReport {
    /// Its name.
    pub name: String,
    /// What was measured elsewhere.
    pub told: Vec<Told>,
    /// What the simulator says.
    pub report: Report,
}

/// What all cases brought.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CasesReport {
    /// The scenario's title.
    pub title: String,
    /// Cases in the order of the file.
    pub cases: Vec<CaseReport>,
}

impl Scenario {
    /// The cases of a file, with `settings` ([`Self::parse_with`]) under those of each case; one without a name if the file
    /// has none.
    ///
    /// # Errors
    /// As [`Self::parse_with`]; [`ScenarioError::File`] with the line of a case that makes the file wrong, or that tells of
    /// an arm that does not exist.
    pub fn cases(text: &str, settings: &[(String, String)]) -> Result<Vec<Case>, ScenarioError> {
        let plain = Self::parse_with(text, settings)?;
        let file: File = toml::from_str(text).map_err(|error| file_error(text, &error))?;
        if file.case.is_empty() {
            return Ok(vec![Case { name: String::new(), scenario: plain, told: Vec::new() }]);
        }
        let one = |entry: &toml::Spanned<CaseEntry>| {
            let case = case(text, settings, &plain, entry.get_ref());
            case.map_err(|message| ScenarioError::File {
                line: line_of(text, entry.span().start),
                message: format!("case `{}`: {message}", entry.get_ref().name),
            })
        };
        file.case.iter().map(one).collect()
    }
}

fn case(text: &str, settings: &[(String, String)], plain: &Scenario, entry: &CaseEntry) -> Result<Case, String> {
    let mut table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.message().to_owned())?;
    for (key, value) in &entry.set {
        set(&mut table, key, value.clone()).map_err(|message| format!("`{key}`: {message}"))?;
    }
    let changed = toml::to_string(&table).map_err(|error| error.to_string())?;
    let scenario = Scenario::parse_with(&changed, settings).map_err(|error| match error {
        ScenarioError::File { message, .. } => message,
        other => other.to_string(),
    })?;
    let arms = || plain.arms.iter().map(|arm| &arm.name);
    if let Some(stranger) =
        entry.printed.keys().chain(entry.recomputed.keys()).find(|key| !arms().any(|arm| arm == *key))
    {
        return Err(format!("there is no arm `{stranger}` of which it could tell"));
    }
    let told = arms().filter_map(|arm| {
        let (printed, recomputed) = (entry.printed.get(arm).copied(), entry.recomputed.get(arm).copied());
        (printed.is_some() || recomputed.is_some()).then(|| Told {
            arm: arm.clone(),
            printed_percent: printed,
            recomputed_percent: recomputed,
        })
    });
    Ok(Case { name: entry.name.clone(), told: told.collect(), scenario })
}

/// A change with its sign, or nothing.
fn percent(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:+.1} %"))
}

impl CasesReport {
    /// All cases as one table for people: base, rule, change and spread, beside what was measured elsewhere.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!("{}\n", self.title);
        if let Some(row) = self.cases.first().and_then(|case| Some((case, case.report.rows.first()?))) {
            let (case, row) = row;
            let runs = row.cells[0].measure.runs;
            let _ = writeln!(
                text,
                "{runs} seeds from {}; printed, recomputed: what was measured elsewhere\n",
                case.report.seed
            );
        }
        let _ = writeln!(
            text,
            "{:16} {:18} {:>24} {:>9} {:>8} {:>9} {:>10} {:>7} {:>7}",
            "case", "arm", "operations/s", "change", "spread", "printed", "recomputed", "spin %", "idle %"
        );
        for case in &self.cases {
            case.lines(&mut text);
        }
        text
    }

    /// All cases as one picture, one below the other.
    #[must_use]
    pub fn chart(&self) -> String {
        let pictures = self.cases.iter().map(|case| {
            let titled = Report { title: format!("{}: {}", self.title, case.name), ..case.report.clone() };
            (titled.chart_height(), titled.chart())
        });
        crate::page::stacked(&pictures.collect::<Vec<_>>())
    }
}

impl CaseReport {
    fn lines(&self, text: &mut String) {
        for (at, row) in self.report.rows.iter().enumerate() {
            let measure = row.cells[0].measure;
            let told = self.told.iter().find(|told| told.arm == row.arm);
            let change = (at > 0).then_some(row.change_percent);
            let spread = if at > 0 { format!("± {:.1}", row.change_stdev_percent) } else { String::new() };
            let _ = writeln!(
                text,
                "{:16} {:18} {:>24} {:>9} {spread:>8} {:>9} {:>10} {:>7.2} {:>7.2}",
                if at == 0 { self.name.as_str() } else { "" },
                row.arm,
                format!("{:.0} ± {:.0}", measure.mean, measure.stdev),
                percent(change),
                percent(told.and_then(|told| told.printed_percent)),
                percent(told.and_then(|told| told.recomputed_percent)),
                row.cells[2].measure.mean,
                row.cells[3].measure.mean,
            );
        }
    }
}
