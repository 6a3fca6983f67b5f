// SPDX-License-Identifier: Apache-2.0
//! Our statistics against known answers (`golden.json`, which `golden.py` made by SciPy, NumPy and statsmodels), and what
//! holds for any numbers. The test `scipy` asks SciPy itself about other samples, where it is installed.

#![expect(clippy::unwrap_used, reason = "an integration test: a failed unwrap is a failed test")]

mod judge;

use experiment::stats::{Summary, Verdict, bootstrap_mean, compare_paired, compare_unpaired, holm};
use experiment::stats::{jain, outliers, quantile};
use proptest::prelude::*;

use judge::Golden;

fn golden() -> Golden {
    serde_json::from_str(include_str!("golden.json")).unwrap()
}

#[test]
fn summaries_are_those_of_numpy() {
    golden().judge_summaries();
}

#[test]
fn bootstrap_intervals_are_those_of_scipy_but_for_chance() {
    golden().judge_bootstrap();
}

#[test]
fn tests_of_pairs_are_those_of_scipy() {
    golden().judge_pairs();
}

#[test]
fn tests_of_independent_runs_are_those_of_scipy() {
    golden().judge_independent();
}

#[test]
fn corrections_for_many_comparisons_are_those_of_statsmodels() {
    golden().judge_corrections();
}

#[test]
fn what_cannot_be_said_is_not_said() {
    assert!(Summary::of(&[]).is_none() && Summary::of(&[1.0, f64::NAN]).is_none());
    assert_eq!(Summary::of(&[3.0]).unwrap().stdev, None);
    assert!(bootstrap_mean(&[1.0], 0.95, 1).is_none());
    assert!(compare_paired(&[(1.0, 2.0)]).is_none());
    assert!(compare_paired(&[(1.0, 2.0), (0.0, 2.0)]).is_none());
    assert!(compare_unpaired(&[1.0, 2.0], &[1.0]).is_none());
    assert!(outliers(&[1.0, 1.0, 1.0, 100.0]).is_empty());
    assert!(jain(&[0.0, 0.0]).is_none() && quantile(&[], 0.5).is_none());
}

#[test]
fn the_same_numbers_show_no_difference() {
    let same = compare_paired(&[(5.0, 5.0), (6.0, 6.0), (7.0, 7.0)]).unwrap();
    assert_eq!((same.p, same.t, same.verdict(same.p)), (1.0, 0.0, Verdict::NoDifferenceShown));
    let doubled = compare_paired(&[(10.0, 5.0), (12.0, 6.0)]).unwrap();
    assert_eq!(doubled.verdict(doubled.p), Verdict::More);
    let halved = compare_unpaired(&[5.0, 5.0], &[10.0, 10.0]).unwrap();
    assert_eq!(halved.verdict(halved.p), Verdict::Less);
}

fn rates(n: std::ops::Range<usize>) -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(1.0..1e9_f64, n)
}

proptest! {
    #[test]
    fn a_summary_lies_within_its_numbers(values in rates(1..20)) {
        let summary = Summary::of(&values).unwrap();
        let slack = summary.max * 1e-12;
        prop_assert!(summary.min <= summary.median && summary.median <= summary.max);
        prop_assert!(summary.min - slack <= summary.mean && summary.mean <= summary.max + slack);
    }

    #[test]
    fn a_comparison_turned_round_is_its_inverse(arm in rates(2..9), base in rates(2..9)) {
        let (there, back) = (compare_unpaired(&arm, &base).unwrap(), compare_unpaired(&base, &arm).unwrap());
        prop_assert!((there.ratio * back.ratio - 1.0).abs() < 1e-9);
        prop_assert!((there.p - back.p).abs() < 1e-9 && (0.0..=1.0).contains(&there.p));
        prop_assert!(there.interval.low <= there.ratio && there.ratio <= there.interval.high);
    }

    #[test]
    fn a_correction_never_makes_a_probability_smaller(values in prop::collection::vec(0.0..=1.0_f64, 0..20)) {
        let corrected = holm(&values);
        prop_assert_eq!(corrected.len(), values.len());
        for (raw, corrected) in values.iter().zip(&corrected) {
            prop_assert!(corrected >= raw && *corrected <= 1.0);
        }
    }

    #[test]
    fn jain_is_one_for_equals_and_never_below_one_in_n(shares in rates(1..20)) {
        let index = jain(&shares).unwrap();
        prop_assert!(index <= 1.0 + 1e-12 && index * shares.len() as f64 >= 1.0 - 1e-12);
        prop_assert!((jain(&vec![7.0; shares.len()]).unwrap() - 1.0).abs() < 1e-12);
    }
}

proptest! {
    // Ten thousand resamples each.
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn an_interval_holds_the_mean_of_its_sample_and_depends_on_nothing_but_the_seed(values in rates(2..10)) {
        let interval = bootstrap_mean(&values, 0.95, 3).unwrap();
        let summary = Summary::of(&values).unwrap();
        let slack = summary.max * 1e-12;
        prop_assert!(summary.min - slack <= interval.low && interval.high <= summary.max + slack);
        prop_assert!(interval.low <= interval.high);
        prop_assert_eq!(bootstrap_mean(&values, 0.95, 3), Some(interval));
    }
}
