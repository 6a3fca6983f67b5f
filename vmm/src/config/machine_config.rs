// SPDX-License-Identifier: Apache-2.0
//! The one struct that flags and `--config FILE` fill.
//!
//! Its fields are the flags and the keys; their documentation is the text of `--help`. Nothing here is checked against
//! anything else: that is [`MachineConfig::resolve`].

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{
    ByteSize, CpuMask, CpusConfig, DistanceConfig, EventThresholds, HugePages, InjectionConfig, MechanismChoice,
    NumaEntry, PauseMode, PauseParameter, PlacementConfig, PvChoice, QuietExits, RulesOff, SerialConfig, SourceChoice,
    numa,
};

/// A machine as it was asked for, with everything that was not said left open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
#[serde(default, deny_unknown_fields)]
#[command(next_help_heading = "Machine")]
pub struct MachineConfig {
    /// vCPUs and their shape [default: 1]
    ///
    /// A level that is left out is chosen so that the levels multiply up to N.
    #[arg(long, value_name = "N[,sockets=..,dies=..,clusters=..,cores=..,threads=..]")]
    #[serde(
        serialize_with = "CpusConfig::serialize_shortest",
        deserialize_with = "CpusConfig::deserialize_any_form",
        skip_serializing_if = "Option::is_none"
    )]
    pub cpus: Option<CpusConfig>,

    /// Memory: bytes, or with K, M, G or T [default: 512M, or the sum over the nodes]
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<ByteSize>,

    /// NUMA nodes: a number of equal ones, or once for each node
    ///
    /// `--numa 4` splits vCPUs and memory evenly. `--numa cpus=[0-7],memory=1G` is one node; `cpus=[]` is a node with
    /// memory alone. `host-node=0` puts it on a node of the host, `policy=` (default, preferred, bind, interleave) says
    /// how its memory is tied to that.
    #[arg(long, value_name = "N | cpus=[LIST],memory=SIZE[,host-node=N][,policy=P]")]
    #[serde(with = "numa", skip_serializing_if = "Vec::is_empty")]
    pub numa: Vec<NumaEntry>,

    /// Distance from a node to another; repeatable [default: 20 for all]
    ///
    /// A direction that is not given is the same as the other. 10 is local, 254 the greatest.
    #[arg(long, value_name = "FROM:TO=DISTANCE")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub numa_distance: Vec<DistanceConfig>,

    /// Kernel image, known by its content; without it the built-in probe guest runs
    #[arg(long, value_name = "FILE", help_heading = "Boot")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<PathBuf>,

    /// Initial RAM disk for the kernel
    #[arg(long, value_name = "FILE", help_heading = "Boot")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initrd: Option<PathBuf>,

    /// Command line for the kernel
    #[arg(long, value_name = "TEXT", help_heading = "Boot", allow_hyphen_values = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cmdline: Option<String>,

    /// Workload of the probe guest and its parameters, as in "spin seconds=3" [default: idle]
    #[arg(long, value_name = "WORKLOAD", help_heading = "Boot")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe: Option<String>,

    /// Where the guest's serial port leads [default: stdio]
    #[arg(long, value_name = "stdio | none | file=PATH", help_heading = "Output")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<SerialConfig>,

    /// Write the run as JSON at its end (docs/report.md)
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<PathBuf>,

    /// What is done about pause loops [default: act]
    #[arg(long, value_enum, value_name = "MODE", help_heading = "Pause loops")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<PauseMode>,

    /// Where pause events come from [default: auto]
    #[arg(long, value_enum, value_name = "SOURCE", help_heading = "Pause loops")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_source: Option<SourceChoice>,

    /// How a CPU is given away; any but auto is used always, without a policy [default: auto]
    #[arg(long, value_enum, value_name = "MECHANISM", help_heading = "Pause loops")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_mechanism: Option<MechanismChoice>,

    /// A parameter of the policy or of a source; repeatable, the last one counts
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Pause loops")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pause_set: Vec<PauseParameter>,

    /// Write every decision about a pause loop to a file; `vmm replay FILE` makes them again
    #[arg(long, value_name = "FILE", help_heading = "Pause loops")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision_log: Option<PathBuf>,

    /// Hold vCPUs off their CPUs by a seeded schedule, as in seed=7,mean=10ms,hold=3ms
    #[arg(long, value_name = "seed=N,mean=TIME,hold=TIME[,vcpus=LIST]", help_heading = "Pause loops")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inject_preemption: Option<InjectionConfig>,

    /// Paravirtual features of KVM: all, none, names, or all without -NAME [default: what KVM offers]
    ///
    /// kvmclock, async-pf, steal-time, pv-eoi, pv-unhalt, pv-tlb-flush, pv-ipi, poll-control, pv-sched-yield.
    #[arg(long, value_name = "FEATURE,...", help_heading = "Guest and KVM", allow_hyphen_values = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pv: Option<PvChoice>,

    /// Instructions that do not leave the guest: hlt, mwait, pause, cstate [default: none]
    #[arg(long, value_name = "EXIT,...", help_heading = "Guest and KVM")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_exits: Option<QuietExits>,

    /// Longest time the kernel polls for a halted vCPU, in nanoseconds [default: the host's]
    #[arg(long, value_name = "NS", help_heading = "Guest and KVM")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub halt_poll: Option<u32>,

    /// CPU features that the guest is not shown, by their names in /proc/cpuinfo
    #[arg(long, value_name = "FEATURE,...", help_heading = "Guest and KVM")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_mask: Option<CpuMask>,

    /// Where vCPU threads run [default: auto]
    ///
    /// `auto` decides by the host's shape and keeps deciding, `spread` and `pack` decide once, `none` leaves it to the
    /// kernel, `pin=[0,1]` names the CPUs. `,exclusive` behind it keeps other machines off (docs/placement.md).
    #[arg(long, value_name = "auto | spread | pack | none | pin=[LIST]", help_heading = "Placement")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<PlacementConfig>,

    /// Rules of placement that are switched off, by name, to see what each is worth [default: pair]
    ///
    /// house, claims, numa, whole-core, cluster, pair, asym, busiest, scan-budget, rate-limit; `none` switches none off.
    #[arg(long, value_name = "RULE,... | none", help_heading = "Placement")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement_off: Option<RulesOff>,

    /// Pages of guest memory on the host [default: what the host does by itself]
    ///
    /// `2M` and `1G` come from the host's pool and are reserved before the guest starts, `thp` asks for transparent huge
    /// pages, `none` for pages of 4 KiB alone.
    #[arg(long, value_enum, value_name = "PAGES", help_heading = "Placement")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hugepages: Option<HugePages>,

    /// Let no other program's threads run on a core beside a vCPU, where cores have several threads
    #[arg(
        long,
        value_name = "true | false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        help_heading = "Placement"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub core_scheduling: Option<bool>,

    /// Offer the control API on a Unix socket at this path, for the user who runs the machine (docs/api.md)
    #[arg(long, value_name = "PATH", help_heading = "Control API")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_sock: Option<PathBuf>,

    /// Offer it on TCP as well, on this machine only and with a token; port 0 takes a free one and says which
    #[arg(long, value_name = "127.0.0.1:PORT", help_heading = "Control API")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_listen: Option<SocketAddr>,

    /// File with the token that clients on TCP need
    #[arg(long, value_name = "FILE", help_heading = "Control API")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_token_file: Option<PathBuf>,

    /// Make no machine: wait for one to be asked for through the API
    #[arg(
        long,
        value_name = "true | false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        help_heading = "Control API"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_only: Option<bool>,

    /// From which numbers on events tell of pause pressure and stolen time [default: 10000 a second, 100 permille]
    #[arg(long, value_name = "pause-events-per-s=N,steal-permille=N", help_heading = "Control API")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_thresholds: Option<EventThresholds>,
}

impl MachineConfig {
    /// Memory of a machine of which nothing is said.
    pub const DEFAULT_MEMORY: ByteSize = ByteSize(512 << 20);
    /// Workload of a probe guest of which nothing is said.
    pub const DEFAULT_PROBE: &str = "idle";

    /// This configuration, with what it leaves open taken from `below`. A list that is given replaces the other list.
    #[must_use]
    pub fn over(self, below: Self) -> Self {
        /// A list that is not given says nothing.
        fn list<T>(above: Vec<T>, below: Vec<T>) -> Vec<T> {
            if above.is_empty() { below } else { above }
        }
        Self {
            cpus: self.cpus.or(below.cpus),
            memory: self.memory.or(below.memory),
            numa: list(self.numa, below.numa),
            numa_distance: list(self.numa_distance, below.numa_distance),
            kernel: self.kernel.or(below.kernel),
            initrd: self.initrd.or(below.initrd),
            cmdline: self.cmdline.or(below.cmdline),
            probe: self.probe.or(below.probe),
            serial: self.serial.or(below.serial),
            report: self.report.or(below.report),
            pause: self.pause.or(below.pause),
            pause_source: self.pause_source.or(below.pause_source),
            pause_mechanism: self.pause_mechanism.or(below.pause_mechanism),
            pause_set: list(self.pause_set, below.pause_set),
            decision_log: self.decision_log.or(below.decision_log),
            inject_preemption: self.inject_preemption.or(below.inject_preemption),
            pv: self.pv.or(below.pv),
            disable_exits: self.disable_exits.or(below.disable_exits),
            halt_poll: self.halt_poll.or(below.halt_poll),
            cpu_mask: self.cpu_mask.or(below.cpu_mask),
            placement: self.placement.or(below.placement),
            placement_off: self.placement_off.or(below.placement_off),
            hugepages: self.hugepages.or(below.hugepages),
            core_scheduling: self.core_scheduling.or(below.core_scheduling),
            api_sock: self.api_sock.or(below.api_sock),
            api_listen: self.api_listen.or(below.api_listen),
            api_token_file: self.api_token_file.or(below.api_token_file),
            api_only: self.api_only.or(below.api_only),
            api_thresholds: self.api_thresholds.or(below.api_thresholds),
        }
    }

    /// This configuration with the documented defaults put in: what a run really uses.
    ///
    /// Memory stays open where the nodes say theirs, for it is their sum.
    #[must_use]
    pub fn effective(self) -> Self {
        let nodes_say = self.numa.iter().any(|entry| matches!(entry, NumaEntry::Node(node) if node.memory.is_some()));
        let defaults = Self {
            cpus: Some(CpusConfig::flat(1)),
            memory: (!nodes_say).then_some(Self::DEFAULT_MEMORY),
            probe: self.kernel.is_none().then(|| Self::DEFAULT_PROBE.to_owned()),
            serial: Some(SerialConfig::Stdio),
            pause: Some(PauseMode::default()),
            pause_source: Some(SourceChoice::default()),
            pause_mechanism: Some(MechanismChoice::default()),
            placement: Some(PlacementConfig::default()),
            ..Self::default()
        };
        self.over(defaults)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_above_wins_and_what_is_below_fills() {
        let above = MachineConfig { cpus: Some(CpusConfig::flat(4)), ..MachineConfig::default() };
        let below = MachineConfig {
            cpus: Some(CpusConfig::flat(2)),
            memory: Some(ByteSize(1 << 30)),
            numa: vec![NumaEntry::Split(2)],
            ..MachineConfig::default()
        };
        let both = above.over(below.clone());
        assert_eq!(both, MachineConfig { cpus: Some(CpusConfig::flat(4)), ..below });
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        let effective = MachineConfig::default().effective();
        assert_eq!(effective.cpus, Some(CpusConfig::flat(1)));
        assert_eq!(effective.memory, Some(ByteSize(512 << 20)));
        assert_eq!(effective.probe.as_deref(), Some("idle"));
        assert_eq!(effective.serial, Some(SerialConfig::Stdio));
        assert_eq!(effective.clone().effective(), effective);
    }

    #[test]
    fn a_kernel_has_no_workload_and_nodes_have_their_own_memory() {
        let node = "cpus=[0],memory=1G".parse().expect("well-formed");
        let asked = MachineConfig { kernel: Some("vmlinux".into()), numa: vec![node], ..MachineConfig::default() };
        let effective = asked.effective();
        assert_eq!((effective.probe, effective.memory), (None, None));
    }
}
