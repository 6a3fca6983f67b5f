// SPDX-License-Identifier: Apache-2.0
//! Kernel images that are wrong in one place: the probe guest's own, with a field overwritten.
//!
//! Offsets are those of the ELF specification (`Elf64_Ehdr`, `Elf64_Phdr`).

const E_PHOFF: usize = 32;
const E_PHNUM: usize = 56;
const PHDR_BYTES: usize = 56;
const PT_LOAD: u32 = 1;

/// `e_ident[EI_CLASS]`.
pub(crate) const EI_CLASS: usize = 4;
/// `e_machine`.
pub(crate) const E_MACHINE: usize = 18;

/// Fields of a program header.
#[derive(Clone, Copy)]
pub(crate) enum Field {
    Offset = 8,
    PhysicalAddress = 24,
    FileSize = 32,
    MemorySize = 40,
}

/// An image that starts as the probe guest's.
pub(crate) struct Image(Vec<u8>);

impl Image {
    /// The probe guest itself.
    pub(crate) fn new() -> Self {
        Self(probe::IMAGE.to_vec())
    }

    /// With other bytes at an offset.
    pub(crate) fn with(mut self, at: usize, bytes: &[u8]) -> Self {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    /// With another value in a field of the `number`th loadable segment.
    pub(crate) fn segment(self, number: usize, field: Field, value: u64) -> Self {
        let header = self.segments()[number];
        self.with(header + field as usize, &value.to_le_bytes())
    }

    /// With an entry point elsewhere: the descriptor of the PVH note (`XEN_ELFNOTE_PHYS32_ENTRY`, 18).
    pub(crate) fn entry(self, entry: u32) -> Self {
        let note = b"\x12\0\0\0Xen\0";
        let at = self.0.windows(note.len()).position(|bytes| bytes == note).expect("a PVH note");
        self.with(at + note.len(), &entry.to_le_bytes())
    }

    /// Without its PVH note: the name is another's.
    pub(crate) fn without_note(self) -> Self {
        let note = b"\x12\0\0\0Xen\0";
        let at = self.0.windows(note.len()).position(|bytes| bytes == note).expect("a PVH note");
        self.with(at + 4, b"Yen\0")
    }

    /// Its first bytes only.
    pub(crate) fn cut(mut self, bytes: usize) -> Self {
        self.0.truncate(bytes);
        self
    }

    /// Where a field of the `number`th loadable segment points.
    pub(crate) fn value(&self, number: usize, field: Field) -> u64 {
        let at = self.segments()[number] + field as usize;
        u64::from_le_bytes(self.0[at..at + 8].try_into().unwrap())
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Offsets of the program headers of loadable segments.
    fn segments(&self) -> Vec<usize> {
        let table = usize::try_from(u64::from_le_bytes(self.0[E_PHOFF..E_PHOFF + 8].try_into().unwrap())).unwrap();
        let count = usize::from(u16::from_le_bytes(self.0[E_PHNUM..E_PHNUM + 2].try_into().unwrap()));
        let headers = (0..count).map(|number| table + number * PHDR_BYTES);
        let kind = |at: &usize| u32::from_le_bytes(self.0[*at..*at + 4].try_into().unwrap());
        headers.filter(|at| kind(at) == PT_LOAD).collect()
    }
}
