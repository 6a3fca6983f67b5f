// SPDX-License-Identifier: Apache-2.0
//! A sample as lines of a terminal. Pure. No line is longer than the terminal is wide.

use std::fmt::Write;

use super::options::{self, Options};
use super::sample::{Row, Sample, Shares};
use crate::client::figures::percent;

/// Lines that are no rows: title, sums, what is shown, head of the table, keys.
const FRAME: usize = 5;
/// Columns of a row beside its bar.
const FIXED: usize = 69;
/// Least and most columns of a bar.
const BAR: (usize, usize) = (10, 60);
/// The parts of a bar: sign, and colour of the terminal (ECMA-48, 8.3.117).
const PARTS: [(char, &str); 5] = [('#', "32"), ('.', "34"), ('w', "31"), ('s', "33"), ('o', "90")];

/// Rows that fit into a terminal of this size (lines, columns).
pub(super) const fn rows_of((lines, _): (usize, usize)) -> usize {
    if lines > FRAME + 1 { lines - FRAME } else { 1 }
}

/// What the signs of a bar mean.
pub(super) const SIGNS: &str = "# guest  . halted  w waiting  s spin  o other";
const KEYS: &str = "q quit  s sort  r reverse  / filter  Esc no filter  p pause  arrows scroll";

/// The page.
pub(super) fn page(sample: &Sample, options: &Options, size: (usize, usize), coloured: bool) -> Vec<String> {
    let (_, width) = size;
    let chosen = options.choose(&sample.rows);
    let fit = rows_of(size);
    // At the end the last rows are shown, not the space behind them.
    let first = options.first.min(chosen.len().saturating_sub(fit));
    let bar = width.saturating_sub(FIXED).clamp(BAR.0, BAR.1);
    let mut lines = vec![
        cut(&sample.title, width),
        cut(&sums(sample), width),
        cut(&shown(options, chosen.len(), sample.rows.len()), width),
        cut(&head(bar), width),
    ];
    lines.extend(chosen.iter().skip(first).take(fit).map(|row| line(row, bar, width, coloured)));
    // The signs first: who has a narrow terminal needs them more.
    lines.push(cut(&format!("{SIGNS}   {KEYS}"), width));
    lines
}

/// The first `width` characters; what would steer the terminal is a space.
fn cut(text: &str, width: usize) -> String {
    text.chars().take(width).map(|one| if one.is_control() { ' ' } else { one }).collect()
}

fn sums(sample: &Sample) -> String {
    let Shares { guest, halted, waiting, spin, other } = sample.shares;
    let share = |ns| percent(ns, sample.shares.total());
    format!(
        "guest {:.1} %  halted {:.1} %  waiting {:.1} %  spin {:.1} %  other {:.1} %   {:.0} pause events/s  {:.0} yields/s  \
         {:.0} boosted/s",
        share(guest),
        share(halted),
        share(waiting),
        share(spin),
        share(other),
        sample.rates.events,
        sample.rates.yields,
        sample.rates.boosted
    )
}

fn shown(options: &Options, chosen: usize, all: usize) -> String {
    let order = if options.reversed { ", reversed" } else { "" };
    let mut text = format!("{chosen} of {all} vCPUs, sorted by {}{order}", options::name(options.sort));
    // Writing to a String cannot fail.
    if options.typing {
        let _ = write!(text, "   filter: {}_", options.filter);
    } else if !options.filter.is_empty() {
        let _ = write!(text, "   filter: {}", options.filter);
    }
    if options.frozen {
        text.push_str("   PAUSED");
    }
    if let Some(trouble) = &options.trouble {
        let _ = write!(text, "   {trouble}");
    }
    text
}

fn head(bar: usize) -> String {
    format!(
        "{:>4} {:>7} {:<8} {:>4} {:<bar$} {:>5} {:>5} {:>5} {:>5} {:>8} {:>8}",
        "VCPU", "TID", "STATE", "CPU", "TIME", "GUEST", "HALT", "WAIT", "SPIN", "EVENTS/s", "YIELDS/s"
    )
}

fn line(row: &Row, bar: usize, width: usize, coloured: bool) -> String {
    let number = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
    let left = format!(
        "{:>4} {:>7} {:<8} {:>4} ",
        row.index,
        number(row.tid.map(|tid| tid.to_string())),
        row.state,
        number(row.cpu.map(|cpu| cpu.to_string()))
    );
    let share = |ns| format!("{:.1}", percent(ns, row.shares.total()));
    let right = format!(
        " {:>5} {:>5} {:>5} {:>5} {:>8.0} {:>8.0}",
        share(row.shares.guest),
        share(row.shares.halted),
        share(row.shares.waiting),
        share(row.shares.spin),
        row.rates.events,
        row.rates.yields
    );
    let cells = cells(&row.shares, bar);
    let plain = cut(&format!("{left}{}{right}", cells.iter().map(|part| PARTS[*part].0).collect::<String>()), width);
    // A terminal too narrow for the bar has no colours either.
    if coloured && left.len() + bar + right.len() <= width {
        format!("{left}{}{right}", colours(&cells))
    } else {
        plain
    }
}

/// Which part each column of a bar belongs to; rounded so that the columns are all taken.
fn cells(shares: &Shares, bar: usize) -> Vec<usize> {
    let Shares { guest, halted, waiting, spin, other } = *shares;
    let total = u128::from(shares.total());
    let mut cells = Vec::with_capacity(bar);
    let mut sum = 0u128;
    for (part, ns) in [guest, halted, waiting, spin, other].into_iter().enumerate() {
        sum += u128::from(ns);
        let end = (2 * sum * bar as u128 + total).checked_div(2 * total).unwrap_or(0);
        cells.resize(usize::try_from(end).unwrap_or(bar).min(bar).max(cells.len()), part);
    }
    cells
}

fn colours(cells: &[usize]) -> String {
    let mut text = String::new();
    for run in cells.chunk_by(|a, b| a == b) {
        let (sign, colour) = PARTS[run[0]];
        let _ = write!(text, "\x1b[{colour}m{}\x1b[0m", sign.to_string().repeat(run.len()));
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::client::Column;
    use crate::top::sample::Rates;

    fn sample(vcpus: u32) -> Sample {
        let shares = Shares { guest: 50, halted: 25, waiting: 15, spin: 10, other: 0 };
        let row =
            |index| Row { index, tid: Some(4000), state: "running", cpu: Some(1), shares, rates: Rates::default() };
        Sample {
            title: "vmm 1: running".to_owned(),
            rows: (0..vcpus).map(row).collect(),
            shares,
            rates: Rates::default(),
        }
    }

    fn options() -> Options {
        Options::new(Column::Index, "")
    }

    #[test]
    fn a_page_is_as_large_as_the_terminal() {
        let lines = page(&sample(300), &options(), (24, 100), false);
        assert_eq!(lines.len(), 24);
        assert!(lines.iter().all(|line| line.chars().count() <= 100), "{lines:#?}");
        assert_eq!(lines[4].chars().count(), lines[3].chars().count(), "rows end where the head does\n{lines:#?}");
        assert!(lines[4].contains("################......."), "{}", lines[4]);
    }

    #[test]
    fn scrolling_stops_at_the_last_row() {
        let mut options = options();
        options.first = usize::MAX;
        let lines = page(&sample(300), &options, (24, 100), false);
        assert!(lines[22].starts_with(" 299 "), "{}", lines[22]);
    }

    #[test]
    fn a_bar_without_time_is_empty_and_else_full() {
        assert!(cells(&Shares::default(), 10).is_empty());
        let cells = cells(&Shares { guest: 1, halted: 1, waiting: 1, spin: 0, other: 0 }, 10);
        assert_eq!(cells, [0, 0, 0, 1, 1, 1, 1, 2, 2, 2]);
    }

    #[test]
    fn colours_are_taken_back() {
        let lines = page(&sample(1), &options(), (24, 100), true);
        assert!(lines[4].contains("\x1b[32m#") && lines[4].contains("\x1b[0m"), "{:?}", lines[4]);
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_the_terminal(vcpus in 0u32..20, lines in 0usize..40, width in 0usize..150, first: usize) {
            let options = Options { first, ..options() };
            for line in page(&sample(vcpus), &options, (lines, width), false) {
                prop_assert!(line.chars().count() <= width);
            }
        }
    }
}
