// SPDX-License-Identifier: Apache-2.0
//! Memory a program uses beyond the guest's pages, from `/proc/PID/status` and `/proc/PID/smaps`.

use std::fs;
use std::thread;
use std::time::Duration;

use crate::process::Failure;

/// The guest's memory, in KiB: the one mapping of this size or more is the guest's.
const GUEST_KIB: f64 = (512 << 10) as f64;

/// After the first byte, for the other vCPUs' threads to be there and to wait.
const SETTLE: Duration = Duration::from_millis(200);

/// In KiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beyond {
    /// Most that was resident (`VmHWM`), less what of the guest's memory is.
    pub(crate) peak_kib: f64,
    /// Anonymous pages outside the guest's memory: heap, stacks, written data.
    pub(crate) anonymous_kib: f64,
}

/// What the process has, now that its guest runs.
pub(crate) fn beyond_guest(pid: u32) -> Result<Beyond, Failure> {
    thread::sleep(SETTLE);
    let read = |name: &str| {
        let path = format!("/proc/{pid}/{name}");
        fs::read_to_string(&path).map_err(|_| Failure::Proc { path, what: "the memory of the process" })
    };
    let smaps = read("smaps")?;
    let (guest, own): (Vec<Mapping>, Vec<Mapping>) =
        mappings(&smaps).into_iter().partition(|mapping| mapping.size_kib >= GUEST_KIB);
    let status = read("status")?;
    let peak =
        value(&status, "VmHWM:").ok_or_else(|| Failure::Proc { path: format!("/proc/{pid}/status"), what: "VmHWM" })?;
    Ok(Beyond {
        peak_kib: peak - guest.iter().map(|mapping| mapping.resident_kib).sum::<f64>(),
        anonymous_kib: own.iter().map(|mapping| mapping.anonymous_kib).sum(),
    })
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Mapping {
    size_kib: f64,
    resident_kib: f64,
    anonymous_kib: f64,
}

fn mappings(smaps: &str) -> Vec<Mapping> {
    let mut all: Vec<Mapping> = Vec::new();
    for line in smaps.lines() {
        if let Some(size_kib) = value(line, "Size:") {
            all.push(Mapping { size_kib, ..Mapping::default() });
        }
        let Some(last) = all.last_mut() else { continue };
        last.resident_kib = value(line, "Rss:").unwrap_or(last.resident_kib);
        last.anonymous_kib = value(line, "Anonymous:").unwrap_or(last.anonymous_kib);
    }
    all
}

/// The number behind a key at the start of a line.
fn value(text: &str, key: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_read_from_its_lines() {
        let smaps = "400000-500000 r-xp 0 fe:00 1 /bin/x\nSize:  1024 kB\nKernelPageSize: 4 kB\nRss: 512 kB\n\
                     Anonymous: 8 kB\nAnonHugePages: 0 kB\n7f00-7f01 rw-p 0 0:0 0\nSize: 4 kB\nRss: 4 kB\n\
                     Anonymous: 4 kB\n";
        let mapping = |size_kib, resident_kib, anonymous_kib| Mapping { size_kib, resident_kib, anonymous_kib };
        assert_eq!(mappings(smaps), [mapping(1024.0, 512.0, 8.0), mapping(4.0, 4.0, 4.0)]);
    }
}
