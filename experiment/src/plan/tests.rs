// SPDX-License-Identifier: Apache-2.0
//! Plans that are taken, and plans that are refused with line and key.

use proptest::prelude::*;

use super::*;

const GOOD: &str = r#"name = "quick"
seed = 7
repetitions = 3
warm_up = 1
window_ms = 200
overcommit = [1, 1.5, 4]
workloads = ["ring", "long"]
arms = ["off", "act", "wide"]
baseline = "act"

[guests]
count = 1
memory_mib = 64

[[workload]]
name = "long"
probe = "ebizzy hold=1000"

[[arm]]
name = "wide"
pause = "act"
placement = "spread"
pause_set = ["bail_after=5"]
"#;

fn two() -> CpuSet<HostCpu> {
    "0-1".parse().unwrap()
}

fn fault(text: &str) -> PlanFault {
    Plan::parse(text, &two()).expect_err(text)
}

/// The good plan with one line replaced.
fn with(line: &str, other: &str) -> String {
    assert!(GOOD.contains(line), "{line}");
    GOOD.replacen(line, other, 1)
}

#[test]
fn a_plan_is_read() {
    let plan = Plan::parse(GOOD, &two()).unwrap();
    assert_eq!((plan.repetitions, plan.warm_up, plan.seed, plan.baseline), (3, 1, 7, 1));
    let guests: Vec<(u32, u32)> = plan.loads.iter().map(|load| (load.guests.count, load.guests.vcpus)).collect();
    assert_eq!(guests, [(1, 2), (1, 3), (1, 8)]);
    assert_eq!(plan.workloads[1].program, Program::Probe("ebizzy hold=1000".to_owned()));
    assert_eq!((plan.place, plan.is_linux()), (Place::Native, false));
    assert_eq!(plan.arms[0].settings.pause.as_deref(), Some("off"));
    assert_eq!(plan.arms[2].settings.placement.as_deref(), Some("spread"));
    assert_eq!((plan.arms[1].line, plan.arms[2].line), (8, 20));
    assert_eq!(plan.most_memory().0, 64 + MONITOR_MIB);
}

#[test]
fn the_number_of_guests_can_follow_from_the_ratio() {
    let plan = Plan::parse(&with("[1, 1.5, 4]", "[1, 4]").replace("count = 1", "vcpus = 2"), &two()).unwrap();
    assert_eq!(plan.loads[1].guests, GuestSet { count: 4, vcpus: 2, nodes: 1, memory_mib: 64 });
}

#[test]
fn guests_can_be_as_large_as_the_host() {
    let plan = Plan::parse(&with("[1, 1.5, 4]", "[1, 3]").replace("count = 1", "vcpus = \"host\""), &two()).unwrap();
    let guests: Vec<(u32, u32)> = plan.loads.iter().map(|load| (load.guests.count, load.guests.vcpus)).collect();
    assert_eq!(guests, [(1, 2), (3, 2)]);
}

/// A plan of Linux guests on an emulated host.
const LINUX: &str = r#"name = "linux"
repetitions = 1
window_ms = 2000
overcommit = [1, 2]
workloads = ["dbench", "map"]
arms = ["off"]
on = "lab"

[lab]
cpus = 1

[guests]
system = "linux"
count = 1

[[workload]]
name = "map"
linux = "ebizzy mmap=always"
"#;

#[test]
fn a_plan_of_linux_guests_in_the_lab_is_for_the_cpus_of_the_lab() {
    let plan = Plan::parse(LINUX, &two()).unwrap();
    assert_eq!((plan.place, plan.is_linux()), (Place::Lab { cpus: 1, memory_mib: 3072, counted_time: false }, true));
    let programs: Vec<&Program> = plan.workloads.iter().map(|workload| &workload.program).collect();
    assert_eq!(programs, [&Program::Linux("dbench".to_owned()), &Program::Linux("ebizzy mmap=always".to_owned())]);
    assert_eq!((plan.cpus.to_string(), plan.time_limit_s), ("0".to_owned(), 184));
    assert_eq!(plan.loads[1].guests, GuestSet { count: 1, vcpus: 2, nodes: 1, memory_mib: 256 });
}

#[test]
fn what_does_not_fit_a_linux_guest_or_a_lab_is_named_with_line_and_key() {
    for (line, other, at, key, part) in [
        ("2000", "2500", 3, "window_ms", "2500 ms is not whole seconds"),
        ("\"dbench\"", "\"ring\"", 5, "workloads", "there is no workload `ring`; known are ebizzy, dbench"),
        ("\"lab\"", "\"lba\"", 7, "on", "there is no place `lba`, did you mean `lab`?"),
        ("\"lab\"", "\"native\"", 9, "lab", "describes an emulated host"),
        ("cpus = 1", "cpus = 9", 10, "cpus", "9 is outside 1 to 8"),
        ("cpus = 1", "cpu = 1", 10, "cpu", "did you mean `cpus`?"),
        ("cpus = 1", "cpus = 2\ncounted_time = true", 11, "counted_time", "one CPU"),
        ("\"linux\"\ncount", "\"linxu\"\ncount", 13, "system", "there is no system `linxu`, did you mean `linux`?"),
        ("count = 1", "vcpus = \"hots\"", 14, "vcpus", "there is no size of guests `hots`, did you mean `host`?"),
        ("count = 1", "vcpus = 0", 14, "vcpus", "0 is outside 1 to 4096"),
        ("count = 1", "vcpus = 1.5", 14, "vcpus", "give a whole number, or \"host\""),
        ("linux = \"ebizzy", "probe = \"ebizzy", 18, "linux", "under `linux`, and no others"),
        ("linux = \"ebizzy mmap=always\"", "", 17, "linux", "under `linux`, and no others"),
    ] {
        assert!(LINUX.contains(line), "{line}");
        let fault = fault(&LINUX.replacen(line, other, 1));
        assert_eq!((fault.line, fault.key.as_str()), (at, key), "{other}: {fault}");
        assert!(fault.to_string().contains(part), "{other}: {fault}");
    }
}

#[test]
fn what_is_wrong_is_named_with_line_and_key() {
    for (line, other, at, key, part) in [
        ("repetitions = 3", "repetitions = 0", 3, "repetitions", "0 is outside 1 to 1000"),
        ("repetitions = 3", "repetitions = -1", 3, "repetitions", "-1"),
        ("repetitions = 3", "repetitons = 3", 3, "repetitons", "did you mean `repetitions`?"),
        ("window_ms = 200", "window_ms = 5", 5, "window_ms", "outside 10 to 300000"),
        ("window_ms = 200", "window_ms = 20000\ntime_limit_s = 20", 6, "time_limit_s", "20 is outside 21 to 3600"),
        ("[1, 1.5, 4]", "[1, 1.25]", 6, "overcommit", "1.25x of 2 host CPUs is no whole number"),
        ("[1, 1.5, 4]", "[0]", 6, "overcommit", "0 is outside 0.1 to 64"),
        ("[1, 1.5, 4]", "[nan]", 6, "overcommit", "outside"),
        ("[1, 1.5, 4]", "[1.3333]", 6, "overcommit", "three decimals"),
        ("[1, 1.5, 4]", "[]", 6, "overcommit", "is empty"),
        ("[1, 1.5, 4]", "[1, 1.0]", 6, "overcommit", "`1x` is named twice"),
        ("\"ring\", \"long\"", "\"rnig\"", 7, "workloads", "did you mean `ring`?"),
        ("\"ring\", \"long\"", "\"ring\", \"ring\"", 7, "workloads", "`ring` is named twice"),
        ("\"off\", \"act\"", "\"off\", \"atc\"", 8, "arms", "there is no arm `atc`, did you mean `act`?"),
        ("baseline = \"act\"", "baseline = \"park\"", 9, "baseline", "known are off, act, wide"),
        ("count = 1", "count = 1\nvcpus = 2", 13, "guests", "not both"),
        ("count = 1", "", 11, "guests", "not neither"),
        ("count = 1", "count = 0", 12, "count", "0 is outside 1 to 256"),
        ("count = 1", "count = 1\nnodes = 3", 6, "overcommit", "fewer than its 3 nodes"),
        ("count = 1", "count = 1\ncpus = \"0-7\"", 13, "cpus", "0-7 is not within 0-1"),
        ("count = 1", "count = 1\ncpus = \"\"", 13, "cpus", "is empty"),
        ("count = 1", "count = 1\ncpus = \"x\"", 13, "cpus", "neither a number nor a range"),
        ("name = \"wide\"", "name = \"a/b\"", 20, "name", "`a/b` is no name"),
        ("placement = ", "placment = ", 22, "placment", "did you mean `placement`?"),
        ("name = \"quick\"", "name = \"../x\"", 1, "name", "is no name"),
    ] {
        let fault = fault(&with(line, other));
        assert_eq!((fault.line, fault.key.as_str()), (at, key), "{other}: {fault}");
        assert!(fault.to_string().contains(part), "{other}: {fault}");
    }
}

#[test]
fn a_close_look_needs_what_the_plan_has_and_an_arm_that_decides() {
    let with_look = |workload: &str, ratio: &str, arm: &str| {
        let text = format!("{GOOD}[look]\nworkload = \"{workload}\"\novercommit = {ratio}\narm = \"{arm}\"\n");
        Plan::parse(&text, &two()).map(|plan| plan.look)
    };
    assert_eq!(with_look("long", "1.5", "act"), Ok(Some(Look { workload: 1, load: 1, arm: 1 })));
    for (workload, ratio, arm, part) in [
        ("lung", "4", "act", "line 25: workload: there is no workload `lung`, did you mean `long`?"),
        ("long", "2", "act", "line 26: overcommit: there is no ratio `2`"),
        ("long", "4", "off", "line 27: arm: arm `off` does not ask the policy"),
    ] {
        let fault = with_look(workload, ratio, arm).expect_err(part).to_string();
        assert!(fault.contains(part), "{fault}");
    }
}

#[test]
fn a_file_that_is_no_plan_is_named() {
    let read = |path: &str| Plan::read(Path::new(path), &two()).expect_err(path).to_string();
    assert!(read("/absent/plan.toml").contains("/absent/plan.toml: cannot be read"));
    assert!(read("/dev/zero").contains("longer than"));
}

proptest! {
    #[test]
    fn any_text_is_a_plan_or_a_fault_within_it(text in "\\PC*", cut in 0..GOOD.len()) {
        for text in [text.as_str(), GOOD.get(..cut).unwrap_or("")] {
            if let Err(fault) = Plan::parse(text, &two()) {
                prop_assert!(fault.line >= 1 && fault.line <= text.lines().count() + 1);
            }
        }
    }
}
