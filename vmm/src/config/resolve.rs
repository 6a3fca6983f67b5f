// SPDX-License-Identifier: Apache-2.0
//! Makes a machine of a configuration, or says what keeps it from being one.
//!
//! CPUs, nodes and distances are judged by [`topology`]; here stands what it cannot know: how `--memory` and the nodes
//! share one amount, what goes with what, and which files are there. Files are looked at and left as they are.

use std::fs::{self, File};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use topology::guest::{
    GuestTopology, MAX_MEMORY_BYTES, NodeRequest, PAGE_BYTES, ShapeRequest, TopologyError, TopologyRequest,
};

use super::{
    Boot, ByteSize, ConfigError, CpusConfig, HugePages, Machine, MachineConfig, MechanismChoice, MemoryPolicy,
    NodeConfig, NodeWish, NumaEntry, OfferPlan, PauseMode, PausePlan, SerialConfig, pause, probe_line,
};
use crate::report::{self, ReportTarget};

impl MachineConfig {
    /// The machine this configuration, with the defaults put in, stands for.
    ///
    /// # Errors
    /// Whatever can be known to be wrong without opening KVM, see [`ConfigError`].
    pub fn resolve(&self) -> Result<Machine, ConfigError> {
        let config = self.clone().effective();
        let topology = config.topology()?;
        let boot = config.boot()?;
        super::shared_files::check(&config)?;
        let pause = config.pause_plan(topology.vcpu_count())?;
        let offer = config.offer_plan()?;
        let node_wishes = config.node_wishes()?;
        let serial = config.serial.unwrap_or_default();
        if let SerialConfig::File(path) = &serial {
            report::check_output("--serial", path)?;
        }
        let report = config.report.as_deref().map(ReportTarget::check).transpose()?;
        if let Some((pages, bytes)) = config.hugepages.and_then(|pages| Some((pages, pages.pool_page_bytes()?))) {
            whole_huge_pages(&topology, pages, bytes)?;
        }
        Ok(Machine {
            topology,
            boot,
            serial,
            report,
            pause,
            offer,
            placement: config.placement.unwrap_or_default(),
            rules: config.placement_off.unwrap_or_default().rules(),
            huge_pages: config.hugepages,
            core_scheduling: config.core_scheduling.unwrap_or_default(),
            node_wishes,
        })
    }

    fn offer_plan(&self) -> Result<OfferPlan, ConfigError> {
        let plan = OfferPlan {
            pv: self.pv.clone(),
            quiet: self.disable_exits.clone(),
            halt_poll_ns: self.halt_poll,
            mask: self.cpu_mask.clone(),
        };
        match (&plan.pv, &plan.quiet) {
            (Some(pv), Some(quiet)) if plan.wants_unhalt_without_halt() => {
                Err(ConfigError::UnhaltWithoutHaltExits { pv: pv.to_string(), quiet: quiet.to_string() })
            }
            _ => Ok(plan),
        }
    }

    /// What is wished for each node, in the order of the nodes.
    ///
    /// # Errors
    /// A memory policy that does not go with the host nodes.
    pub fn node_wishes(&self) -> Result<Vec<NodeWish>, ConfigError> {
        let nodes = match only_nodes(&self.numa)? {
            Nodes::Equal(nodes) => return Ok(vec![NodeWish::default(); nodes as usize]),
            Nodes::Each(nodes) => nodes,
        };
        let wish = |(node, config): (usize, &&NodeConfig)| match (config.policy, config.host_node.len()) {
            (Some(MemoryPolicy::Preferred), 2..) => {
                Err(ConfigError::PreferredIsOne { node, host_nodes: config.host_node.to_string() })
            }
            (policy, _) => Ok(NodeWish { host_nodes: config.host_node.clone(), policy }),
        };
        nodes.iter().enumerate().map(wish).collect()
    }

    fn pause_plan(&self, vcpus: u32) -> Result<PausePlan, ConfigError> {
        let refused = |flag| move |source| ConfigError::Value { flag, source };
        let (policy, sources) = pause::apply(&self.pause_set).map_err(refused("--pause-set"))?;
        let (mode, mechanism) = (self.pause.unwrap_or_default(), self.pause_mechanism.unwrap_or_default());
        if let Some(path) = &self.decision_log {
            let decides = matches!(mode, PauseMode::Observe | PauseMode::Act) && mechanism == MechanismChoice::Auto;
            if !decides {
                return Err(ConfigError::NothingToLog { mode, mechanism });
            }
            report::check_output("--decision-log", path)?;
        }
        let injection = self.inject_preemption.clone();
        if let Some(vcpu) = injection.as_ref().and_then(|one| one.vcpus.highest()).filter(|vcpu| vcpu.0 >= vcpus) {
            return Err(ConfigError::NoSuchVcpu { flag: "--inject-preemption", vcpu, vcpus });
        }
        Ok(PausePlan {
            mode,
            source: self.pause_source.unwrap_or_default(),
            mechanism,
            policy,
            sources,
            decision_log: self.decision_log.clone(),
            injection,
        })
    }

    /// The topology alone: all of [`MachineConfig::resolve`] that looks at no file.
    ///
    /// # Errors
    /// CPUs, memory, nodes or distances that do not make a machine.
    pub fn topology(&self) -> Result<GuestTopology, ConfigError> {
        let config = self.clone().effective();
        let CpusConfig { count, sockets, dies, clusters, cores, threads } = config.cpus.unwrap_or(CpusConfig::flat(1));
        let mut request = match only_nodes(&config.numa)? {
            Nodes::Equal(nodes) => TopologyRequest::even(count, nodes, whole_memory(config.memory)?)?,
            Nodes::Each(nodes) => {
                TopologyRequest { cpus: count, nodes: node_requests(&nodes, config.memory)?, ..Default::default() }
            }
        };
        request.shape = ShapeRequest { sockets, dies, clusters, cores, threads };
        request.distances = config.numa_distance.iter().map(|one| (one.from, one.to, one.distance)).collect();
        Ok(GuestTopology::new(&request)?)
    }

    fn boot(self: &MachineConfig) -> Result<Boot, ConfigError> {
        let Some(image) = &self.kernel else {
            let mismatch = |flag, value, remedy| {
                Err(ConfigError::KernelMismatch { flag, value, why: "belongs to a kernel and none is named", remedy })
            };
            if let Some(path) = &self.initrd {
                return mismatch("--initrd", path.display().to_string(), "add --kernel FILE");
            }
            if let Some(text) = &self.cmdline {
                return mismatch("--cmdline", text.clone(), "add --kernel FILE, or use --probe for the probe guest");
            }
            let workload = self.probe.clone().unwrap_or_else(|| Self::DEFAULT_PROBE.to_owned());
            refuse_characters("--probe", &workload, char::is_control)?;
            probe_line::check(&workload)?;
            return Ok(Boot::Probe { workload });
        };
        if let Some(workload) = &self.probe {
            return Err(ConfigError::KernelMismatch {
                flag: "--probe",
                value: workload.clone(),
                why: "is for the probe guest and a kernel is named",
                remedy: "drop --kernel or --probe",
            });
        }
        check_input("--kernel", image)?;
        self.initrd.as_deref().map_or(Ok(()), |path| check_input("--initrd", path))?;
        let command_line = self.cmdline.clone().unwrap_or_default();
        refuse_characters("--cmdline", &command_line, |character| character == '\0')?;
        Ok(Boot::Kernel { image: image.clone(), initrd: self.initrd.clone(), command_line })
    }
}

/// The two ways to ask for nodes.
enum Nodes<'a> {
    Equal(u32),
    Each(Vec<&'a NodeConfig>),
}

fn only_nodes(entries: &[NumaEntry]) -> Result<Nodes<'_>, ConfigError> {
    match entries {
        [] => return Ok(Nodes::Equal(1)),
        [NumaEntry::Split(nodes)] => return Ok(Nodes::Equal(*nodes)),
        _ => {}
    }
    let node = |entry| match entry {
        &NumaEntry::Split(nodes) => Err(ConfigError::SplitIsNotAlone { nodes }),
        NumaEntry::Node(node) => Ok(node),
    };
    entries.iter().map(node).collect::<Result<_, _>>().map(Nodes::Each)
}

/// The machine's memory in bytes, if it can be dealt to nodes.
fn whole_memory(memory: Option<ByteSize>) -> Result<u64, ConfigError> {
    let memory = memory.unwrap_or(MachineConfig::DEFAULT_MEMORY);
    let bytes = memory.0;
    if bytes == 0 {
        return Err(TopologyError::NoMemory.into());
    }
    if bytes > MAX_MEMORY_BYTES {
        return Err(ConfigError::TooMuchMemory { memory, most: ByteSize(MAX_MEMORY_BYTES) });
    }
    if !bytes.is_multiple_of(PAGE_BYTES) {
        let below = ByteSize(bytes / PAGE_BYTES * PAGE_BYTES);
        return Err(ConfigError::MemoryNotPages { bytes, page: PAGE_BYTES, below });
    }
    Ok(bytes)
}

/// Each node is tied to the host's nodes by itself, so each needs whole pages.
fn whole_huge_pages(topology: &GuestTopology, pages: HugePages, page_bytes: u64) -> Result<(), ConfigError> {
    match topology.nodes().iter().find(|node| !node.memory_bytes.is_multiple_of(page_bytes)) {
        Some(node) => {
            let (node, memory) = (node.id, ByteSize(node.memory_bytes));
            Err(ConfigError::NotWholeHugePages { pages, node, memory })
        }
        None => Ok(()),
    }
}

fn node_requests(nodes: &[&NodeConfig], memory: Option<ByteSize>) -> Result<Vec<NodeRequest>, ConfigError> {
    let said: Vec<u64> = nodes.iter().filter_map(|node| node.memory).map(|memory| memory.0).collect();
    let shares = if said.is_empty() {
        even_shares(nodes.len(), whole_memory(memory)?)?
    } else if let Some(node) = nodes.iter().position(|node| node.memory.is_none()) {
        return Err(ConfigError::NodeMemoryMissing { node });
    } else {
        said
    };
    let sum = shares.iter().try_fold(0u64, |sum, share| sum.checked_add(*share)).ok_or(TopologyError::TooMuchMemory)?;
    match memory {
        Some(memory) if memory.0 != sum => {
            return Err(ConfigError::MemoryIsNotTheSum { memory, nodes: ByteSize(sum) });
        }
        _ => {}
    }
    let request = |(node, memory_bytes): (&&NodeConfig, u64)| NodeRequest { cpus: node.cpus.clone(), memory_bytes };
    Ok(nodes.iter().zip(shares).map(request).collect())
}

/// Memory dealt as `--numa N` deals it.
fn even_shares(nodes: usize, memory_bytes: u64) -> Result<Vec<u64>, TopologyError> {
    let count = u32::try_from(nodes).map_err(|_| TopologyError::NodeCount { nodes })?;
    let dealt = TopologyRequest::even(1, count, memory_bytes)?;
    Ok(dealt.nodes.iter().map(|node| node.memory_bytes).collect())
}

fn refuse_characters(flag: &'static str, text: &str, refused: impl Fn(char) -> bool) -> Result<(), ConfigError> {
    match text.chars().find(|character| refused(*character)) {
        Some(character) => Err(ConfigError::ControlCharacter { flag, value: text.to_owned(), character }),
        None => Ok(()),
    }
}

/// Checks that there is a file to read. It is opened only once it is known to be one, for opening a pipe may wait.
fn check_input(flag: &'static str, path: &Path) -> Result<(), ConfigError> {
    let unreadable = |source| ConfigError::Unreadable { flag, path: path.to_owned(), source };
    let found = fs::metadata(path).map_err(unreadable)?;
    if !found.is_file() {
        return Err(ConfigError::NotAFile { flag, path: path.to_owned(), kind: kind_of(found.file_type()) });
    }
    if found.len() == 0 {
        return Err(ConfigError::EmptyFile { flag, path: path.to_owned() });
    }
    File::open(path).map(drop).map_err(unreadable)
}

fn kind_of(kind: fs::FileType) -> &'static str {
    match () {
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    }
}

#[cfg(test)]
mod tests {
    use topology::id::{NodeId, VcpuIndex};

    use super::*;
    use crate::config::parse;

    fn refused(toml: &str) -> String {
        parse(toml).expect("well-formed").resolve().expect_err(toml).to_string()
    }

    #[test]
    fn a_number_of_nodes_splits_evenly() {
        let topology = parse("cpus = 32\nnuma = 4\nmemory = \"4G\"").expect("well-formed").topology();
        let topology = topology.expect("a machine");
        assert_eq!((topology.vcpu_count(), topology.nodes().len(), topology.memory_bytes()), (32, 4, 4 << 30));
        assert_eq!(topology.node_of(VcpuIndex(8)), NodeId(1));
    }

    #[test]
    fn nodes_without_memory_of_their_own_share_the_machines() {
        let toml = "cpus = 3\nmemory = \"3M\"\n[[numa]]\ncpus = \"0-1\"\n[[numa]]\ncpus = \"2\"\n[[numa]]\n";
        let topology = parse(toml).expect("well-formed").topology().expect("a machine");
        assert_eq!(topology.nodes().iter().map(|node| node.memory_bytes).collect::<Vec<_>>(), [1 << 20; 3]);
        assert!(topology.nodes()[2].cpus.is_empty());
    }

    #[test]
    fn nodes_with_memory_need_no_sum_and_agree_with_one() {
        let nodes =
            "numa_distance = [\"0:1=21\"]\n[[numa]]\ncpus = \"0\"\nmemory = \"1G\"\n[[numa]]\nmemory = \"2G\"\n";
        for memory in ["", "memory = \"3G\"\n"] {
            let config = parse(&format!("{memory}{nodes}")).expect("well-formed");
            let topology = config.topology().expect("a machine");
            assert_eq!(topology.memory_bytes(), 3 << 30);
            assert_eq!(topology.distance(NodeId(0), NodeId(1)), 21);
        }
        assert_eq!(
            refused(&format!("memory = \"4G\"\n{nodes}")),
            "memory 4G: the nodes have 3G together; make the two equal or leave --memory out"
        );
    }

    #[test]
    fn what_is_no_machine_is_refused_with_its_cause() {
        let two = |first: &str, second: &str| refused(&format!("cpus = 4\n[[numa]]\n{first}\n[[numa]]\n{second}\n"));
        for (message, part) in [
            (refused("cpus = 0"), "0 CPUs"),
            (refused("cpus = 4294967295"), "4294967295 CPUs"),
            (refused("memory = 0"), "0 bytes of memory"),
            (
                refused("memory = 4097"),
                "memory 4097: is not a whole number of 4096-byte pages; the nearest below is 4K",
            ),
            (refused("memory = \"5000T\""), "memory 5000T: is more than x86 can address (4096T)"),
            (refused("memory = \"16777215T\"\ncpus = 1"), "more than x86 can address"),
            (refused("numa = 0"), "0 NUMA nodes"),
            (refused("numa = 4294967295"), "NUMA nodes"),
            (two("cpus = \"0-1\"", "cpus = \"3\""), "CPUs 2 are in no NUMA node"),
            (two("cpus = \"0-2\"", "cpus = \"2-3\""), "CPU 2 is in node 0 and in node 1"),
            (two("cpus = \"0-2\"", "cpus = \"3-4\""), "node 1 names CPU 4"),
            (two("cpus = \"0-2\"\nmemory = 4096", "cpus = \"3\""), "node 1 says no memory"),
            (two("cpus = \"0-2\"\nmemory = 4096", "cpus = \"3\"\nmemory = 0"), "node 1 has no memory"),
            (two("cpus = \"0-2\"\nmemory = 4097", "cpus = \"3\"\nmemory = 4096"), "not whole pages"),
            (two("memory = \"16777215T\"", "memory = \"16777215T\""), "more than"),
            (refused("cpus = 2\nnuma = 2\nnuma_distance = [\"0:1=9\"]"), "0:1=9 is below 10"),
            (refused("cpus = 3\nnuma = 3\nnuma_distance = [\"0:1=20\"]"), "none between nodes 0 and 2"),
            (refused("cpus = { count = 5, cores = 2 }"), "5 CPUs do not fit the shape"),
            (refused("initrd = \"x\""), "--initrd \"x\": belongs to a kernel"),
            (refused("cmdline = \"quiet\""), "use --probe"),
            (refused("probe = \"spin\\nseconds=3\""), "control character '\\n'"),
            (refused("probe = \"spn seconds=3\""), "did you mean `spin`?"),
            (refused("kernel = \"/absent\""), "--kernel /absent: cannot open it: No such file"),
            (refused("kernel = \"/\""), "--kernel /: is a directory"),
            (refused("kernel = \"/dev/null\""), "is a device"),
            (refused("kernel = \"\""), "cannot open it"),
            (refused("kernel = \"/proc/self/exe\"\nprobe = \"idle\""), "drop --kernel or --probe"),
            (refused("kernel = \"/proc/self/exe\"\ncmdline = \"a\\u0000b\""), "control character '\\0'"),
            (refused("kernel = \"/proc/self/exe\"\ninitrd = \"/\""), "--initrd /: is a directory"),
            (refused("pv = \"all\"\ndisable_exits = \"hlt,pause\""), "--pv all,-pv-unhalt"),
            (refused("hugepages = \"2M\"\nmemory = \"3M\""), "--hugepages 2M: node 0 has 3M of memory"),
            (refused("hugepages = \"1G\"\nmemory = \"3G\"\nnuma = 2"), "--hugepages 1G: node 0 has 1536M of memory"),
            (refused("report = \"/absent/run.json\""), "--report"),
            (refused("serial = \"file=/absent/log\""), "--serial"),
        ] {
            assert!(message.contains(part), "{message} should say {part}");
        }
    }

    #[test]
    fn a_number_of_nodes_stands_alone() {
        let numa = vec![NumaEntry::Split(2), NumaEntry::Node(NodeConfig::default())];
        let error = MachineConfig { numa, ..MachineConfig::default() }.resolve().expect_err("two ways at once");
        assert!(matches!(error, ConfigError::SplitIsNotAlone { nodes: 2 }));
    }

    #[test]
    fn an_empty_file_is_no_kernel() {
        let path = std::env::temp_dir().join(format!("vmm-empty-{}", std::process::id()));
        File::create(&path).expect("a file");
        let error = check_input("--kernel", &path).expect_err("empty").to_string();
        fs::remove_file(&path).expect("it was there");
        assert!(error.contains("is empty"), "{error}");
    }

    #[test]
    fn a_machine_of_which_nothing_is_said_runs_the_probe() {
        let machine = MachineConfig::default().resolve().expect("the defaults are a machine");
        assert_eq!(machine.boot, Boot::Probe { workload: "idle".to_owned() });
        assert_eq!((machine.topology.vcpu_count(), machine.topology.memory_bytes()), (1, 512 << 20));
        assert_eq!((machine.serial, machine.report), (SerialConfig::Stdio, None));
    }
}
