// SPDX-License-Identifier: Apache-2.0
//! Pause loops from outside: what each mode does, what is refused, and that nothing a guest or a signal does makes a
//! park, a hold or a look last for ever.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use rustix::process::Signal;
use vmm::report::Report;

use crate::images::{Field, Image};
use crate::monitor::{self, Ended, Monitor};
use crate::{Missing, kvm, nothing, trial};

/// A park, a hold and an answer are bounded by a second at most; a busy host makes that longer.
const PROMPT: Duration = Duration::from_secs(30);

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("off_announces_no_port_and_act_acts_on_it", kvm, off_and_act),
        trial("observe_decides_and_does_nothing", kvm, observe),
        trial("a_decision_log_replays_bit_for_bit_and_a_damaged_one_is_refused", kvm, decision_log),
        trial("a_fixed_mechanism_has_no_decisions_to_log", nothing, fixed_has_no_log),
        trial("holds_fall_on_the_chosen_vcpus_only", kvm, injection),
        trial("the_sampler_finds_a_spinning_guest_that_tells_nothing", kvm, sampler),
        trial("parked_vcpus_stop_at_once", kvm, parked_stop),
        trial("garbage_written_to_the_port_at_full_speed_is_only_a_hint", kvm, garbage),
        trial("a_storm_of_signals_is_weathered", kvm, storm),
        trial("a_limit_on_descriptors_is_named_or_borne", kvm, descriptors),
        trial("what_software_virtualised_kvm_lacks_is_refused_by_name", software_kvm, refusals),
        trial("wrong_parameters_are_named", nothing, parameters),
    ]
}

pub(crate) fn software_kvm() -> Missing {
    let hardware = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flag = ["vmx", "svm"].into_iter().find(|flag| hardware.split_ascii_whitespace().any(|word| word == *flag));
    kvm().or_else(|| flag.map(|flag| format!("this KVM uses hardware ({flag})")))
}

fn run(cpus: &str, probe: &str, flags: &[&str]) -> (Ended, Report) {
    let fixed = ["--serial", "none", "--report", "run.json", "--placement", "pin=0", "--cpus", cpus, "--probe", probe];
    let ended = Monitor::new(fixed.iter().chain(flags)).run().expect(0);
    let text = fs::read_to_string(ended.directory.path().join("run.json")).unwrap();
    (ended, serde_json::from_str(&text).unwrap())
}

fn sum(report: &Report, of: impl Fn(&vmm::report::PauseReport) -> u64) -> u64 {
    report.vcpus.iter().map(|vcpu| of(&vcpu.pause)).sum()
}

fn off_and_act() {
    let (_, off) = run("4", "ring seconds=1", &["--pause", "off"]);
    let unhandled = off.workload.clone().unwrap();
    assert_eq!((sum(&off, |pause| pause.events), unhandled.port_writes), (0, 0));
    let (ended, act) = run("4", "ring seconds=1", &[]);
    let workload = act.workload.clone().unwrap();
    let events = sum(&act, |pause| pause.events);
    assert_eq!(events, workload.port_writes, "every write is an event");
    assert!(sum(&act, |pause| pause.yields.boosted) > 0, "{}", ended.errors);
    assert!(ended.errors.contains("source port: yes"), "{}", ended.errors);
}

fn observe() {
    let (_, report) = run("2", "ring seconds=0.5", &["--pause", "observe"]);
    assert!(sum(&report, |pause| pause.events) > 0);
    assert_eq!(sum(&report, |pause| pause.yields.attempted + pause.parks), 0);
}

fn decision_log() {
    let (ended, report) = run("4", "ring seconds=0.5", &["--decision-log", "decisions.log"]);
    let log = ended.directory.path().join("decisions.log");
    let path = log.to_str().unwrap();
    let replayed = Monitor::new(["replay", path]).run().expect(0);
    let decisions = sum(&report, |pause| pause.events - pause.quiet);
    assert!(decisions > 0);
    assert_eq!(replayed.output, format!("{decisions} decisions, all the same\n"));
    let mut bytes = fs::read(&log).unwrap();
    bytes.truncate(bytes.len() - 1);
    fs::write(&log, bytes).unwrap();
    let refused = Monitor::new(["replay", path]).run().expect(1);
    assert!(refused.errors.contains("ends inside a record"), "{}", refused.errors);
}

fn fixed_has_no_log() {
    for flags in [["--pause-mechanism", "park"], ["--pause", "off"]] {
        let refused = Monitor::new(flags.iter().chain(&["--decision-log", "x.log", "--check"])).run().expect(2);
        assert!(refused.errors.contains("--decision-log"), "{}", refused.errors);
    }
}

fn injection() {
    let flags = ["--inject-preemption", "seed=7,mean=5ms,hold=2ms,vcpus=[1]"];
    let (_, report) = run("2", "spin seconds=1", &flags);
    let holds: Vec<u64> = report.vcpus.iter().map(|vcpu| vcpu.pause.holds).collect();
    // How many there are depends on how much of the CPU the guest gets; the end of the run may cut the last one short.
    assert!(holds[0] == 0 && holds[1] >= 2, "{holds:?}");
    assert!(report.vcpus[1].pause.held_ns >= (holds[1] - 1) * 2_000_000, "{}", report.vcpus[1].pause.held_ns);
}

fn sampler() {
    let (ended, report) = run("2", "ring seconds=1 port=off", &["--pause-source", "sampler"]);
    assert!(sum(&report, |pause| pause.events) > 0, "{}", ended.errors);
}

fn parked_stop() {
    let second = "1000000000";
    let bounds = [format!("park_max_ns={second}"), format!("park_named_ns={second}")];
    let started = Monitor::new([
        "--cpus",
        "8",
        "--serial",
        "none",
        "--pause-mechanism",
        "park",
        "--pause-set",
        &bounds[0],
        "--pause-set",
        &bounds[1],
        "--probe",
        "ring seconds=300",
    ])
    .start();
    started.wait_for_vcpus(8);
    thread::sleep(Duration::from_millis(500));
    let asked = Instant::now();
    started.signal(Signal::INT);
    started.wait().expect(0);
    assert!(asked.elapsed() < PROMPT, "{:?}", asked.elapsed());
}

/// Writes to both ports, another value each time, for ever.
const GARBAGE: [u8; 20] = [
    0x66, 0xBA, 0x10, 0x06, // mov dx, 0x610
    0xEF, // l: out dx, eax
    0x05, 0xB9, 0x79, 0x37, 0x9E, // add eax, 0x9E3779B9
    0x89, 0xC1, // mov ecx, eax
    0x66, 0x83, 0xF2, 0x04, // xor dx, 4
    0xEB, 0xF2, // jmp l
    0x90, 0x90,
];

fn garbage() {
    let image = Image::new();
    // The second loadable segment, overwritten from its start, and entered there; the first holds the headers.
    let (offset, address) = (image.value(1, Field::Offset), image.value(1, Field::PhysicalAddress));
    let image = image.with(usize::try_from(offset).unwrap(), &GARBAGE).entry(u32::try_from(address).unwrap());
    let flags =
        ["--cpus", "4", "--serial", "none", "--placement", "pin=0", "--report", "run.json", "--kernel", "garbage"];
    let started = Monitor::new(flags);
    fs::write(started.directory().join("garbage"), image.bytes()).unwrap();
    let started = started.start();
    started.wait_for_vcpus(4);
    thread::sleep(Duration::from_secs(1));
    // Another machine on the same CPU, one that spins and yields itself, comes to its end as if it were alone.
    let (beside, neighbour) = run("2", "ring seconds=1", &[]);
    assert!(neighbour.workload.is_some_and(|workload| workload.operations > 0), "{}", beside.errors);
    let asked = Instant::now();
    started.signal(Signal::INT);
    let ended = started.wait().expect(0);
    assert!(asked.elapsed() < PROMPT, "{:?}", asked.elapsed());
    let text = fs::read_to_string(ended.directory.path().join("run.json")).unwrap();
    let report: Report = serde_json::from_str(&text).unwrap();
    assert!(sum(&report, |pause| pause.events) > 100, "{}", ended.errors);
    // What an event costs is bounded: a decision at most, and nothing that is kept.
    let dealt_with =
        sum(&report, |pause| pause.quiet + pause.spins + pause.bailed.values().sum::<u64>() + pause.yields.attempted);
    assert!(dealt_with >= sum(&report, |pause| pause.events) - 4, "{}", ended.errors);
    assert!(report.monitor.pss_bytes < 64 << 20, "{}", report.monitor.pss_bytes);
}

/// With few file descriptors the monitor does without what it can do without, or says before the guest runs that there are
/// too few; it never hangs, and never ends in the middle of its start.
fn descriptors() {
    // One a vCPU and 64 are asked for.
    for (cpus, limits) in [("4", &[4, 16, 48, 67, 68, 72][..]), ("40", &[103, 104, 112])] {
        let enough = cpus.parse::<u32>().unwrap() + 64;
        for limit in limits {
            let mut command = Command::new("prlimit");
            command.arg(format!("--nofile={limit}")).arg(monitor::program());
            command.args(["--cpus", cpus, "--serial", "none", "--placement", "pin=0", "--probe", "ring seconds=0.2"]);
            let ended = Monitor::of(command).run();
            if *limit >= enough {
                ended.expect(0);
            } else {
                let refused = ended.expect(1);
                assert!(refused.errors.contains("open files"), "{limit}: {}", refused.errors);
            }
        }
    }
}

fn storm() {
    let started = Monitor::new(["--cpus", "4", "--serial", "none", "--probe", "ring seconds=2"]).start();
    started.wait_for_vcpus(4);
    let pid = started.pid().as_raw_nonzero().to_string();
    // The kick's own signal, as fast as a shell sends it; it ends when the process is gone.
    let storm = format!("for i in $(seq 2000); do kill -USR1 {pid} || exit 0; done");
    let mut shell = Command::new("bash").args(["-c", &storm]).stderr(std::process::Stdio::null()).spawn().unwrap();
    started.wait().expect(0);
    shell.wait().unwrap();
}

fn refusals() {
    for (flags, part) in [
        (["--pause-mechanism", "hypercall"], "pause mechanism hypercall: this KVM is software-virtualised"),
        (["--pause-source", "tracepoint"], "pause source tracepoint: this KVM is software-virtualised"),
    ] {
        let refused = Monitor::new(flags).run().expect(1);
        assert!(refused.errors.contains(part), "{}", refused.errors);
    }
}

fn parameters() {
    for (flags, part) in [
        (["--pause-set", "bail_aftr=3"], "bail_after"),
        (["--pause-set", "bail_after=0"], "outside 1 to 64"),
        (["--inject-preemption", "seed=1,mean=1ms"], "hold"),
        (["--inject-preemption", "seed=1,mean=1ms,hold=1ms,vcpus=[9]"], "vCPU 9"),
        (["--placement", "pin=x"], "pin=x"),
    ] {
        let refused = Monitor::new(flags.iter().chain(&["--check"])).run().expect(2);
        assert!(refused.errors.contains(part), "{}", refused.errors);
    }
}
