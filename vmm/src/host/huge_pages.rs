// SPDX-License-Identifier: Apache-2.0
#![expect(unsafe_code, reason = "madvise has no safe wrapper")]
//! Huge pages of the host: how many its pools have, and what the kernel is asked for
//! (Documentation/admin-guide/mm/{hugetlbpage,transhuge}.rst).
//!
//! Invariant: nothing of the host is changed; a pool is described as it was when it was read.

use std::io;

use topology::id::HostNode;

use super::numa_memory::Span;
use super::sysfs::ReadText;

/// The kernel's switch of transparent huge pages.
const TRANSPARENT: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// A pool of huge pages of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// Pages in it.
    pub pages: u64,
    /// Pages that nobody uses and nobody has reserved.
    pub free: u64,
    /// Pages the kernel may still add by itself when the pool is empty.
    pub surplus: u64,
}

fn directory(page_bytes: u64) -> String {
    format!("hugepages/hugepages-{}kB", page_bytes >> 10)
}

/// Where the number of pages of the host's pool is set.
#[must_use]
pub fn pool_file(page_bytes: u64) -> String {
    format!("/sys/kernel/mm/{}/nr_hugepages", directory(page_bytes))
}

fn number(read: ReadText<'_>, path: &str) -> Option<u64> {
    read(path).ok()?.trim().parse().ok()
}

/// The host's pool of pages of this size; `None` if the host has no such pages.
#[must_use]
pub fn pool(read: ReadText<'_>, page_bytes: u64) -> Option<Pool> {
    let of = |file: &str| number(read, &format!("/sys/kernel/mm/{}/{file}", directory(page_bytes)));
    let (pages, free) = (of("nr_hugepages")?, of("free_hugepages")?);
    let may_add = of("nr_overcommit_hugepages").unwrap_or(0).saturating_sub(of("surplus_hugepages").unwrap_or(0));
    Some(Pool { pages, free: free.saturating_sub(of("resv_hugepages").unwrap_or(0)), surplus: may_add })
}

/// Free pages of one host node's share of the pool. Reservations are kept for the whole host, so some of these may be
/// promised to others.
#[must_use]
pub fn free_on_node(read: ReadText<'_>, page_bytes: u64, node: HostNode) -> Option<u64> {
    number(read, &format!("/sys/devices/system/node/node{node}/{}/free_hugepages", directory(page_bytes)))
}

/// Whether the host lets programs ask for transparent huge pages; the reason if not.
///
/// # Errors
/// The reason in words.
pub fn transparent(read: ReadText<'_>) -> Result<(), String> {
    match read(TRANSPARENT) {
        Ok(text) if text.contains("[never]") => Err(format!("{TRANSPARENT} says never")),
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{TRANSPARENT}: {error}")),
    }
}

/// What the kernel is asked about a span's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Transparent huge pages where there are some.
    Huge,
    /// Small pages only.
    Small,
    /// All pages at once, as if they had been written to (Linux 5.14).
    Populate,
}

/// Asks the kernel about the pages of `span` (madvise(2)).
///
/// # Errors
/// The kernel's own: `EINVAL` where it lacks the request, `EFAULT` or `ENOMEM` if pages to populate cannot be had.
pub fn advise(span: Span, advice: Advice) -> io::Result<()> {
    let advice = match advice {
        Advice::Huge => libc::MADV_HUGEPAGE,
        Advice::Small => libc::MADV_NOHUGEPAGE,
        Advice::Populate => libc::MADV_POPULATE_WRITE,
    };
    // SAFETY: none of the three changes what the pages hold; a span that is not mapped is an error of the call.
    let result = unsafe { libc::madvise(span.start as *mut libc::c_void, span.bytes, advice) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(path: &str) -> io::Result<String> {
        let text = match path {
            "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages" => "10\n",
            "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages" => "7\n",
            "/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages" => "3\n",
            "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_hugepages" => "5\n",
            "/sys/kernel/mm/hugepages/hugepages-2048kB/surplus_hugepages" => "1\n",
            "/sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages" => "2\n",
            TRANSPARENT => "always madvise [never]\n",
            _ => return Err(io::Error::from_raw_os_error(libc::ENOENT)),
        };
        Ok(text.to_owned())
    }

    #[test]
    fn what_is_promised_is_not_free_and_what_may_be_added_is_apart() {
        assert_eq!(pool(&files, 2 << 20), Some(Pool { pages: 10, free: 4, surplus: 4 }));
        assert_eq!(pool(&files, 1 << 30), None);
        assert_eq!(free_on_node(&files, 2 << 20, HostNode(1)), Some(2));
        assert_eq!(free_on_node(&files, 2 << 20, HostNode(0)), None);
    }

    #[test]
    fn never_means_that_asking_is_in_vain() {
        assert!(transparent(&files).unwrap_err().contains("never"));
        assert_eq!(transparent(&|_| Ok("always [madvise] never".to_owned())), Ok(()));
        assert!(transparent(&|_| Err(io::ErrorKind::NotFound.into())).is_err());
    }

    #[test]
    fn a_span_that_is_not_mapped_is_refused() {
        assert!(advise(Span { start: 4096, bytes: 4096 }, Advice::Populate).is_err());
    }
}
