// SPDX-License-Identifier: Apache-2.0
//! What this host offers to guests: `vmm host`.
//!
//! Stands beside the flow of a run and starts nothing that stays. Files are read through a function that is handed in,
//! so that every judgement is tested on text; what only the kernel can answer (KVM, perf, BPF) is asked by a throw-away
//! object that is closed before the answer is given. The invariant: nothing here fails. What cannot be found out is
//! reported as unknown, with the reason.

mod bpf;
mod cgroup;
mod cpus;
mod finding;
mod kvm;
mod render;
mod ring0;
mod tracing;

use std::fs;
use std::io::{self, Read};

use serde::Serialize;

pub use cpus::{HostCpus, HostNodeSummary};
pub use finding::{Answer, Finding};
pub use ring0::{Ring0, Ring0Error, Ring0Mode, measure as measure_ring0};

use crate::report::KvmKind;

/// Reads a small file as text, blank space at its ends removed.
pub(crate) type ReadText<'a> = &'a dyn Fn(&str) -> io::Result<String>;

/// Everything `vmm host` tells. Its JSON is this struct; keys are only added to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostInspection {
    /// Version of the document: 1.
    pub schema: u32,
    /// Release of the kernel, as `uname -r` prints it; none if it cannot be read.
    pub kernel: Option<String>,
    /// What virtualises guests here; none if `/dev/kvm` cannot be used.
    pub kvm: Option<KvmKind>,
    /// How guest kernel mode runs; none if it could not be measured.
    pub ring0: Option<Ring0>,
    /// CPUs and nodes of the host.
    pub cpus: HostCpus,
    /// One answer a capability, in the order of the text.
    pub findings: Vec<Finding>,
}

impl HostInspection {
    /// Looks at the host. Takes a few milliseconds, most of them in the throw-away guest.
    #[must_use]
    pub fn of_this_host() -> Self {
        let read: ReadText<'_> = &read_text;
        let kvm = kvm::inspect(read);
        let mut findings = kvm.findings;
        findings.extend(tracing::inspect(read));
        findings.extend(bpf::inspect());
        findings.extend(cgroup::inspect(read));
        Self {
            schema: 1,
            kernel: read("/proc/sys/kernel/osrelease").ok(),
            kvm: kvm.kind,
            ring0: kvm.ring0,
            cpus: HostCpus::from_text(read),
            findings,
        }
    }

    /// For people: a line an answer, and under every no what to do about it.
    #[must_use]
    pub fn to_text(&self) -> String {
        render::text(self)
    }

    /// For programs: this struct as JSON, with a newline at its end.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Strings, numbers and lists only: none of it can fail to be JSON.
        serde_json::to_string_pretty(self).expect("invariant: plain data is JSON") + "\n"
    }
}

fn read_text(path: &str) -> io::Result<String> {
    /// More than any file of sysfs or procfs read here, `/proc/cpuinfo` of a thousand CPUs included.
    const MAX_BYTES: u64 = 4 << 20;
    let mut text = String::new();
    fs::File::open(path)?.take(MAX_BYTES).read_to_string(&mut text)?;
    Ok(text.trim().to_owned())
}

/// For tests: a host made of (path, content); a path that is not there does not exist.
#[cfg(test)]
pub(crate) fn fixture<'a>(files: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> io::Result<String> + 'a {
    |path| {
        let found = files.iter().find(|(name, _)| *name == path);
        found.map(|(_, text)| (*text).to_owned()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_no_says_what_to_do() {
        let nothing = fixture(&[]);
        let findings = [tracing::inspect(&nothing), cgroup::inspect(&nothing)].concat();
        assert!(!findings.is_empty());
        for finding in findings {
            assert_ne!(finding.answer, Answer::Yes, "{}", finding.key);
            assert!(!finding.detail.is_empty(), "{}", finding.key);
            assert!(finding.answer == Answer::Unknown || finding.remedy.is_some(), "{}", finding.key);
        }
    }

    #[test]
    fn keys_are_unique_and_the_json_has_them() {
        let inspection = HostInspection::of_this_host();
        let mut keys: Vec<&str> = inspection.findings.iter().map(|finding| finding.key).collect();
        let count = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), count);
        let json: serde_json::Value = serde_json::from_str(&inspection.to_json()).expect("it is JSON");
        assert_eq!(json["findings"].as_array().map(Vec::len), Some(count));
        let text = inspection.to_text();
        keys.iter().for_each(|key| assert!(text.contains(key), "{key}"));
    }
}
