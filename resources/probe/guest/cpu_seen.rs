// SPDX-License-Identifier: Apache-2.0
//! Where a CPU sits and what it shares, from its own CPUID, as an operating system derives it.
//!
//! Pure: CPUID is a closure. Invariant: positions count within the level above, so that together they name one CPU.

/// A cache as one CPU sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSeen {
    /// The APIC ids that share it, shifted right until they are one number.
    pub domain: u32,
    /// By how many bits.
    pub shift: u32,
    /// Its size.
    pub bytes: u64,
    /// Its line size.
    pub line_bytes: u32,
    /// Its ways.
    pub ways: u32,
}

/// What one CPU sees of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuSeen {
    /// Its (x2)APIC id.
    pub apic_id: u32,
    /// Package.
    pub package: u32,
    /// Die within the package.
    pub die: u32,
    /// Cluster within the die.
    pub cluster: u32,
    /// Core within the cluster.
    pub core: u32,
    /// Thread within the core.
    pub thread: u32,
    /// Level 1 data, level 1 instruction, level 2, level 3.
    pub caches: [Option<CacheSeen>; 4],
}

/// Bits that number `count` things.
fn bits_for(count: u32) -> u32 {
    count.max(1).next_power_of_two().trailing_zeros()
}

fn low_bits(value: u32, bits: u32) -> u32 {
    value & 1u32.checked_shl(bits).map_or(u32::MAX, |b| b - 1)
}

fn shr(value: u32, bits: u32) -> u32 {
    value.checked_shr(bits).unwrap_or(0)
}

/// Widths of the fields of the APIC id that the splits below need.
#[derive(Default)]
struct Widths {
    thread: u32,
    core: u32,
    has_clusters: bool,
    has_dies: bool,
}

/// Asks one CPU.
pub fn look(cpuid: impl Fn(u32, u32) -> [u32; 4]) -> CpuSeen {
    let [max, vendor, ..] = cpuid(0, 0);
    let amd = vendor == u32::from_le_bytes(*b"Auth") || vendor == u32::from_le_bytes(*b"Hygo");
    let mut seen = CpuSeen::default();
    let mut widths = levels(&cpuid, max, &mut seen);
    seen.caches = caches(&cpuid, max, amd, seen.apic_id);
    if amd && !widths.has_dies {
        split_by_die(&cpuid, &mut seen, &mut widths);
    }
    if !widths.has_clusters {
        split_by_l2(&mut seen, &widths);
    }
    seen
}

/// Positions from leaf 1FH or 0BH, or leaf 1 where there is neither.
/// CPUID.(EAX=1FH,ECX=n): EAX[4:0] shift to the next level, ECX[15:8] level type, EDX the x2APIC id
/// (Intel SDM vol. 2A, rev. 083, CPUID; vol. 3A, section 9.9.3.2).
fn levels(cpuid: &impl Fn(u32, u32) -> [u32; 4], max: u32, seen: &mut CpuSeen) -> Widths {
    let leaf = [0x1f, 0xb].into_iter().find(|leaf| max >= *leaf && cpuid(*leaf, 0)[1] != 0);
    let Some(leaf) = leaf else { return legacy(cpuid, seen) };
    let id = cpuid(leaf, 0)[3];
    seen.apic_id = id;
    let (mut below, mut widths) = (0, Widths::default());
    for subleaf in 0..8 {
        let [eax, _, ecx, _] = cpuid(leaf, subleaf);
        let (kind, shift) = (ecx >> 8 & 0xff, eax & 0x1f);
        if kind == 0 {
            break;
        }
        let width = shift.saturating_sub(below);
        let field = low_bits(shr(id, below), width);
        match kind {
            1 => (seen.thread, widths.thread) = (field, width),
            2 => (seen.core, widths.core) = (field, width),
            3 => (seen.cluster, widths.has_clusters) = (field, true),
            5 => (seen.die, widths.has_dies) = (field, true),
            // Tiles and groups of dies are levels this report has no column for.
            _ => {}
        }
        below = below.max(shift);
    }
    seen.package = shr(id, below);
    widths
}

/// CPUID.(EAX=01H):EBX[31:24] initial APIC id, EBX[23:16] ids in the package, EDX[28] whether that field is valid.
fn legacy(cpuid: &impl Fn(u32, u32) -> [u32; 4], seen: &mut CpuSeen) -> Widths {
    let [_, ebx, _, edx] = cpuid(1, 0);
    let bits = if edx >> 28 & 1 == 1 { bits_for(ebx >> 16 & 0xff) } else { 0 };
    seen.apic_id = ebx >> 24;
    seen.core = low_bits(seen.apic_id, bits);
    seen.package = shr(seen.apic_id, bits);
    Widths { core: bits, ..Widths::default() }
}

/// CPUID.(EAX=04H,ECX=n) or, on AMD with topology extensions, CPUID.(EAX=8000001DH,ECX=n), which has the same fields:
/// EAX[4:0] type, EAX[7:5] level, EAX[25:14] sharing ids − 1, EBX[11:0] line − 1, EBX[21:12] partitions − 1,
/// EBX[31:22] ways − 1, ECX sets − 1.
fn caches(cpuid: &impl Fn(u32, u32) -> [u32; 4], max: u32, amd: bool, apic_id: u32) -> [Option<CacheSeen>; 4] {
    let mut caches = [None; 4];
    let leaf = if amd { 0x8000_001d } else { 4 };
    let limit = if amd { cpuid(0x8000_0000, 0)[0] } else { max };
    if limit < leaf {
        return caches;
    }
    for subleaf in 0..8 {
        let [eax, ebx, ecx, _] = cpuid(leaf, subleaf);
        let slot = match (eax & 0x1f, eax >> 5 & 7) {
            (0, _) => break,
            (1, 1) => 0,
            (2, 1) => 1,
            (3, 2) => 2,
            (3, 3) => 3,
            _ => continue,
        };
        let (line_bytes, partitions, ways) = ((ebx & 0xfff) + 1, (ebx >> 12 & 0x3ff) + 1, (ebx >> 22) + 1);
        let bytes = u64::from(line_bytes) * u64::from(partitions) * u64::from(ways) * (u64::from(ecx) + 1);
        let shift = bits_for((eax >> 14 & 0xfff) + 1);
        if let Some(cache) = caches.get_mut(slot) {
            *cache = Some(CacheSeen { domain: shr(apic_id, shift), shift, bytes, line_bytes, ways });
        }
    }
    caches
}

/// AMD's leaf 0BH has no dies. A die has a level 3 cache of its own; where none is stated, it is a node:
/// CPUID.(EAX=8000001EH):ECX[10:8] nodes in the package − 1 (AMD APM vol. 3, appendix E.4.17). Either way its number is
/// the upper part of the core's in leaf 0BH.
fn split_by_die(cpuid: &impl Fn(u32, u32) -> [u32; 4], seen: &mut CpuSeen, widths: &mut Widths) {
    let core_bits = match seen.caches[3] {
        Some(l3) => l3.shift.saturating_sub(widths.thread),
        None if cpuid(0x8000_0000, 0)[0] < 0x8000_001e => return,
        None => widths.core.saturating_sub(bits_for((cpuid(0x8000_001e, 0)[2] >> 8 & 7) + 1)),
    };
    if core_bits < widths.core {
        seen.die = shr(seen.core, core_bits);
        (seen.core, widths.core) = (low_bits(seen.core, core_bits), core_bits);
    }
}

/// Without a module level, cores that share a level 2 cache are a cluster, as Linux has it
/// (arch/x86/kernel/smpboot.c, `cpu_clustergroup_mask`).
fn split_by_l2(seen: &mut CpuSeen, widths: &Widths) {
    let Some(l2) = seen.caches[2] else { return };
    let core_bits = l2.shift.saturating_sub(widths.thread);
    if core_bits > 0 {
        seen.cluster = shr(seen.core, core_bits);
        seen.core = low_bits(seen.core, core_bits);
    }
}
