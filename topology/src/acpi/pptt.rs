// SPDX-License-Identifier: Apache-2.0
//! PPTT: the tree of packages, dies, clusters, cores and threads, and the caches on it (ACPI 6.3 section 5.2.29).
//!
//! Linux on x86 takes its topology from CPUID and leaves this table alone; other systems and tools read it. Our own
//! bytes: `acpi_tables` 0.2 fixes revision 3 with 28-byte cache structures, which need a cache id that revision 2 has
//! not. Invariant: a node and a cache stand in the table before everything that points at them; a leaf's processor id
//! is the UID of the MADT; a cache is attached to the level whose CPUs share it, one structure per instance, since
//! two nodes that name one structure are taken to share the cache.

use std::collections::BTreeMap;

use super::madt::uid;
use super::sdt::{self, Fields, HEADER_LEN};
use crate::cache::{CacheKind, CacheScope, CacheSpec};
use crate::guest::{GuestTopology, Position, Shape};

/// The revision of the table in ACPI 6.3 (table 5-152).
pub(crate) const REVISION: u8 = 2;

/// Processor flag: the node is a physical package (table 5-154, bit 0).
pub(crate) const PHYSICAL_PACKAGE: u32 = 1 << 0;
/// Processor flag: the processor id is a UID of the MADT (bit 1).
pub(crate) const ID_VALID: u32 = 1 << 1;
/// Processor flag: the node is a thread of its parent (bit 2).
pub(crate) const IS_THREAD: u32 = 1 << 2;
/// Processor flag: no node is below (bit 3).
pub(crate) const IS_LEAF: u32 = 1 << 3;
/// Processor flag: everything below is alike (bit 4).
pub(crate) const IDENTICAL: u32 = 1 << 4;
/// A level of the tree, outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Package,
    Die,
    Cluster,
    Core,
    Thread,
}

/// The table for a machine.
pub(crate) fn table(topology: &GuestTopology) -> Vec<u8> {
    let levels = levels(topology.shape());
    let mut tree = Tree { body: Vec::new(), nodes: BTreeMap::new() };
    for vcpu in topology.vcpus() {
        let mut parent = 0;
        for (depth, level) in levels.iter().enumerate() {
            let leaf = (depth + 1 == levels.len()).then_some(uid(vcpu));
            let caches = topology.caches().iter().filter(|cache| home(topology.cache_scope(cache), &levels) == *level);
            parent = tree.node(*level, topology.position(vcpu), parent, leaf, &caches.collect::<Vec<_>>());
        }
    }
    sdt::close(*b"PPTT", REVISION, &tree.body)
}

/// The levels of the tree: one with a single unit in the level above it says nothing and is left out.
pub(crate) fn levels(shape: &Shape) -> Vec<Level> {
    let wanted = [
        (Level::Package, true),
        (Level::Die, shape.dies > 1),
        (Level::Cluster, shape.clusters > 1),
        (Level::Core, true),
        (Level::Thread, shape.threads > 1),
    ];
    wanted.into_iter().filter(|(_, wanted)| *wanted).map(|(level, _)| level).collect()
}

/// The innermost level of the tree that is not below `scope`: where a level that the tree leaves out is folded into.
fn home(scope: CacheScope, levels: &[Level]) -> Level {
    let scope = match scope {
        CacheScope::Die => Level::Die,
        CacheScope::Cluster => Level::Cluster,
        CacheScope::Core => Level::Core,
    };
    levels.iter().copied().rfind(|level| *level <= scope).unwrap_or(Level::Package)
}

struct Tree {
    body: Vec<u8>,
    /// Where the node of a level and position prefix stands.
    nodes: BTreeMap<(Level, [u32; 5]), u32>,
}

impl Tree {
    /// The offset of a node from the start of the table, written now if it is not there yet.
    fn node(&mut self, level: Level, position: Position, parent: u32, leaf: Option<u32>, caches: &[&CacheSpec]) -> u32 {
        let key = (level, prefix(level, position));
        if let Some(offset) = self.nodes.get(&key) {
            return *offset;
        }
        let heads = self.caches(caches);
        let offset = self.offset();
        // Type 0, processor hierarchy node: flags, parent, ACPI processor id, private resources (table 5-153).
        let length = u8::try_from(20 + 4 * heads.len()).expect("invariant: a node has at most a handful of caches");
        self.body.u8(0).u8(length).reserved(2).u32(flags(level, leaf.is_some())).u32(parent).u32(leaf.unwrap_or(0));
        self.body.u32(u32::from((length - 20) / 4));
        for head in heads {
            self.body.u32(head);
        }
        self.nodes.insert(key, offset);
        offset
    }

    /// Writes the caches of one node, outermost first, each linked to the next; the offsets of those that none is
    /// linked to. Links stay within the node: the caches of its parents are found through them.
    fn caches(&mut self, caches: &[&CacheSpec]) -> Vec<u32> {
        let mut sorted = caches.to_vec();
        sorted.sort_by_key(|cache| (std::cmp::Reverse(cache.level), cache.kind));
        let mut heads: Vec<(u8, u32)> = Vec::new();
        let mut below_me: Option<(u8, u32)> = None;
        for cache in sorted {
            let next = heads.iter().copied().chain(below_me).filter(|(level, _)| *level > cache.level).min();
            let offset = self.offset();
            self.cache(cache, next.map_or(0, |(_, offset)| offset));
            if next.is_some() {
                below_me = next;
                heads.retain(|head| Some(*head) != next);
            }
            heads.push((cache.level, offset));
        }
        heads.into_iter().map(|(_, offset)| offset).collect()
    }

    /// Type 1, cache: flags, next level, size, sets, associativity, attributes, line size (table 5-155).
    ///
    /// A property that does not fit its field is marked as not valid.
    fn cache(&mut self, cache: &CacheSpec, next: u32) {
        let size = u32::try_from(cache.size_bytes);
        let sets = u32::try_from(cache.sets());
        let ways = u8::try_from(cache.ways);
        let line = u16::try_from(cache.line_bytes);
        let fits = [size.is_ok(), sets.is_ok(), ways.is_ok(), true, true, true, line.is_ok()];
        let flags = (0u32..).zip(fits).map(|(bit, fits)| u32::from(fits) << bit).sum();
        self.body.u8(1).u8(24).reserved(2).u32(flags).u32(next).u32(size.unwrap_or(0)).u32(sets.unwrap_or(0));
        self.body.u8(ways.unwrap_or(0)).u8(attributes(cache.kind)).u16(line.unwrap_or(0));
    }

    fn offset(&self) -> u32 {
        u32::try_from(HEADER_LEN + self.body.len()).expect("invariant: the table is far below 4 GiB")
    }
}

/// Attributes [1:0] allocated on reads (0) or on both (2), [3:2] data (0), instructions (1), both (2), [4] write-back
/// (0) (table 5-156).
const fn attributes(kind: CacheKind) -> u8 {
    match kind {
        CacheKind::Data => 2,
        CacheKind::Instruction => 1 << 2,
        CacheKind::Unified => 2 | 2 << 2,
    }
}

fn flags(level: Level, leaf: bool) -> u32 {
    let package = if level == Level::Package { PHYSICAL_PACKAGE } else { 0 };
    let own = if leaf { ID_VALID | IS_LEAF } else { IDENTICAL };
    let thread = if level == Level::Thread { IS_THREAD } else { 0 };
    package | own | thread
}

/// A position down to `level`: what the CPUs below one node have in common.
fn prefix(level: Level, position: Position) -> [u32; 5] {
    let mut fields = [position.package, position.die, position.cluster, position.core, position.thread];
    fields[level as usize + 1..].fill(0);
    fields
}
