// SPDX-License-Identifier: Apache-2.0
//! Scenario files: what is read, and how what is wrong is named.

use super::*;

const GOOD: &str = r#"title = "a ring"
duration = "10ms"

[host]
cores = 2

[[vm]]
name = "a"
vcpus = 2
locks = { l = "ring" }
steps = [{ lock = "l" }, { work = "=1us", memory = 50 }]

[[arm]]
name = "none"

[[arm]]
name = "act"
source = "port"
action = "policy"
pause = { bail_after = 4 }
"#;

#[test]
fn a_scenario_runs_and_the_same_seed_brings_the_same() {
    let scenario = Scenario::parse(GOOD).unwrap();
    let host = scenario.host(None).unwrap();
    let report = scenario.run(&host, 1, 2).unwrap();
    assert_eq!(report, scenario.run(&host, 1, 2).unwrap());
    assert!(report.rows.iter().all(|row| row.cells[0].measure.mean > 0.0));
    assert!(report.table().contains("a ring"));
    let marked = Report { title: "<b> & co".into(), ..report };
    let chart = marked.chart();
    let page = crate::page::html(&marked.title, &chart, &marked.table());
    assert!(
        page.starts_with("<!DOCTYPE html>") && page.contains("<h1>&lt;b&gt; &amp; co</h1>") && !page.contains("<b>")
    );
    assert!(chart.contains("&lt;b&gt; &amp; co") && chart.contains(">act<") && chart.ends_with("</svg>\n"));
}

#[test]
fn every_wrong_key_unit_and_range_is_named_with_its_line() {
    for (from, to, line, says) in [
        ("cores = 2", "core = 2", 5, "unknown field `core`"),
        ("cores = 2", "cores = 0", 5, "0 is outside 1 to 256"),
        ("cores = 2", "", 1, "`cores`, or `fixture`"),
        ("\"10ms\"", "\"10m\"", 2, "`10m` is no duration"),
        ("\"10ms\"", "10", 2, "a duration with its unit"),
        ("\"10ms\"", "\"0ms\"", 1, "zero"),
        ("vcpus = 2", "vcpus = -1", 9, "-1 is outside 1 to 4096"),
        ("vcpus = 2", "vcpus = 2\ncpus = \"3-1\"", 10, "3-1"),
        ("\"ring\"", "\"round\"", 10, "unknown variant `round`"),
        ("lock = \"l\"", "lock = \"m\"", 11, "no lock `m`; `locks` has: `l`"),
        ("{ lock = \"l\" }", "{ lock = \"l\", work = \"1us\" }", 11, "exactly one of"),
        ("=1us", "=1", 11, "`1` is no duration"),
        ("memory = 50", "memory = 101", 11, "101 is outside 0 to 100"),
        ("memory = 50", "memry = 50", 11, "unknown field `memry`"),
        ("bail_after = 4", "bail_after = 65", 16, "bail_after is 65, outside 1 to 64"),
        ("bail_after", "bail_aftr", 20, "unknown field `bail_aftr`"),
        ("source = \"port\"", "", 16, "acts but sees nothing"),
        ("[[arm]]\nname = \"none\"", "[[arm]]\nnam = \"none\"", 14, "unknown field `nam`"),
        ("title = \"a ring\"", "title = ", 1, ""),
    ] {
        assert!(GOOD.contains(from), "{from}");
        match Scenario::parse(&GOOD.replace(from, to)) {
            Err(ScenarioError::File { line: at, message }) => {
                assert!(message.contains(says), "{to}: {message}");
                assert_eq!(at, line, "{to}: {message}");
            }
            other => unreachable!("{to}: {other:?}"),
        }
    }
}

#[test]
fn settings_change_what_they_name_and_nothing_else() {
    let with = |key: &str, value: &str| Scenario::parse_with(GOOD, &[(key.into(), value.into())]);
    assert_eq!(with("duration", "1s").unwrap().duration_ns, 1_000_000_000);
    assert_eq!(with("vm.0.vcpus", "7").unwrap().vms[0].vcpus, 7);
    assert_eq!(with("host.cores", "3").unwrap().host(None).unwrap().cpus(), 3);
    for (key, value, says) in [
        ("duration", "1", "a duration with its unit"),
        ("vm.1.vcpus", "7", "no `1` on the way"),
        ("vm.0.cpu", "7", "unknown field `cpu`"),
        ("arm.1.pause.bail_after", "65", "outside 1 to 64"),
    ] {
        let text = with(key, value).unwrap_err().to_string();
        assert!(text.contains(says) && text.contains(key), "{text} should say {says}");
    }
}

#[test]
fn a_captured_host_must_be_handed_in() {
    let scenario = Scenario::parse(&GOOD.replace("cores = 2", "fixture = \"vm-2\"")).unwrap();
    assert!(matches!(scenario.host(None), Err(ScenarioError::Fixture { .. })));
}

const CASES: &str = r#"
[[case]]
name = "two"
set = { "vm.0.vcpus" = 2 }
printed = { act = 12.5 }
recomputed = { act = 14.0 }

[[case]]
name = "three"
set = { "vm.0.vcpus" = 3, "host.cores" = 1 }
"#;

#[test]
fn a_case_is_the_file_with_some_keys_changed_and_stands_beside_what_was_told() {
    let text = format!("{GOOD}{CASES}");
    let cases = Scenario::cases(&text, &[("duration".into(), "\"5ms\"".into())]).unwrap();
    let shape = |case: &Case| (case.scenario.vms[0].vcpus, case.scenario.host(None).unwrap().cpus());
    assert_eq!(cases.iter().map(shape).collect::<Vec<_>>(), [(2, 2), (3, 1)]);
    assert!(cases.iter().all(|case| case.scenario.duration_ns == 5_000_000));
    let report = |case: Case| {
        let report = case.scenario.run(&case.scenario.host(None).unwrap(), 1, 2).unwrap();
        CaseReport { name: case.name, told: case.told, report }
    };
    let all = CasesReport { title: "t".into(), cases: cases.into_iter().map(report).collect() };
    let table = all.table();
    let act = table.lines().find(|line| line.contains(" act ")).unwrap();
    assert!(act.contains("+12.5 %") && act.contains("+14.0 %") && act.contains('±'), "{table}");
    let chart = all.chart();
    assert!(chart.matches("<svg").count() == 3 && chart.contains(">t: three<"), "{chart}");
    assert_eq!(Scenario::cases(GOOD, &[]).unwrap()[0].name, "");
}

#[test]
fn a_wrong_case_is_named_with_its_line() {
    for (from, to, line, says) in [
        ("\"vm.0.vcpus\" = 2", "\"vm.0.vcpu\" = 2", 22, "case `two`: unknown field `vcpu`"),
        ("\"vm.0.vcpus\" = 2", "\"vm.7.vcpus\" = 2", 22, "no `7` on the way"),
        ("\"vm.0.vcpus\" = 2", "\"vm.0.vcpus\" = 0", 22, "0 is outside 1 to 4096"),
        ("act = 12.5", "fast = 12.5", 22, "no arm `fast`"),
        ("printed", "print", 25, "unknown field `print`"),
    ] {
        let text = format!("{GOOD}{CASES}");
        assert!(text.contains(from), "{from}");
        match Scenario::cases(&text.replace(from, to), &[]) {
            Err(ScenarioError::File { line: at, message }) => {
                assert!(message.contains(says), "{to}: {message}");
                assert_eq!(at, line, "{to}: {message}");
            }
            other => unreachable!("{to}: {other:?}"),
        }
    }
}
