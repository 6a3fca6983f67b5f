// SPDX-License-Identifier: Apache-2.0
//! Linux and hwloc see the machine that was asked for: CPUs, caches, nodes, distances, scheduler domains.

use lab::packages::{Flavour, Series};
use libtest_mimic::{Completion, Failed, Trial};

use crate::guests::{self, Guest, LARGE_GUEST_LIMIT_S};
use crate::{Set, complaints, hwloc, none_of, seen, trial};

const KERNEL: (Series, Flavour) = (Series::V6_12, Flavour::Cloud);

/// A name, and the arguments of a machine.
type Machine = (&'static str, &'static str);

/// One start of the lab each: a name, and the machines in it.
const GROUPS: [(&str, Set, &[Machine]); 4] = [
    (
        "threads_clusters_and_nodes_are_seen_as_asked",
        Set::Full,
        &[("threads", "--cpus 4,sockets=2,threads=2 --numa 2"), ("three_cores", "--cpus 6,clusters=2,cores=3")],
    ),
    (
        "cores_clusters_and_dies_are_seen_as_asked",
        Set::Full,
        &[
            ("flat", "--cpus 4"),
            ("clusters_of_2", "--cpus 8,clusters=4,cores=2"),
            ("clusters_of_4", "--cpus 8,clusters=2,cores=4"),
            ("two_dies", "--cpus 8,dies=2,cores=2,threads=2"),
        ],
    ),
    (
        "distances_and_nodes_without_cpus_are_seen_as_asked",
        Set::Full,
        &[
            (
                "asymmetric",
                "--cpus 8 --numa 4 --memory 2G --numa-distance 0:1=15 --numa-distance 1:0=17 --numa-distance 0:2=20 \
                 --numa-distance 0:3=25 --numa-distance 1:2=20 --numa-distance 1:3=25 --numa-distance 2:3=31",
            ),
            (
                "no_cpus",
                "--cpus 4 --numa cpus=[0-1],memory=512M --numa cpus=[2-3],memory=512M --numa cpus=[],memory=1G",
            ),
            ("above_the_gap", "--cpus 2 --numa cpus=[0],memory=3G --numa cpus=[1],memory=3G"),
        ],
    ),
    (
        "thirty_two_cpus_are_seen_as_asked",
        Set::Full,
        &[("many", "--cpus 32,sockets=4,clusters=2,cores=2,threads=2 --numa 4 --memory 4G")],
    ),
];

pub(crate) fn trials() -> Vec<Trial> {
    GROUPS.into_iter().map(|(name, set, machines)| trial(name, set, move || are_seen(machines))).collect()
}

fn are_seen(machines: &[Machine]) -> Result<Completion, Failed> {
    let guest = |&(name, machine): &Machine| Guest {
        script: concat!(
            include_str!("../../resources/guest/see-topology.sh"),
            include_str!("../../resources/guest/see-hwloc.sh")
        )
        .to_owned(),
        programs: vec![("hwloc-nox", "/usr/bin/lstopo-no-graphics")],
        limit_s: LARGE_GUEST_LIMIT_S,
        ..Guest::new(name, KERNEL, machine)
    };
    let guests: Vec<Guest> = machines.iter().map(guest).collect();
    guests::check(&guests, |runs| {
        let mut problems = Vec::new();
        for (name, run) in runs {
            run.ended_with(0)?;
            let complaints = complaints::of(&run.console);
            problems.extend(complaints.into_iter().map(|line| format!("{name}: {line}")));
            let differences = seen::differences(&run.console, &run.doctor);
            let by_hwloc = hwloc::differences(&run.console, &run.doctor);
            problems.extend(differences.into_iter().chain(by_hwloc).map(|line| format!("{name}: {line}")));
        }
        none_of("Linux complains, or sees another machine", &problems)
    })
}
