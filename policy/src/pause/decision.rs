// SPDX-License-Identifier: Apache-2.0
//! What goes into a decision and what comes out of it: plain values, closed enums.
//!
//! Invariant: the mechanism layer executes an [`Act`] without thinking; whatever needs thought was decided before.

use std::fmt;

use topology::id::VcpuIndex;

use crate::time::Nanos;

/// A vCPU reported that it spins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseEvent {
    /// Who spins.
    pub source: VcpuIndex,
    /// Who can end it, if the guest said so. Only a hint: any value is safe.
    pub owner: Option<VcpuIndex>,
    /// Whom the source interrupted a moment ago and has not heard from, if known.
    pub interrupted: Option<VcpuIndex>,
    /// How often the source got what it waited for since its previous event; 0 says it is still the same wait.
    /// `None` where the source of events cannot tell.
    pub progress: Option<u32>,
    /// Another event has named the source as the owner since the source last entered the guest. Its turn may have come
    /// after it reported: it must not sleep on this report.
    pub named_since_entry: bool,
    /// The source lost its CPU since its previous event.
    pub descheduled: bool,
}

/// How to give the CPU away. Closed: each variant is one fixed sequence of system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// `sched_yield`.
    SchedYield,
    /// Wake the parked target and go on spinning.
    Wake,
    /// Wake the parked target, then `sched_yield`.
    WakeThenYield,
    /// Wake the target if it is parked, then block the source until it is named as an owner itself, or until then.
    WakeAndPark {
        /// The park ends at this time at the latest.
        until: Nanos,
    },
    /// Directed yield in the kernel through the helper vCPU (KVM_HC_SCHED_YIELD).
    Hypercall,
}

/// What the source's thread does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Favour `target`.
    YieldTo {
        /// The vCPU to run instead; never the source.
        target: VcpuIndex,
        /// By which means.
        how: How,
    },
    /// Let whoever waits for this CPU have it: others do, and the one who can end the wait has a CPU already.
    Yield,
    /// Block, bounded: others want this CPU, and none of them is a vCPU of ours that can be named.
    Park {
        /// The park ends at this time at the latest.
        until: Nanos,
    },
    /// Go back into the guest: acting was found to cost more than it brings.
    Spin,
    /// Go back into the guest: there is nothing to do, and this is why.
    Bail(Reason),
}

/// The decision about one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What to do.
    pub act: Act,
    /// By which rule the target was found; `None` if none was.
    pub class: Option<Class>,
    /// Until then the source need not report again: another event would find the back-off window closed, and nobody is
    /// parked whom only a report would wake. The event's own time if it may report at once.
    pub quiet_until: Nanos,
}

macro_rules! named_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// Every variant, in order.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The stable name used in reports and metrics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// Position in [`Self::ALL`].
            #[must_use]
            pub const fn index(self) -> usize {
                self as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

named_enum! {
    /// Why nothing is done. Each has its own counter.
    Reason {
        /// The event names a source that does not exist or is not started.
        NoSuchSource = "no_such_source",
        /// There is no second vCPU.
        Alone = "alone",
        /// The guest named the source itself: it has got what it waited for.
        NamedSelf = "named_self",
        /// Somebody named the source as the owner while its report was on the way: it must look again, not sleep.
        NamedMeanwhile = "named_meanwhile",
        /// The back-off window of the source has not elapsed.
        BackingOff = "backing_off",
        /// Source and target each have their CPU to themselves (seed yield-to-bail-out).
        NobodyWaiting = "nobody_waiting",
        /// The named owner is on a CPU, and nobody waits for the source's.
        OwnerRunning = "owner_running",
        /// The named owner is halted with nothing pending or not started, and nobody waits for the source's CPU.
        OwnerIdle = "owner_idle",
        /// No vCPU wants a CPU without having one.
        NoCandidate = "no_candidate",
        /// Candidates exist, but each is a spinner that was looked at last time or has had its credit.
        NoneEligible = "none_eligible",
        /// The source has given away more than it got back, and was not told who the owner is.
        DonatedEnough = "donated_enough",
    }
}

named_enum! {
    /// The rule by which a target was found, best first.
    Class {
        /// The guest said this vCPU can end the wait.
        NamedOwner = "named_owner",
        /// The source has just interrupted this vCPU and waits for its answer.
        Interrupted = "interrupted",
        /// An interrupt waits for this vCPU.
        PendingInterrupt = "pending_interrupt",
        /// Preempted in guest kernel mode.
        PreemptedKernel = "preempted_kernel",
        /// Preempted anywhere.
        Preempted = "preempted",
        /// Runnable, and not seen to spin.
        Runnable = "runnable",
        /// Spinning itself.
        Spinning = "spinning",
        /// Any candidate in turn, whatever its class: every so often, so that none is passed over for ever.
        Turn = "turn",
    }
}

named_enum! {
    /// What a yield did. Three values and never a bool: the kernel's own `-ESRCH` was read as "boosted" for over a year
    /// because `yield_to` returned one (commit fa93384f40de).
    YieldOutcome {
        /// The target ran, or somebody did: the CPU changed hands.
        Boosted = "boosted",
        /// The target could not be favoured.
        NotBoosted = "not_boosted",
        /// Neither runqueue had a second task.
        NobodyWaiting = "nobody_waiting",
    }
}

impl Reason {
    /// Whether looking again at once would most likely find the same: such a bail-out closes the back-off window.
    pub(crate) const fn is_useless_to_repeat(self) -> bool {
        match self {
            Self::Alone
            | Self::NobodyWaiting
            | Self::OwnerRunning
            | Self::OwnerIdle
            | Self::NoCandidate
            | Self::NoneEligible => true,
            Self::NoSuchSource | Self::NamedSelf | Self::NamedMeanwhile | Self::BackingOff | Self::DonatedEnough => {
                false
            }
        }
    }
}
