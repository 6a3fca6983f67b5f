// SPDX-License-Identifier: Apache-2.0
//! What becomes of a change that was asked for. On the main thread, one at a time.
//!
//! Invariant: a change is checked against the generation right before it is made, and nothing else changes in between; what
//! is refused changes nothing.

use std::sync::Arc;
use std::time::Duration;

use api::monitor::{Asked as Answer, Change, Refusal};
use api::wire::{Exit, Generation, PauseChange, VmState, WantedState};
use topology::cpu_set::CpuSet;
use topology::id::{HostCpu, VcpuIndex};

use super::station::{Asked, Station};
use super::view::View;
use super::{pausing, places, refused};
use crate::placement::control::PlacementHandle;
use crate::vm::assembly::Assembled;
use crate::vm::end::{Outcome, StopCause};

/// How long the vCPU threads may take together to do what a client asks for. The main thread serves nothing else meanwhile, and
/// the client is still there: it is told of a failure before it is told that nothing was done in time.
const LIMIT: Duration = Duration::from_secs(8);

/// The machine as the main thread has it, with those who watch it.
#[derive(Clone)]
pub struct Desk {
    station: Arc<Station>,
    view: Arc<View>,
}

/// What was asked for and is still to be done by who holds the machine.
pub(super) enum Done {
    /// Nothing: the answer is there.
    Answered(Answer),
    /// To start it.
    Start,
    /// It was told to end; the answer comes with its end.
    Ending(WantedState),
}

impl Desk {
    /// For a machine that was just made, and is `created` from here on.
    #[must_use]
    pub fn created(station: Arc<Station>, view: View, why: &str) -> Self {
        let view = Arc::new(view);
        station.created(Arc::clone(&view), why);
        Self { station, view }
    }

    /// The machine's generation.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.station.generation()
    }

    /// Where changes come from.
    #[must_use]
    pub fn station(&self) -> &Arc<Station> {
        &self.station
    }

    pub(super) fn view(&self) -> &View {
        &self.view
    }

    /// The machine runs; `placement` is how its placement can be asked, or why not.
    pub fn running(&self, placement: Result<PlacementHandle, String>, why: &str) {
        // Set once: a machine starts once.
        let _ = self.view.placement.set(placement);
        self.station.now(VmState::Running, why);
    }

    /// The machine is at its end.
    pub fn stopped(&self, outcome: &Outcome) {
        // What was last known of its places stays to be seen.
        self.view.placement_told(self.station.generation());
        self.station.stopped(Exit { status: outcome.status().code(), reason: outcome.to_string() });
    }

    /// Carries out all changes that wait, on a machine that runs or is paused.
    pub fn serve(&self, machine: &Assembled) {
        self.station.heard();
        while let Some(asked) = self.station.next() {
            let Asked { change, expected, promise } = asked;
            match self.carry_out(machine, change, expected) {
                Done::Answered(answer) => promise.redeem(answer),
                Done::Ending(wanted) => self.station.begin(wanted, promise),
                // It runs already.
                Done::Start => promise.redeem(Ok(self.station.generation())),
            }
        }
    }

    pub(super) fn carry_out(&self, machine: &Assembled, change: Change, expected: Option<Generation>) -> Done {
        if matches!(change, Change::Create(_)) {
            return Done::Answered(Err(Refusal::AlreadyExists));
        }
        if let Err(stale) = self.station.check(expected) {
            return Done::Answered(Err(stale));
        }
        match change {
            Change::State(wanted) => self.go_to(machine, wanted),
            Change::Reset => match self.running_for("a reset") {
                Ok(()) => {
                    machine.parts.end.note(Outcome::Restart);
                    Done::Ending(WantedState::Running)
                }
                Err(refusal) => Done::Answered(Err(refusal)),
            },
            other => Done::Answered(self.set(machine, other)),
        }
    }

    fn set(&self, machine: &Assembled, change: Change) -> Answer {
        match change {
            Change::PowerButton => {
                self.running_for("the power button")?;
                machine.parts.power.press_power_button();
                Ok(self.station.generation())
            }
            Change::Nmi => {
                self.running_for("an NMI")?;
                machine.send_nmi(LIMIT).map_err(|error| refused::of_threads("the NMI", &error))?;
                Ok(self.station.generation())
            }
            Change::Affinity { vcpu, cpus } => self.hold(vcpu, cpus),
            Change::Placement(wanted) => {
                let handle = self.placement()?;
                let now = handle.state().map_err(|error| refused::of_placement(&error))?;
                let change = places::change(&wanted, &now).map_err(|error| refused::of_contradiction(&error))?;
                handle.change(change).map_err(|error| refused::of_placement(&error))?;
                Ok(self.station.settings("placement"))
            }
            Change::Pause(wanted) => self.set_pause(&wanted),
            Change::Thresholds(wanted) => match wanted.out_of_range() {
                Some((range, value)) => Err(refused::out_of_range(range, value)),
                None => Ok(self.station.set_thresholds(wanted)),
            },
            Change::Create(_) | Change::State(_) | Change::Reset => Err(Refusal::AlreadyExists),
        }
    }

    fn state(&self) -> VmState {
        self.station.standing().state.unwrap_or(VmState::Created)
    }

    fn running_for(&self, what: &str) -> Result<(), Refusal> {
        match self.state() {
            VmState::Running => Ok(()),
            state => Err(Refusal::WrongState { state, what: what.to_owned() }),
        }
    }

    fn go_to(&self, machine: &Assembled, wanted: WantedState) -> Done {
        const WHY: &str = "asked for through the API";
        let state = self.state();
        if !wanted.is_reached_from(state) {
            let what = format!("state {}", wanted.reached());
            return Done::Answered(Err(Refusal::WrongState { state, what }));
        }
        if wanted.reached() == state {
            return Done::Answered(Ok(self.station.generation()));
        }
        let made = match wanted {
            WantedState::Stopped => {
                machine.parts.end.note(Outcome::Stopped(StopCause::Api));
                return Done::Ending(wanted);
            }
            WantedState::Running if state == VmState::Created => return Done::Start,
            WantedState::Running => machine.resume(LIMIT),
            WantedState::Paused => machine.pause(LIMIT),
        };
        Done::Answered(match made {
            Ok(()) => Ok(self.station.now(wanted.reached(), WHY)),
            Err(error) => {
                // Some vCPUs may be paused and some not: back to what is said of the machine.
                if wanted == WantedState::Paused {
                    let _ = machine.resume(LIMIT);
                }
                Err(refused::of_threads(&format!("state {}", wanted.reached()), &error))
            }
        })
    }

    fn placement(&self) -> Result<&PlacementHandle, Refusal> {
        match self.view.placement.get() {
            Some(Ok(handle)) => Ok(handle),
            Some(Err(why)) => Err(refused::host("the placement", why)),
            None => Err(Refusal::WrongState { state: self.state(), what: "a change of placement".to_owned() }),
        }
    }

    fn hold(&self, vcpu: VcpuIndex, cpus: CpuSet<HostCpu>) -> Answer {
        if vcpu.index() >= self.view.vcpus.len() {
            return Err(refused::no_such_vcpu(vcpu, self.view.vcpus.len()));
        }
        if cpus.is_empty() {
            return Err(refused::invalid("affinity", "the list is empty; name a host CPU at least"));
        }
        self.placement()?.hold(vcpu, Some(cpus)).map_err(|error| refused::of_placement(&error))?;
        Ok(self.station.settings("affinity"))
    }

    fn set_pause(&self, wanted: &PauseChange) -> Answer {
        let change = pausing::change(wanted).map_err(|_| {
            let name = wanted.mechanism.as_deref().unwrap_or_default();
            refused::invalid(
                "mechanism",
                &format!("`{name}` is no mechanism; write auto, none, yield, park or hypercall"),
            )
        })?;
        if let Some(name) = change.parameters.keys().find(|name| pausing::is_of_the_boot(name)) {
            return Err(Refusal::NotAtRunTime {
                what: format!("parameters.{name}"),
                why: "the guest is told it by CPUID when it boots".to_owned(),
                hint: Some(format!("start with --pause-set {name}=N")),
            });
        }
        self.view.pause.change(&change).map_err(|error| refused::of_pause(&error))?;
        self.view.note_set(change.parameters.into_keys());
        Ok(self.station.settings("pause"))
    }
}
