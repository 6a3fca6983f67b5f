// SPDX-License-Identifier: Apache-2.0
//! `vmm host` for people. Pure.

use std::fmt::Write;

use super::{Answer, Finding, HostCpus, HostInspection};
use crate::config::ByteSize;

pub(super) fn text(inspection: &HostInspection) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_all(&mut out, inspection);
    out
}

fn write_all(out: &mut String, inspection: &HostInspection) -> std::fmt::Result {
    writeln!(out, "kernel   {}", inspection.kernel.as_deref().unwrap_or("unknown"))?;
    write_cpus(out, &inspection.cpus)?;
    let width = inspection.findings.iter().map(|finding| finding.key.len()).max().unwrap_or(0);
    let mut group = "";
    for finding in &inspection.findings {
        let this_group = finding.key.split('.').next().unwrap_or_default();
        if this_group != group {
            writeln!(out)?;
            group = this_group;
        }
        write_finding(out, finding, width)?;
    }
    Ok(())
}

fn write_finding(out: &mut String, finding: &Finding, width: usize) -> std::fmt::Result {
    let answer = match finding.answer {
        Answer::Yes => "yes",
        Answer::No => "no",
        Answer::Unknown => "unknown",
    };
    writeln!(out, "{answer:<7}  {:<width$}  {}", finding.key, finding.detail)?;
    match &finding.remedy {
        Some(remedy) => writeln!(out, "{:9}{:<width$}  -> {remedy}", "", ""),
        None => Ok(()),
    }
}

fn write_cpus(out: &mut String, cpus: &HostCpus) -> std::fmt::Result {
    let count = |number: Option<usize>| number.map_or_else(|| "unknown".to_owned(), |number| number.to_string());
    writeln!(out, "cpu      {}", cpus.model.as_deref().unwrap_or("unknown"))?;
    writeln!(
        out,
        "cpus     {} online: {}, packages {}, cores {}, last-level caches {}",
        count(cpus.online.as_ref().map(|online| online.len())),
        cpus.online.as_ref().map_or_else(|| "unknown".to_owned(), ToString::to_string),
        count(cpus.packages),
        count(cpus.cores),
        count(cpus.last_level_caches),
    )?;
    if cpus.nodes.is_empty() {
        writeln!(out, "node     unknown: the kernel shows no NUMA nodes")?;
    }
    for node in &cpus.nodes {
        let list = node.cpus.as_ref().map_or_else(|| "unknown".to_owned(), ToString::to_string);
        let memory = node.memory_bytes.map_or_else(|| "unknown".to_owned(), |bytes| ByteSize(bytes).to_string());
        let distances: Vec<String> = node.distances.iter().map(ToString::to_string).collect();
        writeln!(out, "node {:<3} cpus [{list}], memory {memory}, distances {}", node.node, distances.join(" "))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_no_is_followed_by_what_to_do() {
        let inspection = HostInspection {
            schema: 1,
            kernel: None,
            kvm: None,
            ring0: None,
            cpus: HostCpus::default(),
            findings: vec![
                Finding::no("kvm.device", "/dev/kvm: not there", "load it"),
                Finding::yes("bpf.btf", "there"),
            ],
        };
        let expected = "\
kernel   unknown
cpu      unknown
cpus     unknown online: unknown, packages unknown, cores unknown, last-level caches unknown
node     unknown: the kernel shows no NUMA nodes

no       kvm.device  /dev/kvm: not there
                     -> load it

yes      bpf.btf     there
";
        assert_eq!(text(&inspection), expected);
    }
}
