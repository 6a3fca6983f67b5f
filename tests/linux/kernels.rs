// SPDX-License-Identifier: Apache-2.0
//! Debian's kernels reach their init and complain about nothing.

use lab::packages::{Flavour, Series};
use libtest_mimic::{Completion, Failed, Trial};

use crate::guests::{self, Guest, LARGE_GUEST_LIMIT_S};
use crate::{Set, complaints, none_of, seen, trial};

/// Every kernel that is tried.
const KERNELS: [(Series, Flavour, Set); 4] = [
    (Series::V6_12, Flavour::Cloud, Set::Small),
    (Series::V6_1, Flavour::Cloud, Set::Full),
    (Series::V6_12, Flavour::Generic, Set::Full),
    (Series::V6_1, Flavour::Generic, Set::Full),
];

/// One vCPU; four on four nodes with more memory than fits below the gap.
const MACHINES: [(&str, &str); 2] = [("one", "--cpus 1"), ("four", "--cpus 4 --numa 4 --memory 5G")];

/// Thirty-two, on one node and on four.
const LARGE: [(&str, &str); 2] = [("flat", "--cpus 32 --memory 2G"), ("nodes", "--cpus 32 --numa 4 --memory 4G")];

pub(crate) fn trials() -> Vec<Trial> {
    let of = |what: &str, (series, flavour): (Series, Flavour), set, guests: fn((Series, Flavour)) -> [Guest; 2]| {
        let name = format!("linux_{}_{}_boots_{what}without_a_complaint", series.number(), flavour.suffix());
        trial(&name, set, move || boots(&guests((series, flavour))))
    };
    let small = KERNELS.into_iter().map(|(series, flavour, set)| of("", (series, flavour), set, small));
    let large = KERNELS.into_iter().map(|(series, flavour, _)| of("on_32_cpus_", (series, flavour), Set::Full, large));
    small.chain(large).collect()
}

fn guest(name: &str, kernel: (Series, Flavour), machine: &str) -> Guest {
    let script = include_str!("../../resources/guest/see-topology.sh").to_owned();
    Guest { script, ..Guest::new(name, kernel, machine) }
}

fn small(kernel: (Series, Flavour)) -> [Guest; 2] {
    MACHINES.map(|(name, machine)| guest(name, kernel, machine))
}

fn large(kernel: (Series, Flavour)) -> [Guest; 2] {
    LARGE.map(|(name, machine)| Guest { limit_s: LARGE_GUEST_LIMIT_S, ..guest(name, kernel, machine) })
}

fn boots(guests: &[Guest]) -> Result<Completion, Failed> {
    guests::check(guests, |runs| {
        for (name, run) in runs {
            run.ended_with(0)?;
            none_of(&format!("{name}: Linux complains"), &complaints::of(&run.console))?;
            none_of(&format!("{name}: Linux sees it otherwise"), &seen::differences(&run.console, &run.doctor))?;
        }
        Ok(())
    })
}
