// SPDX-License-Identifier: Apache-2.0
//! Rebalancing: the documented properties on random hosts and loads, and one example of every rule.

#![expect(clippy::unwrap_used, reason = "helpers of tests are no tests to the lint")]

#[path = "support/placement.rs"]
mod support;

use policy::placement::{
    Balancer, Config, CpuLoad, FULL, Guest, Pair, Pass, Rule, Rules, Runqueue, Snapshot, Step, VcpuLoad,
};
use policy::time::Nanos;
use proptest::prelude::*;
use topology::host::HostTopology;
use topology::id::{HostCpu, VcpuIndex};

use support::{GIB, fixture, guest, host};

/// A host under load: what every vCPU wants and what others use, from which run and wait times follow.
#[derive(Clone, Debug)]
struct World {
    host: HostTopology,
    guest: Guest,
    /// CPU of every vCPU, as a dense index.
    at: Vec<usize>,
    demand: Vec<u32>,
    outside: Vec<u32>,
    /// What is known of each runqueue.
    runqueues: Vec<Runqueue>,
    memory: Vec<Vec<u64>>,
    pairs: Vec<Pair>,
    now: Nanos,
}

impl World {
    fn new(host: HostTopology, guest: Guest, at: &[usize]) -> Self {
        let outside = vec![0; host.cpus().len()];
        let demand = vec![FULL; at.len()];
        let runqueues = vec![Runqueue::default(); host.cpus().len()];
        let (at, now) = (at.to_vec(), Nanos(1));
        Self { host, guest, at, demand, outside, runqueues, memory: Vec::new(), pairs: Vec::new(), now }
    }

    /// The same world, whose runqueues can be seen.
    fn seen(mut self) -> Self {
        let all = |&outside: &u32| Runqueue { now: Some(outside.div_ceil(FULL)), mean: Some(outside) };
        self.runqueues = self.outside.iter().map(all).collect();
        self
    }

    fn total(&self, cpu: usize) -> u32 {
        let own: u32 = self.at.iter().zip(&self.demand).filter(|(at, _)| **at == cpu).map(|(_, demand)| demand).sum();
        own + self.outside[cpu]
    }

    fn vcpus(&self) -> Vec<VcpuLoad> {
        let load = |(&at, &demand): (&usize, &u32)| {
            let running = demand * FULL / self.total(at).max(FULL);
            VcpuLoad { cpu: self.host.cpus()[at].id, running, waiting: demand - running }
        };
        self.at.iter().zip(&self.demand).map(load).collect()
    }

    fn cpus(&self) -> Vec<CpuLoad> {
        let vcpus = self.vcpus();
        let load = |cpu: usize| {
            let id = self.host.cpus()[cpu].id;
            let own: u32 = vcpus.iter().filter(|load| load.cpu == id).map(|load| load.running).sum();
            let others = self.outside[cpu] * FULL / self.total(cpu).max(FULL);
            let (utilisation, runqueue) = (own + others, self.runqueues[cpu]);
            CpuLoad { utilisation, average: utilisation, runqueue, mean_idle_ns: u64::MAX, ..CpuLoad::default() }
        };
        (0..self.host.cpus().len()).map(load).collect()
    }

    fn pass(&mut self, balancer: &mut Balancer) -> Pass {
        let (vcpus, cpus) = (self.vcpus(), self.cpus());
        let snapshot = Snapshot { now: self.now, vcpus: &vcpus, cpus: &cpus, memory: &self.memory, pairs: &self.pairs };
        let pass = balancer.pass(&snapshot);
        self.apply(&pass);
        self.now = pass.next;
        pass
    }

    fn apply(&mut self, pass: &Pass) {
        for decision in &pass.moves {
            let from = self.at[decision.vcpu.index()];
            self.at[decision.vcpu.index()] = self.host.index_of(decision.to).unwrap();
            if let Some(other) = decision.swap_with {
                self.at[other.index()] = from;
            }
        }
    }

    fn balancer(&self, config: Config) -> Balancer {
        Balancer::new(self.host.clone(), self.guest.clone(), config, self.now)
    }

    /// One pass of a fresh balancer.
    fn once(&mut self, rules: Rules) -> Pass {
        let mut balancer = self.balancer(Config { rules, ..Config::default() });
        self.pass(&mut balancer)
    }

    fn doubled_while_empty(&self) -> bool {
        let usable: Vec<usize> = self.host.usable().iter().map(|cpu| self.host.index_of(cpu).unwrap()).collect();
        let count = |cpu: usize| self.at.iter().filter(|at| **at == cpu).count();
        usable.iter().any(|&cpu| count(cpu) == 0) && usable.iter().any(|&cpu| count(cpu) > 1)
    }
}

fn moves(pass: &Pass) -> Vec<(u32, u32, Rule)> {
    pass.moves.iter().map(|decision| (decision.vcpu.0, decision.to.0, decision.rule)).collect()
}

#[test]
fn a_disturbed_vcpu_goes_to_an_idle_cpu_of_its_cluster_first() {
    let mut world = World::new(host(1, 2, 2, 4, 1), guest(1, 1, 1), &[5]);
    world.outside[5] = FULL;
    assert_eq!(moves(&world.once(Rules::default())), [(0, 6, Rule::Cluster)]);
    let mut busy = World::new(host(1, 2, 2, 4, 1), guest(1, 1, 1), &[5]);
    busy.outside[4..8].fill(FULL);
    assert_eq!(moves(&busy.once(Rules::default())), [(0, 0, Rule::Llc)]);
    let mut full = World::new(host(1, 2, 2, 4, 1), guest(1, 1, 1), &[5]);
    full.outside[..8].fill(FULL);
    assert_eq!(moves(&full.once(Rules::default())), [(0, 8, Rule::Busiest)]);
}

#[test]
fn without_the_cluster_rule_the_search_is_by_number() {
    let mut world = World::new(host(1, 1, 4, 4, 1), guest(1, 1, 1), &[7]);
    world.outside[7] = FULL;
    let rules = Rules { cluster: false, ..Rules::default() };
    assert_eq!(moves(&world.once(rules)), [(0, 8, Rule::Llc)]);
}

#[test]
fn the_scan_budget_ends_the_search_in_a_busy_cache() {
    let busy = || {
        let mut world = World::new(host(1, 1, 1, 16, 1), guest(1, 1, 1), &[0]);
        world.outside[..15].fill(FULL);
        world
    };
    let pass = busy().once(Rules::default());
    assert_eq!((moves(&pass), pass.stats.cpus_scanned), (vec![(0, 15, Rule::Busiest)], 1));
    let pass = busy().once(Rules { scan_budget: false, ..Rules::default() });
    assert_eq!((moves(&pass), pass.stats.cpus_scanned), (vec![(0, 15, Rule::Cluster)], 15));
}

#[test]
fn without_the_rate_limit_a_cpu_pulls_every_time() {
    let host = fixture(include_str!("../../resources/hosts/laptop-hybrid.txt"));
    for (rate_limit, expected) in [(true, vec![]), (false, vec![(0, 4, Rule::Asym)])] {
        let mut world = World::new(host.clone(), guest(1, 1, 1), &[4]);
        let config = Config { rules: Rules { rate_limit, ..Rules::default() }, ..Config::default() };
        let mut balancer = world.balancer(config);
        assert_eq!(moves(&world.pass(&mut balancer)), []);
        // The CPUs have been looked at; within the interval they are looked at again only without the limit.
        world.at = vec![14];
        world.now = Nanos(2);
        assert_eq!(moves(&world.pass(&mut balancer)), expected);
    }
}

#[test]
fn a_doubled_vcpu_goes_to_an_empty_cpu_even_if_that_is_busy() {
    let mut world = World::new(host(1, 1, 2, 1, 1), guest(2, 1, 2), &[0, 0]);
    world.outside[1] = FULL;
    assert_eq!(moves(&world.once(Rules::default())), [(0, 1, Rule::House)]);
    let mut off = World::new(host(1, 1, 2, 1, 1), guest(2, 1, 2), &[0, 0]);
    off.outside[1] = 2 * FULL;
    assert_eq!(moves(&off.once(Rules { house: false, ..Rules::default() })), []);
}

#[test]
fn a_cpu_that_others_hardly_use_is_not_left_for_another_idle_one() {
    // Others use 6 % of CPU 0, where the vCPU is, and the busy task on CPU 1 makes its sibling, CPU 3, no whole core.
    let mut world = World::new(host(1, 1, 1, 2, 2), guest(1, 1, 1), &[0]);
    world.outside = vec![68, FULL, 68, 0];
    let mut balancer = world.balancer(Config { settle_ns: 0, ..Config::default() });
    for _ in 0..50 {
        assert_eq!(moves(&world.pass(&mut balancer)), []);
    }
    world.outside[0] = FULL / 4;
    assert_eq!(moves(&world.pass(&mut balancer)), [(0, 2, Rule::Cluster)]);
}

#[test]
fn two_vcpus_on_two_cpus_stay_put_whoever_disturbs_one() {
    let mut world = World::new(host(1, 1, 2, 1, 1), guest(2, 1, 2), &[0, 1]);
    world.outside[1] = 3 * FULL;
    assert_eq!(moves(&world.once(Rules::default())), []);
}

#[test]
fn an_idle_cpu_pulls_from_the_least_preferred_busy_one() {
    let host = fixture(include_str!("../../resources/hosts/laptop-hybrid.txt"));
    let mut world = World::new(host, guest(3, 1, 3), &[14, 8, 4]);
    // From the low-power core (rank 25) to the best idle core, then from the efficiency core (43) to the next.
    assert_eq!(moves(&world.once(Rules::default())), [(0, 6, Rule::Asym), (1, 0, Rule::Asym)]);
    let mut off = World::new(world.host.clone(), guest(3, 1, 3), &[14, 8, 4]);
    assert_eq!(moves(&off.once(Rules { asym: false, ..Rules::default() })), []);
}

#[test]
fn a_sleeping_vcpu_gives_up_a_preferred_cpu_by_changing_places() {
    let host = fixture(include_str!("../../resources/hosts/laptop-hybrid.txt"));
    let mut world = World::new(host, guest(2, 1, 2), &[14, 4]);
    world.outside[..14].fill(FULL);
    world.outside[4..6].fill(0);
    world.demand[1] = 0;
    let pass = world.once(Rules::default());
    assert_eq!(moves(&pass), [(0, 4, Rule::Asym)]);
    assert_eq!(pass.moves[0].swap_with.map(|other| other.0), Some(1));
}

#[test]
fn a_busy_sibling_leaves_for_a_whole_idle_core() {
    let mut world = World::new(host(1, 1, 4, 1, 2), guest(2, 1, 2), &[0, 4]);
    let pass = world.once(Rules::default());
    assert_eq!(moves(&pass), [(0, 1, Rule::WholeCore)]);
    let mut off = World::new(host(1, 1, 4, 1, 2), guest(2, 1, 2), &[0, 4]);
    assert_eq!(moves(&off.once(Rules { whole_core: false, ..Rules::default() })), []);
}

#[test]
fn the_busiest_cpu_gives_to_the_least_busy_one() {
    let mut world = World::new(host(1, 1, 3, 1, 1), guest(5, 1, 5), &[0, 0, 0, 1, 2]);
    assert_eq!(moves(&world.once(Rules::default())), [(0, 1, Rule::Busiest)]);
    let mut off = World::new(host(1, 1, 3, 1, 1), guest(5, 1, 5), &[0, 0, 0, 1, 2]);
    assert_eq!(moves(&off.once(Rules { busiest: false, ..Rules::default() })), []);
}

#[test]
fn the_length_of_a_runqueue_tells_what_utilisation_does_not() {
    let world = || {
        let mut world = World::new(host(1, 1, 3, 1, 1), guest(5, 1, 5), &[0, 0, 0, 1, 2]);
        world.demand[3..].fill(0);
        world.outside = vec![0, 3 * FULL, FULL];
        world
    };
    // Both other CPUs are busy all the time, with three tasks and with one.
    assert_eq!(moves(&world().once(Rules::default())), [(0, 1, Rule::Busiest)]);
    assert_eq!(moves(&world().seen().once(Rules::default())), [(0, 2, Rule::Busiest)]);
    let mut now = world();
    now.runqueues = [0, 3, 1].map(|tasks| Runqueue { now: Some(tasks), mean: None }).to_vec();
    assert_eq!(moves(&now.once(Rules::default())), [(0, 2, Rule::Busiest)]);
    // So long that there is nothing to be gained.
    let mut long = world();
    long.outside[2] = 2 * FULL;
    assert_eq!(moves(&long.clone().once(Rules::default())), [(0, 1, Rule::Busiest)]);
    assert_eq!(moves(&long.seen().once(Rules::default())), []);
}

#[test]
fn a_task_that_has_come_makes_a_cpu_busy_at_once() {
    let mut world = World::new(host(1, 1, 4, 1, 1), guest(1, 1, 1), &[0]);
    world.outside[0] = FULL;
    world.runqueues[1].now = Some(1);
    assert_eq!(moves(&world.clone().once(Rules::default())), [(0, 2, Rule::Llc)]);
    world.runqueues[1].now = Some(0);
    assert_eq!(moves(&world.once(Rules::default())), [(0, 1, Rule::Llc)]);
}

#[test]
fn a_vcpu_alone_on_a_better_cpu_stays_there_though_it_had_to_wait() {
    let host = fixture(include_str!("../../resources/hosts/laptop-hybrid.txt"));
    let disturbed = |now| {
        let mut world = World::new(host.clone(), guest(1, 1, 1), &[0]);
        world.outside[..8].fill(FULL);
        world.runqueues[0].now = now;
        world
    };
    for (now, expected) in [(None, vec![(0, 8, Rule::Llc)]), (Some(1), vec![(0, 8, Rule::Llc)]), (Some(0), vec![])] {
        assert_eq!(moves(&disturbed(now).once(Rules::default())), expected, "{now:?}");
    }
    let off = Rules { asym: false, ..Rules::default() };
    assert_eq!(moves(&disturbed(Some(0)).once(off)), [(0, 8, Rule::Llc)]);
}

#[test]
fn a_vcpu_follows_its_memory_and_once_per_node_pair() {
    let mut world = World::new(host(2, 1, 4, 1, 1), guest(2, 1, 2), &[0, 1]);
    world.memory = vec![vec![0, GIB]];
    let pass = world.once(Rules::default());
    assert_eq!(moves(&pass), [(0, 4, Rule::Numa)]);
    assert_eq!((pass.moves[0].score, pass.stats.numa_decisions), (999, 1));
    let mut off = World::new(host(2, 1, 4, 1, 1), guest(2, 1, 2), &[0, 1]);
    off.memory = vec![vec![0, GIB]];
    assert_eq!(moves(&off.once(Rules { numa: false, ..Rules::default() })), []);
}

#[test]
fn crossed_vcpus_change_places_when_no_cpu_is_idle() {
    let mut world = World::new(host(2, 1, 2, 1, 1), guest(4, 2, 4), &[2, 0, 1, 3]);
    world.memory = vec![vec![GIB, 0], vec![0, GIB]];
    let pass = world.once(Rules::default());
    // 999 each way, and an eighth more because the other comes home.
    assert_eq!((moves(&pass), pass.moves[0].score), (vec![(0, 1, Rule::Numa)], 1998 + 1998 / 8));
    assert_eq!(pass.moves[0].swap_with.map(|other| other.0), Some(2));
    assert_eq!(moves(&world.once(Rules::default())), []);
}

#[test]
fn vcpus_of_one_guest_node_never_change_places() {
    let mut world = World::new(host(2, 1, 2, 1, 1), guest(4, 1, 4), &[0, 1, 2, 3]);
    world.memory = vec![vec![GIB, 3 * GIB]];
    assert_eq!(moves(&world.once(Rules::default())), []);
}

#[test]
fn the_move_decision_is_taken_once_per_node_however_many_cpus_it_has() {
    for cores in [1, 4, 16] {
        let cpus = 3 * cores as usize;
        // Node 1 is full with the vCPUs of the same guest node, so every CPU of it is weighed, and nothing moves.
        let at: Vec<usize> = (0..cpus).collect();
        let vcpus = 3 * cores;
        let mut world = World::new(host(3, 1, 1, cores, 1), guest(vcpus, 1, vcpus), &at);
        world.memory = vec![vec![0, GIB, 0]];
        let mut balancer = world.balancer(Config { max_moves: 1, ..Config::default() });
        let pass = world.pass(&mut balancer);
        assert_eq!((pass.stats.numa_decisions, moves(&pass)), (2, vec![]), "{cores} cores a node");
    }
}

#[test]
fn a_vcpu_whose_cpu_is_gone_is_evacuated() {
    let text = "== devices/system/cpu/online\n0-3\n== self/affinity\n0-2\n";
    let mut world = World::new(fixture(text), guest(2, 1, 2), &[3, 0]);
    let (cpus, now) = (world.cpus(), world.now);
    let mut vcpus = world.vcpus();
    vcpus[1].cpu = HostCpu(9);
    let snapshot = Snapshot { now, vcpus: &vcpus, cpus: &cpus, memory: &[], pairs: &[] };
    let mut balancer = world.balancer(Config { max_moves: 0, ..Config::default() });
    let pass = balancer.pass(&snapshot);
    // CPU 0 is still busy with what ran there.
    assert_eq!(moves(&pass), [(0, 1, Rule::Evacuate), (1, 2, Rule::Evacuate)]);
    assert_eq!(pass.moves[1].from, None);
    world.apply(&pass);
    assert!(!world.doubled_while_empty());
}

#[test]
fn a_pair_draws_nearer_and_then_stays() {
    let mut world = World::new(host(2, 1, 2, 4, 1), guest(2, 1, 2), &[9, 1]);
    world.pairs = vec![Pair { mover: VcpuIndex(0), anchor: VcpuIndex(1), step: Step::Nearer }];
    let pass = world.once(Rules::default());
    assert_eq!((moves(&pass), pass.moves[0].score), (vec![(0, 2, Rule::Pair)], 3));
    assert_eq!(moves(&world.once(Rules::default())), []);
    world.at = vec![9, 1];
    assert_eq!(moves(&world.once(Rules { pair: false, ..Rules::default() })), []);
    world.memory = vec![vec![GIB, GIB]];
    assert_eq!(moves(&world.once(Rules::default())), [], "memory decides about nodes");
    world.pairs = vec![Pair { mover: VcpuIndex(7), anchor: VcpuIndex(1), step: Step::Nearer }];
    assert_eq!(moves(&world.once(Rules::default())), []);
}

#[test]
fn a_pair_comes_to_one_cpu_in_exchange_only_where_none_is_empty_and_goes_back() {
    let asked = |step| vec![Pair { mover: VcpuIndex(1), anchor: VcpuIndex(0), step }];
    let mut world = World::new(host(1, 1, 2, 1, 1), guest(4, 1, 4), &[0, 1, 0, 1]);
    world.pairs = asked(Step::Nearer);
    assert_eq!(moves(&world.once(Rules::default())), []);
    world.pairs = asked(Step::OneCpu);
    let pass = world.once(Rules::default());
    assert_eq!((moves(&pass), pass.moves[0].score), (vec![(1, 0, Rule::Pair)], 4));
    assert_eq!(pass.moves[0].swap_with, Some(VcpuIndex(2)));
    assert_eq!(world.at, [0, 0, 1, 1]);
    world.pairs = asked(Step::Back { to: HostCpu(1), other: Some(VcpuIndex(2)) });
    let pass = world.once(Rules::default());
    assert_eq!((moves(&pass), &world.at[..]), (vec![(1, 1, Rule::Pair)], &[0, 1, 0, 1][..]));
    let mut roomy = World::new(host(1, 1, 4, 1, 1), guest(3, 1, 3), &[0, 1, 0]);
    roomy.outside[2..].fill(FULL);
    roomy.pairs = asked(Step::OneCpu);
    let pass = roomy.once(Rules { house: false, busiest: false, ..Rules::default() });
    assert!(pass.moves.iter().all(|decision| decision.rule != Rule::Pair), "{:?}", moves(&pass));
}

#[test]
fn a_pair_goes_back_to_a_cpu_only_while_that_is_idle() {
    let mut world = World::new(host(1, 1, 4, 1, 1), guest(2, 1, 2), &[0, 1]);
    world.pairs =
        vec![Pair { mover: VcpuIndex(1), anchor: VcpuIndex(0), step: Step::Back { to: HostCpu(3), other: None } }];
    let mut busy = world.clone();
    assert_eq!(moves(&world.once(Rules::default())), [(1, 3, Rule::Pair)]);
    busy.outside[3] = FULL;
    assert_eq!(moves(&busy.once(Rules::default())), []);
}

#[test]
fn a_cpu_that_another_vm_claims_exclusively_is_left() {
    let mut world = World::new(host(1, 1, 3, 1, 1), guest(1, 1, 1), &[0]);
    let (vcpus, mut cpus) = (world.vcpus(), world.cpus());
    cpus[0].exclusive = true;
    cpus[1].exclusive = true;
    let snapshot = Snapshot { now: world.now, vcpus: &vcpus, cpus: &cpus, memory: &[], pairs: &[] };
    let pass = world.balancer(Config::default()).pass(&snapshot);
    assert_eq!(moves(&pass), [(0, 2, Rule::Evacuate)]);
    world.apply(&pass);
    assert_eq!(moves(&world.once(Rules::default())), []);
}

#[test]
fn a_host_that_changed_is_taken_note_of() {
    let four = "== devices/system/cpu/online\n0-3\n== self/affinity\n0-3\n";
    let mut world = World::new(fixture(four), guest(2, 1, 2), &[0, 3]);
    let mut balancer = world.balancer(Config::default());
    assert_eq!(moves(&world.pass(&mut balancer)), []);
    balancer.host_changed(fixture(&four.replace("online\n0-3", "online\n0-2")), world.now);
    assert_eq!(moves(&world.pass(&mut balancer)), [(1, 1, Rule::Evacuate)]);
    balancer.host_changed(fixture(four), world.now);
    assert_eq!(moves(&world.pass(&mut balancer)), []);
}

#[test]
fn passes_that_find_nothing_become_rare_until_somebody_waits() {
    let mut world = World::new(host(1, 1, 4, 1, 1), guest(1, 1, 1), &[0]);
    let mut balancer = world.balancer(Config::default());
    let skipped = (0..500).filter(|_| world.pass(&mut balancer).skipped).count();
    assert!(skipped > 400, "{skipped} of 500 passes skipped");
    world.outside[0] = FULL;
    assert_eq!(moves(&world.pass(&mut balancer)), [(0, 1, Rule::Llc)]);
}

#[test]
fn a_vcpu_that_moved_settles_first() {
    let mut world = World::new(host(1, 1, 4, 1, 1), guest(1, 1, 1), &[0]);
    let mut balancer = world.balancer(Config::default());
    world.outside[0] = FULL;
    assert_eq!(moves(&world.pass(&mut balancer)), [(0, 1, Rule::Llc)]);
    world.outside[1] = FULL;
    for _ in 0..9 {
        assert_eq!(moves(&world.pass(&mut balancer)), []);
    }
    assert_eq!(moves(&world.pass(&mut balancer)), [(0, 2, Rule::Llc)]);
}

fn any_world() -> impl Strategy<Value = World> {
    let shape = (1u32..4, 1u32..3, 1u32..3, 1u32..3, 1u32..3);
    (shape, 1u32..24, 1u32..3).prop_flat_map(|(shape, vcpus, nodes)| {
        let host = host(shape.0, shape.1, shape.2, shape.3, shape.4);
        let (cpus, count) = (host.cpus().len(), vcpus as usize);
        let nodes = nodes.min(vcpus);
        let memory = proptest::collection::vec(proptest::collection::vec(0u64..4, shape.0 as usize), nodes as usize);
        let loads = |count| proptest::collection::vec(prop_oneof![Just(0), Just(FULL), 0..FULL], count);
        let at = proptest::collection::vec(0..cpus, count);
        (Just((host, vcpus, nodes)), at, loads(count), loads(cpus), memory, any::<bool>()).prop_map(
            |((host, vcpus, nodes), at, demand, outside, memory, seen)| {
                let world = World::new(host, guest(vcpus, nodes, 4), &at);
                let world = World { demand, outside, memory, ..world };
                if seen { world.seen() } else { world }
            },
        )
    })
}

/// The world with one vCPU on every CPU before any has two.
fn tidy(mut world: World) -> World {
    let cpus = world.host.cpus().len();
    world.at = (0..world.at.len()).map(|vcpu| vcpu * 7 % cpus).collect();
    if cpus.is_multiple_of(7) {
        world.at = (0..world.at.len()).map(|vcpu| vcpu % cpus).collect();
    }
    world
}

/// What may be known of a runqueue, whether or not it agrees with the loads.
fn any_runqueue() -> impl Strategy<Value = Runqueue> {
    let mean = proptest::option::of(prop_oneof![Just(0), 0..4 * FULL]);
    (proptest::option::of(0u32..4), mean).prop_map(|(now, mean)| Runqueue { now, mean })
}

proptest! {
    #[test]
    fn a_cpu_whose_runqueue_is_not_empty_is_not_idle(
        mut world in any_world(), runqueues in proptest::collection::vec(any_runqueue(), 48),
    ) {
        world.runqueues = runqueues[..world.host.cpus().len()].to_vec();
        let now = world.runqueues.clone();
        for decision in world.once(Rules::default()).moves {
            let goes_to_an_idle_cpu = matches!(decision.rule, Rule::Cluster | Rule::Llc | Rule::WholeCore | Rule::Asym);
            let to = world.host.index_of(decision.to).unwrap();
            prop_assert!(!goes_to_an_idle_cpu || now[to].now.unwrap_or(0) == 0, "{:?}", decision);
        }
    }

    #[test]
    fn the_only_task_of_a_better_cpu_is_never_taken(
        at in proptest::collection::vec(0usize..16, 1..12), outside in proptest::collection::vec(0..2 * FULL, 16),
        runqueues in proptest::collection::vec(any_runqueue(), 16),
    ) {
        let host = fixture(include_str!("../../resources/hosts/laptop-hybrid.txt"));
        let vcpus = u32::try_from(at.len()).unwrap();
        let mut world = World::new(host, guest(vcpus, 1, vcpus), &at);
        (world.outside, world.runqueues) = (outside, runqueues);
        let before = world.clone();
        for decision in world.once(Rules::default()).moves {
            let from = before.at[decision.vcpu.index()];
            let alone = before.at.iter().filter(|at| **at == from).count() == 1;
            let to = before.host.index_of(decision.to).unwrap();
            let worse = before.host.cpus()[to].rank < before.host.cpus()[from].rank;
            prop_assert!(!(alone && worse && before.runqueues[from].now == Some(0)), "{:?}", decision);
        }
    }

    #[test]
    fn a_length_that_says_what_utilisation_says_changes_nothing(mut world in any_world()) {
        world.runqueues.fill(Runqueue::default());
        let mut told = world.clone();
        let used = |cpu: usize| world.outside[cpu] * FULL / world.total(cpu).max(FULL);
        told.runqueues = (0..world.outside.len()).map(|cpu| Runqueue { now: None, mean: Some(used(cpu)) }).collect();
        prop_assert_eq!(world.once(Rules::default()), told.once(Rules::default()));
    }

    #[test]
    fn no_move_for_want_of_time_goes_to_a_longer_runqueue(mut world in any_world()) {
        world = world.seen();
        let before = world.clone();
        for decision in world.once(Rules::default()).moves {
            let (from, to) = (before.at[decision.vcpu.index()], before.host.index_of(decision.to).unwrap());
            let left = before.total(to) + before.demand[decision.vcpu.index()] <= before.total(from);
            prop_assert!(decision.rule != Rule::Busiest || left, "{:?}", decision);
        }
    }

    #[test]
    fn no_move_doubles_vcpus_while_an_allowed_cpu_is_empty(world in any_world()) {
        let mut world = tidy(world);
        prop_assert!(!world.doubled_while_empty());
        let mut balancer = world.balancer(Config::default());
        for _ in 0..20 {
            world.pass(&mut balancer);
            prop_assert!(!world.doubled_while_empty(), "{:?}", world.at);
        }
    }

    #[test]
    fn doubled_vcpus_come_apart(mut world in any_world()) {
        let mut balancer = world.balancer(Config::default());
        for _ in 0..40 {
            world.pass(&mut balancer);
        }
        prop_assert!(!world.doubled_while_empty(), "{:?}", world.at);
    }

    #[test]
    fn total_moves_per_pass_are_bounded(mut world in any_world(), max_moves in 0usize..5) {
        let mut balancer = world.balancer(Config { max_moves, ..Config::default() });
        for _ in 0..10 {
            let pass = world.pass(&mut balancer);
            prop_assert!(pass.moves.len() <= max_moves, "{:?}", pass.moves);
        }
    }

    #[test]
    fn a_busy_cpu_never_uses_the_asym_rule(
        at in proptest::collection::vec(0usize..16, 1..12), outside in proptest::collection::vec(0..FULL, 16),
        demand in proptest::collection::vec(0..FULL + 1, 12),
    ) {
        let host = fixture(include_str!("../../resources/hosts/laptop-hybrid.txt"));
        let vcpus = u32::try_from(at.len()).unwrap();
        let mut world = World::new(host, guest(vcpus, 1, vcpus), &at);
        world.outside = outside;
        world.demand = demand[..at.len()].to_vec();
        let before = world.clone();
        let pass = world.once(Rules::default());
        for decision in pass.moves.iter().filter(|decision| decision.rule == Rule::Asym) {
            let (to, from) = (before.host.index_of(decision.to).unwrap(), before.at[decision.vcpu.index()]);
            prop_assert!(before.total(to) < FULL / 8, "{:?}", decision);
            prop_assert!(before.host.cpus()[to].rank > before.host.cpus()[from].rank);
        }
    }

    #[test]
    fn equal_scores_never_move(
        shape in (1u32..4, 1u32..3, 1u32..3, 1u32..3), load in 0..FULL + 1, per_cpu in 1usize..3,
        bytes in 0u64..3,
    ) {
        let host = host(shape.0, shape.1, shape.2, shape.3, 1);
        let at: Vec<usize> = (0..host.cpus().len() * per_cpu).map(|vcpu| vcpu / per_cpu).collect();
        let vcpus = u32::try_from(at.len()).unwrap();
        let mut world = World::new(host, guest(vcpus, 2.min(vcpus), 4), &at);
        world.demand.fill(load);
        world.memory = vec![vec![bytes; shape.0 as usize]; 2];
        prop_assert_eq!(moves(&world.once(Rules::default())), vec![]);
    }

    #[test]
    fn no_snapshot_makes_it_panic(
        vcpus in proptest::collection::vec((0u32..20, any::<u32>(), any::<u32>()), 0..12),
        cpus in proptest::collection::vec(
            (any::<u32>(), any::<Option<u32>>(), any::<Option<u32>>(), any::<u32>(), any::<u64>(), any::<bool>()), 0..20,
        ),
        memory in proptest::collection::vec(proptest::collection::vec(any::<u64>(), 0..4), 0..4),
        pairs in proptest::collection::vec((0u32..12, 0u32..12), 0..4),
        now in any::<u64>(), config in (any::<u64>(), any::<u64>(), any::<u64>(), any::<usize>()),
    ) {
        let host = host(2, 1, 2, 2, 2);
        let vcpu = |(cpu, running, waiting)| VcpuLoad { cpu: HostCpu(cpu), running, waiting };
        let vcpus: Vec<VcpuLoad> = vcpus.into_iter().map(vcpu).collect();
        let cpu = |(utilisation, now, mean, claims, mean_idle_ns, exclusive)| {
            let runqueue = Runqueue { now, mean };
            CpuLoad { utilisation, average: utilisation, runqueue, claims, exclusive, mean_idle_ns }
        };
        let cpus: Vec<CpuLoad> = cpus.into_iter().map(cpu).collect();
        let pairs: Vec<Pair> =
            pairs.into_iter().map(|(a, b)| Pair { mover: VcpuIndex(a), anchor: VcpuIndex(b), step: Step::OneCpu }).collect();
        let (period_ns, settle_ns, move_cost_ns, max_moves) = config;
        let config = Config { rules: Rules::default(), period_ns, settle_ns, move_cost_ns, max_moves };
        let mut balancer = Balancer::new(host, guest(8, 2, 4), config, Nanos(now));
        let mut at = Nanos(now);
        for _ in 0..3 {
            let pass =
                balancer.pass(&Snapshot { now: at, vcpus: &vcpus, cpus: &cpus, memory: &memory, pairs: &pairs });
            prop_assert!(at.is_before(pass.next));
            at = pass.next;
        }
    }

    #[test]
    fn every_move_says_what_it_gains(mut world in any_world()) {
        let before = world.clone();
        let pass = world.once(Rules::default());
        for decision in &pass.moves {
            let gains = match decision.rule {
                Rule::Numa => decision.score >= 29,
                Rule::Busiest | Rule::Cluster | Rule::Llc => decision.score > 0,
                Rule::House | Rule::WholeCore | Rule::Asym => true,
                _ => false,
            };
            prop_assert!(gains, "{:?}", decision);
            prop_assert!(decision.from == Some(before.host.cpus()[before.at[decision.vcpu.index()]].id));
            prop_assert!(decision.from != Some(decision.to));
        }
    }

    #[test]
    fn passes_stop_when_nothing_improves(world in any_world()) {
        let mut world = tidy(world);
        let mut balancer = world.balancer(Config { settle_ns: 0, ..Config::default() });
        for _ in 0..100 {
            world.pass(&mut balancer);
        }
        for _ in 0..100 {
            prop_assert_eq!(moves(&world.pass(&mut balancer)), vec![]);
        }
    }

    #[test]
    fn the_allowed_set_is_obeyed(
        allowed in proptest::collection::btree_set(0usize..8, 1..8), at in proptest::collection::vec(0usize..8, 1..12),
        outside in proptest::collection::vec(0..FULL, 8),
    ) {
        let list: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        let host = fixture(&format!("== devices/system/cpu/online\n0-7\n== self/affinity\n{}\n", list.join(",")));
        let vcpus = u32::try_from(at.len()).unwrap();
        let mut world = World::new(host, guest(vcpus, 1, vcpus), &at);
        world.outside = outside;
        let mut balancer = world.balancer(Config::default());
        for _ in 0..5 {
            world.pass(&mut balancer);
            prop_assert!(world.at.iter().all(|cpu| allowed.contains(cpu)), "{:?}", world.at);
        }
    }
}
