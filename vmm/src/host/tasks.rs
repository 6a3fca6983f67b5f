// SPDX-License-Identifier: Apache-2.0
//! The threads of this process, as `/proc` lists them.

use std::fs;

/// A thread of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its number.
    pub tid: i32,
    /// Its name, cut to 15 bytes by the kernel; empty for one that has just ended.
    pub name: String,
}

/// All threads of this process; none where `/proc` is not mounted.
#[must_use]
pub fn of_this_process() -> Vec<Task> {
    let Ok(entries) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    let task = |entry: fs::DirEntry| {
        let tid = entry.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        Some(Task { tid, name: name.trim_end().to_owned() })
    };
    entries.flatten().filter_map(task).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_thread_has_the_number_of_the_process() {
        let first = i32::try_from(std::process::id()).unwrap();
        assert!(of_this_process().iter().any(|task| task.tid == first));
    }
}
