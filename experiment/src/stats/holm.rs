// SPDX-License-Identifier: Apache-2.0
//! Many comparisons at once: the chance that any of them is wrong stays what it was for one.

/// Probabilities corrected for being one of many (Holm: A simple sequentially rejective multiple test procedure, 1979), in
/// the order they came in.
#[must_use]
pub fn holm(probabilities: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_by(|a, b| probabilities[*a].total_cmp(&probabilities[*b]));
    let mut corrected = vec![1.0; probabilities.len()];
    let mut at_least = 0.0_f64;
    for (rank, place) in order.into_iter().enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "numbers of comparisons are far below 2^53")]
        let left = (probabilities.len() - rank) as f64;
        at_least = at_least.max(probabilities[place] * left).min(1.0);
        corrected[place] = at_least;
    }
    corrected
}
