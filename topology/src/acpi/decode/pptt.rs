// SPDX-License-Identifier: Apache-2.0
//! PPTT back to a tree of processors with caches on it (ACPI 6.3 section 5.2.29).
//!
//! Invariant: every reference leads to an entry of the right kind, and following parents or next levels ends.

use std::collections::BTreeMap;

use super::error::DecodeError;
use super::table::{Entry, EntryHeader, Table};
use crate::acpi::pptt::{ID_VALID, IS_LEAF, IS_THREAD, PHYSICAL_PACKAGE};
use crate::cache::CacheKind;

/// A node of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PpttNode {
    /// Offset of its parent; none at the root of a tree.
    pub parent: Option<u32>,
    /// ACPI processor UID, if it is valid.
    pub uid: Option<u32>,
    /// Whether it is a physical package.
    pub package: bool,
    /// Whether it is a thread of its parent.
    pub thread: bool,
    /// Whether nothing is below it.
    pub leaf: bool,
    /// Offsets of its caches.
    pub caches: Vec<u32>,
}

/// A cache; what is not valid is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PpttCache {
    /// Offset of the next level of the same node.
    pub next: Option<u32>,
    /// What it holds.
    pub kind: Option<CacheKind>,
    /// Size in bytes.
    pub size_bytes: Option<u32>,
    /// Number of sets.
    pub sets: Option<u32>,
    /// Ways of associativity.
    pub ways: Option<u8>,
    /// Line size in bytes.
    pub line_bytes: Option<u16>,
}

/// The table: entries by the offset at which they start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pptt {
    /// Its revision.
    pub revision: u8,
    /// Processor nodes.
    pub nodes: BTreeMap<u32, PpttNode>,
    /// Caches.
    pub caches: BTreeMap<u32, PpttCache>,
}

impl Pptt {
    /// The offsets of the node of a CPU and of its ancestors, innermost first; empty when no leaf has the UID.
    #[must_use]
    pub fn path(&self, uid: u32) -> Vec<u32> {
        let leaf = self.nodes.iter().find(|(_, node)| node.leaf && node.uid == Some(uid));
        leaf.map_or_else(Vec::new, |(offset, _)| self.path_from(*offset))
    }

    /// The offset of a node and those of its ancestors, innermost first.
    #[must_use]
    pub fn path_from(&self, offset: u32) -> Vec<u32> {
        std::iter::successors(Some(offset), |offset| self.nodes.get(offset).and_then(|node| node.parent)).collect()
    }

    /// The offsets of the caches of a node, following next levels, each once.
    #[must_use]
    pub fn caches_of(&self, node: &PpttNode) -> Vec<u32> {
        let mut found: Vec<u32> = Vec::new();
        for head in &node.caches {
            for offset in std::iter::successors(Some(*head), |offset| self.caches.get(offset).and_then(|c| c.next)) {
                if !found.contains(&offset) {
                    found.push(offset);
                }
            }
        }
        found
    }
}

pub(super) fn parse(table: &Table) -> Result<Pptt, DecodeError> {
    let mut pptt = Pptt { revision: table.revision()?, nodes: BTreeMap::new(), caches: BTreeMap::new() };
    for entry in table.entries(0, EntryHeader::Bytes)? {
        match entry.kind {
            0 => drop(pptt.nodes.insert(entry.at(), node(&entry)?)),
            1 => drop(pptt.caches.insert(entry.at(), cache(&entry)?)),
            _ => {}
        }
    }
    check_nodes(&pptt)?;
    check_caches(&pptt)?;
    Ok(pptt)
}

fn node(entry: &Entry<'_>) -> Result<PpttNode, DecodeError> {
    entry.at_least(20)?;
    let count = entry.u32(16)?;
    entry.at_least(count.saturating_mul(4).saturating_add(20))?;
    let flags = entry.u32(4)?;
    Ok(PpttNode {
        parent: Some(entry.u32(8)?).filter(|parent| *parent != 0),
        uid: Some(entry.u32(12)?).filter(|_| flags & ID_VALID != 0),
        package: flags & PHYSICAL_PACKAGE != 0,
        thread: flags & IS_THREAD != 0,
        leaf: flags & IS_LEAF != 0,
        caches: (0..count as usize).map(|place| entry.u32(20 + 4 * place)).collect::<Result<_, _>>()?,
    })
}

fn cache(entry: &Entry<'_>) -> Result<PpttCache, DecodeError> {
    entry.at_least(24)?;
    let flags = entry.u32(4)?;
    let valid = |bit: u32| flags & 1 << bit != 0;
    let kind = match entry.u8(21)? >> 2 & 3 {
        0 => CacheKind::Data,
        1 => CacheKind::Instruction,
        _ => CacheKind::Unified,
    };
    Ok(PpttCache {
        next: Some(entry.u32(8)?).filter(|next| *next != 0),
        size_bytes: Some(entry.u32(12)?).filter(|_| valid(0)),
        sets: Some(entry.u32(16)?).filter(|_| valid(1)),
        ways: Some(entry.u8(20)?).filter(|_| valid(2)),
        kind: Some(kind).filter(|_| valid(4)),
        line_bytes: Some(entry.u16(22)?).filter(|_| valid(6)),
    })
}

fn check_nodes(pptt: &Pptt) -> Result<(), DecodeError> {
    for (offset, node) in &pptt.nodes {
        if let Some(parent) = node.parent.filter(|parent| !pptt.nodes.contains_key(parent)) {
            return Err(DecodeError::PpttParent { offset: *offset, parent });
        }
        if let Some(cache) = node.caches.iter().find(|cache| !pptt.caches.contains_key(cache)) {
            return Err(DecodeError::PpttCache { offset: *offset, cache: *cache });
        }
    }
    let parents = pptt.nodes.iter().filter_map(|(offset, node)| Some((*offset, node.parent?))).collect();
    looping(&parents).map_or(Ok(()), |offset| Err(DecodeError::PpttLoop { offset }))
}

fn check_caches(pptt: &Pptt) -> Result<(), DecodeError> {
    for (offset, cache) in &pptt.caches {
        if let Some(next) = cache.next.filter(|next| !pptt.caches.contains_key(next)) {
            return Err(DecodeError::PpttCache { offset: *offset, cache: next });
        }
    }
    let next = pptt.caches.iter().filter_map(|(offset, cache)| Some((*offset, cache.next?))).collect();
    looping(&next).map_or(Ok(()), |offset| Err(DecodeError::PpttCacheLoop { offset }))
}

/// An entry from which the links never end, if there is one; linear in the number of links.
fn looping(links: &BTreeMap<u32, u32>) -> Option<u32> {
    let mut ends: BTreeMap<u32, bool> = BTreeMap::new();
    for start in links.keys() {
        let mut trail = Vec::new();
        let mut at = Some(*start);
        while let Some(offset) = at.filter(|offset| !ends.contains_key(offset)) {
            // Open until its trail is known to end.
            ends.insert(offset, false);
            trail.push(offset);
            at = links.get(&offset).copied();
        }
        if let Some(offset) = at.filter(|offset| ends.get(offset) == Some(&false)) {
            return Some(offset);
        }
        ends.extend(trail.into_iter().map(|offset| (offset, true)));
    }
    None
}
