// SPDX-License-Identifier: Apache-2.0
//! Where the CPU features that can be left out are in CPUID, by their names in `/proc/cpuinfo`.
//!
//! Source: Intel SDM vol. 2A, CPUID; AMD APM vol. 3, appendix E. Features that the machine itself stands on (APIC, x2APIC,
//! TSC, 64-bit mode and what the ABI of x86-64 takes for granted) are not among them. Pure but for the question what this processor has.

use std::arch::x86_64::{__cpuid, __cpuid_count, CpuidResult};

use topology::cpuid::CpuidEntry;

use self::Register::{Eax, Ebx, Ecx, Edx};

/// A register of a CPUID leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Register {
    /// EAX.
    Eax,
    /// EBX.
    Ebx,
    /// ECX.
    Ecx,
    /// EDX.
    Edx,
}

/// A feature bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Its name.
    pub name: &'static str,
    /// Leaf.
    pub function: u32,
    /// Subleaf.
    pub index: u32,
    /// Register.
    pub register: Register,
    /// Bit, 0 to 31.
    pub bit: u8,
}

const fn at(name: &'static str, function: u32, index: u32, register: Register, bit: u8) -> Feature {
    Feature { name, function, index, register, bit }
}

/// Every feature that can be left out.
pub const FEATURES: [Feature; 74] = [
    // CPUID.01H:ECX
    at("pni", 1, 0, Ecx, 0),
    at("pclmulqdq", 1, 0, Ecx, 1),
    at("monitor", 1, 0, Ecx, 3),
    at("vmx", 1, 0, Ecx, 5),
    at("ssse3", 1, 0, Ecx, 9),
    at("fma", 1, 0, Ecx, 12),
    at("cx16", 1, 0, Ecx, 13),
    at("pcid", 1, 0, Ecx, 17),
    at("sse4_1", 1, 0, Ecx, 19),
    at("sse4_2", 1, 0, Ecx, 20),
    at("movbe", 1, 0, Ecx, 22),
    at("popcnt", 1, 0, Ecx, 23),
    at("tsc_deadline_timer", 1, 0, Ecx, 24),
    at("aes", 1, 0, Ecx, 25),
    at("xsave", 1, 0, Ecx, 26),
    at("avx", 1, 0, Ecx, 28),
    at("f16c", 1, 0, Ecx, 29),
    at("rdrand", 1, 0, Ecx, 30),
    // CPUID.01H:EDX
    at("mtrr", 1, 0, Edx, 12),
    at("mca", 1, 0, Edx, 14),
    at("mce", 1, 0, Edx, 7),
    // CPUID.(EAX=07H,ECX=0):EBX
    at("fsgsbase", 7, 0, Ebx, 0),
    at("tsc_adjust", 7, 0, Ebx, 1),
    at("bmi1", 7, 0, Ebx, 3),
    at("hle", 7, 0, Ebx, 4),
    at("avx2", 7, 0, Ebx, 5),
    at("smep", 7, 0, Ebx, 7),
    at("bmi2", 7, 0, Ebx, 8),
    at("erms", 7, 0, Ebx, 9),
    at("invpcid", 7, 0, Ebx, 10),
    at("rtm", 7, 0, Ebx, 11),
    at("avx512f", 7, 0, Ebx, 16),
    at("avx512dq", 7, 0, Ebx, 17),
    at("rdseed", 7, 0, Ebx, 18),
    at("adx", 7, 0, Ebx, 19),
    at("smap", 7, 0, Ebx, 20),
    at("avx512ifma", 7, 0, Ebx, 21),
    at("clflushopt", 7, 0, Ebx, 23),
    at("clwb", 7, 0, Ebx, 24),
    at("avx512cd", 7, 0, Ebx, 28),
    at("sha_ni", 7, 0, Ebx, 29),
    at("avx512bw", 7, 0, Ebx, 30),
    at("avx512vl", 7, 0, Ebx, 31),
    // CPUID.(EAX=07H,ECX=0):ECX
    at("avx512vbmi", 7, 0, Ecx, 1),
    at("umip", 7, 0, Ecx, 2),
    at("pku", 7, 0, Ecx, 3),
    at("waitpkg", 7, 0, Ecx, 5),
    at("avx512_vbmi2", 7, 0, Ecx, 6),
    at("gfni", 7, 0, Ecx, 8),
    at("vaes", 7, 0, Ecx, 9),
    at("vpclmulqdq", 7, 0, Ecx, 10),
    at("avx512_vnni", 7, 0, Ecx, 11),
    at("avx512_bitalg", 7, 0, Ecx, 12),
    at("avx512_vpopcntdq", 7, 0, Ecx, 14),
    at("la57", 7, 0, Ecx, 16),
    at("rdpid", 7, 0, Ecx, 22),
    at("bus_lock_detect", 7, 0, Ecx, 24),
    // CPUID.(EAX=07H,ECX=0):EDX
    at("fsrm", 7, 0, Edx, 4),
    at("serialize", 7, 0, Edx, 14),
    at("amx_bf16", 7, 0, Edx, 22),
    at("avx512_fp16", 7, 0, Edx, 23),
    at("amx_tile", 7, 0, Edx, 24),
    at("amx_int8", 7, 0, Edx, 25),
    // CPUID.(EAX=07H,ECX=1):EAX
    at("avx_vnni", 7, 1, Eax, 4),
    at("avx512_bf16", 7, 1, Eax, 5),
    // CPUID.80000001H:ECX and EDX
    at("svm", 0x8000_0001, 0, Ecx, 2),
    at("abm", 0x8000_0001, 0, Ecx, 5),
    at("sse4a", 0x8000_0001, 0, Ecx, 6),
    at("3dnowprefetch", 0x8000_0001, 0, Ecx, 8),
    at("osvw", 0x8000_0001, 0, Ecx, 9),
    at("topoext", 0x8000_0001, 0, Ecx, 22),
    at("pdpe1gb", 0x8000_0001, 0, Edx, 26),
    at("rdtscp", 0x8000_0001, 0, Edx, 27),
    // CPUID.80000007H:EDX
    at("nonstop_tsc", 0x8000_0007, 0, Edx, 8),
];

/// Whether the processor that this runs on shows a feature, whatever KVM says.
#[must_use]
pub fn this_processor_has(feature: &Feature) -> bool {
    // The highest leaf of the range (CPUID.00H:EAX, CPUID.80000000H:EAX).
    if __cpuid(feature.function & 0x8000_0000).eax < feature.function {
        return false;
    }
    let CpuidResult { eax, ebx, ecx, edx } = __cpuid_count(feature.function, feature.index);
    let register = match feature.register {
        Eax => eax,
        Ebx => ebx,
        Ecx => ecx,
        Edx => edx,
    };
    register & 1 << feature.bit != 0
}

/// Takes a feature out; says whether it was there.
pub fn take_out(entries: &mut [CpuidEntry], feature: &Feature) -> bool {
    let leaf = entries.iter_mut().find(|entry| entry.function == feature.function && entry.index == feature.index);
    let Some(entry) = leaf else { return false };
    let register = match feature.register {
        Eax => &mut entry.eax,
        Ebx => &mut entry.ebx,
        Ecx => &mut entry.ecx,
        Edx => &mut entry.edx,
    };
    let mask = 1 << feature.bit;
    let was_there = *register & mask != 0;
    *register &= !mask;
    was_there
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_processor_is_asked_for_the_right_bit() {
        let told = std::fs::read_to_string("/proc/cpuinfo").expect("Linux has it");
        let flags = told.lines().find(|line| line.starts_with("flags")).expect("x86 has it");
        // Neither kernel nor hypervisor switches these off once they are shown in CPUID.
        for name in ["ssse3", "sse4_1", "sse4_2", "popcnt", "aes"] {
            let feature = FEATURES.iter().find(|feature| feature.name == name).expect("it is known");
            assert_eq!(this_processor_has(feature), flags.split_whitespace().any(|flag| flag == name), "{name}");
        }
        assert!(!this_processor_has(&at("beyond", 0x7FFF_FFFF, 0, Edx, 0)));
    }

    #[test]
    fn names_and_places_are_unique() {
        let names: BTreeSet<_> = FEATURES.iter().map(|feature| feature.name).collect();
        let places: BTreeSet<_> = FEATURES
            .iter()
            .map(|feature| (feature.function, feature.index, feature.register as u8, feature.bit))
            .collect();
        assert_eq!((names.len(), places.len()), (FEATURES.len(), FEATURES.len()));
        assert!(FEATURES.iter().all(|feature| feature.bit < 32));
    }

    #[test]
    fn one_bit_is_taken_out_and_nothing_else() {
        let full = |function, index| CpuidEntry {
            function,
            index,
            indexed: function == 7,
            eax: u32::MAX,
            ebx: u32::MAX,
            ecx: u32::MAX,
            edx: u32::MAX,
        };
        let avx2 = FEATURES.iter().find(|feature| feature.name == "avx2").expect("it is known");
        let mut entries = [full(1, 0), full(7, 1), full(7, 0)];
        assert!(take_out(&mut entries, avx2));
        assert_eq!(entries[2].ebx, !(1 << 5));
        assert_eq!((entries[0], entries[1]), (full(1, 0), full(7, 1)));
        assert!(!take_out(&mut entries, avx2));
        assert!(!take_out(&mut [], avx2));
    }
}
