// SPDX-License-Identifier: Apache-2.0
//! What is printed reads back: `parse(print(c)) == c` for any configuration, and no text makes the parser panic.

use policy::placement::Mode;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use topology::cpu_set::MAX_ID;
use topology::id::{HostCpu, HostNode, NodeId, VcpuIndex};

use super::*;

fn cpus() -> impl Strategy<Value = CpusConfig> {
    let level = || option::of(0u32..9);
    (any::<u32>(), level(), level(), level(), level(), level()).prop_map(
        |(count, sockets, dies, clusters, cores, threads)| CpusConfig {
            count,
            sockets,
            dies,
            clusters,
            cores,
            threads,
        },
    )
}

fn node() -> impl Strategy<Value = NumaEntry> {
    let policies = [MemoryPolicy::Default, MemoryPolicy::Preferred, MemoryPolicy::Bind, MemoryPolicy::Interleave];
    let policy = option::of(proptest::sample::select(policies.to_vec()));
    (vec(0..=MAX_ID, 0..9), option::of(any::<u64>()), vec(0..=MAX_ID, 0..3), policy).prop_map(
        |(cpus, memory, host_node, policy)| {
            let cpus = cpus.into_iter().map(VcpuIndex).collect();
            let host_node = host_node.into_iter().map(HostNode).collect();
            NumaEntry::Node(NodeConfig { cpus, memory: memory.map(ByteSize), host_node, policy })
        },
    )
}

fn numa() -> impl Strategy<Value = Vec<NumaEntry>> {
    prop_oneof![vec(node(), 0..4), any::<u32>().prop_map(|nodes| vec![NumaEntry::Split(nodes)])]
}

fn distance() -> impl Strategy<Value = DistanceConfig> {
    (any::<u32>(), any::<u32>(), any::<u8>()).prop_map(|(from, to, distance)| DistanceConfig {
        from: NodeId(from),
        to: NodeId(to),
        distance,
    })
}

fn serial() -> impl Strategy<Value = SerialConfig> {
    prop_oneof![
        Just(SerialConfig::Stdio),
        Just(SerialConfig::None),
        any::<String>().prop_filter("a path", |path| !path.is_empty()).prop_map(|path| SerialConfig::File(path.into())),
    ]
}

fn pausing() -> impl Strategy<Value = MachineConfig> {
    let one_of = |known: &'static [PauseMode]| option::of(proptest::sample::select(known));
    let mode = one_of(&[PauseMode::Off, PauseMode::Kernel, PauseMode::Observe, PauseMode::Act]);
    let parameter = (proptest::sample::select(known_parameters()), 0..=i64::MAX)
        .prop_map(|(name, value)| format!("{name}={value}").parse().expect("a known name"));
    let injection =
        (0..=i64::MAX, 10_000..60_000_000_000u64, 1_000..1_000_000_000u64).prop_map(|(seed, mean, hold)| {
            format!("seed={seed},mean={mean}ns,hold={hold}ns,vcpus=[1-3]").parse().expect("well-formed")
        });
    let pin = vec(0..=MAX_ID, 1..5).prop_map(|cpus| Mode::Pin(cpus.into_iter().map(HostCpu).collect()));
    let modes = prop_oneof![pin, proptest::sample::select(vec![Mode::Auto, Mode::Spread, Mode::Pack])];
    let pin = (modes, any::<bool>()).prop_map(|(mode, exclusive)| PlacementConfig { mode, exclusive });
    let offer = option::of(0..u32::MAX);
    (mode, vec(parameter, 0..4), option::of(injection), option::of(pin), offer).prop_map(
        |(pause, pause_set, inject_preemption, placement, halt_poll)| MachineConfig {
            pv: halt_poll.map(|_| "-pv-ipi".parse().expect("known")),
            disable_exits: halt_poll.map(|_| "pause,cstate".parse().expect("known")),
            cpu_mask: halt_poll.map(|_| "avx,avx2".parse().expect("known")),
            placement_off: halt_poll.map(|_| "numa,pair".parse().expect("known")),
            hugepages: halt_poll
                .map(|bits| [HugePages::Pool2M, HugePages::Pool1G, HugePages::Thp, HugePages::None][bits as usize % 4]),
            core_scheduling: halt_poll.map(|bits| bits % 2 == 0),
            halt_poll,
            pause,
            pause_source: pause.map(|_| SourceChoice::Tracepoint),
            pause_mechanism: pause.map(|_| MechanismChoice::Park),
            pause_set,
            inject_preemption,
            api_sock: halt_poll.map(|_| "/run/vmm.sock".into()),
            api_listen: halt_poll.map(|_| "127.0.0.1:0".parse().expect("an address")),
            api_token_file: halt_poll.map(|_| "token".into()),
            api_only: halt_poll.map(|number| number % 2 == 0),
            api_thresholds: halt_poll.map(|_| "steal-permille=50".parse().expect("well-formed")),
            placement,
            ..MachineConfig::default()
        },
    )
}

fn config() -> impl Strategy<Value = MachineConfig> {
    let text = || option::of(any::<String>());
    let path = || option::of(any::<String>().prop_map(Into::into));
    let machine = (option::of(cpus()), option::of(any::<u64>().prop_map(ByteSize)), numa(), vec(distance(), 0..4));
    (machine, path(), path(), text(), text(), option::of(serial()), path(), pausing()).prop_map(
        |((cpus, memory, numa, numa_distance), kernel, initrd, cmdline, probe, serial, report, rest)| MachineConfig {
            cpus,
            memory,
            numa,
            numa_distance,
            kernel,
            initrd,
            cmdline,
            probe,
            serial,
            report,
            ..rest
        },
    )
}

proptest! {
    #[test]
    fn what_is_printed_as_toml_reads_back(config in config()) {
        let text = print(&config, FileFormat::Toml).expect("all paths are UTF-8");
        prop_assert_eq!(FileFormat::of(&text), FileFormat::Toml);
        prop_assert_eq!(parse(&text), Ok(config), "{}", text);
    }

    #[test]
    fn what_is_printed_as_json_reads_back(config in config()) {
        let text = print(&config, FileFormat::Json).expect("all paths are UTF-8");
        prop_assert_eq!(FileFormat::of(&text), FileFormat::Json);
        prop_assert_eq!(parse(&text), Ok(config), "{}", text);
    }

    #[test]
    fn effective_is_reached_in_one_step(config in config()) {
        let once = config.effective();
        prop_assert_eq!(once.clone().effective(), once);
    }

    #[test]
    fn flags_print_as_they_are_written(cpus in cpus(), node in node(), distance in distance(), serial in serial()) {
        prop_assert_eq!(cpus.to_string().parse(), Ok(cpus));
        prop_assert_eq!(node.to_string().parse(), Ok(node));
        prop_assert_eq!(distance.to_string().parse(), Ok(distance));
        prop_assert_eq!(serial.to_string().parse(), Ok(serial));
    }

    #[test]
    fn any_text_is_borne(text in ".*") {
        let _ = parse(&text);
        let _ = parse(&format!("{{{text}"));
        let _ = text.parse::<CpusConfig>();
        let _ = text.parse::<DistanceConfig>();
        let _ = text.parse::<SerialConfig>();
    }

    #[test]
    fn any_value_of_a_key_is_borne(
        key in "cpus|memory|numa|numa_distance|kernel|serial",
        value in "[-0-9\\[\\]{}\"a-z=,:. ]*",
    ) {
        let _ = parse(&format!("{key} = {value}\n"));
        let _ = parse(&format!("{{\"{key}\": {value}}}"));
    }
}
