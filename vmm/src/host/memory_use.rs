// SPDX-License-Identifier: Apache-2.0
//! How much memory the monitor itself uses: its proportional set size without the guest's RAM.
//!
//! Read from `/proc/self/smaps` (Documentation/filesystems/proc.rst, section 3.1), line by line through one small
//! buffer, so that measuring does not change what is measured.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::ops::Range;

/// Bytes of the read buffer.
const BUFFER_BYTES: usize = 4096;

/// Proportional set size of this process in bytes, without the mappings that lie in one of `guest_ram` (host addresses).
///
/// # Errors
/// The kernel's own; `/proc` may not be mounted.
pub fn monitor_pss_bytes(guest_ram: &[Range<u64>]) -> io::Result<u64> {
    let reader = BufReader::with_capacity(BUFFER_BYTES, File::open("/proc/self/smaps")?);
    pss_without(reader, guest_ram)
}

fn pss_without(mut smaps: impl BufRead, excluded: &[Range<u64>]) -> io::Result<u64> {
    let mut kib = 0u64;
    let mut counted = true;
    let mut line = String::with_capacity(256);
    while smaps.read_line(&mut line)? > 0 {
        if let Some(start) = mapping_start(&line) {
            counted = !excluded.iter().any(|range| range.contains(&start));
        } else if let Some(pss) = line.strip_prefix("Pss:").filter(|_| counted) {
            kib += pss.trim().trim_end_matches("kB").trim_end().parse().unwrap_or(0);
        }
        line.clear();
    }
    Ok(kib * 1024)
}

/// The start address of a line that opens a mapping: `55f0…-55f1… r-xp …`.
fn mapping_start(line: &str) -> Option<u64> {
    let (start, rest) = line.split_once('-')?;
    rest.split_once(' ')?;
    u64::from_str_radix(start, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/vmm
Size:               1084 kB
Pss:                 374 kB
Pss_Dirty:             3 kB
7f0000000000-7f0020000000 rw-p 00000000 00:00 0
Pss:              524288 kB
7f0020000000-7f0020021000 rw-p 00000000 00:00 0
Pss:                   5 kB
";

    #[test]
    fn guest_ram_is_left_out_and_only_pss_itself_is_added_up() {
        let guest = 0x7f00_0000_0000..0x7f00_2000_0000;
        assert_eq!(pss_without(SMAPS.as_bytes(), &[guest]).unwrap(), (374 + 5) * 1024);
    }

    #[test]
    fn this_process_uses_memory() {
        assert!(monitor_pss_bytes(&[]).unwrap() > 0);
    }
}
