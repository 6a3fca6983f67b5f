// SPDX-License-Identifier: Apache-2.0
//! Requests to a vCPU thread and its replies, and the mailbox between the two.
//!
//! Invariants: a request is stored before the kick is sent, and the thread looks for it after every return from
//! `KVM_RUN` and before every call of it; so a kick can arrive early or late but a request is never lost. A request
//! that comes while the thread carries out an earlier one waits for its turn: only what was taken is answered.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a vCPU thread can be asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Run guest code; from created or paused.
    Run,
    /// Stop running guest code, keep everything.
    Pause,
    /// Send the guest a non-maskable interrupt; in the state that it is in.
    Nmi,
    /// End the thread.
    Finish,
}

/// Where a vCPU thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Started, and has not run guest code yet.
    Created,
    /// Runs guest code.
    Running,
    /// Runs no guest code until asked to.
    Paused,
    /// The thread has ended or is about to; final.
    Finished,
}

/// What a vCPU thread answers: the state it is in after the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The state was reached.
    Now(State),
    /// The thread has finished and the request was not carried out; nothing else can be asked of it.
    AlreadyFinished,
}

/// No answer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no answer within {waited:?}: the thread is stuck in the kernel")]
pub struct NoAnswer {
    /// How long was waited.
    pub waited: Duration,
}

#[derive(Debug)]
struct Slot {
    /// Left and not taken yet.
    request: Option<Request>,
    /// Whether the thread has taken a request and not answered it yet.
    in_hand: bool,
    state: State,
}

impl Slot {
    fn unanswered(&self) -> bool {
        (self.request.is_some() || self.in_hand) && self.state != State::Finished
    }
}

/// The mailbox of one vCPU thread.
#[derive(Debug)]
pub struct Mailbox {
    slot: Mutex<Slot>,
    changed: Condvar,
    // Mirrors `slot.request.is_some()`, so that the run loop looks without taking the lock.
    pending: AtomicBool,
}

impl Default for Mailbox {
    fn default() -> Self {
        Self {
            slot: Mutex::new(Slot { request: None, in_hand: false, state: State::Created }),
            changed: Condvar::new(),
            pending: AtomicBool::new(false),
        }
    }
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Slot> {
        // A thread that panics aborts the process; a poisoned lock cannot be seen.
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state the thread last reported.
    #[must_use]
    pub fn state(&self) -> State {
        self.lock().state
    }

    /// Leaves a request; one that was not taken yet is replaced. Gives whether the thread has to be kicked for it: one
    /// that runs no guest code waits here and has been woken.
    #[must_use]
    pub fn post(&self, request: Request) -> bool {
        let mut slot = self.lock();
        // Stays here when the thread has finished, and so is answered with that.
        slot.request = Some(request);
        if slot.state == State::Finished {
            return false;
        }
        self.pending.store(true, Ordering::SeqCst);
        self.changed.notify_all();
        slot.state == State::Running
    }

    /// Waits until the last request was carried out, or was overtaken by the end of the thread.
    ///
    /// # Errors
    /// [`NoAnswer`] after `limit`.
    pub fn wait(&self, limit: Duration) -> Result<Reply, NoAnswer> {
        let slot = self.lock();
        let (slot, _) = self
            .changed
            .wait_timeout_while(slot, limit, |slot| slot.unanswered())
            .unwrap_or_else(PoisonError::into_inner);
        if slot.unanswered() {
            return Err(NoAnswer { waited: limit });
        }
        Ok(match (slot.request, slot.state) {
            (Some(_), State::Finished) => Reply::AlreadyFinished,
            (_, state) => Reply::Now(state),
        })
    }

    /// For the thread: whether a request waits. Cheap; called around every `KVM_RUN`.
    #[must_use]
    pub fn pending(&self) -> bool {
        self.pending.load(Ordering::SeqCst)
    }

    /// For the thread: takes the next request, waited for without an end. A thread waits here only while no guest code
    /// runs, and the handle's owner always sends [`Request::Finish`] last.
    pub fn next(&self) -> Request {
        let slot = self.lock();
        let mut slot =
            self.changed.wait_while(slot, |slot| slot.request.is_none()).unwrap_or_else(PoisonError::into_inner);
        self.pending.store(false, Ordering::SeqCst);
        slot.in_hand = true;
        slot.request.take().unwrap_or(Request::Finish)
    }

    /// For the thread: says that the request it took was carried out and where it is now.
    pub fn arrived(&self, state: State) {
        let mut slot = self.lock();
        slot.in_hand = false;
        slot.state = state;
        self.changed.notify_all();
    }

    /// For the thread: says that it has finished by itself. A request that waits is answered with that.
    pub fn finished(&self) {
        let mut slot = self.lock();
        slot.state = State::Finished;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(10);

    #[test]
    fn a_request_is_seen_taken_and_answered() {
        let mailbox = Mailbox::default();
        assert_eq!(mailbox.state(), State::Created);
        assert!(!mailbox.post(Request::Run), "nobody is in the guest");
        assert!(mailbox.pending());
        assert_eq!(mailbox.next(), Request::Run);
        mailbox.arrived(State::Running);
        assert!(!mailbox.pending());
        assert_eq!(mailbox.wait(LONG), Ok(Reply::Now(State::Running)));
        assert!(mailbox.post(Request::Pause), "a thread in the guest is kicked");
    }

    #[test]
    fn a_request_that_comes_while_another_is_carried_out_is_kept() {
        let mailbox = Mailbox::default();
        assert!(!mailbox.post(Request::Run));
        assert_eq!(mailbox.next(), Request::Run);
        assert!(!mailbox.post(Request::Pause), "it is looked for before the guest is entered");
        mailbox.arrived(State::Running);
        assert!(mailbox.pending(), "the pause is not answered by the run");
        let limit = Duration::from_millis(1);
        assert_eq!(mailbox.wait(limit), Err(NoAnswer { waited: limit }));
        assert_eq!(mailbox.next(), Request::Pause);
        assert_eq!(mailbox.wait(limit), Err(NoAnswer { waited: limit }), "taken is not carried out");
        mailbox.arrived(State::Paused);
        assert_eq!(mailbox.wait(LONG), Ok(Reply::Now(State::Paused)));
    }

    #[test]
    fn a_wait_ends_when_nobody_answers() {
        let mailbox = Mailbox::default();
        assert!(!mailbox.post(Request::Pause));
        let limit = Duration::from_millis(1);
        assert_eq!(mailbox.wait(limit), Err(NoAnswer { waited: limit }));
    }

    #[test]
    fn a_request_after_the_end_is_told_that_it_came_too_late() {
        let mailbox = Mailbox::default();
        assert!(!mailbox.post(Request::Finish));
        assert_eq!(mailbox.next(), Request::Finish);
        mailbox.finished();
        assert_eq!(mailbox.wait(LONG), Ok(Reply::Now(State::Finished)), "that request was carried out");
        assert!(!mailbox.post(Request::Run), "nobody is there to be kicked");
        assert_eq!(mailbox.wait(LONG), Ok(Reply::AlreadyFinished));
    }

    #[test]
    fn the_end_of_the_thread_answers_a_request_that_waits() {
        let mailbox = Mailbox::default();
        assert!(!mailbox.post(Request::Pause));
        mailbox.finished();
        assert_eq!(mailbox.wait(LONG), Ok(Reply::AlreadyFinished));
        assert!(!mailbox.post(Request::Run));
        assert_eq!(mailbox.state(), State::Finished, "finished is final");
    }
}
