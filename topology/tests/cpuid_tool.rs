// SPDX-License-Identifier: Apache-2.0
//! An independent judge of the CPUID leaves: the tool `cpuid`, which knows nothing of this crate, reads the leaves of
//! every vCPU and must report the topology that was asked for, on an Intel and on an AMD host.
//!
//! What is expected is worked out from the position of a CPU alone, not from the code that makes APIC ids. Without
//! `cpuid` (Debian: cpuid) each trial is reported as ignored.

#![expect(clippy::disallowed_methods, reason = "this test feeds leaves to a tool; only the library is pure")]

use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;

use libtest_mimic::{Arguments, Failed, Trial};
use topology::cache::{CacheScope, CacheSpec};
use topology::cpuid::{self, CpuidEntry, Vendor, parse_dump, specialise, write_dump};
use topology::guest::{GuestTopology, Position, Shape, ShapeRequest, TopologyError, TopologyRequest};
use topology::id::VcpuIndex;

/// An Intel host before and one since leaf 0x1F (this one a guest itself), and an AMD host.
const HOSTS: [(&str, &str); 3] = [
    ("intel", include_str!("hosts/intel.txt")),
    ("intel-1f", include_str!("hosts/intel_1f.txt")),
    ("amd", include_str!("hosts/amd.txt")),
];

/// Name, CPUs, nodes, and sockets, dies, clusters, cores, threads where they are asked for (0: derived).
const MACHINES: [(&str, u32, u32, [u32; 5]); 9] = [
    ("one-cpu", 1, 1, [0; 5]),
    ("32-cpus-4-nodes", 32, 4, [0; 5]),
    ("7-cpus-2-nodes", 7, 2, [0; 5]),
    ("three-cores-a-cluster", 12, 1, [0, 0, 4, 0, 0]),
    ("smt", 16, 2, [2, 0, 0, 0, 2]),
    ("three-dies", 36, 3, [1, 3, 0, 0, 2]),
    ("dies-and-clusters", 48, 4, [2, 2, 2, 3, 2]),
    ("255-cpus", 255, 1, [0; 5]),
    ("300-cpus-x2apic", 300, 2, [0; 5]),
];

fn main() {
    let arguments = Arguments::from_args();
    let missing = Command::new("cpuid").arg("-v").output().is_err();
    let mut trials = Vec::new();
    for (host, dump) in HOSTS {
        for (name, cpus, nodes, counts) in MACHINES {
            let reason = if missing { " (no cpuid: install Debian's cpuid)" } else { "" };
            let trial = move || judge(dump, &machine(cpus, nodes, counts)?);
            trials.push(Trial::test(format!("{host}-{name}{reason}"), trial).with_ignored_flag(missing));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn machine(cpus: u32, nodes: u32, counts: [u32; 5]) -> Result<GuestTopology, TopologyError> {
    let [sockets, dies, clusters, cores, threads] = counts.map(|count| (count > 0).then_some(count));
    let shape = ShapeRequest { sockets, dies, clusters, cores, threads };
    GuestTopology::new(&TopologyRequest { shape, ..TopologyRequest::even(cpus, nodes, 4 << 30)? })
}

/// Every vCPU of one machine, as the tool reads it.
fn judge(dump: &str, machine: &GuestTopology) -> Result<(), Failed> {
    let host: Vec<CpuidEntry> = parse_dump(dump)?.into_iter().flatten().collect();
    let machine = machine.clone().with_caches(cpuid::host_caches(&host))?;
    let leaves: Vec<Vec<CpuidEntry>> = machine.vcpus().map(|cpu| specialise(&host, &machine, cpu)).collect();
    let report = run_tool(&write_dump(&leaves))?;
    // CPUID.00H:EAX, the highest leaf of the host.
    let has_1f = host.iter().any(|leaf| leaf.function == 0 && leaf.eax >= 0x1F);
    // A block opens with `CPU n:` at the margin.
    let blocks: Vec<&str> = report.split("\nCPU ").collect();
    same("CPUs reported", &[machine.vcpu_count().to_string()], &[blocks.len().to_string()])?;
    for (cpu, block) in machine.vcpus().zip(blocks) {
        let seen = match Vendor::of(&host) {
            Vendor::Intel => check_intel(&machine, cpu, block, has_1f),
            Vendor::Amd => check_amd(&machine, cpu, block),
        };
        seen.map_err(|fault| format!("CPU {cpu}: {}", fault.message().unwrap_or_default()))?;
    }
    Ok(())
}

fn run_tool(leaves: &str) -> Result<String, Failed> {
    let mut tool = Command::new("cpuid").args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut input = tool.stdin.take().ok_or("the tool has no standard input")?;
    let leaves = leaves.to_owned();
    // The tool answers while it reads: one thread to feed it, one to listen.
    let feeder = thread::spawn(move || input.write_all(leaves.as_bytes()));
    let output = tool.wait_with_output()?;
    feeder.join().map_err(|_| "feeding the tool failed")??;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Values behind `key =` in the order of the report, the decimal one of `0x7 (7)`.
fn values(block: &str, key: &str) -> Vec<String> {
    let line = |line: &str| {
        let (name, value) = line.split_once('=')?;
        let value = value.trim();
        let value = value.split_once('(').map_or(value, |(_, decimal)| decimal.trim_end_matches(')'));
        (name.trim() == key).then(|| value.to_owned())
    };
    block.lines().filter_map(line).collect()
}

fn same(what: &str, want: &[String], seen: &[String]) -> Result<(), Failed> {
    if want == seen { Ok(()) } else { Err(format!("{what}: asked for {want:?}, the tool reports {seen:?}").into()) }
}

fn bits(count: u32) -> u32 {
    count.next_power_of_two().trailing_zeros()
}

/// Core number in the package, with the holes that counts leave which are not powers of two.
fn core_in_package(shape: &Shape, at: Position) -> u32 {
    (((at.die << bits(shape.clusters)) | at.cluster) << bits(shape.cores)) | at.core
}

fn x2apic_id(shape: &Shape, at: Position) -> u32 {
    let core_bits = bits(shape.dies) + bits(shape.clusters) + bits(shape.cores);
    (((at.package << core_bits) | core_in_package(shape, at)) << bits(shape.threads)) | at.thread
}

/// Ids that share a cache, less one: what both vendors' leaves state.
fn other_sharers(machine: &GuestTopology, cache: &CacheSpec) -> u32 {
    let shape = machine.shape();
    let core = bits(shape.threads);
    let cluster = core + bits(shape.cores);
    let sharing = match machine.cache_scope(cache) {
        CacheScope::Core => core,
        CacheScope::Cluster => cluster,
        CacheScope::Die => cluster + bits(shape.clusters),
    };
    (1 << sharing) - 1
}

/// What the tool puts together from several leaves.
///
/// Where it does: version 20230120 takes the 8-bit id of leaf 1, and with threads it takes the shift of leaf 0xB's core
/// level for the width of the core number, on physical CPUs too; modules and dies it does not know. Its arithmetic for AMD fails for many counts, 36 among
/// them, so there only fields are compared.
fn check_synthesis(machine: &GuestTopology, cpu: VcpuIndex, block: &str) -> Result<(), Failed> {
    let (shape, at) = (machine.shape(), machine.position(cpu));
    let plain = shape.threads == 1 && shape.clusters == 1 && shape.dies == 1;
    if !plain || shape.package_cpus() == 1 || x2apic_id(shape, at) > 255 {
        return Ok(());
    }
    let core = core_in_package(shape, at);
    let want = format!("PKG_ID={} CORE_ID={core} SMT_ID={}", at.package, at.thread);
    let seen = block.lines().find_map(|line| line.trim().strip_prefix("(APIC synth): ")).unwrap_or_default();
    same("position", &[want], &[seen.to_owned()])
}

fn check_intel(machine: &GuestTopology, cpu: VcpuIndex, block: &str, host_has_1f: bool) -> Result<(), Failed> {
    let (shape, at) = (machine.shape(), machine.position(cpu));
    check_synthesis(machine, cpu, block)?;
    let id = x2apic_id(shape, at).to_string();
    same("id in leaf 0xB", std::slice::from_ref(&id), &values(block, "extended APIC ID"))?;
    let (smt, core) = (bits(shape.threads), bits(shape.threads) + bits(shape.cores));
    let (die, package) = (core + bits(shape.clusters), core + bits(shape.clusters) + bits(shape.dies));
    let mut levels = vec![("1", smt), ("2", package), ("0", 0)];
    let has_1f = host_has_1f || shape.clusters > 1 || shape.dies > 1;
    if has_1f {
        same("id in leaf 0x1F", &[id], &values(block, "x2APIC ID of logical processor"))?;
        levels.extend([("1", smt), ("2", core)]);
        levels.extend((shape.clusters > 1).then_some(("3", die)));
        levels.extend((shape.dies > 1).then_some(("5", package)));
        levels.push(("0", 0));
    }
    let (kinds, widths): (Vec<_>, Vec<_>) =
        levels.into_iter().map(|(kind, width)| (kind.to_owned(), width.to_string())).unzip();
    same("level types", &kinds, &values(block, "level type"))?;
    same("level widths", &widths, &values(block, "bit width of level"))?;
    // Of leaf 0x1F the tool gives the logical processors of the core level as cores, on physical CPUs too.
    let cores = if has_1f { shape.cluster_cpus() } else { shape.package_cpus() / shape.threads };
    let threads = shape.threads;
    let multi = match (cores, threads) {
        (1, 1) => "none".to_owned(),
        (_, 1) => format!("multi-core (c={cores})"),
        _ => format!("multi-core (c={cores}), hyper-threaded (t={threads})"),
    };
    let seen = block.lines().find_map(|line| line.trim().strip_prefix("(multi-processing synth) = ")).unwrap_or("none");
    same("cores and threads", &[multi], &[seen.to_owned()])?;
    let want: Vec<String> = machine.caches().iter().map(|cache| other_sharers(machine, cache).to_string()).collect();
    same("sharers of the caches", &want, &values(block, "maximum IDs for CPUs sharing cache"))?;
    check_cache_sizes(machine, &values(block, "(size synth)"))
}

fn check_amd(machine: &GuestTopology, cpu: VcpuIndex, block: &str) -> Result<(), Failed> {
    let (shape, at) = (machine.shape(), machine.position(cpu));
    let id = x2apic_id(shape, at).to_string();
    // Leaf 0xB, then leaf 0x8000001E.
    same("ids", &[id.clone(), id], &values(block, "extended APIC ID"))?;
    let package = bits(shape.dies) + bits(shape.clusters) + bits(shape.cores) + bits(shape.threads);
    let widths = [bits(shape.threads), package, 0].map(|width| width.to_string());
    same("level widths", &widths, &values(block, "bit width of level"))?;
    same("bits of the package", &[package.to_string()], &values(block, "ApicIdCoreIdSize"))?;
    let core = core_in_package(shape, at) & 0xFF;
    same("core", &[core.to_string()], &values(block, "core ID"))?;
    same("threads", &[shape.threads.to_string()], &values(block, "threads per core"))?;
    let node = (at.package << bits(shape.dies)) | at.die;
    same("node", &[node.to_string()], &values(block, "node ID"))?;
    // The field can say 1, 2, 4 or 8: dies in between leave a gap behind the last node id.
    same("nodes", &[(1u32 << bits(shape.dies)).to_string()], &values(block, "nodes per processor"))?;
    let threads = shape.package_cpus().min(256);
    same("threads of the package", &[threads.to_string()], &values(block, "number of threads"))?;
    let mut want: Vec<String> =
        machine.caches().iter().map(|cache| other_sharers(machine, cache).to_string()).collect();
    // The subleaf that ends the list.
    want.push("0".to_owned());
    same("sharers of the caches", &want, &values(block, "extra cores sharing this cache"))?;
    let mut sizes = values(block, "(synth size)");
    sizes.pop();
    check_cache_sizes(machine, &sizes)
}

/// The tool prints bytes and, in brackets, the same in KB or MB.
fn check_cache_sizes(machine: &GuestTopology, seen: &[String]) -> Result<(), Failed> {
    let text = |cache: &CacheSpec| match cache.size_bytes {
        bytes if bytes.is_multiple_of(1 << 20) && bytes > 1 << 20 => format!("{} MB", bytes >> 20),
        bytes => format!("{} KB", bytes >> 10),
    };
    let want: Vec<String> = machine.caches().iter().map(text).collect();
    same("sizes of the caches", &want, seen)
}
