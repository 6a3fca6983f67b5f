// SPDX-License-Identifier: Apache-2.0
//! How far each arm of a workload and ratio is behind the best arm there: where an arm loses, and to which.
//!
//! Invariant: the best arm is the one that did best in these runs, so among equals it is best by chance; "behind" is said
//! only where a test, corrected for all of them, shows it.

use super::{Comparison, Row, compare};

/// Finds the best arm, and compares every other with it.
pub(super) fn compare_with_best(rows: &mut [Row]) -> Option<String> {
    let standing = rows.iter().enumerate().filter_map(|(at, row)| mean_logarithm(row).map(|mean| (at, mean)));
    let (best, _) = standing.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let runs = rows[best].values.clone();
    for (at, row) in rows.iter_mut().enumerate() {
        row.to_best = if at == best { None } else { compare(&row.values, &runs).map(Comparison::uncorrected) };
    }
    Some(rows[best].arm.clone())
}

/// The logarithm of the geometric mean; none of no runs, or if one brought nothing.
fn mean_logarithm(row: &Row) -> Option<f64> {
    let logarithms: Vec<f64> = row.values.iter().map(|value| value.operations_per_s.ln()).collect();
    let whole = !logarithms.is_empty() && logarithms.iter().all(|logarithm| logarithm.is_finite());
    #[expect(clippy::cast_precision_loss, reason = "numbers of runs are far below 2^53")]
    whole.then(|| logarithms.iter().sum::<f64>() / logarithms.len() as f64)
}
