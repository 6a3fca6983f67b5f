// SPDX-License-Identifier: Apache-2.0
//! The exact view: a BPF program looks the threads up and reads the numbers that the kernel's own bail-out reads.

use std::fs;
use std::io;
use std::sync::{Mutex, PoisonError};

use topology::id::HostCpu;

use super::ThreadSeen;
use crate::host::bpf::FarMember;
use crate::host::bpf::btf::{Btf, BtfError};
use crate::host::bpf::load::{LoadError, Program};
use crate::host::bpf::program::{self, ABSENT, Kernel, Lookup, SLOTS, word};
use crate::host::bpf::table::Table;

/// Where the kernel publishes its types.
const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";
/// More than any kernel's types take: they are below 10 MiB.
const TYPES_MAX: u64 = 64 << 20;
/// The link of a process in the first pid namespace (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// The exact view is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum ExactError {
    /// The kernel does not publish its types.
    #[error("{KERNEL_TYPES}: {0}; a kernel with CONFIG_DEBUG_INFO_BTF has it")]
    NoTypes(#[source] io::Error),
    /// They are larger than any kernel's.
    #[error("{KERNEL_TYPES} has {bytes} bytes; at most {TYPES_MAX} are read")]
    TypesSize {
        /// Its size.
        bytes: u64,
    },
    /// They are not understood, or something is not there.
    #[error(transparent)]
    Types(#[from] BtfError),
    /// A member lies too far out.
    #[error(transparent)]
    Far(#[from] FarMember),
    /// This process lives in a pid namespace of its own, whose ids the kernel's look-up does not take.
    #[error(
        "this process is in a pid namespace of its own, and this kernel's BPF finds tasks by their ids in the first one; \
         Linux 6.14 and later have bpf_task_from_vpid"
    )]
    OtherPidNamespace,
    /// No table.
    #[error("no BPF map can be made: {0}; run as root or with CAP_BPF and CAP_PERFMON")]
    Table(#[source] io::Error),
    /// No program.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// It does not run.
    #[error("the BPF program does not run: {0}")]
    Run(#[source] io::Error),
}

/// The kernel's own numbers.
#[derive(Debug)]
pub struct Exact {
    program: Program,
    // One look at a time: the table is the program's argument and its result.
    table: Mutex<Table>,
}

impl Exact {
    /// Reads the kernel's types, makes the program, loads it and runs it once. Takes tens of milliseconds and, while it
    /// does, as much memory as the kernel's types.
    ///
    /// # Errors
    /// [`ExactError`]; nothing is left in the kernel.
    pub fn open() -> Result<Self, ExactError> {
        // The map first: without privileges it ends here, before anything is read.
        let table = Table::new().map_err(ExactError::Table)?;
        let kernel = kernel_at_hand()?;
        if kernel.lookup == Lookup::Initial && !in_first_pid_namespace() {
            return Err(ExactError::OtherPidNamespace);
        }
        let program = Program::load(&program::assemble(&kernel, table.fd())?)?;
        table.set_count(0);
        program.run().map_err(ExactError::Run)?;
        Ok(Self { program, table: Mutex::new(table) })
    }

    /// Looks at the threads of this process with these ids; `seen` is emptied and gets one entry a thread, in order. Called
    /// by any thread, also at the same time.
    ///
    /// # Errors
    /// The kernel's own; a thread that has ended is no error.
    pub fn look(&self, threads: &[i32], seen: &mut Vec<ThreadSeen>) -> io::Result<()> {
        seen.clear();
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        for chunk in threads.chunks(SLOTS) {
            for (slot, tid) in chunk.iter().enumerate() {
                table.set(slot, word::TID, tid.cast_unsigned());
            }
            table.set_count(chunk.len());
            self.program.run()?;
            seen.extend((0..chunk.len()).map(|slot| seen_in(&table, slot)));
        }
        Ok(())
    }
}

fn seen_in(table: &Table, slot: usize) -> ThreadSeen {
    let get = |word| table.get(slot, word);
    let runnable = get(word::RUNNABLE);
    if runnable == ABSENT {
        return ThreadSeen::default();
    }
    ThreadSeen {
        runqueue: Some(runnable),
        on_cpu: Some(get(word::ON_CPU) != 0),
        runnable: Some(get(word::STATE) == 0),
        cpu: Some(HostCpu(get(word::CPU))),
    }
}

fn kernel_at_hand() -> Result<Kernel, ExactError> {
    let bytes = fs::metadata(KERNEL_TYPES).map_err(ExactError::NoTypes)?.len();
    if bytes > TYPES_MAX {
        return Err(ExactError::TypesSize { bytes });
    }
    let types = fs::read(KERNEL_TYPES).map_err(ExactError::NoTypes)?;
    Ok(Kernel::of(&Btf::parse(&types)?)?)
}

fn in_first_pid_namespace() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() == FIRST_PID_NAMESPACE)
}
