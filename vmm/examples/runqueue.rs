// SPDX-License-Identifier: Apache-2.0
//! Shows where the threads of this process stand, by both views, and what a look costs.
//! `cargo run --release -p vmm --example runqueue -- [SPINNERS]`: so many threads spin meanwhile (default 2).

use std::hint;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use vmm::host::runqueue::{Exact, OwnThreads, ThreadSeen};

/// Looks a measurement is made of.
const LOOKS: u32 = 2000;

fn main() -> io::Result<()> {
    let spinners: usize = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(2);
    let stop = Arc::new(AtomicBool::new(false));
    let (tell, told) = mpsc::channel();
    let threads: Vec<_> = (0..spinners)
        .map(|_| {
            let (stop, tell) = (Arc::clone(&stop), tell.clone());
            thread::spawn(move || {
                let _ = tell.send(std::fs::read_link("/proc/thread-self"));
                while !stop.load(Ordering::Relaxed) {
                    hint::spin_loop();
                }
            })
        })
        .collect();
    let tids: Vec<i32> = told.iter().take(spinners).filter_map(|link| id(&link.ok()?)).collect();
    thread::sleep(Duration::from_millis(100));
    let started = Instant::now();
    match Exact::open() {
        Ok(exact) => {
            println!("the program was loaded in {:?}", started.elapsed());
            measure("BPF", &tids, &mut |seen| exact.look(&tids, seen))?;
        }
        Err(why) => println!("no BPF: {why}"),
    }
    let own = OwnThreads::new(tids.len());
    let positions: Vec<usize> = (0..tids.len()).collect();
    positions.iter().zip(&tids).for_each(|(position, tid)| own.register(*position, *tid));
    measure("/proc/self/task", &tids, &mut |seen| {
        seen.resize(positions.len(), ThreadSeen::default());
        own.look(&positions, seen);
        Ok(())
    })?;
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        let _ = thread.join();
    }
    Ok(())
}

/// The number at the end of `PID/task/TID`.
fn id(link: &std::path::Path) -> Option<i32> {
    link.file_name()?.to_str()?.parse().ok()
}

fn measure(name: &str, tids: &[i32], look: &mut dyn FnMut(&mut Vec<ThreadSeen>) -> io::Result<()>) -> io::Result<()> {
    let mut seen = Vec::new();
    look(&mut seen)?;
    let mut took: Vec<u128> = (0..LOOKS)
        .map(|_| {
            let started = Instant::now();
            look(&mut seen).map(|()| started.elapsed().as_nanos())
        })
        .collect::<io::Result<_>>()?;
    took.sort_unstable();
    let at = |share: usize| took[(took.len() - 1) * share / 100];
    println!("{}: {} threads, {} ns a look (median; p10 {}, p90 {})", name, tids.len(), at(50), at(10), at(90));
    for (tid, thread) in tids.iter().zip(&seen) {
        println!("  {tid} {thread:?}");
    }
    Ok(())
}
