// SPDX-License-Identifier: Apache-2.0
//! The decision tables of every host in `resources/hosts`, as files a person can read: start placement of 1, 8, 32 and
//! 128 vCPUs on 1, 2 and 4 guest nodes, and the picture of one of them.
//!
//! Regenerate after a deliberate change, and read the difference:
//! `INSTA_UPDATE=always cargo test -p policy --test placement_golden`

#![expect(clippy::unwrap_used, reason = "helpers of tests are no tests to the lint")]

#[path = "support/placement.rs"]
mod support;

use std::fmt::Write as _;

use policy::placement::{Guest, Wishes, picture, plan, table};
use topology::guest::{GuestTopology, ShapeRequest, TopologyRequest};
use topology::host::HostTopology;

use support::{GIB, fixture};

/// A guest as `--cpus N --numa M` makes it, in clusters of 4 where the CPUs come out even, 256 MiB a vCPU.
fn guest(vcpus: u32, nodes: u32) -> Guest {
    let mut request = TopologyRequest::even(vcpus, nodes, u64::from(vcpus) * GIB / 4).unwrap();
    let clusters = vcpus / nodes / 4;
    if clusters > 1 && vcpus.is_multiple_of(4 * nodes) {
        request.shape = ShapeRequest { clusters: Some(clusters), ..ShapeRequest::default() };
    }
    Guest::new(&GuestTopology::new(&request).unwrap())
}

fn tables(host: &HostTopology) -> String {
    let mut text = format!("preference among CPUs: {}\n", host.rank_source());
    for degradation in host.degradations() {
        let _ = writeln!(text, "degraded: {degradation}");
    }
    for vcpus in [1, 8, 32, 128] {
        for nodes in [1, 2, 4].into_iter().filter(|nodes| *nodes <= vcpus) {
            let guest = guest(vcpus, nodes);
            let plan = plan(host, &guest, &Wishes::default()).unwrap();
            let _ = writeln!(text, "\n--cpus {vcpus} --numa {nodes}\n{}", table(host, &guest, &plan).trim_end());
        }
    }
    let plan = plan(host, &guest(8, 2), &Wishes::default()).unwrap();
    let places: Vec<_> = plan.places.iter().map(|place| (place.decision.vcpu, place.decision.to)).collect();
    let scene = picture::Scene { places: &places, claims: &[] };
    let _ = writeln!(text, "\npicture of --cpus 8 --numa 2\n{}", picture::text(host, &scene).trim_end());
    text
}

macro_rules! golden {
    ($name:ident, $file:literal) => {
        #[test]
        fn $name() {
            let host = fixture(include_str!(concat!("../../resources/hosts/", $file)));
            insta::assert_snapshot!(stringify!($name), tables(&host));
        }
    };
}

golden!(server_2s_128, "server-2s-128.txt");
golden!(numa_4, "numa-4.txt");
golden!(numa_16, "numa-16.txt");
golden!(laptop_hybrid, "laptop-hybrid.txt");
golden!(clusters_128, "clusters-128.txt");
golden!(holes, "holes.txt");
golden!(vm_2, "vm-2.txt");
