// SPDX-License-Identifier: Apache-2.0
//! Leaves 0xB and 0x1F: the fields of an x2APIC id, level by level.
//!
//! 0xB knows threads and cores only, so its core level reaches up to the package; 0x1F adds modules (a cluster here) and
//! dies, and is preferred by Linux where it exists. Counts in EBX are those of the largest package on every vCPU: the
//! SDM has them describe the part as made, and software must not derive ids from them.
//!
//! Linux before 6.9 takes everything between core level and package for the die number, so there a guest with several
//! dies *and* several clusters counts each cluster as a die in sysfs (`detect_extended_topology`); its scheduler levels,
//! which come from leaf 4, are right all the same.

use crate::cpuid::CpuidEntry;
use crate::cpuid::register::set;
use crate::guest::GuestTopology;
use crate::id::VcpuIndex;

/// Level types (SDM, leaf 1FH, "Domain Type").
pub(super) const SMT: u32 = 1;
/// See [`SMT`].
pub(super) const CORE: u32 = 2;
/// See [`SMT`].
pub(super) const MODULE: u32 = 3;
/// See [`SMT`].
pub(super) const DIE: u32 = 5;

/// One level of a leaf.
struct Level {
    kind: u32,
    /// Bits of the id right of the next level's number.
    shift: u32,
    /// Logical processors in one unit of the next level.
    cpus: u32,
}

/// Makes room for leaf 0xB, and for 0x1F when levels are asked for that only it knows. Returns the highest leaf.
pub(super) fn raise_max_leaf(leaf_0: &mut CpuidEntry, machine: &GuestTopology) -> u32 {
    let needs_1f = machine.shape().dies > 1 || machine.shape().clusters > 1;
    // CPUID.00H:EAX: highest basic leaf.
    leaf_0.eax = leaf_0.eax.max(if needs_1f { 0x1F } else { 0xB });
    leaf_0.eax
}

/// Leaf 0xB: threads, and all above them as cores.
pub(super) fn leaf_b(machine: &GuestTopology, cpu: VcpuIndex) -> Vec<CpuidEntry> {
    let (shape, layout) = (machine.shape(), machine.apic_layout());
    let levels = [
        Level { kind: SMT, shift: layout.core_shift(), cpus: shape.threads },
        Level { kind: CORE, shift: layout.package_shift(), cpus: shape.package_cpus() },
    ];
    entries(0xB, &levels, machine.apic_id(cpu).0)
}

/// Leaf 0x1F: threads, cores, and modules and dies where there are several.
pub(super) fn leaf_1f(machine: &GuestTopology, cpu: VcpuIndex) -> Vec<CpuidEntry> {
    let (shape, layout) = (machine.shape(), machine.apic_layout());
    let mut levels = vec![
        Level { kind: SMT, shift: layout.core_shift(), cpus: shape.threads },
        Level { kind: CORE, shift: layout.cluster_shift(), cpus: shape.cluster_cpus() },
    ];
    if shape.clusters > 1 {
        levels.push(Level { kind: MODULE, shift: layout.die_shift(), cpus: shape.die_cpus() });
    }
    if shape.dies > 1 {
        levels.push(Level { kind: DIE, shift: layout.package_shift(), cpus: shape.package_cpus() });
    }
    entries(0x1F, &levels, machine.apic_id(cpu).0)
}

fn entries(function: u32, levels: &[Level], x2apic_id: u32) -> Vec<CpuidEntry> {
    // A level of type 0 with no processors ends the list.
    let end = Level { kind: 0, shift: 0, cpus: 0 };
    (0..).zip(levels.iter().chain([&end])).map(|(index, level)| subleaf(function, index, level, x2apic_id)).collect()
}

fn subleaf(function: u32, index: u32, level: &Level, x2apic_id: u32) -> CpuidEntry {
    let mut leaf = CpuidEntry { function, index, indexed: true, ..CpuidEntry::default() };
    // CPUID.(EAX=0BH/1FH,ECX=n):EAX[4:0]: bits to shift the id right for the number of the next level.
    set(&mut leaf.eax, 4, 0, level.shift);
    // EBX[15:0]: logical processors in one unit of the next level.
    set(&mut leaf.ebx, 15, 0, level.cpus);
    // ECX[7:0]: the subleaf asked for. ECX[15:8]: type of the level.
    set(&mut leaf.ecx, 7, 0, index);
    set(&mut leaf.ecx, 15, 8, level.kind);
    // EDX[31:0]: x2APIC id of this logical processor, in every subleaf.
    leaf.edx = x2apic_id;
    leaf
}
