// SPDX-License-Identifier: Apache-2.0
//! What some numbers have in common.

use serde::{Deserialize, Serialize};

/// Numbers in short.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// How many.
    pub n: usize,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// Their average.
    pub mean: f64,
    /// Standard deviation of the sample (divided by n - 1); none of a single number.
    pub stdev: Option<f64>,
    /// Half are below.
    pub median: f64,
}

impl Summary {
    /// Of some numbers; none of none, or if one is no number.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() || values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let mean = mean(values);
        Some(Self {
            n: values.len(),
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            mean,
            stdev: (values.len() > 1).then(|| variance(values).sqrt()),
            median: quantile(values, 0.5)?,
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "numbers of runs are far below 2^53")]
pub(super) fn count(values: &[f64]) -> f64 {
    values.len() as f64
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / count(values)
}

/// Variance of the sample, divided by n - 1.
pub(super) fn variance(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count(values) - 1.0)
}

/// The quantile `at` (0 to 1) by linear interpolation (Hyndman, Fan 1996, definition 7); none of no numbers.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place within the list")]
pub fn quantile(values: &[f64], at: f64) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = at.clamp(0.0, 1.0) * (count(&sorted) - 1.0);
    let (below, part) = (place.floor() as usize, place.fract());
    let above = (below + 1).min(sorted.len() - 1);
    Some(sorted[below] + (sorted[above] - sorted[below]) * part)
}

/// Places of the numbers that lie more than one and a half interquartile ranges outside the quartiles (Tukey 1977). Of
/// fewer than five numbers none.
#[must_use]
pub fn outliers(values: &[f64]) -> Vec<usize> {
    const FEWEST: usize = 5;
    let (Some(low), Some(high)) = (quantile(values, 0.25), quantile(values, 0.75)) else { return Vec::new() };
    if values.len() < FEWEST {
        return Vec::new();
    }
    let fence = 1.5 * (high - low);
    let is_far = |value: f64| value < low - fence || value > high + fence;
    values.iter().enumerate().filter(|(_, value)| is_far(**value)).map(|(at, _)| at).collect()
}

/// Jain's fairness index, (Σx)² / (n Σx²): 1 if all are equal, 1/n if one has it all; none if nobody has anything (Jain,
/// Chiu, Hawe: DEC-TR-301, 1984).
#[must_use]
pub fn jain(shares: &[f64]) -> Option<f64> {
    let squares = shares.iter().map(|share| share * share).sum::<f64>();
    (squares > 0.0).then(|| shares.iter().sum::<f64>().powi(2) / (count(shares) * squares))
}
