// SPDX-License-Identifier: Apache-2.0
//! Where a CPU sits, as an APIC id: the one place where ids are made.
//!
//! An x86 APIC id is fields side by side, package above die above module above core above SMT, each as wide as the
//! largest count needs (Intel SDM vol. 3A, rev. 083, section 9.9.1, "Hierarchical Mapping of Shared Resources"; Linux
//! `Documentation/arch/x86/topology.rst`). CPUID, MADT, SRAT and the interrupt controllers take their ids from here.
//! Invariant: two positions have the same id only if they are the same position.

use thiserror::Error;

use crate::id::ApicId;
use crate::place::{Position, Shape};

/// The highest APIC id that a CPU can have without x2APIC: 255 is the broadcast (Intel SDM vol. 3A, section 11.6.1).
pub const XAPIC_MAX_ID: u32 = 254;

/// Widths of the fields of an APIC id, as the shift to each field's lowest bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApicLayout {
    core_shift: u32,
    cluster_shift: u32,
    die_shift: u32,
    package_shift: u32,
}

impl ApicLayout {
    /// The narrowest layout that has room for the shape: ceil(log2(count)) bits a level.
    #[must_use]
    pub fn new(shape: &Shape) -> Self {
        let core_shift = bits_for(shape.threads);
        let cluster_shift = core_shift + bits_for(shape.cores);
        let die_shift = cluster_shift + bits_for(shape.clusters);
        let package_shift = die_shift + bits_for(shape.dies);
        Self { core_shift, cluster_shift, die_shift, package_shift }
    }

    /// Bits right of the core number: what all threads of a core agree on is above them.
    #[must_use]
    pub const fn core_shift(&self) -> u32 {
        self.core_shift
    }

    /// Bits right of the cluster number (Intel: module).
    #[must_use]
    pub const fn cluster_shift(&self) -> u32 {
        self.cluster_shift
    }

    /// Bits right of the die number.
    #[must_use]
    pub const fn die_shift(&self) -> u32 {
        self.die_shift
    }

    /// Bits right of the package number.
    #[must_use]
    pub const fn package_shift(&self) -> u32 {
        self.package_shift
    }

    /// The id of the CPU at a position of the shape that this layout was made for.
    #[must_use]
    pub const fn apic_id(&self, position: Position) -> ApicId {
        ApicId(
            (position.package << self.package_shift)
                | (position.die << self.die_shift)
                | (position.cluster << self.cluster_shift)
                | (position.core << self.core_shift)
                | position.thread,
        )
    }

    /// The position that an id names: the inverse of [`Self::apic_id`].
    #[must_use]
    pub const fn position(&self, id: ApicId) -> Position {
        Position {
            package: id.0 >> self.package_shift,
            die: field(id.0, self.die_shift, self.package_shift),
            cluster: field(id.0, self.cluster_shift, self.die_shift),
            core: field(id.0, self.core_shift, self.cluster_shift),
            thread: field(id.0, 0, self.core_shift),
        }
    }
}

const fn field(id: u32, from: u32, to: u32) -> u32 {
    (id >> from) & ((1 << (to - from)) - 1)
}

/// Bits that number `count` things: ceil(log2(count)), 0 for one thing.
pub(crate) fn bits_for(count: u32) -> u32 {
    count.max(1).next_power_of_two().trailing_zeros()
}

/// What the interrupt controllers of the machine can address; the host's KVM decides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApicLimits {
    /// Whether CPUs can be addressed in x2APIC mode.
    pub x2apic: bool,
    /// One more than the highest id that KVM takes (`KVM_CAP_MAX_VCPU_ID`).
    pub id_count: u32,
    /// How many vCPUs KVM takes (`KVM_CAP_MAX_VCPUS`).
    pub vcpu_count: u32,
}

/// Why a topology does not fit the interrupt controllers.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ApicError {
    /// An id above [`XAPIC_MAX_ID`] on a machine without x2APIC.
    #[error(
        "APIC id {highest} is above {XAPIC_MAX_ID} and this machine has no x2APIC: ask for fewer CPUs, or for core \
         counts nearer a power of two"
    )]
    NeedsX2apic {
        /// The highest id of the topology.
        highest: ApicId,
    },
    /// An id that KVM does not take.
    #[error(
        "APIC id {highest} is not below {id_count}, the limit of this host's KVM: ask for fewer CPUs, or for core \
         counts nearer a power of two"
    )]
    IdTooHigh {
        /// The highest id of the topology.
        highest: ApicId,
        /// The limit, see [`ApicLimits::id_count`].
        id_count: u32,
    },
    /// More vCPUs than KVM takes.
    #[error("{cpus} CPUs are more than the {vcpu_count} that this host's KVM takes: ask for at most {vcpu_count}")]
    TooManyVcpus {
        /// CPUs asked for.
        cpus: u32,
        /// The limit, see [`ApicLimits::vcpu_count`].
        vcpu_count: u32,
    },
}

impl ApicLimits {
    /// Checks a topology of `cpus` CPUs whose highest id is `highest`.
    ///
    /// # Errors
    /// One per limit that is passed, the first in the order count, id, x2APIC.
    pub fn check(&self, cpus: u32, highest: ApicId) -> Result<(), ApicError> {
        if cpus > self.vcpu_count {
            return Err(ApicError::TooManyVcpus { cpus, vcpu_count: self.vcpu_count });
        }
        if highest.0 >= self.id_count {
            return Err(ApicError::IdTooHigh { highest, id_count: self.id_count });
        }
        if highest.0 > XAPIC_MAX_ID && !self.x2apic {
            return Err(ApicError::NeedsX2apic { highest });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(dies: u32, clusters: u32, cores: u32, threads: u32) -> ApicLayout {
        ApicLayout::new(&Shape { packages: 2, dies, clusters, cores, threads })
    }

    #[test]
    fn a_level_with_one_member_takes_no_bits() {
        let flat = layout(1, 1, 8, 1);
        assert_eq!((flat.core_shift(), flat.cluster_shift(), flat.die_shift(), flat.package_shift()), (0, 3, 3, 3));
    }

    #[test]
    fn three_cores_take_two_bits_and_leave_a_hole() {
        let layout = layout(1, 4, 3, 2);
        assert_eq!((layout.core_shift(), layout.cluster_shift(), layout.die_shift()), (1, 3, 5));
        let position = Position { package: 1, die: 0, cluster: 2, core: 2, thread: 1 };
        let id = ApicId((1 << 5) | (2 << 3) | (2 << 1) | 1);
        assert_eq!(layout.apic_id(position), id);
        assert_eq!(layout.position(id), position);
    }

    #[test]
    fn limits_are_the_hosts() {
        let limits = ApicLimits { x2apic: false, id_count: 4096, vcpu_count: 1024 };
        assert_eq!(limits.check(255, ApicId(254)), Ok(()));
        assert_eq!(limits.check(256, ApicId(255)), Err(ApicError::NeedsX2apic { highest: ApicId(255) }));
        assert_eq!(limits.check(1025, ApicId(9)), Err(ApicError::TooManyVcpus { cpus: 1025, vcpu_count: 1024 }));
        let high = ApicId(4096);
        assert_eq!(limits.check(9, high), Err(ApicError::IdTooHigh { highest: high, id_count: 4096 }));
        assert_eq!(ApicLimits { x2apic: true, ..limits }.check(300, ApicId(299)), Ok(()));
    }
}
