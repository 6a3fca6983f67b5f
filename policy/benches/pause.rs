// SPDX-License-Identifier: Apache-2.0
//! What one decision costs, at 32 and at 1024 vCPUs: with the owner named, by a scan, and when it bails out.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use policy::pause::{
    HostView, Locality, OutcomeEvent, PauseConfig, PauseEvent, PauseState, VcpuState, VcpuView, YieldOutcome, decide,
};
use policy::time::Nanos;
use topology::id::{HostCpu, HostNode, VcpuIndex};

const CPUS: u32 = 64;

fn host(vcpus: u32, runqueue: u32) -> HostView {
    let places = (0..CPUS).map(|cpu| Some(Locality { cluster: cpu / 4, llc: cpu / 16, node: HostNode(cpu / 32) }));
    let mut view = HostView::new(vcpus as usize, places.collect(), CPUS);
    for at in 0..vcpus {
        let seen = VcpuView {
            state: VcpuState::Queued,
            cpu: Some(HostCpu(at % CPUS)),
            runqueue: Some(runqueue),
            waiting_since: Some(Nanos(u64::from(at * 7919 % 1000))),
            ..VcpuView::default()
        };
        view.set(VcpuIndex(at), seen);
    }
    view
}

fn bench(c: &mut Criterion, name: &str, vcpus: u32, runqueue: u32, named: bool) {
    let view = host(vcpus, runqueue);
    let config = PauseConfig::default();
    let mut state = PauseState::new(vcpus as usize);
    let mut turn = 0_u32;
    c.bench_function(&format!("pause/{name}/{vcpus}"), |b| {
        b.iter(|| {
            turn = turn.wrapping_add(1);
            let source = VcpuIndex(turn % vcpus);
            let event = PauseEvent {
                source,
                owner: named.then_some(VcpuIndex((turn + 1) % vcpus)),
                interrupted: None,
                progress: Some(1),
                named_since_entry: false,
                // Every event is looked at: the back-off would make most of them free.
                descheduled: true,
            };
            let now = Nanos(u64::from(turn) * 80_000);
            let decision = decide(black_box(&event), &view, &mut state, &config, now);
            let outcome = YieldOutcome::Boosted;
            let ended = OutcomeEvent { source, target: decision.target(), outcome, parked: false, donated_ns: 1 };
            state.outcome(&ended, &config, now);
            decision
        });
    });
}

fn pause(c: &mut Criterion) {
    for vcpus in [32, 1024] {
        bench(c, "named", vcpus, 4, true);
        bench(c, "scan", vcpus, 4, false);
        bench(c, "bail", vcpus, 1, false);
    }
}

criterion_group!(benches, pause);
criterion_main!(benches);
