// SPDX-License-Identifier: Apache-2.0
//! A workload over the overcommit ratios, a line an arm: where the lines part, the arms do.
//!
//! Invariant: the scale is logarithmic, for rates of arms differ by factors, and says so; what brought nothing has no point.

use std::fmt::Write;

use super::chart::escaped;
use super::number::rate;
use crate::analysis::{Group, Row};

const WIDTH: f64 = 290.0;
const HEIGHT: f64 = 215.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 26.0;
/// Colours of the arms, in the order of the plan; from the ninth arm on they come again.
const COLOURS: [&str; 8] = ["#8a94a3", "#3b7dbd", "#e8a33d", "#1f7a3d", "#d1495b", "#7b5ea7", "#2a9d8f", "#5c4033"];

/// The colour of the arm number `at`.
pub(super) const fn colour(at: usize) -> &'static str {
    COLOURS[at % COLOURS.len()]
}

/// From values to places of the picture.
struct Axes {
    low: f64,
    high: f64,
    columns: f64,
}

impl Axes {
    /// That hold every average and interval; none if there is nothing to draw.
    fn of(groups: &[&Group]) -> Option<Self> {
        let points = || groups.iter().flat_map(|group| &group.rows).filter_map(point).flatten();
        let low = points().fold(f64::INFINITY, f64::min).log10().floor();
        let high = points().fold(0.0, f64::max).log10().ceil();
        let columns = f64::from(u32::try_from(groups.len()).ok()?);
        (low.is_finite() && high.is_finite()).then(|| Self { low, high: high.max(low + 1.0), columns })
    }

    fn x(&self, column: u32) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * (f64::from(column) + 0.5) / self.columns
    }

    fn y(&self, value: f64) -> f64 {
        let part = (value.log10() - self.low) / (self.high - self.low);
        TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - part.clamp(0.0, 1.0))
    }
}

/// Average and both ends of its interval, if they are above 0.
fn point(row: &Row) -> Option<[f64; 3]> {
    let mean = row.throughput?.mean;
    let (low, high) = row.interval.map_or((mean, mean), |interval| (interval.low, interval.high));
    (low > 0.0).then_some([mean, low, high])
}

/// The picture of a workload's groups, in the order of the ratios.
pub(super) fn lines(workload: &str, groups: &[&Group]) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         role=\"img\" aria-label=\"{0} by ratio\">\n<text x=\"4\" y=\"18\" class=\"head\">{0}</text>\n",
        escaped(workload)
    );
    if let Some(axes) = Axes::of(groups) {
        grid(&mut svg, &axes, groups);
        let arms = groups.first().map_or(0, |group| group.rows.len());
        (0..arms).for_each(|arm| line(&mut svg, &axes, groups, arm));
    }
    svg.push_str("</svg>\n");
    svg
}

#[expect(clippy::cast_possible_truncation, reason = "exponents of numbers are within 309 of 0")]
fn grid(svg: &mut String, axes: &Axes, groups: &[&Group]) {
    let (first, last) = (axes.low as i32, axes.high as i32);
    // At most six labels, whatever the range.
    let step = usize::try_from((last - first + 5) / 6).unwrap_or(1).max(1);
    for exponent in (first..=last).step_by(step) {
        let y = axes.y(10_f64.powi(exponent));
        let label = power(exponent);
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {y:.1}H{:.0}\" stroke=\"#e6e9ee\"/><text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\" \
             class=\"dim\">{label}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0
        );
    }
    for (column, group) in (0..).zip(groups) {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" class=\"dim\">{}x</text>",
            axes.x(column),
            HEIGHT - 6.0,
            group.ratio
        );
    }
}

/// `100`, `10 k`, `1 M`.
fn power(exponent: i32) -> String {
    let (shown, unit) = match exponent {
        ..3 => (exponent, ""),
        3..6 => (exponent - 3, " k"),
        6..9 => (exponent - 6, " M"),
        _ => (exponent - 9, " G"),
    };
    format!("{}{unit}", 10_f64.powi(shown))
}

fn line(svg: &mut String, axes: &Axes, groups: &[&Group], arm: usize) {
    let colour = colour(arm);
    let (mut path, mut marks) = (String::new(), String::new());
    for (column, group) in (0..).zip(groups) {
        let Some((row, [mean, low, high])) = group.rows.get(arm).and_then(|row| point(row).map(|point| (row, point)))
        else {
            continue;
        };
        let (x, y) = (axes.x(column), axes.y(mean));
        let _ = write!(path, "{}{x:.1} {y:.1}", if path.is_empty() { 'M' } else { 'L' });
        let _ = writeln!(
            marks,
            "<path d=\"M{x:.1} {:.1}V{:.1}\" stroke=\"{colour}\" stroke-width=\"1.4\"/><circle cx=\"{x:.1}\" cy=\"{y:.1}\" \
             r=\"3.4\" fill=\"{colour}\"><title>{} {}x: {} operations/s</title></circle>",
            axes.y(low),
            axes.y(high),
            escaped(&row.arm),
            group.ratio,
            rate(mean)
        );
    }
    if !path.is_empty() {
        let _ = writeln!(svg, "<path d=\"{path}\" stroke=\"{colour}\" stroke-width=\"2\" fill=\"none\"/>");
    }
    svg.push_str(&marks);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_readable() {
        let shown: Vec<String> = [-2, 0, 2, 3, 5, 6, 8, 9].into_iter().map(power).collect();
        assert_eq!(shown, ["0.01", "1", "100", "1 k", "100 k", "1 M", "100 M", "1 G"]);
    }

    #[test]
    fn more_is_higher_and_everything_is_within() {
        let axes = Axes { low: 1.0, high: 3.0, columns: 2.0 };
        assert!(axes.y(1000.0) < axes.y(100.0) && axes.y(100.0) < axes.y(10.0));
        assert!((axes.y(1000.0) - TOP).abs() < 1e-9 && (axes.y(10.0) - (HEIGHT - BOTTOM)).abs() < 1e-9);
        assert!(axes.x(0) > LEFT && axes.x(1) < WIDTH - RIGHT);
    }
}
