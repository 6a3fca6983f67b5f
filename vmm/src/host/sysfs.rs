// SPDX-License-Identifier: Apache-2.0
//! Reads what placement must know of the running host into a [`Capture`], from which [`topology::host`] is built.
//!
//! Files are read through a function that is handed in, so that a container's half-empty sysfs is as testable as a
//! server's. The kernel writes the same list for every CPU of a group, so a list is read once a group: a start on a host
//! of 128 CPUs should not wait for two thousand files. Invariant: a file that is missing is not captured, and what that
//! means is for [`topology::host`] to say.

use std::fs::File;
use std::io::{self, Read};

use topology::cpu_set::CpuSet;
use topology::host::{Capture, HostError, HostTopology, path};
use topology::id::{HostCpu, HostNode};

use super::affinity;

/// Reads a small file as text.
pub type ReadText<'a> = &'a dyn Fn(&str) -> io::Result<String>;

const CPU: &str = "devices/system/cpu";
const NODE: &str = "devices/system/node";
/// Highest cache index that is looked at; x86 has `index0` to `index3`, level 1 first.
const CACHES: usize = 5;

/// The host as it is now, seen with the calling thread's affinity.
///
/// # Errors
/// [`HostError`] if sysfs contradicts itself or nothing is left to run on.
pub fn host() -> Result<HostTopology, HostError> {
    HostTopology::from_capture(&capture(&read_small, affinity::of_this_thread().ok().as_ref())?)
}

/// Which CPUs there are and which may be used, of the host as it is now; nothing of its shape.
///
/// # Errors
/// As of [`host`].
pub fn limits() -> Result<HostTopology, HostError> {
    HostTopology::from_capture(&capture_limits(&read_small, affinity::of_this_thread().ok().as_ref())?.capture)
}

/// Captures the host that `read` shows; `affinity` is that of the process, if known.
///
/// # Errors
/// [`HostError::CaptureTooLarge`] for a host beyond all limits.
pub fn capture(read: ReadText<'_>, affinity: Option<&CpuSet<HostCpu>>) -> Result<Capture, HostError> {
    let mut reading = capture_limits(read, affinity)?;
    reading.file_at(path::ITMT_ENABLED, "/proc/sys/kernel/sched_itmt_enabled")?;
    let online: CpuSet<HostCpu> =
        reading.capture.get(&format!("{CPU}/online")).and_then(|text| text.parse().ok()).unwrap_or_default();
    let cpus = if online.is_empty() { affinity.cloned().unwrap_or_default() } else { online };
    reading.cpus(&cpus)?;
    // A list of nodes has the format of a list of CPUs.
    let nodes = reading.read(&format!("/sys/{NODE}/online")).and_then(|text| text.parse::<CpuSet<HostNode>>().ok());
    for node in nodes.unwrap_or_default().iter() {
        for file in ["cpulist", "distance", "meminfo"] {
            reading.file(&format!("{NODE}/node{node}/{file}"))?;
        }
    }
    Ok(reading.capture)
}

fn capture_limits<'a>(read: ReadText<'a>, affinity: Option<&CpuSet<HostCpu>>) -> Result<Reading<'a>, HostError> {
    let mut reading = Reading { read, capture: Capture::default() };
    if let Some(cpus) = affinity {
        reading.capture.insert(path::AFFINITY, &cpus.to_string())?;
    }
    reading.own_limits()?;
    reading.file(&format!("{CPU}/online"))?;
    reading.file(&format!("{CPU}/isolated"))?;
    Ok(reading)
}

/// Where the cpuset of a process is shown, nearest first: its own cgroup, then those above it, which hold where a
/// cgroup has no cpuset of its own. From `/proc/self/cgroup` (cgroups(7)).
fn cpuset_files(cgroups: &str) -> Vec<String> {
    let field = |line: &str| -> Option<(String, String, &'static str)> {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let path = path.trim_end_matches('/').to_owned();
        match controllers.split(',').any(|name| name == "cpuset") {
            true => Some(("/sys/fs/cgroup/cpuset".to_owned(), path, "cpuset.effective_cpus")),
            false if number == "0" => Some(("/sys/fs/cgroup".to_owned(), path, "cpuset.cpus.effective")),
            false => None,
        }
    };
    let mut files = Vec::new();
    for (root, path, file) in cgroups.lines().filter_map(field) {
        let mut path = path.as_str();
        files.push(format!("{root}{path}/{file}"));
        while let Some((above, _)) = path.rsplit_once('/') {
            path = above;
            files.push(format!("{root}{path}/{file}"));
        }
    }
    files
}

/// What tells cheaply whether the host has changed: the online CPUs, and the process's cpuset.
#[must_use]
pub fn signature(read: ReadText<'_>) -> (Option<String>, Option<String>) {
    let text = |path: &str| read(path).ok().map(|text| text.trim().to_owned());
    let cgroups = text("/proc/self/cgroup").unwrap_or_default();
    (text(&format!("/sys/{CPU}/online")), cpuset_files(&cgroups).iter().find_map(|path| text(path)))
}

struct Reading<'a> {
    read: ReadText<'a>,
    capture: Capture,
}

impl Reading<'_> {
    fn read(&self, path: &str) -> Option<String> {
        (self.read)(path).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// Captures one file under another name; whether it was there.
    fn file_at(&mut self, name: &str, path: &str) -> Result<bool, HostError> {
        let Some(text) = self.read(path) else { return Ok(false) };
        self.capture.insert(name, &text)?;
        Ok(true)
    }

    fn file(&mut self, path: &str) -> Result<bool, HostError> {
        self.file_at(path, &format!("/sys/{path}"))
    }

    fn own_limits(&mut self) -> Result<(), HostError> {
        let cgroups = self.read("/proc/self/cgroup").unwrap_or_default();
        for file in cpuset_files(&cgroups) {
            if self.file_at(path::CPUSET, &file)? {
                break;
            }
        }
        let status = self.read("/proc/self/status").unwrap_or_default();
        let mems = status.lines().find_map(|line| line.strip_prefix("Mems_allowed_list:")).map(str::trim);
        mems.map_or(Ok(()), |mems| self.capture.insert(path::MEMS, mems))
    }

    fn cpus(&mut self, cpus: &CpuSet<HostCpu>) -> Result<(), HostError> {
        for (file, other) in [
            ("package_cpus_list", Some("core_siblings_list")),
            ("die_cpus_list", None),
            ("cluster_cpus_list", None),
            ("core_cpus_list", Some("thread_siblings_list")),
        ] {
            self.groups(cpus, &|cpu| format!("{CPU}/cpu{cpu}/topology/{file}"))?;
            if let Some(other) = other
                && cpus
                    .lowest()
                    .is_some_and(|cpu| self.capture.get(&format!("{CPU}/cpu{cpu}/topology/{file}")).is_none())
            {
                self.groups(cpus, &|cpu| format!("{CPU}/cpu{cpu}/topology/{other}"))?;
            }
        }
        for index in 0..CACHES {
            self.caches(cpus, index)?;
        }
        for file in [
            "cpufreq/amd_pstate_prefcore_ranking",
            "acpi_cppc/highest_perf",
            "cpu_capacity",
            "cpufreq/cpuinfo_max_freq",
        ] {
            for cpu in cpus.iter() {
                // A preference that the first CPU does not have is one that the machine does not have.
                if !self.file(&format!("{CPU}/cpu{cpu}/{file}"))? && Some(cpu) == cpus.lowest() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Captures a list that every CPU has, reading it once for all CPUs it names.
    fn groups(&mut self, cpus: &CpuSet<HostCpu>, name: &dyn Fn(HostCpu) -> String) -> Result<(), HostError> {
        let mut left = cpus.clone();
        while let Some(first) = left.lowest() {
            let path = name(first);
            let mut group: CpuSet<HostCpu> = std::iter::once(first).collect();
            if let Some(text) = self.read(&format!("/sys/{path}")) {
                let named: CpuSet<HostCpu> = text.parse().unwrap_or_default();
                group = group.union(&named.intersection(&left));
                for cpu in group.iter() {
                    self.capture.insert(&name(cpu), &text)?;
                }
            }
            left = left.difference(&group);
        }
        Ok(())
    }

    /// Captures the caches of one index, but for those of level 1: they are never the last, nor a cluster's.
    fn caches(&mut self, cpus: &CpuSet<HostCpu>, index: usize) -> Result<(), HostError> {
        let directory = |cpu: HostCpu| format!("{CPU}/cpu{cpu}/cache/index{index}");
        let Some(first) = cpus.lowest() else { return Ok(()) };
        if self.read(&format!("/sys/{}/level", directory(first))).is_some_and(|level| level == "1") {
            return Ok(());
        }
        self.groups(cpus, &|cpu| format!("{}/shared_cpu_list", directory(cpu)))?;
        let mut known: Vec<(String, [Option<String>; 2])> = Vec::new();
        for cpu in cpus.iter() {
            let directory = directory(cpu);
            let Some(shared) = self.capture.get(&format!("{directory}/shared_cpu_list")).map(str::to_owned) else {
                continue;
            };
            if known.last().is_none_or(|(list, _)| *list != shared) {
                let texts = ["level", "type"].map(|file| self.read(&format!("/sys/{directory}/{file}")));
                known.push((shared, texts));
            }
            let texts = known.last().map(|(_, texts)| texts.clone()).unwrap_or_default();
            for (file, text) in ["level", "type"].into_iter().zip(texts) {
                if let Some(text) = text {
                    self.capture.insert(&format!("{directory}/{file}"), &text)?;
                }
            }
        }
        Ok(())
    }
}

/// Reads a file of sysfs or procfs in as few calls as there can be.
///
/// # Errors
/// The kernel's own; `InvalidData` for what is not UTF-8.
pub fn read_small(path: &str) -> io::Result<String> {
    /// More than any file read here.
    const MOST_BYTES: u64 = 1 << 20;
    let mut bytes = Vec::with_capacity(4096);
    File::open(path)?.take(MOST_BYTES).read_to_end(&mut bytes)?;
    String::from_utf8(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use super::*;

    const HOSTS: [&str; 7] = [
        include_str!("../../../resources/hosts/server-2s-128.txt"),
        include_str!("../../../resources/hosts/numa-4.txt"),
        include_str!("../../../resources/hosts/numa-16.txt"),
        include_str!("../../../resources/hosts/laptop-hybrid.txt"),
        include_str!("../../../resources/hosts/clusters-128.txt"),
        include_str!("../../../resources/hosts/holes.txt"),
        include_str!("../../../resources/hosts/vm-2.txt"),
    ];

    /// A captured machine as the files it came from.
    fn files(host: &Capture) -> impl Fn(&str) -> io::Result<String> + '_ {
        |path| {
            let missing = || io::Error::from_raw_os_error(libc::ENOENT);
            let text = match path {
                "/sys/devices/system/node/online" => {
                    let nodes: CpuSet<HostNode> =
                        host.numbers("devices/system/node/node").into_iter().map(HostNode).collect();
                    return if nodes.is_empty() { Err(missing()) } else { Ok(nodes.to_string()) };
                }
                "/proc/self/cgroup" if host.get(path::CPUSET).is_some() => return Ok("0::/vm\n".to_owned()),
                "/sys/fs/cgroup/vm/cpuset.cpus.effective" => host.get(path::CPUSET),
                "/proc/sys/kernel/sched_itmt_enabled" => host.get(path::ITMT_ENABLED),
                _ => path.strip_prefix("/sys/").and_then(|path| host.get(path)),
            };
            text.map(|text| format!("{text}\n")).ok_or_else(missing)
        }
    }

    #[test]
    fn a_machine_read_from_its_files_is_the_machine_of_the_fixture() {
        for text in HOSTS {
            let fixture = Capture::parse(text).expect("a fixture");
            let affinity = fixture.get(path::AFFINITY).map(|list| list.parse().expect("a list"));
            let read = capture(&files(&fixture), affinity.as_ref()).expect("fits");
            assert_eq!(HostTopology::from_capture(&read), HostTopology::from_capture(&fixture), "{text:.80}");
        }
    }

    #[test]
    fn a_server_of_128_cpus_is_read_in_few_files() {
        let fixture = Capture::parse(HOSTS[0]).expect("a fixture");
        let all = files(&fixture);
        let opened = RefCell::new(0);
        let count = |path: &str| {
            *opened.borrow_mut() += 1;
            all(path)
        };
        capture(&count, None).expect("fits");
        assert!(*opened.borrow() < 1000, "{} files", opened.borrow());
    }

    #[test]
    fn a_container_without_sysfs_still_has_its_affinity() {
        let nothing = |_: &str| Err(io::Error::from_raw_os_error(libc::ENOENT));
        let affinity: CpuSet<HostCpu> = "2-3".parse().expect("a list");
        let host = HostTopology::from_capture(&capture(&nothing, Some(&affinity)).expect("small")).expect("a host");
        assert_eq!(host.usable(), &affinity);
        assert!(!host.degradations().is_empty());
        assert_eq!(HostTopology::from_capture(&capture(&nothing, None).expect("small")), Err(HostError::NoCpus));
    }

    #[test]
    fn empty_files_count_as_missing_and_garbage_is_named() {
        let affinity = CpuSet::first(2);
        let empty = |_: &str| Ok("\n".to_owned());
        assert!(HostTopology::from_capture(&capture(&empty, Some(&affinity)).expect("small")).is_ok());
        let garbage = |_: &str| Ok("\u{fffd} -1".to_owned());
        let error = HostTopology::from_capture(&capture(&garbage, Some(&affinity)).expect("small")).unwrap_err();
        assert!(matches!(error, HostError::BadList { .. }), "{error}");
    }

    #[test]
    fn the_cpuset_is_looked_for_from_the_own_cgroup_upwards() {
        assert_eq!(
            cpuset_files("0::/a/b\n"),
            ["/a/b", "/a", ""].map(|path| format!("/sys/fs/cgroup{path}/cpuset.cpus.effective"))
        );
        assert_eq!(cpuset_files("3:cpuset:/x\n1:cpu:/y\n")[0], "/sys/fs/cgroup/cpuset/x/cpuset.effective_cpus");
        assert_eq!(cpuset_files("garbage\n::\n"), [""; 0]);
    }

    #[test]
    fn this_host_can_be_read() {
        let host = host().expect("a host that runs tests is consistent");
        let names: BTreeSet<_> = host.usable().iter().collect();
        assert!(names.iter().all(|cpu| affinity::of_this_thread().expect("readable").contains(*cpu)));
    }
}
