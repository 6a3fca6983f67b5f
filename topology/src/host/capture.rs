// SPDX-License-Identifier: Apache-2.0
//! A machine's sysfs as text: path to content, and the file format that keeps such a capture readable and diffable.
//!
//! `vmm` fills a [`Capture`] from the running host, tests fill one from `resources/hosts/*.txt`, and
//! [`super::HostTopology`] is built from either. A file is a sequence of sections:
//!
//! ```text
//! # anything up to the first section is a comment
//! == devices/system/cpu/online
//! 0-3
//! == devices/system/cpu/cpu[0-1]/topology/core_cpus_list
//! 0-1
//! ```
//!
//! Paths are relative to `/sys`, but for the process's own limits (see [`path`]). One `[list]` in a path stands for
//! every number of the list, so that a file which says the same on 128 CPUs is written once.
//!
//! Invariant: hostile text costs a bounded amount of memory, and what was printed parses back to the same capture.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::HostError;
use crate::cpu_set::{CpuSet, MAX_ID};
use crate::id::HostCpu;

/// Paths that are not below `/sys`, because they are about this process and not about the machine.
pub mod path {
    /// CPUs this process may run on (`Cpus_allowed_list` of `/proc/self/status`, or `sched_getaffinity`), as a list.
    pub const AFFINITY: &str = "self/affinity";
    /// `cpuset.cpus.effective` of this process's cgroup (`cpuset.effective_cpus` in cgroup v1), as a list.
    pub const CPUSET: &str = "self/cpuset";
    /// Nodes this process may allocate from (`Mems_allowed_list` of `/proc/self/status`), as a list.
    pub const MEMS: &str = "self/mems";
    /// `/proc/sys/kernel/sched_itmt_enabled`: 0 when the administrator switched preferred cores off.
    pub const ITMT_ENABLED: &str = "proc/sys/kernel/sched_itmt_enabled";
}

/// Longest capture text that is read, in bytes. A full capture of 1024 CPUs is below 2 MiB.
pub const MAX_TEXT_BYTES: usize = 16 << 20;
/// Most files a capture holds after expansion: 8192 CPUs (x86's largest `NR_CPUS`) with 32 files each.
pub const MAX_FILES: usize = 8192 * 32;
/// Most bytes of content a capture holds after expansion.
pub const MAX_CONTENT_BYTES: usize = 64 << 20;

/// Captured files by path. Content is kept without leading and trailing white space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capture {
    files: BTreeMap<String, String>,
    content_bytes: usize,
}

impl Capture {
    /// Reads the section format.
    ///
    /// # Errors
    /// [`HostError`] if the text is too long, expands to too much, has content before the first section, a header that
    /// does not parse, or the same path twice.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(HostError::CaptureTooLarge { what: "bytes of text", limit: MAX_TEXT_BYTES });
        }
        let mut capture = Self::default();
        let mut section: Option<(usize, &str, String)> = None;
        for (line, text) in (1..).zip(text.lines()) {
            if let Some(header) = text.strip_prefix("== ") {
                capture.close(section.take())?;
                section = Some((line, header.trim(), String::new()));
            } else if let Some((_, _, content)) = &mut section {
                content.push_str(text);
                content.push('\n');
            } else if !(text.trim().is_empty() || text.starts_with('#')) {
                return Err(HostError::TextBeforeSection { line });
            }
        }
        capture.close(section)?;
        Ok(capture)
    }

    /// Adds one file, as the caller read it.
    ///
    /// # Errors
    /// [`HostError::DuplicatePath`] if the path is there already, [`HostError::CaptureTooLarge`] above
    /// [`MAX_FILES`] or [`MAX_CONTENT_BYTES`].
    pub fn insert(&mut self, path: &str, content: &str) -> Result<(), HostError> {
        let content = content.trim();
        self.content_bytes += content.len();
        if self.files.len() >= MAX_FILES {
            return Err(HostError::CaptureTooLarge { what: "files", limit: MAX_FILES });
        }
        if self.content_bytes > MAX_CONTENT_BYTES {
            return Err(HostError::CaptureTooLarge { what: "bytes of content", limit: MAX_CONTENT_BYTES });
        }
        match self.files.insert(path.to_owned(), content.to_owned()) {
            None => Ok(()),
            Some(_) => Err(HostError::DuplicatePath { path: path.to_owned() }),
        }
    }

    /// Content of a file without surrounding white space; `None` if it was not captured or is empty.
    ///
    /// An empty file says as much as a missing one: both happen in containers.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str).filter(|content| !content.is_empty())
    }

    /// Every captured file: path and content, in order of the path.
    pub fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, content)| (path.as_str(), content.as_str()))
    }

    /// Numbers N for which a file `{prefix}N/...` was captured, ascending.
    #[must_use]
    pub fn numbers(&self, prefix: &str) -> Vec<u32> {
        let files = self.files.range(prefix.to_owned()..).take_while(|(path, _)| path.starts_with(prefix));
        let mut numbers: Vec<u32> = files.filter_map(|(path, _)| number_after(path, prefix)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// The section format, with equal files of several CPUs or nodes written once.
    #[must_use]
    pub fn print(&self) -> String {
        let mut sections: BTreeMap<(&str, &str), BTreeMap<&str, Vec<u32>>> = BTreeMap::new();
        for (path, content) in &self.files {
            let (before, number, after) = split_number(path);
            sections.entry((before, after)).or_default().entry(content).or_default().extend(number);
        }
        let mut text = String::new();
        for ((before, after), contents) in sections {
            let sets = contents.into_iter().map(|(text, ids)| (ids.into_iter().map(HostCpu).collect(), text));
            let mut sets: Vec<(CpuSet<HostCpu>, &str)> = sets.collect();
            sets.sort();
            for (ids, content) in sets {
                let numbers = if ids.len() > 1 { format!("[{ids}]") } else { ids.to_string() };
                // Writing to a String cannot fail.
                let _ = writeln!(text, "== {before}{numbers}{after}\n{content}");
            }
        }
        text
    }

    fn close(&mut self, section: Option<(usize, &str, String)>) -> Result<(), HostError> {
        let Some((line, header, content)) = section else { return Ok(()) };
        let bad = || HostError::BadHeader { line, header: header.chars().take(120).collect() };
        if header.is_empty() {
            return Err(bad());
        }
        let Some((before, rest)) = header.split_once('[') else { return self.insert(header, &content) };
        let (list, after) = rest.split_once(']').ok_or_else(bad)?;
        if after.contains(['[', ']']) {
            return Err(bad());
        }
        let numbers: CpuSet<HostCpu> = list.parse().map_err(|_| bad())?;
        for number in numbers.iter() {
            self.insert(&format!("{before}{number}{after}"), &content)?;
        }
        Ok(())
    }
}

fn number_after(path: &str, prefix: &str) -> Option<u32> {
    let (number, _) = path.strip_prefix(prefix)?.split_once('/')?;
    number.parse().ok()
}

/// Splits `a/cpu12/b` into `a/cpu`, 12 and `/b`; only a directory that is `cpu` or `node` with a number counts, and the
/// number must print as it was written.
fn split_number(path: &str) -> (&str, Option<u32>, &str) {
    for name in ["/cpu", "/node"] {
        for (at, _) in path.match_indices(name) {
            let start = at + name.len();
            let rest = &path[start..];
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let number = rest[..digits].parse().ok().filter(|n: &u32| *n <= MAX_ID && n.to_string().len() == digits);
            if number.is_some() && rest[digits..].starts_with('/') {
                return (&path[..start], number, &rest[digits..]);
            }
        }
    }
    (path, None, "")
}
