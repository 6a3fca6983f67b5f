// SPDX-License-Identifier: Apache-2.0
//! Where everything is in the guest's physical address space and I/O space.
//!
//! The only place with such numbers: tables, loaders and devices get theirs handed in from here, so that what ACPI
//! announces and what a device claims cannot differ.

/// Size of a page, the unit in which RAM is given to the guest, in bytes.
pub const PAGE_SIZE: u64 = 4096;

/// End of the conventional memory below the reserved area, as a PC's BIOS reports it (e820), exclusive.
pub const LOW_RAM_END: u64 = 0x9_FC00;
/// Start of RAM above the legacy hole, where kernels are loaded.
pub const HIGH_RAM_START: u64 = 0x10_0000;
/// Start of the MMIO gap below 4 GiB.
pub const MMIO_GAP_START: u64 = 0xC000_0000;
/// End of the MMIO gap, exclusive: RAM goes on here.
pub const MMIO_GAP_END: u64 = 0x1_0000_0000;

/// The boot processor's GDT (PVH leaves it to the loader; the 64-bit boot protocol demands one).
pub const GDT: u64 = 0x500;
/// Descriptors in it, 8 bytes each.
pub const GDT_ENTRIES: usize = 6;
/// Limit of the GDT register: the last byte's offset.
pub const GDT_LIMIT: u16 = 6 * 8 - 1;
/// `hvm_start_info` of the PVH boot protocol.
pub const PVH_START_INFO: u64 = 0x6000;
/// Memory map entries that the PVH start info points to.
pub const PVH_MEMORY_MAP: u64 = 0x6100;
/// Most entries that fit between [`PVH_MEMORY_MAP`] and the zero page.
pub const PVH_MEMORY_MAP_ENTRIES: usize = 128;
/// Modules that the PVH start info points to: the initial RAM disk.
pub const PVH_MODULES: u64 = 0x6E00;
/// `struct boot_params` of the 64-bit boot protocol, one page.
pub const ZERO_PAGE: u64 = 0x7000;
/// Page tables of the 64-bit boot protocol: PML4, page directory pointers, four page directories.
pub const PAGE_TABLES: u64 = 0x9000;
/// Kernel command line.
pub const COMMAND_LINE: u64 = 0x2_0000;
/// Room for the kernel command line, its NUL included, in bytes.
pub const COMMAND_LINE_BYTES: usize = 0x1_0000;

/// ACPI root pointer, in the range a PC operating system searches (ACPI 6.5, section 5.2.5.1).
pub const ACPI_RSDP: u64 = 0xE_0000;
/// End of the area behind the RSDP that holds the other tables while they fit, exclusive.
pub const ACPI_AREA_END: u64 = RESET_VECTOR;
/// Where an x86 processor begins in real mode, F000:FFF0: all the firmware that there is.
pub const RESET_VECTOR: u64 = 0xF_FFF0;

/// I/O APIC registers.
pub const IOAPIC: u32 = 0xFEC0_0000;
/// Local APIC registers.
pub const LOCAL_APIC: u32 = 0xFEE0_0000;
/// Three pages that VMX without unrestricted guest uses for its TSS; inside the gap, never RAM.
pub const KVM_TSS: usize = 0xFFFB_D000;

/// COM1: first of its eight I/O ports.
pub const SERIAL_PORT: u16 = 0x3F8;
/// COM1: its interrupt line.
pub const SERIAL_GSI: u32 = 4;
/// Keyboard controller: data port.
pub const I8042_DATA_PORT: u16 = 0x60;
/// Keyboard controller: status and command port; of the commands only the reset is there.
pub const I8042_COMMAND_PORT: u16 = 0x64;
/// ACPI sleep control register (hardware-reduced ACPI).
pub const SLEEP_CONTROL_PORT: u16 = 0x600;
/// ACPI sleep status register.
pub const SLEEP_STATUS_PORT: u16 = 0x601;
/// ACPI reset register.
pub const RESET_PORT: u16 = 0x602;
/// What the guest writes to [`RESET_PORT`] to reset.
pub const RESET_VALUE: u8 = 1;
/// Event register of the generic event device: which event raised the interrupt.
pub const EVENT_PORT: u16 = 0x603;
/// Interrupt line of the generic event device.
pub const EVENT_GSI: u32 = 9;
/// The pause port (docs/pause-port.md), the one behind it that takes a count too, and the one that also answers.
pub const PAUSE_PORT: u16 = 0x610;
/// See [`PAUSE_PORT`].
pub const PAUSE_COUNT_PORT: u16 = PAUSE_PORT + 4;
/// See [`PAUSE_PORT`].
pub const PAUSE_ANSWER_PORT: u16 = PAUSE_PORT + 8;
/// Where helper vCPUs (`kvm::helper_vcpu`) report that they are done. Never the guest's: they are vCPUs of their own.
pub const HELPER_PORT: u8 = 0x81;
/// Their page, in the address space of system management mode, where the guest has nothing.
pub const HELPER_PAGE: u64 = 0x1000;
/// pvpanic: the guest reports a panic here.
pub const PVPANIC_PORT: u16 = 0x505;
