// SPDX-License-Identifier: Apache-2.0
//! From what a tool prints to its score. Pure, one parser a tool; each is tried on output that was captured from the tool.
//!
//! Compiled into the agent too. Invariant: a text that is not the tool's whole output gives no score, never a wrong one; no
//! text panics.

mod captured;

use super::job::Tool;
use super::line::Score;

/// The score in a tool's standard output, for those that run once; `None` if there is none.
#[must_use]
pub fn score(tool: Tool, text: &str) -> Option<Score> {
    match tool {
        Tool::Ebizzy => ebizzy(text),
        Tool::Dbench => dbench(text),
        Tool::Sysbench => sysbench(text),
        Tool::StressNg => stress_ng(text),
        Tool::Hackbench | Tool::Kernbuild => None,
    }
}

/// `N records/s`, `real N.NN s`.
fn ebizzy(text: &str) -> Option<Score> {
    let rate = text.lines().find_map(|line| line.trim().strip_suffix("records/s"))?;
    let real = text.lines().find_map(|line| line.strip_prefix("real")?.trim().strip_suffix('s'))?;
    Some(Score { milli_per_s: milli(rate.trim())?, ms: milli(real.trim())?, ..Score::default() })
}

/// `Throughput N MB/sec  N clients  N procs  max_latency=N ms`; the seconds are those of `cleanup   N sec`.
fn dbench(text: &str) -> Option<Score> {
    let line = text.lines().find_map(|line| line.strip_prefix("Throughput "))?;
    let (rate, rest) = line.split_once(" MB/sec")?;
    let longest = rest.rsplit_once("max_latency=")?.1.trim().strip_suffix(" ms")?;
    let cleanup = text.lines().find_map(|line| line.split_once("cleanup")?.1.trim().strip_suffix(" sec"))?;
    let ms = milli(cleanup.trim())?;
    Some(Score { milli_per_s: milli(rate)?, ms, longest_us: Some(milli(longest)?), tail_us: None })
}

/// `total time:`, `total number of events:`, and `max:` and `95th percentile:` in milliseconds.
fn sysbench(text: &str) -> Option<Score> {
    let value = |name: &str| text.lines().find_map(|line| line.trim().strip_prefix(name)).map(str::trim);
    let ms = milli(value("total time:")?.strip_suffix('s')?)?;
    let events: u64 = value("total number of events:")?.parse().ok()?;
    let milli_per_s = u64::try_from(u128::from(events) * 1_000_000 / u128::from((ms > 0).then_some(ms)?)).ok()?;
    Some(Score { milli_per_s, ms, longest_us: milli(value("max:")?), tail_us: milli(value("95th percentile:")?) })
}

/// The line of the stressor: its name, bogo operations, real, user and system time, operations per second of real time.
fn stress_ng(text: &str) -> Option<Score> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("stress-ng: metrc: [")?.split_once("] "));
    let words = lines.map(|(_, rest)| rest.split_ascii_whitespace().collect::<Vec<_>>());
    words
        .filter(|words| words.len() == 7)
        .find_map(|words| Some(Score { milli_per_s: milli(words[5])?, ms: milli(words[2])?, ..Score::default() }))
}

/// `Time: N.NNN`, in milliseconds: how long one round of hackbench took.
#[must_use]
pub fn hackbench_ms(text: &str) -> Option<u64> {
    milli(text.lines().find_map(|line| line.strip_prefix("Time: "))?.trim()).filter(|ms| *ms > 0)
}

/// Thousandths of a decimal number without a sign; further decimals are cut off.
fn milli(text: &str) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(decimals) {
        return None;
    }
    let cut = format!("{decimals:0<3}");
    whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(cut.get(..3)?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn decimals_are_thousandths() {
        assert_eq!(
            (milli("399.623"), milli("2.0010"), milli("7"), milli("0.1")),
            (Some(399_623), Some(2001), Some(7000), Some(100))
        );
        for text in ["", ".", ".5", "-1", "+1", "1e3", "1.x", "nan", "18446744073709551615"] {
            assert_eq!(milli(text), None, "{text}");
        }
    }

    #[test]
    fn captured_output_has_its_score() {
        let of = |tool, text| score(tool, text).unwrap();
        assert_eq!(
            of(Tool::Ebizzy, captured::EBIZZY),
            Score { milli_per_s: 12_345_000, ms: 10_010, ..Score::default() }
        );
        let dbench = Score { milli_per_s: 399_623, ms: 2000, longest_us: Some(33_474), tail_us: None };
        assert_eq!(of(Tool::Dbench, captured::DBENCH), dbench);
        let sysbench = Score { milli_per_s: 472_763, ms: 2001, longest_us: Some(19_580), tail_us: Some(9060) };
        assert_eq!(of(Tool::Sysbench, captured::SYSBENCH), sysbench);
        assert_eq!(
            of(Tool::StressNg, captured::STRESS_NG),
            Score { milli_per_s: 14_316_450, ms: 1000, ..Score::default() }
        );
        assert_eq!(hackbench_ms(captured::HACKBENCH), Some(149));
    }

    #[test]
    fn half_an_output_has_none() {
        for (tool, text) in captured::ALL {
            let lines: Vec<&str> = text.lines().collect();
            // ebizzy's score is in its first two lines, the others' in the last half.
            let half = lines[..if tool == Tool::Ebizzy { 1 } else { lines.len() / 2 }].join("\n");
            assert_eq!(score(tool, &half), None, "{half}");
        }
        assert_eq!((hackbench_ms("Time: 0.000"), hackbench_ms("Time: x")), (None, None));
    }

    proptest! {
        #[test]
        fn mangled_output_never_panics(
            which in 0usize..4, at in any::<prop::sample::Index>(), with in "[0-9.: a-z]{0,20}", cut in any::<prop::sample::Index>()
        ) {
            let (tool, text) = captured::ALL[which];
            let (at, cut) = (at.index(text.len()), cut.index(text.len()));
            let mangled = format!("{}{with}{}", &text[..at], &text[cut..]);
            let _ = hackbench_ms(&mangled);
            if let Some(score) = score(tool, &mangled) {
                // A score has a rate that stands in the text, or is computed from numbers that do.
                prop_assert!(mangled.bytes().any(|byte| byte.is_ascii_digit()));
                prop_assert!(score.milli_per_s == 0 || score.ms < u64::MAX);
            }
        }

        #[test]
        fn no_text_panics(text in ".{0,200}", tool in 0usize..6) {
            let digits = text.bytes().any(|byte| byte.is_ascii_digit());
            prop_assert!(score(Tool::ALL[tool], &text).is_none() || digits);
        }
    }
}
