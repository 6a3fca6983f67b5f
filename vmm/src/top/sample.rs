// SPDX-License-Identifier: Apache-2.0
//! What happened between two looks: a row a vCPU, shares of its time, rates a second. Pure.
//!
//! Invariant: the shares of a row add up to the time between the looks that was spent in the run loop.

use std::ops::{Add, AddAssign};

use api::wire::{Pause, Vcpu, Vcpus, Vm};

/// Where time went, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shares {
    /// In guest code.
    pub(super) guest: u64,
    /// Halted, or polling before that.
    pub(super) halted: u64,
    /// Runnable without a host CPU, yields left out.
    pub(super) waiting: u64,
    /// Given away because of pause loops: parked, or between a yield and the next turn.
    pub(super) spin: u64,
    /// Exit work of kernel and monitor.
    pub(super) other: u64,
}

impl Shares {
    /// All of it.
    pub(super) const fn total(&self) -> u64 {
        self.guest + self.halted + self.waiting + self.spin + self.other
    }
}

impl AddAssign for Shares {
    fn add_assign(&mut self, more: Self) {
        self.guest += more.guest;
        self.halted += more.halted;
        self.waiting += more.waiting;
        self.spin += more.spin;
        self.other += more.other;
    }
}

/// Counts a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) events: f64,
    pub(super) yields: f64,
    pub(super) boosted: f64,
}

impl Add for Rates {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            events: self.events + other.events,
            yields: self.yields + other.yields,
            boosted: self.boosted + other.boosted,
        }
    }
}

/// One vCPU.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) index: u32,
    pub(super) tid: Option<i32>,
    pub(super) state: &'static str,
    pub(super) cpu: Option<u32>,
    pub(super) shares: Shares,
    pub(super) rates: Rates,
}

/// The machine.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    /// What is told of the machine in a line.
    pub(super) title: String,
    pub(super) rows: Vec<Row>,
    pub(super) shares: Shares,
    pub(super) rates: Rates,
}

impl Sample {
    /// What `now` has beyond `before`; everything since the start if there is nothing before.
    pub(super) fn between(vm: &Vm, pause: &Pause, before: Option<&Vcpus>, now: &Vcpus) -> Self {
        let passed_ns = before.map(|before| now.at_ns.saturating_sub(before.at_ns)).or(vm.uptime_ns).unwrap_or(0);
        let earlier = |index: usize| before.and_then(|before| before.vcpus.get(index));
        let rows: Vec<Row> =
            now.vcpus.iter().enumerate().map(|(index, vcpu)| row(earlier(index), vcpu, passed_ns)).collect();
        let mut shares = Shares::default();
        rows.iter().for_each(|row| shares += row.shares);
        let rates = rows.iter().fold(Rates::default(), |sum, row| sum + row.rates);
        Self { title: title(vm, pause), rows, shares, rates }
    }
}

fn title(vm: &Vm, pause: &Pause) -> String {
    let up =
        vm.uptime_ns.map_or_else(|| "not started".to_owned(), |ns| format!("up {}", crate::client::figures::time(ns)));
    let mode =
        serde_json::to_value(pause.mode).ok().and_then(|mode| mode.as_str().map(str::to_owned)).unwrap_or_default();
    format!(
        "vmm {}: {}, {up}, {} vCPUs on {} nodes, {}, pause {mode} by {}, generation {}",
        vm.pid,
        vm.state,
        vm.cpus,
        vm.nodes,
        crate::client::figures::size(vm.memory_bytes),
        pause.mechanism,
        vm.generation
    )
}

fn row(before: Option<&Vcpu>, now: &Vcpu, passed_ns: u64) -> Row {
    // A machine that was reset begins with 0 again: then what it has is what it has since.
    let reset = before.is_some_and(|before| before.run_loop_ns > now.run_loop_ns);
    let before = before.filter(|_| !reset);
    let grown = |of: fn(&Vcpu) -> u64| of(now).saturating_sub(before.map_or(0, of));
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    let rate = |of: fn(&Vcpu) -> u64| if passed_ns == 0 { 0.0 } else { grown(of) as f64 * 1e9 / passed_ns as f64 };
    Row {
        index: now.index.0,
        tid: now.tid,
        state: now.state.name(),
        cpu: now.last_cpu.map(|cpu| cpu.0),
        shares: shares(&grown),
        rates: Rates {
            events: rate(|vcpu| vcpu.pause.events),
            yields: rate(|vcpu| vcpu.pause.yields.attempted),
            boosted: rate(|vcpu| vcpu.pause.yields.boosted),
        },
    }
}

/// A park is part of the monitor's own time, and the time behind a yield is waiting (docs/ledger.md).
fn shares(grown: &impl Fn(fn(&Vcpu) -> u64) -> u64) -> Shares {
    let (waiting, user) = (grown(|vcpu| vcpu.ledger_ns.waiting), grown(|vcpu| vcpu.ledger_ns.user));
    let parked = grown(|vcpu| vcpu.pause.parked_ns).min(user);
    let yielded = grown(|vcpu| vcpu.pause.yielded_ns).min(waiting);
    Shares {
        guest: grown(|vcpu| vcpu.ledger_ns.guest),
        halted: grown(|vcpu| vcpu.ledger_ns.halted) + grown(|vcpu| vcpu.ledger_ns.polling),
        waiting: waiting - yielded,
        spin: parked + yielded,
        other: grown(|vcpu| vcpu.ledger_ns.kernel) + user - parked,
    }
}

#[cfg(test)]
mod tests {
    use api::fake::FakeMonitor;
    use api::monitor::Monitor;

    use super::*;

    #[test]
    fn shares_add_up_to_what_passed() {
        let monitor = FakeMonitor::running(3);
        monitor.advance(1_000_000_000);
        let before = monitor.vcpus().unwrap();
        monitor.advance(500_000_000);
        let now = monitor.vcpus().unwrap();
        let sample = Sample::between(&monitor.vm().unwrap(), &monitor.pause().unwrap(), Some(&before), &now);
        assert_eq!(sample.rows.len(), 3);
        for (row, (before, now)) in sample.rows.iter().zip(before.vcpus.iter().zip(&now.vcpus)) {
            let passed = now.ledger_ns.terms().iter().map(|(_, ns)| ns).sum::<u64>()
                - before.ledger_ns.terms().iter().map(|(_, ns)| ns).sum::<u64>();
            assert_eq!(row.shares.total(), passed);
            assert!(row.rates.events > 0.0, "{row:?}");
        }
        assert_eq!(sample.shares.total(), sample.rows.iter().map(|row| row.shares.total()).sum::<u64>());
        assert!(sample.title.contains("running") && sample.title.contains("3 vCPUs"), "{}", sample.title);
    }

    #[test]
    fn a_machine_that_was_reset_begins_anew() {
        let monitor = FakeMonitor::running(1);
        monitor.advance(100);
        let small = monitor.vcpus().unwrap();
        monitor.advance(1_000_000_000);
        let large = monitor.vcpus().unwrap();
        let sample = Sample::between(&monitor.vm().unwrap(), &monitor.pause().unwrap(), Some(&large), &small);
        assert!(sample.rows[0].shares.total() <= 100);
    }
}
