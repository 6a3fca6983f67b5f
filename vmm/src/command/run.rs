// SPDX-License-Identifier: Apache-2.0
//! A bare `vmm`: put the machine together, let it run, say how it went.

use std::io;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use super::summary::Summary;
use crate::config::{Boot, ConfigError, Machine};
use crate::control::EndpointError;
use crate::host::signals::EndingSignals;
use crate::host::{facts, output};
use crate::kvm::system::{OpenError, System};
use crate::report::{ExitStatus, KvmKind, ReportError, ReportTarget};
use crate::vm::assembly::{Assembled, WithMemory};
use crate::vm::error::AssemblyError;
use crate::vm::event_loop::EventLoopError;
use crate::vm::observed::{Onlookers, SharedObserved};
use crate::vm::running::Finished;

/// A run that did not come to a guest's own end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The signals that end a run.
    #[error("signals cannot be received: {0}")]
    Signals(#[source] io::Error),
    /// `/dev/kvm`.
    #[error(transparent)]
    Kvm(#[from] OpenError),
    /// The configuration, read again for a reset.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Putting the machine together.
    #[error(transparent)]
    Assembly(#[from] AssemblyError),
    /// Serving it.
    #[error(transparent)]
    Events(#[from] EventLoopError),
    /// The control API.
    #[error(transparent)]
    Api(#[from] EndpointError),
    /// Waiting for what the API's clients ask.
    #[error("waiting for clients of the control API failed: {0}; the host is out of memory or of epoll watches")]
    Reception(#[source] io::Error),
    /// Writing the decision log.
    #[error("--decision-log: could not be written to its end: {0}; it can be replayed up to there")]
    DecisionLog(#[source] io::Error),
    /// Writing the report.
    #[error(transparent)]
    Report(#[from] ReportError),
}

/// Runs a machine to its end; `started` is when the process began. The summary goes to stderr, the report where the
/// machine says.
///
/// # Errors
/// [`RunError`]; nothing of the machine is left, and no report is written.
pub(super) fn run(machine: Machine, started: Instant) -> Result<ExitStatus, RunError> {
    // Before the first thread is started: all inherit the mask.
    let mut signals = EndingSignals::block().map_err(RunError::Signals)?;
    let system = System::open()?;
    let observed = SharedObserved::default();
    let report = machine.report.clone();
    let assembled = assemble(machine, &system, Arc::clone(&observed).into())?;
    say(assembled.placement.remarks());
    let finished = assembled.start().wait(&mut signals, None)?;
    finish(&finished, &observed, report, started)
}

/// Puts a machine together that waits for the word to run.
pub(super) fn assemble(machine: Machine, system: &System, onlookers: Onlookers) -> Result<Assembled, AssemblyError> {
    warn_of_emulation(&machine.boot, facts::kvm_kind());
    WithMemory::map(machine, system)?.load()?.devices(onlookers)?.vcpus()?.threads()
}

/// Tells how a run went, and writes what is to be left of it.
pub(super) fn finish(
    finished: &Finished,
    observed: &SharedObserved,
    report: Option<ReportTarget>,
    started: Instant,
) -> Result<ExitStatus, RunError> {
    let log = finished.machine.pause.driver().finish_log();
    let summary = Summary::of(finished, &observed.lock().unwrap_or_else(PoisonError::into_inner), started);
    summary.tell();
    if let Some(target) = report {
        target.write(summary.report())?;
    }
    log.map_err(RunError::DecisionLog)?;
    Ok(finished.outcome.status())
}

/// Says what of the placement could not be had, or is shared.
pub(super) fn say(remarks: &[String]) {
    for remark in remarks {
        output::tell(&format!("vmm: placement: {remark}\n"));
    }
}

/// Says before the boot what would otherwise come out as an instruction that cannot be emulated. The run goes on: the
/// image may be a kernel that keeps out of ring 0, as the probe guest does.
fn warn_of_emulation(boot: &Boot, kvm: KvmKind) {
    if let (Boot::Kernel { image, .. }, KvmKind::Software) = (boot, kvm) {
        output::tell(&format!(
            "vmm: warning: this host's KVM is software-virtualised (no vmx or svm), and its instruction emulator does not \
             get through a Linux kernel; {} is tried all the same. `vmm lab -- ARGS...` runs it on an emulated host\n",
            image.display()
        ));
    }
}
