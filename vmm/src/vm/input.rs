// SPDX-License-Identifier: Apache-2.0
//! From stdin to the guest's serial port, with back-pressure: what the port has no room for stays here, and stdin is
//! left alone until it is gone.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::Arc;

use event_manager::{EventOps, Events};
use vmm_sys_util::epoll::EventSet;

use super::console::Console;
use super::end::{EndNote, Outcome, StopCause};
use crate::host::terminal::{self, EscapeKeys, Key};

/// Bytes read at a time: what the port's FIFO can take.
const CHUNK: usize = 64;

/// How stdin says that it can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// epoll tells.
    Watched,
    /// Left alone while the port is full.
    Waiting,
    /// A regular file, which epoll refuses: it can always be read.
    AlwaysReady,
    /// At its end.
    Ended,
}

/// Stdin on its way to the guest.
pub(super) struct Input<'a> {
    file: File,
    // Escape sequences are for people; a pipe is passed on as it is.
    keys: Option<EscapeKeys>,
    rest: Vec<u8>,
    source: Source,
    end: &'a Arc<EndNote>,
}

impl<'a> Input<'a> {
    /// Takes a duplicate of stdin; Ctrl-A x typed there ends the run through `end`.
    ///
    /// # Errors
    /// The kernel's own: stdin is closed.
    pub(super) fn stdin(end: &'a Arc<EndNote>) -> io::Result<Self> {
        let file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let keys = terminal::stdin_is_terminal().then(EscapeKeys::default);
        Ok(Self { file, keys, rest: Vec::new(), source: Source::Watched, end })
    }

    /// Starts watching.
    pub(super) fn begin(&mut self, console: &Console, ops: &mut EventOps) {
        if ops.add(Events::new(&self.file, EventSet::IN)).is_err() {
            self.source = Source::AlwaysReady;
            self.pump(console, ops);
        }
    }

    /// Moves what there is and what there is room for. Called when stdin is readable, and when the port has room again.
    pub(super) fn pump(&mut self, console: &Console, ops: &mut EventOps) {
        loop {
            self.feed_rest(console, ops);
            if !self.rest.is_empty() {
                return;
            }
            match self.source {
                Source::Waiting => {
                    self.set_watched(ops, true);
                    return;
                }
                Source::Ended => return,
                Source::Watched | Source::AlwaysReady => {}
            }
            let watched = self.source == Source::Watched;
            if !self.read(ops) {
                return;
            }
            if watched {
                // epoll tells when there is more; another read could block. What was read is fed, and no more.
                self.feed_rest(console, ops);
                return;
            }
        }
    }

    fn feed_rest(&mut self, console: &Console, ops: &mut EventOps) {
        let taken = console.feed(&self.rest);
        self.rest.drain(..taken);
        if !self.rest.is_empty() {
            self.set_watched(ops, false);
        }
    }

    /// Reads the next bytes into `rest`. Gives whether any came.
    fn read(&mut self, ops: &mut EventOps) -> bool {
        let mut chunk = [0; CHUNK];
        match self.file.read(&mut chunk) {
            Ok(0) => self.ended(ops),
            Ok(count) => {
                self.take(&chunk[..count]);
                return true;
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            Err(_) => self.ended(ops),
        }
        false
    }

    fn take(&mut self, bytes: &[u8]) {
        let Some(keys) = &mut self.keys else { return self.rest.extend_from_slice(bytes) };
        for byte in bytes {
            match keys.feed(*byte) {
                Key::Guest(byte) => self.rest.push(byte),
                Key::Quit => self.end.note(Outcome::Stopped(StopCause::Immediate)),
                Key::Swallowed => {}
            }
        }
    }

    fn ended(&mut self, ops: &mut EventOps) {
        if self.source == Source::Watched {
            let _ = ops.remove(Events::new(&self.file, EventSet::IN));
        }
        self.source = Source::Ended;
    }

    fn set_watched(&mut self, ops: &mut EventOps, watched: bool) {
        let (source, interest) =
            if watched { (Source::Watched, EventSet::IN) } else { (Source::Waiting, EventSet::empty()) };
        if matches!(self.source, Source::Watched | Source::Waiting) && self.source != source {
            let _ = ops.modify(Events::new(&self.file, interest));
            self.source = source;
        }
    }
}
