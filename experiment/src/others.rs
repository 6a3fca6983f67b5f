// SPDX-License-Identifier: Apache-2.0
//! How much of the host CPUs somebody else took while a cell ran: other programs, interrupts, and the hypervisor below.
//!
//! From what the kernel has accounted to each CPU (Linux `Documentation/filesystems/proc.rst`, 1.7: `/proc/stat`) less what
//! it has accounted to this process and the children that it has waited for (`/proc/self/stat`, proc(5): fields 14 to 17).
//! Invariant: the unit is a clock tick of both files, of which a share is made before anybody sees it.

use std::fs;

use topology::cpu_set::CpuSet;
use topology::id::HostCpu;

/// What was accounted up to a moment, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accounts {
    /// Of the CPUs, in all.
    all: u64,
    /// Of these, not idle.
    busy: u64,
    /// Of this process and the children that it has waited for.
    own: u64,
}

impl Accounts {
    /// Up to now, of these host CPUs; none where `/proc` does not say.
    pub(crate) fn now(cpus: &CpuSet<HostCpu>) -> Option<Self> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let own = fs::read_to_string("/proc/self/stat").ok()?;
        Self::parse(&stat, &own, cpus)
    }

    fn parse(stat: &str, own: &str, cpus: &CpuSet<HostCpu>) -> Option<Self> {
        let (mut all, mut busy) = (0, 0);
        for line in stat.lines() {
            let Some(rest) = line.strip_prefix("cpu") else { continue };
            let mut words = rest.split(' ');
            let Some(cpu) = words.next().and_then(|number| number.parse().ok()) else { continue };
            if !cpus.contains(HostCpu(cpu)) {
                continue;
            }
            // user, nice, system, idle, iowait, irq, softirq, steal; guests are in user and nice already.
            let ticks: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
            let [user, nice, system, idle, iowait, irq, softirq, steal] = ticks.try_into().ok()?;
            let worked: u64 = [user, nice, system, irq, softirq, steal].iter().sum();
            busy += worked;
            all += worked + idle + iowait;
        }
        // The name of the program is in brackets, and may hold anything.
        let fields: Vec<u64> =
            own.rsplit_once(')')?.1.split_whitespace().skip(11).take(4).map_while(|word| word.parse().ok()).collect();
        (all > 0 && fields.len() == 4).then(|| Self { all, busy, own: fields.iter().sum() })
    }

    /// The share of the CPUs' time that others took since then, from 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "ticks of years are far below 2^53")]
    pub(crate) fn others_until(self, later: Self) -> Option<f64> {
        let all = later.all.checked_sub(self.all).filter(|all| *all > 0)?;
        let others = later.busy.saturating_sub(self.busy).saturating_sub(later.own.saturating_sub(self.own));
        Some((others as f64 / all as f64).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 10 1 5 100 4 0 2 3 7 0\ncpu1 20 0 5 50 0 1 0 0 0 0\ncpu11 9 9 9 9 9 9 9 9 9 9\nintr 5\n";

    fn own(ticks: u64) -> String {
        format!("7 (a) (b c) S 1 1 1 0 -1 4194304 100 0 0 0 {ticks} 1 2 3 20 0 1 0 5\n")
    }

    #[test]
    fn what_is_accounted_to_nobody_here_is_of_others() {
        let cpus = "0-1".parse().unwrap();
        let first = Accounts::parse(STAT, &own(10), &cpus).unwrap();
        assert_eq!(first, Accounts { all: 125 + 76, busy: 21 + 26, own: 16 });
        let stat = STAT.replace("cpu0 10 1 5 100", "cpu0 40 1 25 130").replace("cpu1 20 0 5 50", "cpu1 40 0 5 50");
        let later = Accounts::parse(&stat, &own(60), &cpus).unwrap();
        assert_eq!(first.others_until(later), Some(0.2), "70 of 100 ticks were busy, 50 of them our own");
        assert_eq!(first.others_until(first), None, "no tick has passed");
        assert_eq!(later.others_until(first), None, "counters that go back say nothing");
    }

    #[test]
    fn what_is_not_said_is_not_known() {
        assert_eq!(Accounts::parse(STAT, &own(1), &"7".parse().unwrap()), None);
        assert_eq!(Accounts::parse("cpu0 1 2 3\n", &own(1), &"0".parse().unwrap()), None);
        assert_eq!(Accounts::parse(STAT, "7 (x", &"0".parse().unwrap()), None);
        assert_eq!(Accounts::parse(STAT, "7 (x) S 1", &"0".parse().unwrap()), None);
    }
}
