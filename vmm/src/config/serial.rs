// SPDX-License-Identifier: Apache-2.0
//! Where the guest's serial port leads: `stdio`, `none` or `file=PATH`. Pure.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::ValueError;

/// Where the guest's first serial port leads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SerialConfig {
    /// Output to standard output, input from standard input.
    #[default]
    Stdio,
    /// The port is there; what is written to it is lost and nothing ever arrives.
    None,
    /// Output to a file, which is created or truncated; no input. The path is UTF-8, as all of a configuration is.
    File(PathBuf),
}

impl FromStr for SerialConfig {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match (text, text.strip_prefix("file=")) {
            ("stdio", _) => Ok(Self::Stdio),
            ("none", _) => Ok(Self::None),
            (_, Some(path)) if !path.is_empty() => Ok(Self::File(path.into())),
            _ => Err(ValueError::Serial { value: text.to_owned() }),
        }
    }
}

impl fmt::Display for SerialConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdio => f.write_str("stdio"),
            Self::None => f.write_str("none"),
            Self::File(path) => write!(f, "file={}", path.display()),
        }
    }
}

impl TryFrom<String> for SerialConfig {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        text.parse()
    }
}

impl From<SerialConfig> for String {
    fn from(serial: SerialConfig) -> Self {
        serial.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_places_and_no_other() {
        assert_eq!("stdio".parse(), Ok(SerialConfig::Stdio));
        assert_eq!("none".parse(), Ok(SerialConfig::None));
        assert_eq!("file=a=b".parse(), Ok(SerialConfig::File("a=b".into())));
        for text in ["", "file", "file=", "Stdio", "tty", "none "] {
            assert_eq!(text.parse::<SerialConfig>(), Err(ValueError::Serial { value: text.to_owned() }));
        }
    }
}
