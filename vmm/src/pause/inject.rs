// SPDX-License-Identifier: Apache-2.0
//! Preemption on demand: which vCPU is held off its CPU, and when, by a seeded schedule.
//!
//! The schedule is pure; a thread of its own ([`super::helper`]) lays the holds on the seats and kicks the vCPUs, whose
//! threads then sleep. Invariant: the same seed, mean and hold give the same schedule, relative to the start of the run.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use topology::id::VcpuIndex;

use crate::config::InjectionConfig;

/// One hold: at a time since the start of the run, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hold {
    /// When it begins.
    pub at_ns: u64,
    /// Whom it holds.
    pub vcpu: VcpuIndex,
}

/// The holds of a run, in order, without an end.
#[derive(Clone, Debug)]
pub struct Schedule {
    due: BinaryHeap<Reverse<Hold>>,
    streams: Vec<Stream>,
    mean_ns: u64,
    hold_ns: u64,
}

impl Schedule {
    /// The schedule for a machine of `vcpus` vCPUs.
    #[must_use]
    pub fn new(config: &InjectionConfig, vcpus: u32) -> Self {
        let chosen = |vcpu: &VcpuIndex| config.vcpus.is_empty() || config.vcpus.contains(*vcpu);
        let mut streams: Vec<Stream> =
            (0..vcpus).map(|vcpu| Stream(config.seed ^ u64::from(vcpu).wrapping_mul(ODD))).collect();
        let first = |vcpu: VcpuIndex| {
            let at_ns = streams[vcpu.index()].gap_ns(config.mean_ns);
            Reverse(Hold { at_ns, vcpu })
        };
        let due = (0..vcpus).map(VcpuIndex).filter(chosen).map(first).collect();
        Self { due, streams, mean_ns: config.mean_ns, hold_ns: config.hold_ns }
    }
}

impl Iterator for Schedule {
    type Item = Hold;

    fn next(&mut self) -> Option<Hold> {
        let Reverse(hold) = self.due.pop()?;
        let gap = self.streams[hold.vcpu.index()].gap_ns(self.mean_ns);
        let at_ns = hold.at_ns.saturating_add(self.hold_ns).saturating_add(gap);
        self.due.push(Reverse(Hold { at_ns, vcpu: hold.vcpu }));
        Some(hold)
    }
}

/// An odd number, so that the vCPUs' streams begin apart.
const ODD: u64 = 0x9E37_79B9_7F4A_7C15;

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): small, seeded, and the same everywhere.
#[derive(Clone, Copy, Debug)]
struct Stream(u64);

impl Stream {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(ODD);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// An exponentially distributed time: preemptions that know nothing of each other.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "53 random bits and a mean below a minute; the product is positive and bounded"
    )]
    fn gap_ns(&mut self, mean_ns: u64) -> u64 {
        // In (0, 1]: the logarithm of zero is not asked for.
        let uniform = ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        (-uniform.ln() * mean_ns as f64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> InjectionConfig {
        text.parse().unwrap()
    }

    #[test]
    fn the_same_seed_gives_the_same_schedule_and_another_another() {
        let holds = |text| Schedule::new(&config(text), 4).take(100).collect::<Vec<_>>();
        let first = holds("seed=7,mean=1ms,hold=1ms");
        assert_eq!(first, holds("seed=7,mean=1ms,hold=1ms"));
        assert_ne!(first, holds("seed=8,mean=1ms,hold=1ms"));
        assert!(first.is_sorted());
    }

    #[test]
    fn holds_of_one_vcpu_do_not_overlap_and_have_the_asked_mean() {
        let mut last = 0;
        let mut gaps = 0;
        for hold in Schedule::new(&config("seed=1,mean=1ms,hold=3ms,vcpus=[2]"), 4).take(4000) {
            assert_eq!(hold.vcpu, VcpuIndex(2));
            assert!(hold.at_ns >= last);
            gaps += hold.at_ns - last;
            last = hold.at_ns + 3_000_000;
        }
        let mean = gaps / 4000;
        assert!((900_000..1_100_000).contains(&mean), "{mean}");
    }
}
