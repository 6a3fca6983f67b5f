// SPDX-License-Identifier: Apache-2.0
//! What a run came to: measured once at its end, told to a person on stderr and to programs in the report.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::ops::Range;
use std::time::{Duration, Instant};

use super::{devices, offers, pause, placed, times};
use crate::config::HugePages;
use crate::host::memory_use::{self, GuestPages};
use crate::host::{facts, output};
use crate::memory::GuestRam;
use crate::pause::driver::Driver;
use crate::placement::start::Placement;
use crate::report::{
    Exit, Guest, GuestPagesReport, Host, LedgerReport, Monitor, PauseReport, Report, SCHEMA, Seen, Start, VcpuReport,
    Workload,
};
use crate::vcpu::counters::ExitKind;
use crate::vcpu::thread::VcpuHandle;
use crate::vm::end::Outcome;
use crate::vm::observed::Observed;
use crate::vm::running::Finished;

/// The report of a run, and what of it a person is told.
pub(super) struct Summary {
    report: Report,
}

impl Summary {
    /// Measures a run that is at its end; `started` is when the process began.
    pub(super) fn of(finished: &Finished, observed: &Observed, started: Instant) -> Self {
        let topology = &finished.machine.machine.topology;
        let (pause, placement) = (&finished.machine.pause, &finished.machine.placement);
        let vcpus: Vec<VcpuReport> =
            finished.machine.handles.iter().map(|handle| vcpu(handle, pause.driver(), placement)).collect();
        let yields = vcpus.iter().map(|vcpu| vcpu.pause.yields.attempted).sum();
        let report = Report {
            schema: SCHEMA,
            exit: exit(&finished.outcome, observed),
            host: Host { kvm: facts::kvm_kind(), kernel: facts::kernel_release(), cpus: facts::cpus_online() },
            guest: Guest {
                cpus: topology.vcpu_count(),
                nodes: u32::try_from(topology.nodes().len()).unwrap_or(u32::MAX),
                memory_bytes: topology.memory_bytes(),
                seen: observed.machine.map(|machine| Seen { cpus: machine.cpus, nodes: machine.nodes }),
                pages: pages(&finished.machine.ram, finished.machine.machine.huge_pages),
            },
            start: start(finished, observed, started),
            monitor: Monitor { pss_bytes: pss(&finished.machine.ram) },
            vcpus,
            kvm_stats: times::of_vm(
                finished.machine.vm.stats(),
                finished.machine.handles.first().map(VcpuHandle::stats),
            ),
            placement: placed::of_machine(placement),
            pause: pause.effective(),
            offers: finished.machine.offers.grants().to_vec(),
            devices: Some(devices::of_machine(&finished.machine.parts)),
            workload: observed.result.as_ref().map(|result| workload(result, yields)),
        };
        Self { report }
    }

    /// The report.
    pub(super) fn report(&self) -> &Report {
        &self.report
    }

    /// Tells a person, on stderr.
    pub(super) fn tell(&self) {
        output::tell(&self.to_string());
    }
}

/// How it ended; where the probe guest gave up, with what it says of that.
fn exit(outcome: &Outcome, observed: &Observed) -> Exit {
    let told =
        observed.error.as_ref().map(|error| format!(": the probe guest says {} ({})", error.reason, error.detail));
    Exit { status: outcome.status().code(), reason: outcome.to_string() + &told.unwrap_or_default() }
}

fn start(finished: &Finished, observed: &Observed, started: Instant) -> Start {
    let since = |instant: Instant| microseconds(instant.saturating_duration_since(started));
    let all_up = observed.ready.filter(|(ready, _)| ready.missing == 0);
    Start {
        first_instruction_us: finished.machine.handles.first().and_then(VcpuHandle::first_run).map(since),
        last_ap_us: all_up.map(|(_, at)| since(at)),
    }
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The guest's RAM by host address.
fn ranges(ram: &GuestRam) -> Vec<Range<u64>> {
    ram.spans().map(|span| span.start as u64..(span.start + span.bytes) as u64).collect()
}

/// 0 stands for "not measured": `/proc` is not mounted.
fn pss(ram: &GuestRam) -> u64 {
    memory_use::monitor_pss_bytes(&ranges(ram)).unwrap_or(0)
}

fn pages(ram: &GuestRam, asked: Option<HugePages>) -> Option<GuestPagesReport> {
    let GuestPages { page_bytes, resident_bytes, huge_bytes } = memory_use::guest_pages(&ranges(ram)).ok()?;
    Some(GuestPagesReport { asked, page_bytes, resident_bytes, huge_bytes })
}

fn vcpu(handle: &VcpuHandle, driver: &Driver, placement: &Placement) -> VcpuReport {
    let counts = ExitKind::ALL.into_iter().map(|kind| (kind.name().to_owned(), handle.exits().get(kind)));
    VcpuReport {
        index: handle.index().0,
        apic_id: handle.apic_id().0,
        tid: handle.tid().unwrap_or(0),
        exits: counts.filter(|(_, count)| *count > 0).collect(),
        run_loop_ns: handle.run_loop_ns(),
        ledger_ns: LedgerReport::from(&handle.ledger()),
        kvm_stats: times::of_vcpu(handle.stats()),
        placement: placed::of_vcpu(placement, handle.index()),
        pause: driver.seats().get(handle.index().index()).map(PauseReport::from).unwrap_or_default(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "microseconds of a run and rates are far below 2^53")]
fn workload(result: &probe::record::Outcome, yields: u64) -> Workload {
    let seconds = result.us as f64 / 1e6;
    Workload {
        name: result.workload.word().to_owned(),
        seconds,
        operations: result.operations,
        operations_per_s: if seconds > 0.0 { result.operations as f64 / seconds } else { 0.0 },
        yields_per_handover: (result.operations > 0).then(|| yields as f64 / result.operations as f64),
        port_writes: result.port_writes,
        spin_seconds: result.spin_us.map(|us| us as f64 / 1e6),
        wait_p50_ns: result.wait_p50_ns,
        wait_p99_ns: result.wait_p99_ns,
        wait_p999_ns: result.wait_p999_ns,
        jain: result.jain.map(|milli| milli.0 as f64 / 1e3),
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { exit, guest, start, monitor, vcpus, host, .. } = &self.report;
        writeln!(f, "vmm: {}", exit.reason)?;
        let seen = guest.seen.map_or_else(String::new, |seen| format!(", guest saw {} on {}", seen.cpus, seen.nodes));
        writeln!(
            f,
            "  guest      {} vCPUs on {} nodes, {} MiB{seen}",
            guest.cpus,
            guest.nodes,
            guest.memory_bytes >> 20
        )?;
        if let Some((asked, pages)) = guest.pages.as_ref().and_then(|pages| Some((pages.asked?, pages))) {
            let GuestPagesReport { page_bytes, resident_bytes, huge_bytes, .. } = pages;
            writeln!(
                f,
                "  hugepages  {asked}: {} MiB of {} MiB in memory are huge, mapped in pages of {} KiB",
                huge_bytes >> 20,
                resident_bytes >> 20,
                page_bytes >> 10
            )?;
        }
        writeln!(f, "  host       {} KVM, Linux {}, {} CPUs", host.kvm, host.kernel, host.cpus)?;
        let mut times = String::new();
        for (name, value) in [("first guest instruction", start.first_instruction_us), ("last AP up", start.last_ap_us)]
        {
            if let Some(us) = value {
                write!(times, "{}{name} after {us} us", if times.is_empty() { "" } else { ", " })?;
            }
        }
        if !times.is_empty() {
            writeln!(f, "  start      {times}")?;
        }
        writeln!(f, "  monitor    {} KiB of memory (PSS without guest RAM)", monitor.pss_bytes >> 10)?;
        writeln!(f, "  exits      {}", exits(vcpus))?;
        devices::tell(f, self.report.devices.as_ref())?;
        times::tell(f, vcpus)?;
        placed::tell(f, &self.report.placement, vcpus)?;
        offers::tell(f, &self.report.offers)?;
        pause::tell(f, &self.report.pause, vcpus)
    }
}

/// Exits by kind, over all vCPUs.
fn exits(vcpus: &[VcpuReport]) -> String {
    let mut sums = BTreeMap::new();
    for (kind, count) in vcpus.iter().flat_map(|vcpu| &vcpu.exits) {
        *sums.entry(kind.as_str()).or_insert(0u64) += count;
    }
    let texts: Vec<String> = sums.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    if texts.is_empty() { "none".to_owned() } else { texts.join(", ") }
}
