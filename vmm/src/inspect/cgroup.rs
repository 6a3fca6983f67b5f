// SPDX-License-Identifier: Apache-2.0
//! Which CPUs and memory nodes the kernel lets this process use, and by which kind of cgroup. Judged on text.

use super::{Finding, ReadText};

pub(super) fn inspect(read: ReadText<'_>) -> Vec<Finding> {
    let cgroup = match read("/proc/self/cgroup") {
        Ok(text) => version(&text),
        Err(error) => Finding::unknown("cgroup.version", format!("/proc/self/cgroup: {error}")),
    };
    let (cpus, nodes) = match read("/proc/self/status") {
        Ok(status) => (
            allowed("cgroup.cpus", &status, "Cpus_allowed_list:"),
            allowed("cgroup.memory_nodes", &status, "Mems_allowed_list:"),
        ),
        Err(error) => {
            let reason = format!("/proc/self/status: {error}");
            (Finding::unknown("cgroup.cpus", reason.clone()), Finding::unknown("cgroup.memory_nodes", reason))
        }
    };
    vec![cgroup, cpuset(read), cpus, nodes]
}

/// From `/proc/self/cgroup`: lines of `hierarchy:controllers:path`, hierarchy 0 being version 2 (cgroups(7)).
fn version(text: &str) -> Finding {
    const KEY: &str = "cgroup.version";
    let mut lines = text.lines().map(|line| line.splitn(3, ':'));
    let (mut unified, mut legacy) = (None, false);
    for line in lines.by_ref() {
        match line.collect::<Vec<_>>()[..] {
            ["0", "", path] => unified = Some(path),
            [_, _, _] => legacy = true,
            _ => {}
        }
    }
    match (unified, legacy) {
        (Some(path), false) => Finding::yes(KEY, format!("version 2, in {path}")),
        (Some(path), true) => Finding::yes(KEY, format!("versions 1 and 2 side by side, in {path} of version 2")),
        (None, true) => Finding::yes(KEY, "version 1"),
        (None, false) => Finding::unknown(KEY, "/proc/self/cgroup names none"),
    }
}

/// Whether there is a cpuset to obey beside the affinity mask.
fn cpuset(read: ReadText<'_>) -> Finding {
    const KEY: &str = "cgroup.cpuset";
    match read("/proc/self/cpuset") {
        Ok(path) => Finding::yes(KEY, format!("this process is in the cpuset {path}")),
        Err(error) => Finding::unknown(KEY, format!("/proc/self/cpuset: {error}: the affinity mask alone counts")),
    }
}

fn allowed(key: &'static str, status: &str, field: &str) -> Finding {
    match status.lines().find_map(|line| line.strip_prefix(field)).map(str::trim) {
        Some("") => Finding::no(key, "none", "give the process's cpuset at least one"),
        Some(list) => Finding::yes(key, list),
        None => Finding::unknown(key, format!("/proc/self/status has no {field}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::Answer;

    #[test]
    fn versions_are_told_apart() {
        assert_eq!(version("0::/user.slice").detail, "version 2, in /user.slice");
        assert_eq!(version("2:cpu,cpuacct:/a:b\n1:cpuset:/").detail, "version 1");
        assert_eq!(version("1:cpuset:/\n0::/x").detail, "versions 1 and 2 side by side, in /x of version 2");
        assert_eq!(version("garbage").answer, Answer::Unknown);
    }

    #[test]
    fn the_allowed_list_is_shown_as_the_kernel_writes_it() {
        let status = "Name:\tvmm\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1\n";
        assert_eq!(allowed("cgroup.cpus", status, "Cpus_allowed_list:").detail, "0-1");
        assert_eq!(allowed("cgroup.cpus", status, "Mems_allowed_list:").answer, Answer::Unknown);
        assert_eq!(allowed("cgroup.cpus", "Cpus_allowed_list:\t\n", "Cpus_allowed_list:").answer, Answer::No);
    }
}
