// SPDX-License-Identifier: Apache-2.0
//! The files that Linux guests boot from: Debian's kernel, and for each tool an initial file system with what it needs.
//!
//! Packages come from the lab's cache. Invariant: the same packages and the same program give the same bytes; either all
//! files can be had, or none is written.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use guest::job::{Job, Tool};
use lab::LabUnavailable;
use lab::initramfs::{self, InitramfsError};
use lab::packages::{Flavour, Series, Store};

use ::experiment::plan::{Plan, Program};

/// Name of the kernel's file.
const KERNEL: &str = "vmlinuz";

/// The files cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Not on this machine, now.
    #[error("no image of a Linux guest: {0}; `vmm experiment image DIR` elsewhere makes files for --image DIR")]
    Unavailable(#[from] LabUnavailable),
    /// They cannot be put together.
    #[error("no image of a Linux guest: {0}")]
    Initramfs(#[from] InitramfsError),
    /// A file of a package cannot be read, or one of the image written.
    #[error("{}: {source}; give a directory that can be written, and remove the lab's cache if the file is one of it", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A directory that was named has no such file.
    #[error("--image {}: has no {name}; `vmm experiment image {} --tool TOOL` makes it", .directory.display(), .directory.display())]
    Missing {
        /// The directory.
        directory: PathBuf,
        /// The file.
        name: String,
    },
}

/// What guests boot from, in memory.
#[derive(Default)]
pub(super) struct Image {
    /// The kernel's release.
    release: String,
    /// Name and bytes of each file.
    files: Vec<(String, Vec<u8>)>,
}

impl Image {
    /// Makes the files for some tools; fetches the packages that are not in the cache.
    pub(super) fn of(tools: &[Tool]) -> Result<Self, ImageError> {
        let store = Store::open()?;
        let kernel = store.kernel(Series::V6_12, Flavour::Cloud)?;
        let mut files = vec![(KERNEL.to_owned(), read(&kernel.vmlinuz)?)];
        for tool in tools {
            files.push((initrd_name(*tool), initrd(&store, *tool)?));
        }
        Ok(Self { release: kernel.release, files })
    }

    /// Reads files that were made before.
    pub(super) fn read(directory: &Path, tools: &[Tool]) -> Result<Self, ImageError> {
        let files = names(tools).map(|name| Ok((name.clone(), read(&directory.join(name))?)));
        Ok(Self { release: "as it was made".to_owned(), files: files.collect::<Result<_, ImageError>>()? })
    }

    /// Writes them into a directory, which is made.
    pub(super) fn write(&self, directory: &Path) -> Result<(), ImageError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| ImageError::File { path, source }
        };
        fs::create_dir_all(directory).map_err(failed(directory))?;
        for (name, bytes) in &self.files {
            let path = directory.join(name);
            fs::write(&path, bytes).map_err(failed(&path))?;
        }
        Ok(())
    }

    /// The files, for another machine.
    pub(super) fn files(&self) -> &[(String, Vec<u8>)] {
        &self.files
    }

    /// What they are and how large.
    pub(super) fn table(&self) -> String {
        let mut text = format!("Linux {}, unmodified\n", self.release);
        for (name, bytes) in &self.files {
            let _ = writeln!(text, "{name:<20} {:>10} bytes ({:.1} MiB)", bytes.len(), mib(bytes.len()));
        }
        let all = self.files.iter().map(|(_, bytes)| bytes.len()).sum();
        let _ = writeln!(text, "{:<20} {all:>10} bytes ({:.1} MiB)", "all", mib(all));
        text
    }
}

#[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^53")]
fn mib(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Where the files of a directory are.
#[derive(Clone, Debug)]
pub(super) struct ImageFiles(pub(super) PathBuf);

impl ImageFiles {
    pub(super) fn kernel(&self) -> PathBuf {
        self.0.join(KERNEL)
    }

    pub(super) fn initrd(&self, tool: Tool) -> PathBuf {
        self.0.join(initrd_name(tool))
    }

    /// Whether all files for some tools are there.
    pub(super) fn check(&self, tools: &[Tool]) -> Result<(), ImageError> {
        match names(tools).find(|name| !self.0.join(name).is_file()) {
            Some(name) => Err(ImageError::Missing { directory: self.0.clone(), name }),
            None => Ok(()),
        }
    }
}

/// The tools of a plan's Linux workloads, each once; of words that are no job nothing is said here.
pub(super) fn tools(plan: &Plan) -> Vec<Tool> {
    let of = |program: &Program| match program {
        Program::Linux(words) => Job::parse(words).ok().map(|job| job.tool),
        Program::Probe(_) => None,
    };
    let named: Vec<Tool> = plan.workloads.iter().filter_map(|workload| of(&workload.program)).collect();
    Tool::ALL.into_iter().filter(|tool| named.contains(tool)).collect()
}

/// The files for some tools.
fn names(tools: &[Tool]) -> impl Iterator<Item = String> + '_ {
    tools.iter().map(|tool| initrd_name(*tool)).chain([KERNEL.to_owned()])
}

fn initrd_name(tool: Tool) -> String {
    format!("{}.cpio", tool.name())
}

/// busybox, the agent and a tool with what it needs.
fn initrd(store: &Store, tool: Tool) -> Result<Vec<u8>, ImageError> {
    let mut files = vec![("/bin/agent".to_owned(), guest::AGENT.to_vec())];
    let packaged = match tool {
        Tool::Ebizzy => {
            files.push(("/bin/ebizzy".to_owned(), guest::EBIZZY.to_vec()));
            Vec::new()
        }
        Tool::Kernbuild => {
            files.push(("/build/unit.sh".to_owned(), guest::BUILD_UNIT.as_bytes().to_vec()));
            Vec::new()
        }
        Tool::Dbench => {
            let load = store.files("dbench", &["usr/share/dbench/client.txt"])?;
            let load = load.into_iter().map(|(name, path)| (format!("/usr/share/dbench/{name}"), path));
            load.chain(store.program("dbench", "/usr/bin/dbench")?).collect()
        }
        Tool::Sysbench => store.program("sysbench", "/usr/bin/sysbench")?,
        Tool::StressNg => store.program("stress-ng", "/usr/bin/stress-ng")?,
        Tool::Hackbench => store.program("rt-tests", "/usr/bin/hackbench")?,
    };
    for (place, path) in packaged {
        files.push((place, read(&path)?));
    }
    let files: Vec<(&str, &[u8])> = files.iter().map(|(path, bytes)| (path.as_str(), bytes.as_slice())).collect();
    Ok(initramfs::guest(store, guest::AGENT_SCRIPT, &files)?)
}

fn read(path: &Path) -> Result<Vec<u8>, ImageError> {
    fs::read(path).map_err(|source| ImageError::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_lacks_a_file_is_named_with_it() {
        let directory = tempfile_in_target();
        let files = ImageFiles(directory.clone());
        fs::write(directory.join(KERNEL), "k").expect("written");
        assert!(files.check(&[]).is_ok());
        let missing = files.check(&[Tool::Dbench]).expect_err("no dbench").to_string();
        assert!(missing.contains("has no dbench.cpio"), "{missing}");
        fs::remove_dir_all(directory).expect("removed");
    }

    fn tempfile_in_target() -> PathBuf {
        let directory = std::env::temp_dir().join(format!("vmm-image-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("made");
        directory
    }

    #[test]
    fn an_image_of_ebizzy_is_the_same_bytes_twice() {
        match (Image::of(&[Tool::Ebizzy, Tool::Kernbuild]), Image::of(&[Tool::Ebizzy, Tool::Kernbuild])) {
            (Ok(one), Ok(other)) => {
                assert_eq!(one.files, other.files);
                assert!(one.table().contains("ebizzy.cpio") && one.files.len() == 3, "{}", one.table());
            }
            (Err(ImageError::Unavailable(why)), _) => eprintln!("not looked at: {why}"),
            (one, _) => panic!("{:?}", one.err()),
        }
    }
}
