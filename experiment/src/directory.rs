// SPDX-License-Identifier: Apache-2.0
//! The run directory: everything that is needed to repeat an experiment, to go on with it, and to judge it.
//!
//! ```text
//! plan.toml           the plan, as it was read
//! run.json            RunInfo: seed, host, versions, host CPUs
//! machines/NAME.toml  a guest of each workload, ratio and arm: `vmm --config machines/NAME.toml` runs one by hand
//! cells/00042.json    CellRecord: raw samples, or why there are none
//! look.json           LookRecord: every decision of one run, if the plan asks for that
//! lock                held by whoever runs it
//! ```
//! Invariant: a file is whole or not there; a cell that has a file is done.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use topology::cpu_set::CpuSet;
use topology::id::HostCpu;

use crate::host::HostState;
use crate::lock::{HostLock, LockError};
use crate::look::LookRecord;
use crate::plan::{Plan, PlanError};
use crate::sample::CellRecord;

/// Version of the files of a run directory.
const SCHEMA: u32 = 1;
/// Name of the plan's file.
pub const PLAN: &str = "plan.toml";
/// Name of the file of [`RunInfo`].
pub const INFO: &str = "run.json";
const LOOK: &str = "look.json";
const CELLS: &str = "cells";
const MACHINES: &str = "machines";
/// What a failed cell must find free on the disk to count as the guests' failure: more than their reports take.
const ROOM_BYTES: usize = 1 << 20;
/// Greatest size of a file that is read back.
const MOST_BYTES: u64 = 64 << 20;

/// What a run is, beside its plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunInfo {
    /// Version of the files, 1.
    pub schema: u32,
    /// Name of the plan.
    pub plan: String,
    /// Seed of the order.
    pub seed: u64,
    /// When it was begun, in seconds since 1970.
    pub began_unix_s: u64,
    /// Version of the monitor.
    pub version: String,
    /// Which build of it, by [`fingerprint`](crate::program::fingerprint); absent if its file could not be read.
    #[serde(default)]
    pub program: Option<String>,
    /// Host CPUs that this process might use, of which the plan chose.
    pub allowed: CpuSet<HostCpu>,
    /// The host.
    pub host: HostState,
    /// When it was gone on with after an interruption, in order.
    #[serde(default)]
    pub resumed: Vec<Resumed>,
}

/// A run that was gone on with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumed {
    /// When, in seconds since 1970.
    pub at_unix_s: u64,
    /// Cells that were done before.
    pub done: usize,
    /// What had changed of host and program since the run began, one sentence each.
    pub changes: Vec<String>,
}

impl RunInfo {
    /// What is written down about a run that begins now.
    #[must_use]
    pub fn new(plan: &Plan, allowed: &CpuSet<HostCpu>, version: &str, host: HostState) -> Self {
        Self {
            schema: SCHEMA,
            plan: plan.name.clone(),
            seed: plan.seed,
            began_unix_s: unix_s(),
            version: version.to_owned(),
            program: None,
            allowed: allowed.clone(),
            host,
            resumed: Vec::new(),
        }
    }

    /// What differs between the programs of two runs, or of two parts of one: one sentence each.
    #[must_use]
    pub fn program_differences(&self, other: &Self) -> Vec<String> {
        let build = |info: &Self| info.program.clone().unwrap_or_else(|| "unknown".to_owned());
        let rows = [
            ("version of vmm", self.version.clone(), other.version.clone()),
            ("build of vmm", build(self), build(other)),
        ];
        rows.into_iter().filter(|(_, a, b)| a != b).map(|(what, a, b)| format!("{what}: {a} and {b}")).collect()
    }
}

/// Seconds since 1970.
#[must_use]
pub fn unix_s() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// A run directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// There is something already.
    #[error("{}: is there already and not empty; `vmm experiment resume` goes on with a run, --out names another \
             directory", .0.display())]
    Taken(PathBuf),
    /// No run directory.
    #[error("{}: cannot be read: {source}; name a directory that `vmm experiment run` made", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file that is not what was written.
    #[error("{}: {what}; it was changed by hand, or by another version", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A file cannot be written.
    #[error("{}: cannot be written: {source}; what was measured before is kept, and `vmm experiment resume` goes on",
            .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The plan in it.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Somebody runs it.
    #[error(transparent)]
    Lock(#[from] LockError),
}

/// A run directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDirectory {
    path: PathBuf,
}

impl RunDirectory {
    /// Makes one for a run that begins.
    ///
    /// # Errors
    /// [`DirectoryError::Taken`], [`DirectoryError::Write`].
    pub fn create(path: &Path, plan_text: &str, info: &RunInfo) -> Result<Self, DirectoryError> {
        Self::claim(path)?;
        for name in [CELLS, MACHINES] {
            let below = path.join(name);
            fs::create_dir_all(&below).map_err(|source| DirectoryError::Write { path: below, source })?;
        }
        let directory = Self { path: path.to_owned() };
        directory.write(PLAN, plan_text.as_bytes())?;
        directory.write(INFO, &json(info))?;
        Ok(directory)
    }

    /// Makes an empty directory for a run, or takes one that is empty.
    ///
    /// # Errors
    /// [`DirectoryError::Taken`], [`DirectoryError::Write`].
    pub fn claim(path: &Path) -> Result<(), DirectoryError> {
        let written = |source| DirectoryError::Write { path: path.to_owned(), source };
        match fs::read_dir(path) {
            Ok(mut entries) => match entries.next() {
                Some(_) => Err(DirectoryError::Taken(path.to_owned())),
                None => Ok(()),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => fs::create_dir_all(path).map_err(written),
            Err(error) => Err(written(error)),
        }
    }

    /// Opens one that is there.
    ///
    /// # Errors
    /// [`DirectoryError`]: there is none, or it is damaged.
    pub fn open(path: &Path) -> Result<(Self, Plan, RunInfo), DirectoryError> {
        let directory = Self { path: path.to_owned() };
        let info: RunInfo = directory.read(INFO)?;
        if info.schema != SCHEMA {
            let what = format!("schema {} instead of {SCHEMA}", info.schema);
            return Err(DirectoryError::Damaged { path: path.join(INFO), what });
        }
        let (plan, _) = Plan::read(&path.join(PLAN), &info.allowed)?;
        Ok((directory, plan, info))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps others from running it at the same time.
    ///
    /// # Errors
    /// [`LockError`].
    pub fn lock(&self) -> Result<HostLock, LockError> {
        HostLock::take(&self.path.join("lock"), &format!("process {}", std::process::id()))
    }

    /// Where the configuration of a guest is; its directory is there.
    #[must_use]
    pub fn machine(&self, name: &str) -> PathBuf {
        self.path.join(MACHINES).join(format!("{name}.toml"))
    }

    /// Writes down that the run is gone on with.
    ///
    /// # Errors
    /// [`DirectoryError::Write`].
    pub fn keep_info(&self, info: &RunInfo) -> Result<(), DirectoryError> {
        self.write(INFO, &json(info))
    }

    /// Makes sure that a machine's configuration is there as the plan has it: cells that are still to run must measure what
    /// those before them did.
    ///
    /// # Errors
    /// [`DirectoryError::Damaged`]: it is another one.
    pub fn keep_machine(&self, name: &str, text: &str) -> Result<(), DirectoryError> {
        let path = self.machine(name);
        match fs::read(&path) {
            Ok(found) if found == text.as_bytes() => Ok(()),
            Ok(_) => Err(DirectoryError::Damaged { path, what: "is not the machine of the plan".to_owned() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.write(&format!("{MACHINES}/{name}.toml"), text.as_bytes())
            }
            Err(source) => Err(DirectoryError::Read { path, source }),
        }
    }

    /// The cells that are done, in the order of the schedule.
    ///
    /// # Errors
    /// [`DirectoryError::Read`], [`DirectoryError::Damaged`].
    pub fn cells(&self) -> Result<Vec<CellRecord>, DirectoryError> {
        let path = self.path.join(CELLS);
        let unreadable = |source| DirectoryError::Read { path: path.clone(), source };
        let mut names = Vec::new();
        for entry in fs::read_dir(&path).map_err(unreadable)? {
            let name = entry.map_err(unreadable)?.file_name().to_string_lossy().into_owned();
            // What is being written has another end.
            if name.ends_with(".json") && !name.starts_with('.') {
                names.push(name);
            }
        }
        names.sort_unstable();
        names.iter().map(|name| self.read(&format!("{CELLS}/{name}"))).collect()
    }

    /// Keeps what a cell brought.
    ///
    /// # Errors
    /// [`DirectoryError::Write`]; nothing of the cell is left then.
    pub fn keep(&self, record: &CellRecord) -> Result<(), DirectoryError> {
        self.write(&format!("{CELLS}/{:05}.json", record.cell.number), &json(record))
    }

    /// Removes what a run that was killed left half done. Whoever calls it holds the [`lock`](Self::lock).
    ///
    /// # Errors
    /// [`DirectoryError::Read`], [`DirectoryError::Write`].
    pub fn sweep(&self) -> Result<(), DirectoryError> {
        for path in [self.path.clone(), self.path.join(CELLS), self.path.join(MACHINES)] {
            let unreadable = |source| DirectoryError::Read { path: path.clone(), source };
            for entry in fs::read_dir(&path).map_err(unreadable)? {
                let entry = entry.map_err(unreadable)?;
                if entry.file_name().to_string_lossy().starts_with('.') {
                    let path = entry.path();
                    fs::remove_file(&path).map_err(|source| DirectoryError::Write { path, source })?;
                }
            }
        }
        Ok(())
    }

    /// Makes sure that a cell did not fail because its guests could not leave their reports.
    ///
    /// # Errors
    /// [`DirectoryError::Write`]: there is no room.
    pub fn room(&self) -> Result<(), DirectoryError> {
        let written = tempfile::Builder::new().prefix(".room").tempfile_in(&self.path);
        let written = written.and_then(|mut file| file.write_all(&vec![0; ROOM_BYTES]));
        written.map_err(|source| DirectoryError::Write { path: self.path.clone(), source })
    }

    /// The close look at one run, if it was taken.
    ///
    /// # Errors
    /// [`DirectoryError::Read`], [`DirectoryError::Damaged`].
    pub fn look(&self) -> Result<Option<LookRecord>, DirectoryError> {
        match self.path.join(LOOK).try_exists() {
            Ok(false) => Ok(None),
            _ => self.read(LOOK).map(Some),
        }
    }

    /// Keeps the close look at one run.
    ///
    /// # Errors
    /// [`DirectoryError::Write`].
    pub fn keep_look(&self, look: &LookRecord) -> Result<(), DirectoryError> {
        self.write(LOOK, &json(look))
    }

    /// Writes a file in one step.
    ///
    /// # Errors
    /// [`DirectoryError::Write`]; the file is then as it was before.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), DirectoryError> {
        let path = self.path.join(name);
        write_whole(&path, bytes).map_err(|source| DirectoryError::Write { path, source })
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<T, DirectoryError> {
        let path = self.path.join(name);
        let unreadable = |source| DirectoryError::Read { path: path.clone(), source };
        if fs::metadata(&path).map_err(unreadable)?.len() > MOST_BYTES {
            return Err(DirectoryError::Damaged { path, what: format!("longer than {MOST_BYTES} bytes") });
        }
        let text = fs::read_to_string(&path).map_err(unreadable)?;
        serde_json::from_str(&text).map_err(|error| DirectoryError::Damaged { path, what: error.to_string() })
    }
}

/// Writes beside the file and renames: whoever looks sees the old file or the whole new one.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".").suffix(".part").tempfile_in(directory)?;
    file.write_all(bytes)?;
    // Only the owner may read a temporary file; results are for everybody.
    fs::set_permissions(file.path(), std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Writes a file of a run below `directory` in one step, with the directories above it.
///
/// # Errors
/// [`DirectoryError::Write`]; the file is then as it was before.
pub fn put(directory: &Path, name: &str, bytes: &[u8]) -> Result<(), DirectoryError> {
    let path = directory.join(name);
    let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| write_whole(&path, bytes));
    written.map_err(|source| DirectoryError::Write { path, source })
}

/// JSON with a newline at its end.
#[must_use]
pub fn json<T: Serialize>(value: &T) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(value).expect("invariant: plain data is JSON");
    text.push(b'\n');
    text
}
