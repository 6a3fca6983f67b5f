// SPDX-License-Identifier: Apache-2.0
//! Whatever a guest does to the registers of the whole machine, nothing panics and no byte is lost or doubled.
//!
//! Generated sequences of accesses, input and output moods run against all devices on one bus; a model that knows only
//! the data sheet's routing says which bytes must come out. The corpus holds sequences worth keeping, in the text form
//! that a failure prints; to keep a failure, put it in a file there and name the file below.

#![expect(clippy::unwrap_used, reason = "an integration test: a failed unwrap is a failed test")]

mod machine;
mod step;

use proptest::prelude::*;

use machine::Machine;
use step::Step;

/// Runs `steps` on a fresh machine, checks after each, and at the end.
fn run(steps: &[Step]) {
    let mut machine = Machine::new();
    for step in steps {
        machine.apply(step);
        machine.check();
    }
    machine.finish();
}

proptest! {
    // The corpus is where a failure is kept, readably; seeds of a generator that changes would not reproduce it.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_panics_loses_or_doubles_a_byte(steps in prop::collection::vec(step::any_step(), 1..60)) {
        let text: Vec<String> = steps.iter().map(Step::to_string).collect();
        let outcome = std::panic::catch_unwind(|| run(&steps));
        prop_assert!(outcome.is_ok(), "as corpus:\n{}", text.join("\n"));
    }

    #[test]
    fn a_step_reads_back_from_its_text(step in step::any_step()) {
        prop_assert_eq!(step.to_string().parse::<Step>().unwrap(), step);
    }
}

macro_rules! corpus {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                let text = include_str!(concat!("corpus/", stringify!($name), ".txt"));
                let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
                let steps: Vec<Step> = lines.map(|line| line.parse().unwrap()).collect();
                run(&steps);
            }
        )*
    };
}

corpus! {
    linux_console
    linux_start_up_probe
    wide_access_spills_over
    string_into_divisor_latch
    loopback_between_input
    reader_goes_away
    slow_reader_back_pressure
    edges_of_the_port_space
}
