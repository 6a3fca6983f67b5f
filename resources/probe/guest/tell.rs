// SPDX-License-Identifier: Apache-2.0
//! The report on the machine: a table for people, then the same as records.
//!
//! Every byte costs an exit, so rows are narrow. Invariant: the table and the records are printed from the same values.

use core::fmt;
use core::sync::atomic::Ordering;

use crate::acpi::{self, Affinity};
use crate::block::Block;
use crate::command_line::Detail;
use crate::cpu_seen::{CacheSeen, CpuSeen};
use crate::memory::BootInfo;
use crate::record::{Cache, CacheKind, Cpu, Distance, Machine, Node};
use crate::serial::say;
use crate::smp;
use crate::value::Bytes;

/// The tables the report needs.
#[derive(Clone, Copy)]
pub struct Tables {
    /// System resource affinity.
    pub srat: Option<&'static [u8]>,
    /// System locality distances.
    pub slit: Option<&'static [u8]>,
    /// Whether there is a processor properties topology table.
    pub pptt: bool,
    /// Whether there is a heterogeneous memory attribute table.
    pub hmat: bool,
}

const CACHES: [(u8, CacheKind); 4] =
    [(1, CacheKind::Data), (1, CacheKind::Instruction), (2, CacheKind::Unified), (3, CacheKind::Unified)];

impl Tables {
    fn affinities(&self) -> impl Iterator<Item = Affinity> {
        self.srat.into_iter().flat_map(acpi::affinities)
    }

    fn node_of(&self, apic_id: u32) -> Option<u32> {
        self.affinities().find_map(|affinity| match affinity {
            Affinity::Cpu { apic_id: id, node } if id == apic_id => Some(node),
            _ => None,
        })
    }

    /// One more than the highest node that is named, at most 256.
    fn nodes(&self) -> u32 {
        let named = self.affinities().map(|a| match a {
            Affinity::Cpu { node, .. } | Affinity::Memory { node, .. } => node.saturating_add(1),
        });
        named.max().unwrap_or(0).min(256)
    }

    fn memory_of(&self, wanted: u32) -> u64 {
        let of_node = |affinity| match affinity {
            Affinity::Memory { bytes, node } if node == wanted => Some(bytes),
            _ => None,
        };
        self.affinities().filter_map(of_node).fold(0, u64::saturating_add)
    }
}

fn seen(block: &'static Block) -> &'static CpuSeen {
    // SAFETY: written before the block entered the list that it was taken from, never after.
    unsafe { &*block.seen.get() }
}

fn index(block: &'static Block) -> u32 {
    block.index.load(Ordering::Relaxed)
}

fn cache(block: &'static Block, slot: usize) -> Option<CacheSeen> {
    seen(block).caches.get(slot).copied().flatten()
}

/// Numbers the caches of each kind in the order of the first CPU that has them.
fn number_caches() {
    for slot in 0..CACHES.len() {
        let mut next = 0;
        for block in smp::present() {
            let Some(mine) = cache(block, slot) else { continue };
            let shared = |b: &&'static Block| cache(b, slot).is_some_and(|c| c.domain == mine.domain);
            let earlier = smp::present().take_while(|b| index(b) < index(block)).find(shared);
            let number = earlier.and_then(|b| cache_number(b, slot)).unwrap_or(next);
            next = next.max(number + 1);
            if let Some(word) = block.cache_numbers.get(slot) {
                word.store(number, Ordering::Relaxed);
            }
        }
    }
}

fn cache_number(block: &'static Block, slot: usize) -> Option<u32> {
    cache(block, slot)?;
    block.cache_numbers.get(slot).map(|word| word.load(Ordering::Relaxed))
}

fn cpu_record(block: &'static Block, tables: &Tables) -> Cpu {
    let seen = seen(block);
    Cpu {
        index: index(block),
        apic_id: seen.apic_id,
        package: seen.package,
        die: seen.die,
        cluster: seen.cluster,
        core: seen.core,
        thread: seen.thread,
        node: tables.node_of(seen.apic_id),
        l1d: cache_number(block, 0),
        l1i: cache_number(block, 1),
        l2: cache_number(block, 2),
        l3: cache_number(block, 3),
    }
}

fn cache_record(slot: usize) -> Option<Cache> {
    let (level, kind) = *CACHES.get(slot)?;
    let mut blocks = smp::present();
    let first = cache(blocks.next()?, slot)?;
    let alike = |c: &CacheSeen| {
        (c.bytes, c.line_bytes, c.ways, c.shift) == (first.bytes, first.line_bytes, first.ways, first.shift)
    };
    let uniform = blocks.all(|b| cache(b, slot).as_ref().is_some_and(alike));
    let last = smp::present().filter_map(|b| cache_number(b, slot)).max()?;
    Some(Cache {
        level,
        kind,
        bytes: first.bytes,
        line_bytes: first.line_bytes,
        ways: first.ways,
        count: last + 1,
        uniform,
    })
}

/// A number or a dash.
struct OrDash(Option<u32>);

impl fmt::Display for OrDash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(number) => number.fmt(f),
            None => f.pad("-"),
        }
    }
}

/// CPU indices as ranges: `0-3,8`.
struct Ranges<I>(I);

impl<I: Iterator<Item = u32> + Clone> fmt::Display for Ranges<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.clone().peekable();
        let mut comma = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            while let Some(next) = rest.next_if_eq(&(last + 1)) {
                last = next;
            }
            if first == last {
                write!(f, "{comma}{first}")?
            } else {
                write!(f, "{comma}{first}-{last}")?
            }
            comma = ",";
        }
        Ok(())
    }
}

fn cpus(table: bool, tables: &Tables) {
    if table {
        say!(" CPU  APIC  pkg die clu core thr node  L1d  L1i   L2   L3");
        for block in smp::present() {
            let c = cpu_record(block, tables);
            let [node, l1d, l1i, l2, l3] = [c.node, c.l1d, c.l1i, c.l2, c.l3].map(OrDash);
            say!(
                "{:4} {:5} {:4} {:3} {:3} {:4} {:3} {node:>4} {l1d:>4} {l1i:>4} {l2:>4} {l3:>4}",
                c.index,
                c.apic_id,
                c.package,
                c.die,
                c.cluster,
                c.core,
                c.thread
            );
        }
    }
    smp::present().for_each(|block| say!("{}", cpu_record(block, tables)));
}

/// Distances of one row, separated by spaces.
struct Row<'a>(&'a Tables, u32);

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slit = self.0.slit.unwrap_or_default();
        (0..acpi::localities(slit)).try_for_each(|to| {
            let value = acpi::distance(slit, self.1, to).map(u32::from);
            write!(f, " {:>3}", OrDash(value))
        })
    }
}

fn nodes(table: bool, tables: &Tables) {
    let cpus_of = |node| {
        let on_node = move |b: &&'static Block| tables.node_of(seen(b).apic_id) == Some(node);
        smp::present().filter(on_node).map(index)
    };
    if table {
        say!("node  MiB      distances, CPUs");
        for id in 0..tables.nodes() {
            say!("{id:4}  {:<8}{}   {}", tables.memory_of(id) >> 20, Row(tables, id), Ranges(cpus_of(id)));
        }
    }
    for id in 0..tables.nodes() {
        let cpus = cpus_of(id).count() as u32;
        say!("{}", Node { id, cpus, memory_bytes: tables.memory_of(id) });
    }
    let slit = tables.slit.unwrap_or_default();
    let len = acpi::localities(slit);
    for (from, to) in (0..len).flat_map(|from| (0..len).step_by(Bytes::MAX).map(move |to| (from, to))) {
        let values = Bytes::new((to..len).map_while(|to| acpi::distance(slit, from, to)));
        say!("{}", Distance { from, to, values });
    }
}

/// Prints what was asked for.
pub fn report(detail: Detail, tables: &Tables, boot: &BootInfo, pause_port: Option<u16>) {
    if detail == Detail::None {
        return;
    }
    let table = detail == Detail::Full;
    number_caches();
    cpus(table, tables);
    (0..CACHES.len()).filter_map(cache_record).for_each(|record| say!("{record}"));
    nodes(table, tables);
    let machine = Machine {
        cpus: smp::present().count() as u32,
        nodes: tables.nodes(),
        memory_bytes: boot.ram().iter().fold(0, |sum, range| sum.saturating_add(range.len)),
        pptt: tables.pptt,
        hmat: tables.hmat,
        pause_port: pause_port.map(u32::from),
    };
    say!("{machine}");
}
