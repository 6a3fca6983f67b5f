// SPDX-License-Identifier: Apache-2.0
//! From the file's words to what the engine is given.
//!
//! Invariant: whatever is refused here is refused with the place in the text where it stands.

use policy::pause::PauseConfig;
use topology::host::HostShape;

use super::file::{
    ActionWord, ArmEntry, AsymWord, BudgetWord, Costs, File, Group, HandlerWord, Host, LocalityWord, LockWord,
    NewIdleWord, NumaWord, PlacingWord, PleEntry, ScanWord, SourceWord, StepEntry, WaitWord, YieldWord,
};
use super::value::Duration;
use super::{Scenario, ScenarioArm};
use crate::fair::YieldKind;
use crate::guest::{Action, Arm, Handler, LockKind, Op, Placing, Ple, Source, Vm};
use crate::host::{AsymRule, HostParams, NewIdle, NumaBalancing, ScanBudget, WakeScan};

/// Where in the text, and what is wrong.
type Wrong = (usize, String);

/// Spins before a guest writes the port, if the file does not say: 1000 of 45 ns.
const PORT_AFTER_NS: u64 = 45_000;
/// Window of the sampler, if the file does not say.
const SAMPLER_NS: u64 = 1_000_000;
/// Bound of a park, if the file does not say.
const PARK_NS: u64 = 1_000_000;

pub(super) fn scenario(file: File) -> Result<Scenario, Wrong> {
    let params = over(HostParams::default(), &file.host.costs);
    if file.duration.0 == 0 {
        return Err((0, "`duration` is zero: nothing would happen".into()));
    }
    if file.host.fixture.is_none() && file.host.cores.is_none() {
        return Err((0, "`host` needs `cores`, or `fixture` with the name of a captured host".into()));
    }
    let mut vms = Vec::new();
    for group in &file.vm {
        vms.extend(machines(group.get_ref(), group.span().start)?);
    }
    if vms.is_empty() {
        return Err((0, "there is no `vm`".into()));
    }
    let arms = if file.arm.is_empty() {
        default_arms(params)
    } else {
        let one = |entry: &toml::Spanned<ArmEntry>| arm(entry.get_ref(), params, entry.span().start);
        file.arm.iter().map(one).collect::<Result<_, _>>()?
    };
    let fixture = file.host.fixture.clone();
    Ok(Scenario { title: file.title, duration_ns: file.duration.0, fixture, host: file.host, vms, arms })
}

pub(super) fn shape(host: &Host) -> HostShape {
    let number = |value: Option<u64>| u32::try_from(value.unwrap_or(1)).unwrap_or(1);
    HostShape {
        nodes: number(host.nodes.map(|n| n.0)),
        llcs: number(host.llcs.map(|n| n.0)),
        clusters: number(host.clusters.map(|n| n.0)),
        cores: number(host.cores.map(|n| n.0)),
        threads: number(host.threads.map(|n| n.0)),
        node_memory_bytes: 256 << 30,
    }
}

/// `base` with what the file says instead.
fn over(base: HostParams, costs: &Costs) -> HostParams {
    let ns = |value: Option<Duration>, default: u64| value.map_or(default, |value| value.0);
    let table = |value: Option<[Duration; 6]>, default| value.map_or(default, |list| list.map(|value| value.0));
    HostParams {
        tick_ns: ns(costs.tick, base.tick_ns).max(1_000),
        slice_ns: ns(costs.slice, base.slice_ns),
        switch_ns: ns(costs.switch, base.switch_ns),
        idle_exit_ns: ns(costs.idle_exit, base.idle_exit_ns),
        hot_ns: ns(costs.hot, base.hot_ns),
        balance_cpu_ns: ns(costs.balance_cpu, base.balance_cpu_ns),
        balance_cgroup_ns: ns(costs.balance_cgroup, base.balance_cgroup_ns),
        balance_interval_ns: ns(costs.balance_interval, base.balance_interval_ns),
        scan_cpu_ns: ns(costs.scan_cpu, base.scan_cpu_ns),
        ple_exit_ns: ns(costs.ple_exit, base.ple_exit_ns),
        yield_to_ns: ns(costs.yield_to, base.yield_to_ns),
        forced_exit_ns: ns(costs.forced_exit, base.forced_exit_ns),
        port_exit_ns: ns(costs.port_exit, base.port_exit_ns),
        yield_call_ns: ns(costs.yield_call, base.yield_call_ns),
        park_call_ns: ns(costs.park_call, base.park_call_ns),
        halt_exit_ns: ns(costs.halt_exit, base.halt_exit_ns),
        ipi_send_ns: ns(costs.ipi_send, base.ipi_send_ns),
        ipi_handle_ns: ns(costs.ipi_handle, base.ipi_handle_ns),
        line_ns: table(costs.line, base.line_ns),
        refill_ns: table(costs.refill, base.refill_ns),
        smt_slowdown: costs.smt_slowdown.map_or(base.smt_slowdown, |list| list.map(|value| value.0)),
        smt_by_number: costs.smt_by_number.unwrap_or(base.smt_by_number),
        asym_in_core: costs.asym_in_core.unwrap_or(base.asym_in_core),
        wake_preempts: costs.wake_preempts.unwrap_or(base.wake_preempts),
        next_buddy: costs.next_buddy.unwrap_or(base.next_buddy),
        yields: costs.yields.map_or(base.yields, |word| match word {
            YieldWord::Skip => YieldKind::Skip,
            YieldWord::DeadlineOnly => YieldKind::DeadlineOnly,
            YieldWord::ForfeitLag => YieldKind::ForfeitLag,
        }),
        newidle: costs.newidle.map_or(base.newidle, |word| match word {
            NewIdleWord::Off => NewIdle::Off,
            NewIdleWord::Always => NewIdle::Always,
            NewIdleWord::Gated => NewIdle::Gated,
            NewIdleWord::Rated => NewIdle::Rated,
        }),
        wake_scan: costs.wake_scan.map_or(base.wake_scan, |word| match word {
            ScanWord::Llc => WakeScan::Llc,
            ScanWord::Cluster => WakeScan::Cluster,
        }),
        scan_budget: costs.scan_budget.map_or(base.scan_budget, |word| match word {
            BudgetWord::All => ScanBudget::All,
            BudgetWord::Kernel => ScanBudget::Kernel,
            BudgetWord::Policy => ScanBudget::Policy,
        }),
        asym: costs.asym.map_or(base.asym, |word| match word {
            AsymWord::Off => AsymRule::Off,
            AsymWord::First => AsymRule::First,
            AsymWord::LeastPreferred => AsymRule::LeastPreferred,
        }),
        numa: costs.numa.map_or(base.numa, |word| match word {
            NumaWord::Off => NumaBalancing::Off,
            NumaWord::PerCpu => NumaBalancing::PerCpu,
            NumaWord::PerNode => NumaBalancing::PerNode,
        }),
        numa_scan_ns: ns(costs.numa_scan, base.numa_scan_ns).max(1_000_000),
        numa_scan_bytes: base.numa_scan_bytes,
    }
}

fn placing(word: PlacingWord, config: policy::placement::Config) -> Placing {
    match word {
        PlacingWord::Free => Placing::Free,
        PlacingWord::Pinned => Placing::Pinned,
        PlacingWord::Policy => Placing::Policy(config),
    }
}

fn machines(group: &Group, at: usize) -> Result<Vec<Vm>, Wrong> {
    let size = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    let names: Vec<&String> = group.locks.keys().collect();
    let kind = |word: &LockWord| match word {
        LockWord::Ticket => LockKind::Ticket,
        LockWord::Queued => LockKind::Queued,
        LockWord::Unfair => LockKind::Unfair,
        LockWord::Ring => LockKind::Ring,
    };
    let mut programs = Vec::new();
    for steps in [&group.steps, &group.partner_steps].into_iter().filter(|steps| !steps.is_empty()) {
        let mut ops = Vec::new();
        for step in steps {
            operations(step.get_ref(), &names, &mut ops).map_err(|message| (step.span().start, message))?;
        }
        programs.push(ops);
    }
    if programs.is_empty() {
        return Err((at, format!("vm `{}` has no `steps`", group.name)));
    }
    let count = group.count.map_or(1, |count| count.0);
    let name = |number: u64| if count == 1 { group.name.clone() } else { format!("{}{number}", group.name) };
    let one = |number: u64| Vm {
        name: name(number),
        vcpus: size(group.vcpus.0),
        programs: programs.clone(),
        locks: group.locks.values().map(kind).collect(),
        cpus: group.cpus.iter().flat_map(|list| list.0.iter()).map(|cpu| cpu.index()).collect(),
        placing: group.placing.map(|word| placing(word, policy::placement::Config::default())).unwrap_or_default(),
        memory: group.memory.iter().map(|node| size(node.0)).collect(),
        resident_bytes: group.resident.map_or(0, |mib| mib.0) << 20,
        private: group.private,
        native: group.native,
        arm: Arm::OFF,
        ple: ple(group.ple),
    };
    Ok((0..count).map(one).collect())
}

fn ple(entry: PleEntry) -> Ple {
    let base = Ple::default();
    Ple {
        window_ns: entry.window.map_or(base.window_ns, |window| window.0.max(1)),
        grow: entry.grow.map_or(base.grow, |grow| grow.0),
        max_ns: entry.max.map_or(base.max_ns, |max| max.0.max(1)),
        user_mode: entry.user_mode,
    }
}

/// The engine's steps for one of the file's.
fn operations(step: &StepEntry, locks: &[&String], ops: &mut Vec<Op>) -> Result<(), String> {
    let given = [
        step.work.is_some(),
        step.lock.is_some(),
        step.shootdown == Some(true),
        step.barrier.is_some(),
        step.sleep.is_some(),
        step.send.is_some(),
        step.receive == Some(true),
    ];
    if given.iter().filter(|&&given| given).count() != 1 {
        return Err(
            "a step is exactly one of `work`, `lock`, `shootdown`, `barrier`, `sleep`, `send`, `receive`".into()
        );
    }
    let halts = |word: Option<WaitWord>| word == Some(WaitWord::Halt);
    if let Some(work) = step.work {
        let memory = step.memory.map_or(0, |percent| percent.0 * 1024 / 100);
        ops.push(Op::Work { span: work.0, kernel: step.kernel, memory });
    } else if let Some(name) = &step.lock {
        let known = || locks.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let lock = locks.iter().position(|lock| *lock == name);
        let lock = lock.ok_or_else(|| format!("there is no lock `{name}`; `locks` has: {}", known()))?;
        ops.push(Op::Acquire { lock, halts: halts(step.wait), irqs_off: step.irqs_off });
        ops.extend(step.hold.map(|hold| Op::Work { span: hold.0, kernel: true, memory: 0 }));
        ops.push(Op::Release { lock });
    } else if let Some(wait) = step.barrier {
        ops.push(Op::Barrier { halts: halts(Some(wait)) });
    } else if let Some(sleep) = step.sleep {
        ops.push(Op::Sleep { span: sleep.0 });
    } else if let Some(lines) = step.send {
        ops.push(Op::Send { lines: lines.0 });
    } else {
        ops.push(if step.shootdown == Some(true) { Op::Shootdown } else { Op::Receive });
    }
    Ok(())
}

fn arm(entry: &ArmEntry, params: HostParams, at: usize) -> Result<ScenarioArm, Wrong> {
    let source = match entry.source.unwrap_or(SourceWord::None) {
        SourceWord::None => Source::None,
        SourceWord::Port => Source::Port { after_ns: entry.after.map_or(PORT_AFTER_NS, |after| after.0).max(1) },
        SourceWord::Sampler => Source::Sampler { window_ns: entry.after.map_or(SAMPLER_NS, |after| after.0).max(1) },
        SourceWord::Tracepoint => {
            Source::Tracepoint { every: entry.every.map_or(8, |every| u32::try_from(every.0).unwrap_or(8)) }
        }
    };
    let config = entry.pause.unwrap_or_default();
    config.validate().map_err(|error| (at, error.to_string()))?;
    let action = match entry.action.unwrap_or(ActionWord::Nothing) {
        ActionWord::Nothing => Action::Nothing,
        ActionWord::Yield => Action::Yield,
        ActionWord::Park => Action::Park { bound_ns: entry.bound.map_or(PARK_NS, |bound| bound.0) },
        ActionWord::Policy => Action::Policy(config),
    };
    if source == Source::None && action != Action::Nothing {
        return Err((at, format!("arm `{}` acts but sees nothing: give it a `source`", entry.name)));
    }
    let handler = match entry.handler {
        Some(HandlerWord::Linux38) => Handler::Linux38,
        Some(HandlerWord::Linux612) | None => Handler::Linux612,
    };
    let locality = entry.locality != Some(LocalityWord::Unknown);
    Ok(ScenarioArm {
        name: entry.name.clone(),
        arm: Arm { kernel: entry.kernel, handler, bail_out: entry.bail_out.unwrap_or(true), source, action, locality },
        placing: entry.placing.map(|word| placing(word, entry.placement.unwrap_or_default())),
        params: entry.costs.as_ref().map_or(params, |costs| over(params, costs)),
    })
}

/// The arms of a file that names none: PAUSE exits off, the kernel alone, the kernel and the policy.
fn default_arms(params: HostParams) -> Vec<ScenarioArm> {
    let off = Arm::OFF;
    let kernel = Arm { kernel: true, ..off };
    let policy = Action::Policy(PauseConfig::default());
    let act = Arm { source: Source::Tracepoint { every: 8 }, action: policy, ..kernel };
    let one = |(name, arm): (&str, Arm)| ScenarioArm { name: name.into(), arm, placing: None, params };
    [("off", off), ("kernel", kernel), ("act", act)].map(one).into()
}
