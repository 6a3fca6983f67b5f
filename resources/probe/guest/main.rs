// SPDX-License-Identifier: Apache-2.0
//! The probe guest: starts every CPU, says what the machine looks like, runs a workload, turns the machine off.
//!
//! boot.S brings each CPU to ring 3, the first into [`probe_first_main`], the others into smp.rs. Invariant: nothing is
//! assumed of the machine that the boot information, CPUID or an ACPI table does not say, but COM1 and pvpanic.

#![no_std]
#![no_main]

mod acpi;
mod apic;
mod block;
mod clock;
#[path = "../src/command_line.rs"]
mod command_line;
mod cpu_seen;
mod hardware;
mod histogram;
mod idt;
mod memory;
mod pause_port;
mod power;
#[path = "../src/record.rs"]
#[expect(dead_code, reason = "shared with the monitor, which uses more of it")]
mod record;
mod serial;
mod service;
mod smp;
mod tell;
#[path = "../src/value.rs"]
mod value;
mod workload;

use core::sync::atomic::Ordering;

use acpi::{PhysicalMemory, Root};
use block::Block;
use clock::Clocks;
use command_line::Command;
use memory::{Arena, BootInfo, Identity};
use record::{Boot, Missing, Ready, Status};
use serial::say;

/// The first CPU, in ring 3, with interrupts off.
#[unsafe(no_mangle)]
extern "C" fn probe_first_main(first: &'static Block) -> ! {
    let began = hardware::tsc();
    idt::fill();
    let boot = BootInfo::read().unwrap_or_else(|what| power::fail(Status::Machine, "missing", what));
    let tables = Root::find(&Identity, boot.rsdp);
    if let Some(fadt) = tables.ok().and_then(|root| root.table(&Identity, b"FACP")) {
        power::remember(acpi::power(&Identity, fadt));
    }
    let command = Command::parse(boot.command_line())
        .unwrap_or_else(|wrong| power::fail(Status::Usage, wrong.reason(), wrong.word().as_str()));
    let root = tables.unwrap_or_else(|acpi::Missing(what)| power::fail(Status::Machine, "missing", what));
    let mut arena = boot.arena().unwrap_or_else(|| power::fail(Status::Machine, "missing", "memory"));
    let clocks = start(first, boot, &root, &mut arena, began);
    let port = pause_port::find();
    tell::report(command.detail, &tables_of(&root, &Identity), boot, port.map(|p| p.number));
    workload::run(first, &command, port, &clocks, &root, &mut arena);
    power::end(Status::Ok)
}

fn tables_of(root: &Root, memory: &impl PhysicalMemory) -> tell::Tables {
    let has = |signature| root.table(memory, signature).is_some();
    tell::Tables {
        srat: root.table(memory, b"SRAT"),
        slit: root.table(memory, b"SLIT"),
        pptt: has(b"PPTT"),
        hmat: has(b"HMAT"),
    }
}

/// Starts all CPUs that MADT lists; prints `boot`, `missing` and `ready`.
fn start(first: &'static Block, boot: &BootInfo, root: &Root, arena: &mut Arena, began: u64) -> Clocks {
    let madt = root.table(&Identity, b"APIC").unwrap_or_else(|| power::fail(Status::Machine, "missing", "madt"));
    let slots = smp::list(acpi::cpus(madt), arena).unwrap_or_else(power::out_of_memory);
    apic::choose_mode(slots.iter().map(|slot| slot.apic_id).max().unwrap_or(0));
    apic::enable();
    service::set_interrupts(true);
    let clocks = Clocks::find();
    let (cpus, x2apic) = (slots.len() as u32, apic::is_x2apic());
    say!("{}", Boot { protocol: boot.protocol, clock: clocks.source, tsc_khz: clocks.tsc_khz, cpus, x2apic });
    if !smp::arrive(first) {
        power::fail(Status::Machine, "not-in-madt", "first-cpu");
    }
    let low_page = boot.low_page().unwrap_or_else(|| power::fail(Status::Machine, "missing", "low-memory"));
    let aps = smp::start_all(first, low_page, &clocks, arena).unwrap_or_else(power::out_of_memory);
    let ready = Ready { aps, missing: cpus - 1 - aps, us: clocks.us(hardware::tsc() - began) };
    say!("{ready}");
    for (index, slot) in (0..).zip(slots).filter(|(_, slot)| slot.block().is_none()) {
        say!("{}", Missing { index, apic_id: slot.apic_id });
    }
    for (rank, block) in (0..).zip(smp::present()) {
        block.rank.store(rank, Ordering::Relaxed);
    }
    clocks
}

/// An exception that no handler of traps.S knows, on the CPU that took it.
#[unsafe(no_mangle)]
extern "C" fn probe_fault_main(block: &'static Block) -> ! {
    let of = |word: &core::sync::atomic::AtomicU64| word.load(Ordering::Relaxed);
    let index = block.index.load(Ordering::Relaxed);
    say!(
        "probe: exception {} (error {:#x}) at {:#x}, address {:#x}, on CPU {index}",
        of(&block.fault_vector),
        of(&block.fault_error),
        of(&block.fault_rip),
        of(&block.fault_address)
    );
    power::fail(Status::Fault, "exception", "see-the-line-before")
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    say!("probe: {info}");
    power::fail(Status::Fault, "panic", "see-the-line-before")
}
