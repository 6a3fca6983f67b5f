// SPDX-License-Identifier: Apache-2.0
//! Disks that are full, before the run and in the middle of it: the error names the file and the cause, and what there is
//! of the file is whole, or as long as the disk allowed.

use libtest_mimic::Trial;

use crate::monitor::{Ended, Monitor};
use crate::{Missing, kvm, namespaces, trial};

/// One test for each file that a run writes.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_report_that_meets_a_full_disk_is_an_error_and_leaves_nothing", mounts, report),
        trial("a_report_to_a_device_that_is_full_is_an_error", kvm, report_to_device),
        trial("an_old_report_survives_a_disk_that_is_full", mounts, old_report),
        trial("a_console_that_fills_its_disk_ends_the_run_with_an_error", mounts, console),
        trial("an_experiment_that_fills_its_disk_keeps_what_was_measured_and_goes_on", mounts, experiment),
        trial("a_decision_log_that_fills_its_disk_is_an_error", mounts, decision_log),
    ]
}

fn mounts() -> Missing {
    kvm().or_else(namespaces::root)
}

/// Runs the monitor with a disk of `kib` KiB at `disk`, and lists what is on it afterwards, with sizes, on stderr.
fn with_disk(kib: u32, preparation: &str, arguments: &[&str]) -> Ended {
    let script = format!(
        "mkdir disk\nmount -t tmpfs -o size={kib}k none disk\n{preparation}\nstatus=0\n\"$0\" \"$@\" || status=$?\n\
         cd disk\nfor name in $(ls -A); do echo \"file $name $(wc -c <$name)\" >&2; done\nexit $status"
    );
    namespaces::after(&script, arguments).run()
}

#[track_caller]
fn says(ended: &Ended, parts: &[&str]) {
    parts.iter().for_each(|part| assert!(ended.errors.contains(part), "{} should say {part}", ended.errors));
    assert!(!ended.errors.contains("panicked"), "{}", ended.errors);
}

const FULL: &str = "head -c 4096 /dev/zero >disk/full";
const REPORT: [&str; 2] = ["--report=disk/run.json", "--probe=report report=none"];

/// Room for the machines and a few cells. Then more room, and the experiment goes on: no cell has failed for want of it.
fn experiment() {
    let plan = "name = \"test\"\nrepetitions = 20\nwindow_ms = 20\novercommit = [2]\nworkloads = [\"ring\"]\n\
                arms = [\"off\", \"act\"]\n[guests]\ncount = 1\nmemory_mib = 32\ncpus = \"0\"\n";
    let script = format!(
        "export VMM_CLAIMS_DIR=$PWD/claims\nmkdir disk\nmount -t tmpfs -o size=96k none disk\n\
         printf '%s' '{plan}' >plan.toml\nstatus=0\n\"$0\" \"$@\" || status=$?\n\
         echo \"kept $(ls disk/run/cells | wc -l), left $(ls -A disk/run disk/run/cells | grep -c '^\\.')\" >&2\n\
         mount -o remount,size=16m disk\n\"$0\" experiment resume disk/run >&2\n\
         echo \"then $(ls disk/run/cells | wc -l)\" >&2\nexit $status"
    );
    let ended = namespaces::after(&script, &["experiment", "run", "plan.toml", "--out", "disk/run"]).run().expect(1);
    says(&ended, &["disk/run", "cannot be written: No space left on device", "`vmm experiment resume` goes on"]);
    says(&ended, &[", left 0\n", "then 40\n", "[40/40]"]);
    let kept = ended.errors.split_once("kept ").and_then(|(_, rest)| rest.split_once(',')).unwrap().0;
    assert!((1..40).contains(&kept.parse::<u32>().unwrap()), "{}", ended.errors);
    assert!(!ended.errors.contains("brought no number"), "{}", ended.errors);
}

fn report() {
    let ended = with_disk(4, FULL, &REPORT).expect(1);
    says(&ended, &["--report disk/run.json: cannot write it: No space left on device", "the run itself has ended"]);
    // Nothing but what was there.
    assert_eq!(ended.errors.matches("file ").count(), 1, "{}", ended.errors);
    says(&ended, &["file full 4096"]);
}

fn report_to_device() {
    let ended = Monitor::new(["--report=/dev/full", "--probe=report report=none"]).run().expect(1);
    says(&ended, &["--report /dev/full: cannot write it: No space left on device"]);
    assert_eq!(ended.files(), [""; 0]);
}

fn old_report() {
    let ended = with_disk(4, "echo old >disk/run.json", &REPORT).expect(1);
    says(&ended, &["No space left on device", "file run.json 4"]);
    assert_eq!(ended.errors.matches("file ").count(), 1, "{}", ended.errors);
}

fn console() {
    let ended = with_disk(4, "", &["--cpus=64", "--serial=file=disk/log", "--probe=report report=lines"]).expect(1);
    says(&ended, &["No space left on device", "file log 4096"]);
}

fn decision_log() {
    let arguments = ["--cpus=4", "--decision-log=disk/log", "--probe=ring seconds=1 spins=50 report=none"];
    let ended = with_disk(4, "", &arguments).expect(1);
    says(&ended, &["--decision-log", "No space left on device", "file log 4096"]);
}
