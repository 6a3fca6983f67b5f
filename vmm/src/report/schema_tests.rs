// SPDX-License-Identifier: Apache-2.0
//! The types and `docs/report.schema.json` say the same: what one has the other has, and what is optional in one is
//! optional in the other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use policy::placement::Rule;
use serde_json::Value;
use topology::cpu_set::CpuSet;
use topology::id::{HostCpu, HostNode};

use super::*;
use crate::pause::effective::{Effective, Grant};

const SCHEMA_TEXT: &str = include_str!("../../../docs/report.schema.json");

fn schema() -> Value {
    serde_json::from_str(SCHEMA_TEXT).expect("the schema is JSON")
}

/// A report with every key.
fn full() -> Report {
    let exits = BTreeMap::from([("io".to_owned(), 12), ("halt".to_owned(), 3)]);
    let placed = VcpuPlacementReport { cpus: CpuSet::first(1), rule: Rule::House };
    let counted = BTreeMap::from([
        ("exits".to_owned(), CounterValue::One(7)),
        ("halt_wait_hist".to_owned(), CounterValue::Buckets(vec![0, 7])),
    ]);
    let counter = KvmCounter {
        name: "exits".to_owned(),
        scope: "vcpu".to_owned(),
        kind: "cumulative".to_owned(),
        unit: "count".to_owned(),
    };
    Report {
        schema: SCHEMA,
        exit: ExitStatus::PoweredOff.into(),
        host: Host { kvm: KvmKind::Software, kernel: "6.12.0".to_owned(), cpus: 2 },
        guest: Guest {
            cpus: 4,
            nodes: 2,
            memory_bytes: 512 << 20,
            seen: Some(Seen { cpus: 4, nodes: 2 }),
            pages: Some(GuestPagesReport {
                asked: Some(crate::config::HugePages::Thp),
                page_bytes: 4096,
                resident_bytes: 9 << 20,
                huge_bytes: 8 << 20,
            }),
        },
        start: Start { first_instruction_us: Some(1800), last_ap_us: Some(9000) },
        monitor: Monitor { pss_bytes: 2 << 20 },
        vcpus: vec![VcpuReport {
            index: 0,
            apic_id: 0,
            tid: 4711,
            exits,
            run_loop_ns: 9,
            ledger_ns: LedgerReport::default(),
            kvm_stats: counted.clone(),
            placement: Some(placed),
            pause: PauseReport::default(),
        }],
        placement: PlacementReport {
            asked: "auto".into(),
            claimed: Some(CpuSet::first(2)),
            other_threads: Some(CpuSet::first(1)),
            notes: vec!["CPUs 0-1 are shared with other VMs (processes 7)".into()],
            memory: vec![NodeMemoryReport {
                node: 0,
                policy: "bind".into(),
                host_nodes: CpuSet::first(1),
                asked_pages: 9,
                found_pages: BTreeMap::from([(HostNode(0), 4)]),
            }],
            core_scheduling: Some(Grant::no("core-scheduling", "this kernel has none", Some("use another kernel"))),
            live: Some(LivePlacementReport {
                moves: BTreeMap::from([(Rule::House, 1)]),
                last: vec![MoveReport {
                    at_ms: 100,
                    vcpu: 0,
                    from: Some(HostCpu(1)),
                    to: HostCpu(0),
                    swap_with: Some(1),
                    rule: Rule::House,
                    score: 0,
                    runner_up: Some(HostCpu(2)),
                }],
                runqueues: vec![Grant::no("schedstat", "none", Some("another kernel"))],
                pairs: PairsReport { tried: 2, helped: 1, undone: 1 },
                migrations: vec![MigrationReport {
                    at_ms: 200,
                    node: 0,
                    from: HostNode(0),
                    to: HostNode(1),
                    took_us: 30,
                    asked_pages: 9,
                    found_pages: BTreeMap::from([(HostNode(1), 4)]),
                }],
                ..LivePlacementReport::default()
            }),
        },
        kvm_stats: KvmStats { counters: vec![counter], vm: counted, missing: Some("an old kernel".to_owned()) },
        pause: Effective {
            mode: "act".to_owned(),
            source: "auto".to_owned(),
            mechanism: "auto".to_owned(),
            sources: vec![Grant::no("tracepoint", "no tracefs", Some("mount it"))],
            unseen: Some("vCPU 0: too many open files".to_owned()),
            mechanisms: vec![Grant::no("hypercall", "no VMX", Some("use another host"))],
            views: vec![Grant::no("bpf", "no BTF", Some("use another kernel"))],
            parameters: BTreeMap::new(),
        },
        offers: vec![Grant::no("pv.pv-ipi", "KVM has none", Some("use a newer kernel"))],
        devices: Some(DevicesReport {
            dropped_bytes: 3,
            interrupts_failed: 1,
            crash_loaded: 1,
            unsupported_sleeps: 2,
            unclaimed: vec![Unclaimed { space: Space::Port, address: Some(0x61), reads: 20, writes: 1 }],
        }),
        workload: Some(Workload {
            name: "spin".into(),
            seconds: 3.0,
            operations: 9,
            operations_per_s: 3.0,
            yields_per_handover: Some(1.0),
            port_writes: 9,
            spin_seconds: Some(0.1),
            wait_p50_ns: Some(1),
            wait_p99_ns: Some(2),
            wait_p999_ns: Some(3),
            jain: Some(1.0),
        }),
    }
}

/// A report with only the keys that every run has.
fn least() -> Report {
    let mut report = full();
    report.guest.seen = None;
    report.guest.pages = None;
    report.kvm_stats.missing = None;
    report.pause.unseen = None;
    report.start = Start::default();
    report.workload = None;
    report.devices = None;
    report.placement.live = None;
    report.placement.core_scheduling = None;
    (report.placement.claimed, report.placement.other_threads, report.vcpus[0].placement) = (None, None, None);
    let grants = [&mut report.pause.sources, &mut report.pause.mechanisms, &mut report.pause.views, &mut report.offers];
    grants.into_iter().flatten().for_each(|grant| grant.remedy = None);
    report
}

/// Objects whose keys are names that come from elsewhere.
const FREE: [&str; 7] = [".exits", ".bailed", ".parameters", ".found_pages", ".moves", "[].kvm_stats", ".kvm_stats.vm"];

/// Every path of an object key in a document; list items are `[]`, and the keys of [`FREE`] objects are left out.
fn paths(value: &Value, at: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) if !FREE.iter().any(|free| at.ends_with(free)) => map.iter().for_each(|(key, inside)| {
            let path = format!("{at}.{key}");
            paths(inside, &path, found);
            found.insert(path);
        }),
        Value::Array(items) => items.iter().for_each(|item| paths(item, &format!("{at}[]"), found)),
        _ => {}
    }
}

/// The same paths as a schema declares them: all, or only the required ones whose parents are required too.
fn declared(schema: &Value, at: &str, only_required: bool, found: &mut BTreeSet<String>) {
    if let Some(items) = schema.get("items") {
        declared(items, &format!("{at}[]"), only_required, found);
    }
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    for (key, inside) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        if only_required && !required.contains(&key.as_str()) {
            continue;
        }
        let path = format!("{at}.{key}");
        declared(inside, &path, only_required, found);
        found.insert(path);
    }
}

fn keys_of(report: &Report) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    paths(&serde_json::to_value(report).expect("a report is JSON"), "", &mut found);
    found
}

fn keys_declared(only_required: bool) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    declared(&schema(), "", only_required, &mut found);
    found
}

#[test]
fn the_schema_accepts_what_is_written() {
    let validator = jsonschema::validator_for(&schema()).expect("the schema is a schema");
    for report in [full(), least()] {
        let document = serde_json::to_value(&report).expect("a report is JSON");
        let complaints: Vec<String> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
        assert_eq!(complaints, Vec::<String>::new());
    }
}

#[test]
fn the_schema_refuses_what_is_never_written() {
    let validator = jsonschema::validator_for(&schema()).expect("the schema is a schema");
    let good = serde_json::to_value(full()).expect("a report is JSON");
    for (pointer, wrong) in [
        ("/schema", Value::from(2)),
        ("/exit/status", Value::from(7)),
        ("/host/kvm", Value::from("tcg")),
        ("/guest/cpus", Value::from(0)),
        ("/vcpus/0/tid", Value::from("4711")),
        ("/vcpus/0/exits/io", Value::from(-1)),
        ("/vcpus/0/ledger_ns/guest", Value::from(-1)),
        ("/vcpus/0/kvm_stats/exits", Value::from("7")),
        ("/kvm_stats/counters/0/kind", Value::from("odd")),
    ] {
        let mut document = good.clone();
        *document.pointer_mut(pointer).expect("the sample has the key") = wrong;
        assert!(!validator.is_valid(&document), "{pointer}");
    }
}

#[test]
fn every_key_is_declared_and_every_declared_key_exists() {
    assert_eq!(keys_of(&full()), keys_declared(false));
}

#[test]
fn required_keys_are_the_ones_every_run_has() {
    assert_eq!(keys_of(&least()), keys_declared(true));
}

#[test]
fn every_status_is_in_the_schema() {
    let codes: Vec<Value> = ExitStatus::ALL.iter().map(|status| Value::from(status.code())).collect();
    assert_eq!(schema()["properties"]["exit"]["properties"]["status"]["enum"], Value::from(codes));
}

#[test]
fn a_report_reads_back_as_it_was_written() {
    for report in [full(), least()] {
        let text = serde_json::to_string(&report).expect("a report is JSON");
        assert_eq!(serde_json::from_str::<Report>(&text).expect("it reads back"), report);
    }
}

/// A directory of its own for a test, removed when it goes out of scope.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("vmm-report-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary directory");
        Self(path)
    }

    fn entries(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(&self.0)
            .expect("the directory is there")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_check_leaves_nothing_behind_and_a_write_leaves_one_file() {
    let scratch = Scratch::new("write");
    let path = scratch.0.join("run.json");
    let target = ReportTarget::check(&path).expect("the directory is writable");
    assert_eq!(scratch.entries(), Vec::<String>::new());
    target.write(&full()).expect("it can be written");
    assert_eq!(scratch.entries(), ["run.json"]);
    let text = fs::read_to_string(&path).expect("the report is there");
    assert_eq!(serde_json::from_str::<Report>(&text).expect("it is a report"), full());
}

#[test]
fn an_older_report_is_replaced_through_its_symbolic_link() {
    let scratch = Scratch::new("link");
    let (real, link) = (scratch.0.join("real.json"), scratch.0.join("link.json"));
    fs::write(&real, "old").expect("a file");
    std::os::unix::fs::symlink(&real, &link).expect("a link");
    ReportTarget::check(&link).expect("writable").write(&least()).expect("it can be written");
    assert!(fs::symlink_metadata(&link).expect("the link is there").is_symlink());
    assert!(fs::read_to_string(&real).expect("the file is there").contains("\"schema\": 1"));
}

#[test]
fn a_link_that_leads_nowhere_says_where_the_report_is_to_be() {
    let scratch = Scratch::new("dangling");
    std::os::unix::fs::symlink("real.json", scratch.0.join("link.json")).expect("a link");
    let target = ReportTarget::check(&scratch.0.join("link.json")).expect("writable");
    assert_eq!(scratch.entries(), ["link.json"]);
    target.write(&least()).expect("it can be written");
    assert_eq!(scratch.entries(), ["link.json", "real.json"]);
    assert!(fs::symlink_metadata(scratch.0.join("link.json")).expect("it is there").is_symlink());
}

#[test]
fn what_a_killed_run_left_does_not_stop_the_next() {
    let scratch = Scratch::new("left");
    fs::write(scratch.0.join(format!(".run.json.{}-0", std::process::id())), "half").expect("a file");
    let target = ReportTarget::check(&scratch.0.join("run.json")).expect("writable");
    target.write(&full()).expect("it can be written");
    assert!(scratch.entries().contains(&"run.json".to_owned()));
}

#[test]
fn a_pipe_without_a_reader_is_an_error_and_one_with_a_slow_reader_gets_all() {
    let scratch = Scratch::new("pipe");
    let path = scratch.0.join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo runs");
    assert!(made.success());
    let target = ReportTarget::check(&path).expect("a pipe takes data");
    let error = target.write(&full()).expect_err("nobody reads").to_string();
    assert!(error.contains("No such device or address"), "{error}");
    // More than a pipe holds, so that the writer has to wait.
    let mut long = full();
    long.vcpus = vec![long.vcpus[0].clone(); 1000];
    let reading = std::thread::spawn({
        let path = path.clone();
        move || fs::read_to_string(path).expect("text")
    });
    while target.write(&long).is_err() {
        std::thread::yield_now();
    }
    let text = reading.join().expect("it has read");
    assert_eq!(serde_json::from_str::<Report>(&text).expect("it is a report"), long);
}

#[test]
fn paths_that_cannot_hold_a_report_are_refused_before_boot() {
    let scratch = Scratch::new("refuse");
    assert!(matches!(ReportTarget::check(&scratch.0), Err(ReportError::IsDirectory { .. })));
    for name in ["absent/", "absent/."] {
        assert!(matches!(ReportTarget::check(&scratch.0.join(name)), Err(ReportError::IsDirectory { .. })), "{name}");
    }
    std::os::unix::fs::symlink("loop", scratch.0.join("loop")).expect("a link");
    assert!(matches!(ReportTarget::check(&scratch.0.join("loop")), Err(ReportError::Directory { .. })));
    let nowhere = scratch.0.join("absent/run.json");
    let error = ReportTarget::check(&nowhere).expect_err("no such directory");
    assert!(matches!(error, ReportError::Directory { .. }));
    let text = error.to_string();
    assert!(text.contains("absent/run.json") && text.contains("No such file") && text.contains("--report"), "{text}");
    assert!(matches!(ReportTarget::check(std::path::Path::new("")), Err(ReportError::Directory { .. })));
}

#[test]
fn a_device_is_written_in_place() {
    let target = ReportTarget::check(std::path::Path::new("/dev/null")).expect("it takes data");
    target.write(&full()).expect("it takes data");
    assert!(!fs::metadata("/dev/null").expect("it is still there").is_file());
}
