// SPDX-License-Identifier: Apache-2.0
//! The main thread while the guest runs: input for the console, output that waits, signals, the end.
//!
//! Every wait has an end: the loop sleeps until a descriptor is readable or the nearest deadline has come.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use devices::serial::Flushed;
use event_manager::{EventManager, EventOps, Events, MutEventSubscriber, SubscriberId, SubscriberOps};
use vmm_sys_util::epoll::EventSet;

use super::assembly::Assembled;
use super::console::{Console, ConsoleEvents};
use super::end::{EndNote, Outcome, StopCause};
use super::input::Input;
use crate::config::SerialConfig;
use crate::control::carry_out::Desk;
use crate::control::thresholds::{LOOK_EVERY, Watcher};
use crate::host::signals::{self, EndingSignals, SignalRequest};
use crate::host::terminal::Terminal;
use crate::layout;

/// How long output without a newline may wait, at most: a prompt appears at once for a human.
const FLUSH_AFTER: Duration = Duration::from_millis(10);
/// How long a guest may take to power off after its power button was pressed.
const POWER_OFF_LIMIT: Duration = Duration::from_secs(10);
/// How often it is looked whether a terminal that another job has came back: a shell's `fg` tells a running job nothing.
const TERMINAL_LOOK_AFTER: Duration = Duration::from_millis(200);

/// The event loop cannot work.
#[derive(Debug, thiserror::Error)]
pub enum EventLoopError {
    /// epoll.
    #[error("waiting for events failed: {0}; the host is out of memory, of epoll watches or of open files (ulimit -n)")]
    Wait(event_manager::Error),
    /// The terminal.
    #[error("the terminal on stdin cannot be made raw: {0}; use --serial file=PATH or none, or redirect stdin")]
    Terminal(#[source] io::Error),
    /// Stdin.
    #[error("stdin cannot be used for the guest's console: {0}; use --serial file=PATH or none, or redirect stdin")]
    Stdin(#[source] io::Error),
}

/// What wakes the loop without a descriptor.
#[derive(Debug, Default)]
struct Deadlines {
    flush: Cell<Option<Instant>>,
    power_off: Cell<Option<Instant>>,
    /// When those who watch are told what changed.
    look: Cell<Option<Instant>>,
    terminal: Cell<Option<Instant>>,
}

impl Deadlines {
    fn next(&self) -> Option<Instant> {
        [self.flush.get(), self.power_off.get(), self.terminal.get(), self.look.get()].into_iter().flatten().min()
    }
}

impl Deadlines {
    /// Sees to it that a terminal that another job has is looked for.
    fn look_for(&self, input: Option<&Input<'_>>) {
        if input.is_some_and(Input::is_elsewhere) && self.terminal.get().is_none() {
            self.terminal.set(Some(Instant::now() + TERMINAL_LOOK_AFTER));
        }
    }
}

fn due(deadline: &Cell<Option<Instant>>, now: Instant) -> bool {
    let due = deadline.get().is_some_and(|at| at <= now);
    if due {
        deadline.set(None);
    }
    due
}

/// Serves a running machine, and what is asked of it at `desk`, until its end is noted.
pub(super) fn serve(
    machine: &Assembled,
    signals: &mut EndingSignals,
    desk: Option<&Desk>,
) -> Result<Outcome, EventLoopError> {
    let parts = &machine.parts;
    let deadlines = Rc::new(Deadlines::default());
    let mut manager: EventManager<Box<dyn MutEventSubscriber + '_>> =
        EventManager::new().map_err(EventLoopError::Wait)?;
    // Dropped on every way out of here, which puts the terminal back.
    let input = keyboard(machine)?;
    watch(&mut manager, Box::new(EndWatch(&parts.end)), parts.end.event())?;
    let console = ConsoleWatch {
        console: &parts.console,
        events: &parts.events,
        deadlines: Rc::clone(&deadlines),
        input: Rc::clone(&input),
    };
    let console = watch(&mut manager, Box::new(console), parts.events.event())?;
    let descriptor = signals.as_raw_fd();
    let operator = Operator { machine, signals, deadlines: Rc::clone(&deadlines), input: Rc::clone(&input) };
    watch(&mut manager, Box::new(operator), &descriptor)?;
    let mut watcher = desk.map(Watcher::new);
    if let Some(desk) = desk {
        watch(&mut manager, Box::new(DeskWatch { desk, machine }), desk.station().event())?;
        deadlines.look.set(Some(Instant::now() + LOOK_EVERY));
    }
    loop {
        if let Some(outcome) = parts.end.take() {
            return Ok(outcome);
        }
        wait(&mut manager, &deadlines)?;
        let now = Instant::now();
        if let Some(watcher) = watcher.as_mut().filter(|_| due(&deadlines.look, now)) {
            watcher.look();
            deadlines.look.set(Some(now + LOOK_EVERY));
        }
        if due(&deadlines.flush, now) && parts.console.flush() == Flushed::Waiting {
            deadlines.flush.set(Some(now + FLUSH_AFTER));
        }
        if due(&deadlines.terminal, now) {
            let mut ops = manager.event_ops(console).map_err(EventLoopError::Wait)?;
            let mut input = input.borrow_mut();
            input.iter_mut().for_each(|input| input.look(&mut ops));
            deadlines.look_for(input.as_ref());
        }
        if due(&deadlines.power_off, now) {
            parts.end.note(Outcome::Stopped(StopCause::Deadline));
        }
    }
}

/// Stdin for the guest's console, if that is asked for; raw if it is a terminal and ours.
fn keyboard(machine: &Assembled) -> Result<Rc<RefCell<Option<Input<'_>>>>, EventLoopError> {
    let input = match machine.machine.serial {
        SerialConfig::Stdio => {
            let terminal = Terminal::on_stdin().map_err(EventLoopError::Terminal)?;
            Some(Input::stdin(terminal, &machine.parts.end).map_err(EventLoopError::Stdin)?)
        }
        SerialConfig::None | SerialConfig::File(_) => None,
    };
    Ok(Rc::new(RefCell::new(input)))
}

/// Adds a subscriber and the descriptor that it is told of. A descriptor that is not watched could leave the loop waiting
/// without an end, so that is an error.
fn watch<'a>(
    manager: &mut EventManager<Box<dyn MutEventSubscriber + 'a>>,
    subscriber: Box<dyn MutEventSubscriber + 'a>,
    descriptor: &impl AsRawFd,
) -> Result<SubscriberId, EventLoopError> {
    let id = manager.add_subscriber(subscriber);
    let mut ops = manager.event_ops(id).map_err(EventLoopError::Wait)?;
    ops.add(Events::new(descriptor, EventSet::IN)).map_err(EventLoopError::Wait)?;
    Ok(id)
}

fn wait(
    manager: &mut EventManager<Box<dyn MutEventSubscriber + '_>>,
    deadlines: &Deadlines,
) -> Result<(), EventLoopError> {
    let milliseconds = match deadlines.next() {
        // Rounded up, so that the deadline has come when the wait ends.
        Some(at) => i32::try_from(at.saturating_duration_since(Instant::now()).as_millis() + 1).unwrap_or(i32::MAX),
        None => -1,
    };
    match manager.run_with_timeout(milliseconds) {
        Ok(_) => Ok(()),
        Err(event_manager::Error::Epoll(error)) if error.errno() == libc::EINTR => Ok(()),
        Err(error) => Err(EventLoopError::Wait(error)),
    }
}

/// Carries out what is asked for through the API.
struct DeskWatch<'a> {
    desk: &'a Desk,
    machine: &'a Assembled,
}

impl MutEventSubscriber for DeskWatch<'_> {
    fn init(&mut self, _: &mut EventOps) {}

    fn process(&mut self, _: Events, _: &mut EventOps) {
        self.desk.serve(self.machine);
    }
}

/// Wakes the loop when the end is noted.
struct EndWatch<'a>(&'a Arc<EndNote>);

impl MutEventSubscriber for EndWatch<'_> {
    fn init(&mut self, _: &mut EventOps) {}

    fn process(&mut self, _: Events, _: &mut EventOps) {
        // Only to be heard of; the loop looks at the note itself.
        let _ = self.0.event().read();
    }
}

/// Watches the console: takes note of what it has to tell, feeds it what is typed.
struct ConsoleWatch<'a> {
    console: &'a Arc<Console>,
    events: &'a Arc<ConsoleEvents>,
    deadlines: Rc<Deadlines>,
    input: Rc<RefCell<Option<Input<'a>>>>,
}

impl MutEventSubscriber for ConsoleWatch<'_> {
    fn init(&mut self, ops: &mut EventOps) {
        let mut input = self.input.borrow_mut();
        if let Some(input) = input.as_mut() {
            input.begin(self.console, ops);
        }
        self.deadlines.look_for(input.as_ref());
    }

    fn process(&mut self, events: Events, ops: &mut EventOps) {
        let mut input = self.input.borrow_mut();
        if events.fd() == self.events.event().as_raw_fd() {
            let _ = self.events.event().read();
            if self.events.take_flush_due() && self.deadlines.flush.get().is_none() {
                self.deadlines.flush.set(Some(Instant::now() + FLUSH_AFTER));
            }
            if let Some(input) = input.as_mut().filter(|_| self.events.take_room()) {
                input.make_use_of_room(self.console, ops);
            }
        } else if let Some(input) = input.as_mut() {
            input.pump(self.console, ops);
        }
        self.deadlines.look_for(input.as_ref());
    }
}

/// Signals and what they ask for.
struct Operator<'a> {
    machine: &'a Assembled,
    signals: &'a mut EndingSignals,
    deadlines: Rc<Deadlines>,
    input: Rc<RefCell<Option<Input<'a>>>>,
}

impl MutEventSubscriber for Operator<'_> {
    fn init(&mut self, _: &mut EventOps) {}

    fn process(&mut self, _: Events, _: &mut EventOps) {
        match self.signals.take() {
            Ok(Some(SignalRequest::Stop)) => self.stop(StopCause::Immediate),
            Ok(Some(SignalRequest::PowerOff)) => self.press_power_button(),
            Ok(Some(SignalRequest::Suspend)) => self.suspend(),
            Ok(Some(SignalRequest::GoOn)) => self.go_on(),
            Ok(None) | Err(_) => {}
        }
    }
}

impl Operator<'_> {
    fn stop(&self, cause: StopCause) {
        self.machine.parts.end.note(Outcome::Stopped(cause));
    }

    fn suspend(&self) {
        self.input.borrow_mut().iter_mut().for_each(Input::suspend);
        // Where it cannot stand still the guest goes on, and so does the keyboard.
        let _ = signals::stand_still();
        self.go_on();
    }

    /// The terminal may be another's now, or have other settings; the loop, which watches it, takes a look.
    fn go_on(&self) {
        self.input.borrow_mut().iter_mut().for_each(Input::go_on);
        self.deadlines.terminal.set(Some(Instant::now()));
    }

    /// Presses the button once; a second SIGTERM does not wait any longer.
    fn press_power_button(&self) {
        let listens = self.machine.vm.interrupt_unmasked(layout::EVENT_GSI).unwrap_or(true);
        if !listens {
            self.stop(StopCause::NobodyListens);
        } else if self.deadlines.power_off.get().is_some() {
            self.stop(StopCause::Immediate);
        } else {
            self.machine.parts.power.press_power_button();
            self.deadlines.power_off.set(Some(Instant::now() + POWER_OFF_LIMIT));
        }
    }
}
