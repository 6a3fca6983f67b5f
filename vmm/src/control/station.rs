// SPDX-License-Identifier: Apache-2.0
//! Where the API's thread and the main thread meet: what the machine is, and what is asked of it.
//!
//! Invariant: state, generation and the machine itself are changed by the main thread alone, under one lock that nobody
//! holds while anything waits.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use api::events::EventLog;
use api::monitor::{Change, Promise, Refusal, Ticket};
use api::serial::SerialLog;
use api::wire::{EventKind, Exit, Generation, Thresholds, ThresholdsChange, VmState, WantedState};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::view::View;
use crate::pause::clock;

/// Changes that wait to be carried out, at most.
const QUEUE: usize = 1024;

/// A change that was asked for.
pub struct Asked {
    /// What.
    pub change: Change,
    /// The generation it was asked of.
    pub expected: Option<Generation>,
    /// Where the answer goes.
    pub promise: Promise,
}

/// What the machine is.
#[derive(Clone, Default)]
pub(super) struct Standing {
    pub(super) generation: Generation,
    pub(super) state: Option<VmState>,
    pub(super) view: Option<Arc<View>>,
    pub(super) started: Option<Instant>,
    pub(super) exit: Option<Exit>,
    ending: bool,
}

/// The meeting place. One a process.
pub struct Station {
    events: Arc<EventLog>,
    serial: Arc<SerialLog>,
    standing: Mutex<Standing>,
    queue: Mutex<VecDeque<Asked>>,
    /// Changes that are being carried out: an end, a restart.
    under_way: Mutex<Vec<(WantedState, Promise)>>,
    /// Thresholds of events that flags name.
    flagged: ThresholdsChange,
    /// Those that clients asked for.
    asked: Mutex<ThresholdsChange>,
    wake: EventFd,
}

impl Station {
    /// No machine yet; `flagged` are the thresholds of events that flags name.
    ///
    /// # Errors
    /// The kernel's own: no descriptor is left.
    pub fn new(flagged: ThresholdsChange) -> io::Result<Self> {
        Ok(Self {
            events: Arc::default(),
            serial: Arc::default(),
            standing: Mutex::default(),
            queue: Mutex::default(),
            under_way: Mutex::default(),
            flagged,
            asked: Mutex::default(),
            wake: EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?,
        })
    }

    /// The log of events.
    #[must_use]
    pub fn events(&self) -> &Arc<EventLog> {
        &self.events
    }

    /// The guest's serial output.
    #[must_use]
    pub fn serial(&self) -> &Arc<SerialLog> {
        &self.serial
    }

    /// Readable while changes wait.
    #[must_use]
    pub fn event(&self) -> &EventFd {
        &self.wake
    }

    fn lock(&self) -> MutexGuard<'_, Standing> {
        // A thread that panics aborts the process; a poisoned lock cannot be seen.
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How things stand.
    pub(super) fn standing(&self) -> Standing {
        self.lock().clone()
    }

    /// What there is to be seen of the machine.
    pub(super) fn view(&self) -> Option<Arc<View>> {
        self.lock().view.clone()
    }

    /// Leaves a change for the main thread.
    pub(super) fn leave(&self, change: Change, expected: Option<Generation>) -> Ticket {
        if self.lock().ending {
            return Ticket::ready(Err(Refusal::Ending));
        }
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.len() >= QUEUE {
            return Ticket::ready(Err(Refusal::Busy { what: "the change".to_owned() }));
        }
        let (ticket, promise) = Ticket::with_promise();
        queue.push_back(Asked { change, expected, promise });
        // The counter of a non-blocking eventfd can only be full of earlier wake-ups.
        let _ = self.wake.write(1);
        ticket
    }

    /// For the main thread: the next change.
    pub fn next(&self) -> Option<Asked> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// For the main thread: takes note of a wake-up.
    pub fn heard(&self) {
        let _ = self.wake.read();
    }

    /// Whether a change may be made that was asked of generation `expected`.
    ///
    /// # Errors
    /// [`Refusal::Stale`].
    pub(super) fn check(&self, expected: Option<Generation>) -> Result<(), Refusal> {
        Refusal::if_stale(self.lock().generation, expected)
    }

    /// There is a machine now; it is `created`.
    pub(super) fn created(&self, view: Arc<View>, why: &str) -> Generation {
        let mut standing = self.lock();
        (standing.view, standing.exit, standing.started) = (Some(view), None, None);
        self.reached(standing, VmState::Created, why)
    }

    /// The machine is in another state now.
    pub fn now(&self, state: VmState, why: &str) -> Generation {
        let mut standing = self.lock();
        if state == VmState::Running {
            standing.started.get_or_insert_with(Instant::now);
        }
        self.reached(standing, state, why)
    }

    /// The machine is at its end. Whoever asked for that is told.
    pub fn stopped(&self, exit: Exit) {
        let why = exit.reason.clone();
        let mut standing = self.lock();
        standing.exit = Some(exit);
        standing.ending = true;
        let generation = self.reached(standing, VmState::Stopped, &why);
        for (wanted, promise) in self.under_way.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let what = "a reset".to_owned();
            promise.redeem(match wanted {
                WantedState::Stopped => Ok(generation),
                WantedState::Running | WantedState::Paused => {
                    Err(Refusal::WrongState { state: VmState::Stopped, what })
                }
            });
        }
        while let Some(asked) = self.next() {
            asked.promise.redeem(Err(Refusal::Ending));
        }
    }

    /// The machine that a reset led to runs.
    pub fn restarted(&self) {
        let generation = self.lock().generation;
        for (_, promise) in self.under_way.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            promise.redeem(Ok(generation));
        }
    }

    /// A change is under way that the main loop cannot carry out itself.
    pub(super) fn begin(&self, wanted: WantedState, promise: Promise) {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner).push((wanted, promise));
    }

    /// Settings were changed.
    pub(super) fn settings(&self, what: &str) -> Generation {
        let mut standing = self.lock();
        standing.generation.0 += 1;
        let generation = standing.generation;
        drop(standing);
        self.events.publish(clock::now().0, EventKind::SettingsChanged { what: what.to_owned(), generation });
        generation
    }

    /// The thresholds of events, and who decided.
    pub(super) fn thresholds_told(&self) -> Thresholds {
        let asked = *self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        Thresholds::of(&self.flagged, &asked, self.generation())
    }

    /// Clients ask for other thresholds, which are in their ranges.
    pub(super) fn set_thresholds(&self, change: ThresholdsChange) -> Generation {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        *asked = change.over(*asked);
        drop(asked);
        self.settings("thresholds")
    }

    /// The generation as it is.
    pub(super) fn generation(&self) -> Generation {
        self.lock().generation
    }

    fn reached(&self, mut standing: MutexGuard<'_, Standing>, state: VmState, why: &str) -> Generation {
        standing.generation.0 += 1;
        standing.state = Some(state);
        let generation = standing.generation;
        drop(standing);
        self.events.publish(clock::now().0, EventKind::StateChanged { state, generation, why: why.to_owned() });
        generation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_an_older_generation_is_refused() {
        let station = Station::new(ThresholdsChange::default()).unwrap();
        let first = station.now(VmState::Running, "started");
        assert_eq!(station.check(Some(first)), Ok(()));
        let second = station.settings("pause");
        let stale = Refusal::Stale { current: second, expected: first };
        assert_eq!(station.check(Some(first)), Err(stale));
        assert_eq!((station.check(None), second.0), (Ok(()), first.0 + 1));
    }

    #[test]
    fn the_end_answers_everybody_who_waits() {
        let station = Station::new(ThresholdsChange::default()).unwrap();
        let _first = station.leave(Change::Nmi, None);
        station.stopped(Exit { status: 0, reason: "guest powered off".to_owned() });
        assert!(station.next().is_none(), "nothing is left in the queue");
        let standing = station.standing();
        assert_eq!(standing.state, Some(VmState::Stopped));
        assert_eq!(standing.exit.map(|exit| exit.status), Some(0));
        assert_eq!(station.events().last_id(), 1);
    }
}
