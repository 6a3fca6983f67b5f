// SPDX-License-Identifier: Apache-2.0
//! The rebalancing pass: what moves now, in which order the rules speak, and how much may move at once.
//!
//! ```text
//! evacuate   vCPUs whose CPU is gone or forbidden: always, all of them
//! house      two vCPUs on one CPU while one is empty
//! numa       towards the memory
//! wake       vCPUs that wait: cluster, cache, node, any node
//! pair       towards the vCPU it keeps waiting for, to see whether that helps, and back if it does not
//! cores      whole idle cores take from shared ones
//! asym       idle CPUs that rank higher take from those that rank lower
//! busiest    the least busy takes from the busiest
//! ```
//! Each rule sees the moves of those before it. A vCPU moves at most once per pass and then rests for
//! [`Config::settle_ns`]; a CPU takes part in at most one move per pass ("one migration in flight").
//!
//! Properties: *total moves per pass are bounded* by [`Config::max_moves`], evacuations and the other half of a swap
//! apart; a balanced board stays as it is.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use topology::host::HostTopology;

use super::board::Board;
use super::groups::Groups;
use super::numa::{NumaRule, Weights};
use super::rate::{Cost, CpuHabit, CpuRate, Gate};
use super::search::idle_near;
use super::view::{FULL, Snapshot};
use super::{Decision, Guest, Rule, Rules, asym, pairs};
use crate::time::Nanos;

/// Highest useful [`Config::max_moves`]: more vCPUs than KVM allows in one VM.
pub const MOST_MOVES: usize = 8192;

/// Settings of rebalancing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Rules that are switched on.
    pub rules: Rules,
    /// Time between passes and between two looks at an idle CPU, in ns.
    pub period_ns: u64,
    /// Time for which a vCPU that moved stays where it is, in ns (research D6: at least 1 s).
    pub settle_ns: u64,
    /// What a move costs the vCPU in lost cache, in ns: CPUs that are idle for less do not pull (research D7: 10 to
    /// 100 µs).
    pub move_cost_ns: u64,
    /// Most voluntary moves of a pass; a swap counts once.
    pub max_moves: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            rules: Rules::default(),
            period_ns: 100_000_000,
            settle_ns: 1_000_000_000,
            move_cost_ns: 50_000,
            max_moves: 8,
        }
    }
}

/// What a pass looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Times it was decided, for a vCPU and a destination node, whether a plain move keeps the balance.
    pub numa_decisions: u64,
    /// CPUs looked at by idle searches.
    pub cpus_scanned: u64,
    /// CPUs that may pull work in this pass.
    pub cpus_due: u64,
}

/// What a pass decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pass {
    /// Moves, in the order in which they should be made.
    pub moves: Vec<Decision>,
    /// Whether only evacuations and the house rule were looked at, because passes keep finding nothing.
    pub skipped: bool,
    /// When the next pass should run.
    pub next: Nanos,
    /// What it looked at.
    pub stats: Stats,
}

/// The host, and what was derived from it once.
#[derive(Debug)]
struct Site {
    host: HostTopology,
    groups: Groups,
}

impl Site {
    fn new(host: HostTopology) -> Arc<Self> {
        Arc::new(Self { groups: Groups::new(&host), host })
    }
}

/// Rebalances one VM. Keeps only what the rate limits need; everything else comes with each snapshot.
#[derive(Clone, Debug)]
pub struct Balancer {
    guest: Guest,
    config: Config,
    site: Arc<Site>,
    rates: Vec<CpuRate>,
    /// When each vCPU may move again.
    settled: Vec<Nanos>,
    cost: Cost,
    gate: Gate,
}

impl Balancer {
    /// A balancer for a guest on a host. More moves than [`MOST_MOVES`] are cut to that. Every vCPU and every CPU may take part from `now` on.
    #[must_use]
    pub fn new(host: HostTopology, guest: Guest, config: Config, now: Nanos) -> Self {
        let config = Config { max_moves: config.max_moves.min(MOST_MOVES), ..config };
        Self {
            settled: vec![now; guest.vcpus.len()],
            guest,
            config,
            rates: vec![CpuRate::new(now); host.cpus().len()],
            site: Site::new(host),
            cost: Cost::default(),
            gate: Gate::default(),
        }
    }

    /// Takes other settings from the next pass on; who moved lately goes on resting.
    pub fn configure(&mut self, config: Config) {
        self.config = Config { max_moves: config.max_moves.min(MOST_MOVES), ..config };
    }

    /// Takes note that the host changed: CPUs came, went, or became forbidden.
    ///
    /// Does nothing if the host is the same. The caller builds a new topology every now and then and hands it in.
    pub fn host_changed(&mut self, host: HostTopology, now: Nanos) {
        if self.site.host != host {
            self.rates = vec![CpuRate::new(now); host.cpus().len()];
            self.site = Site::new(host);
        }
    }

    /// Takes note of what a pass cost, in ns, as the caller measured it.
    pub fn charge(&mut self, cost_ns: u64, now: Nanos) {
        self.cost.charge(cost_ns, now);
    }

    /// One pass over the host the balancer was made for or last told of.
    ///
    /// vCPUs and CPUs that the snapshot does not name are left alone.
    #[must_use]
    pub fn pass(&mut self, snapshot: &Snapshot<'_>) -> Pass {
        let vcpus = snapshot.vcpus.len().min(self.guest.vcpus.len());
        let snapshot = Snapshot { vcpus: &snapshot.vcpus[..vcpus], ..*snapshot };
        let mut stats = Stats::default();
        let pulls = self.pulls(&snapshot, &mut stats);
        let site = Arc::clone(&self.site);
        let mut board = Board::new(&site.host, &site.groups, self.config.rules, &snapshot);
        board.stats = stats;
        evacuate(&mut board);
        let evacuated = board.decisions.len();
        house(&mut board, self.config.max_moves);
        let pressed = snapshot.vcpus.iter().any(|load| load.waiting >= FULL / 8) || !snapshot.pairs.is_empty();
        let runs = !self.config.rules.rate_limit || self.gate.opens() || pressed;
        if runs {
            self.voluntary(&mut board, &snapshot, &pulls, evacuated);
            self.gate.record(board.decisions.len() > evacuated);
        }
        let (moves, stats) = (board.decisions, board.stats);
        for index in moves.iter().flat_map(|decision| std::iter::once(decision.vcpu).chain(decision.swap_with)) {
            self.settled[index.index()] = snapshot.now.after(self.config.settle_ns.min(u64::MAX / 4));
        }
        let next = snapshot.now.after(self.config.period_ns.clamp(super::rate::TICK_NS, u64::MAX / 4));
        Pass { moves, skipped: !runs, next, stats }
    }

    /// For every CPU, whether it may pull work now.
    fn pulls(&mut self, snapshot: &Snapshot<'_>, stats: &mut Stats) -> Vec<bool> {
        let limited = self.config.rules.rate_limit;
        let cost_ns = self.cost.expected_ns().saturating_add(self.config.move_cost_ns);
        let mut pull = |(cpu, rate): (usize, &mut CpuRate)| {
            let load = snapshot.cpus.get(cpu).copied().unwrap_or_default();
            let habit = CpuHabit { average: load.average, mean_idle_ns: load.mean_idle_ns };
            let pulls = !limited || rate.look(snapshot.now, habit, self.config.period_ns, cost_ns);
            stats.cpus_due += u64::from(pulls);
            pulls
        };
        self.rates.iter_mut().enumerate().map(&mut pull).collect()
    }

    fn voluntary(&self, board: &mut Board<'_>, snapshot: &Snapshot<'_>, pulls: &[bool], evacuated: usize) {
        let rules = self.config.rules;
        let most = self.config.max_moves;
        let left = |board: &Board<'_>| (most + evacuated).saturating_sub(board.decisions.len());
        let ready = |vcpu: usize| !snapshot.now.is_before(self.settled[vcpu]);
        if rules.numa && board.host.nodes().len() > 1 && !snapshot.memory.is_empty() {
            let weights = Weights::new(board.host, &self.guest, snapshot.memory);
            let limit = left(board);
            NumaRule::new(board, &self.guest, &weights).run(board, limit, ready);
        }
        let limit = left(board);
        asym::wake(board, limit, ready);
        if rules.pair {
            let limit = left(board);
            pairs::join(board, limit, snapshot, ready);
        }
        // A guest that was told of threads has them on the threads of a core on purpose.
        if rules.whole_core && board.host.has_smt() && self.guest.threads_per_core() == 1 {
            let limit = left(board);
            asym::unshare_cores(board, limit, pulls, ready);
        }
        if rules.asym {
            let limit = left(board);
            asym::pull(board, limit, pulls, ready);
        }
        if rules.busiest {
            let limit = left(board);
            asym::relieve(board, limit, pulls, ready);
        }
    }
}

/// Where a vCPU that must leave goes: an idle CPU near by, else an empty one, else the one with the least on it.
fn refuge(board: &mut Board<'_>, target: usize) -> Option<(usize, Option<usize>)> {
    if let Some(found) = idle_near(board, target) {
        return Some((found.cpu, found.runner_up));
    }
    if let Some(cpu) = asym::idle_elsewhere(board, target, true) {
        return Some((cpu, None));
    }
    let node = board.node_of(target);
    let key = |cpu: usize| {
        let far = board.host.distance(node, board.node_of(cpu));
        (board.here(cpu).len(), board.in_flight(cpu), far, board.load(cpu), cpu)
    };
    let usable = (0..board.host.cpus().len()).filter(|&cpu| board.is_usable(cpu));
    usable.min_by_key(|&cpu| key(cpu)).map(|cpu| (cpu, None))
}

/// vCPUs on CPUs that are offline or not allowed any more.
fn evacuate(board: &mut Board<'_>) {
    for vcpu in 0..board.at.len() {
        let at = board.at[vcpu];
        if at != usize::MAX && board.is_usable(at) {
            continue;
        }
        let target = if at == usize::MAX { 0 } else { at };
        if let Some((to, second)) = refuge(board, target) {
            let score = -i64::try_from(board.here(to).len()).unwrap_or(i64::MAX);
            board.go(vcpu, to, (Rule::Evacuate, score), second.map(|cpu| (cpu, score)));
        }
    }
}

/// CPUs with several vCPUs give to empty ones until one or the other runs out.
fn house(board: &mut Board<'_>, limit: usize) {
    if !board.rules.house {
        return;
    }
    let stop = board.decisions.len() + limit;
    for cpu in 0..board.host.cpus().len() {
        if board.empty() == 0 || board.decisions.len() >= stop {
            return;
        }
        let here = board.here(cpu);
        let count = here.len();
        let leaver = here.iter().copied().max_by_key(|&vcpu| (board.waiting[vcpu], std::cmp::Reverse(vcpu)));
        let Some(vcpu) = leaver.filter(|&vcpu| count > 1 && board.may_leave(vcpu)) else { continue };
        if let Some((to, second)) = refuge(board, cpu).filter(|(to, _)| board.is_empty(*to)) {
            board.go(vcpu, to, (Rule::House, 0), second.map(|cpu| (cpu, 0)));
        }
    }
}
