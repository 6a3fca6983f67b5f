// SPDX-License-Identifier: Apache-2.0
//! What the probe guest is told to do, read as the guest will read it: what it would refuse is refused before the boot.
//! Pure.

use probe::command_line::{Command, CommandError};

use super::ConfigError;
use super::nearest::nearest;

/// Refuses what the guest would not understand.
pub(super) fn check(line: &str) -> Result<(), ConfigError> {
    let Err(source) = Command::parse(line) else { return Ok(()) };
    let wrong = source.word();
    let (key, value) = wrong.as_str().split_once('=').unwrap_or((wrong.as_str(), ""));
    let nearest = match source {
        CommandError::UnknownWord(_) => nearest(key, source.known()),
        CommandError::BadValue(_) => nearest(value, source.known()),
        CommandError::SecondWorkload(_) => None,
    };
    Err(ConfigError::Probe { line: line.to_owned(), source, nearest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_known_word_is_named() {
        let refused = |line: &str| check(line).unwrap_err().to_string();
        for (line, meant) in [
            ("rings", "ring"),
            ("spin second=3", "seconds"),
            ("spin port=atuo", "auto"),
            ("ipi send=brodcast", "broadcast"),
            ("workload=tiket", "ticket"),
            ("spin report=line", "lines"),
        ] {
            let text = refused(line);
            assert!(text.starts_with(&format!("--probe {line:?}: ")), "{text}");
            assert!(text.ends_with(&format!("did you mean `{meant}`?")), "{text}");
        }
        for line in ["console=ttyS0", "spin seconds=301", "ring spin"] {
            assert!(!refused(line).contains("did you mean"), "{line}");
        }
        check("seconds=0.2 ring spins=7").unwrap();
    }
}
