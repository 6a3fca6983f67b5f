// SPDX-License-Identifier: Apache-2.0
//! What the policy may look at: a snapshot of the vCPUs and of the host CPUs they are on.
//!
//! The caller keeps one [`HostView`] per VM and writes what it learns into it, one vCPU at a time; candidate sets and
//! per-CPU counts are kept along, so that a decision reads words and not structures.
//!
//! Invariant: what cannot be seen is `None` or [`VcpuState::Unknown`]. Unknown is not zero and not "idle".

use topology::id::{HostCpu, HostNode, VcpuIndex};

use super::bits::Bits;
use crate::time::Nanos;

/// Where a vCPU thread stands with the host's scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum VcpuState {
    /// Not started, or its thread has ended. Never a target.
    #[default]
    Stopped,
    /// Runnable; the host does not show whether it is on a CPU. What our own bookkeeping knows of a thread in KVM_RUN.
    Unknown,
    /// On a host CPU at the moment of the snapshot.
    Running,
    /// Runnable, and off CPU.
    Queued,
    /// Waiting in HLT for an interrupt.
    Halted,
    /// Blocked by our own mechanism after a decision to park.
    Parked,
}

/// One vCPU, as far as it can be seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VcpuView {
    /// Where its thread stands.
    pub state: VcpuState,
    /// It reported a pause loop and has not been seen to leave it.
    pub spinning: bool,
    /// An interrupt is pending, or it was just woken and has not run since (the kernel's `ready`).
    pub pending_interrupt: bool,
    /// The steal-time `preempted` byte: set means preempted in guest code; clear means unknown (research: KVM writes it
    /// only when a host interrupt takes the CPU).
    pub preempted: bool,
    /// Whether the guest was in kernel mode when preempted; `None` where the host cannot see it (encrypted guests).
    pub in_kernel: Option<bool>,
    /// The CPU it is on or was last seen on.
    pub cpu: Option<HostCpu>,
    /// Runnable tasks on that CPU, itself included, as the kernel's `nr_running`; `None` where the view cannot say.
    pub runqueue: Option<u32>,
    /// Since when it has wanted a CPU without having one.
    pub waiting_since: Option<Nanos>,
}

impl VcpuView {
    /// Whether giving this vCPU a CPU could help anybody: it wants one and is not known to have one.
    ///
    /// A parked vCPU waits for somebody else by definition; it is a target only when named or when an interrupt waits.
    #[must_use]
    pub const fn wants_cpu(&self) -> bool {
        match self.state {
            VcpuState::Stopped | VcpuState::Running => false,
            VcpuState::Unknown | VcpuState::Queued => true,
            VcpuState::Halted | VcpuState::Parked => self.pending_interrupt,
        }
    }
}

/// Where a host CPU lies. Equal numbers mean a shared cluster (L2), last-level cache or node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Locality {
    /// CPUs that share an L2.
    pub cluster: u32,
    /// CPUs that share the last-level cache.
    pub llc: u32,
    /// NUMA node.
    pub node: HostNode,
}

/// The snapshot of one VM's vCPUs on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostView {
    vcpus: Vec<VcpuView>,
    localities: Vec<Option<Locality>>,
    usable_cpus: u32,
    utilisation: Option<u32>,
    parked: usize,
    pub(crate) wants: Bits,
    pub(crate) pending: Bits,
    pub(crate) preempted: Bits,
    pub(crate) in_kernel: Bits,
    pub(crate) spinning: Bits,
}

impl HostView {
    /// A view of `vcpus` stopped vCPUs.
    ///
    /// `localities[n]` is where host CPU `n` lies, `None` for a hole; a CPU beyond the slice has no known place.
    /// `usable_cpus` is the number of host CPUs the vCPU threads may run on together (their affinity), at least 1.
    #[must_use]
    pub fn new(vcpus: usize, localities: Vec<Option<Locality>>, usable_cpus: u32) -> Self {
        Self {
            vcpus: vec![VcpuView::default(); vcpus],
            localities,
            usable_cpus: usable_cpus.max(1),
            utilisation: None,
            parked: 0,
            wants: Bits::new(vcpus),
            pending: Bits::new(vcpus),
            preempted: Bits::new(vcpus),
            in_kernel: Bits::new(vcpus),
            spinning: Bits::new(vcpus),
        }
    }

    /// Number of vCPUs.
    #[must_use]
    pub fn vcpu_count(&self) -> usize {
        self.vcpus.len()
    }

    /// What is known of `vcpu`; `None` if there is no such vCPU.
    #[must_use]
    pub fn get(&self, vcpu: VcpuIndex) -> Option<&VcpuView> {
        self.vcpus.get(vcpu.index())
    }

    /// Replaces what is known of `vcpu`. A vCPU that does not exist is ignored.
    pub fn set(&mut self, vcpu: VcpuIndex, seen: VcpuView) {
        let at = vcpu.index();
        let Some(slot) = self.vcpus.get_mut(at) else { return };
        self.parked -= usize::from(slot.state == VcpuState::Parked);
        self.parked += usize::from(seen.state == VcpuState::Parked);
        *slot = seen;
        self.wants.assign(at, seen.wants_cpu());
        self.pending.assign(at, seen.pending_interrupt);
        self.preempted.assign(at, seen.preempted || seen.state == VcpuState::Queued);
        self.in_kernel.assign(at, seen.in_kernel == Some(true));
        self.spinning.assign(at, seen.spinning);
    }

    /// Changes what is known of `vcpu` in place. A vCPU that does not exist is ignored.
    pub fn update(&mut self, vcpu: VcpuIndex, change: impl FnOnce(&mut VcpuView)) {
        if let Some(mut seen) = self.get(vcpu).copied() {
            change(&mut seen);
            self.set(vcpu, seen);
        }
    }

    /// Number of vCPUs that are parked.
    #[must_use]
    pub const fn parked_count(&self) -> usize {
        self.parked
    }

    /// Number of host CPUs the vCPU threads may run on together.
    #[must_use]
    pub const fn usable_cpus(&self) -> u32 {
        self.usable_cpus
    }

    /// Says how many host CPUs the vCPU threads may run on together; 0 counts as 1.
    pub fn set_usable_cpus(&mut self, cpus: u32) {
        self.usable_cpus = cpus.max(1);
    }

    /// Utilisation of the last-level cache's CPUs in 1/1024, `None` where it is not measured.
    #[must_use]
    pub const fn utilisation(&self) -> Option<u32> {
        self.utilisation
    }

    /// Says how busy the CPUs of the last-level cache are, in 1/1024; more than 1024 counts as 1024.
    pub fn set_utilisation(&mut self, per_1024: Option<u32>) {
        self.utilisation = per_1024.map(|u| u.min(1024));
    }

    /// Where every host CPU lies, as handed in.
    #[must_use]
    pub fn localities(&self) -> &[Option<Locality>] {
        &self.localities
    }

    /// Distance class between two CPUs: 0 same CPU, 1 same cluster, 2 same LLC, 3 same node, 4 remote or unknown.
    pub(crate) fn distance(&self, a: Option<HostCpu>, b: Option<HostCpu>) -> u8 {
        let (Some(a), Some(b)) = (a, b) else { return 4 };
        if a == b {
            return 0;
        }
        let place = |cpu: HostCpu| self.localities.get(cpu.index()).copied().flatten();
        match (place(a), place(b)) {
            (Some(a), Some(b)) if a.node == b.node && a.llc == b.llc && a.cluster == b.cluster => 1,
            (Some(a), Some(b)) if a.node == b.node && a.llc == b.llc => 2,
            (Some(a), Some(b)) if a.node == b.node => 3,
            _ => 4,
        }
    }
}
