// SPDX-License-Identifier: Apache-2.0
//! The pause port from the monitor's side: announced in CPUID, and what a write to it says. The ABI is docs/pause-port.md.
//!
//! Pure. Invariant: any bytes are a hint at most; nothing that a guest writes is an error.

use topology::cpuid::CpuidEntry;
use topology::id::ApicId;

use crate::layout;

/// First leaf of the first hypervisor block.
const FIRST_LEAF: u32 = 0x4000_0000;
/// Hypervisor leaves come in blocks of this size.
const BLOCK: u32 = 0x100;
/// Version of the interface.
const VERSION: u32 = 1;
/// EDX[0] of the second leaf: a write to the port behind the first carries a count in ECX.
const FEATURE_COUNTED: u32 = 1;

/// The announcement, to be added to a guest's CPUID: a block of its own behind those that are there.
///
/// `counted` says whether the port that takes a count is served too.
#[must_use]
pub fn announcement(entries: &[CpuidEntry], spins: u32, counted: bool) -> [CpuidEntry; 2] {
    let taken = |base: u32| entries.iter().any(|entry| (base..base + BLOCK).contains(&entry.function));
    let base = (FIRST_LEAF..).step_by(BLOCK as usize).find(|base| !taken(*base)).unwrap_or(FIRST_LEAF);
    let [ebx, ecx, edx] = [*b"VmmP", *b"ause", *b"Loop"].map(u32::from_le_bytes);
    [
        CpuidEntry { function: base, eax: base + 1, ebx, ecx, edx, ..CpuidEntry::default() },
        CpuidEntry {
            function: base + 1,
            eax: VERSION,
            ebx: u32::from(layout::PAUSE_PORT),
            ecx: spins,
            edx: if counted { FEATURE_COUNTED } else { 0 },
            ..CpuidEntry::default()
        },
    ]
}

/// A write to the pause port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortWrite {
    /// Who is waited for; `None` if the guest does not know, or writes in a width that says nothing.
    pub owner: Option<ApicId>,
    /// Whether ECX holds the count of finished waits.
    pub counted: bool,
}

/// Reads an access; `None` if it is not the pause port's.
#[must_use]
pub fn decode(port: u16, data: &[u8]) -> Option<PortWrite> {
    let counted = match port {
        layout::PAUSE_PORT => false,
        layout::PAUSE_COUNT_PORT => true,
        _ => return None,
    };
    // A string of writes counts as its last one: the guest has looked at the owner once more each time.
    let (last, alone) = (data.last_chunk::<4>(), data.len() >= 4);
    let owner = last.map(|bytes| u32::from_le_bytes(*bytes)).filter(|id| alone && *id != u32::MAX).map(ApicId);
    Some(PortWrite { owner, counted })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_stands_behind_those_that_are_there() {
        let kvm = CpuidEntry { function: 0x4000_0001, ..CpuidEntry::default() };
        let [first, second] = announcement(&[kvm], 1000, true);
        assert_eq!((first.function, first.eax), (0x4000_0100, 0x4000_0101));
        assert_eq!(
            (second.function, second.ebx, second.ecx, second.edx),
            (0x4000_0101, u32::from(layout::PAUSE_PORT), 1000, 1)
        );
        assert_eq!(announcement(&[], 7, false)[0].function, 0x4000_0000);
    }

    #[test]
    fn any_bytes_are_a_hint_at_most() {
        let owner = |data| decode(layout::PAUSE_PORT, data).map(|write| write.owner);
        assert_eq!(owner(&[5, 0, 0, 0]), Some(Some(ApicId(5))));
        assert_eq!(owner(&[0xFF; 4]), Some(None));
        assert_eq!(owner(&[5]), Some(None));
        assert_eq!(owner(&[1, 0, 0, 0, 2, 0, 0, 0]), Some(Some(ApicId(2))));
        assert_eq!(owner(&[]), Some(None));
        assert_eq!(decode(layout::SERIAL_PORT, &[5, 0, 0, 0]), None);
    }
}
