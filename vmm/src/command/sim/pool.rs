// SPDX-License-Identifier: Apache-2.0
//! Many simulations at once: a thread for each CPU, and a line that says how far they are.
//!
//! Invariant: results come in the order of the jobs, whichever thread did which, so that they depend on nothing but the
//! jobs.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// Least time between two writings of the line.
const REDRAW: Duration = Duration::from_millis(200);

/// Does jobs 0 to `jobs` on all CPUs. After the first error no new job begins.
pub(super) fn each<T: Send, E: Send>(jobs: usize, run: impl Fn(usize) -> Result<T, E> + Sync) -> Result<Vec<T>, E> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(jobs.max(1));
    let next = AtomicUsize::new(0);
    let (done, results) = mpsc::channel();
    let outcome = thread::scope(|scope| {
        for _ in 0..threads {
            let (done, next, run) = (done.clone(), &next, &run);
            scope.spawn(move || {
                loop {
                    let job = next.fetch_add(1, Ordering::Relaxed);
                    if job >= jobs || done.send((job, run(job))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(done);
        gather(jobs, results)
    });
    outcome.map(|results| results.into_iter().flatten().collect())
}

/// Takes the results as they come. Dropping the receiver on an error ends the threads.
fn gather<T, E>(jobs: usize, results: Receiver<(usize, Result<T, E>)>) -> Result<Vec<Option<T>>, E> {
    let mut all: Vec<Option<T>> = (0..jobs).map(|_| None).collect();
    let mut line = Line::new(jobs);
    for (job, result) in results {
        all[job] = Some(result?);
        line.step();
    }
    Ok(all)
}

/// How far the work is, on a terminal.
struct Line {
    jobs: usize,
    done: usize,
    started: Instant,
    drawn: Option<Instant>,
    shown: bool,
}

impl Line {
    fn new(jobs: usize) -> Self {
        Self { jobs, done: 0, started: Instant::now(), drawn: None, shown: io::stderr().is_terminal() }
    }

    fn step(&mut self) {
        self.done += 1;
        let last = self.done == self.jobs;
        if !self.shown || (!last && self.drawn.is_some_and(|drawn| drawn.elapsed() < REDRAW)) {
            return;
        }
        self.drawn = Some(Instant::now());
        let text = progress(self.done, self.jobs, self.started.elapsed());
        // Nobody is left to be told when stderr is closed.
        let _ = write!(io::stderr().lock(), "\r{text}{}", if last { "\n" } else { "" });
    }
}

/// What the line says after `done` of `jobs` in `passed`: a bar, the count, and the time that is left at this pace.
fn progress(done: usize, jobs: usize, passed: Duration) -> String {
    const CELLS: usize = 20;
    let full = CELLS * done / jobs.max(1);
    let left = passed.as_secs() * (jobs - done) as u64 / done.max(1) as u64;
    format!(
        "[{}{}] {done} of {jobs} runs, {}:{:02} left ",
        "#".repeat(full),
        "-".repeat(CELLS - full),
        left / 60,
        left % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_jobs() {
        let squares = each(100, |job| Ok::<usize, ()>(job * job)).expect("no job fails");
        assert_eq!(squares, (0..100).map(|job| job * job).collect::<Vec<_>>());
        assert_eq!(each(0, |_| Ok::<usize, ()>(0)), Ok(vec![]));
    }

    #[test]
    fn after_an_error_no_new_job_begins() {
        let begun = AtomicUsize::new(0);
        let failed = each(1_000_000, |job| {
            begun.fetch_add(1, Ordering::Relaxed);
            if job == 3 { Err("the third") } else { Ok(()) }
        });
        assert_eq!(failed, Err("the third"));
        assert!(begun.load(Ordering::Relaxed) < 1_000_000);
    }

    #[test]
    fn the_line_says_what_is_left() {
        assert_eq!(progress(5, 20, Duration::from_secs(60)), "[#####---------------] 5 of 20 runs, 3:00 left ");
        assert!(progress(20, 20, Duration::from_secs(60)).contains("0:00 left"));
    }
}
