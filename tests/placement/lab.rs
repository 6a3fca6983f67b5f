// SPDX-License-Identifier: Apache-2.0
//! Placement on hosts of other shapes: emulated ones, on which everything is read from the kernel, before and after
//! something disturbs it. What came out: docs/placement.md.
//!
//! Part of the whole matrix (`VMM_LAB=full`); hosts of several CPUs need `VMM_LAB_SEVERAL_CPUS=1` as well. A lab host that
//! stops is the emulator's fault: it is said, and started again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use lab::shape::Distance;
use lab::{Lab, LabResult};
use libtest_mimic::{Completion, Failed, Trial};
use serde_json::Value;
use topology::cpu_set::CpuSet;
use topology::id::HostCpu;

/// The same steps on every host. `note NAME PID` writes what the kernel says of each thread of a process and of its memory;
/// `until TEXT CONDITION` waits for at most a minute of the lab host's clock, and says if that was in vain.
const STEPS: &str = include_str!("lab_steps.sh");
/// Starts of a lab host that stops.
const STARTS: u32 = 3;
/// Several emulated processors share one real one (docs/lab.md).
const DEADLINE: Duration = Duration::from_secs(1200);

struct Host {
    name: &'static str,
    shape: &'static str,
    nodes: Option<u32>,
    distances: &'static [Distance],
    /// Arguments that shape the guest.
    guest: &'static str,
}

const HOSTS: [Host; 4] = [
    Host {
        name: "two_sockets_of_two_cores_of_two_threads",
        shape: "2x2x2",
        nodes: None,
        distances: &[],
        guest: "--cpus 2 --memory 64M",
    },
    Host {
        name: "four_nodes_of_two_at_uneven_distances",
        shape: "4x2x1",
        nodes: Some(4),
        distances: &[(0, 1, 12), (0, 2, 20), (0, 3, 32), (1, 2, 20), (1, 3, 32), (2, 3, 12)],
        guest: "--cpus 2 --numa cpus=[0],memory=32M,host-node=3 --numa cpus=[1],memory=32M",
    },
    Host { name: "eight_under_one_cache", shape: "8", nodes: None, distances: &[], guest: "--cpus 2 --memory 64M" },
    Host { name: "one_cpu", shape: "1", nodes: None, distances: &[], guest: "--cpus 2 --memory 64M" },
];

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |host: &'static Host| {
        Trial::ignorable_test(format!("threads_and_memory_are_where_the_plan_says_on_{}", host.name), move || {
            match missing(host) {
                Some(reason) => Ok(Completion::ignored_with(reason)),
                None => examine(host),
            }
        })
    };
    HOSTS.iter().map(trial).collect()
}

fn missing(host: &Host) -> Option<String> {
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|set| set == value);
    if !is("VMM_LAB", "full") {
        return Some("part of the whole matrix; run with VMM_LAB=full".to_owned());
    }
    if host.shape != "1" && !is("VMM_LAB_SEVERAL_CPUS", "1") {
        return Some("several emulated CPUs run with VMM_LAB_SEVERAL_CPUS=1".to_owned());
    }
    lab_of(host).available().err().map(|error| error.to_string())
}

fn lab_of(host: &Host) -> Lab<'static> {
    let lab =
        Lab::new().host(host.shape).program_at(crate::monitor::program(), "/bin/vmm").deadline(DEADLINE).starts(STARTS);
    match host.nodes {
        Some(nodes) => lab.numa(nodes).distances(host.distances),
        None => lab,
    }
}

/// What the kernel said of one process at one moment.
#[derive(Debug, Default)]
struct Note {
    /// For each thread by name, CPUs it may use and the CPU it was on last.
    threads: BTreeMap<String, (CpuSet<HostCpu>, u32)>,
    /// Pages by memory policy and node, as `bind:3 N3`.
    memory: BTreeSet<String>,
}

impl Note {
    fn read(text: &str) -> Self {
        let mut note = Self::default();
        for words in text.lines().map(|line| line.split(' ').collect::<Vec<_>>()) {
            match words[..] {
                ["thread", name, allowed, last] => {
                    note.threads.insert(name.to_owned(), (allowed.parse().unwrap(), last.parse().unwrap()));
                }
                ["memory", policy, node] => drop(note.memory.insert(format!("{policy} {node}"))),
                _ => {}
            }
        }
        note
    }

    /// CPUs that a thread may use and the CPU it was on last; none if it was not there.
    fn thread(&self, name: &str) -> (CpuSet<HostCpu>, u32) {
        self.threads.get(name).cloned().unwrap_or_default()
    }

    fn vcpu(&self, index: u32) -> CpuSet<HostCpu> {
        self.thread(&format!("vcpu{index}")).0
    }
}

/// Collects what is not as it should be, so that one run of the lab says everything.
#[derive(Default)]
struct Findings(String);

impl Findings {
    fn expect(&mut self, holds: bool, what: &str, found: &dyn std::fmt::Debug) {
        if !holds {
            let _ = writeln!(self.0, "{what}: {found:?}");
        }
    }
}

fn examine(host: &Host) -> Result<Completion, Failed> {
    let result = match lab_of(host).run(&STEPS.replace("@GUEST@", host.guest)) {
        Ok(result) => result,
        Err(error) => match error.no_verdict() {
            Some(reason) => return Ok(Completion::ignored_with(reason)),
            None => return Err(error.to_string().into()),
        },
    };
    let text = |name: &str| String::from_utf8_lossy(result.files.get(name).map_or(&[][..], Vec::as_slice)).into_owned();
    keep(host.name, &result);
    let note = |name: &str| Note::read(&text(name));
    let mut findings = Findings::default();
    findings.expect(text("timeouts").is_empty(), "waited in vain", &text("timeouts"));
    findings.expect(result.status == 0, "status", &result.status);
    let plan: Value = serde_json::from_str(&text("plan.json")).map_err(|error| format!("plan: {error}"))?;
    as_planned(&mut findings, &plan, &note("placed"));
    on_their_cpus(&mut findings, &note("started"));
    if host.nodes.is_some() {
        let memory = note("started").memory;
        findings.expect(memory.contains("bind:3 N3"), "memory of node 0 is on host node 3", &memory);
        let home = plan["homes"][1]["host"].as_u64().unwrap_or(99);
        let wanted = format!("prefer:{home} N{home}");
        // Kernels since 6.1 may call it `prefer (many)`; the node is what counts.
        findings.expect(
            memory.iter().all(|line| *line == "bind:3 N3" || line.ends_with(&format!("N{home}"))),
            &wanted,
            &memory,
        );
    }
    if host.shape != "1" {
        disturbed(&mut findings, text("offline.vcpu").trim().parse().unwrap_or(1), note);
        runqueues(&mut findings, &text("alone.report"));
        let refused = text("pin.offline");
        findings.expect(refused.contains("offline or absent"), "pinned to a CPU that is offline", &refused);
    }
    for turn in 1..=4 {
        let [first, second] = ["first", "second"].map(|name| note(&format!("{name}.{turn}")));
        side_by_side(&mut findings, host, &first, &second, &text("second.told"));
    }
    huge_pages(&mut findings, &text);
    cores(&mut findings, &text);
    if findings.0.is_empty() {
        Ok(Completion::Completed)
    } else {
        Err(format!("{}\n{}", findings.0, result.console).into())
    }
}

/// Where the plan said, when the guest starts.
fn as_planned(findings: &mut Findings, plan: &Value, found: &Note) {
    for index in 0..2u32 {
        let allowed = found.vcpu(index);
        let planned = plan["places"][index as usize]["affinity"].as_str().unwrap_or_default();
        findings.expect(allowed.to_string() == planned, "CPUs as planned", &(index, planned, &allowed));
    }
}

/// Under load: by then one may have been moved away from something that disturbed it.
fn on_their_cpus(findings: &mut Findings, found: &Note) {
    for index in 0..2u32 {
        let (allowed, last) = found.thread(&format!("vcpu{index}"));
        findings.expect(allowed.contains(HostCpu(last)), "runs on its CPUs", &(index, last, &allowed));
    }
    let vcpus = found.vcpu(0).union(&found.vcpu(1));
    let (main, _) = found.thread("vmm");
    let alone = main.intersection(&vcpus).is_empty();
    findings.expect(alone || vcpus.to_string() == "0", "the main thread keeps off", &(&main, &vcpus));
}

/// After each disturbance every vCPU has a CPU of its own that is not the disturbed one, while there are enough. `victim` is
/// the vCPU whose CPU goes offline.
fn disturbed(findings: &mut Findings, victim: u32, note: impl Fn(&str) -> Note) {
    let alone = |one: &Note| one.vcpu(0).len() == 1 && one.vcpu(1).len() == 1 && one.vcpu(0) != one.vcpu(1);
    let (mut before, busy, offline) = (note("started"), note("busy"), note("offline"));
    findings.expect(alone(&before), "a CPU for each", &before);
    findings.expect(busy.vcpu(0) != before.vcpu(0) && alone(&busy), "vCPU 0 leaves a busy CPU", &(&before, &busy));
    before = note("online");
    findings.expect(
        offline.vcpu(victim) != before.vcpu(victim) && alone(&offline),
        "a vCPU leaves a CPU that is offline",
        &(victim, &before, &offline),
    );
    let (shrunk, grown) = (note("shrunk"), note("grown"));
    let both = shrunk.vcpu(0) == shrunk.vcpu(1) && shrunk.vcpu(0).len() == 1;
    findings.expect(both, "both vCPUs on the CPU that is left", &shrunk);
    findings.expect(alone(&grown), "a CPU for each again", &grown);
}

/// Root on a kernel that has it all sees the runqueue of every CPU.
fn runqueues(findings: &mut Findings, report: &str) {
    let report: Value = serde_json::from_str(report).unwrap_or_default();
    let ways = &report["placement"]["live"]["runqueues"];
    let granted = ["bpf", "schedstat"].iter().zip(ways.as_array().into_iter().flatten());
    let granted = granted.filter(|(name, way)| way["name"] == **name && way["granted"] == true).count();
    let every_cpu = ways[0]["why"].as_str().is_some_and(|why| why.contains("on 8 CPUs"));
    findings.expect(granted == 2 && every_cpu, "runqueues of all CPUs are seen", ways);
}

fn side_by_side(findings: &mut Findings, host: &Host, first: &Note, second: &Note, told: &str) {
    let all = |one: &Note| one.vcpu(0).union(&one.vcpu(1));
    let shared = all(first).intersection(&all(second));
    findings.expect(!all(first).is_empty() && !all(second).is_empty(), "both run", &(first, second));
    if host.shape == "1" {
        findings.expect(told.contains("are shared with other VMs"), "sharing is said", &told);
    } else {
        findings.expect(shared.is_empty(), "two monitors on the CPUs", &(first, second));
    }
}

/// What is not in the pool is said with numbers; what is there is used, on the node that has it.
fn huge_pages(findings: &mut Findings, text: &impl Fn(&str) -> String) {
    let empty = text("pool.empty");
    findings.expect(empty.contains("32 pages are needed and 0 of the 0"), "an empty pool", &empty);
    let report: Value = serde_json::from_str(&text("pool.report")).unwrap_or_default();
    let pages = &report["guest"]["pages"];
    let huge = (pages["page_bytes"].as_u64(), pages["huge_bytes"].as_u64());
    findings.expect(huge == (Some(2 << 20), Some(64 << 20)), "64M in huge pages", &(pages, text("pool.told")));
    let elsewhere = text("pool.elsewhere");
    let said = elsewhere.contains("needs 32 huge pages of 2M bound to the host nodes 0, where 0 are free");
    findings.expect(elsewhere.is_empty() || said, "a node without huge pages", &elsewhere);
}

/// Granted at most where cores have siblings, and otherwise said, with the reason. Debian's cloud kernel has none of it.
fn cores(findings: &mut Findings, text: &impl Fn(&str) -> String) {
    let report: Value = serde_json::from_str(&text("cores.report")).unwrap_or_default();
    let grant = &report["placement"]["core_scheduling"];
    let granted = grant["granted"].as_bool();
    let (siblings, told) = (text("smt").trim() == "1", text("cores.told"));
    let said = told.contains("--core-scheduling is not granted: ");
    let right = (granted == Some(true) && siblings && !said) || (granted == Some(false) && said);
    findings.expect(right, "core scheduling", &(grant, told));
}

/// With `VMM_LAB_KEEP=DIRECTORY` everything that came back is left there, for a look by hand.
fn keep(name: &str, result: &LabResult) {
    let Some(directory) = std::env::var_os("VMM_LAB_KEEP") else { return };
    for (file, bytes) in &result.files {
        // Only a convenience: a directory that cannot be written changes no result.
        let _ = std::fs::write(std::path::Path::new(&directory).join(format!("{name}.{file}")), bytes);
    }
}
