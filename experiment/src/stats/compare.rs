// SPDX-License-Identifier: Apache-2.0
//! Whether two arms differ, by how much, and how sure that is.
//!
//! Rates of arms differ by factors, and they scatter by factors. So positive numbers are compared by their logarithms: the
//! effect is a ratio (of geometric means), and its interval never says less than nothing. Invariant: "not shown" is never
//! read as "equal": the interval says how large a difference may still be.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::bootstrap::Interval;
use super::summary::{count, mean, variance};

/// How was tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Student's t-test of pairs: the n-th runs of both arms were taken one after the other.
    Paired,
    /// Welch's t-test: independent runs, variances may differ (Welch: Biometrika 34, 1947).
    Welch,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// More than the baseline.
    More,
    /// Less than the baseline.
    Less,
    /// No difference was shown; that is not to say that there is none.
    NoDifferenceShown,
}

/// A comparison of an arm with the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// How was tested.
    pub method: Method,
    /// Geometric mean of the arm divided by that of the baseline.
    pub ratio: f64,
    /// Where the ratio is with a probability of 95 %.
    pub interval: Interval,
    /// Effect in standard deviations of the logarithms: of the differences of pairs (Cohen's d_z), or pooled with the
    /// correction for few runs (Hedges' g).
    pub effect: f64,
    /// t.
    pub t: f64,
    /// Degrees of freedom.
    pub freedom: f64,
    /// Probability of a t as far from 0 if there is no difference; of this comparison alone.
    pub p: f64,
}

impl Difference {
    /// What follows if the probability, corrected for all comparisons, is `p`.
    #[must_use]
    pub fn verdict(&self, p: f64) -> Verdict {
        /// The usual level.
        const LEVEL: f64 = 0.05;
        match self.t > 0.0 {
            _ if p.is_nan() || p >= LEVEL => Verdict::NoDifferenceShown,
            true => Verdict::More,
            false => Verdict::Less,
        }
    }
}

/// Compares pairs. None of fewer than two, or if a number is not positive.
#[must_use]
pub fn compare_paired(pairs: &[(f64, f64)]) -> Option<Difference> {
    if pairs.len() < 2 || pairs.iter().any(|(arm, base)| !is_positive(*arm) || !is_positive(*base)) {
        return None;
    }
    let differences: Vec<f64> = pairs.iter().map(|(arm, base)| (arm / base).ln()).collect();
    let (centre, n) = (mean(&differences), count(&differences));
    let spread = variance(&differences).sqrt();
    Some(finish(Method::Paired, centre, spread / n.sqrt(), n - 1.0, centre / spread))
}

/// Compares independent runs. None if one side has fewer than two, or if a number is not positive.
#[must_use]
pub fn compare_unpaired(arm: &[f64], base: &[f64]) -> Option<Difference> {
    if arm.len() < 2 || base.len() < 2 || arm.iter().chain(base).any(|value| !is_positive(*value)) {
        return None;
    }
    let logarithms = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<f64>>();
    let (arm, base) = (logarithms(arm), logarithms(base));
    let centre = mean(&arm) - mean(&base);
    let (n, m) = (count(&arm), count(&base));
    let (of_arm, of_base) = (variance(&arm) / n, variance(&base) / m);
    let error = (of_arm + of_base).sqrt();
    // Welch-Satterthwaite. Two sides that do not scatter at all have the freedom of equal variances.
    let freedom = (of_arm + of_base).powi(2) / (of_arm.powi(2) / (n - 1.0) + of_base.powi(2) / (m - 1.0));
    let freedom = if freedom.is_finite() { freedom } else { n + m - 2.0 };
    let pooled = (((n - 1.0) * variance(&arm) + (m - 1.0) * variance(&base)) / (n + m - 2.0)).sqrt();
    let few = 1.0 - 3.0 / (4.0 * (n + m) - 9.0);
    Some(finish(Method::Welch, centre, error, freedom, centre / pooled * few))
}

fn is_positive(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

/// `centre` and `error` are of logarithms.
fn finish(method: Method, centre: f64, error: f64, freedom: f64, effect: f64) -> Difference {
    let t = centre / error;
    let distribution = StudentsT::new(0.0, 1.0, freedom).ok();
    let p = match (&distribution, t.is_finite()) {
        (Some(distribution), true) => 2.0 * distribution.cdf(-t.abs()),
        // Nothing scatters: the same numbers each time are different for sure, or the same.
        _ if centre == 0.0 => 1.0,
        _ => 0.0,
    };
    let width = distribution.map_or(0.0, |distribution| distribution.inverse_cdf(0.975)) * error;
    Difference {
        method,
        ratio: centre.exp(),
        interval: Interval { low: (centre - width).exp(), high: (centre + width).exp() },
        effect: if centre == 0.0 { 0.0 } else { effect },
        t: if centre == 0.0 { 0.0 } else { t },
        freedom,
        p,
    }
}
