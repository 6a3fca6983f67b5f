// SPDX-License-Identifier: Apache-2.0
//! What happens to threads when the host changes under them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use libtest_mimic::Trial;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::Missing;
use crate::host::{cpus, eventually, monitor, report, two_cpus, vcpus};
use crate::trial;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_vcpu_leaves_a_cpu_that_the_cpuset_loses_and_comes_back", shrinkable, cpuset),
        trial("a_vcpu_leaves_a_disturbed_cpu_for_an_idle_one", idle_cpus, disturbed),
    ]
}

/// A cpuset of its own for a test; removed when it goes out of scope.
struct Cpuset {
    path: PathBuf,
    /// Version 1 names its files differently.
    tasks: &'static str,
}

impl Cpuset {
    fn new(name: &str) -> io::Result<Self> {
        let (root, tasks) = match Path::new("/sys/fs/cgroup/cpuset/cpuset.cpus").exists() {
            true => ("/sys/fs/cgroup/cpuset", "tasks"),
            false => ("/sys/fs/cgroup", "cgroup.procs"),
        };
        let path = Path::new(root).join(format!("vmm-test-{}-{name}", std::process::id()));
        fs::create_dir(&path)?;
        let set = Self { path, tasks };
        set.allow(&cpus().to_string())?;
        if tasks == "tasks" {
            fs::write(set.path.join("cpuset.mems"), fs::read("/sys/fs/cgroup/cpuset/cpuset.mems")?)?;
        }
        Ok(set)
    }

    fn allow(&self, cpus: &str) -> io::Result<()> {
        fs::write(self.path.join("cpuset.cpus"), cpus)
    }

    fn tasks(&self) -> PathBuf {
        self.path.join(self.tasks)
    }
}

impl Drop for Cpuset {
    fn drop(&mut self) {
        // Tasks that have just ended leave it a moment later.
        for _ in 0..100 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn shrinkable() -> Missing {
    two_cpus().or_else(|| Cpuset::new("probe").err().map(|error| format!("no cpuset can be made: {error}")))
}

fn cpuset() {
    let (claims, set) = (TempDir::new().unwrap(), Cpuset::new("shrinks").unwrap());
    let mut inside = Command::new("sh");
    inside.env("VMM_CLAIMS_DIR", claims.path()).args(["-c", "echo $$ >\"$0\" && exec \"$@\""]).arg(set.tasks());
    inside.arg(crate::monitor::program()).args(["--cpus", "2", "--probe", "spin seconds=300", "--report", "run.json"]);
    let run = crate::monitor::Monitor::of(inside).start();
    let before = vcpus(run.pid(), 2);
    let (stays, goes) = (before[0].lowest().unwrap(), before[1].lowest().unwrap());
    assert_ne!(stays, goes);
    let claim = claims.path().join(format!("{}.claim", run.pid().as_raw_nonzero()));
    let claimed =
        |cpus: &str| fs::read_to_string(&claim).is_ok_and(|text| text.contains(&format!("\"cpus\":\"{cpus}\"")));
    set.allow(&stays.to_string()).unwrap();
    eventually("both vCPUs on the CPU that is left", || claimed(&stays.to_string()));
    assert!(vcpus(run.pid(), 2).iter().all(|cpus| cpus.to_string() == stays.to_string()));
    set.allow(&cpus().to_string()).unwrap();
    eventually("a CPU for each vCPU again", || {
        let now = vcpus(run.pid(), 2);
        !claimed(&stays.to_string()) && now.iter().all(|cpus| cpus.len() == 1) && now[0] != now[1]
    });
    run.signal(Signal::TERM);
    let ended = run.wait().expect(0);
    let live = report(ended.directory.path())["placement"]["live"].clone();
    assert!(live["host_changes"].as_u64() >= Some(2), "{live}");
    assert!(live["moves"]["house"].as_u64() >= Some(1), "{live}");
}

/// Busy for at most an eighth of half a second: what counts as idle.
fn idle_cpus() -> Missing {
    let busy = || -> Vec<(u64, u64)> {
        let stat = fs::read_to_string("/proc/stat").unwrap();
        let ticks = |line: &str| -> Vec<u64> {
            line.split_ascii_whitespace().skip(1).map(|word| word.parse().unwrap()).collect()
        };
        let cpus = stat.lines().skip(1).take_while(|line| line.starts_with("cpu")).map(ticks);
        cpus.map(|ticks| (ticks.iter().take(8).sum::<u64>(), ticks[3] + ticks[4])).collect()
    };
    two_cpus().or_else(|| {
        let before = busy();
        thread::sleep(Duration::from_secs(1));
        let calm = before.iter().zip(busy()).filter(|(before, after)| {
            let (all, idle) = (after.0 - before.0, after.1 - before.1);
            all > 0 && (all - idle) * 8 <= all
        });
        let calm = calm.count();
        (calm < 2).then(|| format!("needs two CPUs that are idle, {calm} are"))
    })
}

/// A process that keeps one CPU busy; ended when it goes out of scope.
struct Hog(Child);

impl Drop for Hog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn disturbed() {
    let claims = TempDir::new().unwrap();
    let run = monitor(claims.path(), &["--probe", "spin seconds=300", "--report", "run.json"]).start();
    let at = vcpus(run.pid(), 1)[0].lowest().unwrap();
    let mut hog = Command::new("taskset");
    hog.args(["-c", &at.to_string(), "sh", "-c", "while :; do :; done"]);
    let hog = Hog(hog.spawn().unwrap());
    eventually("the vCPU on another CPU", || !vcpus(run.pid(), 1)[0].contains(at));
    run.signal(Signal::TERM);
    let ended = run.wait().expect(0);
    drop(hog);
    let live = report(ended.directory.path())["placement"]["live"].clone();
    assert_eq!(live["last"][0]["from"], at.0, "{live}");
    // The vCPU waited, so it was asked for; what was not granted says why.
    let ways: Vec<&str> = live["runqueues"].as_array().unwrap().iter().filter_map(|way| way["name"].as_str()).collect();
    assert_eq!(ways, ["bpf", "schedstat"], "{live}");
    assert_eq!(live["runqueues"][0]["asked"], true, "{live}");
    let schedstat = Path::new("/proc/schedstat").exists();
    assert_eq!(live["runqueues"][1]["granted"], schedstat, "{live}");
}
