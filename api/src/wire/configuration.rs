// SPDX-License-Identifier: Apache-2.0
//! What a machine is asked to be: the keys of `vmm --config FILE`, as JSON.
//!
//! The monitor has the one struct that flags, file and this API fill; here its keys are named and carried. That the two name
//! the same keys is a test of the monitor's.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// A machine as `vmm --config FILE` writes it: a JSON object with the keys that docs/configuration.md lists.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Configuration(pub Map<String, Value>);

/// A machine as `vmm --config FILE` writes it; a key that is left out has the default of the flag of its name
/// (docs/configuration.md).
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "the fields are there for the document that is generated from them")]
struct Keys {
    /// vCPUs: a number, or an object with `count` and any of `sockets`, `dies`, `clusters`, `cores`, `threads`.
    #[schema(nullable = false)]
    cpus: Option<CpusValue>,
    /// Memory: bytes, or a text such as `512M`.
    #[schema(nullable = false)]
    memory: Option<SizeValue>,
    /// NUMA nodes: a number of equal ones, or a list of nodes.
    #[schema(nullable = false)]
    numa: Option<NumaValue>,
    /// Distances between nodes, each as `FROM:TO=DISTANCE`.
    #[schema(nullable = false)]
    numa_distance: Option<Vec<String>>,
    /// Path of a kernel image on the host.
    #[schema(nullable = false)]
    kernel: Option<String>,
    /// Path of an initial RAM disk on the host.
    #[schema(nullable = false)]
    initrd: Option<String>,
    /// Command line of the kernel.
    #[schema(nullable = false)]
    cmdline: Option<String>,
    /// Workload of the probe guest.
    #[schema(nullable = false)]
    probe: Option<String>,
    /// Where the serial port leads: `stdio`, `none` or `file=PATH`.
    #[schema(nullable = false)]
    serial: Option<String>,
    /// Path of the report on the host.
    #[schema(nullable = false)]
    report: Option<String>,
    /// Mode of the pause handling.
    #[schema(nullable = false)]
    pause: Option<super::PauseMode>,
    /// Where pause events come from: `auto`, `port`, `tracepoint` or `sampler`.
    #[schema(nullable = false)]
    pause_source: Option<String>,
    /// How a CPU is given away: `auto`, `none`, `yield`, `park` or `hypercall`.
    #[schema(nullable = false)]
    pause_mechanism: Option<String>,
    /// Parameters of the pause handling, each as `NAME=VALUE`.
    #[schema(nullable = false)]
    pause_set: Option<Vec<String>>,
    /// Path of the decision log on the host.
    #[schema(nullable = false)]
    decision_log: Option<String>,
    /// Holds vCPUs off their CPUs: `seed=N,mean=TIME,hold=TIME`.
    #[schema(nullable = false)]
    inject_preemption: Option<String>,
    /// Paravirtual features: `all`, `none`, or names.
    #[schema(nullable = false)]
    pv: Option<String>,
    /// Instructions that do not leave the guest.
    #[schema(nullable = false)]
    disable_exits: Option<String>,
    /// Longest time the kernel polls for a halted vCPU, in nanoseconds.
    #[schema(nullable = false)]
    halt_poll: Option<u32>,
    /// CPU features that the guest is not shown.
    #[schema(nullable = false)]
    cpu_mask: Option<String>,
    /// Where vCPU threads run: `auto`, `spread`, `pack`, `none` or `pin=[LIST]`.
    #[schema(nullable = false)]
    placement: Option<String>,
    /// Placement rules that are switched off: names with commas between.
    #[schema(nullable = false)]
    placement_off: Option<String>,
    /// Pages of guest memory on the host: `2M`, `1G`, `thp` or `none`.
    #[schema(nullable = false)]
    hugepages: Option<String>,
    /// Whether no other program's thread may share a core with a vCPU.
    #[schema(nullable = false)]
    core_scheduling: Option<bool>,
}

macro_rules! one_of {
    ($(#[$doc:meta])* $name:ident { $($variant:ident($inner:ty)),* }) => {
        $(#[$doc])*
        #[derive(ToSchema)]
        #[serde(untagged)]
        #[expect(dead_code, reason = "describes a value and never holds one")]
        enum $name { $($variant($inner)),* }
    };
}
one_of! {
    /// A number, or a shape.
    CpusValue { Count(u32), Shape(std::collections::BTreeMap<String, u32>) }
}
one_of! {
    /// Bytes, or a number with K, M, G or T.
    SizeValue { Bytes(u64), Text(String) }
}
one_of! {
    /// A number of equal nodes, or the nodes.
    NumaValue { Count(u32), Nodes(Vec<Map<String, Value>>) }
}

impl PartialSchema for Configuration {
    fn schema() -> RefOr<Schema> {
        Keys::schema()
    }
}

impl ToSchema for Configuration {
    fn name() -> std::borrow::Cow<'static, str> {
        "Configuration".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        Keys::schemas(schemas);
    }
}
