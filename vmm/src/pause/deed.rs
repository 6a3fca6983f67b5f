// SPDX-License-Identifier: Apache-2.0
//! What a decision comes to in system calls: whom to wake, and what the source's thread does then.
//!
//! Pure. Invariant: one [`Act`] is one [`Deed`]; nothing is decided here but by a fixed mechanism, which decides nothing.

use policy::pause::{Act, How, PauseConfig};
use policy::time::Nanos;
use topology::id::VcpuIndex;

use crate::config::MechanismChoice;

/// What the source's thread does after the wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Goes back into the guest.
    Nothing,
    /// Yields.
    Yield,
    /// Blocks until woken, until then at most.
    Park(Nanos),
    /// Runs its helper vCPU, to have the kernel yield to the target.
    Hypercall(VcpuIndex),
}

/// One sequence of system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deed {
    /// Who is woken, if parked.
    pub(super) wake: Option<VcpuIndex>,
    /// What follows.
    pub(super) then: Then,
    /// Whom it is to help.
    pub(super) target: Option<VcpuIndex>,
}

impl Deed {
    pub(super) const NOTHING: Self = Self { wake: None, then: Then::Nothing, target: None };

    /// The deed of a decision.
    pub(super) const fn of(act: Act) -> Self {
        match act {
            Act::Spin | Act::Bail(_) => Self::NOTHING,
            Act::Yield => Self { wake: None, then: Then::Yield, target: None },
            Act::Park { until } => Self { wake: None, then: Then::Park(until), target: None },
            Act::YieldTo { target, how } => {
                let (wake, then) = match how {
                    How::SchedYield => (None, Then::Yield),
                    How::Wake => (Some(target), Then::Nothing),
                    How::WakeThenYield => (Some(target), Then::Yield),
                    How::WakeAndPark { until } => (Some(target), Then::Park(until)),
                    How::Hypercall => (None, Then::Hypercall(target)),
                };
                Self { wake, then, target: Some(target) }
            }
        }
    }

    /// What a mechanism that is always used does, whatever the host looks like. `named` says that the source's own turn
    /// may have come: it is not parked then.
    pub(super) fn fixed(
        mechanism: MechanismChoice,
        owner: Option<VcpuIndex>,
        named: bool,
        bounds: FixedBounds,
        now: Nanos,
    ) -> Self {
        let deed = |wake, then| Self { wake, then, target: owner };
        match (mechanism, owner) {
            (MechanismChoice::Auto | MechanismChoice::None, _) => Self::NOTHING,
            (MechanismChoice::Yield, _) => deed(None, Then::Yield),
            (MechanismChoice::Park, owner) if named => deed(owner, Then::Nothing),
            (MechanismChoice::Park, Some(_)) => deed(owner, Then::Park(now.after(bounds.named_ns))),
            (MechanismChoice::Park, None) => deed(None, Then::Park(now.after(bounds.unnamed_ns))),
            (MechanismChoice::Hypercall, Some(target)) => deed(None, Then::Hypercall(target)),
            (MechanismChoice::Hypercall, None) => Self::NOTHING,
        }
    }

    /// Whether anything is done.
    pub(super) fn is_nothing(&self) -> bool {
        *self == Self::NOTHING
    }
}

/// The bounds of a fixed park, as the policy would choose them with nothing learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FixedBounds {
    named_ns: u64,
    unnamed_ns: u64,
}

impl FixedBounds {
    pub(super) fn new(config: &PauseConfig, vcpus: usize) -> Self {
        let turns = config.park_turn_ns.saturating_mul(vcpus as u64);
        Self {
            named_ns: turns.clamp(config.park_named_ns, config.park_max_ns.max(config.park_named_ns)),
            unnamed_ns: config.park_unnamed_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use policy::pause::Reason;

    use super::*;

    #[test]
    fn bailing_out_and_spinning_do_nothing() {
        assert!(Deed::of(Act::Spin).is_nothing());
        assert!(Deed::of(Act::Bail(Reason::Alone)).is_nothing());
        let target = VcpuIndex(3);
        let deed = Deed::of(Act::YieldTo { target, how: How::WakeThenYield });
        assert_eq!(deed, Deed { wake: Some(target), then: Then::Yield, target: Some(target) });
    }

    #[test]
    fn a_fixed_park_spares_a_vcpu_whose_turn_may_have_come() {
        let bounds = FixedBounds::new(&PauseConfig::default(), 16);
        let owner = Some(VcpuIndex(1));
        let deed = |named| Deed::fixed(MechanismChoice::Park, owner, named, bounds, Nanos(5));
        assert_eq!(deed(true).then, Then::Nothing);
        assert_eq!(deed(false).then, Then::Park(Nanos(4_000_005)));
        assert_eq!(deed(false).wake, owner);
    }
}
