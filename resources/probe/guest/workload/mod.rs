// SPDX-License-Identifier: Apache-2.0
//! What all workloads have in common: a plan that every CPU reads, a ring to run in, one result.
//!
//! The plan is written before the CPUs are told to begin and not changed after. Invariant: hot loops (`.text.hot`) use
//! nothing that an emulated ring 0 cannot execute; the build's test looks at their instructions.

mod ebizzy;
mod echo;
mod ipi;
mod ring;
mod spin;
mod ticket;

use core::cell::UnsafeCell;
use core::num::NonZeroU32;
use core::sync::atomic::Ordering;

use crate::acpi::Root;
use crate::apic;
use crate::block::{Block, Isolated};
use crate::clock::Clocks;
use crate::command_line::{Command, PortUse, Ring, Send, Wait, Workload};
use crate::hardware::tsc;
use crate::histogram::quantile;
use crate::memory::Arena;
use crate::pause_port::{PausePort, Spinner, Written};
use crate::power;
use crate::record::{Outcome, Status, Worker};
use crate::serial::say;
use crate::service;
use crate::smp;
use crate::value::Milli;

/// What every worker needs to know.
pub struct Plan {
    workload: Workload,
    cpl: Ring,
    port: Option<Written>,
    spins: u32,
    hold: u32,
    think: u32,
    send: Send,
    workers: u32,
    timer_ticks: u32,
    heap: ebizzy::Heap,
    /// CPUs of a ring.
    ring_size: NonZeroU32,
    /// The owner of each ring's lock.
    rings: &'static [Isolated],
    /// APIC ids by rank.
    apic_ids: &'static [u32],
}

struct SharedPlan(UnsafeCell<Plan>);

// SAFETY: written by the first CPU before it raises the generation with release ordering, read by workers after.
unsafe impl Sync for SharedPlan {}

static PLAN: SharedPlan = SharedPlan(UnsafeCell::new(Plan {
    workload: Workload::Report,
    cpl: Ring::User,
    port: None,
    spins: 1,
    hold: 0,
    think: 0,
    send: Send::Broadcast,
    workers: 1,
    timer_ticks: 1,
    heap: ebizzy::Heap::none(),
    ring_size: NonZeroU32::MIN,
    rings: &[],
    apic_ids: &[],
}));

fn plan() -> &'static Plan {
    // SAFETY: see SharedPlan.
    unsafe { &*PLAN.0.get() }
}

impl Plan {
    const fn spinner(&self) -> Spinner {
        Spinner::new(self.port, self.spins)
    }
}

/// Whether the run is over.
#[inline(always)]
fn stopped() -> bool {
    smp::stop_word().load(Ordering::Relaxed) != 0
}

/// Passes time without memory accesses.
#[inline(always)]
fn busy(iterations: u32) {
    for i in 0..iterations {
        core::hint::black_box(i);
    }
}

/// Where traps.S sends every CPU but the first.
#[unsafe(no_mangle)]
extern "C" fn probe_other_main(block: &'static Block) -> ! {
    smp::serve(block, work)
}

/// One worker's part, in the ring that the plan names. Every CPU has its timer armed, and the first that fires ends the
/// run for all: on an overcommitted host the timer of one CPU may have to wait for that CPU's turn.
fn work(block: &'static Block) {
    let argument = core::ptr::from_ref(block) as u64;
    apic::arm_timer(plan().timer_ticks);
    match plan().cpl {
        Ring::User => in_any_ring(argument),
        // SAFETY: everything from here on is in .text.hot.
        Ring::Kernel => unsafe { service::call_ring0(in_any_ring, argument) },
    }
    apic::stop_timer();
}

#[unsafe(link_section = ".text.hot.workload")]
extern "C" fn in_any_ring(argument: u64) {
    // SAFETY: `work` passes a block.
    let block = unsafe { &*(argument as *const Block) };
    let plan = plan();
    block.began.store(tsc(), Ordering::Relaxed);
    match plan.workload {
        Workload::Spin => spin::work(block),
        Workload::Ring => ring::work(plan, block),
        Workload::Ticket => ticket::work(plan, block),
        Workload::Ipi => ipi::work(plan, block),
        Workload::Ebizzy => ebizzy::work(plan, block),
        _ => {}
    }
    block.ended.store(tsc(), Ordering::Relaxed);
}

/// Runs the workload that was asked for.
pub fn run(
    first: &'static Block,
    command: &Command,
    port: Option<PausePort>,
    clocks: &Clocks,
    root: &Root,
    arena: &mut Arena,
) {
    if command.wait == Wait::Line {
        echo::wait_for_line(first, root);
    }
    match command.workload {
        Workload::Report => {}
        Workload::Idle => smp::sleep(clocks, u64::from(command.duration_ms) * 1000),
        Workload::Echo => echo::run(first, root),
        Workload::Reset => power::reset(),
        Workload::I8042Reset => power::i8042_reset(),
        Workload::TripleFault => service::triple_fault(),
        Workload::Panic => power::fail(Status::Fault, "asked-for", "panic"),
        Workload::Hang => hang(),
        Workload::Spin | Workload::Ring | Workload::Ticket | Workload::Ipi | Workload::Ebizzy => {
            measure(first, command, port, clocks, arena);
        }
    }
}

/// The others halt already; this CPU stops for good.
fn hang() -> ! {
    service::stop()
}

fn make_plan(command: &Command, announced: Option<PausePort>, clocks: &Clocks, arena: &mut Arena) -> Plan {
    if command.port == PortUse::On && announced.is_none() {
        power::fail(Status::Machine, "missing", "pause-port");
    }
    let port = announced.filter(|_| command.port != PortUse::Off);
    let workers = smp::present().count();
    let ring_size = NonZeroU32::new(command.ring_size).or(NonZeroU32::new(workers as u32)).unwrap_or(NonZeroU32::MIN);
    let id = |rank| smp::present().nth(rank).map_or(u32::MAX, |block| block.apic_id.load(Ordering::Relaxed));
    Plan {
        workload: command.workload,
        cpl: command.cpl,
        port: port.map(|port| port.written(command.spins.is_some())),
        spins: command.spins.or(announced.map(|port| port.spins)).unwrap_or(1000),
        hold: command.hold,
        think: command.think,
        send: command.send,
        workers: workers as u32,
        timer_ticks: clocks.timer_ticks(u64::from(command.duration_ms) * 1000),
        heap: match command.workload {
            Workload::Ebizzy => {
                ebizzy::Heap::new(workers, command.block_bytes, arena).unwrap_or_else(power::out_of_memory)
            }
            _ => ebizzy::Heap::none(),
        },
        ring_size,
        rings: ring::locks(command.workload, workers as u32, ring_size, arena).unwrap_or_else(power::out_of_memory),
        apic_ids: arena.slice(workers, id).unwrap_or_else(power::out_of_memory),
    }
}

fn measure(first: &'static Block, command: &Command, port: Option<PausePort>, clocks: &Clocks, arena: &mut Arena) {
    let plan_made = make_plan(command, port, clocks, arena);
    // SAFETY: no worker is at work.
    unsafe { PLAN.0.get().write(plan_made) };
    smp::work_together(first, work);
    // Read in the ring that the workload ran in. Whoever was waiting in a queue when the time was up saw the end later
    // than it was; nobody saw it earlier.
    let began = smp::present().map(|block| block.began.load(Ordering::Relaxed)).min();
    let ended = smp::present().map(|block| block.ended.load(Ordering::Relaxed)).min();
    let ticks = began.zip(ended).map_or(0, |(began, ended)| ended.saturating_sub(began));
    tell(clocks, clocks.us(ticks));
}

/// Workloads that record how long each wait was.
const fn times_waits(workload: Workload) -> bool {
    matches!(workload, Workload::Ticket | Workload::Ipi | Workload::Ebizzy)
}

fn tell(clocks: &Clocks, us: u64) {
    let plan = plan();
    let timed = times_waits(plan.workload);
    let (mut operations, mut squares, mut port_writes, mut spin_ticks) = (0_u64, 0_u128, 0_u64, 0_u64);
    for block in smp::present() {
        let of = |word: &core::sync::atomic::AtomicU64| word.load(Ordering::Relaxed);
        let [mine, writes, ticks] =
            [&block.counters.operations, &block.counters.port_writes, &block.counters.spin_ticks].map(of);
        let spin_us = timed.then(|| clocks.us(ticks));
        let index = block.index.load(Ordering::Relaxed);
        say!("{}", Worker { index, operations: mine, port_writes: writes, spin_us });
        operations += mine;
        squares += u128::from(mine) * u128::from(mine);
        port_writes += writes;
        spin_ticks += ticks;
    }
    let waits = smp::present().map(|block| &block.waits);
    let wait = |per_mille| quantile(waits.clone(), per_mille).filter(|_| timed).map(|ticks| clocks.ns(ticks));
    say!(
        "{}",
        Outcome {
            workload: plan.workload,
            cpl: plan.cpl,
            port: plan.port.is_some(),
            spins: plan.spins,
            cpus: plan.workers,
            us,
            operations,
            operations_per_s: (u128::from(operations) * 1_000_000 / u128::from(us.max(1))) as u64,
            port_writes,
            writes_per_operation: Milli::ratio(port_writes, operations),
            spin_us: timed.then(|| clocks.us(spin_ticks)),
            wait_p50_ns: wait(500),
            wait_p99_ns: wait(990),
            wait_p999_ns: wait(999),
            jain: jain(plan, operations, squares),
        }
    );
}

/// Jain's fairness index, (Σx)² / (n Σx²), of the CPUs that do the same work; of ipi only one does.
fn jain(plan: &Plan, sum: u64, squares: u128) -> Option<Milli> {
    let whole = squares.checked_mul(u128::from(plan.workers))?;
    let square = u128::from(sum).checked_mul(u128::from(sum))?;
    let milli = square.checked_mul(1000).map_or_else(|| square.checked_div(whole / 1000), |s| s.checked_div(whole))?;
    (plan.workload != Workload::Ipi).then_some(Milli(u64::try_from(milli).ok()?))
}
