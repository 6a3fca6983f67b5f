// SPDX-License-Identifier: Apache-2.0
//! The other CPUs: started, met, put to work, waited for.
//!
//! CPUs are started by INIT and start-up interrupt, each addressed by its id: a broadcast would also start CPUs that
//! MADT does not list. An idle CPU halts. Invariant: a CPU's `index` is its place in MADT, and its `rank` counts only
//! those that came up.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::apic;
use crate::block::{BLOCK_BYTES, Block};
use crate::clock::Clocks;
use crate::cpu_seen;
use crate::hardware::cpuid;
use crate::memory::Arena;
use crate::service;

/// A CPU that MADT lists.
pub struct Slot {
    /// Its APIC id.
    pub apic_id: u32,
    block: AtomicPtr<Block>,
}

impl Slot {
    /// The block of a CPU that has come up.
    pub fn block(&self) -> Option<&'static Block> {
        let block = self.block.load(Ordering::Acquire);
        // SAFETY: set once, to a block that lives for ever, with release ordering after the block was filled.
        if block == GIVEN_UP { None } else { unsafe { block.as_ref() } }
    }

    /// Sets what is behind the slot, once and for all; false if that is decided already.
    fn decide(&self, block: *mut Block) -> bool {
        self.block.compare_exchange(core::ptr::null_mut(), block, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// Behind the slot of a CPU that is no longer waited for: one that comes all the same stops.
const GIVEN_UP: *mut Block = core::ptr::without_provenance_mut(1);

unsafe extern "C" {
    static probe_ap_blocks: AtomicU64;
    static probe_ap_blocks_len: AtomicU32;
    static probe_trampoline: u8;
    static probe_trampoline_end: u8;
    static probe_stop: AtomicU32;
}

/// Becomes 1 when the timer of any CPU fires.
#[inline(always)]
pub fn stop_word() -> &'static AtomicU32 {
    // SAFETY: a word of traps.S, only ever accessed as an atomic.
    unsafe { &probe_stop }
}

static SLOTS: AtomicPtr<Slot> = AtomicPtr::new(core::ptr::null_mut());
static SLOTS_LEN: AtomicU32 = AtomicU32::new(0);
/// CPUs that have come up, without the first.
static ARRIVED: AtomicU32 = AtomicU32::new(0);
/// Grows when there is work.
static GENERATION: AtomicU32 = AtomicU32::new(0);
/// CPUs still at work, without the first.
static WORKING: AtomicU32 = AtomicU32::new(0);
static FIRST_APIC_ID: AtomicU32 = AtomicU32::new(0);

/// All CPUs that MADT lists.
pub fn slots() -> &'static [Slot] {
    let (start, len) = (SLOTS.load(Ordering::Acquire), SLOTS_LEN.load(Ordering::Acquire));
    // SAFETY: set once by `list`, to a slice that lives for ever.
    if start.is_null() { &[] } else { unsafe { core::slice::from_raw_parts(start, len as usize) } }
}

/// The blocks of the CPUs that came up, in the order of their index.
pub fn present() -> impl Iterator<Item = &'static Block> + Clone {
    slots().iter().filter_map(Slot::block)
}

/// Makes the list from MADT's ids. `None` if there is no memory for it.
pub fn list(ids: impl Iterator<Item = u32> + Clone, arena: &mut Arena) -> Option<&'static [Slot]> {
    let nowhere = || AtomicPtr::new(core::ptr::null_mut());
    let slots = arena.slice(ids.clone().count(), |_| Slot { apic_id: u32::MAX, block: nowhere() })?;
    for (slot, apic_id) in slots.iter_mut().zip(ids) {
        slot.apic_id = apic_id;
    }
    SLOTS_LEN.store(slots.len() as u32, Ordering::Release);
    SLOTS.store(slots.as_mut_ptr(), Ordering::Release);
    Some(slots)
}

/// Fills in this CPU's block and enters it in the list; false if MADT does not list it or it was given up.
pub fn arrive(block: &'static Block) -> bool {
    let seen = cpu_seen::look(cpuid);
    // SAFETY: this CPU's own block, which nobody reads before it is in the list.
    unsafe { *block.seen.get() = seen };
    block.apic_id.store(seen.apic_id, Ordering::Relaxed);
    let Some((index, slot)) = (0..).zip(slots()).find(|(_, slot)| slot.apic_id == seen.apic_id) else { return false };
    block.index.store(index, Ordering::Relaxed);
    slot.decide(core::ptr::from_ref(block).cast_mut())
}

/// How long without a new CPU before the start-up interrupt is sent again, and before the rest is given up.
const RETRY_US: u64 = 200_000;
const GIVE_UP_AFTER_RETRIES: u32 = 10;

/// Starts every listed CPU but this one and waits for them. Returns how many came, or `None` without memory.
pub fn start_all(first: &Block, low_page: u64, clocks: &Clocks, arena: &mut Arena) -> Option<u32> {
    let first_id = first.apic_id.load(Ordering::Relaxed);
    FIRST_APIC_ID.store(first_id, Ordering::Relaxed);
    let others = || slots().iter().filter(move |slot| slot.apic_id != first_id);
    prepare(others().count(), low_page, arena)?;
    others().for_each(|slot| apic::send_init(slot.apic_id));
    others().for_each(|slot| apic::send_startup(slot.apic_id, low_page));
    let wanted = slots().len() as u32 - 1;
    let (mut retries, mut before) = (0, 0);
    loop {
        let arrived = wait_for(&ARRIVED, wanted, clocks, RETRY_US);
        if arrived == wanted {
            return Some(arrived);
        }
        if arrived == before && retries == GIVE_UP_AFTER_RETRIES {
            return Some(give_up(others()));
        }
        if arrived == before {
            retries += 1;
            // One that is up ignores a start-up interrupt.
            let absent = others().filter(|slot| slot.block().is_none());
            absent.for_each(|slot| apic::send_startup(slot.apic_id, low_page));
        }
        before = arrived;
    }
}

/// Lets no other CPU in from now on. Returns how many are in: each is counted when there is work, and nobody else works.
fn give_up(others: impl Iterator<Item = &'static Slot>) -> u32 {
    // SAFETY: a word of traps.S, only ever accessed as an atomic.
    unsafe { probe_ap_blocks_len.store(0, Ordering::Release) };
    others.filter(|slot| !slot.decide(GIVEN_UP)).count() as u32
}

/// Blocks for the others, and the trampoline.
fn prepare(count: usize, low_page: u64, arena: &mut Arena) -> Option<()> {
    let blocks = arena.take(count * BLOCK_BYTES, BLOCK_BYTES as u64)?;
    for i in 0..count {
        // SAFETY: within the memory just taken; the header is cleared before it is used as one.
        unsafe {
            let block = blocks.add(i * BLOCK_BYTES).cast::<Block>();
            block.write_bytes(0, 1);
            Block::prepare(block.as_ptr());
        }
    }
    // SAFETY: the page is RAM that nothing else uses; the words are traps.S's, only ever accessed as atomics.
    unsafe {
        let (from, to) = (&raw const probe_trampoline, &raw const probe_trampoline_end);
        core::ptr::copy_nonoverlapping(from, low_page as *mut u8, to.offset_from_unsigned(from));
        probe_ap_blocks.store(blocks.as_ptr() as u64, Ordering::Relaxed);
        probe_ap_blocks_len.store(count as u32, Ordering::Release);
    }
    Some(())
}

/// Halts until `word` is `value`, or for about `us` microseconds. Returns the word. Interrupts are on before and after.
fn wait_for(word: &AtomicU32, value: u32, clocks: &Clocks, us: u64) -> u32 {
    stop_word().store(0, Ordering::Relaxed);
    clocks.arm(us);
    // Off outside the halt, which lets them in: a timer that fires between the look at its word and the halt would find
    // nobody to wake, and would not fire again.
    service::set_interrupts(false);
    let mut now = word.load(Ordering::Acquire);
    while now != value && stop_word().load(Ordering::Relaxed) == 0 {
        service::halt_while(word, now);
        now = word.load(Ordering::Acquire);
    }
    service::set_interrupts(true);
    apic::stop_timer();
    now
}

/// Where every other CPU spends its life: waits, and does `work` whenever all CPUs work together.
pub fn serve(block: &'static Block, work: fn(&'static Block)) -> ! {
    apic::enable();
    if !arrive(block) {
        service::stop();
    }
    service::set_interrupts(true);
    let wanted = slots().len() as u32 - 1;
    if ARRIVED.fetch_add(1, Ordering::AcqRel) + 1 == wanted {
        wake_first();
    }
    let mut done = 0;
    loop {
        while GENERATION.load(Ordering::Acquire) == done {
            service::halt_while(&GENERATION, done);
        }
        done += 1;
        work(block);
        if WORKING.fetch_sub(1, Ordering::AcqRel) == 1 {
            wake_first();
        }
    }
}

fn wake_first() {
    apic::send(FIRST_APIC_ID.load(Ordering::Relaxed), apic::VECTOR_WAKE);
}

/// Lets all CPUs do `work`, this one among them; returns when the last is done.
pub fn work_together(first: &'static Block, work: fn(&'static Block)) {
    let others = present().count() as u32 - 1;
    WORKING.store(others, Ordering::Relaxed);
    stop_word().store(0, Ordering::Relaxed);
    GENERATION.fetch_add(1, Ordering::Release);
    if others > 0 {
        apic::send_to_others(apic::VECTOR_WAKE);
    }
    work(first);
    let mut left = WORKING.load(Ordering::Acquire);
    while left != 0 {
        service::halt_while(&WORKING, left);
        left = WORKING.load(Ordering::Acquire);
    }
}

/// Halts for `us` microseconds.
pub fn sleep(clocks: &Clocks, us: u64) {
    stop_word().store(0, Ordering::Relaxed);
    clocks.arm(us);
    while stop_word().load(Ordering::Relaxed) == 0 {
        service::halt_while(stop_word(), 0);
    }
}
