// SPDX-License-Identifier: Apache-2.0
//! How much memory guests can still have: of the host, and of the control group that this process is confined to.
//!
//! Linux `Documentation/filesystems/proc.rst`, MemAvailable; `Documentation/admin-guide/cgroup-v2.rst`, memory.max. Groups of
//! version 1 are not asked. Invariant: what cannot be read limits nothing.

use std::fs;
use std::path::Path;

use crate::host;

/// Where groups are.
const GROUPS: &str = "/sys/fs/cgroup";

/// Memory that new programs can have, in MiB; none if the host does not say.
#[must_use]
pub fn available_mib() -> Option<u64> {
    let of_host = host::mib(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable")?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    Some(of_groups(&groups).map_or(of_host, |bytes| of_host.min(bytes >> 20)))
}

/// The least that a group, or any that it is in, has left in bytes.
fn of_groups(membership: &str) -> Option<u64> {
    let path = membership.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let read = |group: &Path, name: &str| fs::read_to_string(group.join(name)).ok();
    let of =
        |group: &Path| left(&read(group, "memory.max")?, &read(group, "memory.current")?, &read(group, "memory.stat")?);
    let group = Path::new(GROUPS).join(path);
    group.ancestors().take_while(|group| group.starts_with(GROUPS)).filter_map(of).min()
}

/// What is left below the limit: files that were not used lately are given up for whoever needs memory.
fn left(max: &str, current: &str, stat: &str) -> Option<u64> {
    let max: u64 = max.trim().parse().ok()?;
    let current: u64 = current.trim().parse().ok()?;
    let given_up = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.trim().parse().ok()).unwrap_or(0);
    Some(max.saturating_sub(current.saturating_sub(given_up)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_the_limit_less_what_is_held() {
        assert_eq!(left("1000\n", "700\n", "anon 1\ninactive_file 300\n"), Some(600));
        assert_eq!(left("1000\n", "1200\n", ""), Some(0));
        assert_eq!(left("max\n", "700\n", ""), None);
        assert_eq!(of_groups("9:name=systemd:/\n4:memory:/x\n"), None);
    }
}
