// SPDX-License-Identifier: Apache-2.0
//! The form of a scenario file: what keys there are and what they hold. What they mean is said in docs/simulator.md.
//!
//! Invariant: unknown keys are errors, and a value out of its range is refused where it stands, so that the error has a
//! line.

use std::collections::BTreeMap;

use policy::pause::PauseConfig;
use policy::placement::Config as Placement;
use serde::Deserialize;
use toml::Spanned;

use super::value::{CpuList, Duration, Ranged, Varying};

/// A file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    pub(super) title: String,
    pub(super) duration: Duration,
    pub(super) host: Host,
    pub(super) vm: Vec<Spanned<Group>>,
    #[serde(default)]
    pub(super) arm: Vec<Spanned<ArmEntry>>,
    #[serde(default)]
    pub(super) case: Vec<Spanned<CaseEntry>>,
}

/// One of several loads of a scenario, and what somebody else measured there.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct CaseEntry {
    pub(super) name: String,
    /// Keys of the file that differ, by their dotted paths.
    #[serde(default)]
    pub(super) set: BTreeMap<String, toml::Value>,
    /// The change in per cent that was printed, by arm.
    #[serde(default)]
    pub(super) printed: BTreeMap<String, f64>,
    /// The change of throughput in per cent that follows from the averages that were printed, by arm.
    #[serde(default)]
    pub(super) recomputed: BTreeMap<String, f64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct Host {
    pub(super) fixture: Option<String>,
    pub(super) nodes: Option<Ranged<1, 64>>,
    pub(super) llcs: Option<Ranged<1, 64>>,
    pub(super) clusters: Option<Ranged<1, 64>>,
    pub(super) cores: Option<Ranged<1, 256>>,
    pub(super) threads: Option<Ranged<1, 8>>,
    pub(super) low_numbers_preferred: bool,
    pub(super) costs: Costs,
}

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($word:ident),* })*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub(super) enum $name { $($word),* })*
    };
}

words! {
    YieldWord { Skip, DeadlineOnly, ForfeitLag }
    NewIdleWord { Off, Always, Gated, Rated }
    ScanWord { Llc, Cluster }
    BudgetWord { All, Kernel, Policy }
    AsymWord { Off, First, LeastPreferred }
    NumaWord { Off, PerCpu, PerNode }
    LockWord { Ticket, Queued, Unfair, Ring }
    WaitWord { Spin, Halt }
    PlacingWord { Free, Pinned, Policy }
    SourceWord { None, Port, Tracepoint, Sampler }
    ActionWord { Nothing, Yield, Park, Policy }
    LocalityWord { Near, Unknown }
    HandlerWord { Linux38, Linux612 }
}

/// Costs and behaviours of the host; what is absent keeps its default.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct Costs {
    pub(super) tick: Option<Duration>,
    pub(super) slice: Option<Duration>,
    pub(super) switch: Option<Duration>,
    pub(super) idle_exit: Option<Duration>,
    pub(super) hot: Option<Duration>,
    pub(super) balance_cpu: Option<Duration>,
    pub(super) balance_cgroup: Option<Duration>,
    pub(super) balance_interval: Option<Duration>,
    pub(super) scan_cpu: Option<Duration>,
    pub(super) ple_exit: Option<Duration>,
    pub(super) yield_to: Option<Duration>,
    pub(super) forced_exit: Option<Duration>,
    pub(super) port_exit: Option<Duration>,
    pub(super) yield_call: Option<Duration>,
    pub(super) park_call: Option<Duration>,
    pub(super) halt_exit: Option<Duration>,
    pub(super) ipi_send: Option<Duration>,
    pub(super) ipi_handle: Option<Duration>,
    pub(super) line: Option<[Duration; 6]>,
    pub(super) refill: Option<[Duration; 6]>,
    pub(super) smt_slowdown: Option<[Ranged<1024, 8192>; 3]>,
    pub(super) smt_by_number: Option<bool>,
    pub(super) asym_in_core: Option<bool>,
    pub(super) yields: Option<YieldWord>,
    pub(super) newidle: Option<NewIdleWord>,
    pub(super) wake_scan: Option<ScanWord>,
    pub(super) scan_budget: Option<BudgetWord>,
    pub(super) asym: Option<AsymWord>,
    pub(super) numa: Option<NumaWord>,
    pub(super) numa_scan: Option<Duration>,
    pub(super) wake_preempts: Option<bool>,
    pub(super) next_buddy: Option<bool>,
}

/// Hardware pause-loop exiting; what is absent keeps its default.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct PleEntry {
    pub(super) window: Option<Duration>,
    pub(super) grow: Option<Ranged<1, 1024>>,
    pub(super) max: Option<Duration>,
    pub(super) user_mode: bool,
}

/// VMs that are alike.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Group {
    pub(super) name: String,
    #[serde(default)]
    pub(super) count: Option<Ranged<1, 256>>,
    pub(super) vcpus: Ranged<1, 4096>,
    #[serde(default)]
    pub(super) cpus: Option<CpuList>,
    #[serde(default)]
    pub(super) placing: Option<PlacingWord>,
    #[serde(default)]
    pub(super) memory: Vec<Ranged<0, 63>>,
    /// MiB of memory that its threads use.
    #[serde(default)]
    pub(super) resident: Option<Ranged<1, 16_777_216>>,
    /// Each thread has its part of that memory for itself.
    #[serde(default)]
    pub(super) private: bool,
    #[serde(default)]
    pub(super) native: bool,
    #[serde(default)]
    pub(super) ple: PleEntry,
    #[serde(default)]
    pub(super) locks: BTreeMap<String, LockWord>,
    pub(super) steps: Vec<Spanned<StepEntry>>,
    /// Steps of every second vCPU, if they are others.
    #[serde(default)]
    pub(super) partner_steps: Vec<Spanned<StepEntry>>,
}

/// A step: exactly one of its first seven keys.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct StepEntry {
    pub(super) work: Option<Varying>,
    pub(super) lock: Option<String>,
    pub(super) shootdown: Option<bool>,
    pub(super) barrier: Option<WaitWord>,
    pub(super) sleep: Option<Varying>,
    pub(super) send: Option<Ranged<1, 1_000_000>>,
    pub(super) receive: Option<bool>,
    /// Of `work`: in guest kernel mode.
    pub(super) kernel: bool,
    /// Of `work`: per cent of the time that waits for memory.
    pub(super) memory: Option<Ranged<0, 100>>,
    /// Of `lock`: how long it is held; nothing for a ring that is passed on at once.
    pub(super) hold: Option<Varying>,
    /// Of `lock`: how its waiters wait.
    pub(super) wait: Option<WaitWord>,
    /// Of `lock`: with interrupts off.
    pub(super) irqs_off: bool,
}

/// One arm of the comparison.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ArmEntry {
    pub(super) name: String,
    #[serde(default)]
    pub(super) kernel: bool,
    #[serde(default)]
    pub(super) handler: Option<HandlerWord>,
    #[serde(default)]
    pub(super) bail_out: Option<bool>,
    #[serde(default)]
    pub(super) source: Option<SourceWord>,
    /// Of `port`: spinning before a write; of `sampler`: the window.
    #[serde(default)]
    pub(super) after: Option<Duration>,
    /// Of `tracepoint`: exits for each event.
    #[serde(default)]
    pub(super) every: Option<Ranged<1, 65_536>>,
    #[serde(default)]
    pub(super) action: Option<ActionWord>,
    /// Of `park`: its bound.
    #[serde(default)]
    pub(super) bound: Option<Duration>,
    /// Of `policy`: its parameters.
    #[serde(default)]
    pub(super) pause: Option<PauseConfig>,
    /// Of `policy`: whether it knows which candidates are near.
    #[serde(default)]
    pub(super) locality: Option<LocalityWord>,
    /// Placement in this arm, if it is what is compared.
    #[serde(default)]
    pub(super) placing: Option<PlacingWord>,
    /// Of `placing = "policy"`: its settings.
    #[serde(default)]
    pub(super) placement: Option<Placement>,
    /// Behaviours of the host in this arm, over those of the host.
    #[serde(default)]
    pub(super) costs: Option<Costs>,
}
