// SPDX-License-Identifier: Apache-2.0
//! Why a run of the lab gave no result, and whose fault that is.
//!
//! Place in the flow: [`crate::host`] ends in one of these. Invariant: a lab host that stopped by itself is never told as a
//! failure of what ran inside.

use std::path::PathBuf;

use thiserror::Error;

use crate::initramfs::InitramfsError;
use crate::results::ResultsError;
use crate::shape::ShapeError;
use crate::soundness::Unsound;
use crate::unavailable::LabUnavailable;

/// Why a run gave no result.
#[derive(Debug, Error)]
pub enum LabError {
    /// This machine cannot have a lab now; a test reports itself as ignored.
    #[error(transparent)]
    Unavailable(#[from] LabUnavailable),
    /// The setting is known to break the lab host.
    #[error("refused as unsound: {0}")]
    Unsound(#[from] Unsound),
    /// The host asked for cannot be built.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A file cannot be put into the lab.
    #[error(transparent)]
    Initramfs(#[from] InitramfsError),
    /// A program that needs a dynamic linker, of which the lab has none.
    #[error("{path} is dynamically linked, the lab host has no libraries; link it statically")]
    NotStatic {
        /// The program.
        path: PathBuf,
    },
    /// What runs inside did not end in time, although the lab host was alive.
    #[error(
        "the script did not end within {seconds} s, the lab host was alive; give a longer deadline or look at its console:\n{console}"
    )]
    Deadline {
        /// The deadline.
        seconds: u64,
        /// End of the console.
        console: String,
    },
    /// The lab host itself hung or died, on every attempt that is allowed.
    #[error(
        "the lab host failed on attempt {attempts}: {why}; this is not the script's fault; its console ends:\n{console}"
    )]
    LabHostFailed {
        /// Attempts made.
        attempts: u32,
        /// How it failed.
        why: String,
        /// End of the console.
        console: String,
    },
    /// Whoever runs it wanted an end ([`crate::Lab::stop_when`]).
    #[error("the lab host was ended as asked")]
    Asked,
    /// The lab host ended normally, but its results are damaged.
    #[error(transparent)]
    Results(#[from] ResultsError),
    /// A file that an argument names cannot be handed in, or be brought back.
    #[error("{path}: {what} failed: {source}")]
    File {
        /// Which file.
        path: PathBuf,
        /// What was attempted.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// This machine refused an operation.
    #[error("{what}: {source}; the lab needs a writable directory for temporary files and may start processes")]
    System {
        /// What was attempted.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

impl LabError {
    /// Why a test that got this error has no verdict on what it tests: the lab cannot be had, or the emulated machine stopped by
    /// itself as often as it was started. `None`: what ran inside, or was asked for, is at fault.
    #[must_use]
    pub fn no_verdict(&self) -> Option<String> {
        match self {
            Self::Unavailable(error) => Some(error.to_string()),
            Self::LabHostFailed { attempts, why, .. } => Some(format!(
                "the lab host stopped by itself on each of {attempts} starts, the last time because {why}"
            )),
            Self::Unsound(_)
            | Self::Shape(_)
            | Self::Initramfs(_)
            | Self::NotStatic { .. }
            | Self::Deadline { .. }
            | Self::Asked
            | Self::Results(_)
            | Self::File { .. }
            | Self::System { .. } => None,
        }
    }
}
