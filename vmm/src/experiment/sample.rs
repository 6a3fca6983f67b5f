// SPDX-License-Identifier: Apache-2.0
//! From the report of a guest's monitor to a sample of an experiment. Pure.

use guest::cpu_time::CpuTime;
use guest::line::Score;

use ::experiment::sample::{GuestSample, Ledger, SeenInside, VcpuSample};

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
        seen_inside: None,
        ended_late_us,
        vcpus: report.vcpus.iter().map(vcpu).collect(),
    })
}

/// The sample of a Linux guest, whose workload the monitor does not know.
#[expect(clippy::cast_precision_loss, reason = "rates and times of a run are far below 2^53")]
pub(super) fn of_linux(report: &Report, score: &Score, cpu: &CpuTime, ended_late_us: u64) -> GuestSample {
    let operations = u128::from(score.milli_per_s) * u128::from(score.ms) / 1_000_000;
    GuestSample {
        operations: u64::try_from(operations).unwrap_or(u64::MAX),
        seconds: score.ms as f64 / 1e3,
        operations_per_s: score.milli_per_s as f64 / 1e3,
        seen_inside: Some(SeenInside {
            user_ms: cpu.user_ms,
            system_ms: cpu.system_ms,
            idle_ms: cpu.idle_ms,
            steal_ms: cpu.steal_ms,
            longest_us: score.longest_us,
            p95_us: score.tail_us,
        }),
        ended_late_us,
        vcpus: report.vcpus.iter().map(vcpu).collect(),
        ..GuestSample::default()
    }
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
