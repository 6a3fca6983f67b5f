// SPDX-License-Identifier: Apache-2.0
//! Guest nodes on host nodes: which policy each gets, what the kernel accepted, and where the pages really are.

use std::io;

use policy::placement::{Guest, Mode, Plan};
use topology::cpu_set::CpuSet;
use topology::host::HostTopology;
use topology::id::{HostNode, NodeId};
use topology::memory_map::MemoryMap;

use crate::config::{HugePages, Machine, MemoryPolicy, NodeWish};
use crate::host::huge_pages::{self, Advice};
use crate::host::numa_memory::{self, Located, Present, Span};
use crate::host::sysfs;
use crate::memory::GuestRam;

/// A guest node's memory on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeMemory {
    /// The guest node.
    pub guest: NodeId,
    /// Whether the user asked for this: it is then refused where it cannot be had.
    pub wished: bool,
    /// How it is tied.
    pub policy: MemoryPolicy,
    /// To which host nodes; empty with policy `default`.
    pub host_nodes: CpuSet<HostNode>,
    /// Where it is in this process; filled by [`bind`].
    pub spans: Vec<Span>,
}

impl NodeMemory {
    /// Bytes on each node of the host, judged by at most so many pages. All 0 if the kernel does not tell.
    pub(super) fn bytes_on(&self, host: &HostTopology, most_pages: usize) -> Vec<u64> {
        self.bytes_found(host, &locate(self, most_pages).unwrap_or_default())
    }

    /// The same, given what the kernel told. What nobody has touched yet counts as where it will be, if that is one node.
    fn bytes_found(&self, host: &HostTopology, found: &Located) -> Vec<u64> {
        let bytes: u64 = self.spans.iter().map(|span| span.bytes as u64).sum();
        let each = bytes / found.asked.max(1);
        let untouched = found.asked.saturating_sub(found.pages.values().sum());
        let one = matches!(self.policy, MemoryPolicy::Bind | MemoryPolicy::Preferred) && self.host_nodes.len() == 1;
        let later = self.host_nodes.lowest().filter(|_| one);
        let on = |node: HostNode| {
            let pages = found.pages.get(&node).copied().unwrap_or(0);
            (pages + if later == Some(node) { untouched } else { 0 }) * each
        };
        host.nodes().iter().map(|node| on(node.id)).collect()
    }
}

/// A node's memory cannot be tied as the user wants.
#[derive(Debug, thiserror::Error)]
pub enum MemoryPlaceError {
    /// Too little is free.
    #[error(
        "guest node {guest} needs {wanted_bytes} bytes bound to the host nodes {host_nodes}, which have {free_bytes} free; \
         bind to other nodes, use policy=preferred, or ask for less"
    )]
    Full {
        /// The guest node.
        guest: NodeId,
        /// The host nodes as a list.
        host_nodes: String,
        /// What it needs.
        wanted_bytes: u64,
        /// What is free there.
        free_bytes: u64,
    },
    /// Too few huge pages are free.
    #[error(
        "guest node {guest} needs {needed} huge pages of {pages} bound to the host nodes {host_nodes}, where {free} are free \
         and not promised to others; add some there (/sys/devices/system/node/node*/hugepages/*/nr_hugepages), or leave \
         host-node= out"
    )]
    FewHugePages {
        /// The guest node.
        guest: NodeId,
        /// The host nodes as a list.
        host_nodes: String,
        /// Which pages, as `--hugepages` spells them.
        pages: HugePages,
        /// Pages that the node needs.
        needed: u64,
        /// Pages that are free there.
        free: u64,
    },
    /// A host node that does not exist.
    #[error("guest node {guest} wants host node {host}, which does not exist; there are nodes {existing}")]
    NoSuchNode {
        /// The guest node.
        guest: NodeId,
        /// The host node.
        host: HostNode,
        /// Host nodes, as a list.
        existing: String,
    },
    /// The kernel refused.
    #[error("the memory of guest node {guest} cannot be tied to the host nodes {host_nodes} ({policy}): {source}; {}", remedy(.source))]
    Refused {
        /// The guest node.
        guest: NodeId,
        /// The host nodes as a list.
        host_nodes: String,
        /// How.
        policy: MemoryPolicy,
        /// The kernel's reason.
        source: io::Error,
    },
}

fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::ENOSYS) => "allow mbind in the container's seccomp profile (CAP_SYS_NICE)",
        Some(libc::EINVAL) => "the node must have memory and be in the cpuset (cpuset.mems)",
        _ => "leave host-node= and policy= out",
    }
}

/// What placement must know of the wishes: the node to be near, and how much memory must be there.
///
/// Pages of a pool are no part of a node's free memory: that does not limit them, the pool does.
pub(crate) fn wish(guest: &mut Guest, wishes: &[NodeWish], pages: Option<HugePages>) {
    let pooled = pages.is_some_and(|pages| pages.pool_page_bytes().is_some());
    for (node, wish) in guest.nodes.iter_mut().zip(wishes) {
        node.host_node = wish.host_nodes.lowest();
        if pooled {
            node.memory_bytes = 0;
        }
        let bound = wish.policy.unwrap_or(MemoryPolicy::Bind) == MemoryPolicy::Bind;
        // Memory that may be elsewhere too is no reason to refuse the node.
        if node.host_node.is_some() && !(bound && wish.host_nodes.len() == 1) {
            node.memory_bytes = 0;
        }
    }
}

/// Decides how each guest node's memory is tied.
///
/// # Errors
/// [`MemoryPlaceError::NoSuchNode`], [`MemoryPlaceError::Full`].
pub(super) fn decide(machine: &Machine, host: &HostTopology, plan: &Plan) -> Result<Vec<NodeMemory>, MemoryPlaceError> {
    let with_memory: CpuSet<HostNode> =
        host.nodes().iter().filter(|node| node.memory_bytes != Some(0)).map(|node| node.id).collect();
    let automatic = machine.placement.mode == Mode::Auto && with_memory.len() > 1;
    let mut nodes = Vec::new();
    for ((node, wish), home) in machine.topology.nodes().iter().zip(&machine.node_wishes).zip(&plan.homes) {
        let wished = !wish.host_nodes.is_empty() || wish.policy.is_some();
        let policy = wish.policy.unwrap_or(match (wish.host_nodes.is_empty(), automatic) {
            (false, _) => MemoryPolicy::Bind,
            (true, true) => MemoryPolicy::Preferred,
            (true, false) => MemoryPolicy::Default,
        });
        let host_nodes = match (policy, wish.host_nodes.is_empty()) {
            (MemoryPolicy::Default, _) => CpuSet::new(),
            (MemoryPolicy::Interleave, true) => with_memory.clone(),
            (_, true) => home.host.into_iter().collect(),
            (_, false) => wish.host_nodes.clone(),
        };
        // Without a home there is nothing to be tied to.
        let policy = if host_nodes.is_empty() { MemoryPolicy::Default } else { policy };
        check(host, node.id, (policy, &host_nodes), (node.memory_bytes, machine.huge_pages))?;
        nodes.push(NodeMemory { guest: node.id, wished, policy, host_nodes, spans: Vec::new() });
    }
    Ok(nodes)
}

fn check(
    host: &HostTopology,
    guest: NodeId,
    (policy, nodes): (MemoryPolicy, &CpuSet<HostNode>),
    (wanted_bytes, pages): (u64, Option<HugePages>),
) -> Result<(), MemoryPlaceError> {
    let mut free_bytes = Some(0u64);
    for id in nodes.iter() {
        let Some(index) = host.node_index(id) else {
            let existing: CpuSet<HostNode> = host.nodes().iter().map(|node| node.id).collect();
            return Err(MemoryPlaceError::NoSuchNode { guest, host: id, existing: existing.to_string() });
        };
        free_bytes = free_bytes.zip(host.nodes()[index].free_bytes).map(|(sum, free)| sum.saturating_add(free));
    }
    if let Some((pages, page_bytes)) = pages.and_then(|pages| Some((pages, pages.pool_page_bytes()?))) {
        return match policy {
            MemoryPolicy::Bind => check_pool(guest, nodes, (pages, page_bytes), wanted_bytes / page_bytes),
            _ => Ok(()),
        };
    }
    match free_bytes {
        Some(free_bytes) if policy == MemoryPolicy::Bind && free_bytes < wanted_bytes => {
            Err(MemoryPlaceError::Full { guest, host_nodes: nodes.to_string(), wanted_bytes, free_bytes })
        }
        _ => Ok(()),
    }
}

/// Whether the nodes' shares of the pool suffice. Where pages are promised, to whom on which node is not known: they count
/// as gone. Unless the kernel may add pages, it is the only one to say.
fn check_pool(
    guest: NodeId,
    nodes: &CpuSet<HostNode>,
    (pages, page_bytes): (HugePages, u64),
    needed: u64,
) -> Result<(), MemoryPlaceError> {
    let Some(pool) = huge_pages::pool(&sysfs::read_small, page_bytes) else { return Ok(()) };
    let shares = nodes.iter().map(|node| huge_pages::free_on_node(&sysfs::read_small, page_bytes, node));
    let Some(there) = shares.sum::<Option<u64>>() else { return Ok(()) };
    let free = there.min(pool.free);
    if needed <= free || pool.surplus > 0 {
        return Ok(());
    }
    Err(MemoryPlaceError::FewHugePages { guest, host_nodes: nodes.to_string(), pages, needed, free })
}

/// Takes the pages of bound nodes from the pool now: what is promised is promised for the whole host, and a node that has
/// none left would only be found when the guest runs into it.
///
/// # Errors
/// [`MemoryPlaceError::FewHugePages`]. A kernel that cannot do it beforehand (before 5.14) does it when it has to.
pub(super) fn populate(nodes: &[NodeMemory], pages: Option<HugePages>) -> Result<(), MemoryPlaceError> {
    let Some((pages, page_bytes)) = pages.and_then(|pages| Some((pages, pages.pool_page_bytes()?))) else {
        return Ok(());
    };
    for node in nodes.iter().filter(|node| node.policy == MemoryPolicy::Bind) {
        match node.spans.iter().try_for_each(|span| huge_pages::advise(*span, Advice::Populate)) {
            Err(error) if error.raw_os_error() != Some(libc::EINVAL) => {
                let bytes: u64 = node.spans.iter().map(|span| span.bytes as u64).sum();
                let shares = node.host_nodes.iter();
                let free = shares.filter_map(|id| huge_pages::free_on_node(&sysfs::read_small, page_bytes, id)).sum();
                let host_nodes = node.host_nodes.to_string();
                let needed = bytes / page_bytes;
                return Err(MemoryPlaceError::FewHugePages { guest: node.guest, host_nodes, pages, needed, free });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Ties the guest's RAM, of which nothing was touched yet.
///
/// # Errors
/// [`MemoryPlaceError::Refused`] for what the user asked for; what was only preferred is given up, and said in
/// `remarks`.
pub(super) fn bind(
    nodes: &mut [NodeMemory],
    map: &MemoryMap,
    ram: &GuestRam,
    remarks: &mut Vec<String>,
) -> Result<(), MemoryPlaceError> {
    for (range, span) in map.ram().iter().zip(ram.spans()) {
        if let Some(node) = nodes.iter_mut().find(|node| node.guest == range.node) {
            node.spans.push(span);
        }
    }
    for node in nodes.iter_mut().filter(|node| node.policy != MemoryPolicy::Default) {
        let tied = node
            .spans
            .iter()
            .try_for_each(|span| numa_memory::bind(*span, node.policy, &node.host_nodes, Present::Stay));
        let Err(source) = tied else { continue };
        let (guest, host_nodes, policy) = (node.guest, node.host_nodes.to_string(), node.policy);
        let refused = MemoryPlaceError::Refused { guest, host_nodes, policy, source };
        if node.wished {
            return Err(refused);
        }
        remarks.push(refused.to_string());
        (node.policy, node.host_nodes) = (MemoryPolicy::Default, CpuSet::new());
    }
    Ok(())
}

/// The home of a node that may be given another one; `None` for one that the user, or the kernel, decides about.
#[must_use]
pub(super) fn movable_home(node: &NodeMemory) -> Option<HostNode> {
    match node.policy {
        MemoryPolicy::Preferred if !node.wished => node.host_nodes.lowest(),
        _ => None,
    }
}

/// Brings a guest node's memory to another host node, what is there already and what will be.
///
/// # Errors
/// The kernel's own; some of the pages may have moved by then.
pub(super) fn follow(node: &mut NodeMemory, to: HostNode) -> io::Result<()> {
    /// Bytes that one call moves: the guest's threads wait for no more than the pages under way.
    const STEP_BYTES: usize = 64 << 20;
    let nodes: CpuSet<HostNode> = std::iter::once(to).collect();
    for span in &node.spans {
        for offset in (0..span.bytes).step_by(STEP_BYTES) {
            let part = Span { start: span.start + offset, bytes: STEP_BYTES.min(span.bytes - offset) };
            numa_memory::bind(part, MemoryPolicy::Preferred, &nodes, Present::Move)?;
        }
    }
    (node.policy, node.host_nodes) = (MemoryPolicy::Preferred, nodes);
    Ok(())
}

/// Where a guest node's pages are, as the kernel says; `None` where it does not say.
#[must_use]
pub fn locate(node: &NodeMemory, most_pages: usize) -> Option<Located> {
    numa_memory::locate(&node.spans, most_pages).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use topology::host::HostShape;

    use super::*;

    #[test]
    fn memory_that_nobody_has_touched_is_where_it_will_be() {
        let shape = HostShape { nodes: 2, llcs: 1, clusters: 1, cores: 1, threads: 1, node_memory_bytes: 1 << 30 };
        let host = shape.build().unwrap();
        let node = |policy, nodes: &str| NodeMemory {
            guest: NodeId(0),
            wished: false,
            policy,
            host_nodes: nodes.parse().unwrap(),
            spans: vec![Span { start: 0, bytes: 8 << 12 }],
        };
        let found = Located { pages: BTreeMap::from([(HostNode(0), 2)]), asked: 8 };
        let bytes = |policy, nodes| node(policy, nodes).bytes_found(&host, &found);
        for policy in [MemoryPolicy::Preferred, MemoryPolicy::Bind] {
            assert_eq!(bytes(policy, "1"), [2 << 12, 6 << 12]);
        }
        assert_eq!(bytes(MemoryPolicy::Bind, "0-1"), [2 << 12, 0], "on which of the two is not known");
        assert_eq!(bytes(MemoryPolicy::Interleave, "1"), [2 << 12, 0]);
        assert_eq!(
            node(MemoryPolicy::Bind, "1").bytes_found(&host, &Located::default()),
            [0, 0],
            "the kernel tells nothing"
        );
    }
}
