// SPDX-License-Identifier: Apache-2.0
//! Memory: the SRAT has every byte of it once, on its node, and nothing else.
//!
//! mm/numa_memblks.c (arch/x86/mm/numa.c in 6.1): `numa_cleanup_meminfo` refuses overlaps of different nodes,
//! `numa_meminfo_cover_memory` discards the SRAT when more than 1 MiB of memory is missing.

use super::{Evidence, Finding};
use crate::id::NodeId;
use crate::memory_map::RamRange;

#[derive(Clone, Copy)]
struct Span {
    start: u64,
    end: u64,
    node: NodeId,
}

pub(super) fn check(evidence: &Evidence<'_>, findings: &mut Vec<Finding>) {
    let Some(srat) = &evidence.acpi.srat else { return };
    let mut says: Vec<Span> = srat
        .memory
        .iter()
        .map(|memory| Span {
            start: memory.start,
            end: memory.start.saturating_add(memory.len_bytes),
            node: memory.node,
        })
        .filter(|span| span.start < span.end)
        .collect();
    says.sort_by_key(|span| (span.start, span.end));
    twice(&says, findings);
    for ram in evidence.ram {
        for (start, end) in uncovered(ram.start, ram.end(), says.iter().map(|span| (span.start, span.end))) {
            findings.push(Finding::MemoryNotInSrat { start, end });
        }
    }
    for span in &says {
        against_map(span, evidence.ram, findings);
    }
}

fn twice(says: &[Span], findings: &mut Vec<Finding>) {
    let mut reached = 0;
    for span in says {
        if span.start < reached {
            findings.push(Finding::SratMemoryTwice { start: span.start, end: span.end.min(reached) });
        }
        reached = reached.max(span.end);
    }
}

/// What the memory map has where the SRAT names a range: other nodes' memory, or none.
fn against_map(span: &Span, ram: &[RamRange], findings: &mut Vec<Finding>) {
    for (start, end) in uncovered(span.start, span.end, ram.iter().map(|ram| (ram.start, ram.end()))) {
        findings.push(Finding::SratMemoryUnknown { start, end });
    }
    for ram in ram.iter().filter(|ram| ram.node != span.node) {
        let (start, end) = (span.start.max(ram.start), span.end.min(ram.end()));
        if start < end {
            findings.push(Finding::MemoryNode { start, end, belongs: ram.node, says: span.node });
        }
    }
}

/// The parts of `start..end` that no range covers; the ranges ascend by start.
fn uncovered(start: u64, end: u64, ranges: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut parts = Vec::new();
    let mut at = start;
    for (from, to) in ranges.filter(|(from, to)| *from < end && *to > start) {
        if from > at {
            parts.push((at, from));
        }
        at = at.max(to);
    }
    if at < end {
        parts.push((at, end));
    }
    parts
}
