// SPDX-License-Identifier: Apache-2.0
//! Pairs of measurements and what they come to.
//!
//! A pair's two runs follow each other at once, so that whatever else the machine does meets both; the ratio is taken in
//! the pair, and the median of the ratios is told.

use std::fmt;

use crate::build::Subject;
use crate::process::Failure;

/// Measurements of the monitor, each with one of the bare program.
pub(crate) struct Pairs<T>(Vec<(T, T)>);

impl<T> Pairs<T> {
    /// Measures `count` pairs; the order in a pair changes from pair to pair.
    pub(crate) fn measure(count: usize, measure: impl Fn(Subject) -> Result<T, Failure>) -> Result<Self, Failure> {
        // Once each to have the files in memory.
        measure(Subject::Bare)?;
        measure(Subject::Vmm)?;
        let pair = |number| {
            let first = if number % 2 == 0 { Subject::Vmm } else { Subject::Bare };
            let (one, other) = (measure(first)?, measure(first.other())?);
            Ok(if first == Subject::Vmm { (one, other) } else { (other, one) })
        };
        (0..count).map(pair).collect::<Result<_, _>>().map(Self)
    }

    /// One number of each measurement.
    pub(crate) fn map(&self, number: impl Fn(&T) -> f64) -> Pairs<f64> {
        Pairs(self.0.iter().map(|(vmm, bare)| (number(vmm), number(bare))).collect())
    }
}

impl Pairs<f64> {
    /// The pairs as a row of the table.
    pub(crate) fn row(&self, what: &str, unit: &'static str) -> Row {
        Row {
            what: what.to_owned(),
            unit,
            vmm: Spread::of(self.0.iter().map(|pair| pair.0)),
            bare: Spread::of(self.0.iter().map(|pair| pair.1)),
            ratio: Spread::of(self.0.iter().map(|(vmm, bare)| vmm / bare)),
        }
    }
}

/// Median, least and most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            0 => (values[middle - 1] + values[middle]) / 2.0,
            _ => values[middle],
        };
        Self { median, least: values[0], most: values[values.len() - 1] }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ({:.2} to {:.2})", self.median, self.least, self.most)
    }
}

/// A line of the table.
pub(crate) struct Row {
    what: String,
    unit: &'static str,
    vmm: Spread,
    bare: Spread,
    ratio: Spread,
}

impl Row {
    /// The two lines above the first row.
    pub(crate) const HEADER: &str = "| figure | vmm | bare C | ratio in the pair |\n|---|---|---|---|";
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, unit, vmm, bare, ratio } = self;
        write!(f, "| {what} | {vmm} {unit} | {bare} {unit} | {ratio} |")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0, 10.0].into_iter()), Spread { median: 2.5, least: 1.0, most: 10.0 });
        assert_eq!(Spread::of([3.0, 1.0, 2.0].into_iter()).median, 2.0);
    }

    #[test]
    fn the_monitor_stands_first_whoever_ran_first() {
        let pairs = Pairs::measure(3, |subject| Ok(if subject == Subject::Vmm { 4.0 } else { 2.0 })).unwrap();
        assert!(pairs.0 == [(4.0, 2.0); 3]);
        assert_eq!(pairs.row("it", "ms").ratio.median, 2.0);
    }
}
