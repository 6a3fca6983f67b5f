// SPDX-License-Identifier: Apache-2.0
//! ebizzy's work: every thread picks a chunk, copies it, searches a record in the copy, and gives the copy back.

use std::hint::black_box;
use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::mapping::Mapping;
use super::options::{Mmap, Options};

/// Offsets in its page of a copy that is a mapping of its own, and of one that the C library mapped: its header is before it.
const OFFSETS_OF_MAPPED: [usize; 2] = [0, 16];
const PAGE_BYTES: usize = 4096;

/// What came of it.
pub(crate) struct Done {
    pub(crate) records: u64,
    pub(crate) elapsed: Duration,
    /// Whether copies were mappings of their own, by where the first one lay.
    pub(crate) is_mapped: bool,
}

impl Done {
    /// Whole records a second.
    pub(crate) fn records_per_s(&self) -> u128 {
        u128::from(self.records) * 1_000_000 / self.elapsed.as_micros().max(1)
    }
}

/// Runs for the time asked.
pub(crate) fn run(options: &Options) -> Done {
    // Records are their own sorted keys.
    let chunk: Vec<u64> = (0..u64::from(options.chunk_bytes) / 8).collect();
    let chunks = vec![chunk; options.chunks as usize];
    let (stop, together) = (AtomicBool::new(false), Barrier::new(options.threads as usize + 1));
    let worker = |seed: u64| {
        together.wait();
        search(&chunks, seed, options.mmap == Mmap::Always, &stop)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..options.threads).map(|seed| scope.spawn(move || worker(seed.into()))).collect();
        together.wait();
        let begun = Instant::now();
        thread::sleep(Duration::from_secs(options.seconds.into()));
        stop.store(true, Ordering::Relaxed);
        let found: Vec<(u64, bool)> = threads.into_iter().filter_map(|thread| thread.join().ok()).collect();
        Done {
            records: found.iter().map(|(records, _)| records).sum(),
            elapsed: begun.elapsed(),
            is_mapped: found.iter().all(|(_, is_mapped)| *is_mapped),
        }
    })
}

/// Searches until it is told to stop; records found, and whether the first copy was a mapping of its own.
fn search(chunks: &[Vec<u64>], seed: u64, always_mmap: bool, stop: &AtomicBool) -> (u64, bool) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let (mut records, mut is_mapped) = (0, false);
    while !stop.load(Ordering::Relaxed) {
        let chunk = &chunks[below(&mut state, chunks.len())];
        let key = below(&mut state, chunk.len()) as u64;
        // Without memory for another copy this thread has nothing more to do.
        let Ok(found) = with_copy(chunk, always_mmap, |copy| {
            if records == 0 {
                is_mapped = OFFSETS_OF_MAPPED.contains(&(copy.as_ptr().addr() % PAGE_BYTES));
            }
            copy.binary_search(&key).is_ok()
        }) else {
            break;
        };
        records += u64::from(found);
    }
    (records, is_mapped)
}

/// Copies a chunk, looks at the copy, and gives it back.
fn with_copy<R>(chunk: &[u64], always_mmap: bool, look: impl FnOnce(&[u64]) -> R) -> io::Result<R> {
    if always_mmap {
        return Ok(look(black_box(&Mapping::copy_of(chunk)?)));
    }
    let copy = chunk.to_vec();
    Ok(look(black_box(&copy)))
}

/// A number below `limit`, by xorshift (Marsaglia 2003).
fn below(state: &mut u64, limit: usize) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    usize::try_from(*state >> 11).unwrap_or(0) % limit.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chunk_and_record_is_picked() {
        let mut state = 1;
        let picked: std::collections::BTreeSet<usize> = (0..1000).map(|_| below(&mut state, 16)).collect();
        assert_eq!(picked.len(), 16);
    }

    #[test]
    fn records_are_found_and_counted() {
        let options =
            Options { mmap: Mmap::Allocator, chunks: 2, chunk_bytes: 4096, seconds: 1, threads: 2, verbose: false };
        let done = run(&options);
        assert!(done.records > 0 && done.elapsed >= Duration::from_secs(1));
        assert_eq!(done.records_per_s(), u128::from(done.records) * 1_000_000 / done.elapsed.as_micros());
    }
}
