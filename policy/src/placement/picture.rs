// SPDX-License-Identifier: Apache-2.0
//! The host drawn as boxes (node, cache, cluster, core, thread) with the vCPUs in them, as text and as SVG.
//!
//! Invariant: a function from host and places to a string; every online CPU is drawn exactly once.

use std::fmt::Write as _;

use topology::host::HostTopology;
use topology::id::{HostCpu, VcpuIndex};

use super::Claim;

/// What is drawn into the boxes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scene<'a> {
    /// Where vCPUs are.
    pub places: &'a [(VcpuIndex, HostCpu)],
    /// What other VMs claimed.
    pub claims: &'a [Claim],
}

/// One CPU as it is drawn.
struct Seat {
    label: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Free,
    Taken,
    Shared,
    Claimed,
    Forbidden,
}

/// Cores of a cluster, clusters of a cache, caches of a node, as dense indices.
struct Tree {
    nodes: Vec<Vec<usize>>,
    llcs: Vec<Vec<usize>>,
    clusters: Vec<Vec<usize>>,
    cores: Vec<Vec<usize>>,
}

impl Tree {
    fn new(host: &HostTopology) -> Self {
        let children = |count: usize, parents: Vec<usize>| {
            let mut children = vec![Vec::new(); count];
            parents.into_iter().enumerate().for_each(|(child, parent)| children[parent].push(child));
            children
        };
        let parents = |groups: &[topology::host::Group]| groups.iter().map(|group| group.parent).collect();
        Self {
            nodes: children(host.nodes().len(), parents(host.llcs())),
            llcs: children(host.llcs().len(), parents(host.clusters())),
            clusters: children(host.clusters().len(), parents(host.cores())),
            cores: children(host.cores().len(), host.cpus().iter().map(|cpu| cpu.core).collect()),
        }
    }
}

fn seats(host: &HostTopology, scene: &Scene<'_>) -> Vec<Seat> {
    let mut guests: Vec<Vec<VcpuIndex>> = vec![Vec::new(); host.cpus().len()];
    for &(vcpu, cpu) in scene.places {
        if let Some(cpu) = host.index_of(cpu) {
            guests[cpu].push(vcpu);
        }
    }
    let seat = |(cpu, guests): (&topology::host::Cpu, Vec<VcpuIndex>)| {
        let names: Vec<String> = guests.iter().map(|vcpu| format!("v{vcpu}")).collect();
        let claimed = scene.claims.iter().any(|claim| claim.cpus.contains(cpu.id));
        match (guests.len(), claimed, host.usable().contains(cpu.id)) {
            (0, false, true) => Seat { label: ".".to_owned(), kind: Kind::Free },
            (0, false, false) => Seat { label: "x".to_owned(), kind: Kind::Forbidden },
            (0, true, _) => Seat { label: "#".to_owned(), kind: Kind::Claimed },
            (1, false, _) => Seat { label: names.join("+"), kind: Kind::Taken },
            (_, false, _) => Seat { label: names.join("+"), kind: Kind::Shared },
            (_, true, _) => Seat { label: format!("{}#", names.join("+")), kind: Kind::Shared },
        }
    };
    host.cpus().iter().zip(guests).map(seat).collect()
}

/// The host as text: a line per cluster (per cache, where each core is a cluster), a core as its threads joined by
/// `|`.
///
/// A thread is `12:v3` (vCPU 3 on CPU 12), `12:.` if free, `12:#` if claimed by another VM, `12:x` if not allowed.
#[must_use]
pub fn text(host: &HostTopology, scene: &Scene<'_>) -> String {
    let (tree, seats) = (Tree::new(host), seats(host, scene));
    let core = |core: &usize| {
        let threads: Vec<String> =
            tree.cores[*core].iter().map(|&cpu| format!("{}:{}", host.cpus()[cpu].id, seats[cpu].label)).collect();
        format!("[{}]", threads.join("|"))
    };
    let mut text = String::new();
    for (node, llcs) in host.nodes().iter().zip(&tree.nodes) {
        let _ = writeln!(text, "node {}{}", node.id, memory(node.memory_bytes));
        for &llc in llcs {
            let _ = writeln!(text, "  cache of {}", host.llcs()[llc].cpus);
            let clusters = tree.llcs[llc].iter().map(|&cluster| &tree.clusters[cluster]);
            let rows: Vec<Vec<usize>> = if host.has_clusters() {
                clusters.cloned().collect()
            } else {
                clusters.flatten().copied().collect::<Vec<_>>().chunks(8).map(<[usize]>::to_vec).collect()
            };
            for cores in rows {
                let _ = writeln!(text, "    {}", cores.iter().map(core).collect::<Vec<_>>().join(" "));
            }
        }
    }
    text
}

fn memory(bytes: Option<u64>) -> String {
    bytes.map_or_else(String::new, |bytes| format!(", {} GiB", bytes >> 30))
}

/// Sizes in the drawing, in pixels.
const THREAD_HEIGHT: usize = 22;
const THREAD_WIDTH: usize = 52;
/// Width of one character of a label.
const CHARACTER: usize = 6;
const GAP: usize = 4;
const TITLE: usize = 14;
/// A node's clusters are wrapped beyond this width.
const WIDTH: usize = 1100;

/// The host as an SVG image.
#[must_use]
pub fn svg(host: &HostTopology, scene: &Scene<'_>) -> String {
    let seats = seats(host, scene);
    let longest = host.cpus().iter().zip(&seats).map(|(cpu, seat)| format!("{}:{}", cpu.id, seat.label).len()).max();
    let wide = THREAD_WIDTH.max(longest.unwrap_or(0) * CHARACTER + 2 * GAP);
    let mut canvas = Canvas { tree: Tree::new(host), seats, width: wide, host, body: String::new() };
    let (mut width, mut bottom) = (0, GAP);
    for node in 0..host.nodes().len() {
        let (right, end) = canvas.node(node, bottom);
        width = width.max(right + GAP);
        bottom = end + GAP;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{bottom}\" \
         viewBox=\"0 0 {width} {bottom}\" font-family=\"monospace\" font-size=\"10\">\n{}</svg>\n",
        canvas.body
    )
}

struct Canvas<'a> {
    tree: Tree,
    seats: Vec<Seat>,
    /// Width of a thread's box: the longest label fits.
    width: usize,
    host: &'a HostTopology,
    body: String,
}

impl Canvas<'_> {
    /// Draws a node with its top at `y`; returns its right and lower edge.
    fn node(&mut self, node: usize, y: usize) -> (usize, usize) {
        let (mut right, mut bottom) = (GAP, y + TITLE);
        let mut inner = String::new();
        for llc in self.tree.nodes[node].clone() {
            let edge = self.llc(llc, 2 * GAP, bottom, &mut inner);
            right = right.max(edge.0);
            bottom = edge.1 + GAP;
        }
        let title = format!("node {}{}", self.host.nodes()[node].id, memory(self.host.nodes()[node].memory_bytes));
        right = right.max(GAP + title.len() * 7) + GAP;
        self.frame((GAP, y, right, bottom), "#f4f4f4", &title);
        self.body.push_str(&inner);
        (right, bottom)
    }

    fn llc(&mut self, llc: usize, x: usize, y: usize, out: &mut String) -> (usize, usize) {
        let (mut left, mut top) = (x + GAP, y + TITLE);
        let (mut right, mut bottom) = (left, top);
        let mut inner = String::new();
        for cluster in self.tree.llcs[llc].clone() {
            if left > WIDTH {
                (left, top) = (x + GAP, bottom + GAP);
            }
            let edge = self.cluster(cluster, left, top, &mut inner);
            (right, bottom) = (right.max(edge.0), bottom.max(edge.1));
            left = edge.0 + GAP;
        }
        let edge = (right + GAP, bottom + GAP);
        let title = format!("cache of {}", self.host.llcs()[llc].cpus);
        frame(out, (x, y, edge.0, edge.1), "#e3ecf7", &title);
        out.push_str(&inner);
        edge
    }

    fn cluster(&mut self, cluster: usize, x: usize, y: usize, out: &mut String) -> (usize, usize) {
        let cores = &self.tree.clusters[cluster];
        let threads = cores.iter().map(|&core| self.tree.cores[core].len()).max().unwrap_or(0);
        let edge = (x + GAP + cores.len() * (self.width + 2 * GAP), y + threads * (THREAD_HEIGHT + 2) + 3 * GAP);
        frame(out, (x, y, edge.0, edge.1), "#cfdff2", "");
        for (place, &core) in cores.iter().enumerate() {
            let left = x + GAP + place * (self.width + 2 * GAP);
            let lower = y + GAP + self.tree.cores[core].len() * (THREAD_HEIGHT + 2) + GAP;
            frame(out, (left, y + GAP, left + self.width + GAP, lower), "#ffffff", "");
            for (row, &cpu) in self.tree.cores[core].iter().enumerate() {
                self.thread(cpu, left + GAP / 2, y + GAP + GAP / 2 + row * (THREAD_HEIGHT + 2), out);
            }
        }
        edge
    }

    fn thread(&self, cpu: usize, x: usize, y: usize, out: &mut String) {
        let seat = &self.seats[cpu];
        let fill = match seat.kind {
            Kind::Free => "#fafafa",
            Kind::Taken => "#b7e1b1",
            Kind::Shared => "#f2b8a2",
            Kind::Claimed => "#d9d9d9",
            Kind::Forbidden => "#bbbbbb",
        };
        frame(out, (x, y, x + self.width, y + THREAD_HEIGHT), fill, "");
        let (left, base) = (x + 3, y + THREAD_HEIGHT - 7);
        let _ = writeln!(out, "<text x=\"{left}\" y=\"{base}\">{}:{}</text>", self.host.cpus()[cpu].id, seat.label);
    }

    fn frame(&mut self, edges: (usize, usize, usize, usize), fill: &str, title: &str) {
        frame(&mut self.body, edges, fill, title);
    }
}

/// A box from (left, top) to (right, bottom) with a title in its upper left corner.
fn frame(out: &mut String, (left, top, right, bottom): (usize, usize, usize, usize), fill: &str, title: &str) {
    let (width, height) = (right - left, bottom - top);
    let _ = writeln!(
        out,
        "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\" stroke=\"#777\"/>"
    );
    if !title.is_empty() {
        let _ = writeln!(out, "<text x=\"{}\" y=\"{}\">{title}</text>", left + 3, top + TITLE - 4);
    }
}

#[cfg(test)]
mod tests {
    use topology::host::HostShape;

    use super::*;

    fn host() -> HostTopology {
        let shape = HostShape { nodes: 1, llcs: 1, clusters: 2, cores: 1, threads: 2, node_memory_bytes: 2 << 30 };
        shape.build().unwrap()
    }

    const PLACES: [(VcpuIndex, HostCpu); 3] =
        [(VcpuIndex(0), HostCpu(0)), (VcpuIndex(1), HostCpu(1)), (VcpuIndex(2), HostCpu(1))];

    #[test]
    fn text_shows_cores_threads_and_claims() {
        let claims = [Claim { cpus: "2".parse().unwrap(), exclusive: false }];
        let drawn = text(&host(), &Scene { places: &PLACES, claims: &claims });
        assert_eq!(drawn, "node 0, 2 GiB\n  cache of 0-3\n    [0:v0|2:#] [1:v1+v2|3:.]\n");
    }

    #[test]
    fn svg_draws_every_cpu_once_and_balances_its_tags() {
        let drawn = svg(&host(), &Scene { places: &PLACES, claims: &[] });
        for label in ["0:v0", "1:v1+v2", "2:.", "3:."] {
            assert_eq!(drawn.matches(&format!(">{label}</text>")).count(), 1, "{label}");
        }
        assert_eq!(drawn.matches("<text").count(), drawn.matches("</text>").count());
        assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"));
    }
}
