// SPDX-License-Identifier: Apache-2.0
//! A run with a control API: the machine may be made on request, and is reset on request; all else is as in a run without.
//!
//! Invariant: how the run ended is told to clients before the sockets go.

use std::sync::Arc;
use std::time::Instant;

use api::monitor::Promise;
use api::wire::EventKind;

use super::run::{self, RunError};
use crate::config::{ApiPlan, Machine, MachineConfig};
use crate::control::Endpoint;
use crate::control::carry_out::Desk;
use crate::control::reception::{self, Visit};
use crate::control::view::View;
use crate::host::signals::EndingSignals;
use crate::host::{affinity, output};
use crate::kvm::system::System;
use crate::pause::clock;
use crate::report::{ExitStatus, ReportTarget};
use crate::vm::assembly::Assembled;
use crate::vm::end::Outcome;
use crate::vm::error::AssemblyError;
use crate::vm::observed::{Onlookers, SharedObserved};

/// Runs the machine that `config` describes, or one that is asked for, to its end; `started` is when the process began.
///
/// # Errors
/// [`RunError`].
pub(super) fn run(plan: &ApiPlan, config: MachineConfig, started: Instant) -> Result<ExitStatus, RunError> {
    let machine = if plan.only { None } else { Some(config.resolve()?) };
    let mut signals = EndingSignals::block().map_err(RunError::Signals)?;
    let system = System::open()?;
    let allowed = affinity::of_this_thread().ok();
    let endpoint = Endpoint::open(plan)?;
    output::tell(&format!("vmm: the control API is at {}\n", endpoint.places()));
    let maker = Maker { endpoint: &endpoint, system: &system };
    let mut made = match machine {
        Some(machine) => maker.make(config, machine, (false, started))?,
        None => match maker.asked_for(&mut signals)? {
            Some(made) => made,
            None => return Ok(ExitStatus::PoweredOff),
        },
    };
    if plan.only {
        match reception::start(&made.desk, &made.assembled, &mut signals).map_err(RunError::Reception)? {
            Visit::Start(promise) => made.waiting = Some(promise),
            Visit::End(outcome) => {
                made.desk.stopped(&outcome);
                output::tell(&format!("vmm: {outcome}\n"));
                return Ok(outcome.status());
            }
        }
    }
    loop {
        match made.run(&mut signals)? {
            Ran::Ended(status) => return status,
            Ran::Reset(config) => {
                // Where the machine before was placed is no limit for this one.
                if let Some(cpus) = &allowed {
                    let _ = affinity::pin_this_thread(cpus.iter());
                }
                let machine = config.resolve()?;
                made = maker.make(*config, machine, (true, Instant::now()))?;
            }
        }
    }
}

/// Makes machines for the endpoint.
struct Maker<'a> {
    endpoint: &'a Endpoint,
    system: &'a System,
}

/// A machine that was made, with what it was made from.
struct Made {
    config: MachineConfig,
    report: Option<ReportTarget>,
    observed: SharedObserved,
    assembled: Assembled,
    desk: Desk,
    /// It was reset.
    again: bool,
    began: Instant,
    /// Who waits for its start.
    waiting: Option<Promise>,
}

/// How it went.
enum Ran {
    /// To its end.
    Ended(Result<ExitStatus, RunError>),
    /// It was reset, and is to be made anew.
    Reset(Box<MachineConfig>),
}

impl Maker<'_> {
    fn assemble(&self, machine: Machine, again: bool) -> Result<(Assembled, SharedObserved), AssemblyError> {
        let onlookers = Onlookers {
            serial: Some(Arc::clone(self.endpoint.station().serial())),
            goes_on: again,
            ..Onlookers::default()
        };
        let observed = Arc::clone(&onlookers.observed);
        Ok((run::assemble(machine, self.system, onlookers)?, observed))
    }

    fn make(&self, config: MachineConfig, machine: Machine, (again, began): (bool, Instant)) -> Result<Made, RunError> {
        let report = machine.report.clone();
        let (assembled, observed) = self.assemble(machine, again)?;
        run::say(assembled.placement.remarks());
        let desk = self.desk(&assembled, &config, if again { "reset by the operator" } else { "described at start" });
        Ok(Made { config, report, observed, assembled, desk, again, began, waiting: None })
    }

    /// Waits for a machine to be asked for; `None` if a signal came instead.
    fn asked_for(&self, signals: &mut EndingSignals) -> Result<Option<Made>, RunError> {
        let mut latest = None;
        let make = |machine: Machine| {
            let report = machine.report.clone();
            let (assembled, observed) = self.assemble(machine, false)?;
            latest = Some((report, observed));
            Ok(assembled)
        };
        let found = reception::machine(self.endpoint.station(), signals, make).map_err(RunError::Reception)?;
        let Some(((config, assembled, promise), (report, observed))) = found.zip(latest) else { return Ok(None) };
        run::say(assembled.placement.remarks());
        let desk = self.desk(&assembled, &config, "asked for through the API");
        promise.redeem(Ok(desk.generation()));
        Ok(Some(Made { config, report, observed, assembled, desk, again: false, began: Instant::now(), waiting: None }))
    }

    fn desk(&self, assembled: &Assembled, config: &MachineConfig, why: &str) -> Desk {
        Desk::created(Arc::clone(self.endpoint.station()), View::of(assembled, config), why)
    }
}

impl Made {
    fn run(self, signals: &mut EndingSignals) -> Result<Ran, RunError> {
        let Self { config, report, observed, assembled, desk, again, began, waiting } = self;
        let mut running = assembled.start();
        desk.running(running.placement().map_err(|error| error.to_string()), if again { "reset" } else { "started" });
        if let Some(promise) = waiting {
            promise.redeem(Ok(desk.generation()));
        }
        if again {
            desk.station().restarted();
        }
        let finished = running.wait(signals, Some(&desk))?;
        if finished.outcome == Outcome::Restart {
            return Ok(Ran::Reset(Box::new(config)));
        }
        if finished.outcome == Outcome::Panic {
            desk.station().events().publish(clock::now().0, EventKind::GuestPanic { crash_loaded: false });
        }
        let status = run::finish(&finished, &observed, report, began);
        desk.stopped(&finished.outcome);
        Ok(Ran::Ended(status))
    }
}
