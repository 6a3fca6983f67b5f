// SPDX-License-Identifier: Apache-2.0
#![expect(unsafe_code, reason = "mbind and move_pages have no safe wrapper")]
//! Memory on NUMA nodes: ties a mapping to nodes, and asks the kernel where its pages are.

use std::collections::BTreeMap;
use std::io;
use std::ptr;

use topology::cpu_set::CpuSet;
use topology::id::HostNode;

use crate::config::MemoryPolicy;

/// Words of a node mask: enough for the 1024 nodes of the largest x86 kernel configuration.
const WORDS: usize = 16;
const BITS: usize = 64;
/// `MPOL_MF_MOVE` (include/uapi/linux/mempolicy.h): pages of this process alone are brought along.
const MF_MOVE: libc::c_int = 1 << 1;
const PAGE_BYTES: usize = 4096;
/// Pages that one request asks for.
const BATCH: usize = 512;

/// A part of this process's address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First address, at a page boundary.
    pub start: usize,
    /// Length in bytes.
    pub bytes: usize,
}

/// What becomes of pages that are there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Present {
    /// They stay where they are.
    Stay,
    /// They are brought to the nodes as far as the kernel can (`MPOL_MF_MOVE`).
    Move,
}

/// Ties what will be allocated in `span` to `nodes` (mbind(2)).
///
/// # Errors
/// The kernel's own: `EINVAL` for a node that does not exist, has no memory or is not allowed, `EPERM` or `ENOSYS` where
/// the call is forbidden, as it is in many containers.
pub fn bind(span: Span, policy: MemoryPolicy, nodes: &CpuSet<HostNode>, present: Present) -> io::Result<()> {
    let flags = match present {
        Present::Stay => 0,
        Present::Move => MF_MOVE,
    };
    let mode = match policy {
        MemoryPolicy::Default => libc::MPOL_DEFAULT,
        MemoryPolicy::Preferred => libc::MPOL_PREFERRED,
        MemoryPolicy::Bind => libc::MPOL_BIND,
        MemoryPolicy::Interleave => libc::MPOL_INTERLEAVE,
    };
    let mut mask = [0u64; WORDS];
    for node in nodes.iter().filter(|_| policy != MemoryPolicy::Default) {
        let word = mask.get_mut(node.index() / BITS).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        *word |= 1 << (node.index() % BITS);
    }
    // One more bit than there are: the kernel takes one off (mm/mempolicy.c, get_nodes).
    let bits = WORDS * BITS + 1;
    // SAFETY: mbind changes where pages of the span come from and are, not what they hold; the kernel reads `bits - 1`
    // bits of the mask.
    let result = unsafe { libc::syscall(libc::SYS_mbind, span.start, span.bytes, mode, mask.as_ptr(), bits, flags) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Pages by the node they are on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Located {
    /// Pages found on each node.
    pub pages: BTreeMap<HostNode, u64>,
    /// Pages that were asked for; the rest is not touched yet.
    pub asked: u64,
}

/// Asks where at most `most` pages of the spans are, taken at equal distances (move_pages(2), without moving any).
///
/// # Errors
/// The kernel's own: `EPERM` or `ENOSYS` where the call is forbidden.
pub fn locate(spans: &[Span], most: usize) -> io::Result<Located> {
    let pages: usize = spans.iter().map(|span| span.bytes / PAGE_BYTES).sum();
    let stride = pages.div_ceil(most.max(1)).max(1);
    let addresses: Vec<usize> = spans
        .iter()
        .flat_map(|span| (0..span.bytes / PAGE_BYTES).step_by(stride).map(|page| span.start + page * PAGE_BYTES))
        .collect();
    let mut located = Located { asked: addresses.len() as u64, ..Located::default() };
    for batch in addresses.chunks(BATCH) {
        let mut status = [libc::c_int::MIN; BATCH];
        // SAFETY: without a list of nodes nothing is moved: the kernel looks at the pages' places and writes one status
        // for each address of the batch. Addresses of pages that are not there give a negative status.
        let result = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0,
                batch.len(),
                batch.as_ptr(),
                ptr::null::<libc::c_int>(),
                status.as_mut_ptr(),
                0,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        for node in status[..batch.len()].iter().filter_map(|status| u32::try_from(*status).ok()) {
            *located.pages.entry(HostNode(node)).or_insert(0) += 1;
        }
    }
    Ok(located)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_was_touched_is_found_and_the_rest_is_not() {
        let memory = vec![1u8; 64 * PAGE_BYTES];
        let span = Span { start: memory.as_ptr() as usize, bytes: memory.len() };
        match locate(&[span], 16) {
            Ok(located) => {
                assert_eq!(located.asked, 16);
                assert_eq!(located.pages.values().sum::<u64>(), 16);
            }
            Err(error) => assert!(matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)), "{error}"),
        }
        assert_eq!(locate(&[], 16).map(|located| located.asked).unwrap_or(0), 0);
    }

    #[test]
    fn a_node_that_does_not_exist_is_refused() {
        let none = Span { start: 0, bytes: 0 };
        let far = std::iter::once(HostNode(60_000)).collect();
        assert_eq!(bind(none, MemoryPolicy::Bind, &far, Present::Stay).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}
