// SPDX-License-Identifier: Apache-2.0
//! What the kernel writes of a thread under `/proc` (Documentation/filesystems/proc.rst, table 1-4;
//! Documentation/scheduler/sched-stats.rst, "/proc/<pid>/schedstat"). Pure: text in, numbers out.

/// `schedstat`: time on a CPU and time waiting for one, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SchedStat {
    /// On a CPU. Behind by up to a scheduler tick.
    pub(crate) ran_ns: u64,
    /// Runnable without a CPU (`run_delay`).
    pub(crate) waited_ns: u64,
}

/// Reads `schedstat`; `None` if it is not three numbers.
pub(crate) fn schedstat(text: &[u8]) -> Option<SchedStat> {
    let mut numbers = std::str::from_utf8(text).ok()?.split_ascii_whitespace().map(str::parse::<u64>);
    let stat = SchedStat { ran_ns: numbers.next()?.ok()?, waited_ns: numbers.next()?.ok()? };
    numbers.next()?.ok().map(|_slices| stat)
}

/// What is used of `stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// One letter: `R` runnable, `S` and `D` waiting, `Z` and `X` gone.
    pub(crate) state: u8,
    /// Field 39: the CPU it last ran on.
    pub(crate) cpu: u32,
    /// Field 43: time in guest code, in clock ticks (`sysconf(_SC_CLK_TCK)`). Sampled, unless the kernel accounts at
    /// every entry and exit.
    pub(crate) guest_ticks: u64,
}

/// Reads `stat`; `None` if it is cut short. The name in it may hold anything, so fields are counted from its end.
pub(crate) fn stat(text: &[u8]) -> Option<Stat> {
    let name_end = text.iter().rposition(|byte| *byte == b')')?;
    // The first field behind the name is field 3; each number below skips to the next one that is used.
    let mut fields = std::str::from_utf8(&text[name_end + 1..]).ok()?.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let cpu = fields.nth(39 - 3 - 1)?.parse().ok()?;
    let guest_ticks = fields.nth(43 - 39 - 1)?.parse().ok()?;
    Some(Stat { state, cpu, guest_ticks })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STAT: &[u8] =
        b"25576 (v) R (pu0) R 25574 25575 1 0 -1 4194368 7 0 0 0 13 1 0 0 20 0 4 0 3345 1 2 3 4 5 6 7 8 \
        0 0 4096 0 0 0 0 -1 1 0 0 0 16 0 0 0 0 0 0 0 0 0\n";

    #[test]
    fn fields_are_counted_from_the_end_of_the_name() {
        assert_eq!(stat(STAT), Some(Stat { state: b'R', cpu: 1, guest_ticks: 16 }));
    }

    #[test]
    fn times_are_read_and_junk_is_not() {
        assert_eq!(schedstat(b"94474 3656496 2\n"), Some(SchedStat { ran_ns: 94474, waited_ns: 3_656_496 }));
        for text in [&b""[..], b"1 2", b"1 2 x", b"-1 2 3", b"\xFF 1 2"] {
            assert_eq!(schedstat(text), None);
        }
    }

    proptest! {
        #[test]
        fn text_cut_anywhere_is_read_whole_or_not_at_all(length in 0usize..200) {
            let cut = &STAT[..length.min(STAT.len())];
            if let Some(seen) = stat(cut) {
                prop_assert_eq!((seen.state, seen.cpu), (b'R', 1));
            }
        }
    }
}
