// SPDX-License-Identifier: Apache-2.0
//! What the emulated host looks like: processors, NUMA nodes, distances. Parsed and checked before anything is fetched.
//!
//! Place in the flow: text from a flag or a test → [`HostShape`] and [`NumaLayout`] → arguments in `qemu`.
//! Invariant: a value of these types describes a machine QEMU can build; every processor is in one node, the memory of
//! the nodes adds up to the memory of the host.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The q35 machine is built without interrupt remapping, so every APIC id must fit into eight bits (255 is broadcast).
const CPUS_MAX: u32 = 255;
/// Below this the lab kernel and its file system do not fit.
const MEMORY_MIN_MIB: u32 = 512;
/// ACPI SLIT: the distance of a node to itself; remote ones are larger (ACPI 6.5, section 5.2.17).
const DISTANCE_LOCAL: u8 = 10;
const DISTANCE_REMOTE_DEFAULT: u8 = 20;

/// Why a host shape is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ShapeError {
    /// The text is not one of the three forms.
    #[error(
        "host shape {text:?}: {why}; write N (processors), SOCKETSxCORESxTHREADS or SOCKETSxDIESxCORESxTHREADS, such as 2x2x2"
    )]
    Syntax {
        /// The text as given.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// More processors than eight-bit APIC ids can name.
    #[error("host shape {text:?} has {cpus} processors, the lab can emulate {CPUS_MAX}; ask for fewer")]
    TooManyCpus {
        /// The text as given.
        text: String,
        /// Its number of processors.
        cpus: u64,
    },
    /// Too little memory to start in.
    #[error("{mib} MiB of host memory is too little: the lab host needs {least} MiB; ask for more memory")]
    MemoryTooSmall {
        /// Memory asked for.
        mib: u32,
        /// The least that works with this number of nodes.
        least: u32,
    },
    /// No node, or more than QEMU has.
    #[error("{nodes} NUMA nodes: the lab host can have 1 to 64; ask for a number in that range")]
    Nodes {
        /// The number asked for.
        nodes: u32,
    },
    /// A distance names a node that is not there.
    #[error("distance {from}:{to}: the lab host has the nodes 0 to {last}; name two of them")]
    NoSuchNode {
        /// First node.
        from: u32,
        /// Second node.
        to: u32,
        /// The highest node there is.
        last: u32,
    },
    /// A remote distance that firmware may not state.
    #[error(
        "distance {from}:{to}={value}: a node is {DISTANCE_LOCAL} from itself and 11 to 254 from another; correct the value"
    )]
    Distance {
        /// First node.
        from: u32,
        /// Second node.
        to: u32,
        /// The value asked for.
        value: u8,
    },
    /// A distance that is not `FROM:TO=VALUE`.
    #[error("distance {text:?} is not understood; write FROM:TO=VALUE, such as 0:1=21")]
    DistanceSyntax {
        /// The text as given.
        text: String,
    },
}

/// Sockets × dies × cores × threads of the emulated host.
///
/// Written `N` (one socket with N cores), `SxCxT` (sockets, cores a socket, threads a core) or `SxDxCxT` (with dies a
/// socket, cores a die). Two numbers are refused: nobody could say which two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostShape {
    /// Packages, at least one.
    pub sockets: u32,
    /// Dies in a package, at least one; each has a last-level cache of its own.
    pub dies: u32,
    /// Cores in a die, at least one.
    pub cores: u32,
    /// Hardware threads in a core, at least one.
    pub threads: u32,
}

impl HostShape {
    /// The sound default: one processor.
    pub const ONE_CPU: Self = Self { sockets: 1, dies: 1, cores: 1, threads: 1 };

    /// Number of emulated processors.
    #[must_use]
    pub fn cpus(&self) -> u32 {
        self.sockets * self.dies * self.cores * self.threads
    }
}

impl fmt::Display for HostShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}x{}", self.sockets, self.dies, self.cores, self.threads)
    }
}

impl FromStr for HostShape {
    type Err = ShapeError;

    fn from_str(text: &str) -> Result<Self, ShapeError> {
        let refuse = |why| ShapeError::Syntax { text: text.to_owned(), why };
        let numbers = text
            .split('x')
            .map(|part| match part.parse::<u32>() {
                Ok(0) => Err(refuse("a level has at least one member")),
                Ok(number) if part.bytes().all(|b| b.is_ascii_digit()) => Ok(number),
                _ => Err(refuse("a level is a number")),
            })
            .collect::<Result<Vec<u32>, _>>()?;
        let (sockets, dies, cores, threads) = match numbers[..] {
            [cpus] => (1, 1, cpus, 1),
            [sockets, cores, threads] => (sockets, 1, cores, threads),
            [sockets, dies, cores, threads] => (sockets, dies, cores, threads),
            _ => return Err(refuse("it has one, three or four levels")),
        };
        let cpus =
            [dies, cores, threads].iter().fold(u64::from(sockets), |product, &n| product.saturating_mul(n.into()));
        if cpus > u64::from(CPUS_MAX) {
            return Err(ShapeError::TooManyCpus { text: text.to_owned(), cpus });
        }
        Ok(Self { sockets, dies, cores, threads })
    }
}

/// One NUMA node of the emulated host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostNode {
    /// First and last processor, or none for a node that has only memory.
    pub cpus: Option<(u32, u32)>,
    /// Memory of the node.
    pub memory_mib: u32,
}

/// One stated distance: from node, to node, value (10 is local).
pub type Distance = (u32, u32, u8);

/// Reads `FROM:TO=VALUE`.
pub fn parse_distance(text: &str) -> Result<Distance, ShapeError> {
    let parts = || {
        let (from, rest) = text.split_once(':')?;
        let (to, value) = rest.split_once('=')?;
        Some((from.parse().ok()?, to.parse().ok()?, value.parse().ok()?))
    };
    parts().ok_or_else(|| ShapeError::DistanceSyntax { text: text.to_owned() })
}

/// The nodes of the emulated host and how far they are from each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumaLayout {
    /// Nodes by number.
    pub nodes: Vec<HostNode>,
    /// Square matrix `[from][to]`; none leaves the choice to the firmware (10 and 20).
    pub distances: Option<Vec<Vec<u8>>>,
}

impl NumaLayout {
    /// Splits processors and memory evenly over `nodes` nodes; what is left over goes to the first ones. With more nodes
    /// than processors the last nodes have only memory. A distance holds for both directions unless the other is stated.
    pub fn new(shape: &HostShape, nodes: u32, memory_mib: u32, distances: &[Distance]) -> Result<Self, ShapeError> {
        if !(1..=64).contains(&nodes) {
            return Err(ShapeError::Nodes { nodes });
        }
        let least = MEMORY_MIN_MIB.max(nodes * 64);
        if memory_mib < least {
            return Err(ShapeError::MemoryTooSmall { mib: memory_mib, least });
        }
        let share = |total: u32, node: u32| total / nodes + u32::from(node < total % nodes);
        let mut first = 0;
        let split = (0..nodes).map(|node| {
            let count = share(shape.cpus(), node);
            let cpus = (count > 0).then(|| (first, first + count - 1));
            first += count;
            HostNode { cpus, memory_mib: share(memory_mib, node) }
        });
        Ok(Self { nodes: split.collect(), distances: matrix(nodes, distances)? })
    }
}

fn matrix(nodes: u32, stated: &[Distance]) -> Result<Option<Vec<Vec<u8>>>, ShapeError> {
    if stated.is_empty() {
        return Ok(None);
    }
    for &(from, to, value) in stated {
        if from >= nodes || to >= nodes {
            return Err(ShapeError::NoSuchNode { from, to, last: nodes - 1 });
        }
        let possible = if from == to { value == DISTANCE_LOCAL } else { value > DISTANCE_LOCAL && value < u8::MAX };
        if !possible {
            return Err(ShapeError::Distance { from, to, value });
        }
    }
    let find = |from, to| stated.iter().rev().find(|d| (d.0, d.1) == (from, to)).map(|d| d.2);
    let between = |from, to| match find(from, to).or_else(|| find(to, from)) {
        _ if from == to => DISTANCE_LOCAL,
        Some(value) => value,
        None => DISTANCE_REMOTE_DEFAULT,
    };
    Ok(Some((0..nodes).map(|from| (0..nodes).map(|to| between(from, to)).collect()).collect()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_three_forms_are_read() {
        let shape = |text: &str| text.parse::<HostShape>().map(|s| s.to_string());
        assert_eq!(shape("1").unwrap(), "1x1x1x1");
        assert_eq!(shape("4").unwrap(), "1x1x4x1");
        assert_eq!(shape("2x2x2").unwrap(), "2x1x2x2");
        assert_eq!(shape("2x2x2x2").unwrap(), "2x2x2x2");
    }

    #[test]
    fn other_forms_are_refused_with_the_reason() {
        for (text, part) in [
            ("", "a level is a number"),
            ("2x2", "one, three or four"),
            ("1x1x1x1x1", "one, three or four"),
            ("0", "at least one"),
            ("2x0x2", "at least one"),
            ("+2", "a level is a number"),
            ("2X2X2", "a level is a number"),
            ("4294967295x4294967295x2", "can emulate 255"),
            ("16x16x1", "has 256 processors"),
        ] {
            let message = text.parse::<HostShape>().unwrap_err().to_string();
            assert!(message.contains(part), "{text:?}: {message}");
        }
    }

    #[test]
    fn one_processor_and_four_nodes_leave_three_nodes_with_memory_only() {
        let layout = NumaLayout::new(&HostShape::ONE_CPU, 4, 3072, &[]).unwrap();
        assert_eq!(layout.nodes.iter().map(|n| n.cpus).collect::<Vec<_>>(), [Some((0, 0)), None, None, None]);
        assert_eq!(layout.distances, None);
    }

    #[test]
    fn a_distance_holds_both_ways_unless_the_other_way_is_stated() {
        let shape = "4".parse().unwrap();
        let layout = NumaLayout::new(&shape, 3, 3072, &[(0, 1, 15), (1, 2, 30), (2, 1, 40)]).unwrap();
        assert_eq!(layout.distances.unwrap(), [[10, 15, 20], [15, 10, 30], [20, 40, 10]]);
    }

    #[test]
    fn impossible_nodes_are_refused() {
        let shape = HostShape::ONE_CPU;
        let refused = |nodes, mib, distances: &[Distance]| NumaLayout::new(&shape, nodes, mib, distances).unwrap_err();
        assert_eq!(refused(0, 3072, &[]), ShapeError::Nodes { nodes: 0 });
        assert_eq!(refused(2, 100, &[]), ShapeError::MemoryTooSmall { mib: 100, least: 512 });
        assert_eq!(refused(2, 3072, &[(0, 2, 20)]), ShapeError::NoSuchNode { from: 0, to: 2, last: 1 });
        assert_eq!(refused(2, 3072, &[(0, 1, 10)]), ShapeError::Distance { from: 0, to: 1, value: 10 });
        assert_eq!(refused(2, 3072, &[(1, 1, 20)]), ShapeError::Distance { from: 1, to: 1, value: 20 });
        assert!(parse_distance("0-1=20").is_err());
        assert_eq!(parse_distance("0:1=21"), Ok((0, 1, 21)));
    }

    proptest! {
        #[test]
        fn every_processor_is_in_one_node_and_the_memory_adds_up(cpus in 1u32..=255, nodes in 1u32..=64, mib in 4096u32..65536) {
            let shape = HostShape { sockets: 1, dies: 1, cores: cpus, threads: 1 };
            let layout = NumaLayout::new(&shape, nodes, mib, &[]).unwrap();
            let mut next = 0;
            for (first, last) in layout.nodes.iter().filter_map(|n| n.cpus) {
                prop_assert_eq!(first, next);
                next = last + 1;
            }
            prop_assert_eq!(next, cpus);
            prop_assert_eq!(layout.nodes.iter().map(|n| n.memory_mib).sum::<u32>(), mib);
        }
    }
}
