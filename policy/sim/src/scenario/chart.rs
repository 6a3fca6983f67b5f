// SPDX-License-Identifier: Apache-2.0
//! A report as an SVG picture: a bar for each arm, with its standard deviation.

use std::fmt::Write as _;

use super::Report;
use crate::page::{self, WIDTH, escaped};

const ROW: f64 = 28.0;
const LEFT: f64 = 130.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 48.0;

impl Report {
    /// Height of [`Self::chart`] in pixels.
    pub(crate) fn chart_height(&self) -> f64 {
        TOP + ROW * f64::from(u32::try_from(self.rows.len()).unwrap_or(u32::MAX)) + 12.0
    }

    /// The operations a second of every arm as bars.
    #[must_use]
    pub fn chart(&self) -> String {
        let height = self.chart_height();
        let most = self.rows.iter().map(|row| row.cells[0].measure).map(|m| m.mean + m.stdev).fold(1.0, f64::max);
        let scale = (WIDTH - LEFT - RIGHT) / most;
        let mut svg = page::open(WIDTH, height, &self.title);
        svg.push_str(
            "<text x=\"10\" y=\"36\" fill=\"#555\">operations per simulated second, mean and standard deviation</text>\n",
        );
        for (at, row) in (0_u32..).zip(&self.rows) {
            let y = TOP + ROW * f64::from(at);
            let measure = row.cells[0].measure;
            let (end, middle) = (measure.mean * scale, y + ROW / 2.0 - 3.0);
            let (low, high) =
                (LEFT + (measure.mean - measure.stdev).max(0.0) * scale, end + measure.stdev * scale + LEFT);
            let _ = write!(
                svg,
                "<text x=\"10\" y=\"{:.1}\">{}</text>\n<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{end:.1}\" height=\"{:.1}\" \
                 fill=\"#4a7ab5\"/>\n<path d=\"M{low:.1} {middle:.1}H{high:.1}\" stroke=\"#222\"/>\n\
                 <text x=\"{:.1}\" y=\"{:.1}\">{:.0} ({:+.1} %)</text>\n",
                y + 15.0,
                escaped(&row.arm),
                ROW - 6.0,
                high + 6.0,
                y + 15.0,
                measure.mean,
                row.change_percent
            );
        }
        svg.push_str("</svg>\n");
        svg
    }
}
