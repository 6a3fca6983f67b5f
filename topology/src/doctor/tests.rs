// SPDX-License-Identifier: Apache-2.0
//! The doctor finds nothing where nothing is wrong, names each fault that is put in, and lists the domains that a
//! reader can work out by hand.

use proptest::prelude::*;

use super::*;
use crate::acpi::fixture::{even, lopsided, machine, map, platform};
use crate::acpi::{build, decode::ApicForm};
use crate::cpuid::{Vendor, specialise};
use crate::generate;
use crate::guest::{GuestTopology, NodeRequest, ShapeRequest, TopologyRequest};
use crate::id::{ApicId, NodeId, VcpuIndex};

/// What the doctor looks at, to be tampered with.
struct Patient {
    seen: DecodedTopology,
    acpi: Decoded,
    ram: Vec<RamRange>,
}

impl Patient {
    fn new(topology: &GuestTopology, vendor: Vendor) -> Self {
        let map = map(topology);
        let acpi = decode::read_built(&build(topology, &map, &platform()).unwrap()).unwrap();
        Self { seen: DecodedTopology::expected(topology, vendor), acpi, ram: map.ram().to_vec() }
    }

    fn diagnose(&self) -> Report {
        diagnose(&Evidence { seen: &self.seen, acpi: &self.acpi, ram: &self.ram })
    }
}

/// CPUID of a host that says no more than its vendor.
fn host(vendor: Vendor) -> Vec<CpuidEntry> {
    let leaf =
        |function, [eax, ebx, ecx, edx]: [u32; 4]| CpuidEntry { function, eax, ebx, ecx, edx, ..Default::default() };
    match vendor {
        Vendor::Intel => vec![leaf(0, [0x1F, 0x756E_6547, 0x6C65_746E, 0x4965_6E69])],
        Vendor::Amd => vec![leaf(0, [0x10, 0x6874_7541, 0x444D_4163, 0x6974_6E65]), leaf(1, [0x00A2_0F10, 0, 0, 0])],
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_machine_that_the_validator_accepts_has_no_finding(topology in generate::machine(), amd in any::<bool>()) {
        let vendor = if amd { Vendor::Amd } else { Vendor::Intel };
        let lists: Vec<_> = topology.vcpus().map(|cpu| specialise(&host(vendor), &topology, cpu)).collect();
        let map = map(&topology);
        let report = examine(&lists, &build(&topology, &map, &platform()).unwrap(), &map).unwrap();
        prop_assert_eq!(&report.findings, &[]);
        prop_assert!(report.is_healthy());
        for cpu in &report.cpus {
            prop_assert_eq!(cpu.node, topology.node_of(cpu.cpu));
            prop_assert_eq!(cpu.apic_id, topology.apic_id(cpu.cpu));
        }
        for (node, asked) in report.nodes.iter().zip(topology.nodes()) {
            prop_assert_eq!((&node.cpus, node.memory_bytes), (&asked.cpus, asked.memory_bytes));
        }
    }

    #[test]
    fn domains_ascend_to_all_cpus_and_hold_their_cpu(topology in generate::machine(), amd in any::<bool>()) {
        let vendor = if amd { Vendor::Amd } else { Vendor::Intel };
        for cpu in Patient::new(&topology, vendor).diagnose().cpus {
            let spans: Vec<_> = cpu.domains.iter().map(|domain| &domain.span).collect();
            prop_assert!(spans.iter().all(|span| span.contains(cpu.cpu) && span.len() > 1));
            prop_assert!(spans.windows(2).all(|pair| pair[0].is_subset(pair[1]) && pair[0] != pair[1]));
            let widest = spans.last().map_or(1, |span| span.len());
            prop_assert_eq!(widest, topology.vcpus().len());
        }
    }
}

/// The domains of a CPU as the text report has them.
fn domains(request: &TopologyRequest, vendor: Vendor, cpu: usize) -> String {
    let report = Patient::new(&machine(request), vendor).diagnose();
    assert_eq!(report.findings, []);
    let domain = |domain: &Domain| match domain.distance {
        Some(distance) => format!("{}({distance}) {}", domain.level, domain.span),
        None => format!("{} {}", domain.level, domain.span),
    };
    report.cpus[cpu].domains.iter().map(domain).collect::<Vec<_>>().join(", ")
}

fn shaped(nodes: u32, counts: [u32; 5]) -> TopologyRequest {
    let [sockets, dies, clusters, cores, threads] = counts.map(Some);
    let shape = ShapeRequest { sockets, dies, clusters, cores, threads };
    TopologyRequest { shape, ..even(counts.iter().product(), nodes) }
}

fn with_distances(request: TopologyRequest, rows: &[&[u8]]) -> TopologyRequest {
    let ids = || (0..).map(NodeId);
    let pairs = ids().zip(rows).flat_map(|(from, row)| ids().zip(*row).map(move |(to, far)| (from, to, *far)));
    TopologyRequest { distances: pairs.collect(), ..request }
}

#[test]
fn domains_of_simple_machines() {
    assert_eq!(domains(&even(1, 1), Vendor::Intel, 0), "");
    assert_eq!(domains(&even(4, 1), Vendor::Intel, 0), "MC 0-3");
    // Four nodes of a package each: the package is no wider than its cache.
    assert_eq!(domains(&even(32, 4), Vendor::Intel, 9), "MC 8-15, NUMA(20) 0-31");
    assert_eq!(domains(&shaped(1, [2, 1, 1, 4, 2]), Vendor::Intel, 9), "SMT 8-9, MC 8-15, PKG 0-15");
    // One CPU a node: only distances are left.
    assert_eq!(domains(&even(2, 2), Vendor::Intel, 0), "NUMA(20) 0-1");
}

#[test]
fn domains_of_clusters_show_on_intel_and_not_on_amd() {
    let request = shaped(1, [2, 2, 2, 3, 2]);
    assert_eq!(domains(&request, Vendor::Intel, 13), "SMT 12-13, CLS 12-17, MC 12-23, PKG 0-47");
    assert_eq!(domains(&request, Vendor::Amd, 13), "SMT 12-13, MC 12-23, PKG 0-47");
    let remarks = Patient::new(&machine(&request), Vendor::Amd).diagnose().remarks;
    assert_eq!(remarks, [Remark::ClustersUnseen]);
}

#[test]
fn three_dies_are_remarked_upon_on_amd() {
    let remarks = |dies, vendor| Patient::new(&machine(&shaped(1, [2, dies, 1, 2, 1])), vendor).diagnose().remarks;
    assert_eq!(remarks(3, Vendor::Amd), [Remark::NodeIdsWithGaps { package: 0, dies: 3 }]);
    assert_eq!((remarks(4, Vendor::Amd), remarks(3, Vendor::Intel)), (vec![], vec![]));
}

#[test]
fn domains_of_a_package_on_several_nodes_have_no_pkg_level() {
    assert_eq!(domains(&shaped(2, [1, 2, 1, 4, 1]), Vendor::Intel, 0), "MC 0-3, NUMA(20) 0-7");
    assert_eq!(domains(&shaped(2, [1, 4, 1, 4, 1]), Vendor::Intel, 0), "MC 0-3, NODE(10) 0-7, NUMA(20) 0-15");
    let remarks = Patient::new(&machine(&shaped(2, [1, 2, 1, 4, 1])), Vendor::Intel).diagnose().remarks;
    assert_eq!(remarks, [Remark::NumaInPackage { package: 0 }]);
}

#[test]
fn domains_follow_distances_hop_by_hop() {
    let line: [&[u8]; 4] = [&[10, 20, 30, 40], &[20, 10, 20, 30], &[30, 20, 10, 20], &[40, 30, 20, 10]];
    let request = with_distances(even(8, 4), &line);
    assert_eq!(domains(&request, Vendor::Intel, 0), "MC 0-1, NUMA(20) 0-3, NUMA(30) 0-5, NUMA(40) 0-7");
    // From the middle 40 reaches no further than 30.
    assert_eq!(domains(&request, Vendor::Intel, 2), "MC 2-3, NUMA(20) 0-5, NUMA(30) 0-7");
}

#[test]
fn distances_to_a_node_without_cpus_make_no_domain() {
    let mut request = even(4, 2);
    request.nodes.push(NodeRequest { memory_bytes: 1 << 30, ..Default::default() });
    let request = with_distances(request, &[&[10, 20, 17], &[20, 10, 28], &[17, 28, 10]]);
    assert_eq!(domains(&request, Vendor::Intel, 0), "MC 0-1, NUMA(20) 0-3");
}

#[test]
fn asymmetric_distances_and_small_nodes_are_remarked_on() {
    let mut request = with_distances(even(2, 2), &[&[10, 21], &[31, 10]]);
    request.nodes[1].memory_bytes = 4096;
    let report = Patient::new(&machine(&request), Vendor::Intel).diagnose();
    let asymmetric = Remark::Asymmetric { from: NodeId(0), to: NodeId(1), there: 21, back: 31 };
    assert_eq!(report.remarks, [Remark::SmallNode { node: NodeId(1), bytes: 4096 }, asymmetric]);
}

/// The findings of a machine of two nodes, each a package of two cores of two threads, after one thing was changed.
fn after(change: impl FnOnce(&mut Patient)) -> Vec<Finding> {
    let mut patient = Patient::new(&machine(&shaped(2, [2, 1, 1, 2, 2])), Vendor::Intel);
    assert_eq!(patient.diagnose().findings, []);
    change(&mut patient);
    patient.diagnose().findings
}

fn assert_named(findings: &[Finding], expected: &Finding) {
    assert!(findings.contains(expected), "{expected:?} is not among {findings:?}");
    assert!(!expected.to_string().is_empty() && !expected.remedy().is_empty());
}

const FOREIGN: ApicId = ApicId(77);

#[test]
fn each_fault_of_power_registers_is_named() {
    assert_named(&after(|p| p.acpi.fadt.hardware_reduced = false), &Finding::NotHardwareReduced);
    assert_named(&after(|p| p.acpi.fadt.sleep_status.address = 0), &Finding::NoSleepRegisters);
    assert_named(&after(|p| p.acpi.fadt.reset = None), &Finding::NoResetRegister);
}

#[test]
fn each_fault_of_the_madt_is_named() {
    let (cpu, apic_id) = (VcpuIndex(3), ApicId(3));
    let gone = after(|p| p.acpi.madt.cpus.retain(|entry| entry.apic_id != ApicId(3)));
    assert_named(&gone, &Finding::CpuNotInMadt { cpu, apic_id });
    assert_named(&gone, &Finding::MadtOrder { cpu: VcpuIndex(4), place: 3 });
    let foreign = after(|p| p.acpi.madt.cpus[3].apic_id = FOREIGN);
    assert_named(&foreign, &Finding::MadtCpuUnknown { apic_id: FOREIGN });
    assert_named(&after(|p| p.acpi.madt.cpus[3].apic_id = ApicId(2)), &Finding::MadtIdTwice { apic_id: ApicId(2) });
    assert_named(&after(|p| p.acpi.madt.cpus[3].uid = 2), &Finding::MadtUidTwice { uid: 2 });
    assert_named(&after(|p| p.acpi.madt.cpus[3].form = ApicForm::X2Apic), &Finding::MadtForm { apic_id });
    assert_named(&after(|p| p.acpi.madt.cpus[3].enabled = false), &Finding::MadtDisabled { apic_id });
}

fn srat(patient: &mut Patient) -> &mut decode::Srat {
    patient.acpi.srat.as_mut().unwrap()
}

#[test]
fn each_fault_of_srat_cpus_is_named() {
    let (cpu, apic_id) = (VcpuIndex(3), ApicId(3));
    assert_named(
        &after(|p| srat(p).cpus.retain(|entry| entry.apic_id != ApicId(3))),
        &Finding::CpuNotInSrat { cpu, apic_id },
    );
    let unknown = Finding::SratCpuUnknown { apic_id: FOREIGN, node: NodeId(0) };
    assert_named(&after(|p| srat(p).cpus[3].apic_id = FOREIGN), &unknown);
    assert_named(&after(|p| srat(p).cpus[3].apic_id = ApicId(2)), &Finding::SratCpuTwice { apic_id: ApicId(2) });
    assert_named(&after(|p| srat(p).cpus[3].form = ApicForm::X2Apic), &Finding::SratForm { apic_id });
}

#[test]
fn each_fault_of_srat_memory_is_named() {
    let half = 1 << 29;
    let (start, end) = (half, 2 * half);
    let shorter = after(|p| srat(p).memory[0].len_bytes = half);
    assert_eq!(shorter, [Finding::MemoryNotInSrat { start, end }]);
    let longer = after(|p| srat(p).memory[0].len_bytes += half);
    assert_named(&longer, &Finding::SratMemoryTwice { start: 2 * half, end: 3 * half });
    let belongs = Finding::MemoryNode { start: 2 * half, end: 3 * half, belongs: NodeId(1), says: NodeId(0) };
    assert_named(&longer, &belongs);
    let beyond = after(|p| srat(p).memory[1].len_bytes += half);
    assert_eq!(beyond, [Finding::SratMemoryUnknown { start: 4 * half, end: 5 * half }]);
}

/// A SLIT with one distance changed, through the bytes: its fields are not open.
fn with_distance(place: usize, distance: u8) -> Vec<Finding> {
    after(|patient| {
        let topology = machine(&shaped(2, [2, 1, 1, 2, 2]));
        let mut tables = build(&topology, &map(&topology), &platform()).unwrap();
        let slit = tables.tables.iter_mut().find(|table| &table.signature == b"SLIT").unwrap();
        slit.bytes[9] = slit.bytes[9].wrapping_add(slit.bytes[44 + place].wrapping_sub(distance));
        slit.bytes[44 + place] = distance;
        patient.acpi.slit = decode::read_built(&tables).unwrap().slit;
    })
}

#[test]
fn each_fault_of_distances_is_named() {
    let (from, to) = (NodeId(0), NodeId(1));
    assert_named(&with_distance(3, 11), &Finding::SlitDiagonal { node: to, distance: 11 });
    assert_named(&with_distance(1, 10), &Finding::SlitTooShort { from, to, distance: 10 });
    assert_named(&after(|p| p.acpi.slit = None), &Finding::NoSlit { nodes: 2 });
    let other = |p: &mut Patient| p.acpi.slit = Patient::new(&machine(&even(3, 3)), Vendor::Intel).acpi.slit;
    assert_named(&after(other), &Finding::SlitSize { localities: 3, nodes: 2 });
    let hmat_node = after(|p| p.acpi.hmat.as_mut().unwrap().domains[1].memory = NodeId(9));
    assert_named(&hmat_node, &Finding::HmatNode { node: NodeId(9) });
    let order = after(|p| p.acpi.hmat.as_mut().unwrap().localities[0].values[0] = Some(5000));
    assert_named(&order, &Finding::HmatOrder { from, nearer: from, farther: to });
}

#[test]
fn each_fault_of_nodes_across_caches_is_named() {
    let (first_node, second_node) = (NodeId(0), NodeId(1));
    let (first, second) = (VcpuIndex(0), VcpuIndex(1));
    let split = after(|p| srat(p).cpus[1].node = second_node);
    assert_named(&split, &Finding::SmtAcrossNodes { first, second, first_node, second_node });
    assert_named(&split, &Finding::L2AcrossNodes { first, second, first_node, second_node });
    assert_named(&split, &Finding::LlcAcrossNodes { first, second, first_node, second_node });
    let core = after(|p| (2..4).for_each(|cpu| srat(p).cpus[cpu].node = second_node));
    assert_eq!(core, [Finding::LlcAcrossNodes { first, second: VcpuIndex(2), first_node, second_node }]);
}

#[test]
fn each_fault_of_caches_is_named() {
    let differ = after(|p| p.seen.cpus[3].caches[2].spec.size_bytes *= 2);
    assert_named(&differ, &Finding::CachesDiffer { cpu: VcpuIndex(3) });
    assert_named(&differ, &Finding::PpttCache { cpu: VcpuIndex(3), cache: "L2".to_owned() });
    // An L2 wider than the L3.
    let wide = after(|p| {
        let all = p.seen.cpus[0].caches[3].shared_by.clone();
        p.seen.cpus[0].caches[2].shared_by = all;
        p.seen.cpus[0].caches[3].shared_by = "0-1".parse().unwrap();
    });
    let (child, parent) = ("CLS".to_owned(), "MC".to_owned());
    assert_named(&wide, &Finding::DomainsNotNested { cpu: VcpuIndex(0), child, parent });
}

#[test]
fn a_package_without_cpus_is_named() {
    let gap = after(|p| p.seen.cpus.iter_mut().for_each(|cpu| cpu.position.package *= 2));
    assert_eq!(gap, [Finding::EmptyPackage { package: 1 }]);
}

fn pptt(patient: &mut Patient) -> &mut decode::Pptt {
    patient.acpi.pptt.as_mut().unwrap()
}

#[test]
fn each_fault_of_the_pptt_is_named() {
    let node = |p: &mut Patient, uid: u32, up: usize| pptt(p).path(uid)[up];
    let uid = |p: &mut Patient, uid: u32, other: u32| {
        let leaf = node(p, uid, 0);
        pptt(p).nodes.get_mut(&leaf).unwrap().uid = Some(other);
    };
    let missing = after(|p| uid(p, 3, 99));
    assert_named(&missing, &Finding::PpttCpuMissing { cpu: VcpuIndex(3), uid: 3 });
    assert_named(&missing, &Finding::PpttCpuUnknown { uid: 99 });
    assert_named(&after(|p| uid(p, 3, 2)), &Finding::PpttCpuTwice { uid: 2 });
    // CPU 2's core under the other package; CPU 3 goes with it.
    let moved = after(|p| {
        let (core, package) = (node(p, 2, 1), node(p, 4, 2));
        pptt(p).nodes.get_mut(&core).unwrap().parent = Some(package);
    });
    assert_named(&moved, &Finding::PpttPackage { first: VcpuIndex(0), second: VcpuIndex(2) });
    assert_named(&moved, &Finding::PpttCache { cpu: VcpuIndex(2), cache: "L3".to_owned() });
    let merged = after(|p| {
        let (thread, core) = (node(p, 2, 0), node(p, 0, 1));
        pptt(p).nodes.get_mut(&thread).unwrap().parent = Some(core);
    });
    assert_named(&merged, &Finding::PpttCore { first: VcpuIndex(0), second: VcpuIndex(2) });
    let empty = after(|p| {
        let offset = node(p, 0, 2);
        let package = pptt(p).nodes[&offset].clone();
        pptt(p).nodes.insert(0xFFFF, package);
    });
    assert_eq!(empty, [Finding::PpttEmptyPackage { offset: 0xFFFF }]);
}

#[test]
fn unreadable_bytes_are_an_error_and_no_diagnosis() {
    let topology = lopsided();
    let map = map(&topology);
    let mut tables = build(&topology, &map, &platform()).unwrap();
    let lists: Vec<_> = topology.vcpus().map(|cpu| specialise(&host(Vendor::Intel), &topology, cpu)).collect();
    let twice = [lists[0].clone(), lists[0].clone()];
    assert!(matches!(examine(&twice, &tables, &map), Err(DoctorError::Cpuid(cpuid::DecodeError::SameId { .. }))));
    tables.rsdp[0] = 0;
    let no_rsdp = decode::DecodeError::NoRsdp { gpa: platform().rsdp_gpa };
    assert_eq!(examine(&lists, &tables, &map), Err(DoctorError::Acpi(no_rsdp)));
}

#[test]
fn the_text_shows_nodes_cpus_caches_findings_and_remarks() {
    let mut patient = Patient::new(&machine(&shaped(2, [2, 1, 1, 1, 2])), Vendor::Intel);
    patient.acpi.fadt.reset = None;
    let text = patient.diagnose().to_string();
    let expected = "\
node  cpus                 memory  distances
   0  0-1                   1 GiB   10  20
   1  2-3                   1 GiB   20  10

 cpu  apic  pkg  die  cls core  thr node  scheduler domains
   0     0    0    0    0    0    0    0  SMT 0-1 NUMA(20) 0-3
   1     1    0    0    0    0    1    0  SMT 0-1 NUMA(20) 0-3
   2     2    1    0    0    0    0    1  SMT 2-3 NUMA(20) 0-3
   3     3    1    0    0    0    1    1  SMT 2-3 NUMA(20) 0-3

cache       size  shared by
  L1d     32 KiB  0-1 2-3
  L1i     32 KiB  0-1 2-3
   L2      1 MiB  0-1 2-3
   L3     16 MiB  0-1 2-3

finding: the FADT names no byte-wide reset port: Linux resets by other means, down to a triple fault
  remedy: write the FADT with the platform's power ports
";
    assert_eq!(text, expected);
}

#[test]
fn the_report_survives_json_with_stable_names() {
    let report = after_report();
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["cpus"][1]["domains"][0], serde_json::json!({"level": "NUMA", "distance": 31, "span": "0-1"}));
    assert_eq!(json["findings"][0], serde_json::json!({"finding": "no_reset_register"}));
    assert_eq!(json["remarks"][0]["remark"], "asymmetric");
    assert_eq!(serde_json::from_value::<Report>(json).unwrap(), report);
}

fn after_report() -> Report {
    let mut patient = Patient::new(&lopsided(), Vendor::Intel);
    patient.acpi.fadt.reset = None;
    patient.diagnose()
}
