// SPDX-License-Identifier: Apache-2.0
//! Starts real lab hosts and looks at what the library promises of them.
//!
//! By default only the sound setting, one emulated processor, is run: a few starts of some seconds each, one after the other.
//! `VMM_LAB_SEVERAL_CPUS=1` adds hosts of several processors, which may hang and be repeated. On a machine that cannot have a
//! lab every test is reported as ignored with the reason; so is one whose lab host stopped by itself, and did so again when it
//! was started again, but with `VMM_LAB=full`, where that is a failure.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use lab::command::{self, Request};
use lab::{Lab, LabError, Stream};

/// Starts that a lab host gets: one more than the first.
const STARTS: u32 = 2;

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
        trial("a_lab_host_that_stopped_by_itself_is_started_again_as_often_as_asked_and_counted", &one, starts),
        trial("sockets_cores_threads_and_nodes_are_as_asked", &several, several_cpus),
        trial("a_lab_host_of_several_cpus_that_dies_is_started_once_more", &several, second_try),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

/// Why a test did not end as it should.
enum Unmet {
    /// What it tests is wrong.
    Wrong(Failed),
    /// The lab gave no result.
    Lab(LabError),
}

impl From<LabError> for Unmet {
    fn from(error: LabError) -> Self {
        Self::Lab(error)
    }
}

impl From<Failed> for Unmet {
    fn from(failed: Failed) -> Self {
        Self::Wrong(failed)
    }
}

impl From<std::io::Error> for Unmet {
    fn from(error: std::io::Error) -> Self {
        Self::Wrong(error.into())
    }
}

fn trial(name: &str, missing: &Option<String>, test: fn() -> Result<(), Unmet>) -> Trial {
    let missing = missing.clone();
    Trial::ignorable_test(name, move || match missing {
        Some(reason) => Ok(Completion::ignored_with(reason)),
        None => completion(test()),
    })
}

/// A lab host that stopped by itself says nothing about what was tested; asked for everything, it is a failure all the same.
fn completion(result: Result<(), Unmet>) -> Result<Completion, Failed> {
    let error = match result {
        Ok(()) => return Ok(Completion::Completed),
        Err(Unmet::Wrong(failed)) => return Err(failed),
        Err(Unmet::Lab(error)) => error,
    };
    match error.no_verdict().filter(|_| std::env::var("VMM_LAB").as_deref() != Ok("full")) {
        Some(reason) => Ok(Completion::ignored_with(reason)),
        None => Err(error.into()),
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: T, wanted: T) -> Result<(), Failed> {
    if got == wanted { Ok(()) } else { Err(format!("{what}: got {got:?}, wanted {wanted:?}").into()) }
}

fn the_default_host() -> Result<(), Unmet> {
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
    let lab = Lab::new().file("/given", given.clone()).on_stream(sink);
    let result = lab.deadline(DEADLINE * STARTS).starts(STARTS).run(script)?;
    same("output", String::from_utf8_lossy(&result.output).as_ref(), "kvm\n1\nY\n0\ntracepoint\ndebugfs\n")?;
    same("status", result.status, 33)?;
    same("a file there and back", result.files.get("below/copy"), Some(&given))?;
    same("random bytes", result.files.get("random").map(Vec::len), Some(300_000))?;
    same("attempts", result.attempts, 1 + result.lab_host_hung + result.lab_host_died)?;
    same("console", result.console.contains("to the console"), true)?;
    println!("ready after {:?}, took {:?}, QEMU {}", result.ready_after, result.took, result.qemu);
    // Of a lab host that was started again, what the one before said has been streamed too.
    Ok(same("what was streamed", streamed.ends_with(&result.output), true)?)
}

fn pause_filter_and_nodes() -> Result<(), Unmet> {
    let script = "
        [ $(cat /sys/module/kvm_amd/parameters/pause_filter_count) -gt 0 ] && echo filter
        cat /sys/devices/system/node/online
        cat /sys/devices/system/node/node*/distance
        cat /sys/devices/system/node/node0/cpulist
        cat /sys/devices/system/node/node3/cpulist";
    let lab = Lab::new().pause_filter(true).numa(4).distances(&[(0, 1, 15), (2, 3, 30), (3, 2, 40)]);
    let result = lab.deadline(DEADLINE * STARTS).starts(STARTS).run(script)?;
    let wanted = "filter\n0-3\n10 15 20 20\n15 10 20 20\n20 20 10 30\n20 20 40 10\n0\n\n";
    Ok(same("output", String::from_utf8_lossy(&result.output).as_ref(), wanted)?)
}

fn subcommand() -> Result<(), Unmet> {
    let directory = tempfile::tempdir()?;
    let place = |name: &str| directory.path().join(name);
    std::fs::write(place("monitor"), "#!/bin/sh\n[ \"$1\" = --kernel ] && cp \"$2\" \"${3#--report=}\"; exit 34\n")?;
    std::fs::write(place("a kernel"), "bytes")?;
    let mut report = OsString::from("--report=");
    report.push(place("report.json"));
    let arguments = vec!["--kernel".into(), place("a kernel").into(), report];
    let request = Request { arguments, deadline: DEADLINE, ..Request::default() };
    let execute = || command::execute(&place("monitor"), &request, || Ok(|| false));
    let status = execute().or_else(|error| match error.no_verdict() {
        Some(_) => execute(),
        None => Err(error),
    })?;
    same("status", status, 34)?;
    Ok(same("report", std::fs::read_to_string(place("report.json"))?.as_str(), "bytes")?)
}

fn deadline() -> Result<(), Unmet> {
    let started = Instant::now();
    let error = Lab::new().deadline(Duration::from_secs(30)).starts(STARTS).run("sleep 600").err();
    same("time", started.elapsed() < Duration::from_secs(60), true)?;
    match error {
        Some(LabError::Deadline { seconds: 30, .. }) => Ok(()),
        other => Err(unlike("the deadline to pass", other)),
    }
}

fn panic_of_the_host() -> Result<(), Unmet> {
    let error = Lab::new().deadline(DEADLINE).run("echo c >/proc/sysrq-trigger; sleep 600").err();
    match error {
        Some(LabError::LabHostFailed { attempts: 1, console, .. }) if console.contains("Kernel panic") => Ok(()),
        other => Err(unlike("the lab host to fail by a panic", other)),
    }
}

fn unlike(wanted: &str, got: Option<LabError>) -> Unmet {
    match got {
        Some(error @ LabError::LabHostFailed { .. }) => Unmet::Lab(error),
        other => Unmet::Wrong(format!("wanted {wanted}, got {other:?}").into()),
    }
}

/// In the place of the emulator: stops on its first start, and on the second does what a lab host does that has ended.
const STOPS_ONCE: &str = r#"#!/bin/sh
[ "$1" = --version ] && exec echo "QEMU emulator version 11.0.0"
[ -e "$0.started" ] || { touch "$0.started"; exit 0; }
for argument in "$@"; do
    case $argument in file,*path=*/results) printf 'vmm-lab-results 1
status 7
end
' >"${argument#*path=}" ;; esac
done
"#;

fn starts() -> Result<(), Unmet> {
    let directory = tempfile::tempdir()?;
    let emulator = directory.path().join("emulator");
    let run = |starts| {
        std::fs::write(&emulator, STOPS_ONCE)?;
        std::fs::set_permissions(&emulator, std::fs::Permissions::from_mode(0o755))?;
        let _ = std::fs::remove_file(directory.path().join("emulator.started"));
        Ok::<_, Unmet>(Lab::new().qemu(&emulator).deadline(DEADLINE).starts(starts).run(""))
    };
    match run(1)? {
        Err(error @ LabError::LabHostFailed { attempts: 1, .. }) => {
            let reason = error.no_verdict().unwrap_or_default();
            same(&reason, reason.contains("stopped by itself on each of 1 starts"), true)?;
        }
        other => return Err(Failed::from(format!("wanted the lab host to fail, got {other:?}")).into()),
    }
    let result = run(2)??;
    same("status", result.status, 7)?;
    Ok(same("starts", (result.attempts, result.lab_host_hung, result.lab_host_died), (2, 0, 1))?)
}

fn several_cpus() -> Result<(), Unmet> {
    let script = "
        cd /sys/devices/system
        cat cpu/online node/online node/node3/cpulist cpu/cpu5/topology/physical_package_id
        cat cpu/cpu5/topology/core_cpus_list cpu/cpu5/topology/package_cpus_list";
    let result = Lab::new().host("2x2x2").numa(4).deadline(2 * DEADLINE).run(script)?;
    Ok(same("output", String::from_utf8_lossy(&result.output).as_ref(), "0-7\n0-3\n6-7\n1\n4-5\n4-7\n")?)
}

fn second_try() -> Result<(), Unmet> {
    let error = Lab::new().host("2").deadline(2 * DEADLINE).run("echo c >/proc/sysrq-trigger; sleep 600").err();
    match error {
        Some(LabError::LabHostFailed { attempts: 2, .. }) => Ok(()),
        other => Err(Failed::from(format!("wanted two attempts, got {other:?}")).into()),
    }
}
