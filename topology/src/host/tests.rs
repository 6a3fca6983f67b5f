// SPDX-License-Identifier: Apache-2.0
//! The host tree from text: fixtures of machines, holes, and every contradiction.

use proptest::prelude::*;

use super::*;

const SMALL: &str = "\
== devices/system/cpu/online
0-3
== self/affinity
0-3
== devices/system/cpu/cpu[0,2]/topology/core_cpus_list
0,2
== devices/system/cpu/cpu[1,3]/topology/core_cpus_list
1,3
== devices/system/cpu/cpu[0-3]/topology/package_cpus_list
0-3
== devices/system/cpu/cpu[0-3]/topology/die_cpus_list
0-3
== devices/system/cpu/cpu[0-3]/cache/index3/level
3
== devices/system/cpu/cpu[0-3]/cache/index3/shared_cpu_list
0-3
== devices/system/node/node0/cpulist
0-3
== devices/system/node/node0/distance
10
== devices/system/node/node0/meminfo
Node 0 MemTotal:        5597388 kB
Node 0 MemFree:         5045920 kB
";

fn build(text: &str) -> Result<HostTopology, HostError> {
    HostTopology::from_capture(&Capture::parse(text)?)
}

/// The small machine with one file's content replaced, or the file removed.
fn changed(path: &str, content: Option<&str>) -> Result<HostTopology, HostError> {
    let original = Capture::parse(SMALL)?;
    let mut capture = Capture::default();
    for (found, text) in original.files() {
        if found != path {
            capture.insert(found, text)?;
        }
    }
    if let Some(content) = content {
        capture.insert(path, content)?;
    }
    HostTopology::from_capture(&capture)
}

#[test]
fn a_complete_capture_has_no_degradation() {
    let host = build(SMALL).unwrap();
    assert_eq!(host.degradations(), []);
    assert_eq!((host.cpus().len(), host.cores().len(), host.clusters().len(), host.llcs().len()), (4, 2, 2, 1));
    assert_eq!(host.nodes()[0].memory_bytes, Some(5_597_388 * 1024));
    assert_eq!(host.nodes()[0].free_bytes, Some(5_045_920 * 1024));
    assert!(host.has_smt() && !host.has_clusters());
    let cpu3 = host.cpus()[3];
    assert_eq!((cpu3.core, cpu3.thread, cpu3.cluster), (1, 1, 1));
}

#[test]
fn affinity_alone_makes_a_flat_host_that_says_what_it_lacks() {
    let host = build("== self/affinity\n4-5\n").unwrap();
    assert_eq!(host.usable().to_string(), "4-5");
    assert_eq!((host.cores().len(), host.llcs().len(), host.nodes().len()), (2, 1, 1));
    for wanted in [Degradation::NoOnlineList, Degradation::NoNodes] {
        assert!(host.degradations().contains(&wanted), "{wanted:?}");
    }
    assert_eq!(build(""), Err(HostError::NoCpus));
}

#[test]
fn an_empty_file_counts_as_missing() {
    let host = changed("devices/system/node/node0/meminfo", Some("")).unwrap();
    assert_eq!(host.degradations(), [Degradation::NoMemoryInfo { node: HostNode(0) }]);
}

#[test]
fn isolated_cpus_are_left_alone_unless_there_are_no_others() {
    let isolated = format!("{SMALL}== devices/system/cpu/isolated\n2-3\n");
    assert_eq!(build(&isolated).unwrap().usable().to_string(), "0-1");
    let all = format!("{SMALL}== devices/system/cpu/isolated\n0-3\n");
    let host = build(&all).unwrap();
    assert_eq!(host.usable().to_string(), "0-3");
    assert_eq!(host.degradations(), [Degradation::OnlyIsolated]);
}

#[test]
fn cpuset_and_affinity_that_leave_nothing_are_refused_with_all_three_lists() {
    let text = format!("{SMALL}== self/cpuset\n4-7\n");
    let (online, affinity, cpuset) = ("0-3".to_owned(), "0-3".to_owned(), "4-7".to_owned());
    assert_eq!(build(&text), Err(HostError::NothingAllowed { online, affinity, cpuset }));
}

#[test]
fn offline_siblings_are_skipped() {
    let host = changed("devices/system/cpu/online", Some("0-2")).unwrap();
    assert_eq!(host.cores()[1].cpus.to_string(), "1");
    assert_eq!(host.llcs()[0].cpus.to_string(), "0-2");
}

#[test]
fn every_contradiction_has_its_error() {
    let core0 = "devices/system/cpu/cpu0/topology/core_cpus_list";
    let cache = "devices/system/cpu/cpu0/cache/index3/shared_cpu_list";
    let distance = "devices/system/node/node0/distance";
    assert!(matches!(changed(core0, Some("1")), Err(HostError::SpanWithoutSelf { .. })));
    assert!(matches!(changed(core0, Some("0-1")), Err(HostError::Asymmetric { .. })));
    assert!(matches!(changed(core0, Some("x")), Err(HostError::BadList { .. })));
    assert!(matches!(changed(cache, Some("0")), Err(HostError::Asymmetric { .. })));
    assert!(matches!(changed(distance, Some("10 20")), Err(HostError::DistanceCount { found: 2, nodes: 1, .. })));
    assert!(matches!(changed(distance, Some("11")), Err(HostError::BadDistance { distance: 11, .. })));
    assert!(matches!(changed(distance, Some("300")), Err(HostError::BadNumber { .. })));
    let nodes = format!("{SMALL}== devices/system/node/node1/cpulist\n3\n");
    let twice = HostError::CpuInTwoNodes { cpu: HostCpu(3), node: HostNode(0), other: HostNode(1) };
    assert_eq!(build(&nodes), Err(twice));
    let online = changed("devices/system/cpu/online", Some("0-8192"));
    assert!(matches!(online, Err(HostError::CpuBeyondLimit { cpu: HostCpu(8192), .. })));
    let capacity = format!("{SMALL}== devices/system/cpu/cpu0/cpu_capacity\nbig\n");
    assert!(matches!(build(&capacity), Err(HostError::BadNumber { .. })));
}

#[test]
fn a_core_across_two_caches_is_refused() {
    let torn = SMALL.replace(
        "== devices/system/cpu/cpu[0-3]/cache/index3/shared_cpu_list\n0-3\n",
        "== devices/system/cpu/cpu[0-1]/cache/index3/shared_cpu_list\n0-1\n\
         == devices/system/cpu/cpu[2-3]/cache/index3/shared_cpu_list\n2-3\n",
    );
    let (inner, outer) = (Level::Core, Level::Llc);
    assert_eq!(build(&torn), Err(HostError::NotNested { inner, outer, cpu: HostCpu(0), other: HostCpu(2) }));
}

#[test]
fn clusters_larger_than_the_cache_are_ignored_and_said() {
    let text = "== devices/system/cpu/online\n0-3\n== self/affinity\n0-3\n\
                == devices/system/cpu/cpu[0-3]/topology/cluster_cpus_list\n0-3\n\
                == devices/system/cpu/cpu[0-3]/cache/index2/level\n2\n\
                == devices/system/cpu/cpu[0-1]/cache/index2/shared_cpu_list\n0-1\n\
                == devices/system/cpu/cpu[2-3]/cache/index2/shared_cpu_list\n2-3\n";
    let host = build(text).unwrap();
    assert_eq!((host.clusters().len(), host.llcs().len()), (4, 2));
    assert!(host.degradations().contains(&Degradation::ClusterIgnored));
}

#[test]
fn clusters_across_two_caches_are_refused() {
    let text = "== devices/system/cpu/online\n0-3\n\
                == devices/system/cpu/cpu[0,3]/topology/cluster_cpus_list\n0,3\n\
                == devices/system/cpu/cpu[1-2]/topology/cluster_cpus_list\n1-2\n\
                == devices/system/cpu/cpu[0-3]/cache/index2/level\n2\n\
                == devices/system/cpu/cpu[0-1]/cache/index2/shared_cpu_list\n0-1\n\
                == devices/system/cpu/cpu[2-3]/cache/index2/shared_cpu_list\n2-3\n";
    let error = build(text).unwrap_err();
    assert!(matches!(error, HostError::NotNested { inner: Level::Llc, outer: Level::Cluster, .. }), "{error}");
}

#[test]
fn equal_ranks_switch_the_preference_off() {
    let ranked = |ranks: [&str; 4]| {
        let mut text = SMALL.to_owned();
        for (cpu, rank) in ranks.iter().enumerate() {
            text.push_str(&format!("== devices/system/cpu/cpu{cpu}/acpi_cppc/highest_perf\n{rank}\n"));
        }
        text
    };
    let equal = build(&ranked(["77"; 4])).unwrap();
    assert_eq!(equal.rank_source(), RankSource::Equal);
    assert!(equal.cpus().iter().all(|cpu| cpu.rank == 0));
    let preferred = ranked(["70", "77", "70", "77"]);
    let host = build(&preferred).unwrap();
    assert_eq!((host.rank_source(), host.cpus()[1].rank), (RankSource::CppcHighestPerf, 77));
    let off = build(&format!("{preferred}== proc/sys/kernel/sched_itmt_enabled\n0\n")).unwrap();
    assert_eq!((off.rank_source(), off.cpus()[1].rank), (RankSource::SwitchedOff, 0));
}

#[test]
fn a_rank_that_some_cpus_lack_is_not_used() {
    let host = build(&format!("{SMALL}== devices/system/cpu/cpu1/cpu_capacity\n512\n")).unwrap();
    assert_eq!(host.rank_source(), RankSource::Equal);
    let source = RankSource::CpuCapacity;
    assert_eq!(host.degradations(), [Degradation::RankIncomplete { source, cpus: 3 }]);
}

#[test]
fn a_cache_that_spans_nodes_is_one_cache_per_node() {
    let text = SMALL.replace(
        "== devices/system/node/node0/cpulist\n0-3\n== devices/system/node/node0/distance\n10\n",
        "== devices/system/node/node0/cpulist\n0,2\n== devices/system/node/node0/distance\n10 12\n\
         == devices/system/node/node1/cpulist\n1,3\n== devices/system/node/node1/distance\n12 10\n",
    );
    let host = build(&text).unwrap();
    assert_eq!(host.llcs().len(), 2);
    assert!(host.degradations().contains(&Degradation::LlcSplitByNode));
    assert_eq!(host.distance(0, 1), 12);
}

#[test]
fn bad_captures_are_refused_where_they_are_bad() {
    assert_eq!(Capture::parse("x\n"), Err(HostError::TextBeforeSection { line: 1 }));
    for header in ["== ", "== a[", "== a[0", "== a[x]/b", "== a[0]/b[1]"] {
        let text = format!("# comment\n{header}\n");
        assert!(matches!(Capture::parse(&text), Err(HostError::BadHeader { line: 2, .. })), "{header}");
    }
    assert_eq!(Capture::parse("== a\n1\n== a\n1\n"), Err(HostError::DuplicatePath { path: "a".to_owned() }));
    let wide = "== a[0-65535]/f\n1\n== b[0-65535]/f\n1\n== c[0-65535]/f\n1\n== d[0-65535]/f\n1\n== e[0-9]/f\n1\n";
    assert!(matches!(Capture::parse(wide), Err(HostError::CaptureTooLarge { what: "files", .. })));
    let deep = format!("== a[0-65535]/f\n{}\n", "x".repeat(2000));
    assert!(matches!(Capture::parse(&deep), Err(HostError::CaptureTooLarge { what: "bytes of content", .. })));
}

/// Every level is a partition of the online CPUs and every group lies within its parent.
fn check_tree(host: &HostTopology) {
    check_level(host, host.cores(), |cpu| (cpu.core, cpu.cluster));
    check_level(host, host.clusters(), |cpu| (cpu.cluster, cpu.llc));
    check_level(host, host.llcs(), |cpu| (cpu.llc, cpu.node));
    assert!(host.cpus().iter().all(|cpu| host.nodes()[cpu.node].cpus.contains(cpu.id)));
    assert!(host.usable().iter().all(|cpu| host.index_of(cpu).is_some()));
}

fn check_level(host: &HostTopology, groups: &[Group], group_and_parent: fn(&Cpu) -> (usize, usize)) {
    assert_eq!(groups.iter().map(|group| group.cpus.len()).sum::<usize>(), host.cpus().len());
    for cpu in host.cpus() {
        let (group, parent) = group_and_parent(cpu);
        assert!(groups[group].cpus.contains(cpu.id));
        assert_eq!(groups[group].parent, parent);
    }
}

macro_rules! fixture {
    ($name:ident, $file:literal, $cpus:literal, $counts:expr) => {
        #[test]
        fn $name() {
            let text = include_str!(concat!("../../../resources/hosts/", $file));
            let host = build(text).unwrap();
            check_tree(&host);
            let counts = (host.nodes().len(), host.llcs().len(), host.clusters().len(), host.cores().len());
            assert_eq!((host.cpus().len(), counts), ($cpus, $counts));
        }
    };
}

fixture!(server_with_two_sockets, "server-2s-128.txt", 128, (2, 2, 64, 64));
fixture!(machine_with_four_nodes, "numa-4.txt", 64, (4, 8, 64, 64));
fixture!(machine_with_sixteen_nodes, "numa-16.txt", 256, (16, 16, 128, 128));
fixture!(hybrid_laptop, "laptop-hybrid.txt", 16, (1, 2, 7, 12));
fixture!(machine_with_clusters_of_four, "clusters-128.txt", 128, (4, 4, 32, 128));
fixture!(machine_with_holes, "holes.txt", 9, (2, 2, 5, 5));
fixture!(two_cpu_virtual_machine, "vm-2.txt", 2, (1, 1, 2, 2));

proptest! {
    #[test]
    fn a_shape_builds_with_as_many_groups_as_it_says(
        nodes in 1u32..5, llcs in 1u32..3, clusters in 1u32..4, cores in 1u32..4, threads in 1u32..3,
    ) {
        let shape = HostShape { nodes, llcs, clusters, cores, threads, node_memory_bytes: 1 << 30 };
        let host = shape.build().unwrap();
        check_tree(&host);
        prop_assert_eq!(host.degradations(), &[]);
        prop_assert_eq!(host.cpus().len() as u64, shape.cpus());
        prop_assert_eq!(host.llcs().len(), (nodes * llcs) as usize);
        prop_assert_eq!(host.clusters().len(), (nodes * llcs * clusters) as usize);
        let capture = shape.capture().unwrap();
        prop_assert_eq!(Capture::parse(&capture.print()).unwrap(), capture);
    }

    #[test]
    fn no_text_panics(lines in proptest::collection::vec("(== )?(devices/system/(cpu|node)/(cpu|node)?[0-9\\[\\]-]{0,4}/?(topology/core_cpus_list|cpulist|distance|online|cache/index3/level)?|[0-9 ,x-]{0,6})", 0..20)) {
        let _ = build(&lines.join("\n"));
    }

    #[test]
    fn a_printed_capture_reads_back(files in proptest::collection::btree_map(
        "(devices/system/cpu/cpu[0-9]{1,2}|x/node[0-9]/y|z)/[a-c]", "[a-z0-9 ]{0,6}", 0..30,
    )) {
        let mut capture = Capture::default();
        for (path, content) in &files {
            capture.insert(path, content).unwrap();
        }
        prop_assert_eq!(Capture::parse(&capture.print()).unwrap(), capture);
    }
}
