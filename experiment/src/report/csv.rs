// SPDX-License-Identifier: Apache-2.0
//! Rows for a spreadsheet (RFC 4180): one an arm, or one a guest of every cell.

use std::fmt::Write;

use super::number;
use crate::analysis::Analysis;
use crate::sample::{CellRecord, Outcome};

fn cell(text: &str) -> String {
    let plain = !text.contains([',', '"', '\n', '\r']);
    if plain { text.to_owned() } else { format!("\"{}\"", text.replace('"', "\"\"")) }
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// A row for each arm of each workload and ratio.
#[must_use]
pub fn csv(analysis: &Analysis) -> String {
    let mut text = String::from(
        "workload,ratio,guests,vcpus,arm,n,min,max,mean,stdev,median,mean_low,mean_high,change_percent,ratio_to_baseline,\
         ratio_low,ratio_high,effect,t,p,p_corrected,verdict\r\n",
    );
    for group in &analysis.groups {
        for row in &group.rows {
            let of = |value: fn(&crate::stats::Summary) -> f64| optional(row.throughput.as_ref().map(value));
            let difference = row.comparison.map(|comparison| comparison.difference);
            let numbers = [
                of(|summary| summary.min),
                of(|summary| summary.max),
                of(|summary| summary.mean),
                optional(row.throughput.and_then(|summary| summary.stdev)),
                of(|summary| summary.median),
                optional(row.interval.map(|interval| interval.low)),
                optional(row.interval.map(|interval| interval.high)),
                optional(row.change_percent),
                optional(difference.map(|one| one.ratio)),
                optional(difference.map(|one| one.interval.low)),
                optional(difference.map(|one| one.interval.high)),
                optional(difference.map(|one| one.effect)),
                optional(difference.map(|one| one.t)),
                optional(difference.map(|one| one.p)),
                optional(row.comparison.map(|comparison| comparison.p_corrected)),
            ];
            let _ = write!(
                text,
                "{},{},{},{},{},{},{},{}\r\n",
                cell(&group.workload),
                group.ratio,
                group.guests,
                group.vcpus,
                cell(&row.arm),
                row.values.len(),
                numbers.join(","),
                number::verdict(row, &analysis.baseline)
            );
        }
    }
    text
}

/// A row for each guest of each cell, warm-ups and failures too: the raw samples.
#[must_use]
pub fn samples_csv(records: &[CellRecord]) -> String {
    let mut text = String::from(
        "cell,name,warm_up,began_unix_s,load_before,others_share,guest,operations,seconds,operations_per_s,spin_seconds,wait_p50_ns,\
         wait_p99_ns,wait_p999_ns,jain,ended_late_us,failure\r\n",
    );
    let count = |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
    for record in records {
        let before = format!(
            "{},{},{},{},{},{}",
            record.cell.number,
            cell(&record.name),
            record.cell.is_warm_up,
            record.began_unix_s,
            optional(record.load_before),
            optional(record.others_share)
        );
        match &record.outcome {
            Outcome::Failed(why) => text.push_str(&format!("{before},,,,,,,,,,,{}\r\n", cell(why))),
            Outcome::Measured(samples) => {
                for (number, guest) in samples.iter().enumerate() {
                    let _ = write!(
                        text,
                        "{before},{number},{},{},{},{},{},{},{},{},{},\r\n",
                        guest.operations,
                        guest.seconds,
                        guest.operations_per_s,
                        optional(guest.spin_seconds),
                        count(guest.wait_p50_ns),
                        count(guest.wait_p99_ns),
                        count(guest.wait_p999_ns),
                        optional(guest.jain),
                        guest.ended_late_us
                    );
                }
            }
        }
    }
    text
}
