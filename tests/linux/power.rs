// SPDX-License-Identifier: Apache-2.0
//! The ways a Linux guest ends its machine, and the exit statuses that tell them apart.

use lab::packages::{Flavour, Series};
use libtest_mimic::{Completion, Failed, Trial};

use crate::guests::{self, Guest};
use crate::{Set, trial};

const KERNEL: (Series, Flavour) = (Series::V6_12, Flavour::Cloud);

pub(crate) fn trials() -> Vec<Trial> {
    vec![trial("a_guest_ends_in_every_way_with_its_own_status", Set::Full, ends)]
}

/// The script of a guest that loads modules first.
fn with_modules(script: &str) -> String {
    format!("{}\n{script}\n", include_str!("../../resources/guest/load.sh"))
}

fn ends() -> Result<Completion, Failed> {
    let guest = |name: &str, script: &str| Guest { script: script.to_owned(), ..Guest::new(name, KERNEL, "--cpus 1") };
    let panic = "echo c >/proc/sysrq-trigger; sleep 100";
    let guests = [
        guest("reboot", "reboot -f; sleep 100"),
        Guest { command_line: "reboot=t".to_owned(), ..guest("triple_fault", "reboot -f; sleep 100") },
        Guest { command_line: "panic=1".to_owned(), ..guest("panic_and_reboot", panic) },
        Guest {
            modules: vec!["pvpanic", "pvpanic-mmio"],
            command_line: "panic=5 crashkernel=64M".to_owned(),
            ..guest(
                "panic",
                &with_modules(&format!("load pvpanic pvpanic-mmio; grep 'Crash kernel' /proc/iomem; {panic}")),
            )
        },
        Guest {
            modules: vec!["button", "evdev"],
            // Who presses it waits until there is somebody to hear it.
            beside: "until grep -q 'guest: waits' power_button.console || ! kill -0 $guest; do sleep 1; done\n\
                     kill -TERM $guest"
                .to_owned(),
            ..guest(
                "power_button",
                &with_modules(
                    "load button evdev; until [ -e /dev/input/event0 ]; do sleep 1; done; echo guest: waits\n\
                     head -c 1 /dev/input/event0 >/dev/null && echo guest: the button was pressed",
                ),
            )
        },
    ];
    guests::check(&guests, |runs| {
        let wanted =
            [("reboot", 32), ("triple_fault", 33), ("panic_and_reboot", 32), ("panic", 34), ("power_button", 0)];
        for (name, status) in wanted {
            let ended = runs[name].ended_with(status);
            ended.map_err(|error| format!("{name}: {}", error.message().unwrap_or_default()))?;
        }
        if !runs["panic"].console.contains(": Crash kernel") {
            return Err(format!("no memory was kept for a crash kernel: {}", runs["panic"].console).into());
        }
        if runs["power_button"].console.contains("the button was pressed") {
            Ok(())
        } else {
            Err(format!("nobody heard the button: {}", runs["power_button"].told).into())
        }
    })
}
