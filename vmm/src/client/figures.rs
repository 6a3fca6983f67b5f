// SPDX-License-Identifier: Apache-2.0
//! Numbers for people: times, sizes, shares. Pure.

/// Nanoseconds with three significant digits or so.
#[must_use]
pub(crate) fn time(ns: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    let number = ns as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", number / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", number / 1e6),
        _ => format!("{:.2} s", number / 1e9),
    }
}

/// Bytes, in the largest binary unit of which there is one at least.
#[must_use]
pub(crate) fn size(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
    let number = bytes as f64;
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", number / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", number / 1_048_576.0),
        _ => format!("{:.1} GiB", number / 1_073_741_824.0),
    }
}

/// `part` of `whole` in per cent; 0 of nothing.
#[must_use]
pub(crate) fn percent(part: u64, whole: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
    let (part, whole) = (part as f64, whole as f64);
    if whole > 0.0 { part * 100.0 / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_unit_that_fits() {
        assert_eq!(
            [0, 999, 1_500, 2_000_000, 61_000_000_000].map(time),
            ["0 ns", "999 ns", "1.5 us", "2.0 ms", "61.00 s"]
        );
        assert_eq!([5, 2048, 512 << 20, 3 << 30].map(size), ["5 B", "2.0 KiB", "512.0 MiB", "3.0 GiB"]);
        assert_eq!((percent(1, 4), percent(1, 0)), (25.0, 0.0));
    }
}
