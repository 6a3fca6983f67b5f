// SPDX-License-Identifier: Apache-2.0
//! Reads the kernel's own description of its types, as far as byte offsets and function ids go
//! (Documentation/bpf/btf.rst).
//!
//! Pure: the bytes of `/sys/kernel/btf/vmlinux` in, ids and offsets out. Invariant: no byte outside the two sections is
//! read and every walk is bounded, whatever the bytes say.

/// Bytes that are no BTF, or BTF without what is looked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    /// The file does not begin as BTF of this machine's byte order does.
    #[error("not BTF: magic {found:#06x}, version {version}")]
    Magic {
        /// What stands there.
        found: u16,
        /// And the version.
        version: u8,
    },
    /// A section or a type goes on beyond the end.
    #[error("the BTF ends in the middle of {what}")]
    Truncated {
        /// Of what.
        what: &'static str,
    },
    /// A kind of type that did not exist when this was written: its length is unknown, and so is what follows.
    #[error("type {id} of the BTF is of kind {kind}, which this program does not know; update it")]
    UnknownKind {
        /// The type.
        id: u32,
        /// Its kind.
        kind: u32,
    },
    /// This kernel has no such type, member or function.
    #[error("this kernel has no {0}")]
    Absent(String),
    /// A member that has no address of its own.
    #[error("{0} is a bit field in this kernel")]
    BitField(String),
}

/// What is looked up by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A structure (`BTF_KIND_STRUCT`).
    Struct,
    /// A function (`BTF_KIND_FUNC`).
    Function,
}

/// `BTF_MAGIC`.
const MAGIC: u16 = 0xEB9F;
/// Bytes of the header this program reads.
const HEADER_BYTES: usize = 24;
/// Bytes of `struct btf_type`.
const TYPE_BYTES: usize = 12;
/// How deep anonymous structures are followed.
const DEPTH_MAX: u32 = 8;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_FUNC: u32 = 12;

/// A kernel's types, indexed.
#[derive(Debug)]
pub struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    // Where type id n+1 begins in `types`.
    starts: Vec<u32>,
}

impl<'a> Btf<'a> {
    /// Reads the header and finds where every type begins. Memory: four bytes a type.
    ///
    /// # Errors
    /// [`BtfError::Magic`], [`BtfError::Truncated`], [`BtfError::UnknownKind`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BtfError> {
        let header = bytes.get(..HEADER_BYTES).ok_or(BtfError::Truncated { what: "the header" })?;
        let (found, version) = (u16::from_ne_bytes([header[0], header[1]]), header[2]);
        if found != MAGIC || version != 1 {
            return Err(BtfError::Magic { found, version });
        }
        let field = |at| word(header, at).unwrap_or(0);
        let section = |start: u32, length: u32, what| {
            // Both are relative to the end of the header.
            let start = (field(4) as usize).checked_add(start as usize);
            let end = start.and_then(|start| start.checked_add(length as usize));
            start.zip(end).and_then(|(start, end)| bytes.get(start..end)).ok_or(BtfError::Truncated { what })
        };
        let types = section(field(8), field(12), "the types")?;
        let strings = section(field(16), field(20), "the names")?;
        Ok(Self { types, strings, starts: starts(types)? })
    }

    /// The ids of types or functions by name, all in one walk; the first of a name counts, `None` where there is none.
    #[must_use]
    pub fn find<const N: usize>(&self, wanted: [(Kind, &str); N]) -> [Option<u32>; N] {
        let mut found = [None; N];
        for (id, start) in (1u32..).zip(&self.starts) {
            let Some(head) = Head::read(self.types, *start as usize) else { continue };
            let kind = match head.kind() {
                KIND_STRUCT => Kind::Struct,
                KIND_FUNC => Kind::Function,
                _ => continue,
            };
            for (slot, (wanted_kind, name)) in found.iter_mut().zip(wanted) {
                if slot.is_none() && wanted_kind == kind && self.is_named(head.name, name) {
                    *slot = Some(id);
                }
            }
        }
        found
    }

    /// Offset of a member in a structure, in bytes; members of anonymous structures count as the structure's own.
    ///
    /// # Errors
    /// [`BtfError::Absent`], [`BtfError::BitField`].
    pub fn member_offset(&self, structure: u32, member: &str) -> Result<u32, BtfError> {
        let (bits, is_bit_field) =
            self.member_bits(structure, member, DEPTH_MAX).ok_or_else(|| BtfError::Absent(member.to_owned()))?;
        if is_bit_field || bits % 8 != 0 { Err(BtfError::BitField(member.to_owned())) } else { Ok(bits / 8) }
    }

    fn member_bits(&self, structure: u32, wanted: &str, depth: u32) -> Option<(u32, bool)> {
        let start = *self.starts.get((structure as usize).checked_sub(1)?)? as usize;
        let head = Head::read(self.types, start)?;
        if !matches!(head.kind(), KIND_STRUCT | KIND_UNION) {
            return None;
        }
        for number in 0..head.entries() {
            let at = start + TYPE_BYTES + number * 12;
            let (name, kind, place) = (word(self.types, at)?, word(self.types, at + 4)?, word(self.types, at + 8)?);
            // With the kind flag an offset is bits[23:0] and bits[31:24] are the width of a bit field.
            let (bits, width) = if head.flagged() { (place & 0x00FF_FFFF, place >> 24) } else { (place, 0) };
            if name != 0 && self.is_named(name, wanted) {
                return Some((bits, width != 0));
            }
            let inside = if name == 0 && depth > 0 { self.member_bits(kind, wanted, depth - 1) } else { None };
            if let Some((inner, is_bit_field)) = inside {
                return Some((bits.checked_add(inner)?, is_bit_field));
            }
        }
        None
    }

    fn is_named(&self, offset: u32, name: &str) -> bool {
        let rest = self.strings.get(offset as usize..).unwrap_or_default();
        rest.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
    }
}

/// `struct btf_type` without its last word.
#[derive(Clone, Copy)]
struct Head {
    name: u32,
    info: u32,
}

impl Head {
    fn read(types: &[u8], at: usize) -> Option<Self> {
        Some(Self { name: word(types, at)?, info: word(types, at + 4)? })
    }

    /// Info[28:24].
    fn kind(self) -> u32 {
        self.info >> 24 & 0x1F
    }

    /// Info[15:0]: members, parameters, values.
    fn entries(self) -> usize {
        (self.info & 0xFFFF) as usize
    }

    /// Info[31].
    fn flagged(self) -> bool {
        self.info >> 31 == 1
    }

    /// Bytes that follow `struct btf_type`, by kind.
    fn tail(self) -> Option<usize> {
        Some(match self.kind() {
            // Pointer, forward, typedef, volatile, const, restrict, function, float, type tag.
            2 | 7..=12 | 16 | 18 => 0,
            // Integer, variable, declaration tag.
            1 | 14 | 17 => 4,
            // Array.
            3 => 12,
            // Structure, union, data section, 64-bit enumeration.
            KIND_STRUCT | KIND_UNION | 15 | 19 => self.entries() * 12,
            // Enumeration, function prototype.
            6 | 13 => self.entries() * 8,
            _ => return None,
        })
    }
}

fn starts(types: &[u8]) -> Result<Vec<u32>, BtfError> {
    // A first guess at the number of types: the kernel's average is about 24 bytes.
    let mut starts = Vec::with_capacity(types.len() / 24);
    let mut at = 0;
    while at < types.len() {
        let truncated = BtfError::Truncated { what: "a type" };
        let head = Head::read(types, at).ok_or(truncated.clone())?;
        let id = u32::try_from(starts.len() + 1).unwrap_or(u32::MAX);
        let tail = head.tail().ok_or(BtfError::UnknownKind { id, kind: head.kind() })?;
        starts.push(u32::try_from(at).map_err(|_| truncated.clone())?);
        at += TYPE_BYTES + tail;
        if at > types.len() {
            return Err(truncated);
        }
    }
    Ok(starts)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

#[cfg(test)]
#[path = "btf_tests.rs"]
mod tests;
