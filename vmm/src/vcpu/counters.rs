// SPDX-License-Identifier: Apache-2.0
//! What a vCPU thread counts: exits by kind. One writer, any number of readers, counters only grow.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::kvm::exit::Exit;

/// The kinds of exits that are counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum ExitKind {
    /// The guest read an I/O port.
    PortRead,
    /// The guest wrote an I/O port.
    PortWrite,
    /// The guest read an address that is not RAM.
    MmioRead,
    /// The guest wrote an address that is not RAM.
    MmioWrite,
    /// `hlt` that reached user space.
    Halted,
    /// A signal or `immediate_exit` ended the call.
    Interrupted,
    /// KVM asked to be called again.
    Again,
    /// A hypercall that KVM passed on.
    Hypercall,
    /// A read of a model-specific register that KVM does not know; the guest got a #GP.
    MsrRead,
    /// A write of one.
    MsrWrite,
    /// Everything that ends a guest: triple fault, failed entry, internal error, system event, unknown.
    Final,
    /// Exits that this monitor never asks for: debug, interrupt window.
    Unrequested,
}

impl ExitKind {
    /// Every kind, in the order of the counters.
    pub const ALL: [Self; 12] = [
        Self::PortRead,
        Self::PortWrite,
        Self::MmioRead,
        Self::MmioWrite,
        Self::Halted,
        Self::Interrupted,
        Self::Again,
        Self::Hypercall,
        Self::MsrRead,
        Self::MsrWrite,
        Self::Final,
        Self::Unrequested,
    ];

    /// The kind's stable name, as the report and the metrics spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PortRead => "port_read",
            Self::PortWrite => "port_write",
            Self::MmioRead => "mmio_read",
            Self::MmioWrite => "mmio_write",
            Self::Halted => "halted",
            Self::Interrupted => "interrupted",
            Self::Again => "again",
            Self::Hypercall => "hypercall",
            Self::MsrRead => "msr_read",
            Self::MsrWrite => "msr_write",
            Self::Final => "final",
            Self::Unrequested => "unrequested",
        }
    }

    /// The kind of an exit.
    #[must_use]
    pub const fn of(exit: &Exit<'_>) -> Self {
        match exit {
            Exit::PortRead { .. } => Self::PortRead,
            Exit::PortWrite { .. } => Self::PortWrite,
            Exit::MmioRead { .. } => Self::MmioRead,
            Exit::MmioWrite { .. } => Self::MmioWrite,
            Exit::Halted => Self::Halted,
            Exit::Interrupted => Self::Interrupted,
            Exit::Again => Self::Again,
            Exit::Hypercall { .. } => Self::Hypercall,
            Exit::MsrRead { .. } => Self::MsrRead,
            Exit::MsrWrite { .. } => Self::MsrWrite,
            Exit::TripleFault
            | Exit::EntryFailed { .. }
            | Exit::InternalError(_)
            | Exit::SystemEvent { .. }
            | Exit::Unknown { .. } => Self::Final,
            Exit::Debug | Exit::InterruptWindow => Self::Unrequested,
        }
    }
}

/// Exits of one vCPU by kind.
#[derive(Debug, Default)]
pub struct ExitCounters([AtomicU64; ExitKind::ALL.len()]);

impl ExitCounters {
    /// Counts one exit. Called by the vCPU's own thread only, so a plain load and store is enough and no bus is locked.
    pub fn count(&self, kind: ExitKind) {
        let counter = &self.0[kind as usize];
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// How many exits of a kind there were so far.
    #[must_use]
    pub fn get(&self, kind: ExitKind) -> u64 {
        self.0[kind as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_counter_and_its_own_name() {
        let counters = ExitCounters::default();
        for (position, kind) in ExitKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, position);
            counters.count(kind);
        }
        assert!(ExitKind::ALL.into_iter().all(|kind| counters.get(kind) == 1));
        let mut names = ExitKind::ALL.map(ExitKind::name);
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
