// SPDX-License-Identifier: Apache-2.0
//! Statistics of few, noisy runs: what is said, how sure it is, and when nothing is shown.
//!
//! Pure. Proven against SciPy and statsmodels: `tests/golden/golden.json` holds their answers, `golden.py` beside it makes it.
//! Invariant: no number is left out; what lies far from the others is named, and counted like any other.

mod bootstrap;
mod compare;
mod holm;
mod summary;

pub use bootstrap::{Interval, bootstrap_mean};
pub use compare::{Difference, Method, Verdict, compare_paired, compare_unpaired};
pub use holm::holm;
pub use summary::{Summary, jain, outliers, quantile};
