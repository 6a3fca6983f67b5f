// SPDX-License-Identifier: Apache-2.0
//! Pairs: when they are asked for, kept, taken back.

use proptest::prelude::*;

use super::*;
use crate::placement::RunnerUp;

const SECOND: u64 = 1_000_000_000;

/// A VM whose vCPUs yield and wait as told, a look every 100 ms.
struct Scene {
    pairing: Pairing,
    now: Nanos,
    places: Vec<HostCpu>,
    /// Yields of each look.
    yields: Vec<Yielded>,
    /// Waits that each vCPU finishes in a look; `None` if it does not count.
    finished: Option<u64>,
    events: u64,
}

impl Scene {
    fn new(places: &[u32]) -> Self {
        Self {
            pairing: Pairing::default(),
            now: Nanos(5),
            places: places.iter().copied().map(HostCpu).collect(),
            yields: between(0, 1, 50),
            finished: Some(100),
            events: 100,
        }
    }

    fn look(&mut self) -> Vec<Pair> {
        self.now = self.now.after(SECOND / 10);
        let waits = vec![Waits { events: self.events, finished: self.finished }; self.places.len()];
        self.pairing.look(self.now, &self.places, &self.yields, &waits)
    }

    /// Looks until something is asked for; gives up after two minutes.
    fn until_asked(&mut self) -> Vec<Pair> {
        (0..1200).map(|_| self.look()).find(|pairs| !pairs.is_empty()).unwrap_or_default()
    }

    /// Does what a pass would.
    fn do_it(&mut self, vcpu: usize, to: u32, swap_with: Option<usize>) {
        let from = std::mem::replace(&mut self.places[vcpu], HostCpu(to));
        swap_with.into_iter().for_each(|other| self.places[other] = from);
        let decision = Decision {
            vcpu: super::vcpu(vcpu),
            from: Some(from),
            to: HostCpu(to),
            swap_with: swap_with.map(super::vcpu),
            rule: Rule::Pair,
            score: 4,
            runner_up: Some(RunnerUp { cpu: from, score: 1 }),
        };
        self.pairing.done(&[decision], self.now);
    }

    fn looks(&mut self, count: u32) -> Vec<Pair> {
        (0..count).flat_map(|_| self.look()).collect()
    }
}

fn between(a: u32, b: u32, count: u64) -> Vec<Yielded> {
    let one = |source, target| Yielded { source: VcpuIndex(source), target: VcpuIndex(target), count };
    vec![one(a, b), one(b, a)]
}

#[test]
fn a_pair_that_gains_is_kept() {
    let mut scene = Scene::new(&[0, 1, 0, 1]);
    let asked = scene.until_asked();
    let pair = |mover, anchor| Pair { mover: VcpuIndex(mover), anchor: VcpuIndex(anchor), step: Step::OneCpu };
    assert_eq!(asked, [pair(1, 0), pair(0, 1)]);
    assert_eq!(scene.pairing.together(), []);
    scene.do_it(1, 0, Some(2));
    assert_eq!(scene.pairing.together(), [VcpuIndex(0), VcpuIndex(1)]);
    scene.finished = Some(113);
    assert_eq!(scene.looks(100), [], "it is known, and nobody else stands out");
    assert_eq!(scene.pairing.together(), [VcpuIndex(0), VcpuIndex(1)]);
    assert_eq!(scene.pairing.counts(), PairCounts { tried: 1, helped: 1, undone: 0 });
}

#[test]
fn a_pair_that_does_not_gain_is_taken_back_and_rests_twice_as_long_each_time() {
    let mut scene = Scene::new(&[0, 1, 0, 1]);
    let mut rests = Vec::new();
    for _ in 0..3 {
        let began = scene.now;
        assert_eq!(scene.until_asked().len(), 2);
        rests.push(scene.now.since(began));
        scene.do_it(1, 0, Some(2));
        // An eighth more is not enough.
        scene.finished = Some(112);
        let back = scene.until_asked();
        let step = Step::Back { to: HostCpu(1), other: Some(VcpuIndex(2)) };
        assert_eq!(back, [Pair { mover: VcpuIndex(1), anchor: VcpuIndex(0), step }]);
        assert_eq!(scene.pairing.together(), [], "they roam at once");
        scene.do_it(1, 1, Some(2));
        scene.finished = Some(100);
    }
    assert!(rests[1] >= 10 * SECOND && rests[2] >= 20 * SECOND, "{rests:?}");
    assert_eq!(scene.pairing.counts(), PairCounts { tried: 3, helped: 0, undone: 3 });
}

#[test]
fn a_kept_pair_that_brings_less_than_before_is_taken_apart() {
    let mut scene = Scene::new(&[0, 1, 0, 1]);
    scene.until_asked();
    scene.do_it(1, 0, Some(2));
    scene.finished = Some(200);
    scene.looks(30);
    assert_eq!(scene.pairing.counts().helped, 1);
    scene.finished = Some(90);
    assert!(matches!(scene.until_asked()[..], [Pair { step: Step::Back { .. }, .. }]));
}

#[test]
fn two_that_share_a_cpu_only_stop_roaming() {
    let mut scene = Scene::new(&[0, 0, 1, 1]);
    for _ in 0..100 {
        assert_eq!(scene.look(), []);
        if !scene.pairing.together().is_empty() {
            break;
        }
    }
    assert_eq!(scene.pairing.together(), [VcpuIndex(0), VcpuIndex(1)]);
    assert_eq!(scene.looks(30), []);
    assert_eq!(scene.pairing.together(), [], "it brought nothing");
    assert_eq!(scene.pairing.counts(), PairCounts { tried: 1, helped: 0, undone: 1 });
}

#[test]
fn where_the_guest_does_not_count_a_pair_must_become_calmer_and_never_shares_a_cpu() {
    let mut scene = Scene::new(&[0, 4]);
    scene.finished = None;
    assert!(scene.until_asked().iter().all(|pair| pair.step == Step::Nearer));
    scene.do_it(1, 1, None);
    scene.events = 50;
    assert_eq!(scene.looks(40), []);
    assert_eq!(scene.pairing.counts().helped, 1);
    let mut sharing = Scene::new(&[0, 0, 1, 1]);
    sharing.finished = None;
    assert_eq!((sharing.looks(100), sharing.pairing.counts().tried), (vec![], 0));
}

#[test]
fn nobody_stands_out_where_all_yield_to_all_or_only_one_way_or_seldom() {
    let mut all = Scene::new(&[0, 1, 0, 1]);
    all.yields =
        [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)].iter().flat_map(|(a, b)| between(*a, *b, 50)).collect();
    assert_eq!(all.looks(100), []);
    let mut one_way = Scene::new(&[0, 1, 0, 1]);
    one_way.yields.truncate(1);
    assert_eq!(one_way.looks(100), []);
    let mut seldom = Scene::new(&[0, 1, 0, 1]);
    seldom.yields = between(0, 1, 2);
    assert_eq!(seldom.looks(100), []);
}

#[test]
fn a_trial_in_which_another_rule_moves_one_of_them_says_nothing() {
    let mut scene = Scene::new(&[0, 4]);
    scene.until_asked();
    scene.do_it(1, 1, None);
    scene.finished = Some(500);
    scene.look();
    scene.places[1] = HostCpu(9);
    scene.looks(12);
    assert_eq!(scene.pairing.counts(), PairCounts { tried: 1, helped: 0, undone: 0 });
}

#[test]
fn what_cannot_be_had_is_asked_for_only_so_long() {
    let mut scene = Scene::new(&[0, 4]);
    scene.until_asked();
    let asked = (0..100).filter(|_| !scene.look().is_empty()).count();
    assert!((30..70).contains(&asked), "{asked} looks of 100");
}

proptest! {
    #[test]
    fn any_counts_are_borne_and_one_pair_at_a_time_is_on_trial(
        looks in proptest::collection::vec((0u64..3 * SECOND, any::<u64>(), any::<Option<u64>>(), any::<(u8, u8, u64)>()), 1..60),
    ) {
        let mut pairing = Pairing::default();
        let mut now = Nanos(u64::MAX - SECOND);
        for (step, events, finished, (source, target, count)) in looks {
            now = now.after(step);
            let yielded = between(u32::from(source) % 6, u32::from(target) % 6, count);
            let waits = [Waits { events, finished }; 4];
            let asked = pairing.look(now, &[0, 1, 0, 1].map(HostCpu), &yielded, &waits);
            prop_assert!(asked.len() <= 2);
            prop_assert!(asked.iter().all(|pair| pair.mover.index() < 4 && pair.mover != pair.anchor));
        }
    }
}
