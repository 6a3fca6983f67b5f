// SPDX-License-Identifier: Apache-2.0
//! Debian's kernels reach their init and complain about nothing.

use lab::packages::{Flavour, Series};
use libtest_mimic::{Completion, Failed, Trial};

use crate::guests::{self, Guest};
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

pub(crate) fn trials() -> Vec<Trial> {
    KERNELS
        .into_iter()
        .map(|(series, flavour, set)| {
            let name = format!("linux_{}_{}_boots_without_a_complaint", series.number(), flavour.suffix());
            trial(&name, set, move || boots((series, flavour)))
        })
        .collect()
}

fn boots(kernel: (Series, Flavour)) -> Result<Completion, Failed> {
    let guests = MACHINES.map(|(name, machine)| Guest {
        script: include_str!("../../resources/guest/see-topology.sh").to_owned(),
        ..Guest::new(name, kernel, machine)
    });
    guests::check(&guests, |runs| {
        for (name, run) in runs {
            run.ended_with(0)?;
            none_of(&format!("{name}: Linux complains"), &complaints::of(&run.console))?;
            none_of(&format!("{name}: Linux sees it otherwise"), &seen::differences(&run.console, &run.doctor))?;
        }
        Ok(())
    })
}
