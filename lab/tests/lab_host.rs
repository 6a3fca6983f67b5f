// SPDX-License-Identifier: Apache-2.0
//! Starts real lab hosts and looks at what the library promises of them.
//!
//! By default only the sound setting, one emulated processor, is run: a few starts of some seconds each, one after the other.
//! `VMM_LAB_SEVERAL_CPUS=1` adds hosts of several processors, which may hang and be repeated. On a machine that cannot have a
//! lab every test is reported as ignored with the reason.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};

use lab::command::{self, Request};
use lab::{Lab, LabError, Stream};

/// Ten times what a quiet machine needs.
const DEADLINE: Duration = Duration::from_secs(240);

fn main() {
    let mut arguments = Arguments::from_args();
    // Two emulators at once on a small machine make both slow enough to be taken for hung.
    arguments.test_threads.get_or_insert(1);
    let one = if arguments.list { None } else { Lab::new().available().err().map(|error| error.to_string()) };
    let several = match std::env::var_os("VMM_LAB_SEVERAL_CPUS") {
        Some(value) if value == "1" => one.clone(),
        _ => Some("several emulated CPUs run with VMM_LAB_SEVERAL_CPUS=1".to_owned()),
    };
    let trials = vec![
        trial("the_default_host_has_kvm_and_sends_back_what_the_script_did", &one, the_default_host),
        trial("pause_filter_nodes_and_distances_are_as_asked", &one, pause_filter_and_nodes),
        trial("the_subcommand_runs_the_monitor_with_its_files_under_their_names", &one, subcommand),
        trial("a_script_that_does_not_end_is_ended_at_its_deadline", &one, deadline),
        trial("a_panic_of_the_lab_host_is_not_the_scripts_fault", &one, panic_of_the_host),
        trial("sockets_cores_threads_and_nodes_are_as_asked", &several, several_cpus),
        trial("a_lab_host_of_several_cpus_that_dies_is_started_once_more", &several, second_try),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

fn trial(name: &str, missing: &Option<String>, test: fn() -> Result<(), Failed>) -> Trial {
    match missing {
        None => Trial::test(name, test),
        Some(why) => Trial::test(name, test).with_ignored_flag(true).with_kind(why.as_str()),
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: T, wanted: T) -> Result<(), Failed> {
    if got == wanted { Ok(()) } else { Err(format!("{what}: got {got:?}, wanted {wanted:?}").into()) }
}

fn the_default_host() -> Result<(), Failed> {
    let script = "
        [ -c /dev/kvm ] && echo kvm
        nproc
        cat /sys/module/kvm_amd/parameters/npt /sys/module/kvm_amd/parameters/pause_filter_count
        [ -e /sys/kernel/tracing/events/kvm/kvm_exit/format ] && echo tracepoint
        [ -d /sys/kernel/debug/kvm ] && echo debugfs
        echo to the console >&2
        mkdir -p /results/below
        cp /given /results/below/copy
        head -c 300000 /dev/urandom >/results/random
        sha256sum </results/random | cut -d' ' -f1 >/results/sum
        exit 33";
    let given: Vec<u8> = (0..=u8::MAX).cycle().take(5000).collect();
    let mut streamed = Vec::new();
    let sink = |stream, bytes: &[u8]| {
        if stream == Stream::Output {
            streamed.extend_from_slice(bytes);
        }
    };
    let lab = Lab::new().file("/given", given.clone()).deadline(DEADLINE).on_stream(sink);
    let result = lab.run(script)?;
    same("output", String::from_utf8_lossy(&result.output).as_ref(), "kvm\n1\nY\n0\ntracepoint\ndebugfs\n")?;
    same("status", result.status, 33)?;
    same("a file there and back", result.files.get("below/copy"), Some(&given))?;
    same("random bytes", result.files.get("random").map(Vec::len), Some(300_000))?;
    same("attempts", (result.attempts, result.lab_host_hung, result.lab_host_died), (1, 0, 0))?;
    same("console", result.console.contains("to the console"), true)?;
    println!("ready after {:?}, took {:?}, QEMU {}", result.ready_after, result.took, result.qemu);
    let output = result.output;
    same("what was streamed", streamed, output)
}

fn pause_filter_and_nodes() -> Result<(), Failed> {
    let script = "
        [ $(cat /sys/module/kvm_amd/parameters/pause_filter_count) -gt 0 ] && echo filter
        cat /sys/devices/system/node/online
        cat /sys/devices/system/node/node*/distance
        cat /sys/devices/system/node/node0/cpulist
        cat /sys/devices/system/node/node3/cpulist";
    let lab = Lab::new().pause_filter(true).numa(4).distances(&[(0, 1, 15), (2, 3, 30), (3, 2, 40)]).deadline(DEADLINE);
    let result = lab.run(script)?;
    let wanted = "filter\n0-3\n10 15 20 20\n15 10 20 20\n20 20 10 30\n20 20 40 10\n0\n\n";
    same("output", String::from_utf8_lossy(&result.output).as_ref(), wanted)
}

fn subcommand() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let place = |name: &str| directory.path().join(name);
    std::fs::write(place("monitor"), "#!/bin/sh\n[ \"$1\" = --kernel ] && cp \"$2\" \"${3#--report=}\"; exit 34\n")?;
    std::fs::write(place("a kernel"), "bytes")?;
    let mut report = OsString::from("--report=");
    report.push(place("report.json"));
    let arguments = vec!["--kernel".into(), place("a kernel").into(), report];
    let request = Request { arguments, deadline: DEADLINE, ..Request::default() };
    same("status", command::execute(&place("monitor"), &request), 34)?;
    same("report", std::fs::read_to_string(place("report.json"))?.as_str(), "bytes")
}

fn deadline() -> Result<(), Failed> {
    let started = Instant::now();
    let error = Lab::new().deadline(Duration::from_secs(30)).run("sleep 600").err();
    same("time", started.elapsed() < Duration::from_secs(60), true)?;
    match error {
        Some(LabError::Deadline { seconds: 30, .. }) => Ok(()),
        other => Err(format!("wanted the deadline to pass, got {other:?}").into()),
    }
}

fn panic_of_the_host() -> Result<(), Failed> {
    let error = Lab::new().deadline(DEADLINE).run("echo c >/proc/sysrq-trigger; sleep 600").err();
    match error {
        Some(LabError::LabHostFailed { attempts: 1, console, .. }) => {
            same("console", console.contains("Kernel panic"), true)
        }
        other => Err(format!("wanted the lab host to fail, got {other:?}").into()),
    }
}

fn several_cpus() -> Result<(), Failed> {
    let script = "
        cd /sys/devices/system
        cat cpu/online node/online node/node3/cpulist cpu/cpu5/topology/physical_package_id
        cat cpu/cpu5/topology/core_cpus_list cpu/cpu5/topology/package_cpus_list";
    let result = Lab::new().host("2x2x2").numa(4).deadline(2 * DEADLINE).run(script)?;
    same("output", String::from_utf8_lossy(&result.output).as_ref(), "0-7\n0-3\n6-7\n1\n4-5\n4-7\n")
}

fn second_try() -> Result<(), Failed> {
    let error = Lab::new().host("2").deadline(2 * DEADLINE).run("echo c >/proc/sysrq-trigger; sleep 600").err();
    match error {
        Some(LabError::LabHostFailed { attempts: 2, .. }) => Ok(()),
        other => Err(format!("wanted two attempts, got {other:?}").into()),
    }
}
