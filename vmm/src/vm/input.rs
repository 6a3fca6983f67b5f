// SPDX-License-Identifier: Apache-2.0
//! From stdin to the guest's serial port, with back-pressure: what the port has no room for stays here, and stdin is
//! left alone until it is gone. A terminal alone is always read, for its keys may be for the monitor, but only while it is
//! ours.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::Arc;

use event_manager::{EventOps, Events};
use vmm_sys_util::epoll::EventSet;

use super::console::Console;
use super::end::{EndNote, Outcome, StopCause};
use crate::host::terminal::{EscapeKeys, Key, Terminal};

/// Bytes read at a time: what the port's FIFO can take.
const CHUNK: usize = 64;

/// Bytes that may be typed, or pasted, ahead of a guest that does not read; what comes beyond is lost, as a terminal loses
/// it.
const TYPED_AHEAD: usize = 1 << 20;

/// How stdin says that it can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// epoll tells.
    Watched,
    /// Left alone while the port is full.
    Waiting,
    /// A regular file, which epoll refuses: it can always be read.
    AlwaysReady,
    /// A terminal that another job has.
    Elsewhere,
    /// At its end.
    Ended,
}

/// Stdin on its way to the guest.
pub(super) struct Input<'a> {
    file: File,
    // Escape sequences are for people; a pipe is passed on as it is.
    keys: Option<EscapeKeys>,
    terminal: Option<Terminal>,
    rest: Vec<u8>,
    source: Source,
    end: &'a Arc<EndNote>,
}

impl<'a> Input<'a> {
    /// Takes a duplicate of stdin, which may be a terminal; Ctrl-A x typed there ends the run through `end`.
    ///
    /// # Errors
    /// The kernel's own: stdin is closed.
    pub(super) fn stdin(terminal: Option<Terminal>, end: &'a Arc<EndNote>) -> io::Result<Self> {
        let file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let keys = terminal.as_ref().map(|_| EscapeKeys::default());
        Ok(Self { terminal, ..Self::new(file, keys, end) })
    }

    fn new(file: File, keys: Option<EscapeKeys>, end: &'a Arc<EndNote>) -> Self {
        Self { file, keys, terminal: None, rest: Vec::new(), source: Source::Watched, end }
    }

    /// Starts watching.
    pub(super) fn begin(&mut self, console: &Console, ops: &mut EventOps) {
        self.source = match &self.terminal {
            Some(terminal) if !terminal.is_ours() => Source::Elsewhere,
            Some(_) | None => self.watch(ops),
        };
        if self.source == Source::AlwaysReady {
            self.pump(console, ops);
        }
    }

    fn watch(&self, ops: &mut EventOps) -> Source {
        match ops.add(Events::new(&self.file, EventSet::IN)) {
            Ok(()) => Source::Watched,
            Err(event_manager::Error::Epoll(error)) if error.errno() == libc::EPERM => Source::AlwaysReady,
            // No memory for a watch: a guest without a keyboard is better than a read that blocks the event loop.
            Err(_) => Source::Ended,
        }
    }

    /// Whether it is a terminal that another job has. Nothing tells when it comes back: [`Input::look`] does.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.source == Source::Elsewhere
    }

    /// Looks who has the terminal, and reads it, or leaves it alone, from now on.
    pub(super) fn look(&mut self, ops: &mut EventOps) {
        let Some(terminal) = &mut self.terminal else { return };
        terminal.look();
        let ours = terminal.is_ours();
        self.source = match (self.source, ours) {
            (Source::Elsewhere, true) => self.watch(ops),
            (Source::Watched, false) => {
                let _ = ops.remove(Events::new(&self.file, EventSet::IN));
                Source::Elsewhere
            }
            (unchanged, _) => unchanged,
        };
    }

    /// Before the process stands still: the terminal is what it was.
    pub(super) fn suspend(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            terminal.give_back();
        }
    }

    /// After the process stood still; a look follows.
    pub(super) fn go_on(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            terminal.look_anew();
        }
    }

    /// Moves what is left. Called when the port has room again.
    pub(super) fn make_use_of_room(&mut self, console: &Console, ops: &mut EventOps) {
        if self.keys.is_some() {
            // A terminal is read when it is readable and at no other time, for that could block.
            self.feed_rest(console, ops);
        } else {
            self.pump(console, ops);
        }
    }

    /// Moves what there is and what there is room for. Called when stdin is readable.
    ///
    /// A terminal is read also when there is no room, for the keys that end a guest which reads nothing.
    pub(super) fn pump(&mut self, console: &Console, ops: &mut EventOps) {
        loop {
            self.feed_rest(console, ops);
            if !self.rest.is_empty() && self.keys.is_none() {
                return;
            }
            match self.source {
                Source::Waiting => {
                    self.set_watched(ops, true);
                    return;
                }
                Source::Ended | Source::Elsewhere => return,
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
        if !self.rest.is_empty() && self.keys.is_none() {
            self.set_watched(ops, false);
        }
    }

    /// Reads the next bytes into `rest`. Gives whether any came.
    fn read(&mut self, ops: &mut EventOps) -> bool {
        self.look(ops);
        if self.is_elsewhere() {
            return false;
        }
        let mut chunk = [0; CHUNK];
        match self.file.read(&mut chunk) {
            Ok(0) => self.ended(ops),
            Ok(count) => {
                self.take(&chunk[..count]);
                return true;
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            Err(error) => {
                // A terminal that has gone to another job meanwhile is no error of the terminal.
                self.look(ops);
                if error.raw_os_error() != Some(libc::EIO) || !self.is_elsewhere() {
                    self.ended(ops);
                }
            }
        }
        false
    }

    fn take(&mut self, bytes: &[u8]) {
        let Some(keys) = &mut self.keys else { return self.rest.extend_from_slice(bytes) };
        for byte in bytes {
            match keys.feed(*byte) {
                Key::Guest(byte) if self.rest.len() < TYPED_AHEAD => self.rest.push(byte),
                Key::Guest(_) | Key::Swallowed => {}
                Key::Quit => self.end.note(Outcome::Stopped(StopCause::Immediate)),
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
        // Taken out, not left in without an interest: epoll tells of a writer that has gone all the same, and would go
        // on telling for as long as the port is full.
        self.source = match (self.source, watched) {
            (Source::Watched, false) => {
                let _ = ops.remove(Events::new(&self.file, EventSet::IN));
                Source::Waiting
            }
            (Source::Waiting, true) => match ops.add(Events::new(&self.file, EventSet::IN)) {
                Ok(()) => Source::Watched,
                Err(_) => Source::Ended,
            },
            (unchanged, _) => unchanged,
        };
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::{AsRawFd, OwnedFd};

    use devices::bus::Device;
    use devices::serial::RBR_THR;
    use event_manager::{EventManager, MutEventSubscriber, SubscriberOps};

    use super::*;
    use crate::config::SerialConfig;
    use crate::vm::console::{ConsoleEvents, ConsoleOutput, EventLine};
    use crate::vm::observed::{Observer, SharedObserved};

    struct Feeder<'a> {
        console: &'a Console,
        events: &'a ConsoleEvents,
        input: Input<'a>,
    }

    impl MutEventSubscriber for Feeder<'_> {
        fn init(&mut self, ops: &mut EventOps) {
            ops.add(Events::new(self.events.event(), EventSet::IN)).unwrap();
            self.input.begin(self.console, ops);
        }

        fn process(&mut self, events: Events, ops: &mut EventOps) {
            if events.fd() == self.events.event().as_raw_fd() {
                self.events.event().read().unwrap();
                assert!(self.events.take_room());
            }
            self.input.pump(self.console, ops);
        }
    }

    #[test]
    fn a_writer_that_has_gone_does_not_keep_the_loop_busy_while_the_port_is_full() {
        let sent: Vec<u8> = (0..200).collect();
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(&sent).unwrap();
        drop(writer);
        let end = Arc::new(EndNote::new().unwrap());
        let events = Arc::new(ConsoleEvents::new(Arc::clone(&end)).unwrap());
        let output = ConsoleOutput::open(&SerialConfig::None, false, Observer::new(SharedObserved::default())).unwrap();
        let console = Console::new(EventLine::new().unwrap(), output, Arc::clone(&events));
        let input = Input::new(File::from(OwnedFd::from(reader)), None, &end);
        let mut manager = EventManager::new().unwrap();
        manager.add_subscriber(Feeder { console: &console, events: &events, input });
        let mut received = Vec::new();
        while received.len() < sent.len() {
            let rounds = (0..10).take_while(|_| manager.run_with_timeout(0).unwrap() > 0).count();
            assert!(rounds < 10, "the loop is still busy with {} bytes received", received.len());
            let mut byte = [0];
            Device::read(&console, RBR_THR, &mut byte);
            received.extend(byte);
        }
        assert_eq!(received, sent);
    }
    #[test]
    fn a_guest_that_reads_nothing_does_not_keep_its_person_from_quitting() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(&[b'a'; 400]).unwrap();
        writer.write_all(b"\x01x").unwrap();
        let end = Arc::new(EndNote::new().unwrap());
        let events = Arc::new(ConsoleEvents::new(Arc::clone(&end)).unwrap());
        let output = ConsoleOutput::open(&SerialConfig::None, false, Observer::new(SharedObserved::default())).unwrap();
        let console = Console::new(EventLine::new().unwrap(), output, Arc::clone(&events));
        let keys = Some(EscapeKeys::default());
        let input = Input::new(File::from(OwnedFd::from(reader)), keys, &end);
        let mut manager = EventManager::new().unwrap();
        manager.add_subscriber(Feeder { console: &console, events: &events, input });
        for _ in 0..10 {
            manager.run_with_timeout(0).unwrap();
        }
        assert_eq!(end.take(), Some(Outcome::Stopped(StopCause::Immediate)));
    }
}
