// SPDX-License-Identifier: Apache-2.0
//! A machine that runs: pause, resume, wait for its end.

use std::time::Instant;

use devices::serial::Flushed;
use topology::id::VcpuIndex;

use super::assembly::{Assembled, Parts};
use super::end::Outcome;
use super::event_loop::{self, EventLoopError};
use crate::host::signals::EndingSignals;
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
}

/// A machine whose vCPUs run guest code, or are paused.
pub struct Running {
    machine: Assembled,
}

impl Assembled {
    /// Gives the word to run, vCPU 0 first.
    pub fn start(self) -> Running {
        for vcpu in &self.handles {
            vcpu.ask(Request::Run);
        }
        Running { machine: self }
    }
}

impl Running {
    /// The vCPU threads.
    #[must_use]
    pub fn vcpus(&self) -> &[VcpuHandle] {
        &self.machine.handles
    }

    /// Stops all vCPUs; returns when none of them runs guest code any more.
    ///
    /// # Errors
    /// [`ControlError`]: some may be paused and some not; resuming is allowed.
    pub fn pause(&self) -> Result<(), ControlError> {
        self.ask_all(Request::Pause, State::Paused)
    }

    /// Lets all vCPUs go on; returns when all have taken the word.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn resume(&self) -> Result<(), ControlError> {
        self.ask_all(Request::Run, State::Running)
    }

    fn ask_all(&self, request: Request, wanted: State) -> Result<(), ControlError> {
        for vcpu in self.vcpus() {
            vcpu.ask(request);
        }
        for vcpu in self.vcpus() {
            match vcpu.wait(ANSWER_LIMIT) {
                Ok(Reply::Now(state)) if state == wanted => {}
                Ok(Reply::Now(_) | Reply::AlreadyFinished) => {
                    return Err(ControlError::Finished { vcpu: vcpu.index() });
                }
                Err(source) => return Err(ControlError::NoAnswer { vcpu: vcpu.index(), source }),
            }
        }
        Ok(())
    }

    /// Serves the machine's events until the run is at its end, then stops every vCPU.
    ///
    /// # Errors
    /// [`EventLoopError`]: the host refused something that the loop needs; the machine is stopped all the same.
    pub fn wait(self, mut signals: EndingSignals) -> Result<Finished, EventLoopError> {
        let outcome = event_loop::serve(&self.machine, &mut signals)?;
        let ended_at = Instant::now();
        if let (Outcome::Stopped(_), Some(sink)) = (&outcome, &self.machine.parts.sink) {
            sink.hurry();
        }
        for vcpu in self.vcpus() {
            vcpu.ask(Request::Finish);
        }
        for vcpu in self.vcpus() {
            // A thread without an answer is dealt with when its handle is dropped. The limit is for all together.
            let _ = vcpu.wait(ANSWER_LIMIT.saturating_sub(ended_at.elapsed()));
        }
        drain(&self.machine.parts, &mut signals);
        Ok(Finished { machine: self.machine, outcome, ended_at })
    }
}

/// What the guest sent before its end is still to be seen, for as long as its reader takes and no signal comes.
fn drain(parts: &Parts, signals: &mut EndingSignals) {
    while parts.console.flush() == Flushed::Waiting && matches!(signals.take(), Ok(None)) {
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
