// SPDX-License-Identifier: Apache-2.0
//! Where a guest's CPU time went, as its own kernel counts it. Pure. Compiled into the agent too.
//!
//! Source: Linux `Documentation/filesystems/proc.rst`, section 1.7 (`/proc/stat`), in hundredths of a second (USER_HZ).

/// Sums over all CPUs, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// In programs, niced ones included.
    pub user_ms: u64,
    /// In the kernel, interrupts included.
    pub system_ms: u64,
    /// Idle, waiting for devices included.
    pub idle_ms: u64,
    /// Runnable while the host ran something else, as KVM's steal clock tells.
    pub steal_ms: u64,
}

const MS_PER_TICK: u64 = 10;

impl CpuTime {
    /// Reads the first line of `/proc/stat`; `None` if it is not there or not that.
    #[must_use]
    pub fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks = line.split_ascii_whitespace().map(|word| word.parse::<u64>().ok()).collect::<Option<Vec<_>>>()?;
        let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = ticks[..] else { return None };
        let ms = |ticks: [u64; 3]| {
            ticks.iter().try_fold(0_u64, |sum, ticks| sum.checked_add(*ticks))?.checked_mul(MS_PER_TICK)
        };
        Some(Self {
            user_ms: ms([user, nice, 0])?,
            system_ms: ms([system, irq, softirq])?,
            idle_ms: ms([idle, iowait, 0])?,
            steal_ms: ms([steal, 0, 0])?,
        })
    }

    /// What came to it since `before`. The kernel may take idle time back: nothing is then less than none.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            user_ms: self.user_ms.saturating_sub(before.user_ms),
            system_ms: self.system_ms.saturating_sub(before.system_ms),
            idle_ms: self.idle_ms.saturating_sub(before.idle_ms),
            steal_ms: self.steal_ms.saturating_sub(before.steal_ms),
        }
    }
}

/// CPUs that `/proc/stat` lists.
#[must_use]
pub fn cpus(stat: &str) -> u32 {
    let is_one =
        |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    u32::try_from(stat.lines().filter(is_one).count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STAT: &str =
        "cpu  10 2 30 400 5 6 7 80 0 0\ncpu0 5 1 15 200 2 3 3 40 0 0\ncpu1 5 1 15 200 3 3 4 40 0 0\nintr 1\n";

    #[test]
    fn the_sums_are_read() {
        let time = CpuTime::parse(STAT).unwrap();
        assert_eq!(time, CpuTime { user_ms: 120, system_ms: 430, idle_ms: 4050, steal_ms: 800 });
        assert_eq!(cpus(STAT), 2);
        let before = CpuTime { user_ms: 100, system_ms: 0, idle_ms: 5000, steal_ms: 1 };
        assert_eq!(time.since(before), CpuTime { user_ms: 20, system_ms: 430, idle_ms: 0, steal_ms: 799 });
    }

    #[test]
    fn what_is_no_such_file_is_none() {
        for text in ["", "cpu\n", "cpu 1 2 3\n", "cpu a b c d e f g h\n", "cpu 18446744073709551615 1 1 1 1 1 1 1\n"] {
            assert_eq!(CpuTime::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(cpu[ 0-9a\n]{0,90}){0,3}") {
            let read = CpuTime::parse(&text);
            prop_assert!(read.is_none() || text.contains("cpu "));
            prop_assert!(cpus(&text) <= 3);
        }
    }
}
