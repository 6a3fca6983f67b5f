// SPDX-License-Identifier: Apache-2.0
//! The families that have a series for each vCPU.
//!
//! Invariant: at most [`LABELLED`] vCPUs have series of their own; what the others count is summed up under one label.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{LABELLED, Page, Series};
use crate::wire::{PauseCounters, Vcpu, VcpuState};

/// A label and the vCPUs that are counted under it.
struct Row<'a> {
    label: String,
    vcpus: &'a [Vcpu],
}

impl<'a> Row<'a> {
    fn all(vcpus: &'a [Vcpu]) -> Vec<Self> {
        let (own, others) = vcpus.split_at(vcpus.len().min(LABELLED));
        let mut rows: Vec<Self> =
            own.iter().map(|vcpu| Self { label: vcpu.index.to_string(), vcpus: std::slice::from_ref(vcpu) }).collect();
        if !others.is_empty() {
            rows.push(Self { label: "others".to_owned(), vcpus: others });
        }
        rows
    }

    fn sum(&self, of: impl Fn(&Vcpu) -> u64) -> u64 {
        self.vcpus.iter().map(of).fold(0, u64::saturating_add)
    }

    fn series(&self, of: impl Fn(&Vcpu) -> u64) -> Series<'_, u64, 1> {
        ([("vcpu", &self.label)], self.sum(of))
    }
}

/// A counter of [`PauseCounters`] with its name and its help.
type PauseFamily = (&'static str, &'static str, fn(&PauseCounters) -> u64);

const COUNTS: [PauseFamily; 10] = [
    ("vcpu_pause_events", "Pause events", |pause| pause.events),
    ("vcpu_pause_events_quiet", "Of these, let pass without a decision", |pause| pause.quiet),
    ("vcpu_pause_events_forced", "Of these, forced by the tracepoint", |pause| pause.forced),
    ("vcpu_pause_events_left_to_kernel", "Of the forced, left to the kernel's own yields", |pause| {
        pause.left_to_kernel
    }),
    ("vcpu_pause_exits", "PAUSE exits that the kernel counted", |pause| pause.pause_exits),
    ("vcpu_samples", "Times the sampler looked at the vCPU", |pause| pause.sampled),
    ("vcpu_spins", "Decisions to go on spinning", |pause| pause.spins),
    ("vcpu_yields_attempted", "Actions about pause loops", |pause| pause.yields.attempted),
    ("vcpu_parks", "Parks", |pause| pause.parks),
    ("vcpu_holds", "Holds by --inject-preemption", |pause| pause.holds),
];

const TIMES: [PauseFamily; 5] = [
    ("vcpu_parked", "Time parked", |pause| pause.parked_ns),
    ("vcpu_yielded", "Time between a yield and the thread's next turn", |pause| pause.yielded_ns),
    ("vcpu_donated", "CPU time given to other vCPUs", |pause| pause.donated_ns),
    ("vcpu_held", "Time held by --inject-preemption", |pause| pause.held_ns),
    ("vcpu_received", "CPU time got from other vCPUs", |pause| pause.received_ns),
];

pub(super) fn write(page: &mut Page<'_>, vcpus: &[Vcpu]) -> fmt::Result {
    let rows = Row::all(vcpus);
    states(page, vcpus)?;
    times(page, &rows)?;
    named(page, "vcpu_exits", "Exits to the monitor", "kind", &rows, |vcpu| &vcpu.exits)?;
    for (name, help, of) in COUNTS {
        page.counts(name, help, rows.iter().map(|row| row.series(|vcpu| of(&vcpu.pause))))?;
    }
    for (name, help, of) in TIMES {
        page.seconds(name, help, rows.iter().map(|row| row.series(|vcpu| of(&vcpu.pause))))?;
    }
    outcomes(page, &rows)?;
    let help = "Pause events about which there was nothing to do";
    named(page, "vcpu_bailed", help, "reason", &rows, |vcpu| &vcpu.pause.bailed)?;
    let places = rows.iter().filter_map(|row| match row.vcpus {
        [vcpu] => vcpu.last_cpu.map(|cpu| ([("vcpu", row.label.as_str())], u64::from(cpu.0))),
        _ => None,
    });
    page.gauges("vcpu_host_cpu", "Number of the host CPU that the vCPU was on last", places)
}

fn states(page: &mut Page<'_>, vcpus: &[Vcpu]) -> fmt::Result {
    let count = |state| vcpus.iter().filter(|vcpu| vcpu.state == state).count() as u64;
    let states = VcpuState::ALL.map(|state| ([("state", state.name())], count(state)));
    page.gauges("vcpus_in_state", "vCPUs by what their threads are doing", states)
}

fn times(page: &mut Page<'_>, rows: &[Row<'_>]) -> fmt::Result {
    let run_loop = rows.iter().map(|row| row.series(|vcpu| vcpu.run_loop_ns));
    page.seconds("vcpu_run_loop", "Time in the run loop", run_loop)?;
    let terms = rows.iter().flat_map(|row| {
        let term = move |at: usize| {
            let name = crate::wire::Ledger::default().terms()[at].0;
            ([("vcpu", row.label.as_str()), ("in", name)], row.sum(|vcpu| vcpu.ledger_ns.terms()[at].1))
        };
        (0..crate::wire::Ledger::default().terms().len()).map(term)
    });
    page.seconds("vcpu_time", "Where the time in the run loop went", terms)
}

fn outcomes(page: &mut Page<'_>, rows: &[Row<'_>]) -> fmt::Result {
    let series = rows.iter().flat_map(|row| {
        let one = move |outcome: &'static str, of: fn(&PauseCounters) -> u64| {
            ([("vcpu", row.label.as_str()), ("outcome", outcome)], row.sum(|vcpu| of(&vcpu.pause)))
        };
        [
            one("boosted", |pause| pause.yields.boosted),
            one("not_boosted", |pause| pause.yields.not_boosted),
            one("nobody_waiting", |pause| pause.yields.nobody_waiting),
        ]
    });
    page.counts("vcpu_yields", "Actions about pause loops by what came of them", series)
}

/// Counts by name.
type Named = fn(&Vcpu) -> &BTreeMap<String, u64>;

/// A family with a label of its own for each name of a map.
fn named(page: &mut Page<'_>, name: &str, help: &str, label: &'static str, rows: &[Row<'_>], of: Named) -> fmt::Result {
    let series = rows.iter().flat_map(|row| {
        let names: BTreeSet<&String> = row.vcpus.iter().flat_map(|vcpu| of(vcpu).keys()).collect();
        names.into_iter().map(move |name| {
            let sum = row.sum(|vcpu| of(vcpu).get(name).copied().unwrap_or(0));
            ([("vcpu", row.label.as_str()), (label, name.as_str())], sum)
        })
    });
    page.counts(name, help, series)
}
