// SPDX-License-Identifier: Apache-2.0
//! Experiments from outside: cells are kept, ends in between cost one cell, a guest that hangs fails alone, and nothing is
//! left of any of them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity};
use serde_json::Value;

use crate::monitor::{Ended, Monitor, Started, program};
use crate::{Missing, kvm, nothing, trial};

/// A guest is up within a second on a quiet machine; a busy host makes that longer.
const PROMPT: Duration = Duration::from_secs(60);

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_plan_is_run_and_reported", kvm, run_and_report),
        trial("an_experiment_shows_its_schedule_and_starts_nothing", nothing, dry_run),
        trial("the_plans_that_come_with_it_show_their_schedules", two_cpus, plans_that_come_with_it),
        trial("an_interrupted_experiment_goes_on_where_it_was", kvm, interrupted),
        trial("a_guest_that_hangs_or_dies_fails_its_cell_alone", kvm, hanging),
        trial("a_guest_that_stops_for_good_fails_its_cell_alone", kvm, stopped),
        trial("the_guests_of_a_killed_experiment_go_with_it_and_it_can_be_gone_on_with", kvm, killed),
        trial("an_experiment_goes_on_with_its_own_machines_only", kvm, changed_machine),
        trial("a_second_experiment_is_told_who_runs", kvm, two_at_once),
        trial("a_plan_that_cannot_be_is_refused_before_anything_starts", nothing, refused),
    ]
}

/// A plan with one guest a cell on the first host CPU, written as `plan.toml` where the monitor will run.
fn plan(window_ms: u32, repetitions: u32, rest: &str) -> String {
    format!(
        "name = \"test\"\nrepetitions = {repetitions}\nwindow_ms = {window_ms}\nwarm_up = 0\n{rest}\n[guests]\n\
         memory_mib = 32\ncpus = \"0\"\n"
    )
}

const RING: &str = "overcommit = [2]\nworkloads = [\"ring\"]\narms = [\"off\", \"act\"]";

/// `vmm experiment ARGS` with a registry of its own, where `text` is plan.toml.
fn experiment(arguments: &[&str], text: &str) -> Monitor {
    let mut command = Command::new(program());
    command.arg("experiment").args(arguments);
    let monitor = Monitor::of(command);
    let claims = monitor.directory().join("claims");
    fs::write(monitor.directory().join("plan.toml"), text).unwrap();
    monitor.env("VMM_CLAIMS_DIR", &claims)
}

fn cells(run: &Path) -> Vec<Value> {
    let Ok(entries) = fs::read_dir(run.join("cells")) else { return Vec::new() };
    let names = entries.map(|entry| entry.unwrap().path());
    let mut names: Vec<_> = names.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
    names.sort();
    names.iter().map(|path| serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()).collect()
}

/// Processes that name something below `directory`, with their command lines: guests of an experiment there.
fn guests(directory: &Path) -> Vec<(Pid, String)> {
    let below = format!("{}", directory.join("run").display());
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes
        .filter_map(|process| process.file_name().to_string_lossy().parse().ok().and_then(Pid::from_raw))
        .filter_map(|pid| fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).ok().map(|line| (pid, line)))
        .map(|(pid, line)| (pid, String::from_utf8_lossy(&line).replace('\0', " ")))
        .filter(|(_, line)| line.contains("--config") && line.contains(&below))
        .collect()
}

/// What an experiment that ended must not leave: guests, claims of host CPUs, half-written files.
fn left_behind(directory: &Path) -> Vec<String> {
    let mut left: Vec<String> = guests(directory).into_iter().map(|(_, line)| line).collect();
    for (below, is_left) in [("claims", ".claim"), ("run", "."), ("run/cells", "."), ("run/machines", ".")] {
        let Ok(entries) = fs::read_dir(directory.join(below)) else { continue };
        let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
        left.extend(names.filter(|name| name.ends_with(is_left) || (is_left == "." && name.starts_with('.'))));
    }
    left
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PROMPT, "not within {PROMPT:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Runs plan.toml into the directory `run`, named by its whole path, so that guests can be told by it.
fn run(text: &str) -> Started {
    let monitor = experiment(&["run", "plan.toml", "--out"], text);
    let run = monitor.directory().join("run");
    monitor.argument(run).start()
}

fn files_of(ended: &Ended, name: &str) -> String {
    fs::read_to_string(ended.directory.path().join("run").join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn run_and_report() {
    let look = "count = 2\n[look]\nworkload = \"ring\"\novercommit = 2\narm = \"act\"\n";
    let ended = run(&(plan(100, 2, RING) + look)).wait().expect(0);
    let all = cells(&ended.directory.path().join("run"));
    assert_eq!(all.len(), 4, "{}", ended.errors);
    for cell in &all {
        let samples = cell["outcome"]["measured"].as_array().unwrap_or_else(|| panic!("{cell}"));
        assert_eq!(samples.len(), 2);
        for guest in samples {
            assert!(
                guest["operations"].as_u64().unwrap() > 0 && guest["vcpus"].as_array().unwrap().len() == 1,
                "{guest}"
            );
        }
    }
    let report: Value = serde_json::from_str(&files_of(&ended, "report.json")).unwrap();
    assert_eq!(report["groups"][0]["rows"][0]["throughput"]["n"], 2);
    assert!(ended.output.contains("# test") && ended.output.contains("| 2x (2 of 1) | act | 2 |"), "{}", ended.output);
    assert_eq!(files_of(&ended, "samples.csv").lines().count(), 9);
    let page = files_of(&ended, "report.html");
    assert!(page.contains("A close look: ring 2x act") && page.contains("who acted for whom"));
    assert_eq!(left_behind(ended.directory.path()), [""; 0]);
    // Each machine can be run by hand: the line that it waits for is a key away.
    let config = files_of(&ended, "machines/ring-2x-act.toml");
    assert!(config.contains("wait=line"), "{config}");
}

fn dry_run() {
    let ended = experiment(&["run", "plan.toml", "--dry-run"], &(plan(940, 3, RING) + "count = 1\n")).run().expect(0);
    assert!(ended.output.contains("6 cells on host CPUs 0, 0:06 at about 1000 ms each"), "{}", ended.output);
    assert_eq!(ended.output.matches("ring 2x act #").count(), 3, "{}", ended.output);
    assert_eq!(ended.files(), ["plan.toml"]);
}

/// Two host CPUs of this process, as taskset(1) wants them; plans of the tree are written for two or more.
fn first_two_cpus() -> Option<String> {
    let allowed = sched_getaffinity(None).unwrap();
    let cpus: Vec<String> =
        (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).take(2).map(|cpu| cpu.to_string()).collect();
    (cpus.len() == 2).then(|| cpus.join(","))
}

fn two_cpus() -> Missing {
    first_two_cpus().is_none().then(|| "this process may use one host CPU only".to_owned())
}

fn plans_that_come_with_it() {
    let cpus = first_two_cpus().unwrap();
    for (name, cells) in
        [("quickstart", 512), ("pause-modes", 512), ("several-guests", 384), ("policy", 288), ("placement", 288)]
    {
        let plan = format!("{}/../resources/plans/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new("taskset");
        command.args(["-c", &cpus]).arg(program()).args(["experiment", "run", &plan, "--dry-run"]);
        let ended = Monitor::of(command).run().expect(0);
        let first = ended.output.lines().next().unwrap();
        assert!(first.starts_with(&format!("{name}: {cells} cells on host CPUs ")), "{first}");
        assert_eq!(ended.output.lines().filter(|line| line.contains(" #")).count(), cells, "{name}");
        let minutes: u32 = first.rsplit_once(", ").unwrap().1.split_once(':').unwrap().0.parse().unwrap();
        assert!(name != "quickstart" || minutes < 2, "{first}");
    }
}

fn interrupted() {
    let started = run(&(plan(800, 3, RING) + "count = 1\n"));
    let directory = started.directory().to_owned();
    wait_until("the first cell", || !cells(&directory.join("run")).is_empty());
    started.signal(Signal::INT);
    let ended = started.wait().expect(1);
    let done = cells(&directory.join("run")).len();
    assert!((1..6).contains(&done), "{done} cells");
    assert!(ended.errors.contains(&format!("interrupted after {done} of 6 cells")), "{}", ended.errors);
    assert!(guests(&directory).is_empty());
    resume(&directory).expect(0);
    let numbers: Vec<u64> =
        cells(&directory.join("run")).iter().map(|cell| cell["cell"]["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
}

fn hanging() {
    let workloads =
        "time_limit_s = 10\novercommit = [1]\nworkloads = [\"hang\", \"panic\", \"ring\"]\narms = [\"off\"]";
    let tables = "count = 1\n[[workload]]\nname = \"hang\"\nprobe = \"hang\"\n[[workload]]\nname = \"panic\"\nprobe = \"panic\"\n";
    let ended = run(&(plan(200, 1, workloads) + tables)).wait().expect(0);
    let of = |name: &str| {
        let all = cells(&ended.directory.path().join("run"));
        all.into_iter().find(|cell| cell["name"].as_str().unwrap().starts_with(name)).unwrap()["outcome"].clone()
    };
    let hang = of("hang")["failed"].to_string();
    assert!(hang.contains("guest 0 did not bring its result within the time limit"), "{hang}");
    let panic = of("panic")["failed"].to_string();
    assert!(panic.contains("guest 0 ended and did not bring its result; its monitor said: "), "{panic}");
    assert!(of("ring")["measured"][0]["operations"].is_u64());
    assert!(ended.errors.contains("2 of 3 cells brought no number"), "{}", ended.errors);
    assert!(ended.output.contains("- hang 1x off #1: guest 0"), "{}", ended.output);
    assert_eq!(left_behind(ended.directory.path()), [""; 0]);
}

/// One guest is stopped as soon as it is there, so it never comes to the barrier, or never from there.
fn stopped() {
    let started = run(&(plan(1000, 1, &format!("time_limit_s = 8\n{RING}")) + "count = 2\n"));
    let directory = started.directory().to_owned();
    let mut stopped = None;
    wait_until("a guest", || {
        stopped = guests(&directory).first().map(|(pid, _)| *pid);
        stopped.is_some()
    });
    kill_process(stopped.unwrap(), Signal::STOP).unwrap();
    let ended = started.wait().expect(0);
    let all = cells(&directory.join("run"));
    let failed = all[0]["outcome"]["failed"].as_str().unwrap_or_else(|| panic!("{}", all[0]));
    assert!(failed.starts_with("guest ") && failed.ends_with(" within the time limit, and was ended"), "{failed}");
    assert!(all[1]["outcome"]["measured"][1]["operations"].is_u64(), "{}", all[1]);
    assert!(ended.errors.contains("1 of 2 cells brought no number"), "{}", ended.errors);
    assert_eq!(left_behind(&directory), [""; 0]);
}

fn killed() {
    let started = run(&(plan(600, 3, RING) + "count = 2\n"));
    let directory = started.directory().to_owned();
    wait_until("a cell, and two guests", || !cells(&directory.join("run")).is_empty() && guests(&directory).len() == 2);
    started.signal(Signal::KILL);
    wait_until("no guest", || guests(&directory).is_empty());
    let _ended = started.wait();
    let before = cells(&directory.join("run"));
    resume(&directory).expect(0);
    let after = cells(&directory.join("run"));
    assert_eq!(after.len(), 6);
    assert_eq!(after[..before.len()], before, "what was measured before is as it was");
    assert!(after.iter().all(|cell| cell["outcome"]["measured"].is_array()), "{after:?}");
    let info: Value = serde_json::from_str(&fs::read_to_string(directory.join("run/run.json")).unwrap()).unwrap();
    assert_eq!(info["resumed"][0]["done"].as_u64(), Some(before.len() as u64), "{info}");
    assert_eq!(left_behind(&directory), [""; 0]);
}

/// `vmm experiment resume` of the run in a directory.
fn resume(directory: &Path) -> Ended {
    let mut command = Command::new(program());
    command.args(["experiment", "resume"]).arg(directory.join("run"));
    Monitor::of(command).env("VMM_CLAIMS_DIR", &directory.join("claims")).run()
}

fn changed_machine() {
    let started = run(&(plan(300, 3, RING) + "count = 1\n"));
    let directory = started.directory().to_owned();
    wait_until("the first cell", || !cells(&directory.join("run")).is_empty());
    started.signal(Signal::TERM);
    let _ended = started.wait().expect(1);
    let done = cells(&directory.join("run")).len();
    let machine = directory.join("run/machines/ring-2x-act.toml");
    let text = fs::read_to_string(&machine).unwrap();
    fs::write(&machine, text.replace("32M", "64M")).unwrap();
    let refused = resume(&directory).expect(1);
    assert!(refused.errors.contains("ring-2x-act.toml: is not the machine of the plan"), "{}", refused.errors);
    assert_eq!(cells(&directory.join("run")).len(), done);
    fs::remove_file(&machine).unwrap();
    resume(&directory).expect(0);
    assert_eq!(fs::read_to_string(&machine).unwrap(), text);
}

fn two_at_once() {
    let started = run(&(plan(60_000, 1, RING) + "count = 1\n"));
    let directory = started.directory().to_owned();
    wait_until("a guest", || !guests(&directory).is_empty());
    let second = experiment(&["run", "plan.toml", "--out", "second"], &(plan(100, 1, RING) + "count = 1\n"));
    let second = second.env("VMM_CLAIMS_DIR", &directory.join("claims")).run().expect(1);
    let who = format!("another experiment runs on this host: process {}, plan test", started.pid().as_raw_nonzero());
    assert!(second.errors.contains(&who), "{}", second.errors);
    assert!(!second.directory.path().join("second").exists());
    started.signal(Signal::TERM);
    started.wait().expect(1);
    assert!(guests(&directory).is_empty());
}

fn refused() {
    for (rest, part) in [
        (RING.replace("[2]", "[1.5]"), "line 5: overcommit: 1.5x of 1 host CPUs is no whole number"),
        (RING.replace("\"act\"", "\"atc\""), "line 7: arms: there is no arm `atc`, did you mean `act`?"),
        (RING.replace("\"ring\"", "\"rnig\""), "line 6: workloads: there is no workload `rnig`, did you mean `ring`?"),
        (RING.replace("[2]", "[0]"), "line 5: overcommit: 0 is outside 0.1 to 64"),
        (RING.replace("[2]", "[]"), "line 5: overcommit: is empty"),
        (RING.replace("[2]", "[2, 2.0]"), "line 5: overcommit: `2x` is named twice"),
        (RING.replace("\"act\"", "\"off\""), "line 7: arms: `off` is named twice"),
        (RING.to_owned() + "\nbaseline = \"park\"", "line 8: baseline: there is no arm `park`"),
        (
            RING.to_owned() + "\nrepetition = 3",
            "line 8: repetition: there is no key `repetition`, did you mean `repetitions`?",
        ),
        (RING.replace("[2]", "[64]"), "are available; lower memory_mib or the ratio"),
    ] {
        let text = plan(100, 1, &rest).replace("memory_mib = 32", "memory_mib = 1048576") + "vcpus = 1\n";
        assert_refused(&text, part);
    }
    for (window_ms, repetitions, part) in [
        (100, 0, "line 2: repetitions: 0 is outside 1 to 1000"),
        (0, 1, "line 3: window_ms: 0 is outside 10 to 300000"),
    ] {
        assert_refused(&(plan(window_ms, repetitions, RING) + "count = 1\n"), part);
    }
    assert_refused(&(plan(100, 1, RING) + "count = 3\n"), "2 vCPUs, which 3 guests do not divide evenly");
    assert_refused("", "missing field");
}

#[track_caller]
fn assert_refused(text: &str, part: &str) {
    let ended = experiment(&["run", "plan.toml"], text).run().expect(2);
    assert!(ended.errors.contains(part), "{part}: {}", ended.errors);
    assert_eq!(ended.files(), ["plan.toml"]);
}
