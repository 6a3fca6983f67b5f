// SPDX-License-Identifier: Apache-2.0
//! An analysis for people and programs: tables for a mailing list, a page for a browser, rows for a spreadsheet.
//!
//! Pure. Invariant: nothing is computed here that the analysis does not hold; text from files stays text.

mod beside;
mod chart;
mod csv;
mod look;
mod number;
mod overview;
mod page;
mod scaling;
mod table;

pub use beside::side_by_side;
pub use csv::{csv, samples_csv};
pub use page::html;
pub use table::markdown;

#[cfg(test)]
mod tests;
