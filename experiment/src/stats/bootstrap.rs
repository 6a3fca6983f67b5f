// SPDX-License-Identifier: Apache-2.0
//! The confidence interval of a mean by resampling: it assumes no shape of the distribution.

use serde::{Deserialize, Serialize};

use super::summary::{mean, quantile};
use crate::random::Chance;

/// From where to where.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// Resamples: the ends of a 95 % interval then scatter by less than a fiftieth of its width.
const RESAMPLES: usize = 10_000;

/// The interval that holds the mean with probability `confidence`, by percentiles of the means of resamples (Efron,
/// Tibshirani: An Introduction to the Bootstrap, 1993, chapter 13). None of fewer than two numbers.
#[must_use]
pub fn bootstrap_mean(values: &[f64], confidence: f64, seed: u64) -> Option<Interval> {
    if values.len() < 2 {
        return None;
    }
    let mut chance = Chance::new(seed);
    let mut resample = vec![0.0; values.len()];
    let means: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            resample.iter_mut().for_each(|slot| *slot = values[chance.below(values.len())]);
            mean(&resample)
        })
        .collect();
    let outside = (1.0 - confidence) / 2.0;
    Some(Interval { low: quantile(&means, outside)?, high: quantile(&means, 1.0 - outside)? })
}
