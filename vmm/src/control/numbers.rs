// SPDX-License-Identifier: Apache-2.0
//! `/stats`: sums over the vCPUs, what devices and KVM count, and what the monitor itself costs.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::PoisonError;

use api::wire::{DeviceStats, Ledger, MonitorStats, PauseCounters, PlacementStats, Stats, Vcpu};

use super::view::View;
use crate::host::memory_use;
use crate::ledger::thread_times;
use crate::pause::clock;

impl View {
    /// Sums over these vCPUs of the machine, and what is counted once.
    pub(super) fn stats_of(&self, vcpus: &[Vcpu]) -> Stats {
        let mut stats = Stats { at_ns: clock::now().0, ..Stats::default() };
        for vcpu in vcpus {
            stats.run_loop_ns += vcpu.run_loop_ns;
            add_ledger(&mut stats.ledger_ns, &vcpu.ledger_ns);
            add_counts(&mut stats.exits, &vcpu.exits);
            add_pause(&mut stats.pause, &vcpu.pause);
        }
        if let Some(placed) = &*self.placed.lock().unwrap_or_else(PoisonError::into_inner) {
            stats.placement = PlacementStats {
                looks: placed.looks,
                refused: placed.refused,
                moves: placed.moves.clone(),
                host_changes: placed.host_changes,
                pairs: placed.pairs,
                migrations: placed.migrations,
                spent_ns: placed.spent_ns,
            };
        }
        stats.kvm = self.kvm();
        stats.devices = self.devices();
        stats.monitor = monitor();
        stats
    }

    /// KVM's counters of the VM that have one value.
    fn kvm(&self) -> BTreeMap<String, u64> {
        let Ok(reading) = self.stats.as_ref().map_err(|_| ()).and_then(|stats| stats.read().map_err(|_| ())) else {
            return BTreeMap::new();
        };
        let single = reading.iter().filter_map(|(descriptor, mut values)| match (values.next(), values.next()) {
            (Some(value), None) => Some((descriptor.name.to_string(), value)),
            _ => None,
        });
        single.collect()
    }

    fn devices(&self) -> DeviceStats {
        let serial = self.console.counters();
        let unclaimed = [&self.buses.ports, &self.buses.memory].map(|bus| {
            let counts = bus.unclaimed().into_iter();
            counts.map(|count| count.reads.saturating_add(count.writes)).fold(0, u64::saturating_add)
        });
        DeviceStats {
            dropped_bytes: serial.dropped_bytes,
            interrupts_failed: serial.interrupts_failed + self.power.interrupts_failed(),
            unclaimed_accesses: unclaimed[0].saturating_add(unclaimed[1]),
        }
    }
}

/// What cannot be read is 0.
fn monitor() -> MonitorStats {
    MonitorStats {
        cpu_ns: thread_times::process_cpu_ns(),
        rss_bytes: memory_use::resident_bytes().unwrap_or(0),
        threads: threads(),
        open_files: open_files(),
    }
}

/// Without reading the directory, which takes longer the more there are: its links are itself, its parent and one a thread
/// (fs/proc/base.c, `proc_task_getattr`).
fn threads() -> u32 {
    const OWN_LINKS: u64 = 2;
    let links = fs::metadata("/proc/self/task").map_or(OWN_LINKS, |directory| directory.nlink());
    u32::try_from(links.saturating_sub(OWN_LINKS)).unwrap_or(u32::MAX)
}

/// Since Linux 6.2 the size of the directory (Documentation/filesystems/proc.rst, 3.8); before that it is 0, and the
/// directory is read.
fn open_files() -> u32 {
    const FILES: &str = "/proc/self/fd";
    let told = fs::metadata(FILES).map_or(0, |directory| directory.len());
    let files = match told {
        // One of them reads the directory.
        0 => fs::read_dir(FILES).map_or(0, |entries| entries.count().saturating_sub(1) as u64),
        told => told,
    };
    u32::try_from(files).unwrap_or(u32::MAX)
}

fn add_counts(sums: &mut BTreeMap<String, u64>, counts: &BTreeMap<String, u64>) {
    for (name, count) in counts {
        match sums.get_mut(name) {
            Some(sum) => *sum += count,
            None => drop(sums.insert(name.clone(), *count)),
        }
    }
}

const fn add_ledger(sum: &mut Ledger, one: &Ledger) {
    sum.guest += one.guest;
    sum.halted += one.halted;
    sum.polling += one.polling;
    sum.waiting += one.waiting;
    sum.kernel += one.kernel;
    sum.user += one.user;
}

fn add_pause(sum: &mut PauseCounters, one: &PauseCounters) {
    let yields = &mut sum.yields;
    for (sum, one) in [
        (&mut sum.events, one.events),
        (&mut sum.quiet, one.quiet),
        (&mut sum.forced, one.forced),
        (&mut sum.left_to_kernel, one.left_to_kernel),
        (&mut sum.pause_exits, one.pause_exits),
        (&mut sum.sampled, one.sampled),
        (&mut sum.spins, one.spins),
        (&mut yields.attempted, one.yields.attempted),
        (&mut yields.boosted, one.yields.boosted),
        (&mut yields.not_boosted, one.yields.not_boosted),
        (&mut yields.nobody_waiting, one.yields.nobody_waiting),
        (&mut sum.parks, one.parks),
        (&mut sum.parked_ns, one.parked_ns),
        (&mut sum.yielded_ns, one.yielded_ns),
        (&mut sum.donated_ns, one.donated_ns),
        (&mut sum.received_ns, one.received_ns),
        (&mut sum.holds, one.holds),
        (&mut sum.held_ns, one.held_ns),
    ] {
        *sum += one;
    }
    add_counts(&mut sum.bailed, &one.bailed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_and_files_are_as_many_as_their_directories_list() {
        let listed = |path| fs::read_dir(path).unwrap().count();
        // Other tests run beside this one: both are counted until nothing changed meanwhile.
        let agree = (0..1000).any(|_| {
            let (threads, files) = (listed("/proc/self/task"), listed("/proc/self/fd") - 1);
            (threads, files) == (threads_now(), files_now())
        });
        assert!(agree, "{} threads, {} files", threads_now(), files_now());
    }

    fn threads_now() -> usize {
        threads() as usize
    }

    fn files_now() -> usize {
        open_files() as usize
    }
}
