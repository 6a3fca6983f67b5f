// SPDX-License-Identifier: Apache-2.0
//! An independent judge of the ACPI tables: `iasl` of ACPICA disassembles every one and compiles it again.
//!
//! Invariant: no warning, remark or error in either direction, and the compiler gives the very bytes back, so it found
//! every field where we meant it. Without `iasl` (Debian: acpica-tools) each trial is reported as ignored.

#![expect(clippy::disallowed_methods, reason = "this test feeds files to a tool; only the library is pure")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use libtest_mimic::{Arguments, Failed, Trial};
use topology::acpi::{self, AcpiTable, IoApic, Platform, PortDevice, PowerPorts};
use topology::cpu_set::CpuSet;
use topology::guest::{GuestTopology, NodeRequest, ShapeRequest, TopologyError, TopologyRequest};
use topology::id::NodeId;
use topology::memory_map::{AddressSpace, MemoryMap};

const GIB: u64 = 1 << 30;
const SPACE: AddressSpace = AddressSpace { gap_start: 3 * GIB, gap_end: 4 * GIB, width_bits: 46 };

type Machine = (&'static str, fn() -> Result<TopologyRequest, TopologyError>);

/// The machines that are put before the judge.
const MACHINES: [Machine; 9] = [
    ("one-cpu", || even(1, 1)),
    ("32-cpus-4-nodes", || even(32, 4)),
    ("7-cpus-2-nodes", || even(7, 2)),
    ("255-cpus", || even(255, 1)),
    ("300-cpus-x2apic", || even(300, 2)),
    ("64-nodes", || even(64, 64)),
    ("node-without-cpus", || {
        let mut request = even(4, 2)?;
        request.nodes.push(NodeRequest { cpus: CpuSet::new(), memory_bytes: 2 * GIB });
        Ok(request)
    }),
    ("asymmetric-distances", || {
        let pair = |from: u32, to: u32| (NodeId(from), NodeId(to), 11 + u8::try_from(from * 50 + to).unwrap_or(0));
        let nodes = || 0..4;
        let distances = nodes().flat_map(|from| nodes().filter(move |to| *to != from).map(move |to| pair(from, to)));
        Ok(TopologyRequest { distances: distances.collect(), ..even(8, 4)? })
    }),
    ("two-dies-clusters-of-three-cores-smt", || {
        let [sockets, dies, clusters, cores, threads] = [2, 2, 2, 3, 2].map(Some);
        Ok(TopologyRequest { shape: ShapeRequest { sockets, dies, clusters, cores, threads }, ..even(48, 1)? })
    }),
];

fn main() {
    let arguments = Arguments::from_args();
    let missing = Command::new("iasl").arg("-v").output().is_err();
    let title = |name: &str| {
        if missing { format!("{name} (no iasl: install Debian's acpica-tools)") } else { name.to_owned() }
    };
    let machines = MACHINES.into_iter().map(|(name, request)| {
        Trial::test(title(name), move || judge(name, &request()?, |_| {})).with_ignored_flag(missing)
    });
    let refused = Trial::test(title("a-broken-table-is-refused"), the_judge_is_awake).with_ignored_flag(missing);
    libtest_mimic::run(&arguments, machines.chain([refused]).collect()).exit();
}

fn even(cpus: u32, nodes: u32) -> Result<TopologyRequest, TopologyError> {
    TopologyRequest::even(cpus, nodes, u64::from(nodes) * GIB)
}

/// A judge that passes everything would pass this: a MADT whose first entry is a byte too short.
fn the_judge_is_awake() -> Result<(), Failed> {
    let shorten = |table: &mut AcpiTable| {
        if &table.signature == b"APIC" {
            table.bytes[45] -= 1;
            table.bytes[9] = table.bytes[9].wrapping_add(1);
        }
    };
    match judge("broken", &even(2, 1)?, shorten) {
        Ok(()) => Err("iasl passed a MADT that is broken".into()),
        Err(_) => Ok(()),
    }
}

/// Every table of one machine, through the disassembler and back.
fn judge(name: &str, request: &TopologyRequest, tamper: fn(&mut AcpiTable)) -> Result<(), Failed> {
    let topology = GuestTopology::new(request)?;
    let map = MemoryMap::new(&topology, &SPACE)?;
    let mut tables = acpi::build(&topology, &map, &platform())?;
    tables.tables.iter_mut().for_each(tamper);
    let directory = std::env::temp_dir().join(format!("vmm-iasl-{}-{name}", std::process::id()));
    fs::create_dir_all(&directory)?;
    let verdict = tables.tables.iter().try_for_each(|table| round_trip(&directory, table));
    fs::remove_dir_all(&directory)?;
    verdict
}

fn round_trip(directory: &Path, table: &AcpiTable) -> Result<(), Failed> {
    let stem = String::from_utf8_lossy(&table.signature).into_owned();
    fs::write(directory.join(format!("{stem}.dat")), &table.bytes)?;
    clean(&stem, &iasl(directory, &["-d", "-p", &stem, &format!("{stem}.dat")])?)?;
    // What the disassembler does not understand it says in a comment of its output.
    let source = fs::read_to_string(directory.join(format!("{stem}.dsl")))?;
    if let Some(line) = source.lines().find(|line| line.contains("/****") || line.starts_with("Invalid")) {
        return Err(format!("{stem}: disassembled with `{line}`").into());
    }
    let compiled = format!("{stem}-again");
    let output = iasl(directory, &["-we", "-p", &compiled, &format!("{stem}.dsl")])?;
    clean(&stem, &output)?;
    if !String::from_utf8_lossy(&output.stdout).contains("0 Errors, 0 Warnings, 0 Remarks") {
        return Err(format!("{stem}: not counted as clean:\n{}", said(&output)).into());
    }
    let again = fs::read(directory.join(format!("{compiled}.aml")))?;
    same(&stem, &table.bytes, &again)
}

fn iasl(directory: &Path, arguments: &[&str]) -> std::io::Result<Output> {
    Command::new("iasl").args(arguments).current_dir(directory).output()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// No word of trouble on either stream: the disassembler exits with 0 even when it understood nothing.
fn clean(stem: &str, output: &Output) -> Result<(), Failed> {
    let text = said(output);
    let trouble = ["Error  ", "Warning  ", "Remark  ", "Invalid", "Unknown", "Could not", "ncorrect", "Failure"];
    if output.status.success() && !trouble.iter().any(|word| text.contains(word)) {
        return Ok(());
    }
    Err(format!("{stem}:\n{text}").into())
}

/// The compiler's bytes are ours, but for the creator, which names the compiler, and so the checksum.
fn same(stem: &str, ours: &[u8], theirs: &[u8]) -> Result<(), Failed> {
    let comparable = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        if let Some(header) = bytes.get_mut(..36) {
            header[9] = 0;
            header[28..36].fill(0);
        }
        bytes
    };
    if comparable(ours) == comparable(theirs) {
        return Ok(());
    }
    Err(format!("{stem}: compiled again it is another table:\nours   {ours:02x?}\ntheirs {theirs:02x?}").into())
}

fn platform() -> Platform {
    Platform {
        rsdp_gpa: 0xE_0000,
        tables_gpa: 0xE_0030,
        tables_len_bytes: 0x1_FFD0,
        io_apic: IoApic { id: 0, gpa: 0xFEC0_0000 },
        local_apic_gpa: 0xFEE0_0000,
        serial: PortDevice { port: 0x3F8, gsi: 4 },
        power: PowerPorts { sleep_control: 0x600, sleep_status: 0x601, reset: 0x602, reset_value: 1 },
        event_device: PortDevice { port: 0x603, gsi: 9 },
        pvpanic_port: 0x505,
    }
}
