// SPDX-License-Identifier: Apache-2.0
//! What Linux made of a machine, against what the topology doctor says that it makes of it.
//!
//! The doctor decodes the CPUID leaves and ACPI tables of the very machine; Linux says its part in sysfs and, with
//! `sched_verbose`, in its log (resources/guest/see-topology.sh). Every difference is listed.

use std::collections::BTreeMap;

use topology::cpu_set::CpuSet;
use topology::doctor::{CpuReport, NodeReport, Remark, Report};
use topology::id::VcpuIndex;

/// Of a node's memory Linux keeps at least this share for what it calls MemTotal; the rest is its image and page structs.
const MEMORY_SHARE_MIN: f64 = 0.5;

/// What the script wrote.
#[derive(Debug, Default)]
struct Seen<'a> {
    files: BTreeMap<&'a str, &'a str>,
    /// Span and level of each CPU's domains, lowest first.
    domains: BTreeMap<u32, Vec<(&'a str, &'a str)>>,
}

impl<'a> Seen<'a> {
    fn parse(console: &'a str) -> Self {
        let mut seen = Self::default();
        let mut cpu = 0;
        for line in console.lines().filter_map(|line| line.strip_prefix("seen ")) {
            if let Some((number, _)) = line.strip_prefix("CPU").and_then(|rest| rest.split_once(" attaching")) {
                cpu = number.parse().unwrap_or(u32::MAX);
                // Domains are built anew when memory comes late: the last ones count.
                seen.domains.insert(cpu, Vec::new());
            } else if let Some((_, domain)) = line.split_once(": span=").filter(|_| line.starts_with("domain-")) {
                let (span, level) = domain.split_once(" level=").unwrap_or((domain, ""));
                seen.domains.entry(cpu).or_default().push((span, level.trim()));
            } else if let Some((path, value)) = line.split_once('=') {
                seen.files.insert(path, value);
            }
        }
        seen
    }
}

/// Everything in which Linux differs from the doctor, in words; empty when they agree.
pub(crate) fn differences(console: &str, doctor: &Report) -> Vec<String> {
    let seen = Seen::parse(console);
    let mut found = Differences { seen: &seen, list: Vec::new() };
    let cpus: CpuSet<VcpuIndex> = doctor.cpus.iter().map(|cpu| cpu.cpu).collect();
    found.file("cpu/online", &cpus.to_string());
    for cpu in &doctor.cpus {
        found.cpu(cpu, doctor);
        found.caches(cpu);
        found.domains(cpu);
    }
    for node in &doctor.nodes {
        found.node(node);
    }
    found.list
}

struct Differences<'a> {
    seen: &'a Seen<'a>,
    list: Vec<String>,
}

impl Differences<'_> {
    fn file(&mut self, path: &str, wanted: &str) {
        match self.seen.files.get(path) {
            Some(value) if *value == wanted => {}
            value => self.list.push(format!("{path}: {value:?} instead of {wanted:?}")),
        }
    }

    fn cpu(&mut self, cpu: &CpuReport, doctor: &Report) {
        let at = cpu.position;
        let sharing = |same: &dyn Fn(&CpuReport) -> bool| -> String {
            doctor.cpus.iter().filter(|other| same(other)).map(|other| other.cpu).collect::<CpuSet<_>>().to_string()
        };
        let package = sharing(&|other| other.position.package == at.package);
        let die = sharing(&|other| (other.position.package, other.position.die) == (at.package, at.die));
        let core = sharing(&|other| topology::guest::Position { thread: at.thread, ..other.position } == at);
        // Linux calls those a cluster that share a level 2 cache; on AMD's processors it does not look.
        let unseen = doctor.remarks.iter().any(|remark| matches!(remark, Remark::ClustersUnseen));
        let l2 = cpu.caches.iter().find(|cache| cache.name == "L2").map(|cache| cache.shared_by.to_string());
        let l2 = if unseen { Some(core.clone()) } else { l2 };
        let path = |list| format!("cpu/cpu{}/topology/{list}_list", cpu.cpu);
        self.file(&path("package_cpus"), &package);
        self.file(&path("die_cpus"), &die);
        self.file(&path("core_cpus"), &core);
        if let Some(cluster) = l2 {
            self.file(&path("cluster_cpus"), &cluster);
        }
    }

    fn caches(&mut self, cpu: &CpuReport) {
        for cache in &cpu.caches {
            let found = (0..8).find_map(|index| {
                let place = format!("cpu/cpu{}/cache/index{index}", cpu.cpu);
                let level = self.seen.files.get(format!("{place}/level").as_str())?;
                let kind = match *self.seen.files.get(format!("{place}/type").as_str())? {
                    "Data" => "d",
                    "Instruction" => "i",
                    _ => "",
                };
                (format!("L{level}{kind}") == cache.name).then_some(place)
            });
            match found {
                Some(place) => self.file(&format!("{place}/shared_cpu_list"), &cache.shared_by.to_string()),
                None => self.list.push(format!("cpu {}: no {}", cpu.cpu, cache.name)),
            }
        }
    }

    fn domains(&mut self, cpu: &CpuReport) {
        let wanted: Vec<(String, String)> =
            cpu.domains.iter().map(|domain| (domain.span.to_string(), domain.level.to_string())).collect();
        // Linux 6.1 calls the package level by its old name.
        let name = |level: &str| if level == "DIE" { "PKG".to_owned() } else { level.to_owned() };
        let seen: Vec<(String, String)> = self.seen.domains.get(&cpu.cpu.0).map_or_else(Vec::new, |domains| {
            domains.iter().map(|(span, level)| ((*span).to_owned(), name(level))).collect()
        });
        if seen != wanted {
            self.list.push(format!("cpu {}: domains {seen:?} instead of {wanted:?}", cpu.cpu));
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "bytes of a guest are far below 2^53")]
    fn node(&mut self, node: &NodeReport) {
        let place = format!("node/node{}", node.node);
        self.file(&format!("{place}/cpulist"), &node.cpus.to_string());
        let distances: Vec<String> = node.distances.iter().map(ToString::to_string).collect();
        self.file(&format!("{place}/distance"), &distances.join(" "));
        let meminfo = self.seen.files.get(format!("{place}/meminfo").as_str());
        let kib = meminfo.and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
        let share = (kib << 10) as f64 / node.memory_bytes as f64;
        if !(MEMORY_SHARE_MIN..=1.0).contains(&share) {
            self.list.push(format!("{place}: {kib} KiB of {} bytes", node.memory_bytes));
        }
    }
}
