// SPDX-License-Identifier: Apache-2.0
//! `--api-only`, before the guest runs: waits for a machine to be asked for, and then for the word to start it.
//!
//! Invariant: a wait ends with a change or with a signal, and never by itself.

use std::io;
use std::os::fd::AsRawFd;

use api::monitor::{Change, Promise, Refusal};
use api::wire::WantedState;
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};

use super::carry_out::{Desk, Done};
use super::refused;
use super::station::{Asked, Station};
use crate::config::{self, Machine, MachineConfig};
use crate::host::signals::EndingSignals;
use crate::vm::assembly::Assembled;
use crate::vm::end::{Outcome, StopCause};
use crate::vm::error::AssemblyError;

/// How the wait for the first start ended.
pub enum Visit {
    /// It is to be started; whoever asked waits for that.
    Start(Promise),
    /// It is to end without having run.
    End(Outcome),
}

/// Waits until a machine is asked for that can be made, and makes it; `None` if a signal came instead. The promise is to be
/// redeemed when the machine is there to be seen.
///
/// # Errors
/// The kernel's own: no descriptor to wait with.
pub fn machine(
    station: &Station,
    signals: &mut EndingSignals,
    mut make: impl FnMut(Machine) -> Result<Assembled, AssemblyError>,
) -> io::Result<Option<(MachineConfig, Assembled, Promise)>> {
    let bell = Bell::new(station, signals)?;
    loop {
        bell.wait()?;
        if matches!(signals.take(), Ok(Some(_))) {
            return Ok(None);
        }
        station.heard();
        while let Some(Asked { change, expected, promise }) = station.next() {
            let Change::Create(wanted) = change else {
                promise.redeem(Err(Refusal::NoVm));
                continue;
            };
            let text = serde_json::to_string(&wanted).unwrap_or_default();
            let made = station.check(expected).and_then(|()| described(&text)).and_then(|(config, machine)| {
                make(machine).map(|made| (config, made)).map_err(|error| refused::of_assembly(&error))
            });
            match made {
                Ok((config, machine)) => return Ok(Some((config, machine, promise))),
                Err(refusal) => promise.redeem(Err(refusal)),
            }
        }
    }
}

/// The machine that a body describes.
fn described(text: &str) -> Result<(MachineConfig, Machine), Refusal> {
    let config = config::parse(text).map_err(|error| refused::of_parse(&error))?.effective();
    if config.without_api() != config {
        return Err(Refusal::NotAtRunTime {
            what: "the control API".to_owned(),
            why: "it was there before the machine".to_owned(),
            hint: Some("leave out the keys that begin with api_".to_owned()),
        });
    }
    let machine = config.resolve().map_err(|error| refused::of_config(&error))?;
    Ok((config, machine))
}

/// Waits until a machine that was made is to be started; carries out what else is asked meanwhile.
///
/// # Errors
/// The kernel's own: no descriptor to wait with.
pub fn start(desk: &Desk, machine: &Assembled, signals: &mut EndingSignals) -> io::Result<Visit> {
    let bell = Bell::new(desk.station(), signals)?;
    loop {
        bell.wait()?;
        if matches!(signals.take(), Ok(Some(_))) {
            return Ok(Visit::End(Outcome::Stopped(StopCause::Immediate)));
        }
        desk.station().heard();
        while let Some(Asked { change, expected, promise }) = desk.station().next() {
            match desk.carry_out(machine, change, expected) {
                Done::Answered(answer) => promise.redeem(answer),
                Done::Start => return Ok(Visit::Start(promise)),
                Done::Ending(_) => {
                    desk.station().begin(WantedState::Stopped, promise);
                    return Ok(Visit::End(Outcome::Stopped(StopCause::Api)));
                }
            }
        }
    }
}

/// What wakes the main thread while nothing runs.
struct Bell(Epoll);

impl Bell {
    fn new(station: &Station, signals: &EndingSignals) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        for descriptor in [station.event().as_raw_fd(), signals.as_raw_fd()] {
            let number = u64::from(descriptor.unsigned_abs());
            epoll.ctl(ControlOperation::Add, descriptor, EpollEvent::new(EventSet::IN, number))?;
        }
        Ok(Self(epoll))
    }

    fn wait(&self) -> io::Result<()> {
        match self.0.wait(-1, &mut [EpollEvent::default()]) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_a_configuration_without_the_api_itself() {
        let (config, machine) = described("{\"cpus\": 2, \"serial\": \"none\"}").unwrap();
        assert_eq!((machine.topology.vcpu_count(), config.serial.is_some()), (2, true));
        let refusal = described("{\"api_sock\": \"x\"}").unwrap_err();
        assert!(matches!(refusal, Refusal::NotAtRunTime { .. }), "{refusal}");
        let refusal = described("{\"cpsu\": 1}").unwrap_err();
        assert!(matches!(refusal, Refusal::UnknownField { nearest: Some(_), .. }), "{refusal}");
        let refusal = described("{\"cpus\": 0}").unwrap_err();
        assert!(matches!(refusal, Refusal::Invalid { .. }), "{refusal}");
    }
}
