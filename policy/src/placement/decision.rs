// SPDX-License-Identifier: Apache-2.0
//! What a placement decision says: who goes where, by which rule, and what came second.

use std::fmt;

use serde::{Deserialize, Serialize};
use topology::cpu_set::CpuSet;
use topology::id::{HostCpu, VcpuIndex};

/// Why a CPU was chosen: the most important rule by which it is better than the runner-up.
///
/// In order of importance, so that comparing two rules compares their weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// The user named the CPUs.
    Pin,
    /// The vCPU's CPU went offline or is no longer allowed.
    Evacuate,
    /// No two vCPUs of a VM on one CPU while an allowed CPU has none. Score: vCPUs of this VM on the CPU, negated.
    House,
    /// CPUs that other VMs claimed come last. Score: claims on the CPU, negated.
    Claims,
    /// Near the guest node's memory. Score: at start the distance, negated; later the gain on a scale to 1998.
    Numa,
    /// The threads of a guest core on the threads of one host core. Score: free threads of the core.
    Siblings,
    /// A whole idle core before the sibling of a busy one. Score: busy threads of the core, negated.
    WholeCore,
    /// In the cluster. Score: at start free CPUs of the cluster; later 1024ths of time waited.
    Cluster,
    /// In the last-level cache. Score: as for the cluster.
    Llc,
    /// Near the vCPU it keeps waiting for. Score: 4 on its CPU, 3 in its cluster, 2 in its cache, 1 in its node; the
    /// runner-up is the CPU that is left. A move to where the score is lower takes back one that did not help.
    Pair,
    /// The machine prefers the CPU. Score: its rank.
    Asym,
    /// Away from the busiest CPU. Score: by how many 1024ths of a CPU the two loads draw nearer.
    Busiest,
    /// Vacant CPUs as far apart as possible. Score: vCPUs already there on the first level that differs, negated.
    Spread,
    /// Nothing distinguishes the two: the lower number. Score: 0.
    LowestNumber,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pin => "pin",
            Self::Evacuate => "evacuate",
            Self::House => "house",
            Self::Claims => "claims",
            Self::Numa => "numa",
            Self::Siblings => "siblings",
            Self::WholeCore => "whole-core",
            Self::Cluster => "cluster",
            Self::Llc => "llc",
            Self::Pair => "pair",
            Self::Asym => "asym",
            Self::Busiest => "busiest",
            Self::Spread => "spread",
            Self::LowestNumber => "lowest-number",
        })
    }
}

/// The rules that can be switched off one by one, to measure what each is worth. All on by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rules {
    /// [`Rule::House`]. Off: vCPUs stay in their node even if that doubles them up.
    pub house: bool,
    /// [`Rule::Claims`]. Off: what other VMs claimed is ignored, unless it is exclusive.
    pub claims: bool,
    /// [`Rule::Numa`]. Off: all nodes are one.
    pub numa: bool,
    /// [`Rule::WholeCore`] and [`Rule::Siblings`]. Off: every thread counts as a core.
    pub whole_core: bool,
    /// [`Rule::Cluster`] and [`Rule::Llc`]. Off: CPUs are looked for in order of number, in the whole node.
    pub cluster: bool,
    /// [`Rule::Pair`]. Off: pairs are ignored.
    pub pair: bool,
    /// [`Rule::Asym`]. Off: ranks are ignored.
    pub asym: bool,
    /// [`Rule::Busiest`]. Off: overloaded CPUs are relieved by idle ones only.
    pub busiest: bool,
    /// The scan budget of the idle search. Off: every CPU of the cache is looked at.
    pub scan_budget: bool,
    /// The rate limits. Off: every pass looks at every CPU.
    pub rate_limit: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            house: true,
            claims: true,
            numa: true,
            whole_core: true,
            cluster: true,
            pair: true,
            asym: true,
            busiest: true,
            scan_budget: true,
            rate_limit: true,
        }
    }
}

impl Rules {
    /// Whether the rule of this name is on; one that does not exist is off.
    #[must_use]
    pub fn is_on(&self, name: &str) -> bool {
        let mut other = *self;
        other.switch(name, false) && other != *self
    }

    /// Names of the switches, as flags and files spell them.
    pub const NAMES: [&'static str; 10] =
        ["house", "claims", "numa", "whole-core", "cluster", "pair", "asym", "busiest", "scan-budget", "rate-limit"];

    /// Switches one rule on or off; whether there is one of that name.
    pub fn switch(&mut self, name: &str, on: bool) -> bool {
        let switches = [
            &mut self.house,
            &mut self.claims,
            &mut self.numa,
            &mut self.whole_core,
            &mut self.cluster,
            &mut self.pair,
            &mut self.asym,
            &mut self.busiest,
            &mut self.scan_budget,
            &mut self.rate_limit,
        ];
        let found = Self::NAMES.iter().zip(switches).find(|(known, _)| **known == name);
        found.map(|(_, switch)| *switch = on).is_some()
    }
}

/// The candidate that came second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerUp {
    /// The CPU.
    pub cpu: HostCpu,
    /// Its score by the rule that decided.
    pub score: i64,
}

/// One vCPU's new CPU, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// Who.
    pub vcpu: VcpuIndex,
    /// Where it was; `None` at start.
    pub from: Option<HostCpu>,
    /// Where it goes.
    pub to: HostCpu,
    /// The vCPU that goes the other way, if the two change places.
    pub swap_with: Option<VcpuIndex>,
    /// The rule that decided.
    pub rule: Rule,
    /// The CPU's score by that rule; larger is better. Each [`Rule`] says of what.
    pub score: i64,
    /// Who came second; `None` if there was no other candidate.
    pub runner_up: Option<RunnerUp>,
}

/// A vCPU's place at start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The decision.
    pub decision: Decision,
    /// What the thread's affinity is set to: its CPU alone or, where CPUs are shared, all the VM has in that node.
    pub affinity: CpuSet<HostCpu>,
}
