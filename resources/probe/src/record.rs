// SPDX-License-Identifier: Apache-2.0
//! The lines the probe guest prints, as types: one definition that the guest prints from and the monitor parses into.
//!
//! A line is `@probe KIND key=value …`. Keys are only ever added, at the end; `-` stands for a value that the guest does
//! not know. The invariant: what [`core::fmt::Display`] prints, [`Record::parse`](crate::report) reads back as the same
//! value. Compiled into the guest too, so it needs nothing but `core`.

use core::fmt;

use crate::command_line::{Ring, Workload};
use crate::value::{Bytes, Milli, Value, Word, words};

/// What every machine-readable line begins with.
pub const PREFIX: &str = "@probe";

words! {
    /// By which protocol the guest was entered.
    Protocol {
        /// The PVH note: 32-bit protected mode, `hvm_start_info`.
        Pvh = "pvh",
        /// The 64-bit ELF entry with `boot_params` (Linux 64-bit boot protocol).
        Linux64 = "linux64",
    }
}

words! {
    /// Where the frequency of the time-stamp counter comes from.
    ClockSource {
        /// `CPUID.(EAX=15H)`.
        Crystal = "cpuid15",
        /// `CPUID.(EAX=40000010H):EAX`, in kHz.
        Hypervisor = "cpuid40000010",
        /// The scale of KVM's clock page, MSR 0x4b564d01.
        KvmClock = "kvmclock",
        /// Measured against the local APIC's timer, taken to run at 1 GHz.
        LapicTimer = "lapic-timer",
    }
}

words! {
    /// What a cache holds.
    CacheKind {
        /// Data.
        Data = "data",
        /// Instructions.
        Instruction = "instruction",
        /// Both.
        Unified = "unified",
    }
}

words! {
    /// How a run ended, in the guest's own words.
    Status {
        /// The workload ran.
        Ok = "ok",
        /// The command line is wrong.
        Usage = "usage",
        /// The machine is not what it should be: no ACPI tables, a CPU that does not come up, no pause port.
        Machine = "machine",
        /// The guest itself failed: an exception or a panic.
        Fault = "fault",
    }
}

/// The structs, [`Record`], and both directions, from one list.
macro_rules! records {
    ($($(#[$doc:meta])* $name:ident = $kind:literal { $($(#[$fdoc:meta])* $field:ident: $type:ty),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
            pub struct $name { $($(#[$fdoc])* pub $field: $type),* }

            impl fmt::Display for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str(concat!("@probe ", $kind))?;
                    $(
                        f.write_str(concat!(" ", stringify!($field), "="))?;
                        self.$field.print(f)?;
                    )*
                    Ok(())
                }
            }

            impl $name {
                /// Takes every field from `lookup`; the error is the field that is missing (`None`) or not a value.
                pub(crate) fn collect<'a>(
                    lookup: impl Fn(&'static str) -> Option<&'a str>,
                ) -> Result<Self, (&'static str, Option<&'a str>)> {
                    Ok(Self {$(
                        $field: {
                            let text = lookup(stringify!($field));
                            text.and_then(Value::read).ok_or((stringify!($field), text))?
                        }
                    ),*})
                }
            }
        )*

        /// Any line of the probe guest.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Record {
            $($(#[$doc])* $name($name)),*
        }

        impl Record {
            /// The fields of `kind`, taken from `lookup`; `None` for a kind that this version does not know.
            #[allow(clippy::type_complexity, reason = "the error is a pair, used in one place")]
            pub(crate) fn collect<'a>(
                kind: &str,
                lookup: impl Fn(&'static str) -> Option<&'a str>,
            ) -> Option<Result<Self, (&'static str, Option<&'a str>)>> {
                match kind {
                    $($kind => Some($name::collect(lookup).map(Self::$name)),)*
                    _ => None,
                }
            }
        }

        impl fmt::Display for Record {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $(Self::$name(record) => record.fmt(f)),* }
            }
        }
    };
}

records! {
    /// First line of every run.
    Boot = "boot" {
        /// How the guest was entered.
        protocol: Protocol,
        /// Where `tsc_khz` comes from.
        clock: ClockSource,
        /// Frequency of the time-stamp counter, in kHz.
        tsc_khz: u64,
        /// CPUs that MADT lists as enabled.
        cpus: u32,
        /// Whether the APICs are used in x2APIC mode.
        x2apic: bool,
    }
    /// All CPUs that will come have come.
    Ready = "ready" {
        /// CPUs up beside the first.
        aps: u32,
        /// CPUs listed that did not come up.
        missing: u32,
        /// From the guest's first instruction in ring 3 to here, in microseconds.
        us: u64,
    }
    /// A CPU that is listed and did not come up.
    Missing = "missing" {
        /// Its position in MADT.
        index: u32,
        /// Its APIC id.
        apic_id: u32,
    }
    /// A CPU, as CPUID and SRAT show it. Numbers count within the level above; caches are numbered per kind of cache, and
    /// CPUs with the same number share it.
    Cpu = "cpu" {
        /// Its position in MADT.
        index: u32,
        /// The id its own CPUID tells.
        apic_id: u32,
        /// Package.
        package: u32,
        /// Die within the package.
        die: u32,
        /// Cluster (Intel: module) within the die.
        cluster: u32,
        /// Core within the cluster.
        core: u32,
        /// Thread within the core.
        thread: u32,
        /// NUMA node, from SRAT.
        node: Option<u32>,
        /// Level 1 data cache.
        l1d: Option<u32>,
        /// Level 1 instruction cache.
        l1i: Option<u32>,
        /// Level 2 cache.
        l2: Option<u32>,
        /// Level 3 cache.
        l3: Option<u32>,
    }
    /// A kind of cache, as the first CPU sees it.
    Cache = "cache" {
        /// 1 to 3.
        level: u8,
        /// What it holds.
        kind: CacheKind,
        /// Its size.
        bytes: u64,
        /// Its line size.
        line_bytes: u32,
        /// Its ways of associativity.
        ways: u32,
        /// How many of it there are among the CPUs that came up.
        count: u32,
        /// Whether every CPU describes it alike.
        uniform: bool,
    }
    /// A NUMA node.
    Node = "node" {
        /// Its proximity domain.
        id: u32,
        /// CPUs on it.
        cpus: u32,
        /// Memory on it.
        memory_bytes: u64,
    }
    /// A row of the distance matrix, or 64 columns of it.
    Distance = "distance" {
        /// From this node.
        from: u32,
        /// To this node and those after it.
        to: u32,
        /// One distance a node: 10 is local, 255 is unreachable.
        values: Bytes,
    }
    /// What the machine has, in sums.
    Machine = "machine" {
        /// CPUs that came up.
        cpus: u32,
        /// Nodes in SRAT.
        nodes: u32,
        /// RAM in the boot memory map.
        memory_bytes: u64,
        /// Whether there is a PPTT.
        pptt: bool,
        /// Whether there is an HMAT.
        hmat: bool,
        /// The pause port, if one is announced.
        pause_port: Option<u32>,
    }
    /// The workload begins with the next line on COM1.
    Waiting = "waiting" {
        /// CPUs that will take part.
        cpus: u32,
    }
    /// What one CPU did in the workload.
    Worker = "worker" {
        /// Its position in MADT.
        index: u32,
        /// Operations, in the workload's unit.
        operations: u64,
        /// Writes to the pause port.
        port_writes: u64,
        /// Time spent spinning, in microseconds; unknown where the workload does not time its spinning.
        spin_us: Option<u64>,
    }
    /// What the workload came to.
    Outcome = "result" {
        /// Which workload.
        workload: Workload,
        /// The ring it ran in.
        cpl: Ring,
        /// Whether the pause port was used.
        port: bool,
        /// Spins before a write to the port.
        spins: u32,
        /// CPUs that took part.
        cpus: u32,
        /// How long it ran, in microseconds.
        us: u64,
        /// All operations: iterations (spin), hand-overs (ring), acquisitions (ticket), rounds (ipi), records (ebizzy).
        operations: u64,
        /// The same per second.
        operations_per_s: u64,
        /// All writes to the pause port.
        port_writes: u64,
        /// Writes to the pause port per operation.
        writes_per_operation: Option<Milli>,
        /// Time spent spinning, of all CPUs.
        spin_us: Option<u64>,
        /// Median wait for the lock or the answer, in nanoseconds, to an eighth.
        wait_p50_ns: Option<u64>,
        /// 99th percentile.
        wait_p99_ns: Option<u64>,
        /// 99.9th percentile.
        wait_p999_ns: Option<u64>,
        /// Jain's index over the CPUs' operations: 1 is fair, 1/n is one CPU having it all.
        jain: Option<Milli>,
    }
    /// Something is wrong; the run ends.
    Error = "error" {
        /// What is wrong, as a fixed word.
        reason: Word,
        /// The value that is wrong.
        detail: Word,
    }
    /// Last line of every run.
    Done = "done" {
        /// How it ended.
        status: Status,
    }
}
