// SPDX-License-Identifier: Apache-2.0
//! Whether a file that will be written is also another flag's: a log over the kernel that is to be booted, two outputs
//! that overwrite each other.
//!
//! Looks at files and opens none. Devices and pipes may be shared: nothing of them is replaced.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{ConfigError, MachineConfig, SerialConfig};

/// What makes two paths one file.
#[derive(PartialEq, Eq)]
enum Identity {
    /// Device and inode of a file that is there.
    Inode(u64, u64),
    /// The real directory and the name of one that is not.
    Name(PathBuf),
}

impl Identity {
    /// None for what is not a regular file and for what cannot be looked at; others say what is wrong with it.
    fn of(path: &Path) -> Option<Self> {
        if let Ok(found) = fs::metadata(path) {
            return found.is_file().then(|| Self::Inode(found.dev(), found.ino()));
        }
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some(Self::Name(fs::canonicalize(directory).ok()?.join(path.file_name()?)))
    }
}

/// Checks that no file to be written is named by another flag.
///
/// # Errors
/// [`ConfigError::SharedFile`].
pub(super) fn check(config: &MachineConfig) -> Result<(), ConfigError> {
    check_with(config, None)
}

/// The same, with the file that `--config` names.
///
/// # Errors
/// [`ConfigError::SharedFile`].
pub(super) fn check_with(config: &MachineConfig, config_file: Option<&PathBuf>) -> Result<(), ConfigError> {
    let log = match &config.serial {
        Some(SerialConfig::File(path)) => Some(path),
        Some(SerialConfig::Stdio | SerialConfig::None) | None => None,
    };
    let outputs =
        [("--serial", log), ("--report", config.report.as_ref()), ("--decision-log", config.decision_log.as_ref())];
    let mut named =
        vec![("--config", config_file), ("--kernel", config.kernel.as_ref()), ("--initrd", config.initrd.as_ref())];
    for output in outputs {
        let (flag, Some(path)) = output else { continue };
        let identity = Identity::of(path);
        let same =
            |other: &&(_, Option<&PathBuf>)| identity.is_some() && other.1.and_then(|o| Identity::of(o)) == identity;
        if let Some((other, _)) = named.iter().find(same) {
            return Err(ConfigError::SharedFile { flag, path: path.clone(), other });
        }
        named.push(output);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    fn refused(toml: &str) -> Option<String> {
        check(&parse(toml).expect("well-formed")).err().map(|error| error.to_string())
    }

    #[test]
    fn an_output_is_nobody_elses_file() {
        for (toml, flag, other) in [
            ("kernel = \"/proc/self/exe\"\nserial = \"file=/proc/self/exe\"", "--serial", "--kernel"),
            ("initrd = \"/proc/self/exe\"\nreport = \"/proc/../proc/self/exe\"", "--report", "--initrd"),
            ("serial = \"file=/tmp/../absent\"\nreport = \"/absent\"", "--report", "--serial"),
            ("report = \"absent\"\ndecision_log = \"./absent\"", "--decision-log", "--report"),
        ] {
            let message = refused(toml).expect(toml);
            assert!(message.starts_with(flag) && message.contains(other), "{message}");
        }
    }

    #[test]
    fn no_output_replaces_the_configuration() {
        let (config, file) = (parse("report = \"/proc/self/exe\"").expect("well-formed"), "/proc/self/exe".into());
        let message = check_with(&config, Some(&file)).expect_err("one file").to_string();
        assert!(message.starts_with("--report /proc/self/exe: --config names the same file"), "{message}");
    }

    #[test]
    fn inputs_and_devices_may_be_shared() {
        for toml in [
            "kernel = \"/proc/self/exe\"\ninitrd = \"/proc/self/exe\"",
            "serial = \"file=/dev/null\"\nreport = \"/dev/null\"\ndecision_log = \"/dev/null\"",
            "serial = \"file=a\"\nreport = \"b\"",
            "serial = \"file=/absent/a\"\nreport = \"/absent/a\"",
        ] {
            assert_eq!(refused(toml), None, "{toml}");
        }
    }
}
