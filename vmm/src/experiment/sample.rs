// SPDX-License-Identifier: Apache-2.0
//! From the report of a guest's monitor to a sample of an experiment. Pure.

use ::experiment::sample::{GuestSample, Ledger, VcpuSample};

use crate::report::{Report, VcpuReport};

/// The sample; none if the report has no result of a workload.
pub(super) fn of(report: &Report, ended_late_us: u64) -> Option<GuestSample> {
    let workload = report.workload.as_ref()?;
    Some(GuestSample {
        operations: workload.operations,
        seconds: workload.seconds,
        operations_per_s: workload.operations_per_s,
        spin_seconds: workload.spin_seconds,
        wait_p50_ns: workload.wait_p50_ns,
        wait_p99_ns: workload.wait_p99_ns,
        wait_p999_ns: workload.wait_p999_ns,
        jain: workload.jain,
        ended_late_us,
        vcpus: report.vcpus.iter().map(vcpu).collect(),
    })
}

fn vcpu(report: &VcpuReport) -> VcpuSample {
    let (ledger, pause) = (report.ledger_ns, &report.pause);
    VcpuSample {
        ledger_ns: Ledger {
            guest: ledger.guest,
            halted: ledger.halted,
            polling: ledger.polling,
            waiting: ledger.waiting,
            kernel: ledger.kernel,
            user: ledger.user,
        },
        events: pause.events,
        pause_exits: pause.pause_exits,
        attempted: pause.yields.attempted,
        boosted: pause.yields.boosted,
        not_boosted: pause.yields.not_boosted,
        nobody_waiting: pause.yields.nobody_waiting,
        bailed: pause.bailed.clone(),
        parks: pause.parks,
        donated_ns: pause.donated_ns,
        received_ns: pause.received_ns,
    }
}
