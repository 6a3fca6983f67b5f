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

use vmm::host::runqueue::{self, Unprivileged, View};

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
    let granted = runqueue::open();
    println!("{granted}; opened in {:?}", started.elapsed());
    measure(granted.view, &tids)?;
    measure(View::Unprivileged(Unprivileged::new()), &tids)?;
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

fn measure(view: View, tids: &[i32]) -> io::Result<()> {
    let mut seen = Vec::new();
    view.look(tids, &mut seen)?;
    let mut took: Vec<u128> = (0..LOOKS)
        .map(|_| {
            let started = Instant::now();
            view.look(tids, &mut seen).map(|()| started.elapsed().as_nanos())
        })
        .collect::<io::Result<_>>()?;
    took.sort_unstable();
    let at = |share: usize| took[(took.len() - 1) * share / 100];
    println!(
        "{}: {} threads, {} ns a look (median; p10 {}, p90 {})",
        view.source(),
        tids.len(),
        at(50),
        at(10),
        at(90)
    );
    for (tid, thread) in tids.iter().zip(&seen) {
        println!("  {tid} {thread:?}");
    }
    Ok(())
}
