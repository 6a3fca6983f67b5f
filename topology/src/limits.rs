// SPDX-License-Identifier: Apache-2.0
//! What no machine exceeds, whoever asks for it.

/// Most CPUs of a machine: what KVM allows at most (`CONFIG_KVM_MAX_NR_VCPUS`, Linux 6.7 and later).
pub const MAX_CPUS: u32 = 4096;
/// Most NUMA nodes of a machine (Linux `CONFIG_NODES_SHIFT`, 6 by default on x86-64).
pub const MAX_NODES: usize = 64;
/// Size of a page in bytes: memory comes in whole pages.
pub const PAGE_BYTES: u64 = 4096;
/// Most memory of a machine in bytes: x86 has 52 bits of physical address (Intel SDM vol. 3A, section 5.1.4).
pub const MAX_MEMORY_BYTES: u64 = 1 << 52;
