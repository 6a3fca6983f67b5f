// SPDX-License-Identifier: Apache-2.0
//! APIC ids: those of CPUID, MADT and SRAT are the same, each once, in the form that Linux takes.
//!
//! arch/x86/kernel/acpi/boot.c (`acpi_parse_lapic`, `acpi_parse_x2apic`), arch/x86/mm/srat.c.

use std::collections::{BTreeMap, BTreeSet};

use super::{Evidence, Finding};
use crate::acpi::decode::{ApicForm, SratCpu};
use crate::apic::XAPIC_MAX_ID;
use crate::id::{ApicId, NodeId, VcpuIndex};

/// The node that Linux puts each CPU on: the SRAT's. A CPU that is not there, a finding anyway, counts as node 0's
/// (Linux deals such CPUs to the nodes in turn: `numa_init_array`, arch/x86/mm/numa.c).
pub(super) fn nodes(evidence: &Evidence<'_>) -> Vec<NodeId> {
    let srat: BTreeMap<ApicId, NodeId> = srat_cpus(evidence).iter().map(|cpu| (cpu.apic_id, cpu.node)).collect();
    evidence.seen.cpus.iter().map(|cpu| srat.get(&cpu.apic_id).copied().unwrap_or(NodeId(0))).collect()
}

/// The CPUs with the numbers that we and Linux give them.
pub(super) fn numbered<'a>(evidence: &Evidence<'a>) -> impl Iterator<Item = (VcpuIndex, ApicId)> + use<'a> {
    (0..).map(VcpuIndex).zip(&evidence.seen.cpus).map(|(cpu, seen)| (cpu, seen.apic_id))
}

pub(super) fn check(evidence: &Evidence<'_>, findings: &mut Vec<Finding>) {
    check_madt(evidence, findings);
    check_srat(evidence, findings);
    check_packages(evidence, findings);
}

fn srat_cpus<'a>(evidence: &Evidence<'a>) -> &'a [SratCpu] {
    evidence.acpi.srat.as_ref().map_or(&[], |srat| &srat.cpus)
}

fn check_madt(evidence: &Evidence<'_>, findings: &mut Vec<Finding>) {
    let known: BTreeSet<ApicId> = numbered(evidence).map(|(_, id)| id).collect();
    let has_local_apics = evidence.acpi.madt.cpus.iter().any(|cpu| cpu.form == ApicForm::XApic);
    let mut places: BTreeMap<ApicId, usize> = BTreeMap::new();
    let mut uids = BTreeSet::new();
    for (place, entry) in evidence.acpi.madt.cpus.iter().enumerate() {
        let apic_id = entry.apic_id;
        if places.insert(apic_id, place).is_some() {
            findings.push(Finding::MadtIdTwice { apic_id });
        } else if !known.contains(&apic_id) {
            findings.push(Finding::MadtCpuUnknown { apic_id });
        }
        if !uids.insert(entry.uid) {
            findings.push(Finding::MadtUidTwice { uid: entry.uid });
        }
        if entry.form == ApicForm::X2Apic && apic_id.0 <= XAPIC_MAX_ID && has_local_apics {
            findings.push(Finding::MadtForm { apic_id });
        }
        if !entry.enabled {
            findings.push(Finding::MadtDisabled { apic_id });
        }
    }
    for (cpu, apic_id) in numbered(evidence) {
        match places.get(&apic_id) {
            None => findings.push(Finding::CpuNotInMadt { cpu, apic_id }),
            Some(place) if *place != cpu.index() => findings.push(Finding::MadtOrder { cpu, place: *place }),
            Some(_) => {}
        }
    }
}

fn check_srat(evidence: &Evidence<'_>, findings: &mut Vec<Finding>) {
    // A machine without an SRAT is one node; there is nothing to compare.
    if evidence.acpi.srat.is_none() {
        return;
    }
    let known: BTreeSet<ApicId> = numbered(evidence).map(|(_, id)| id).collect();
    let forms: BTreeMap<ApicId, ApicForm> =
        evidence.acpi.madt.cpus.iter().map(|entry| (entry.apic_id, entry.form)).collect();
    let mut placed = BTreeSet::new();
    for SratCpu { apic_id, form, node } in srat_cpus(evidence).iter().copied() {
        if !placed.insert(apic_id) {
            findings.push(Finding::SratCpuTwice { apic_id });
        } else if !known.contains(&apic_id) {
            findings.push(Finding::SratCpuUnknown { apic_id, node });
        }
        if forms.get(&apic_id).is_some_and(|madt| *madt != form) {
            findings.push(Finding::SratForm { apic_id });
        }
    }
    let missing = numbered(evidence).filter(|(_, apic_id)| !placed.contains(apic_id));
    findings.extend(missing.map(|(cpu, apic_id)| Finding::CpuNotInSrat { cpu, apic_id }));
}

fn check_packages(evidence: &Evidence<'_>, findings: &mut Vec<Finding>) {
    let packages: BTreeSet<u32> = evidence.seen.cpus.iter().map(|cpu| cpu.position.package).collect();
    let mut expected = 0;
    for package in packages {
        // Names the first of a gap only: ids are 32 bits wide and a gap can be as long.
        if package > expected {
            findings.push(Finding::EmptyPackage { package: expected });
        }
        expected = package.saturating_add(1);
    }
}
