// SPDX-License-Identifier: Apache-2.0
//! Experiments with Linux guests as far as they go on any host: plans that come with the program, files that guests boot from,
//! and guests that never come up. Whole ones are in the lab (tests/linux).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::Trial;
use serde_json::Value;

use crate::monitor::{Monitor, program};
use crate::{kvm, nothing, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("plans_of_linux_guests_follow_the_host_they_are_for", nothing, dry_runs),
        trial("a_linux_guest_that_never_comes_up_fails_its_cell_alone", kvm, never_up),
        trial("what_linux_guests_boot_from_must_be_there", nothing, no_image),
    ]
}

/// `vmm experiment ARGS` with a registry of its own, where `text` is plan.toml.
fn experiment(arguments: &[&str], text: &str) -> Monitor {
    let mut command = Command::new(program());
    command.arg("experiment").args(arguments);
    let monitor = Monitor::of(command);
    let claims = monitor.directory().join("claims");
    fs::write(monitor.directory().join("plan.toml"), text).unwrap();
    monitor.env("VMM_CLAIMS_DIR", &claims)
}

/// Its schedule on the first host CPU, without anything started.
fn dry_run(plan: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../resources/plans").join(plan);
    let path = path.to_str().unwrap().to_owned();
    let ended = experiment(&["run", &path, "--dry-run", "--cpus", "0"], "").run().expect(0);
    assert_eq!(ended.files(), ["plan.toml"]);
    ended.output
}

fn dry_runs() {
    let bail_out = dry_run("bail-out.toml");
    assert!(bail_out.contains("bail-out: 192 cells on host CPUs 0, "), "{bail_out}");
    assert!(bail_out.contains("1x: 1 guests of 1 vCPUs, 1040 MiB in all"), "{bail_out}");
    assert!(bail_out.contains("2x: 2 guests of 1 vCPUs"), "{bail_out}");
    assert_eq!(bail_out.matches("kernbuild 2x act #").count(), 8, "{bail_out}");
    let series = dry_run("several-linux-guests.toml");
    assert!(series.contains("4x: 4 guests of 1 vCPUs") && series.contains("dbench 3x kernel #8"), "{series}");
    let lab = dry_run("lab.toml");
    assert!(lab.contains("lab: 60 cells on host CPUs 0, ") && lab.contains("2x: 1 guests of 2 vCPUs"), "{lab}");
}

/// A plan of one Linux guest and one repetition on the first host CPU.
fn plan(rest: &str) -> String {
    format!(
        "name = \"test\"\nrepetitions = 1\nwindow_ms = 1000\novercommit = [1]\nworkloads = [\"dbench\"]\narms = [\"off\"]\n\
         time_limit_s = 60\n[guests]\nsystem = \"linux\"\ncount = 1\ncpus = \"0\"\n{rest}"
    )
}

/// Files that look like those of a guest and are none.
fn no_kernel(directory: &Path) -> PathBuf {
    let image = directory.join("image");
    fs::create_dir(&image).unwrap();
    for name in ["vmlinuz", "dbench.cpio"] {
        fs::write(image.join(name), "no kernel and no file system").unwrap();
    }
    image
}

fn never_up() {
    let monitor = experiment(&["run", "plan.toml", "--out", "run", "--image", "image"], &plan(""));
    no_kernel(monitor.directory());
    // Not one cell brought a number: that is a failure of the whole.
    let ended = monitor.run().expect(1);
    let run = ended.directory.path().join("run");
    let cell: Value = serde_json::from_str(&fs::read_to_string(run.join("cells/00000.json")).unwrap()).unwrap();
    let why = cell["outcome"]["failed"].as_str().unwrap_or_else(|| panic!("{cell}"));
    assert!(why.starts_with("guest 0 ended and did not come up; its monitor said: vmm: "), "{why}");
    let machine = fs::read_to_string(run.join("machines/dbench-1x-off.toml")).unwrap();
    assert!(machine.contains("agent=dbench,seconds=1") && machine.contains("image/dbench.cpio"), "{machine}");
    assert!(ended.errors.contains("1 of 1 cells brought no number"), "{}", ended.errors);
}

fn no_image() {
    let monitor = experiment(&["run", "plan.toml", "--out", "run", "--image", "image"], &plan(""));
    let ended = monitor.run().expect(1);
    assert!(ended.errors.contains("--image image: has no dbench.cpio"), "{}", ended.errors);
    assert_eq!(ended.files(), ["plan.toml"]);
    let ended = experiment(&["image", "out", "--tool", "dbnech"], "").run().expect(2);
    assert!(ended.errors.contains("there is no such tool; known are ebizzy, dbench"), "{}", ended.errors);
    let ended = experiment(&["run", "plan.toml", "--cpus", "0-8191"], &plan("")).run().expect(2);
    assert!(ended.errors.contains("0-8191 are not within"), "{}", ended.errors);
    let own = plan("[[workload]]\nname = \"dbench\"\nlinux = \"dbench client=3\"\n");
    let ended = experiment(&["run", "plan.toml"], &own).run().expect(2);
    assert!(
        ended.errors.contains("line 5: workloads: ") && ended.errors.contains("no setting of dbench"),
        "{}",
        ended.errors
    );
    assert_eq!(ended.files(), ["plan.toml"]);
}
