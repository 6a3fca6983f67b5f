// SPDX-License-Identifier: Apache-2.0
//! Why a machine could not be put together: one variant a stage's way to fail, for [`super::assembly`] and what it calls.

use std::io;

use devices::bus::BusError;
use topology::apic::ApicError;
use topology::guest::TopologyError;
use topology::id::VcpuIndex;

use super::checkup::CheckupError;
use super::payload::PayloadError;
use super::tables::TablesError;
use crate::host::limits::OpenFilesError;
use crate::kvm::cpuid::CpuidError;
use crate::kvm::vm::VmError;
use crate::memory::MemoryError;
use crate::pause::setup::PauseError;
use crate::placement::error::StartError;
use crate::vcpu::thread::SpawnError;

/// A machine could not be put together.
#[derive(Debug, thiserror::Error)]
pub enum AssemblyError {
    /// More vCPUs, or higher APIC ids, than KVM allows.
    #[error("this host's KVM cannot run the machine: {0}")]
    Apic(#[from] ApicError),
    /// Too few open files are allowed.
    #[error(transparent)]
    OpenFiles(#[from] OpenFilesError),
    /// CPUID of the host could not be read.
    #[error("KVM does not tell what CPUID can show (KVM_GET_SUPPORTED_CPUID): {0}")]
    SupportedCpuid(#[source] io::Error),
    /// Caches that make no sense, or more memory than physical addresses reach on this host.
    #[error(transparent)]
    Shape(#[from] TopologyError),
    /// What the guest is told, and what KVM may do.
    #[error("KVM refuses what it says it has (--pv, --disable-exits, --halt-poll): {0}; leave the flags out")]
    Offer(#[source] io::Error),
    /// RAM.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A request about the VM.
    #[error(transparent)]
    Vm(#[from] VmError),
    /// The kernel, its command line, its boot information.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// The ACPI tables.
    #[error(transparent)]
    Tables(#[from] TablesError),
    /// What the guest would be told is inconsistent.
    #[error(transparent)]
    Checkup(#[from] CheckupError),
    /// The console's output.
    #[error("the guest's serial port cannot be connected to {target}: {source}")]
    Console {
        /// What `--serial` names.
        target: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// No descriptor is left for an interrupt line or an event.
    #[error("no event descriptor can be made: {0}; raise the limit on open files (ulimit -n)")]
    EventDescriptor(#[source] io::Error),
    /// Two devices claim the same address: a fault of the layout.
    #[error("the device layout is inconsistent: {0}")]
    Bus(#[from] BusError),
    /// A vCPU did not take its first state.
    #[error("vCPU {vcpu} does not take its {what}: {source}")]
    VcpuState {
        /// Which vCPU.
        vcpu: VcpuIndex,
        /// What was set.
        what: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The placement.
    #[error(transparent)]
    Placement(#[from] StartError),
    /// A vCPU did not take its CPUID.
    #[error("vCPU {vcpu} does not take its CPUID: {source}")]
    Cpuid {
        /// Which vCPU.
        vcpu: VcpuIndex,
        /// Why.
        source: CpuidError,
    },
    /// The pause handling.
    #[error(transparent)]
    Pause(#[from] PauseError),
    /// The kick's signal handler.
    #[error("the signal handler for kicks cannot be installed: {0}")]
    KickHandler(#[source] io::Error),
    /// A thread.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
}
