// SPDX-License-Identifier: Apache-2.0
//! Our own bookkeeping of which vCPU threads want which host CPU: what is known without asking the kernel.
//!
//! Pure. A vCPU counts on the CPU it was last heard from, until it parks or is seen to sleep. Foreign tasks are not in
//! the book. Invariant: every CPU's count is the number of vCPUs that the book has on it.

use topology::id::{HostCpu, VcpuIndex};

/// Who is where.
#[derive(Clone, Debug, Default)]
pub(super) struct Book {
    cpus: Vec<Option<HostCpu>>,
    counts: Vec<u32>,
}

impl Book {
    /// A book in which none of `vcpus` vCPUs is anywhere.
    pub(super) fn new(vcpus: usize) -> Self {
        Self { cpus: vec![None; vcpus], counts: Vec::new() }
    }

    /// `vcpu` wants `cpu`; `None` takes it out of the book.
    pub(super) fn put(&mut self, vcpu: VcpuIndex, cpu: Option<HostCpu>) {
        /// Most CPUs of an x86 kernel.
        const MOST: usize = 8192;
        let cpu = cpu.filter(|cpu| cpu.index() < MOST);
        let Some(slot) = self.cpus.get_mut(vcpu.index()).filter(|slot| **slot != cpu) else { return };
        let before = std::mem::replace(slot, cpu);
        if let Some(count) = before.and_then(|cpu| self.counts.get_mut(cpu.index())) {
            *count -= 1;
        }
        if let Some(cpu) = cpu {
            if self.counts.len() <= cpu.index() {
                self.counts.resize(cpu.index() + 1, 0);
            }
            self.counts[cpu.index()] += 1;
        }
    }

    /// Where it is.
    pub(super) fn cpu(&self, vcpu: VcpuIndex) -> Option<HostCpu> {
        self.cpus.get(vcpu.index()).copied().flatten()
    }

    /// How many want the CPU that `vcpu` is on, itself included; `None` if it is nowhere.
    pub(super) fn runqueue(&self, vcpu: VcpuIndex) -> Option<u32> {
        self.cpu(vcpu).and_then(|cpu| self.counts.get(cpu.index()).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_follow_moves() {
        let mut book = Book::new(3);
        let [a, b] = [VcpuIndex(0), VcpuIndex(1)];
        book.put(a, Some(HostCpu(4)));
        book.put(b, Some(HostCpu(4)));
        assert_eq!((book.runqueue(a), book.cpu(b)), (Some(2), Some(HostCpu(4))));
        book.put(b, Some(HostCpu(1)));
        book.put(b, Some(HostCpu(1)));
        assert_eq!((book.runqueue(a), book.runqueue(b)), (Some(1), Some(1)));
        book.put(a, None);
        assert_eq!((book.runqueue(a), book.runqueue(VcpuIndex(2)), book.runqueue(VcpuIndex(9))), (None, None, None));
        book.put(VcpuIndex(9), Some(HostCpu(0)));
        book.put(a, Some(HostCpu(u32::MAX)));
        assert_eq!(book.runqueue(a), None);
    }
}
