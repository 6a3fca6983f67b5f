// SPDX-License-Identifier: Apache-2.0
//! How much memory the monitor itself uses, its proportional set size without the guest's RAM, and what that RAM is made
//! of.
//!
//! Read from `/proc/self/smaps` (Documentation/filesystems/proc.rst, section 3.1), line by line through one small
//! buffer, so that measuring does not change what is measured.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::ops::Range;

use crate::layout;

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

/// Resident memory of this process in bytes, guest RAM included (Documentation/filesystems/proc.rst, table 1-3).
///
/// # Errors
/// The kernel's own; `/proc` may not be mounted.
pub fn resident_bytes() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/self/statm")?;
    let pages = text.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
    Ok(pages.saturating_mul(layout::PAGE_SIZE))
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

/// What the kernel made guest RAM of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuestPages {
    /// Size of a page of the mappings in bytes, the largest if they differ; transparent huge pages do not count.
    pub page_bytes: u64,
    /// Bytes that are in memory.
    pub resident_bytes: u64,
    /// Of these, bytes in huge pages, of a pool or transparent.
    pub huge_bytes: u64,
}

/// How the mappings that lie in `guest_ram` (host addresses) are made up now.
///
/// # Errors
/// The kernel's own; `/proc` may not be mounted.
pub fn guest_pages(guest_ram: &[Range<u64>]) -> io::Result<GuestPages> {
    pages_of(BufReader::with_capacity(BUFFER_BYTES, File::open("/proc/self/smaps")?), guest_ram)
}

fn pages_of(mut smaps: impl BufRead, guest: &[Range<u64>]) -> io::Result<GuestPages> {
    let mut pages = GuestPages::default();
    let mut ours = false;
    let mut line = String::with_capacity(256);
    while smaps.read_line(&mut line)? > 0 {
        if let Some(start) = mapping_start(&line) {
            ours = guest.iter().any(|range| range.contains(&start));
        } else if let Some((name, value)) = line.split_once(':').filter(|_| ours) {
            let bytes = value.trim().trim_end_matches("kB").trim_end().parse().unwrap_or(0u64) * 1024;
            match name {
                "KernelPageSize" => pages.page_bytes = pages.page_bytes.max(bytes),
                "Rss" => pages.resident_bytes += bytes,
                "AnonHugePages" => pages.huge_bytes += bytes,
                // Pages of a pool are not part of Rss.
                "Private_Hugetlb" | "Shared_Hugetlb" => {
                    pages.huge_bytes += bytes;
                    pages.resident_bytes += bytes;
                }
                _ => {}
            }
        }
        line.clear();
    }
    Ok(pages)
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
    fn pages_of_a_pool_and_transparent_ones_are_both_huge() {
        let smaps = "\
7f0000000000-7f0020000000 rw-p 00000000 00:0f 99 /anon_hugepage (deleted)
KernelPageSize:     2048 kB
Rss:                   0 kB
Private_Hugetlb:    4096 kB
7f0040000000-7f0060000000 rw-p 00000000 00:00 0
KernelPageSize:        4 kB
Rss:                8192 kB
AnonHugePages:      6144 kB
7f0080000000-7f0080021000 rw-p 00000000 00:00 0
Rss:                 100 kB
";
        let guest = [0x7f00_0000_0000..0x7f00_2000_0000, 0x7f00_4000_0000..0x7f00_6000_0000];
        let found = pages_of(smaps.as_bytes(), &guest).unwrap();
        let expected = GuestPages { page_bytes: 2 << 20, resident_bytes: 12 << 20, huge_bytes: 10 << 20 };
        assert_eq!(found, expected);
    }

    #[test]
    fn this_process_uses_memory() {
        assert!(monitor_pss_bytes(&[]).unwrap() > 0);
        assert!(resident_bytes().unwrap() >= layout::PAGE_SIZE);
    }
}
