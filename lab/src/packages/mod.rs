// SPDX-License-Identifier: Apache-2.0
//! Debian's packages, fetched once and unpacked into a cache, never installed.
//!
//! Place in the flow: everything the lab is made of (emulator, kernels, busybox) is asked for here. Invariant: a package set
//! is either wholly in the cache or not there (it is renamed into place when complete), two fetchers never work at once (a
//! lock on the cache), and nothing outside the cache is changed.
//!
//! The cache is `$VMM_LAB_CACHE`, else `$XDG_CACHE_HOME/vmm/lab`, else `$HOME/.cache/vmm/lab`. Deleting it is always safe.
//! With `VMM_LAB_OFFLINE=1` only what is there is used.

mod apt;
mod kernel;
mod program;
mod vmlinux;

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use self::apt::Apt;
pub use self::kernel::{DebianKernel, Flavour, Series};
use crate::child;
use crate::tell::tell;
use crate::unavailable::LabUnavailable;

const UNPACK_LIMIT: Duration = Duration::from_secs(300);
const REMEDY: &str =
    "run on Debian 12 or later with access to its mirror, or copy a filled cache and set VMM_LAB_CACHE";

/// The cache of unpacked packages.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
}

impl Store {
    /// Opens the cache, creating its directory.
    pub fn open() -> Result<Self, LabUnavailable> {
        if cfg!(not(all(target_arch = "x86_64", target_os = "linux"))) {
            let why = "the lab is built from Debian's amd64 packages";
            return Err(LabUnavailable::new("this machine", why, "use an x86-64 Linux machine"));
        }
        let place = |variable: &str, below: &str| {
            env::var_os(variable).filter(|v| !v.is_empty()).map(|value| Path::new(&value).join(below))
        };
        let root = place("VMM_LAB_CACHE", "")
            .or_else(|| place("XDG_CACHE_HOME", "vmm/lab"))
            .or_else(|| place("HOME", ".cache/vmm/lab"))
            .ok_or_else(|| LabUnavailable::new("the package cache", "HOME is not set", "set VMM_LAB_CACHE"))?;
        Self::at(root)
    }

    /// Opens the cache in a directory of the caller's choice.
    pub fn at(root: PathBuf) -> Result<Self, LabUnavailable> {
        let failed = |error| cache_failed(&root, error);
        fs::create_dir_all(&root).map_err(failed)?;
        let root = fs::canonicalize(&root).map_err(failed)?;
        Ok(Self { root })
    }

    /// Root of an unpacked QEMU with all its libraries, version 10 or later.
    pub(crate) fn qemu(&self) -> Result<PathBuf, LabUnavailable> {
        self.unpacked("qemu", |apt, archives| apt.download_with_dependencies("qemu-system-x86", archives))
    }

    /// A statically linked busybox.
    pub fn busybox(&self) -> Result<PathBuf, LabUnavailable> {
        let root = self.unpacked("busybox", |apt, archives| apt.download("busybox-static", archives))?;
        // Before and after the merge of /bin into /usr.
        let place = ["bin/busybox", "usr/bin/busybox"].iter().map(|path| root.join(path)).find(|path| path.is_file());
        place.ok_or_else(|| LabUnavailable::new("busybox", "its package holds no such program", remove(&root)))
    }

    /// One of Debian's kernels, unpacked and unmodified.
    pub fn kernel(&self, series: Series, flavour: Flavour) -> Result<DebianKernel, LabUnavailable> {
        let name = format!("linux-{}-{}", series.number(), flavour.suffix());
        let root = self.unpacked(&name, |apt, archives| {
            let names = apt.package_names("linux-image-")?;
            let package = kernel::newest(&names, series, flavour).ok_or_else(|| {
                LabUnavailable::new(name.clone(), "no such kernel among Debian's packages of this release", REMEDY)
            })?;
            apt.download(package, archives)
        })?;
        DebianKernel::unpacked_in(&root).map_err(|why| LabUnavailable::new(name, why, remove(&root)))
    }

    /// The directory of a package set, fetched now unless it is there.
    fn unpacked(
        &self,
        name: &str,
        fetch: impl FnOnce(&Apt, &Path) -> Result<(), LabUnavailable>,
    ) -> Result<PathBuf, LabUnavailable> {
        let place = self.root.join(name);
        if place.is_dir() {
            return Ok(place);
        }
        if env::var_os("VMM_LAB_OFFLINE").is_some_and(|value| !value.is_empty()) {
            let why = "it is not in the cache and VMM_LAB_OFFLINE is set";
            return Err(LabUnavailable::new(name, why, "unset VMM_LAB_OFFLINE to fetch it"));
        }
        let _lock = self.lock()?;
        // Whoever held the lock may have fetched it.
        if place.is_dir() {
            return Ok(place);
        }
        tell(format_args!("lab: fetching {name} from Debian into {}", self.root.display()));
        let failed = |error| cache_failed(&self.root, error);
        let apt = Apt::open(&self.root.join("apt"))?;
        let work = tempfile::tempdir_in(&self.root).map_err(failed)?;
        let archives = work.path().join("archives");
        fs::create_dir_all(archives.join("partial")).map_err(failed)?;
        fetch(&apt, &archives)?;
        let tree = work.path().join("tree");
        for entry in fs::read_dir(&archives).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|extension| extension == "deb") {
                child::output(child::bound_to_us("dpkg-deb").arg("-x").arg(&path).arg(&tree), UNPACK_LIMIT, REMEDY)?;
            }
        }
        fs::rename(&tree, &place).map_err(failed)?;
        Ok(place)
    }

    /// Held while packages are fetched; the kernel lets go of it when the process ends.
    fn lock(&self) -> Result<File, LabUnavailable> {
        let failed = |error| cache_failed(&self.root, error);
        let file = File::create(self.root.join("lock")).map_err(failed)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            tell(format_args!("lab: waiting for another process that is fetching into {}", self.root.display()));
            flock(&file, FlockOperation::LockExclusive).map_err(|errno| failed(errno.into()))?;
        }
        Ok(file)
    }
}

fn cache_failed(root: &Path, error: std::io::Error) -> LabUnavailable {
    let remedy = "set VMM_LAB_CACHE to a directory that can be written";
    LabUnavailable::new(format!("the package cache {}", root.display()), error, remedy)
}

fn remove(root: &Path) -> String {
    format!("remove {} so that it is fetched again", root.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_cache_is_not_fetched_again() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::at(directory.path().to_owned()).unwrap();
        fs::create_dir_all(store.root.join("busybox/bin")).unwrap();
        fs::write(store.root.join("busybox/bin/busybox"), "").unwrap();
        assert_eq!(store.busybox(), Ok(store.root.join("busybox/bin/busybox")));
    }

    #[test]
    fn a_set_that_cannot_be_fetched_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::at(directory.path().to_owned()).unwrap();
        fs::create_dir_all(store.root.join("linux-6.12-cloud-amd64")).unwrap();
        let error = store.kernel(Series::V6_12, Flavour::Cloud).unwrap_err();
        assert!(error.remedy.contains("remove "), "{error}");
    }

    #[test]
    fn a_cache_that_cannot_be_written_says_so() {
        let error = Store::at(PathBuf::from("/proc/vmm-lab")).unwrap_err();
        assert!(error.to_string().contains("VMM_LAB_CACHE"), "{error}");
    }
}
