// SPDX-License-Identifier: Apache-2.0
//! Debian's kernels by series and flavour: which package is the newest, and what is where once it is unpacked.
//!
//! Place in the flow: [`super::Store::kernel`] chooses a package here and hands out the unpacked kernel, as the lab's own
//! kernel and as guest kernels. Invariant: the image is Debian's, byte for byte.

use std::fs;
use std::path::{Path, PathBuf};

/// Kernel series of Debian 12.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Series {
    /// 6.1, what Debian 12 was released with.
    V6_1,
    /// 6.12, from its security and backports suites. The lab host's own kernel.
    V6_12,
}

impl Series {
    /// As in the kernel's version.
    #[must_use]
    pub fn number(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
        }
    }
}

/// Configurations Debian builds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// For virtual machines: fewer drivers, quicker to boot.
    Cloud,
    /// For any PC.
    Generic,
}

impl Flavour {
    /// End of the package's name.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Cloud => "cloud-amd64",
            Self::Generic => "amd64",
        }
    }
}

/// An unpacked kernel package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DebianKernel {
    /// What `uname -r` prints.
    pub release: String,
    /// The bzImage.
    pub vmlinuz: PathBuf,
    /// Directory of its modules (`*.ko.xz` in Debian 12), the one that holds `kernel/`.
    pub modules: PathBuf,
    /// Its build configuration.
    pub config: PathBuf,
}

impl DebianKernel {
    /// Finds the parts below the root of an unpacked package; the error says which is missing.
    pub(super) fn unpacked_in(root: &Path) -> Result<Self, String> {
        let boot = root.join("boot");
        let entries = fs::read_dir(&boot).map_err(|error| format!("{}: {error}", boot.display()))?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let release = names.filter_map(|name| name.strip_prefix("vmlinuz-").map(str::to_owned)).next();
        let release = release.ok_or_else(|| format!("{} holds no kernel image", boot.display()))?;
        let modules = ["lib/modules", "usr/lib/modules"].iter().map(|place| root.join(place).join(&release));
        let modules = modules.clone().find(|path| path.is_dir()).ok_or("its package holds no modules")?;
        let file = |prefix: &str| boot.join(format!("{prefix}-{release}"));
        Ok(Self { vmlinuz: file("vmlinuz"), config: file("config"), modules, release })
    }

    /// A module's file by its name, such as `kvm-amd`.
    #[must_use]
    pub fn module(&self, name: &str) -> Option<PathBuf> {
        find(&self.modules, &[format!("{name}.ko"), format!("{name}.ko.xz")])
    }
}

fn find(directory: &Path, names: &[String]) -> Option<PathBuf> {
    let mut below = Vec::new();
    for entry in fs::read_dir(directory).ok()?.flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            below.push(path);
        } else if entry.file_name().to_str().is_some_and(|name| names.iter().any(|wanted| wanted == name)) {
            return Some(path);
        }
    }
    below.iter().find_map(|path| find(path, names))
}

/// The newest package of a series and flavour. Names without a full version are packages that only depend on another.
pub(super) fn newest(names: &[String], series: Series, flavour: Flavour) -> Option<&str> {
    let version = |name: &str| -> Option<Vec<u64>> {
        let middle = name.strip_prefix("linux-image-")?.strip_suffix(flavour.suffix())?.strip_suffix('-')?;
        let tail = middle.strip_prefix(series.number())?.strip_prefix('.')?;
        // 6.1.0-57, 6.12.117+deb12, 6.12.90+deb12.1; not 6.12.117+deb12-cloud or -rt.
        let named = tail.split(|c: char| !c.is_ascii_alphabetic()).any(|word| !matches!(word, "" | "deb" | "bpo"));
        let numbers = tail.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty());
        (!named).then(|| numbers.map(str::parse).collect::<Result<_, _>>().ok())?
    };
    let candidates = names.iter().filter_map(|name| Some((version(name)?, name.as_str())));
    candidates.max().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        [
            "linux-image-6.1.0-9-amd64",
            "linux-image-6.1.0-57-amd64",
            "linux-image-6.1.0-57-amd64-dbg",
            "linux-image-6.1.0-57-amd64-unsigned",
            "linux-image-6.1.0-58-rt-amd64",
            "linux-image-6.1.0-56-cloud-amd64",
            "linux-image-6.12-cloud-amd64",
            "linux-image-6.12.90+deb12-cloud-amd64",
            "linux-image-6.12.90+deb12.1-cloud-amd64",
            "linux-image-6.12.117+deb12-cloud-amd64",
            "linux-image-6.12.116+deb12-amd64",
            "linux-image-cloud-amd64",
        ]
        .map(str::to_owned)
        .to_vec()
    }

    #[test]
    fn the_newest_of_a_series_and_flavour_is_chosen_by_number() {
        let names = names();
        let chosen = |series, flavour| newest(&names, series, flavour).unwrap();
        assert_eq!(chosen(Series::V6_1, Flavour::Generic), "linux-image-6.1.0-57-amd64");
        assert_eq!(chosen(Series::V6_1, Flavour::Cloud), "linux-image-6.1.0-56-cloud-amd64");
        assert_eq!(chosen(Series::V6_12, Flavour::Cloud), "linux-image-6.12.117+deb12-cloud-amd64");
        assert_eq!(chosen(Series::V6_12, Flavour::Generic), "linux-image-6.12.116+deb12-amd64");
        assert_eq!(newest(&names[11..], Series::V6_12, Flavour::Cloud), None);
    }

    #[test]
    fn an_unpacked_kernel_is_found_by_its_image() {
        let root = tempfile::tempdir().unwrap();
        let module = root.path().join("lib/modules/6.12.1-x/kernel/arch/x86/kvm");
        fs::create_dir_all(&module).unwrap();
        fs::write(module.join("kvm-amd.ko.xz"), "").unwrap();
        assert!(DebianKernel::unpacked_in(root.path()).is_err());
        fs::create_dir(root.path().join("boot")).unwrap();
        fs::write(root.path().join("boot/vmlinuz-6.12.1-x"), "").unwrap();
        let kernel = DebianKernel::unpacked_in(root.path()).unwrap();
        assert_eq!(kernel.release, "6.12.1-x");
        assert_eq!(kernel.module("kvm-amd"), Some(module.join("kvm-amd.ko.xz")));
        assert_eq!(kernel.module("kvm-intel"), None);
    }
}
