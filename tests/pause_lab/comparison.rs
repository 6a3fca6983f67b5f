// SPDX-License-Identifier: Apache-2.0
//! `--pause kernel` beside `--pause act` where the kernel's own yields work: the figures, arms in turn, that forced exits
//! become rare, and that `act` costs next to nothing. Time is counted in instructions, so figures of one run can be compared.

use std::fmt::Write as _;
use std::time::Duration;

use lab::initramfs;
use lab::packages::{Flavour, Series, Store};
use libtest_mimic::Failed;

use crate::host::{self, Files, sum};

const ARMS: [&str; 2] = ["kernel", "act"];
/// Runs of each arm.
const ROUNDS: usize = 3;
/// `act` may be this much below `kernel` at most.
const LEAST: f64 = 0.97;
/// At most one PAUSE exit in so many may force an exit under `act`, asked for one in eight.
const RARE: u64 = 16;

/// Runs the arms in turn; `guest` is the rest of the monitor's command line.
fn compare(guest: &str, files: &[(String, Vec<u8>)], limit: Duration) -> Result<Files, Failed> {
    let mut script = String::new();
    for (arm, round) in (0..ROUNDS).flat_map(|round| ARMS.map(|arm| (arm, round))) {
        // A string takes anything that is written to it.
        let _ = writeln!(
            script,
            "timeout -s KILL 240 vmm --pause {arm} {guest} --report /results/{arm}{round}.report \
             >/results/{arm}{round}.console </dev/null"
        );
    }
    host::run_counted(&script, files, limit)
}

/// Prints what `rate` finds in each run's console, and looks that forced exits are rare, and that `act` makes at least
/// `least` of what `kernel` does.
fn judge(what: &str, files: &Files, least: Option<f64>, rate: impl Fn(&str) -> Option<f64>) -> Result<(), Failed> {
    let mut medians = Vec::new();
    let (mut forced, mut pauses) = (0, 0);
    for arm in ARMS {
        let mut rates = Vec::new();
        for round in 0..ROUNDS {
            let console = files.text(&format!("{arm}{round}.console"))?;
            rates.push(rate(&console).ok_or_else(|| format!("{arm}, run {round}: no result in\n{console}"))?);
            let report = files.report(&format!("{arm}{round}.report"))?;
            if arm == "act" {
                forced += sum(&report, "/forced");
                pauses += sum(&report, "/pause_exits");
            }
        }
        rates.sort_by(f64::total_cmp);
        println!("{what}, {arm}: median {:.0} ({:.0} to {:.0})", rates[ROUNDS / 2], rates[0], rates[ROUNDS - 1]);
        medians.push(rates[ROUNDS / 2]);
    }
    let ratio = medians[1] / medians[0];
    println!("{what}: act / kernel {ratio:.3}; {forced} exits forced by {pauses} PAUSE exits");
    if least.is_some_and(|least| ratio < least) {
        return Err(format!("{what}: act makes {ratio:.3} of kernel, goal {least:?}").into());
    }
    if forced * RARE > pauses + RARE * 16 {
        return Err(format!("{what}: {forced} exits forced by {pauses} PAUSE exits").into());
    }
    Ok(())
}

pub(crate) fn of_the_probe_guest() -> Result<(), Failed> {
    let guest = "--cpus 2 --memory 64M --probe 'ring seconds=3 port=off'";
    let files = compare(guest, &[], Duration::from_secs(900))?;
    judge("ring, hand-overs/s", &files, Some(LEAST), |console| {
        let (_, rate) = console.split_once(" operations_per_s=")?;
        rate.split_whitespace().next()?.parse().ok()
    })
}

/// Debian's kernel, unmodified, with system calls and page faults that meet on the kernel's locks.
pub(crate) fn of_linux() -> Result<(), Failed> {
    let store = Store::open()?;
    let kernel = store.kernel(Series::V6_12, Flavour::Cloud)?;
    let program = store.program("stress-ng", "/usr/bin/stress-ng")?;
    let read = |path: &std::path::Path| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    let files =
        program.iter().map(|(path, place)| Ok((path.as_str(), read(place)?))).collect::<Result<Vec<_>, String>>()?;
    let files: Vec<(&str, &[u8])> = files.iter().map(|(path, bytes)| (*path, bytes.as_slice())).collect();
    let script = "/usr/bin/stress-ng --temp-path /tmp --get 2 --mmap 2 --mmap-bytes 1M --fork 2 --timeout 6s \
                  --metrics-brief 2>&1";
    let initrd = initramfs::guest(&store, script, &files)?;
    let files = [("/kernel".to_owned(), read(&kernel.vmlinuz)?), ("/initrd".to_owned(), initrd)];
    let guest = "--cpus 2 --memory 512M --kernel /kernel --initrd /initrd --cmdline 'console=ttyS0 quiet'";
    let files = compare(guest, &files, Duration::from_secs(2400))?;
    for stressor in ["get", "mmap", "fork"] {
        judge(&format!("Linux, {stressor}, operations/s"), &files, None, |console| {
            // stress-ng: metrc: [pid] STRESSOR OPERATIONS SECONDS USER SYSTEM OPERATIONS-PER-SECOND ...
            let words = console.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            words.into_iter().find_map(|words| {
                let at = words.iter().position(|word| *word == stressor)?;
                words.get(at + 5)?.parse().ok()
            })
        })?;
    }
    Ok(())
}
