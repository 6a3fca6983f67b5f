// SPDX-License-Identifier: Apache-2.0
//! An emulated host with hardware virtualisation, of any shape, to run the monitor in.
//!
//! A machine whose KVM has neither VMX nor SVM, or that has no KVM at all, runs Linux guests here: QEMU emulates (TCG) a PC with
//! SVM, Debian's 6.12 kernel boots in it and loads KVM, and static programs run on that KVM with nested paging.
//! What it is good for, what is sound and what is not: docs/lab.md.
//!
//! Module map: [`shape`] the host asked for; [`soundness`] what is refused; [`packages`] Debian's packages in a cache;
//! [`cpio`] and [`initramfs`] the file system; `qemu` the arguments, `real_cpu` where it runs, `tsc` how fast its clock is; `session`,
//! [`watchdog`] and `judgement` one attempt; [`results`] what comes back, `error` why nothing does; [`host`] all of it together; [`command`] the subcommand `vmm lab`.
//!
//! Invariant: knows nothing of KVM or of the monitor; needs no root; changes nothing outside its cache; nothing it starts
//! outlives it.
//!
//! ```no_run
//! use std::time::Duration;
//! use lab::Lab;
//!
//! let result = Lab::new().pause_filter(true).program("target/release/vmm").deadline(Duration::from_secs(120))
//!     .run("vmm --cpus 4 --probe 'ring seconds=3' --report /results/report.json")?;
//! assert_eq!(result.status, 0);
//! # Ok::<(), lab::LabError>(())
//! ```

mod child;
pub mod command;
pub mod cpio;
mod elf;
mod error;
pub mod host;
pub mod initramfs;
mod judgement;
pub mod packages;
mod qemu;
mod real_cpu;
pub mod results;
mod session;
pub mod shape;
pub mod soundness;
mod tell;
mod tsc;
mod unavailable;
pub mod watchdog;

pub use error::LabError;
pub use host::{Lab, LabResult};
pub use session::Stream;
pub use unavailable::LabUnavailable;
