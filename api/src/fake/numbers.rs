// SPDX-License-Identifier: Apache-2.0
//! The fake machine's counters: each a fixed share of the time that its vCPUs have run.

use std::collections::BTreeMap;

use topology::cpu_set::CpuSet;
use topology::host::HostTopology;
use topology::id::{HostCpu, HostNode, NodeId, VcpuIndex};

use super::Machine;
use super::change::PARAMETERS;
use crate::wire::{
    Act, Decision, Decisions, DeviceStats, Grant, Ledger, MonitorStats, Move, NodeMemory, Pair, PairCounts, Parameter,
    Pause, PauseCounters, PauseMode, Place, Placement, PlacementMode, PlacementStats, RunnerUp, Stats, Vcpu, VcpuState,
    Vcpus, VmState, Yields,
};

/// A vCPU makes a pause event in every one.
const EVENT_NS: u64 = 1_000_000;
/// Decisions that are kept.
const KEPT: u64 = 256;

/// Every second event yields when the policy acts, the others bail out.
fn is_yield(number: u64) -> bool {
    number % 2 == 1
}

impl Machine {
    fn last_cpu(&self, vcpu: VcpuIndex, affinity: &CpuSet<HostCpu>) -> Option<HostCpu> {
        let turn = self.ran_ns / 500_000_000 + u64::from(vcpu.0);
        let at = usize::try_from(turn % affinity.len().max(1) as u64).unwrap_or(0);
        affinity.iter().nth(at).filter(|_| self.state != VmState::Created)
    }

    fn affinity(&self, vcpu: VcpuIndex, host: &HostTopology) -> CpuSet<HostCpu> {
        let settings = &self.settings;
        if let Some(cpus) = settings.affinities.get(&vcpu) {
            return cpus.clone();
        }
        match (settings.placement, &settings.pin) {
            (PlacementMode::None, _) => host.usable().clone(),
            (PlacementMode::Pin, Some(cpus)) => cpus.clone(),
            _ => host.usable().iter().nth(vcpu.index() % host.usable().len().max(1)).into_iter().collect(),
        }
    }

    fn state_of(&self, vcpu: VcpuIndex) -> VcpuState {
        match self.state {
            VmState::Created => VcpuState::Created,
            VmState::Paused => VcpuState::Paused,
            VmState::Stopped => VcpuState::Stopped,
            VmState::Running => [VcpuState::Running, VcpuState::Waiting, VcpuState::Halted][vcpu.index() % 3],
        }
    }

    fn pause_counters(&self) -> PauseCounters {
        let events = self.ran_ns / EVENT_NS;
        let acts = matches!(self.settings.pause, PauseMode::Act);
        let yields = if acts { events.div_ceil(2) } else { 0 };
        let bailed = BTreeMap::from([("nobody_waiting".to_owned(), events - yields)]);
        PauseCounters {
            events,
            yields: Yields { attempted: yields, boosted: yields, ..Yields::default() },
            bailed,
            donated_ns: yields * 1000,
            received_ns: yields * 1000,
            ..PauseCounters::default()
        }
    }

    pub(super) fn vcpu(&self, index: VcpuIndex, host: &HostTopology) -> Option<Vcpu> {
        if index.0 >= self.shape.vcpu_count() {
            return None;
        }
        let affinity = self.affinity(index, host);
        let last_cpu = self.last_cpu(index, &affinity);
        let node_of = |cpu: HostCpu| host.index_of(cpu).and_then(|at| host.nodes().get(host.cpus()[at].node));
        let ran = self.ran_ns;
        Some(Vcpu {
            index,
            apic_id: self.shape.apic_id(index),
            tid: i32::try_from(index.0).ok().map(|index| 10_000 + index),
            state: self.state_of(index),
            host_node: last_cpu.and_then(node_of).map(|node| node.id),
            last_cpu,
            affinity,
            node: self.shape.node_of(index),
            run_loop_ns: ran,
            ledger_ns: ledger(ran),
            exits: BTreeMap::from([("io".to_owned(), ran / 1_000_000), ("halt".to_owned(), ran / 4_000_000)]),
            pause: self.pause_counters(),
        })
    }

    pub(super) fn vcpus(&self, host: &HostTopology) -> Vcpus {
        let vcpus = self.shape.vcpus().filter_map(|index| self.vcpu(index, host)).collect();
        Vcpus { at_ns: self.ran_ns, generation: self.generation, vcpus }
    }

    pub(super) fn placement(&self, host: &HostTopology) -> Placement {
        let settings = &self.settings;
        let places = self.shape.vcpus().map(|vcpu| {
            let cpus = self.affinity(vcpu, host);
            let runner_up = host.usable().highest().map(|cpu| RunnerUp { cpu, score: 0 });
            Place { vcpu, cpu: cpus.lowest(), cpus, rule: Some("cluster".to_owned()), score: Some(1), runner_up }
        });
        let moved = self.ran_ns / 1_000_000_000;
        let moves = (0..moved.min(256)).map(|second| Move {
            at_ms: second * 1000,
            vcpu: VcpuIndex(0),
            from: Some(HostCpu(0)),
            to: HostCpu(1),
            swap_with: None,
            rule: "whole-core".to_owned(),
            score: 0,
            runner_up: None,
        });
        Placement {
            generation: self.generation,
            mode: settings.placement,
            pin: settings.pin.clone(),
            exclusive: false,
            rules: settings.rules.clone(),
            plan: if settings.placement == PlacementMode::None { Vec::new() } else { places.collect() },
            memory: vec![NodeMemory {
                node: NodeId(0),
                policy: "preferred".to_owned(),
                host_nodes: std::iter::once(HostNode(0)).collect(),
            }],
            claimed: Some(host.usable().clone()),
            other_threads: None,
            notes: Vec::new(),
            looks: self.ran_ns / 100_000_000,
            refused: 0,
            moves: BTreeMap::from([("whole-core".to_owned(), moved)]),
            last_moves: moves.collect(),
            host_changes: 1,
            pairs: PairCounts::default(),
            migrations: 0,
            spent_ns: self.ran_ns / 1000,
        }
    }

    pub(super) fn pause(&self) -> Pause {
        let settings = &self.settings;
        let grant = |name: &str, granted: bool, why: &str| Grant {
            name: name.to_owned(),
            asked: true,
            granted,
            why: why.to_owned(),
            remedy: (!granted).then(|| "use another host".to_owned()),
        };
        let parameter = |(name, least, most, default): (&str, u64, u64, u64)| {
            let asked = settings.parameters.get(name).copied();
            let why = if asked.is_some() { "api" } else { "default" }.to_owned();
            let granted = asked.unwrap_or(default);
            (name.to_owned(), Parameter { asked, granted, least, most, why, at_run_time: true })
        };
        Pause {
            generation: self.generation,
            mode: settings.pause,
            mechanism: settings.mechanism.clone(),
            sources: vec![grant("port", true, "announced"), grant("tracepoint", false, "no PAUSE exits here")],
            mechanisms: vec![grant("yield", true, "probed"), grant("park", true, "always")],
            views: vec![grant("proc", true, "always")],
            unseen: None,
            parameters: PARAMETERS.into_iter().map(parameter).collect(),
        }
    }

    pub(super) fn stats(&self) -> Stats {
        let vcpus = u64::from(self.shape.vcpu_count());
        let one = self.pause_counters();
        let pause = PauseCounters {
            events: one.events * vcpus,
            yields: Yields {
                attempted: one.yields.attempted * vcpus,
                boosted: one.yields.boosted * vcpus,
                ..Yields::default()
            },
            bailed: one.bailed.into_iter().map(|(reason, times)| (reason, times * vcpus)).collect(),
            ..PauseCounters::default()
        };
        Stats {
            at_ns: self.ran_ns,
            run_loop_ns: self.ran_ns * vcpus,
            ledger_ns: ledger(self.ran_ns * vcpus),
            exits: BTreeMap::from([("io".to_owned(), self.ran_ns / 1_000_000 * vcpus)]),
            pause,
            placement: PlacementStats {
                looks: self.ran_ns / 100_000_000,
                refused: 0,
                moves: BTreeMap::from([("whole-core".to_owned(), self.ran_ns / 1_000_000_000)]),
                host_changes: 1,
                spent_ns: self.ran_ns / 1000,
                ..PlacementStats::default()
            },
            kvm: BTreeMap::from([("remote_tlb_flush".to_owned(), self.ran_ns / 10_000_000)]),
            devices: DeviceStats::default(),
            monitor: MonitorStats { cpu_ns: self.ran_ns * vcpus, rss_bytes: 3 << 20, threads: 2, open_files: 9 },
            api: crate::wire::ApiStats::default(),
        }
    }

    pub(super) fn decisions(&self, limit: usize) -> Decisions {
        let cpus = self.shape.vcpu_count();
        let total = self.ran_ns / EVENT_NS * u64::from(cpus);
        let kept = KEPT.min(limit as u64).min(total);
        let yields = total.div_ceil(2) * u64::from(matches!(self.settings.pause, PauseMode::Act));
        let pair = |from: u32| {
            let to = VcpuIndex((from + 1) % cpus);
            Pair { from: VcpuIndex(from), to, yields: yields / u64::from(cpus) }
        };
        Decisions {
            total,
            latest: (total - kept + 1..=total).map(|number| self.decision(number)).collect(),
            pairs: (0..cpus).map(pair).filter(|pair| pair.yields > 0 && pair.from != pair.to).collect(),
        }
    }

    fn decision(&self, number: u64) -> Decision {
        let cpus = self.shape.vcpu_count();
        let vcpu = u32::try_from(number % u64::from(cpus)).unwrap_or(0);
        let other = VcpuIndex((vcpu + 1) % cpus);
        let acts = matches!(self.settings.pause, PauseMode::Act) && is_yield(number) && cpus > 1;
        let text = |yes: bool, text: &str| yes.then(|| text.to_owned());
        Decision {
            number,
            at_ns: number * EVENT_NS / u64::from(cpus),
            vcpu: VcpuIndex(vcpu),
            owner: (cpus > 1).then_some(other),
            act: if acts { Act::YieldTo } else { Act::Bail },
            target: acts.then_some(other),
            how: text(acts, "yield"),
            class: text(acts, "named_owner"),
            reason: text(!acts, "nobody_waiting"),
            outcome: text(acts, "boosted"),
        }
    }
}

/// Half of the time in the guest, the rest spread.
fn ledger(ran_ns: u64) -> Ledger {
    let (guest, halted, polling, waiting, kernel) = (ran_ns / 2, ran_ns / 4, ran_ns / 50, ran_ns / 10, ran_ns / 20);
    Ledger { guest, halted, polling, waiting, kernel, user: ran_ns - guest - halted - polling - waiting - kernel }
}
