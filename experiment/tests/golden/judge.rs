// SPDX-License-Identifier: Apache-2.0
//! Our statistics against what SciPy, NumPy and statsmodels say about the same samples (`golden.py` makes both).

use experiment::stats::{Difference, Interval, Method, Summary, bootstrap_mean, compare_paired, compare_unpaired};
use experiment::stats::{holm, outliers, quantile};
use serde::Deserialize;

#[derive(Deserialize)]
pub(crate) struct Golden {
    summaries: Vec<GoldenSummary>,
    paired: Vec<GoldenDifference>,
    welch: Vec<GoldenDifference>,
    holm: Vec<GoldenHolm>,
}

#[derive(Deserialize)]
struct GoldenSummary {
    values: Vec<f64>,
    min: f64,
    max: f64,
    mean: f64,
    stdev: f64,
    median: f64,
    p90: f64,
    bootstrap: Interval,
    outliers: Vec<usize>,
}

#[derive(Deserialize)]
struct GoldenDifference {
    arm: Vec<f64>,
    base: Vec<f64>,
    t: f64,
    p: f64,
    freedom: f64,
    ratio: f64,
    interval: Interval,
    effect: f64,
}

#[derive(Deserialize)]
struct GoldenHolm {
    p: Vec<f64>,
    corrected: Vec<f64>,
}

/// Equal but for rounding.
fn assert_near(ours: f64, theirs: f64, what: &str) {
    assert!((ours - theirs).abs() <= 1e-9 * theirs.abs().max(1e-3), "{what}: {ours} instead of {theirs}");
}

fn assert_same(ours: &Difference, theirs: &GoldenDifference, method: Method) {
    assert_eq!(ours.method, method);
    assert_near(ours.t, theirs.t, "t");
    assert_near(ours.freedom, theirs.freedom, "degrees of freedom");
    assert_near(ours.p, theirs.p, "p");
    assert_near(ours.ratio, theirs.ratio, "ratio");
    assert_near(ours.interval.low, theirs.interval.low, "interval, low");
    assert_near(ours.interval.high, theirs.interval.high, "interval, high");
    assert_near(ours.effect, theirs.effect, "effect");
}

impl Golden {
    pub(crate) fn judge_summaries(&self) {
        assert!(self.summaries.len() >= 5 && self.summaries.iter().any(|one| !one.outliers.is_empty()));
        for theirs in &self.summaries {
            let ours = Summary::of(&theirs.values).unwrap();
            assert_eq!(ours.n, theirs.values.len());
            assert_near(ours.min, theirs.min, "min");
            assert_near(ours.max, theirs.max, "max");
            assert_near(ours.mean, theirs.mean, "mean");
            assert_near(ours.stdev.unwrap(), theirs.stdev, "stdev");
            assert_near(ours.median, theirs.median, "median");
            assert_near(quantile(&theirs.values, 0.9).unwrap(), theirs.p90, "p90");
            assert_eq!(outliers(&theirs.values), theirs.outliers);
        }
    }

    pub(crate) fn judge_bootstrap(&self) {
        for theirs in &self.summaries {
            let ours = bootstrap_mean(&theirs.values, 0.95, 1).unwrap();
            // Of 10,000 resamples: the ends scatter by a fiftieth of the width; three of those.
            let slack = 0.06 * (theirs.bootstrap.high - theirs.bootstrap.low);
            assert!((ours.low - theirs.bootstrap.low).abs() <= slack, "{ours:?} {:?}", theirs.bootstrap);
            assert!((ours.high - theirs.bootstrap.high).abs() <= slack, "{ours:?} {:?}", theirs.bootstrap);
        }
    }

    pub(crate) fn judge_pairs(&self) {
        for theirs in &self.paired {
            let pairs: Vec<(f64, f64)> = theirs.arm.iter().copied().zip(theirs.base.iter().copied()).collect();
            assert_same(&compare_paired(&pairs).unwrap(), theirs, Method::Paired);
        }
    }

    pub(crate) fn judge_independent(&self) {
        for theirs in &self.welch {
            assert_same(&compare_unpaired(&theirs.arm, &theirs.base).unwrap(), theirs, Method::Welch);
        }
    }

    pub(crate) fn judge_corrections(&self) {
        for theirs in &self.holm {
            for (ours, theirs) in holm(&theirs.p).iter().zip(&theirs.corrected) {
                assert_near(*ours, *theirs, "p");
            }
        }
    }
}
