// SPDX-License-Identifier: Apache-2.0
//! The ELF kernel inside a bzImage, unpacked: the same build of Linux, to be started by its other entry points.
//!
//! Source: Documentation/arch/x86/boot.rst, `payload_offset` and `payload_length`. The payload is a compressed stream, behind
//! it the length of the ELF in four bytes. Invariant: the tool that unpacks it is Debian's, from the cache.

use std::ops::Range;
use std::time::Duration;

use super::{DebianKernel, REMEDY, Store};
use crate::child;
use crate::unavailable::LabUnavailable;

const UNPACK_LIMIT: Duration = Duration::from_secs(120);
/// Offset of `setup_sects`.
const SETUP_SECTORS: usize = 0x1F1;
/// Offset of `header`, which is "HdrS".
const MAGIC: usize = 0x202;
/// Offset of `payload_offset`; `payload_length` is behind it.
const PAYLOAD: usize = 0x248;
const SECTOR_BYTES: usize = 512;
/// How Debian compresses its kernels (RFC 8878, section 3.1.1).
const ZSTD: &[u8] = b"\x28\xB5\x2F\xFD";
/// The length behind the stream.
const LENGTH_BYTES: usize = 4;

impl Store {
    /// The ELF kernel (vmlinux) that a bzImage unpacks when it starts.
    pub fn vmlinux(&self, kernel: &DebianKernel) -> Result<Vec<u8>, LabUnavailable> {
        let failed = |why: String| LabUnavailable::new(format!("the vmlinux of {}", kernel.release), why, REMEDY);
        let image = std::fs::read(&kernel.vmlinuz).map_err(|error| failed(error.to_string()))?;
        let stream = zstd_stream(&image).map_err(failed)?;
        let packed = tempfile::NamedTempFile::new().map_err(|error| failed(error.to_string()))?;
        std::fs::write(packed.path(), stream).map_err(|error| failed(error.to_string()))?;
        let mut command = self.command_of("zstd", "/usr/bin/zstd")?;
        child::output(command.args(["--decompress", "--stdout", "--quiet"]).arg(packed.path()), UNPACK_LIMIT, REMEDY)
    }
}

/// The compressed ELF kernel of a bzImage, without what is behind the stream; the error says what is wrong.
fn zstd_stream(image: &[u8]) -> Result<&[u8], String> {
    let payload = image.get(payload(image)?).ok_or("its payload goes past its end")?;
    match payload.split_at_checked(payload.len().saturating_sub(LENGTH_BYTES)) {
        Some((stream, _)) if stream.starts_with(ZSTD) => Ok(stream),
        _ => Err("its payload is no zstd stream, which is what Debian 12 compresses its 6.12 kernels with".to_owned()),
    }
}

fn payload(image: &[u8]) -> Result<Range<usize>, String> {
    if image.get(MAGIC..MAGIC + 4) != Some(b"HdrS") {
        return Err("it is no bzImage".to_owned());
    }
    let number = |at: usize| {
        let bytes: [u8; 4] = image.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    let code = (usize::from(image[SETUP_SECTORS]) + 1) * SECTOR_BYTES;
    match (number(PAYLOAD), number(PAYLOAD + 4)) {
        (Some(offset), Some(bytes)) => Ok(code + offset..code + offset + bytes),
        _ => Err("its setup header is cut short".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 2 * SECTOR_BYTES];
        image[SETUP_SECTORS] = 1;
        image[MAGIC..MAGIC + 4].copy_from_slice(b"HdrS");
        image[PAYLOAD] = 3;
        image[PAYLOAD + 4] = u8::try_from(payload.len()).unwrap();
        [&image, &[0; 3][..], payload, &[0; 9]].concat()
    }

    #[test]
    fn the_stream_is_found_and_the_length_behind_it_left_out() {
        assert_eq!(zstd_stream(&image(b"\x28\xB5\x2F\xFDstream\x01\x02\x03\x04")), Ok(&b"\x28\xB5\x2F\xFDstream"[..]));
    }

    #[test]
    fn what_holds_no_such_kernel_is_told() {
        assert_eq!(zstd_stream(b"MZ"), Err("it is no bzImage".to_owned()));
        assert!(zstd_stream(&image(b"\x1F\x8B\x08\x00\x00\x00\x00")).unwrap_err().contains("no zstd stream"));
        assert!(zstd_stream(&image(b"")).unwrap_err().contains("no zstd stream"));
        let whole = image(b"\x28\xB5\x2F\xFD....");
        assert!(zstd_stream(&whole[..whole.len() - 12]).unwrap_err().contains("past its end"));
        assert!(zstd_stream(&whole[..PAYLOAD + 2]).unwrap_err().contains("cut short"));
    }
}
