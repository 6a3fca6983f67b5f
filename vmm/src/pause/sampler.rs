// SPDX-License-Identifier: Apache-2.0
//! The source `sampler`: does the code at an instruction pointer spin? A PAUSE inside a short backward loop says so.
//!
//! Pure. The vCPU's own thread reads the bytes, after a kick; nobody looks at a vCPU that another thread runs.
//! Invariant: any bytes are borne, and the answer takes a bounded time.

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
