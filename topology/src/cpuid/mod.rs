// SPDX-License-Identifier: Apache-2.0
//! What CPUID says to a guest about its own shape, and how Linux reads it.
//!
//! [`specialise`] takes the entries that a host supports and rewrites the topology leaves for one vCPU: 1, 4, 0xB, 0x1F
//! for Intel; 1, 0xB, 0x80000001, 0x80000008, 0x8000001D, 0x8000001E for AMD and Hygon. Everything else passes through.
//! [`decode`] is its inverse, written from what Linux 6.1 and 6.12 do with the leaves and not from the writers.
//! Invariant: no leaf of the host's own shape is left, and every vCPU gets the same shape and caches.
//!
//! Sources: "SDM" is the Intel Software Developer's Manual vol. 2A, rev. 083, instruction CPUID; "APM" is the AMD64
//! Architecture Programmer's Manual vol. 3, rev. 3.36, appendix E. Why leaf
//! 0x80000026 is left out stands in `leaf_8000_001e`.

mod cache_parameters;
mod decode;
mod dump;
mod leaf_1;
mod leaf_4;
mod leaf_8000_0001;
mod leaf_8000_0008;
mod leaf_8000_001d;
mod leaf_8000_001e;
mod leaf_b;
mod register;

use crate::guest::GuestTopology;
use crate::id::VcpuIndex;

pub use cache_parameters::host_caches;
pub use decode::{DecodeError, DecodedCache, DecodedCpu, DecodedTopology, decode};
pub use dump::{DumpError, parse_dump, write_dump};
pub use leaf_1::offer_tsc_deadline;

/// One CPUID leaf or subleaf, as `struct kvm_cpuid_entry2` has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuidEntry {
    /// Leaf: EAX on input.
    pub function: u32,
    /// Subleaf: ECX on input; 0 when it has no meaning.
    pub index: u32,
    /// Whether the subleaf has a meaning (`KVM_CPUID_FLAG_SIGNIFCANT_INDEX`).
    pub indexed: bool,
    /// EAX on output.
    pub eax: u32,
    /// EBX on output.
    pub ebx: u32,
    /// ECX on output.
    pub ecx: u32,
    /// EDX on output.
    pub edx: u32,
}

/// Whose dialect of CPUID a CPU speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vendor {
    /// `GenuineIntel`, and those who follow it (Zhaoxin, Centaur).
    Intel,
    /// `AuthenticAMD` and `HygonGenuine`.
    Amd,
}

impl Vendor {
    /// The vendor that leaf 0 names; Intel when there is no leaf 0.
    #[must_use]
    pub fn of(entries: &[CpuidEntry]) -> Self {
        // CPUID.00H:EBX, EDX, ECX: twelve letters.
        let name = |leaf: CpuidEntry| [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes).concat();
        match find(entries, 0, 0).map(name).as_deref() {
            Some(b"AuthenticAMD" | b"HygonGenuine") => Self::Amd,
            _ => Self::Intel,
        }
    }
}

/// Leaves that describe the host's shape and nothing else: never passed through.
const HOST_SHAPE: [u32; 6] = [4, 0xB, 0x1F, 0x8000_001D, 0x8000_001E, 0x8000_0026];

/// The entries of one vCPU: the host's, with the topology leaves rewritten for a machine.
///
/// `host` is what `KVM_GET_SUPPORTED_CPUID` gave, possibly already filtered; its leaf 0 decides the vendor. Leaf 1 also
/// gets the hypervisor bit and x2APIC, which KVM emulates on every host. Panics when the machine has no such CPU, as
/// indexing a slice does.
#[must_use]
pub fn specialise(host: &[CpuidEntry], machine: &GuestTopology, cpu: VcpuIndex) -> Vec<CpuidEntry> {
    let vendor = Vendor::of(host);
    let mut entries: Vec<CpuidEntry> =
        host.iter().copied().filter(|entry| !HOST_SHAPE.contains(&entry.function)).collect();
    leaf_1::write(leaf(&mut entries, 1), machine, cpu, vendor);
    match vendor {
        Vendor::Intel => {
            let highest = leaf_b::raise_max_leaf(leaf(&mut entries, 0), machine);
            entries.extend(leaf_4::entries(machine));
            entries.extend(leaf_b::leaf_b(machine, cpu));
            if highest >= 0x1F {
                entries.extend(leaf_b::leaf_1f(machine, cpu));
            }
        }
        Vendor::Amd => {
            let max_leaf = leaf(&mut entries, 0);
            max_leaf.eax = max_leaf.eax.max(0xB);
            leaf_8000_001e::bound_max_leaf(leaf(&mut entries, 0x8000_0000));
            leaf_8000_0001::write(leaf(&mut entries, 0x8000_0001), machine);
            leaf_8000_001d::write_legacy_l3(leaf(&mut entries, 0x8000_0006), machine);
            leaf_8000_0008::write(leaf(&mut entries, 0x8000_0008), machine);
            entries.extend(leaf_b::leaf_b(machine, cpu));
            entries.extend(leaf_8000_001d::entries(machine));
            entries.push(leaf_8000_001e::entry(machine, cpu));
        }
    }
    entries
}

/// The entry of a leaf that has no subleaves, made when the host has none.
fn leaf(entries: &mut Vec<CpuidEntry>, function: u32) -> &mut CpuidEntry {
    let place = entries.iter().position(|entry| entry.function == function).unwrap_or_else(|| {
        entries.push(CpuidEntry { function, ..CpuidEntry::default() });
        entries.len() - 1
    });
    &mut entries[place]
}

fn find(entries: &[CpuidEntry], function: u32, index: u32) -> Option<CpuidEntry> {
    entries.iter().copied().find(|entry| entry.function == function && (!entry.indexed || entry.index == index))
}

#[cfg(test)]
mod tests;
