// SPDX-License-Identifier: Apache-2.0
//! Every parameter of the pause-loop policy, with its range and where its default comes from.
//!
//! Invariant: a [`PauseConfig`] that passed [`PauseConfig::validate`] makes no arithmetic of the policy overflow.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Which mechanisms the host grants, as its start-up probes found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mechanisms {
    /// `sched_yield` lets another task run (it does not on much of Linux 6.6 to 6.18.1).
    pub sched_yield: bool,
    /// A vCPU thread can be blocked and woken.
    pub park: bool,
    /// The helper vCPU reaches the kernel's directed yield.
    pub hypercall: bool,
    /// The VM may have PAUSE exits: at each of them the kernel itself yields, before the policy is asked, so that on one CPU
    /// too doing nothing may bring most.
    pub pause_exits: bool,
}

impl Default for Mechanisms {
    fn default() -> Self {
        Self { sched_yield: true, park: true, hypercall: false, pause_exits: false }
    }
}

/// Parameters of [`decide`](super::decide).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PauseConfig {
    /// What the host can do.
    pub mechanisms: Mechanisms,
    /// Targets alone on their runqueue that end a scan. 1 to 64. Default 3: the budget of `kvm_vcpu_on_spin`.
    pub bail_after: u32,
    /// First back-off window. 1 µs to 1 s. Default 50 µs: research digest D2.
    pub backoff_base_ns: u64,
    /// Longest back-off window. From the base to 1 s. Default 6.4 ms: research digest D2, seven doublings.
    pub backoff_max_ns: u64,
    /// Least bound of a park on a named owner; the bound is four times the usual park, between this and `park_max_ns`.
    /// 1 µs to 1 s. Default 1 ms: design 5.4's measurements.
    pub park_named_ns: u64,
    /// Longest park when nobody was named. 1 µs to 1 s. Default 200 µs: research digest D5.
    pub park_unnamed_ns: u64,
    /// Candidates looked at in one decision at most. 1 to 4096. Default 64: keeps a decision at 1024 vCPUs under 2 µs
    /// (docs/performance-pause.md).
    pub scan_limit: u32,
    /// Imbalance percentage of the scan-budget curve. 100 to 300. Default 117: SIS_UTIL (kernel commit 70fb5ccf2ebb).
    pub scan_imbalance_pct: u32,
    /// How much more a vCPU may receive than it gave, or give than it got, while nobody is named. 0 to 1 s. Default 3 ms:
    /// one base slice of the fair scheduler; research digest D5.
    pub credit_ns: u64,
    /// Half-life of that balance. 1 ms to 10 s. Default 100 ms: research digest D5.
    pub credit_window_ns: u64,
    /// Every so many guesses, one goes to the next candidate in turn. 2 to 1024. Default 8.
    pub turn_every: u32,
    /// Time over which a tactic is measured. 1 ms to 1 s. Default 10 ms: 80 hand-overs at 8,000/s, the slowest good
    /// cell of design 5.4.
    pub epoch_ns: u64,
    /// Epochs a tactic is kept before another is tried for one. 1 to 1024. Default 64: a trial costs at most 2 %.
    pub stretch_epochs: u32,
    /// Epochs of the present tactic before one that was never tried is. 1 to 1024. Default 2: what the first tactic loses where
    /// it is the wrong one, it loses for so long (docs/simulator.md, adversaries).
    pub first_trial_epochs: u32,
    /// A tactic must bring this many 1/16 more than the present one to replace it. 0 to 16. Default 1.
    pub hysteresis_sixteenths: u32,
    /// When the present tactic brings this many 1/16 less than another is remembered for, that one is tried at once.
    /// 0 to 16. Default 3.
    pub drop_sixteenths: u32,
    /// Greatest bound of a park. From `park_named_ns` to 1 s. Default 20 ms: 16 vCPUs that take turns of 80 µs park for
    /// 1.3 ms each; with a fixed bound of 1 ms they
    /// made 2,467 hand-overs/s, with an adaptive one below this 13,168.
    pub park_max_ns: u64,
    /// The bound of a park is at least this much for each vCPU, all of which may have their turn first. 0 to 10 ms.
    /// Default 250 µs: three hand-overs of 80 µs.
    pub park_turn_ns: u64,
    /// How long of its wait a vCPU that is first in line for a running owner stays on a CPU that others want. 0 to 1 s; 0 has it
    /// step aside as any other. Default 3 ms: one base slice of the fair scheduler, which is what they would wait for anyway.
    pub first_in_line_ns: u64,
    /// Most halvings of a park's bound while parks run out after their turn had come. 0 to 6; 0 leaves the bound alone.
    /// Default 6: docs/simulator.md, adversaries.
    pub park_halvings: u32,
    /// Where neither an owner nor progress is known and there are several CPUs, a source parks while they are shared by fewer
    /// vCPUs each than this, and spins otherwise. 0 to 1024; 0 acts as if both were known. Default 4: docs/simulator.md,
    /// adversaries.
    pub blind_vcpus_per_cpu: u32,
}

impl Default for PauseConfig {
    fn default() -> Self {
        Self {
            mechanisms: Mechanisms::default(),
            bail_after: 3,
            backoff_base_ns: 50_000,
            backoff_max_ns: 6_400_000,
            park_named_ns: 1_000_000,
            park_unnamed_ns: 200_000,
            scan_limit: 64,
            scan_imbalance_pct: 117,
            credit_ns: 3_000_000,
            credit_window_ns: 100_000_000,
            turn_every: 8,
            epoch_ns: 10_000_000,
            stretch_epochs: 64,
            first_trial_epochs: 2,
            hysteresis_sixteenths: 1,
            drop_sixteenths: 3,
            park_max_ns: 20_000_000,
            park_turn_ns: 250_000,
            first_in_line_ns: 3_000_000,
            park_halvings: 6,
            blind_vcpus_per_cpu: 4,
        }
    }
}

/// A parameter out of its range.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("pause parameter {name} is {value}, outside {min} to {max}: choose a value in that range")]
pub struct ConfigError {
    /// The parameter, as it is spelled in configuration files.
    pub name: &'static str,
    /// What it was.
    pub value: u64,
    /// Smallest value allowed.
    pub min: u64,
    /// Largest value allowed.
    pub max: u64,
}

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

impl PauseConfig {
    /// The parameters with their values and ranges, in the order of the struct.
    #[must_use]
    pub fn parameters(&self) -> [(&'static str, u64, u64, u64); 20] {
        [
            ("bail_after", self.bail_after.into(), 1, 64),
            ("backoff_base_ns", self.backoff_base_ns, US, S),
            ("backoff_max_ns", self.backoff_max_ns, self.backoff_base_ns, S),
            ("park_named_ns", self.park_named_ns, US, S),
            ("park_unnamed_ns", self.park_unnamed_ns, US, S),
            ("scan_limit", self.scan_limit.into(), 1, 4096),
            ("scan_imbalance_pct", self.scan_imbalance_pct.into(), 100, 300),
            ("credit_ns", self.credit_ns, 0, S),
            ("credit_window_ns", self.credit_window_ns, MS, 10 * S),
            ("turn_every", self.turn_every.into(), 2, 1024),
            ("epoch_ns", self.epoch_ns, MS, S),
            ("stretch_epochs", self.stretch_epochs.into(), 1, 1024),
            ("first_trial_epochs", self.first_trial_epochs.into(), 1, 1024),
            ("hysteresis_sixteenths", self.hysteresis_sixteenths.into(), 0, 16),
            ("drop_sixteenths", self.drop_sixteenths.into(), 0, 16),
            ("park_max_ns", self.park_max_ns, self.park_named_ns, S),
            ("park_turn_ns", self.park_turn_ns, 0, 10 * MS),
            ("first_in_line_ns", self.first_in_line_ns, 0, S),
            ("park_halvings", self.park_halvings.into(), 0, 6),
            ("blind_vcpus_per_cpu", self.blind_vcpus_per_cpu.into(), 0, 1024),
        ]
    }

    /// Checks every parameter against its range.
    ///
    /// # Errors
    /// The first parameter out of its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        for (name, value, min, max) in self.parameters() {
            if value < min || value > max {
                return Err(ConfigError { name, value, min, max });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_in_range_and_each_parameter_is_checked() {
        let good = PauseConfig::default();
        assert_eq!(good.validate(), Ok(()));
        let bad = PauseConfig { bail_after: 0, ..good };
        assert_eq!(bad.validate().unwrap_err().name, "bail_after");
        let crossed = PauseConfig { backoff_max_ns: 10_000, ..good };
        assert_eq!(
            crossed.validate().unwrap_err().to_string(),
            "pause parameter backoff_max_ns is 10000, outside 50000 to 1000000000: choose a value in that range"
        );
    }

    #[test]
    fn an_unknown_key_is_an_error() {
        assert!(serde_json::from_str::<PauseConfig>(r#"{"bail_aftr": 3}"#).is_err());
        let read: PauseConfig = serde_json::from_str(r#"{"bail_after": 5}"#).unwrap();
        assert_eq!(read, PauseConfig { bail_after: 5, ..PauseConfig::default() });
    }
}
