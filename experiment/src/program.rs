// SPDX-License-Identifier: Apache-2.0
//! Which build of the program measured: versions are the same for many builds, and each may measure something else.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// A number that differs between builds: FNV-1a of 64 bits (Fowler, Noll, Vo) over its file, in hexadecimal.
/// It tells builds apart and is no proof against somebody who wants two to look alike.
///
/// # Errors
/// The file cannot be read.
pub fn fingerprint(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let (mut hash, mut chunk) = (OFFSET, vec![0; 1 << 16]);
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(format!("{hash:016x}")),
            read => hash = fold(hash, &chunk[..read]),
        }
    }
}

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

fn fold(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_that_of_the_known_answers() {
        // Of draft-eastlake-fnv, appendix C: the empty string, "a", "foobar".
        assert_eq!(fold(OFFSET, b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fold(OFFSET, b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fold(OFFSET, b"foobar"), 0x8594_4171_f739_67e8);
        assert!(fingerprint(Path::new("/none")).is_err());
    }
}
