// SPDX-License-Identifier: Apache-2.0
//! `vmm top` at a pseudo-terminal: what it shows, its keys, and that the terminal is given back.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use libtest_mimic::Trial;
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::machine::{Machine, eventually};
use crate::monitor::program;
use crate::trial;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("top_shows_the_vcpus_and_its_keys_sort_filter_and_pause", keys),
        trial("top_gives_the_terminal_back_when_it_is_ended", ended),
        trial("top_goes_on_when_the_machine_is_gone_and_says_so", gone),
        trial("top_prints_looks_without_a_terminal", batch),
    ]
}

/// `vmm top` at a terminal of 30 lines and 110 columns.
struct Top {
    child: Child,
    person: File,
    program: File,
    shown: Arc<Mutex<String>>,
}

impl Top {
    fn start(machine: &Machine) -> Self {
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&person).unwrap();
        unlockpt(&person).unwrap();
        let path = ptsname(&person, Vec::new()).unwrap().into_string().unwrap();
        let program_side = OpenOptions::new().read(true).write(true).open(path).unwrap();
        tcsetwinsize(&program_side, Winsize { ws_row: 30, ws_col: 110, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let mut command = Command::new(program());
        command.args(["top", "--interval=0.1", "--api-sock"]).arg(&machine.socket);
        command
            .stdin(program_side.try_clone().unwrap())
            .stdout(program_side.try_clone().unwrap())
            .stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let (person, shown) = (File::from(person), Arc::new(Mutex::new(String::new())));
        let (mut screen, seen) = (person.try_clone().unwrap(), Arc::clone(&shown));
        thread::spawn(move || {
            let mut piece = [0; 4096];
            // Reading a terminal whose other side is closed ends in an error (EIO).
            while let Ok(read @ 1..) = screen.read(&mut piece) {
                seen.lock().unwrap().push_str(&String::from_utf8_lossy(&piece[..read]));
            }
        });
        Self { child, person, program: program_side, shown }
    }

    /// Types, and waits until what is shown from then on has all these texts in one page.
    #[track_caller]
    fn type_and_see(&mut self, keys: &str, expected: &[&str]) {
        self.shown.lock().unwrap().clear();
        self.person.write_all(keys.as_bytes()).unwrap();
        eventually(&format!("{expected:?} behind {keys:?}"), || {
            let shown = self.shown.lock().unwrap();
            shown.split("\x1b[H").any(|page| expected.iter().all(|text| page.contains(text))).then_some(())
        });
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.program).unwrap().local_modes.intersects(LocalModes::ICANON | LocalModes::ECHO)
    }

    #[track_caller]
    fn assert_given_back(&mut self) {
        let status = self.child.wait().unwrap();
        assert_eq!(status.code(), Some(0));
        assert!(!self.is_raw());
        eventually("the first screen", || self.shown.lock().unwrap().ends_with("\x1b[?25h\x1b[?1049l").then_some(()));
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        // It has ended unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn keys() {
    let machine = Machine::running(3, "ring", &[]);
    let mut top = Top::start(&machine);
    top.type_and_see("", &["3 vCPUs", "pause act by auto", "3 of 3 vCPUs, sorted by index", "EVENTS/s", "q quit"]);
    assert!(top.is_raw());
    top.type_and_see("ss", &["sorted by guest"]);
    top.type_and_see("r", &["sorted by guest, reversed"]);
    top.type_and_see("/1\r", &["1 of 3 vCPUs", "filter: 1\x1b"]);
    top.type_and_see("\x1b", &["3 of 3 vCPUs"]);
    top.type_and_see("p", &["PAUSED"]);
    top.type_and_see("p", &["3 of 3 vCPUs, sorted by guest, reversed\x1b"]);
    machine.state("paused");
    top.type_and_see("", &[": paused"]);
    top.type_and_see("q", &[]);
    top.assert_given_back();
    machine.stop();
}

fn ended() {
    let machine = Machine::running(1, "idle", &[]);
    for signal in [Signal::TERM, Signal::HUP] {
        let mut top = Top::start(&machine);
        top.type_and_see("", &["1 of 1 vCPUs"]);
        rustix::process::kill_process(rustix::process::Pid::from_child(&top.child), signal).unwrap();
        top.assert_given_back();
    }
    let mut top = Top::start(&machine);
    top.type_and_see("", &["1 of 1 vCPUs"]);
    top.type_and_see("\x03", &[]);
    top.assert_given_back();
    machine.stop();
}

fn gone() {
    let machine = Machine::running(1, "idle", &[]);
    let mut top = Top::start(&machine);
    top.type_and_see("", &["1 of 1 vCPUs"]);
    machine.stop();
    top.type_and_see("", &["cannot be reached"]);
    top.type_and_see("q", &[]);
    top.assert_given_back();
}

fn batch() {
    let machine = Machine::running(2, "spin", &[]);
    let top = |more: &[&str]| {
        let mut command = Command::new(program());
        command.args(["top", "--interval=0.1", "--api-sock"]).arg(&machine.socket).args(more);
        command.stdin(Stdio::null()).output().unwrap()
    };
    let output = top(&["--batch=2"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!((output.status.code(), text.matches("2 of 2 vCPUs").count()), (Some(0), 2), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
    assert!(text.contains("o other\n") && !text.contains("q quit"), "{text}");
    let without = top(&[]);
    assert_eq!(without.status.code(), Some(2), "no terminal and no --batch");
    machine.stop();
}
