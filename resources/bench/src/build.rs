// SPDX-License-Identifier: Apache-2.0
//! The programs and images that are measured, built with `cc` into a directory that goes away at the end.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::process::{Failure, Running};

/// Whose time is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The monitor.
    Vmm,
    /// `bare.c`.
    Bare,
}

/// What is run.
pub(crate) struct Programs {
    vmm: PathBuf,
    /// More of the monitor's flags.
    flags: Vec<String>,
    bare: PathBuf,
    /// The image that says a byte and halts.
    pub(crate) halting: PathBuf,
    /// The image that says a byte, writes to a port, says another and powers off.
    pub(crate) writing: PathBuf,
    _directory: TempDir,
}

impl Programs {
    /// Builds all; the second image writes `port_writes` times.
    pub(crate) fn build(port_writes: u32, flags: Vec<String>) -> Result<Self, Failure> {
        let vmm = beside_us()?;
        let directory = TempDir::new().map_err(|source| Failure::Directory { source })?;
        let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
        let built = |name: &str| directory.path().join(name);
        let bare = built("bare");
        cc(&["-O2", "-static", "-Wall", "-Werror", "-pthread"], &sources.join("bare.c"), &bare)?;
        let script = format!("-Wl,-T,{}", sources.join("payload.ld").display());
        let image = ["-nostdlib", "-static", "-no-pie", "-Wl,--build-id=none", &script];
        let (halting, writing) = (built("halting"), built("writing"));
        cc(&image, &sources.join("payload.S"), &halting)?;
        let writes = format!("-DPORT_WRITES={port_writes}");
        cc(&[&image[..], &[&writes]].concat(), &sources.join("payload.S"), &writing)?;
        Ok(Self { vmm, flags, bare, halting, writing, _directory: directory })
    }

    /// Starts one of the two with an image and waits for the guest's first byte.
    pub(crate) fn start(&self, subject: Subject, image: &Path, vcpus: u32) -> Result<Running, Failure> {
        let mut command = match subject {
            Subject::Vmm => Command::new(&self.vmm),
            Subject::Bare => Command::new(&self.bare),
        };
        match subject {
            Subject::Vmm => {
                command.arg("--kernel").arg(image).args(["--memory=512M", &format!("--cpus={vcpus}")]);
                command.args(&self.flags)
            }
            Subject::Bare => command.arg(image).arg(vcpus.to_string()),
        };
        Running::start(command)
    }
}

fn beside_us() -> Result<PathBuf, Failure> {
    let vmm = env::current_exe().map_err(|source| Failure::Directory { source })?.with_file_name("vmm");
    if vmm.is_file() { Ok(vmm) } else { Err(Failure::NoMonitor { path: vmm }) }
}

fn cc(options: &[&str], source: &Path, output: &Path) -> Result<(), Failure> {
    let mut command = Command::new("cc");
    command.args(options).arg("-o").arg(output).arg(source);
    let done = command.status().map_err(|source| Failure::Start { program: "cc".into(), source })?;
    if done.success() { Ok(()) } else { Err(Failure::Build { path: source.to_owned() }) }
}
