// SPDX-License-Identifier: Apache-2.0
//! Reads a topology out of CPUID the way Linux does.
//!
//! Written from `arch/x86/kernel/cpu/topology_{common,ext,amd}.c` and `cacheinfo.c` of Linux 6.12 so that it judges the
//! writers instead of repeating them. Levels that Linux does not name itself are taken from what it does use: on AMD the
//! die is what shares an L3, the cluster what shares an L2 that is wider than a core.

use thiserror::Error;

use crate::apic::bits_for;
use crate::cache::CacheSpec;
use crate::cpu_set::CpuSet;
use crate::cpuid::register::get;
use crate::cpuid::{CpuidEntry, Vendor, cache_parameters, find, leaf_b};
use crate::guest::{GuestTopology, Position};
use crate::id::{ApicId, VcpuIndex};

/// A cache as a CPU sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedCache {
    /// What it is.
    pub spec: CacheSpec,
    /// The CPUs that share it, this one among them.
    pub shared_by: CpuSet<VcpuIndex>,
}

/// A CPU as it sees itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedCpu {
    /// Its x2APIC id.
    pub apic_id: ApicId,
    /// Where it sits.
    pub position: Position,
    /// Its caches in the order of CPUID.
    pub caches: Vec<DecodedCache>,
}

/// A machine as its CPUs see it, in the order of the lists that were decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedTopology {
    /// Whose dialect the CPUs speak.
    pub vendor: Vendor,
    /// The CPUs.
    pub cpus: Vec<DecodedCpu>,
}

/// Why a set of CPUID lists describes no machine.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// A leaf that Linux needs is not there or is empty.
    #[error("CPU {cpu} has no CPUID leaf {leaf:#x}: without it Linux cannot place the CPU")]
    MissingLeaf {
        /// The CPU.
        cpu: VcpuIndex,
        /// The leaf.
        leaf: u32,
    },
    /// Two leaves state different ids.
    #[error("CPU {cpu} has APIC id {x2apic} in the topology leaf and {other} in leaf {leaf:#x}: they must agree")]
    IdsDisagree {
        /// The CPU.
        cpu: VcpuIndex,
        /// The id in leaf 0xB or 0x1F.
        x2apic: ApicId,
        /// The leaf that disagrees.
        leaf: u32,
        /// What it states.
        other: ApicId,
    },
    /// Two CPUs have one id.
    #[error("CPUs {first} and {second} both have APIC id {id}: every CPU needs its own")]
    SameId {
        /// A CPU.
        first: VcpuIndex,
        /// Another one.
        second: VcpuIndex,
        /// Their id.
        id: ApicId,
    },
    /// Two CPUs state different fields, other threads a core say; Linux reports a firmware bug.
    #[error("CPU {cpu} states other topology levels than CPU 0: all CPUs of a machine must state the same")]
    LevelsDiffer {
        /// The CPU.
        cpu: VcpuIndex,
    },
    /// Two CPUs state different caches; Linux does not merge their scheduler domains.
    #[error("CPU {cpu} states other caches than CPU 0: all CPUs of a machine must have the same")]
    CachesDiffer {
        /// The CPU.
        cpu: VcpuIndex,
    },
}

/// Shifts to the lowest bit of each field of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shifts {
    core: u32,
    cluster: u32,
    die: u32,
    package: u32,
}

impl Shifts {
    /// Each level at least as far left as the one below, as Linux propagates them.
    fn ordered(core: u32, cluster: u32, die: u32, package: u32) -> Self {
        let die = die.min(package);
        let cluster = cluster.min(die);
        Self { core: core.min(cluster), cluster, die, package }
    }

    fn position(self, id: ApicId) -> Position {
        let field = |from: u32, to: u32| (id.0 >> from) & ((1 << (to - from)) - 1);
        Position {
            package: id.0 >> self.package,
            die: field(self.die, self.package),
            cluster: field(self.cluster, self.die),
            core: field(self.core, self.cluster),
            thread: field(0, self.core),
        }
    }
}

/// What one CPU states, before it is put beside the others.
struct Stated {
    cpu: VcpuIndex,
    apic_id: ApicId,
    shifts: Shifts,
    /// Each with the number of APIC ids that share it.
    caches: Vec<(CacheSpec, u32)>,
}

/// Decodes the CPUID lists of all CPUs of a machine.
///
/// # Errors
/// What would make Linux report a firmware bug or misplace a CPU.
pub fn decode(cpus: &[Vec<CpuidEntry>]) -> Result<DecodedTopology, DecodeError> {
    let vendor = cpus.first().map_or(Vendor::Intel, |entries| Vendor::of(entries));
    let numbered = (0..).map(VcpuIndex).zip(cpus);
    let stated = numbered.map(|(cpu, entries)| state(vendor, cpu, entries)).collect::<Result<Vec<_>, _>>()?;
    check_alike(&stated)?;
    let ids: Vec<ApicId> = stated.iter().map(|cpu| cpu.apic_id).collect();
    check_unique(&ids)?;
    let decoded = |Stated { apic_id, shifts, caches, .. }: Stated| DecodedCpu {
        apic_id,
        position: shifts.position(apic_id),
        caches: caches.into_iter().map(|(spec, sharing)| shared(spec, sharing, apic_id, &ids)).collect(),
    };
    Ok(DecodedTopology { vendor, cpus: stated.into_iter().map(decoded).collect() })
}

fn state(vendor: Vendor, cpu: VcpuIndex, entries: &[CpuidEntry]) -> Result<Stated, DecodeError> {
    let (apic_id, shifts) = match vendor {
        Vendor::Intel => intel(cpu, entries)?,
        Vendor::Amd => amd(cpu, entries)?,
    };
    check_leaf_1(cpu, entries, apic_id)?;
    Ok(Stated { cpu, apic_id, shifts, caches: cache_parameters::read(entries, vendor) })
}

fn check_alike(stated: &[Stated]) -> Result<(), DecodeError> {
    let Some((first, rest)) = stated.split_first() else {
        return Ok(());
    };
    for Stated { cpu, shifts, caches, .. } in rest {
        if *shifts != first.shifts {
            return Err(DecodeError::LevelsDiffer { cpu: *cpu });
        }
        if *caches != first.caches {
            return Err(DecodeError::CachesDiffer { cpu: *cpu });
        }
    }
    Ok(())
}

/// `get_cache_id`: CPUs whose ids agree above the rounded-up logarithm of the number that share.
fn shared(spec: CacheSpec, sharing: u32, id: ApicId, ids: &[ApicId]) -> DecodedCache {
    let bits = bits_for(sharing);
    let same = |other: &ApicId| other.0 >> bits == id.0 >> bits;
    let shared_by = (0..).map(VcpuIndex).zip(ids).filter(|(_, other)| same(other)).map(|(cpu, _)| cpu).collect();
    DecodedCache { spec, shared_by }
}

fn check_unique(ids: &[ApicId]) -> Result<(), DecodeError> {
    let mut sorted: Vec<(ApicId, VcpuIndex)> = ids.iter().copied().zip((0..).map(VcpuIndex)).collect();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(DecodeError::SameId { first: pair[0].1, second: pair[1].1, id: pair[0].0 }),
        None => Ok(()),
    }
}

fn check_leaf_1(cpu: VcpuIndex, entries: &[CpuidEntry], id: ApicId) -> Result<(), DecodeError> {
    let leaf = find(entries, 1, 0).ok_or(DecodeError::MissingLeaf { cpu, leaf: 1 })?;
    let initial = get(leaf.ebx, 31, 24);
    if initial == id.0 & 0xFF {
        return Ok(());
    }
    Err(DecodeError::IdsDisagree { cpu, x2apic: id, leaf: 1, other: ApicId(initial) })
}

/// One level of leaf 0xB or 0x1F: type and shift.
fn levels(entries: &[CpuidEntry], function: u32) -> Option<(ApicId, Vec<(u32, u32)>)> {
    let max_leaf = find(entries, 0, 0)?.eax;
    let first = find(entries, function, 0).filter(|leaf| max_leaf >= function && leaf.ebx != 0)?;
    let level = |index| {
        let leaf = find(entries, function, index)?;
        let (kind, shift) = (get(leaf.ecx, 15, 8), get(leaf.eax, 4, 0));
        (kind != 0 && leaf.ebx != 0).then_some((kind, shift))
    };
    Some((ApicId(first.edx), (0..8).map_while(level).collect()))
}

/// `cpu_parse_topology_ext`: leaf 0x1F if it has anything, else 0xB.
fn intel(cpu: VcpuIndex, entries: &[CpuidEntry]) -> Result<(ApicId, Shifts), DecodeError> {
    let (id, levels) =
        levels(entries, 0x1F).or_else(|| levels(entries, 0xB)).ok_or(DecodeError::MissingLeaf { cpu, leaf: 0xB })?;
    let shift_of = |kind| levels.iter().find(|level| level.0 == kind).map(|level| level.1);
    // `topology_set_dom`: a level that is not stated is as wide as the one below it.
    let smt = shift_of(leaf_b::SMT).unwrap_or(0);
    let core = shift_of(leaf_b::CORE).unwrap_or(smt);
    let module = shift_of(leaf_b::MODULE).unwrap_or(core);
    let package = shift_of(leaf_b::DIE).unwrap_or(module);
    Ok((id, Shifts::ordered(smt, core, module, package)))
}

/// `parse_topology_amd`: leaf 0xB for thread and package, 0x8000001E for the id, caches for what is between.
fn amd(cpu: VcpuIndex, entries: &[CpuidEntry]) -> Result<(ApicId, Shifts), DecodeError> {
    let (id, levels) = levels(entries, 0xB).ok_or(DecodeError::MissingLeaf { cpu, leaf: 0xB })?;
    let missing = DecodeError::MissingLeaf { cpu, leaf: 0x8000_001E };
    let extended = find(entries, 0x8000_001E, 0).filter(|_| has_topology_extensions(entries)).ok_or(missing)?;
    if extended.eax != id.0 {
        let other = ApicId(extended.eax);
        return Err(DecodeError::IdsDisagree { cpu, x2apic: id, leaf: 0x8000_001E, other });
    }
    let shift_of = |kind| levels.iter().find(|level| level.0 == kind).map(|level| level.1);
    let smt = shift_of(leaf_b::SMT).unwrap_or(0);
    let package = shift_of(leaf_b::CORE).unwrap_or(smt);
    let caches = cache_parameters::read(entries, Vendor::Amd);
    let sharing_bits = |level| caches.iter().find(|(cache, _)| cache.level == level).map(|(_, ids)| bits_for(*ids));
    let node_bits = bits_for(get(extended.ecx, 10, 8) + 1);
    let die = sharing_bits(3).unwrap_or(package.saturating_sub(node_bits));
    let cluster = sharing_bits(2).filter(|&bits| bits > smt).unwrap_or(die);
    Ok((id, Shifts::ordered(smt, cluster, die, package)))
}

fn has_topology_extensions(entries: &[CpuidEntry]) -> bool {
    let max_leaf = find(entries, 0x8000_0000, 0).map_or(0, |leaf| leaf.eax);
    let features = find(entries, 0x8000_0001, 0).map_or(0, |leaf| leaf.ecx);
    max_leaf >= 0x8000_001E && get(features, 22, 22) == 1
}

impl DecodedTopology {
    /// What the CPUs of a machine should see of it.
    ///
    /// The machine itself, but for clusters of one core on AMD: no leaf tells them from cores.
    #[must_use]
    pub fn expected(machine: &GuestTopology, vendor: Vendor) -> Self {
        let shape = machine.shape();
        let l2_is_stated = machine.caches().iter().any(|cache| cache.level == 2);
        let clusters_show = vendor == Vendor::Intel || (shape.cores > 1 && l2_is_stated);
        let (core_shift, cluster_shift) = (machine.apic_layout().core_shift(), machine.apic_layout().cluster_shift());
        let seen = |position: Position| {
            if clusters_show {
                return position;
            }
            let core = (position.cluster << (cluster_shift - core_shift)) | position.core;
            Position { cluster: 0, core, ..position }
        };
        let cpu = |cpu| DecodedCpu {
            apic_id: machine.apic_id(cpu),
            position: seen(machine.position(cpu)),
            caches: machine
                .caches()
                .iter()
                .map(|&spec| DecodedCache { spec, shared_by: machine.siblings(cpu, machine.cache_scope(&spec)) })
                .collect(),
        };
        Self { vendor, cpus: machine.vcpus().map(cpu).collect() }
    }
}
