// SPDX-License-Identifier: Apache-2.0
//! What cannot be had is an error, or is said.

use std::fs;
use std::path::Path;
use std::process::Command;

use libtest_mimic::Trial;
use tempfile::TempDir;

use crate::host::{cpus, monitor, report, two_cpus};
use crate::monitor::{Ended, Monitor, program};
use crate::{Missing, kvm, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("wishes_that_cannot_be_met_are_named_before_the_guest_starts", kvm, wishes),
        trial("a_claim_directory_that_cannot_be_used_costs_coordination_and_not_the_run", kvm, directories),
        trial("claims_that_are_garbage_are_named_or_removed", kvm, garbage),
        trial(
            "a_claim_directory_that_is_read_only_or_full_is_said_and_nothing_is_left_in_it",
            mounts,
            small_directories,
        ),
        trial("a_sysfs_that_is_missing_or_empty_or_has_holes_is_said_and_the_guest_runs", mounts, sysfs),
        trial("cpus_outside_what_the_process_may_use_are_refused", two_cpus, disjoint),
        trial("memory_is_not_tied_without_the_permission_and_that_is_an_error", seccomp, mbind),
    ]
}

fn wishes() {
    let claims = TempDir::new().unwrap();
    for (arguments, part) in [
        (&["--placement", "pin=8000"][..], "cannot pin to CPUs 8000: offline or absent"),
        (&["--numa", "cpus=[0],host-node=900"], "host node 900, which does not exist; there are nodes 0"),
        (&["--numa", "cpus=[0],memory=100T,host-node=0"], "needs 109951162777600 bytes on host node 0, which has"),
    ] {
        let ended = monitor(claims.path(), arguments).run().expect(1);
        assert!(ended.errors.contains(part), "{}", ended.errors);
        assert!(ended.output.is_empty(), "the guest has run: {}", ended.output);
    }
    let usage = monitor(claims.path(), &["--placement", "pin=[]"]).run().expect(2);
    assert!(usage.errors.contains("--placement"), "{}", usage.errors);
    let usage = monitor(claims.path(), &["--numa", "cpus=[0],host-node=[0-1],policy=preferred"]).run().expect(2);
    assert!(usage.errors.contains("prefers the host nodes 0-1; name one"), "{}", usage.errors);
}

fn directories() {
    for directory in ["/proc/self/status", "/proc/claims", "/dev/null"] {
        let ended = monitor(Path::new(directory), &[]).run().expect(0);
        assert!(ended.errors.contains("claims of other VMs are not coordinated"), "{directory}: {}", ended.errors);
        let refused = monitor(Path::new(directory), &["--placement", "auto,exclusive"]).run().expect(1);
        assert!(refused.errors.contains("exclusive needs that"), "{directory}: {}", refused.errors);
    }
}

fn garbage() {
    let claims = TempDir::new().unwrap();
    fs::write(claims.path().join("1.claim"), "\u{0}garbage").unwrap();
    fs::create_dir(claims.path().join("2.claim")).unwrap();
    let ended = monitor(claims.path(), &[]).run().expect(0);
    assert!(ended.errors.contains("2.claim cannot be read and is ignored"), "{}", ended.errors);
    assert!(!claims.path().join("1.claim").exists());
}

/// For tests that mount something where only they see it.
fn mounts() -> Missing {
    kvm().or_else(|| match Command::new("unshare").args(["-m", "mount", "-t", "tmpfs", "none", "/mnt"]).output() {
        Ok(tried) if tried.status.success() => None,
        Ok(tried) => Some(format!("nothing can be mounted: {}", String::from_utf8_lossy(&tried.stderr).trim())),
        Err(error) => Some(format!("unshare cannot be started: {error}")),
    })
}

/// A monitor behind a shell script that sees `$CLAIMS`, with mounts of its own.
fn behind(script: &str, claims: &Path, arguments: &[&str]) -> Ended {
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-e", "-c", &format!("{script}\nexec \"$@\""), "sh"]).arg(program()).args(arguments);
    command.env("CLAIMS", claims).env("VMM_CLAIMS_DIR", claims);
    Monitor::of(command).run()
}

fn small_directories() {
    for (mount, reason) in [
        ("mount -t tmpfs -o ro none $CLAIMS", "Read-only file system"),
        // Room for the lock, which is empty, and none for a claim.
        ("mount -t tmpfs -o size=4k none $CLAIMS; head -c 4096 /dev/zero >$CLAIMS/full", "No space left on device"),
        ("mount -t tmpfs -o nr_inodes=1 none $CLAIMS", "No space left on device"),
    ] {
        let claims = TempDir::new().unwrap();
        let ended = behind(mount, claims.path(), &["--report", "run.json"]).expect(0);
        for part in ["claims of other VMs are not coordinated", reason] {
            assert!(ended.errors.contains(part), "{mount}: {}", ended.errors);
        }
        assert_eq!(report(ended.directory.path())["placement"].get("claimed"), None, "{mount}");
        let refused = behind(mount, claims.path(), &["--placement", "auto,exclusive"]).expect(1);
        assert!(refused.errors.contains("exclusive needs that"), "{mount}: {}", refused.errors);
    }
}

fn sysfs() {
    const CPU: &str = "/sys/devices/system/cpu";
    let nothing = format!("mount -t tmpfs none {CPU}; mount -t tmpfs none /sys/devices/system/node");
    let claims = TempDir::new().unwrap();
    for (rest, part) in [
        (String::new(), "no list of online CPUs"),
        (format!("echo >{CPU}/online"), "no list of online CPUs"),
        (format!("cp /proc/self/status {CPU}/online"), "nothing is placed"),
        (
            format!(
                "echo {} >{CPU}/online; mkdir -p {CPU}/cpu0/topology; echo 0 >{CPU}/cpu0/topology/core_cpus_list",
                cpus()
            ),
            "1 CPUs do not say which core they belong to",
        ),
    ] {
        let ended = behind(&format!("{nothing}\n{rest}"), claims.path(), &["--cpus", "2"]).expect(0);
        let said = ["the host's shape is known in part: ", "the host's topology cannot be used: "];
        let why = said.iter().any(|said| ended.errors.contains(said));
        assert!(why && ended.errors.contains(part), "{rest}: {}", ended.errors);
    }
    let (garbage, wish) = (format!("{nothing}; echo x >{CPU}/online"), ["--placement", "spread"]);
    let refused = behind(&garbage, claims.path(), &wish).expect(1);
    assert!(refused.errors.contains("the host's topology cannot be used"), "{}", refused.errors);
}

fn disjoint() {
    let (claims, cpus) = (TempDir::new().unwrap(), cpus());
    let (only, wish) = (cpus.lowest().unwrap(), cpus.highest().unwrap());
    let mut command = Command::new("taskset");
    command.args(["-c", &only.to_string()]).arg(program()).args(["--placement", &format!("pin={wish}")]);
    command.env("VMM_CLAIMS_DIR", claims.path());
    let refused = Monitor::of(command).run().expect(1);
    assert!(refused.errors.contains(&format!("cannot pin to CPUs {wish}")), "{}", refused.errors);
    assert!(refused.output.is_empty(), "the guest has run: {}", refused.output);
}

/// Starts a program that gets EPERM from mbind, as in a container.
const WITHOUT_MBIND: &str = "
import ctypes, os, struct, sys
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 237), (6, 0, 0, 0x50001), (6, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', len(steps), ctypes.addressof(code)))
prctl = ctypes.CDLL(None).prctl
if prctl(38, 1, 0, 0, 0) or prctl(22, 2, ctypes.c_void_p(ctypes.addressof(program)), 0, 0):
    sys.exit('no filter')
os.execv(sys.argv[1], sys.argv[1:])
";

fn without_mbind(program: &Path) -> Command {
    let mut command = Command::new("python3");
    command.args(["-c", WITHOUT_MBIND]).arg(program);
    command
}

fn seccomp() -> Missing {
    kvm().or_else(|| match without_mbind(Path::new("/bin/true")).output() {
        Ok(tried) if tried.status.success() => None,
        Ok(tried) => Some(format!("no filter of system calls: {}", String::from_utf8_lossy(&tried.stderr).trim())),
        Err(error) => Some(format!("python3 cannot be started: {error}")),
    })
}

fn mbind() {
    let claims = TempDir::new().unwrap();
    let mut command = without_mbind(program());
    command.args(["--numa", "cpus=[0],memory=64M,host-node=0"]).env("VMM_CLAIMS_DIR", claims.path());
    let refused = Monitor::of(command).run().expect(1);
    for part in ["cannot be tied to the host nodes 0 (bind)", "allow mbind in the container's seccomp profile"] {
        assert!(refused.errors.contains(part), "{}", refused.errors);
    }
    assert!(refused.output.is_empty(), "the guest has run: {}", refused.output);
}
