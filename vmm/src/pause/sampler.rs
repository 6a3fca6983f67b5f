// SPDX-License-Identifier: Apache-2.0
//! The source `sampler`: a vCPU that ran for a whole window without an exit is kicked, and looks whether it spins. A PAUSE
//! inside a short backward loop at its instruction pointer says so.
//!
//! The vCPU's own thread reads the bytes, after the kick; nobody looks at a vCPU that another thread runs.
//! Invariant: any bytes are borne, and the answer takes a bounded time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use vm_memory::{Bytes, GuestAddress};

use super::driver::Driver;
use super::helper::Helper;
use super::seat::Seat;
use super::source::{Moment, PauseSource, Spin, Tap, Unavailable};
use crate::config::{PausePlan, SourceChoice};
use crate::kvm::vcpu::Vcpu;
use crate::layout;
use crate::memory::GuestRam;

/// The source.
#[derive(Clone, Debug)]
pub struct Sampler {
    ram: GuestRam,
}

impl Sampler {
    /// For a machine with this RAM.
    #[must_use]
    pub const fn new(ram: GuestRam) -> Self {
        Self { ram }
    }
}

impl PauseSource for Sampler {
    fn choice(&self) -> SourceChoice {
        SourceChoice::Sampler
    }

    fn available(&self, plan: &PausePlan) -> Result<String, Unavailable> {
        Ok(format!("looks after {} ns without an exit", plan.sources.sampler_window_ns))
    }

    fn attach(&self, _plan: &PausePlan, _tid: i32) -> io::Result<Box<dyn Tap>> {
        Ok(Box::new(Look { ram: self.ram.clone() }))
    }

    fn beside(&self, driver: &Arc<Driver>, plan: &PausePlan) -> io::Result<Option<Helper>> {
        Helper::sampler(Arc::clone(driver), plan.sources.sampler_window_ns).map(Some)
    }
}

struct Look {
    ram: GuestRam,
}

impl Tap for Look {
    fn tell(&mut self, moment: &mut Moment<'_>, seat: &Seat) -> Option<Spin> {
        let Moment::Interrupted(vcpu) = moment else { return None };
        if !seat.look_due.swap(false, Ordering::Relaxed) {
            return None;
        }
        seat.sampled.add(1);
        executes_spin_loop(vcpu, &self.ram).then(Spin::default)
    }
}

/// Whether the vCPU's instruction pointer stands in a loop around PAUSE. On the vCPU's own thread, between two runs.
fn executes_spin_loop(vcpu: &Vcpu, ram: &GuestRam) -> bool {
    let Ok(rip) = vcpu.instruction_pointer() else { return false };
    let Some(physical) = vcpu.translate(rip) else { return false };
    // Within the page: the next one may lie anywhere.
    let page = physical & !(layout::PAGE_SIZE - 1);
    let start = physical.saturating_sub(REACH as u64).max(page);
    let end = (physical + REACH as u64).min(page + layout::PAGE_SIZE);
    let mut code = [0; 2 * REACH];
    let length = usize::try_from(end - start).unwrap_or(0).min(code.len());
    let read = ram.memory().read_slice(&mut code[..length], GuestAddress(start)).is_ok();
    read && spins(&code[..length], usize::try_from(physical - start).unwrap_or(0))
}

/// Bytes looked at on either side of the instruction pointer.
pub const REACH: usize = 64;

/// Longest spin loop, from the target of the jump back to the end of the jump.
const LONGEST: usize = 64;

/// Whether the code spins at offset `at`: a PAUSE (F3 90), and behind it a jump back over both it and `at`.
///
/// Instructions are not decoded from their beginnings, so data in the middle of code can be taken for a loop: the answer
/// is a hint, as all pause events are.
#[must_use]
pub fn spins(code: &[u8], at: usize) -> bool {
    let pauses =
        |from: usize, to: usize| code.get(from..to).is_some_and(|loop_| loop_.windows(2).any(|w| w == [0xF3, 0x90]));
    (0..code.len()).any(|start| {
        let Some((target, end)) = jump_back(code, start) else { return false };
        let around = target <= at && at <= start;
        around && end - target <= LONGEST && pauses(target, start)
    })
}

/// A jump at `start` to before itself: where it leads, and where it ends.
fn jump_back(code: &[u8], start: usize) -> Option<(usize, usize)> {
    let byte = |offset: usize| code.get(start + offset).copied();
    let word = |offset: usize| {
        let bytes = code.get(start + offset..start + offset + 4)?;
        Some(i32::from_le_bytes(bytes.try_into().ok()?))
    };
    // Intel SDM vol. 2: JMP rel8 (EB), JMP rel32 (E9), Jcc rel8 (70 to 7F), Jcc rel32 (0F 80 to 0F 8F), LOOP (E0 to E2).
    let (length, distance) = match byte(0)? {
        0xEB | 0x70..=0x7F | 0xE0..=0xE2 => (2, i32::from(byte(1)?.cast_signed())),
        0xE9 => (5, word(1)?),
        0x0F if matches!(byte(1)?, 0x80..=0x8F) => (6, word(2)?),
        _ => return None,
    };
    let end = start + length;
    let back = usize::try_from(-i64::from(distance)).ok()?;
    let target = end.checked_sub(back)?;
    (target < start).then_some((target, end))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `l: cmp [rsi],edi; je +10; pause; dec ecx; jnz l`
    const LOOP: [u8; 10] = [0x39, 0x3E, 0x74, 0x0A, 0xF3, 0x90, 0xFF, 0xC9, 0x75, 0xF6];

    #[test]
    fn a_loop_around_a_pause_spins() {
        for at in [0, 2, 4, 6, 8] {
            assert!(spins(&LOOP, at), "{at}");
        }
        let mut far = vec![0xCC; 20];
        far.extend(LOOP);
        assert!(spins(&far, 24));
        assert!(!spins(&far, 5), "before the loop");
    }

    #[test]
    fn a_loop_without_a_pause_and_a_pause_without_a_loop_do_not() {
        let mut busy = LOOP;
        busy[4..6].copy_from_slice(&[0x90, 0x90]);
        assert!(!spins(&busy, 4));
        assert!(!spins(&LOOP[..8], 4));
        let mut forward = LOOP;
        forward[9] = 0x06;
        assert!(!spins(&forward, 4));
    }

    #[test]
    fn a_long_jump_back_counts_too() {
        let code = [0xF3, 0x90, 0x0F, 0x85, 0xF8, 0xFF, 0xFF, 0xFF];
        assert!(spins(&code, 0));
    }

    proptest! {
        #[test]
        fn any_bytes_are_borne(code in proptest::collection::vec(any::<u8>(), 0..2 * REACH), at in 0..3 * REACH) {
            let _ = spins(&code, at);
        }
    }
}
