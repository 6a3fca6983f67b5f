// SPDX-License-Identifier: Apache-2.0
//! Reads what the lab host sends back: files and the exit status, each file with its length and checksum.
//!
//! Place in the flow: `resources/lab/init` writes the stream to the second serial port, QEMU to a file, this module
//! reads the file when QEMU has ended. Invariant: either everything the lab host meant to send is here, byte for byte, or
//! the error says at which record it stops.
//!
//! The stream: a line `vmm-lab-results 1`, then for each file a line `file LENGTH CRC32 NAME` and LENGTH bytes, then
//! `status NUMBER`, then `end`. CRC-32 is the one of ISO 3309 (as in gzip), in hexadecimal.

use std::collections::BTreeMap;

use thiserror::Error;

const GREETING: &str = "vmm-lab-results 1";

/// Files by their name below `/results`, and the script's exit status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Results {
    /// Name relative to `/results` → content.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Exit status of the script (128 + n when signal n ended it).
    pub status: u8,
}

/// Why the stream is not what the lab host meant to send.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ResultsError {
    /// The stream is empty or ends before its `end` line: the lab host stopped while or before sending.
    #[error("the lab host's results end after {bytes} bytes, before {wanted}; its console says why it stopped")]
    Truncated {
        /// Length of the stream.
        bytes: usize,
        /// What should have come.
        wanted: &'static str,
    },
    /// A line is not one of the records.
    #[error("the lab host's results hold the line {line:?} where {wanted} should be; the stream is damaged, run again")]
    Record {
        /// The line.
        line: String,
        /// What should have come.
        wanted: &'static str,
    },
    /// A file came with another checksum than it was sent with.
    #[error("the file {name:?} came back damaged: checksum {got:08x}, sent as {sent:08x}; run again")]
    Checksum {
        /// The file.
        name: String,
        /// Checksum stated by the lab host.
        sent: u32,
        /// Checksum of what arrived.
        got: u32,
    },
    /// A name that would leave the directory results are written to.
    #[error("the lab host sent a file named {name:?}; names below /results without '..' are taken")]
    Name {
        /// The name.
        name: String,
    },
}

/// Reads a whole stream.
pub fn parse(stream: &[u8]) -> Result<Results, ResultsError> {
    let mut rest = stream;
    let next_line = |rest: &mut &[u8], wanted| {
        let end = rest.iter().position(|&b| b == b'\n');
        let end = end.ok_or(ResultsError::Truncated { bytes: stream.len(), wanted })?;
        let line = String::from_utf8_lossy(&rest[..end]).into_owned();
        *rest = &rest[end + 1..];
        Ok::<_, ResultsError>(line)
    };
    let greeting = next_line(&mut rest, "the greeting")?;
    if greeting != GREETING {
        return Err(ResultsError::Record { line: greeting, wanted: "the greeting" });
    }
    let mut files = BTreeMap::new();
    loop {
        let wanted = "a file or the status";
        let line = next_line(&mut rest, wanted)?;
        if let Some(text) = line.strip_prefix("status ") {
            let wanted = "the status, 0 to 255";
            let status = text.parse().map_err(|_| ResultsError::Record { line: line.clone(), wanted })?;
            return match next_line(&mut rest, "the end line")?.as_str() {
                "end" => Ok(Results { files, status }),
                other => Err(ResultsError::Record { line: other.to_owned(), wanted: "the end line" }),
            };
        }
        let header = FileHeader::parse(&line).ok_or(ResultsError::Record { line: line.clone(), wanted })?;
        let Some((content, after)) = rest.split_at_checked(header.len_bytes) else {
            return Err(ResultsError::Truncated { bytes: stream.len(), wanted: "the end of a file" });
        };
        files.insert(header.name.to_owned(), header.check(content)?.to_vec());
        rest = after;
    }
}

struct FileHeader<'a> {
    len_bytes: usize,
    checksum: u32,
    name: &'a str,
}

impl<'a> FileHeader<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.strip_prefix("file ")?.splitn(3, ' ');
        let len_bytes = words.next()?.parse().ok()?;
        let checksum = u32::from_str_radix(words.next()?, 16).ok()?;
        Some(Self { len_bytes, checksum, name: words.next()? })
    }

    fn check<'b>(&self, content: &'b [u8]) -> Result<&'b [u8], ResultsError> {
        if self.name.is_empty() || self.name.split('/').any(|part| part.is_empty() || part == "..") {
            return Err(ResultsError::Name { name: self.name.to_owned() });
        }
        let got = crc32(content);
        if got != self.checksum {
            return Err(ResultsError::Checksum { name: self.name.to_owned(), sent: self.checksum, got });
        }
        Ok(content)
    }
}

/// CRC-32 of ISO 3309 (reflected, polynomial 0xEDB88320), what busybox's `crc32` prints.
#[must_use]
pub fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            let low_bit = crc & 1;
            crc = (crc >> 1) ^ (0xEDB8_8320 * low_bit);
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stream(files: &[(&str, &[u8])], status: u8) -> Vec<u8> {
        let mut out = b"vmm-lab-results 1\n".to_vec();
        for (name, content) in files {
            out.extend(format!("file {} {:08x} {name}\n", content.len(), crc32(content)).into_bytes());
            out.extend_from_slice(content);
        }
        out.extend(format!("status {status}\nend\n").into_bytes());
        out
    }

    #[test]
    fn the_checksum_is_the_one_busybox_prints() {
        // The check value of CRC-32/ISO-HDLC.
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn files_and_status_come_back() {
        let results = parse(&stream(&[("a", b"x\ny"), ("d/b c", b"")], 33)).unwrap();
        assert_eq!(results.status, 33);
        assert_eq!(results.files["a"], b"x\ny");
        assert_eq!(results.files["d/b c"], b"");
    }

    #[test]
    fn a_damaged_file_is_told_from_a_cut_stream() {
        let whole = stream(&[("a", b"hello")], 0);
        let mut damaged = whole.clone();
        let at = damaged.len() - "status 0\nend\n".len() - 1;
        damaged[at] ^= 1;
        assert!(matches!(parse(&damaged), Err(ResultsError::Checksum { .. })));
        for cut in 0..whole.len() {
            assert!(matches!(parse(&whole[..cut]), Err(ResultsError::Truncated { .. })), "cut at {cut}");
        }
    }

    #[test]
    fn a_name_that_climbs_is_refused() {
        for name in ["../a", "/etc/x", "a/../b", ""] {
            assert!(matches!(parse(&stream(&[(name, b"")], 0)), Err(ResultsError::Name { .. })), "{name:?}");
        }
    }

    #[test]
    fn a_status_outside_a_byte_is_refused() {
        assert!(matches!(parse(b"vmm-lab-results 1\nstatus 256\nend\n"), Err(ResultsError::Record { .. })));
        assert!(matches!(parse(b"hello\n"), Err(ResultsError::Record { .. })));
    }

    proptest! {
        #[test]
        fn no_stream_makes_the_reader_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), greeted: bool) {
            if greeted {
                bytes.splice(0..0, b"vmm-lab-results 1\nfile 3 0 a".iter().copied());
            }
            let length = bytes.len();
            if let Ok(results) = parse(&bytes) {
                prop_assert!(results.files.values().map(Vec::len).sum::<usize>() <= length);
            }
        }
    }
}
