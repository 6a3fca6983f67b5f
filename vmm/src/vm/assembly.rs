// SPDX-License-Identifier: Apache-2.0
//! The stages from a machine's description to threads that wait for the word to run.
//!
//! Each stage is a type that only the stage before can make, and holds exactly what the later ones need. Dropping a
//! stage gives back everything it holds.

use std::sync::Arc;

use topology::apic::ApicLimits;
use topology::cpuid::{self, CpuidEntry, Vendor};
use topology::guest::GuestTopology;
use topology::id::VcpuIndex;
use topology::memory_map::{AddressSpace, MemoryMap};

use super::checkup;
use super::error::AssemblyError;
use super::observed::Onlookers;
use super::parts::Parts;
use super::payload;
use super::tables;
use crate::config::Machine;
use crate::host::limits;
use crate::kvm::system::System;
use crate::kvm::vcpu::{EntryState, Vcpu};
use crate::kvm::vm::Vm;
use crate::layout;
use crate::memory::GuestRam;
use crate::offer::Offers;
use crate::pause::setup::PauseSetup;
use crate::placement::start::Placement;
use crate::vcpu::kick;
use crate::vcpu::thread::{VcpuHandle, VcpuThreads};

/// First stage: a VM with its RAM.
pub struct WithMemory {
    machine: Machine,
    map: MemoryMap,
    host_cpuid: Vec<CpuidEntry>,
    vm: Vm,
    ram: GuestRam,
    placement: Placement,
    pause: PauseSetup,
    offers: Offers,
}

impl WithMemory {
    /// Makes the VM and gives it its RAM.
    ///
    /// # Errors
    /// What the host cannot do: too many vCPUs, too high an APIC id, no memory.
    pub fn map(machine: Machine, system: &System) -> Result<Self, AssemblyError> {
        let apic_limits = ApicLimits { x2apic: true, id_count: system.max_vcpu_id(), vcpu_count: system.max_vcpus() };
        machine.topology.check_apic(&apic_limits)?;
        limits::allow_open_files(machine.topology.vcpu_count())?;
        let mut host_cpuid = system.supported_cpuid().map_err(AssemblyError::SupportedCpuid)?;
        let (topology, map) = shape(machine.topology, &host_cpuid)?;
        let machine = Machine { topology, ..machine };
        let mut placement = Placement::decide(&machine)?;
        let ram = GuestRam::map(&map, machine.huge_pages)?;
        placement.bind(&map, &ram)?;
        let mut vm = Vm::create(system)?;
        vm.set_ram(ram.clone())?;
        let offers = Offers::prepare(&machine.offer, system, &vm, &mut host_cpuid).map_err(AssemblyError::Offer)?;
        // Where the kernel lacks it they fault in the guest all the same, and are not counted.
        let _ = vm.exit_on_unknown_msrs();
        let pause = PauseSetup::prepare(&machine, system, &vm, &ram, placement.usable_cpus())?;
        Ok(Self { machine, map, host_cpuid, vm, ram, placement, pause, offers })
    }

    /// Loads the kernel and writes everything it looks for in memory.
    ///
    /// # Errors
    /// A kernel that cannot be loaded, tables that do not fit.
    pub fn load(self) -> Result<Loaded, AssemblyError> {
        let tables = tables::build(&self.machine.topology, &self.map)?;
        checkup::examine(&self.host_cpuid, &self.machine.topology, &self.map, &tables.acpi)?;
        tables.write(&self.ram)?;
        let entry = payload::load(&self.machine.boot, &self.map, &self.ram, &tables)?;
        Ok(Loaded { memory: self, entry })
    }
}

/// The machine with the caches of the host, where CPUID tells them, and its memory laid out.
///
/// # Errors
/// [`AssemblyError::Shape`].
pub fn shape(topology: GuestTopology, host_cpuid: &[CpuidEntry]) -> Result<(GuestTopology, MemoryMap), AssemblyError> {
    let topology = topology.with_caches(cpuid::host_caches(host_cpuid))?;
    let map = MemoryMap::new(&topology, &address_space(host_cpuid))?;
    Ok((topology, map))
}

/// Where RAM can be: around the MMIO gap, up to the width of a physical address on this host.
fn address_space(host_cpuid: &[CpuidEntry]) -> AddressSpace {
    /// Widths that a processor without the leaf has (Intel SDM vol. 2A, CPUID, 80000008H).
    const DEFAULT_WIDTH_BITS: u8 = 36;
    // CPUID.80000008H:EAX[7:0]: physical address bits.
    let leaf = host_cpuid.iter().find(|entry| entry.function == 0x8000_0008);
    let width_bits = leaf.map_or(DEFAULT_WIDTH_BITS, |leaf| leaf.eax.to_le_bytes()[0]);
    AddressSpace { gap_start: layout::MMIO_GAP_START, gap_end: layout::MMIO_GAP_END, width_bits }
}

/// Second stage: guest memory holds all that the guest will find.
pub struct Loaded {
    memory: WithMemory,
    entry: EntryState,
}

impl Loaded {
    /// Makes the interrupt controllers and the devices, and connects them.
    ///
    /// # Errors
    /// No descriptors, a console that cannot be opened, a kernel that refuses an interrupt line.
    pub fn devices(self, onlookers: Onlookers) -> Result<WithDevices, AssemblyError> {
        let Self { memory: WithMemory { machine, host_cpuid, vm, ram, placement, pause, offers, .. }, entry } = self;
        let wide_ids = machine.topology.vcpus().any(|vcpu| machine.topology.apic_id(vcpu).0 > XAPIC_MAX_ID);
        vm.create_interrupt_controllers(wide_ids)?;
        let parts = Parts::connect(&vm, &machine.serial, onlookers)?;
        Ok(WithDevices { machine, host_cpuid, vm, ram, placement, pause, offers, entry, parts })
    }
}

/// Highest id that an xAPIC can address; 255 is its broadcast (Intel SDM vol. 3A, section 11.6.1).
const XAPIC_MAX_ID: u32 = 254;

/// Third stage: everything but vCPUs.
pub struct WithDevices {
    machine: Machine,
    host_cpuid: Vec<CpuidEntry>,
    vm: Vm,
    ram: GuestRam,
    placement: Placement,
    pause: PauseSetup,
    offers: Offers,
    entry: EntryState,
    parts: Parts,
}

impl WithDevices {
    /// Makes the vCPUs with their CPUID, puts vCPU 0 at the kernel's entry point and lets the others wait for SIPI.
    ///
    /// # Errors
    /// What the kernel refuses, vCPU by vCPU.
    pub fn vcpus(self) -> Result<WithVcpus, AssemblyError> {
        let topology = &self.machine.topology;
        let intel = Vendor::of(&self.host_cpuid) == Vendor::Intel;
        let mut vcpus = Vec::with_capacity(topology.vcpus().count());
        for index in topology.vcpus() {
            let vcpu = self.vm.create_vcpu(topology.apic_id(index))?;
            let failed = |what| move |source| AssemblyError::VcpuState { vcpu: index, what, source };
            let mut entries = cpuid::specialise(&self.host_cpuid, topology, index);
            self.pause.announce(&mut entries);
            self.offers.enforce(&vcpu).map_err(failed("paravirtual features"))?;
            vcpu.set_cpuid(&entries).map_err(|source| AssemblyError::Cpuid { vcpu: index, source })?;
            vcpu.set_firmware_msrs(intel).map_err(failed("model-specific registers"))?;
            if index == VcpuIndex(0) {
                vcpu.set_entry(self.entry).map_err(failed("entry state"))?;
            } else {
                vcpu.wait_for_sipi().map_err(failed("wait-for-SIPI state"))?;
            }
            vcpus.push(vcpu);
        }
        let Self { machine, vm, ram, placement, pause, offers, parts, .. } = self;
        Ok(WithVcpus { machine, vm, ram, placement, pause, offers, parts, vcpus })
    }
}

/// Fourth stage: vCPUs, and no threads yet.
pub struct WithVcpus {
    machine: Machine,
    vm: Vm,
    ram: GuestRam,
    placement: Placement,
    pause: PauseSetup,
    offers: Offers,
    parts: Parts,
    vcpus: Vec<Vcpu>,
}

impl WithVcpus {
    /// Starts a thread for each vCPU. None of them runs guest code before it is asked to.
    ///
    /// # Errors
    /// [`AssemblyError::Spawn`], or [`AssemblyError::Placement`] for CPUs they cannot be put on; the threads that were
    /// started before are ended again.
    pub fn threads(self) -> Result<Assembled, AssemblyError> {
        kick::install_handler().map_err(AssemblyError::KickHandler)?;
        let Self { machine, vm, ram, mut placement, mut pause, offers, parts, vcpus } = self;
        let handles = machine
            .topology
            .vcpus()
            .zip(vcpus)
            .map(|(index, vcpu)| {
                let apic_id = machine.topology.apic_id(index);
                let (buses, end) = (Arc::clone(&parts.buses), Arc::clone(&parts.end));
                VcpuHandle::spawn(index, apic_id, vcpu, buses, pause.hook(index), end)
            })
            .collect::<Result<VcpuThreads, _>>()?;
        placement.confine(&handles)?;
        if machine.core_scheduling {
            placement.share_cores(&handles);
        }
        pause.start()?;
        Ok(Assembled { handles, placement, pause, offers, parts, vm, ram, machine })
    }
}

/// Last stage: a machine that waits for the word to run.
pub struct Assembled {
    // Fields drop in order: threads end before what they use goes away.
    /// The vCPU threads.
    pub handles: VcpuThreads,
    /// Where they and the RAM are on the host.
    pub placement: Placement,
    /// The pause handling.
    pub pause: PauseSetup,
    /// What the guest is told of its host, and what KVM may do.
    pub offers: Offers,
    /// The devices.
    pub parts: Parts,
    /// The VM.
    pub vm: Vm,
    /// Its RAM.
    pub ram: GuestRam,
    /// The description all this was made from.
    pub machine: Machine,
}
