// SPDX-License-Identifier: Apache-2.0
//! A machine that runs: pause, resume, wait for its end.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use devices::serial::Flushed;
use topology::id::VcpuIndex;

use super::assembly::Assembled;
use super::end::Outcome;
use super::event_loop::{self, EventLoopError};
use super::parts::Parts;
use crate::control::carry_out::Desk;
use crate::host::allocator;
use crate::host::signals::{EndingSignals, SignalRequest};
use crate::placement::control::{HandleError, PlacementHandle};
use crate::placement::pairs::PauseHandling;
use crate::vcpu::control::{NoAnswer, Reply, Request, State};
use crate::vcpu::thread::{ANSWER_LIMIT, VcpuHandle};

/// A vCPU thread did not do what was asked.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ControlError {
    /// No answer.
    #[error("vCPU {vcpu}: {source}")]
    NoAnswer {
        /// Which.
        vcpu: VcpuIndex,
        /// For how long.
        source: NoAnswer,
    },
    /// It has ended.
    #[error("vCPU {vcpu} has finished; the guest is at its end")]
    Finished {
        /// Which.
        vcpu: VcpuIndex,
    },
    /// It is in another state: somebody else asked for something in between.
    #[error("vCPU {vcpu} is {found:?} and not {wanted:?}: another request overtook this one; ask again")]
    Overtaken {
        /// Which.
        vcpu: VcpuIndex,
        /// The state that was asked for.
        wanted: State,
        /// The state it is in.
        found: State,
    },
}

/// What is to be said of an answer to a request for the state `wanted`.
fn judge(vcpu: VcpuIndex, wanted: State, answer: Result<Reply, NoAnswer>) -> Result<(), ControlError> {
    match answer {
        Ok(Reply::Now(state)) if state == wanted => Ok(()),
        Ok(Reply::Now(State::Finished) | Reply::AlreadyFinished) => Err(ControlError::Finished { vcpu }),
        Ok(Reply::Now(found)) => Err(ControlError::Overtaken { vcpu, wanted, found }),
        Err(source) => Err(ControlError::NoAnswer { vcpu, source }),
    }
}

/// A machine whose vCPUs run guest code, or are paused.
pub struct Running {
    machine: Assembled,
}

impl Assembled {
    /// Gives the word to run, vCPU 0 first.
    pub fn start(mut self) -> Running {
        for vcpu in self.handles.iter() {
            vcpu.ask(Request::Run);
        }
        self.placement.keep_off(&self.handles);
        self.placement.heed(Arc::clone(self.pause.driver()) as Arc<dyn PauseHandling>);
        self.placement.go_on(&self.handles);
        // What only the start needed, such as the description of the command line.
        allocator::give_back();
        Running { machine: self }
    }

    /// Stops all vCPUs of a machine that was started; returns when none of them runs guest code any more.
    ///
    /// # Errors
    /// [`ControlError`], all vCPUs together having had `limit`: some may be paused and some not; resuming is allowed.
    pub fn pause(&self, limit: Duration) -> Result<(), ControlError> {
        self.ask_all(Request::Pause, State::Paused, limit)
    }

    /// Lets all vCPUs go on; returns when all have taken the word.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn resume(&self, limit: Duration) -> Result<(), ControlError> {
        self.ask_all(Request::Run, State::Running, limit)
    }

    /// Sends every vCPU of a running machine a non-maskable interrupt.
    ///
    /// # Errors
    /// [`ControlError`]: some may have got it and some not.
    pub fn send_nmi(&self, limit: Duration) -> Result<(), ControlError> {
        self.ask_all(Request::Nmi, State::Running, limit)
    }

    fn ask_all(&self, request: Request, wanted: State, limit: Duration) -> Result<(), ControlError> {
        for vcpu in self.handles.iter() {
            vcpu.ask(request);
        }
        let deadline = Instant::now() + limit;
        for vcpu in self.handles.iter() {
            let left = deadline.saturating_duration_since(Instant::now());
            judge(vcpu.index(), wanted, vcpu.wait(left))?;
        }
        Ok(())
    }
}

impl Running {
    /// The vCPU threads.
    #[must_use]
    pub fn vcpus(&self) -> &[VcpuHandle] {
        &self.machine.handles
    }

    /// A way to ask about placement and to change it; it works until the run is at its end.
    ///
    /// # Errors
    /// [`HandleError`].
    pub fn placement(&mut self) -> Result<PlacementHandle, HandleError> {
        let Assembled { placement, machine, handles, .. } = &mut self.machine;
        placement.handle(&machine.topology, handles)
    }

    /// Stops all vCPUs; returns when none of them runs guest code any more.
    ///
    /// # Errors
    /// [`ControlError`]: some may be paused and some not; resuming is allowed.
    pub fn pause(&self) -> Result<(), ControlError> {
        self.machine.pause(ANSWER_LIMIT)
    }

    /// Lets all vCPUs go on; returns when all have taken the word.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn resume(&self) -> Result<(), ControlError> {
        self.machine.resume(ANSWER_LIMIT)
    }

    /// Serves the machine's events, and what is asked of it at `desk`, until the run is at its end; then stops every vCPU.
    ///
    /// # Errors
    /// [`EventLoopError`]: the host refused something that the loop needs; the machine is stopped all the same.
    pub fn wait(mut self, signals: &mut EndingSignals, desk: Option<&Desk>) -> Result<Finished, EventLoopError> {
        let outcome = event_loop::serve(&self.machine, signals, desk)?;
        let ended_at = Instant::now();
        self.machine.placement.rest();
        if let (Outcome::Stopped(_), Some(sink)) = (&outcome, &self.machine.parts.sink) {
            sink.hurry();
        }
        self.machine.handles.end();
        drain(&self.machine.parts, signals);
        Ok(Finished { machine: self.machine, outcome, ended_at })
    }
}

/// What the guest sent before its end is still to be seen, for as long as its reader takes and no signal comes.
fn drain(parts: &Parts, signals: &mut EndingSignals) {
    let ends =
        |asked: io::Result<Option<SignalRequest>>| asked.map_or(true, |asked| asked.is_some_and(SignalRequest::is_end));
    while parts.console.flush() == Flushed::Waiting && !ends(signals.take()) {
        match &parts.sink {
            Some(sink) if !sink.is_hurried() => {
                sink.await_room();
            }
            Some(_) | None => return,
        }
    }
}

/// A machine at its end: nothing runs any more, everything can still be read.
pub struct Finished {
    /// What is left of it.
    pub machine: Assembled,
    /// How it ended.
    pub outcome: Outcome,
    /// When.
    pub ended_at: Instant,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vcpu_in_another_state_is_not_said_to_have_finished() {
        let vcpu = VcpuIndex(3);
        let paused = |answer| judge(vcpu, State::Paused, answer);
        assert_eq!(paused(Ok(Reply::Now(State::Paused))), Ok(()));
        assert_eq!(
            paused(Ok(Reply::Now(State::Running))),
            Err(ControlError::Overtaken { vcpu, wanted: State::Paused, found: State::Running })
        );
        assert_eq!(paused(Ok(Reply::Now(State::Finished))), Err(ControlError::Finished { vcpu }));
        assert_eq!(paused(Ok(Reply::AlreadyFinished)), Err(ControlError::Finished { vcpu }));
    }
}
