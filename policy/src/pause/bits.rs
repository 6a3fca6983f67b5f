// SPDX-License-Identifier: Apache-2.0
//! A set of vCPUs as a bitmap: the form in which candidate sets are kept, so that a scan costs a word per 64 vCPUs.
//!
//! Invariant: bits at and above the length are never set, so whole words can be combined without masking.

/// A set of vCPU indices below a fixed length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bits {
    words: Vec<u64>,
}

impl Bits {
    /// The empty set of indices below `len`.
    pub(crate) fn new(len: usize) -> Self {
        Self { words: vec![0; len.div_ceil(64)] }
    }

    /// Whether `index` is in the set; an index outside the length is not.
    pub(crate) fn contains(&self, index: usize) -> bool {
        self.words.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// Puts `index` into the set or takes it out. The caller vouches that it is below the length.
    pub(crate) fn assign(&mut self, index: usize, member: bool) {
        let bit = 1 << (index % 64);
        if member {
            self.words[index / 64] |= bit;
        } else {
            self.words[index / 64] &= !bit;
        }
    }

    /// The 64 members that start at index `64 * word`.
    pub(crate) fn word(&self, word: usize) -> u64 {
        self.words[word]
    }

    /// Number of words.
    pub(crate) fn words(&self) -> usize {
        self.words.len()
    }
}

/// Calls `visit` with every index of the `words` set in circular order from `start`, until `visit` says stop (`false`).
///
/// `word_at(w)` is the word `w` of the set; it is read at most once a word, twice for the word `start` lies in.
pub(crate) fn visit_from(
    words: usize,
    start: usize,
    word_at: impl Fn(usize) -> u64,
    mut visit: impl FnMut(usize) -> bool,
) {
    let first = start / 64;
    let split = u64::MAX << (start % 64);
    for step in 0..=words {
        let at = (first + step) % words.max(1);
        let mask = match step {
            0 => split,
            _ if step == words => !split,
            _ => u64::MAX,
        };
        let mut rest = if words == 0 { 0 } else { word_at(at) & mask };
        while rest != 0 {
            if !visit(at * 64 + rest.trailing_zeros() as usize) {
                return;
            }
            rest &= rest - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visit_sees_every_member_once_from_its_start_round_the_end() {
        let mut set = Bits::new(200);
        for index in [0, 5, 63, 64, 130, 199] {
            set.assign(index, true);
        }
        let order = |start| {
            let mut seen = Vec::new();
            visit_from(
                set.words(),
                start,
                |w| set.word(w),
                |index| {
                    seen.push(index);
                    true
                },
            );
            seen
        };
        assert_eq!(order(0), [0, 5, 63, 64, 130, 199]);
        assert_eq!(order(64), [64, 130, 199, 0, 5, 63]);
        assert_eq!(order(6), [63, 64, 130, 199, 0, 5]);
        assert_eq!(order(199), [199, 0, 5, 63, 64, 130]);
    }
}
