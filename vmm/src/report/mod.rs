// SPDX-License-Identifier: Apache-2.0
//! What a run leaves behind: its exit status and, with `--report FILE`, one JSON document.
//!
//! Last step of the flow: counters are turned into [`Report`] once, when the machine is gone. The invariant: keys are
//! stable. They are documented in `docs/report.md`, described by `docs/report.schema.json`, and only ever added to.

mod devices;
mod exit_status;
mod placement;
mod run;
mod target;
mod times;

pub use devices::{DevicesReport, Space, Unclaimed};
pub use exit_status::ExitStatus;
pub use placement::{
    LivePlacementReport, MigrationReport, MoveReport, NodeMemoryReport, PairsReport, PlacementReport,
    VcpuPlacementReport,
};
pub use run::{
    Exit, Guest, GuestPagesReport, Host, KvmKind, Monitor, PauseReport, Report, SCHEMA, Seen, Start, VcpuReport,
    Workload, YieldReport,
};
pub(crate) use target::check_output;
pub use target::{ReportError, ReportTarget};
pub use times::{CounterValue, KvmCounter, KvmStats, LedgerReport};

#[cfg(test)]
mod schema_tests;
