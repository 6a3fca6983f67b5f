// SPDX-License-Identifier: Apache-2.0
//! The monitor at a terminal: keys reach the guest one by one, Ctrl-A x ends it, and the terminal is afterwards what it
//! was before, whatever way the run ended.

use std::env;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::mem;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{ControlModes, InputModes, LocalModes, OutputModes, Termios, tcgetattr};
use vmm::host::terminal::RawTerminal;

use crate::monitor::{Ended, Monitor, Started};
use crate::{kvm, nothing, trial};

/// Far more than it takes to become raw.
const LIMIT: Duration = Duration::from_secs(60);

/// Asks this test, started anew, to panic while its terminal is raw.
const PANIC: &str = "VMM_TESTS_PANIC_WHILE_RAW";

/// One test for each way out.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("terminal_after_the_guest_powers_off", kvm, || way_out("echo", b"hi\rquit\r", None, 0)),
        trial("terminal_after_a_guest_reset", kvm, || way_out("reset", b"", None, 32)),
        trial("terminal_after_a_triple_fault", kvm, || way_out("triple-fault", b"", None, 33)),
        trial("terminal_after_ctrl_a_x", kvm, || way_out("spin seconds=300", b"\x01x", None, 0)),
        trial("terminal_after_ctrl_a_x_behind_keys_that_nobody_reads", kvm, || {
            way_out("hang", &[&[b'a'; 400][..], b"\x01x"].concat(), None, 0);
        }),
        trial("terminal_after_sigterm", kvm, || way_out("spin seconds=300", b"", Some(Signal::TERM), 0)),
        trial("terminal_after_sigint", kvm, || way_out("spin seconds=300", b"", Some(Signal::INT), 0)),
        trial("terminal_after_the_output_is_lost", kvm, output_lost),
        trial("terminal_after_a_panic", nothing, panicking),
        trial("a_terminal_that_shows_nothing_more_does_not_hold_up_the_end", kvm, still_screen),
        trial("terminal_is_raw_while_the_guest_runs", kvm, raw_meanwhile),
    ]
}

/// A pseudo-terminal: the person's side and the program's.
pub(crate) struct Terminal {
    /// Where keys are pressed and the screen is seen.
    pub(crate) person: File,
    /// What the program has for stdin.
    pub(crate) program: File,
    /// The settings it had at first.
    pub(crate) before: Termios,
}

type Modes = (InputModes, OutputModes, ControlModes, LocalModes);

fn modes(all: &Termios) -> Modes {
    (all.input_modes, all.output_modes, all.control_modes, all.local_modes)
}

impl Terminal {
    pub(crate) fn new() -> Self {
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&person).unwrap();
        unlockpt(&person).unwrap();
        let path = ptsname(&person, Vec::new()).unwrap().into_string().unwrap();
        let program = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let before = tcgetattr(&program).unwrap();
        Self { person: person.into(), program, before }
    }

    /// The settings it has.
    pub(crate) fn now(&self) -> Termios {
        tcgetattr(&self.program).unwrap()
    }

    /// The modes among them.
    pub(crate) fn modes(&self) -> Modes {
        modes(&self.now())
    }

    pub(crate) fn is_raw(&self) -> bool {
        let modes = self.now().local_modes;
        !modes.intersects(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    pub(crate) fn wait_until_raw(&self) {
        let deadline = Instant::now() + LIMIT;
        while !self.is_raw() {
            assert!(Instant::now() < deadline, "the terminal does not become raw");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[track_caller]
    pub(crate) fn assert_as_before(&self) {
        assert_eq!(self.modes(), modes(&self.before));
    }

    fn start(&self, workload: &str) -> Started {
        let monitor = Monitor::new(["--probe", &format!("{workload} report=none")]);
        monitor.stdin(self.program.try_clone().unwrap()).start()
    }
}

fn way_out(workload: &str, keys: &[u8], signal: Option<Signal>, status: i32) {
    let mut terminal = Terminal::new();
    let started = terminal.start(workload);
    // A guest that ends by itself may be gone before anyone looks.
    if !keys.is_empty() || signal.is_some() {
        terminal.wait_until_raw();
        terminal.person.write_all(keys).unwrap();
    }
    if let Some(signal) = signal {
        started.signal(signal);
    }
    let ended: Ended = started.wait().expect(status);
    terminal.assert_as_before();
    if workload == "echo" {
        assert!(ended.output.contains("hi"), "{}", ended.output);
    }
}

fn output_lost() {
    let terminal = Terminal::new();
    let monitor = Monitor::new(["--probe", "report"]).stdin(terminal.program.try_clone().unwrap());
    monitor.stdout(crate::monitor::broken_pipe()).run().expect(1);
    terminal.assert_as_before();
}

/// More output than a terminal holds that nobody looks at: it says that it takes some, and a write of more would block.
fn still_screen() {
    let terminal = Terminal::new();
    let monitor = Monitor::new(["--cpus=128", "--probe", "report"]).stdin(terminal.program.try_clone().unwrap());
    let started = monitor.stdout(terminal.program.try_clone().unwrap()).start();
    let deadline = Instant::now() + LIMIT;
    let (mut shown, mut since) = (0, Instant::now());
    while shown == 0 || since.elapsed() < Duration::from_secs(1) {
        assert!(Instant::now() < deadline, "the output does not stand still");
        let now = rustix::io::ioctl_fionread(&terminal.person).unwrap();
        if now != shown {
            (shown, since) = (now, Instant::now());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    started.signal(Signal::TERM);
    // Nobody looks at the screen: waiting for a write would have no end.
    started.wait().expect(0);
    terminal.assert_as_before();
}

fn raw_meanwhile() {
    let mut terminal = Terminal::new();
    let started = terminal.start("spin seconds=300");
    terminal.wait_until_raw();
    // Ctrl-C belongs to the guest: as a signal it would go nowhere here, as an echo it would come back.
    terminal.person.write_all(b"\x03").unwrap();
    terminal.person.write_all(b"\x01x").unwrap();
    started.wait().expect(0);
    terminal.assert_as_before();
    let Terminal { mut person, program, .. } = terminal;
    drop(program);
    let mut echoed = Vec::new();
    // Reading a terminal whose other side is closed ends in an error (EIO).
    let _ = person.read_to_end(&mut echoed);
    assert_eq!(echoed, b"", "keys were echoed");
}

fn panicking() {
    let terminal = Terminal::new();
    let status = Command::new(env::current_exe().unwrap())
        .env(PANIC, "1")
        .stdin(terminal.program.try_clone().unwrap())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(101), "it ends by a panic");
    terminal.assert_as_before();
}

/// Whether this process was started by [`panicking`].
pub(crate) fn is_the_panicking_child() -> bool {
    env::var_os(PANIC).is_some()
}

/// Panics while the terminal is raw, and as the monitor does: without a destructor that runs.
pub(crate) fn panic_while_raw() -> ! {
    let raw = RawTerminal::enter().unwrap().expect("stdin is a terminal");
    let modes = tcgetattr(rustix::stdio::stdin()).unwrap().local_modes;
    if modes.contains(LocalModes::ICANON) {
        std::process::exit(3);
    }
    mem::forget(raw);
    panic!("as asked for");
}
