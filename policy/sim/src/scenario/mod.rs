// SPDX-License-Identifier: Apache-2.0
//! Scenarios: a host, its VMs and the arms of a comparison, read from a TOML file.
//!
//! The text is handed in; so is the host, where the file names a captured one. Invariant: a file that parsed builds a
//! world for each of its arms, or says which key is wrong and in which line.

mod build;
mod cases;
mod chart;
mod file;
mod run;
mod value;

pub use cases::{Case, CaseReport, CasesReport, Told};
pub use run::{Cell, Measure, Report, Row};

use serde::Deserialize;
use thiserror::Error;
use topology::host::{HostError, HostTopology};

use crate::engine::SimError;
use crate::guest::{Arm, Placing, Vm};
use crate::host::{HostModel, HostParams};

/// Why there is no scenario.
#[derive(Debug, Error)]
pub enum ScenarioError {
    /// A key, a value or the form of the file is wrong.
    #[error("line {line}: {message}")]
    File {
        /// Where, counted from 1.
        line: usize,
        /// What, and what would be right.
        message: String,
    },
    /// What was set on the command line is wrong.
    #[error("--set {key}: {message}")]
    Set {
        /// The key.
        key: String,
        /// What, and what would be right.
        message: String,
    },
    /// The host.
    #[error("the host: {0}")]
    Host(#[from] HostError),
    /// The file names a captured host, and none was handed in; or the other way round.
    #[error("the scenario wants host `{wanted}`: hand in its capture")]
    Fixture {
        /// Its name.
        wanted: String,
    },
    /// A VM contradicts the host.
    #[error(transparent)]
    Sim(#[from] SimError),
}

/// One arm: its name, and what is different in it.
#[derive(Clone, Debug)]
pub struct ScenarioArm {
    /// Its name.
    pub name: String,
    /// Pause loops.
    pub arm: Arm,
    /// Placement, if the arm says.
    pub placing: Option<Placing>,
    /// The host's costs and behaviours.
    pub params: HostParams,
}

/// A scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// One line that says what is shown.
    pub title: String,
    /// Simulated time of a run in ns.
    pub duration_ns: u64,
    /// Name of the captured host, if it is one.
    pub fixture: Option<String>,
    host: file::Host,
    vms: Vec<Vm>,
    /// What is compared.
    pub arms: Vec<ScenarioArm>,
}

impl Scenario {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ScenarioError::File`] with the line.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let file: file::File = toml::from_str(text).map_err(|error| file_error(text, &error))?;
        build::scenario(file).map_err(|(offset, message)| ScenarioError::File { line: line_of(text, offset), message })
    }

    /// Reads a file with some of its keys set to other values: dotted paths as in `vm.0.vcpus`, values as in TOML.
    ///
    /// # Errors
    /// [`ScenarioError::File`] if the file is wrong as it is, [`ScenarioError::Set`] if a setting makes it so.
    pub fn parse_with(text: &str, settings: &[(String, String)]) -> Result<Self, ScenarioError> {
        let plain = Self::parse(text)?;
        if settings.is_empty() {
            return Ok(plain);
        }
        let mut table: toml::Table = text.parse().map_err(|error| file_error(text, &error))?;
        let mut last = String::new();
        for (key, value) in settings {
            last.clone_from(key);
            value_of(value)
                .and_then(|value| set(&mut table, key, value))
                .map_err(|message| ScenarioError::Set { key: key.clone(), message })?;
        }
        let changed = toml::to_string(&table).unwrap_or_default();
        let wrong = |message: String| ScenarioError::Set { key: last.clone(), message };
        let file: file::File = toml::from_str(&changed).map_err(|error| wrong(error.message().to_owned()))?;
        build::scenario(file).map_err(|(_, message)| wrong(message))
    }

    /// The host of the scenario. `captured` is the one named by [`Self::fixture`].
    ///
    /// # Errors
    /// [`ScenarioError::Fixture`] if it is missing, [`ScenarioError::Host`] if the shape is none.
    pub fn host(&self, captured: Option<HostTopology>) -> Result<HostModel, ScenarioError> {
        let topology = match (&self.fixture, captured) {
            (Some(_), Some(host)) => host,
            (Some(wanted), None) => return Err(ScenarioError::Fixture { wanted: wanted.clone() }),
            (None, _) => build::shape(&self.host).build()?,
        };
        let mut model = HostModel::new(topology);
        if self.host.low_numbers_preferred {
            let count = u32::try_from(model.cpus()).unwrap_or(u32::MAX);
            model.ranks = (0..count).map(|cpu| count - cpu).collect();
        }
        Ok(model)
    }

    /// The VMs as they are in one arm.
    #[must_use]
    pub fn vms(&self, arm: &ScenarioArm) -> Vec<Vm> {
        let one = |vm: &Vm| Vm {
            arm: arm.arm,
            placing: arm.placing.clone().unwrap_or_else(|| vm.placing.clone()),
            ..vm.clone()
        };
        self.vms.iter().map(one).collect()
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|&&byte| byte == b'\n').count() + 1
}

fn file_error(text: &str, error: &toml::de::Error) -> ScenarioError {
    let offset = error.span().map_or(0, |span| span.start);
    ScenarioError::File { line: line_of(text, offset), message: error.message().to_owned() }
}

/// A value as it is written on a command line: as in TOML, or else a string.
fn value_of(text: &str) -> Result<toml::Value, String> {
    toml::de::ValueDeserializer::parse(text)
        .and_then(toml::Value::deserialize)
        .or_else(|_| Ok::<_, toml::de::Error>(toml::Value::String(text.to_owned())))
        .map_err(|error| error.message().to_owned())
}

/// Sets one key of a table.
fn set(table: &mut toml::Table, key: &str, wanted: toml::Value) -> Result<(), String> {
    let (path, last) = key.rsplit_once('.').map_or((None, key), |(path, last)| (Some(path), last));
    let mut at: Option<&mut toml::Value> = None;
    for part in path.into_iter().flat_map(|path| path.split('.')) {
        let new = || toml::Value::Table(toml::Table::new());
        let next = match at.take() {
            None => Some(table.entry(part).or_insert_with(new)),
            Some(toml::Value::Array(list)) => part.parse().ok().and_then(|index: usize| list.get_mut(index)),
            Some(toml::Value::Table(inner)) => Some(inner.entry(part).or_insert_with(new)),
            Some(_) => None,
        };
        at = Some(next.ok_or_else(|| format!("there is no `{part}` on the way: see the file"))?);
    }
    match at {
        None => drop(table.insert(last.to_owned(), wanted)),
        Some(toml::Value::Table(inner)) => drop(inner.insert(last.to_owned(), wanted)),
        Some(_) => return Err(format!("`{last}` would be inside something that has no keys")),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
