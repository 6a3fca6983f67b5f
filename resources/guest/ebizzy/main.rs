// SPDX-License-Identifier: Apache-2.0
//! ebizzy, written anew from its public description: threads that copy blocks of memory and search in the copy.
//!
//! The original imitates a web server's search: it was used on the kernel lists because allocation, page faults and TLB
//! shootdowns of many threads meet in the kernel. Same options, same lines of output. Invariant: a record is counted when it was
//! found in a copy.

mod mapping;
mod options;
mod work;

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::{env, fs};

use options::{Mmap, Options, USAGE};

/// What tells the program that the allocator was told how to work.
const TOLD: &str = "EBIZZY_TOLD";

fn main() -> ExitCode {
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(u32::MAX));
    let options = match Options::parse(env::args().skip(1), cpus) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("ebizzy: {why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if options.mmap == Mmap::Never && env::var_os(TOLD).is_none() {
        return told_again();
    }
    let done = work::run(&options);
    println!("{} records/s", done.records_per_s());
    println!("real {:5.2} s", done.elapsed.as_secs_f64());
    let (user, system) =
        fs::read_to_string("/proc/self/stat").ok().and_then(|stat| cpu_seconds(&stat)).unwrap_or_default();
    println!("user {user:5.2} s");
    println!("sys  {system:5.2} s");
    if options.verbose {
        eprintln!("{options:?}");
        eprintln!("copies {}", if done.is_mapped { "by mmap" } else { "in the heap" });
    }
    ExitCode::SUCCESS
}

/// Starts itself again with the C library's allocator told not to use mmap (glibc manual, "Memory Allocation Tunables").
fn told_again() -> ExitCode {
    let mut again = Command::new("/proc/self/exe");
    again.args(env::args_os().skip(1)).env("GLIBC_TUNABLES", "glibc.malloc.mmap_max=0").env(TOLD, "1");
    eprintln!("ebizzy: cannot be started again: {}; mount /proc", again.exec());
    ExitCode::FAILURE
}

/// User and system time of a process, in seconds, from `/proc/PID/stat` (proc_pid_stat(5), fields 14 and 15).
fn cpu_seconds(stat: &str) -> Option<(f64, f64)> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut words = rest.split_ascii_whitespace().skip(11);
    let mut seconds = || words.next()?.parse::<u32>().ok().map(|ticks| f64::from(ticks) / 100.0);
    Some((seconds()?, seconds()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_times_are_read_behind_the_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 250 13 0 0 20 0 1 0 1 1 1";
        assert_eq!(cpu_seconds(stat), Some((2.5, 0.13)));
        assert_eq!(cpu_seconds("7 (a) S 1"), None);
    }
}
