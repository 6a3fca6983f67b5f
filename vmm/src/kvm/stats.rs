// SPDX-License-Identifier: Apache-2.0
#![expect(unsafe_code, reason = "KVM_GET_STATS_FD has no wrapper in kvm-ioctls")]
//! KVM's own counters of a VM or a vCPU, read by name (Documentation/virt/kvm/api.rst, 4.133 `KVM_GET_STATS_FD`).
//!
//! The description is read once per kind of object ([`Layout`]) and shared; a reading is one `pread` and stops no vCPU.
//! Invariant: counters are the kernel's, under the kernel's names; one that this kernel lacks is absent, never zero.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use vmm_sys_util::ioctl::{ioctl, ioctl_expr};

use crate::host::limits;

mod format;

pub use format::{Base, Descriptor, FormatError, Header, Kind, Layout, Unit};

/// `_IO(KVMIO, 0xce)`.
fn get_stats_fd() -> libc::c_ulong {
    ioctl_expr(vmm_sys_util::ioctl::_IOC_NONE, kvm_bindings::KVMIO, 0xce, 0)
}

/// The counters of an object cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum StatsError {
    /// The kernel is older than 5.14.
    #[error("this kernel's KVM does not publish its counters (KVM_GET_STATS_FD); Linux 5.14 and later do")]
    Unsupported,
    /// No descriptor was given.
    #[error("KVM gives no descriptor of its counters: {0}; raise the limit on open files (ulimit -n)")]
    Open(#[source] io::Error),
    /// They cannot be read.
    #[error("KVM's counters cannot be read: {0}")]
    Read(#[source] io::Error),
    /// They are not what the documentation says.
    #[error("KVM's counters are not understood: {0}")]
    Format(#[from] FormatError),
}

/// The counters of one VM or vCPU. Stays readable after the object itself was closed.
#[derive(Debug)]
pub struct Stats {
    file: File,
    layout: Arc<Layout>,
}

impl Stats {
    /// Opens the counters of the VM or vCPU behind `object`. `known` is the layout of another object of that kind, if
    /// there is one: it is shared when the headers are equal, and the description is not read again.
    ///
    /// # Errors
    /// [`StatsError`].
    pub fn open(object: &impl AsRawFd, known: Option<&Arc<Layout>>) -> Result<Self, StatsError> {
        // SAFETY: the request has no argument and touches no memory of ours; `object` is an open descriptor.
        let fd = unsafe { ioctl(object, get_stats_fd()) };
        if fd < 0 {
            let error = io::Error::last_os_error();
            return Err(match error.raw_os_error() {
                Some(libc::ENOTTY | libc::EINVAL) => StatsError::Unsupported,
                _ => StatsError::Open(error),
            });
        }
        // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
        let file = limits::spare(unsafe { File::from_raw_fd(fd) }).map_err(StatsError::Open)?;
        let mut start = [0; format::HEADER_BYTES];
        file.read_exact_at(&mut start, 0).map_err(StatsError::Read)?;
        let header = Header::parse(&start)?;
        if let Some(known) = known.filter(|known| known.header() == header) {
            return Ok(Self { file, layout: Arc::clone(known) });
        }
        let mut prefix = vec![0; header.prefix_bytes()?];
        file.read_exact_at(&mut prefix, 0).map_err(StatsError::Read)?;
        Ok(Self { file, layout: Arc::new(Layout::parse(&prefix)?) })
    }

    /// What there is to read.
    #[must_use]
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Reads all values, in one call.
    ///
    /// # Errors
    /// [`StatsError::Read`].
    pub fn read(&self) -> Result<Reading, StatsError> {
        let mut data = vec![0; self.layout.data_bytes()];
        self.file.read_exact_at(&mut data, self.layout.data_offset()).map_err(StatsError::Read)?;
        Ok(Reading { layout: Arc::clone(&self.layout), data })
    }
}

/// All values of an object at one moment.
#[derive(Clone, Debug)]
pub struct Reading {
    layout: Arc<Layout>,
    data: Vec<u8>,
}

impl Reading {
    /// Every counter with its values, in the kernel's order: one value, or one a bucket.
    pub fn iter(&self) -> impl Iterator<Item = (&Descriptor, impl Iterator<Item = u64> + use<'_>)> {
        self.layout.descriptors().iter().map(|descriptor| (descriptor, format::values(descriptor, &self.data)))
    }

    /// A counter's value; `None` if this kernel has no counter of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        format::values(self.layout.find(name)?, &self.data).next()
    }

    /// A counter's value in nanoseconds; `None` too if it does not count time.
    #[must_use]
    pub fn get_ns(&self, name: &str) -> Option<u64> {
        let descriptor = self.layout.find(name)?;
        descriptor.to_ns(format::values(descriptor, &self.data).next()?)
    }
}
