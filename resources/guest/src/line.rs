// SPDX-License-Identifier: Apache-2.0
//! The lines that the agent writes to the serial port, and how they are read: text of a guest, which may be hostile.
//!
//! A line is `@agent KIND …` with a check over it at its end (`#` and eight digits), for the console is shared with the
//! kernel: what was broken by a message of somebody else is no line. Invariant: what [`std::fmt::Display`] prints,
//! [`Line::parse`] reads back as the same value; no input panics, and what is kept of one is bounded.

use std::fmt;

use super::cpu_time::CpuTime;

/// What every line begins with.
pub const PREFIX: &str = "@agent ";
/// Longest line that is looked at, without its line feed.
pub const LONGEST: usize = 512;
/// Most that is kept of a text.
const LONGEST_TEXT: usize = 300;

/// What a tool came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Score {
    /// Thousandths of what the tool counts, a second.
    pub milli_per_s: u64,
    /// How long it ran, in milliseconds.
    pub ms: u64,
    /// The longest wait that it saw, in microseconds, if it times them.
    pub longest_us: Option<u64>,
    /// The 95th or 99th percentile that it reports, in microseconds, if it does.
    pub tail_us: Option<u64>,
}

/// A line of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// It waits for a line on the serial port to begin; so many CPUs are online.
    Waiting(u32),
    /// The tool has ended well: what it came to, and where the CPUs' time went meanwhile.
    Result(Score, CpuTime),
    /// The tool did not end well, or cannot be started.
    Failed(String),
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = match self {
            Self::Waiting(cpus) => format!("waiting {cpus}"),
            Self::Result(score, cpu) => {
                let optional = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
                format!(
                    "result {} {} {} {} {} {} {} {}",
                    score.milli_per_s,
                    score.ms,
                    optional(score.longest_us),
                    optional(score.tail_us),
                    cpu.user_ms,
                    cpu.system_ms,
                    cpu.idle_ms,
                    cpu.steal_ms
                )
            }
            Self::Failed(why) => format!("failed {}", clean(why)),
        };
        write!(f, "{PREFIX}{body} #{:08x}", check(body.as_bytes()))
    }
}

impl Line {
    /// Reads a line, without its line feed; a carriage return at its end is taken off. `None` for anything that the agent did
    /// not write just so.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Self> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let rest = str::from_utf8(line).ok().filter(|line| line.len() <= LONGEST)?.strip_prefix(PREFIX)?;
        let (body, found) = rest.rsplit_once(" #")?;
        if found != format!("{:08x}", check(body.as_bytes())) {
            return None;
        }
        let (kind, rest) = body.split_once(' ')?;
        match kind {
            "waiting" => rest.parse().ok().map(Self::Waiting),
            "failed" => Some(Self::Failed(clean(rest))),
            "result" => Self::result(rest),
            _ => None,
        }
    }

    fn result(rest: &str) -> Option<Self> {
        let words: Vec<&str> = rest.split(' ').collect();
        let [rate, ms, longest, tail, user, system, idle, steal] = words[..] else { return None };
        let optional = |word: &str| if word == "-" { Some(None) } else { word.parse().ok().map(Some) };
        let score = Score {
            milli_per_s: rate.parse().ok()?,
            ms: ms.parse().ok()?,
            longest_us: optional(longest)?,
            tail_us: optional(tail)?,
        };
        let cpu = CpuTime {
            user_ms: user.parse().ok()?,
            system_ms: system.parse().ok()?,
            idle_ms: idle.parse().ok()?,
            steal_ms: steal.parse().ok()?,
        };
        Some(Self::Result(score, cpu))
    }
}

/// Printable ASCII of a text, cut to its bound, on one line.
fn clean(text: &str) -> String {
    let printable = text.chars().map(|c| if c.is_ascii_graphic() { c } else { ' ' });
    let one_line: String = printable.take(LONGEST_TEXT).collect();
    one_line.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

/// FNV-1a, 32 bits: enough to tell a broken line, and four lines long.
fn check(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_broken_line_is_no_line() {
        let line = Line::Waiting(4).to_string();
        assert_eq!(line, "@agent waiting 4 #2f999d44");
        assert_eq!(Line::parse(format!("{line}\r").as_bytes()), Some(Line::Waiting(4)));
        for broken in ["@agent waiting 5 #2f999d44", "@agent waiting 4", "waiting 4 #2f999d44", "@agent  #811c9dc5", ""]
        {
            assert_eq!(Line::parse(broken.as_bytes()), None, "{broken}");
        }
    }

    #[test]
    fn a_reason_is_one_short_printable_line() {
        let line = Line::Failed(format!("a\n\u{7}b  #c {}", "x".repeat(1000))).to_string();
        assert!(line.len() < LONGEST && !line.contains('\n'));
        let Some(Line::Failed(why)) = Line::parse(line.as_bytes()) else { panic!("{line}") };
        assert!(why.starts_with("a b #c xxx") && why.len() <= LONGEST_TEXT);
    }

    fn lines() -> impl Strategy<Value = Line> {
        let score = any::<(u64, u64, Option<u64>, Option<u64>)>();
        let cpu = any::<(u64, u64, u64, u64)>();
        prop_oneof![
            any::<u32>().prop_map(Line::Waiting),
            "[a-z#=-]{1,20}".prop_map(Line::Failed),
            (score, cpu).prop_map(|((milli_per_s, ms, longest_us, tail_us), cpu)| {
                let (user_ms, system_ms, idle_ms, steal_ms) = cpu;
                let score = Score { milli_per_s, ms, longest_us, tail_us };
                Line::Result(score, CpuTime { user_ms, system_ms, idle_ms, steal_ms })
            }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(line in lines()) {
            prop_assert_eq!(Line::parse(line.to_string().as_bytes()), Some(line));
        }

        #[test]
        fn one_changed_byte_is_seen(line in lines(), at in any::<prop::sample::Index>(), flip in 1u8..=255) {
            let mut bytes = line.to_string().into_bytes();
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            prop_assert_eq!(Line::parse(&bytes), None);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
            prop_assert_eq!(Line::parse(&bytes), None);
        }
    }
}
