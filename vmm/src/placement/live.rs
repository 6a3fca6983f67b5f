// SPDX-License-Identifier: Apache-2.0
//! The thread that goes on placing while the guest runs, and answers who asks about it.
//!
//! Between two looks ([`super::mover`]) it waits for messages ([`super::control`]). While nothing improves the periods
//! grow, so that a calm guest pays for one look in [`LONGEST`]; where nothing is to be decided it only waits. Invariant: it
//! never holds up a vCPU.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::account::Account;
use super::control::{Message, PlacementHandle};
use super::crew::Crew;
use super::memory::NodeMemory;
use super::mover::{Asked, Looked, Mover};
use super::pairs::Pairs;
use super::site::Site;

/// Between two looks while somebody waits or moves.
const SHORTEST: Duration = Duration::from_millis(100);
/// Between two looks when nothing improves.
const LONGEST: Duration = Duration::from_millis(800);
/// The same while somebody waits all the same.
const LONGEST_WAITING: Duration = Duration::from_millis(400);
const STACK_BYTES: usize = 256 * 1024;

/// What the thread leaves at its end, as it was last applied.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) site: Site,
    pub(super) account: Account,
    pub(super) memory: Vec<NodeMemory>,
}

/// The thread; ends when it is stopped or dropped.
#[derive(Debug)]
pub struct Live {
    messages: Sender<Message>,
    thread: Option<JoinHandle<Left>>,
}

impl Live {
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread can be started; the site is lost with it, and with that the claim.
    pub(super) fn start(asked: Asked, site: Site, memory: &[NodeMemory], crew: Crew, pairs: Pairs) -> io::Result<Self> {
        let (messages, received) = channel();
        let memory = memory.to_vec();
        let thread = thread::Builder::new()
            .name("placement".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || run(Mover::new(asked, site, memory, crew, pairs), &received))?;
        Ok(Self { messages, thread: Some(thread) })
    }

    /// To ask it and to change what it does.
    pub(super) fn handle(&self) -> PlacementHandle {
        PlacementHandle(self.messages.clone())
    }

    /// Ends the thread.
    pub(super) fn finish(mut self) -> Option<Left> {
        self.end()
    }

    fn end(&mut self) -> Option<Left> {
        // It may have ended already.
        let _ = self.messages.send(Message::End);
        // A panic aborts the process, so a join cannot fail.
        self.thread.take().and_then(|thread| thread.join().ok())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.end();
    }
}

fn run(mut mover: Mover, messages: &Receiver<Message>) -> Left {
    let mut period = SHORTEST;
    loop {
        let message = match mover.decides() {
            true => messages.recv_timeout(period),
            false => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match message {
            Err(RecvTimeoutError::Timeout) => {
                period = match mover.look() {
                    Looked::Changed => SHORTEST,
                    Looked::Waiting => LONGEST_WAITING.min(period * 2),
                    Looked::Calm => LONGEST.min(period * 2),
                }
            }
            // Whoever asked and does not wait for the answer has none.
            Ok(Message::Tell(answer)) => drop(answer.send(mover.state())),
            Ok(Message::Change(change, answer)) => {
                period = SHORTEST;
                drop(answer.send(mover.change(change).map(|()| mover.state())));
            }
            Ok(Message::Hold(vcpu, cpus, answer)) => drop(answer.send(mover.hold(vcpu, cpus).map(|()| mover.state()))),
            Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => {
                return mover.leave();
            }
        }
    }
}
