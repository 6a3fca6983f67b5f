// SPDX-License-Identifier: Apache-2.0
#![expect(unsafe_code, reason = "flock and geteuid have no safe wrapper here")]
//! Which host CPUs the VMs on this host have claimed: a directory with a locked file for each running `vmm`.
//!
//! ```text
//! /run/vmm (root), $XDG_RUNTIME_DIR/vmm (others), or $VMM_CLAIMS_DIR
//!   lock          held while somebody decides and claims, so that two decisions never overlap
//!   4711.claim    locked by process 4711 for as long as it lives; JSON, [`Record`]
//!   1-4026532301.claim    the same of process 1 in another pid namespace, by that one's number
//! ```
//! The kernel gives up a file lock when its process dies, however it dies: a claim that can be locked is stale and is
//! removed. Claims of root are read by everybody. Invariant: a claim file is whole and locked before it has its name, so
//! that nobody sees half of one; a registry that does not work costs coordination, never the run.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use policy::placement::Claim;
use serde::{Deserialize, Serialize};
use topology::cpu_set::CpuSet;
use topology::id::HostCpu;

/// Where root's claims are.
const SYSTEM: &str = "/run/vmm";
/// Names another directory.
const VARIABLE: &str = "VMM_CLAIMS_DIR";
const SUFFIX: &str = "claim";
/// Greatest size of a claim that is read: a list of 8192 single CPUs is below it.
const MOST_BYTES: u64 = 64 << 10;
/// Most claims that are read from a directory.
const MOST_CLAIMS: usize = 4096;
/// How long a start waits for another one to have decided. A decision takes milliseconds.
const LOCK_LIMIT: Duration = Duration::from_secs(2);
/// Neither a link nor a pipe that somebody put in the directory may lead or hold us anywhere.
const PLAIN: libc::c_int = libc::O_NOFOLLOW | libc::O_NONBLOCK;

/// What a claim file says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Process that runs the VM.
    pub pid: u32,
    /// vCPUs of the VM.
    pub vcpus: u32,
    /// CPUs its vCPU threads were given.
    pub cpus: CpuSet<HostCpu>,
    /// Whether other VMs must keep off them.
    pub exclusive: bool,
}

impl Record {
    fn claim(&self) -> Claim {
        Claim { cpus: self.cpus.clone(), exclusive: self.exclusive }
    }
}

/// What is wrong with the registry, and what follows.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// No directory is meant for this user.
    #[error(
        "claims of other VMs are not coordinated: neither root nor $XDG_RUNTIME_DIR is there; set {VARIABLE} to a directory"
    )]
    NoDirectory,
    /// The directory cannot be used.
    #[error("claims of other VMs are not coordinated: {}: {source}; make it a directory that this user can write", .path.display())]
    Unusable {
        /// The directory, or the file in it.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody holds the lock.
    #[error("claims of other VMs are not coordinated: {} is locked for more than {LOCK_LIMIT:?}; end the process that holds it", .path.display())]
    Busy {
        /// The lock.
        path: PathBuf,
    },
}

/// The claims of others, as they were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// Claims of processes that live, by process.
    pub records: Vec<Record>,
    /// Live claims that cannot be read.
    pub unreadable: Vec<PathBuf>,
    /// Claims of dead processes that were removed.
    pub removed: usize,
}

impl Others {
    /// The claims that can be read, as placement takes them.
    #[must_use]
    pub fn claims(&self) -> Vec<Claim> {
        self.records.iter().map(Record::claim).collect()
    }
}

/// The registry of this user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registry {
    own: PathBuf,
    /// Read, not written.
    others: Vec<PathBuf>,
}

/// The right to decide: while it lives, no other `vmm` of this user decides.
#[derive(Debug)]
pub struct Turn<'a> {
    registry: &'a Registry,
    _lock: File,
}

/// A claim; dropping it gives the CPUs back.
pub struct OwnClaim {
    path: PathBuf,
    file: File,
    record: Record,
}

impl Registry {
    /// The registry that the environment names, or that belongs to this user.
    ///
    /// # Errors
    /// [`RegistryError::NoDirectory`].
    pub fn of_this_user() -> Result<Self, RegistryError> {
        let system = PathBuf::from(SYSTEM);
        if let Some(named) = std::env::var_os(VARIABLE).filter(|name| !name.is_empty()) {
            return Ok(Self { own: named.into(), others: Vec::new() });
        }
        if is_root() {
            return Ok(Self { own: system, others: Vec::new() });
        }
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|name| !name.is_empty());
        let own = PathBuf::from(runtime.ok_or(RegistryError::NoDirectory)?).join("vmm");
        Ok(Self { own, others: vec![system] })
    }

    /// The file that a user's experiments hold locked, one at a time.
    #[must_use]
    pub fn experiment_lock(&self) -> PathBuf {
        self.own.join("experiment")
    }

    /// The same files of other users, as far as this user can see them: those of root, and for root those of all others.
    #[must_use]
    pub fn experiment_locks_of_others(&self) -> Vec<PathBuf> {
        let mut directories = self.others.clone();
        if self.own == Path::new(SYSTEM) {
            // Where systemd-logind has them; elsewhere root sees none.
            let users = fs::read_dir("/run/user").into_iter().flatten().flatten();
            directories.extend(users.map(|user| user.path().join("vmm")));
        }
        directories.into_iter().map(|directory| directory.join("experiment")).collect()
    }

    /// A registry in one directory.
    #[must_use]
    pub fn at(directory: PathBuf) -> Self {
        Self { own: directory, others: Vec::new() }
    }

    /// Waits until nobody else decides.
    ///
    /// # Errors
    /// [`RegistryError::Unusable`] for a directory that cannot be made or written, [`RegistryError::Busy`].
    pub fn turn(&self) -> Result<Turn<'_>, RegistryError> {
        let unusable = |path: &Path| {
            let path = path.to_owned();
            move |source| RegistryError::Unusable { path, source }
        };
        // 0755: what is claimed is no secret, and everybody's VMs should keep off it.
        DirBuilder::new().recursive(true).mode(0o755).create(&self.own).map_err(unusable(&self.own))?;
        let path = self.own.join("lock");
        let lock =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).custom_flags(PLAIN).open(&path);
        let lock = lock.map_err(unusable(&path))?;
        let limit = Instant::now() + LOCK_LIMIT;
        loop {
            match try_lock(&lock, libc::LOCK_EX) {
                Ok(true) => return Ok(Turn { registry: self, _lock: lock }),
                Ok(false) if Instant::now() < limit => thread::sleep(Duration::from_millis(1)),
                Ok(false) => return Err(RegistryError::Busy { path }),
                Err(source) => return Err(RegistryError::Unusable { path, source }),
            }
        }
    }

    /// The claims of other processes that live. Nothing is removed.
    #[must_use]
    pub fn look(&self) -> Others {
        let mut found = Others::default();
        for directory in std::iter::once(&self.own).chain(&self.others) {
            scan(directory, false, &mut found);
        }
        found.records.sort_by_key(|record| record.pid);
        found
    }
}

impl Turn<'_> {
    /// The claims of other processes that live; those of dead ones are removed.
    #[must_use]
    pub fn look(&self) -> Others {
        let mut found = Others::default();
        scan(&self.registry.own, true, &mut found);
        self.registry.others.iter().for_each(|directory| scan(directory, false, &mut found));
        found.records.sort_by_key(|record| record.pid);
        found
    }

    /// Claims CPUs for this process.
    ///
    /// # Errors
    /// [`RegistryError::Unusable`], a full file system for instance; nothing is left behind then.
    pub fn claim(&self, record: Record) -> Result<OwnClaim, RegistryError> {
        let path = self.registry.own.join(claim_name(record.pid, pid_namespace()));
        let file = place(&path, &record).map_err(|source| RegistryError::Unusable { path: path.clone(), source })?;
        Ok(OwnClaim { path, file, record })
    }
}

impl OwnClaim {
    /// Claims these CPUs instead, for itself alone or not.
    ///
    /// # Errors
    /// [`RegistryError::Unusable`]; the claim stays as it was.
    pub fn update(&mut self, cpus: CpuSet<HostCpu>, exclusive: bool) -> Result<(), RegistryError> {
        if self.record.cpus == cpus && self.record.exclusive == exclusive {
            return Ok(());
        }
        let record = Record { cpus, exclusive, ..self.record.clone() };
        let placed = place(&self.path, &record);
        self.file = placed.map_err(|source| RegistryError::Unusable { path: self.path.clone(), source })?;
        self.record = record;
        Ok(())
    }

    /// What is claimed.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }
}

impl Drop for OwnClaim {
    fn drop(&mut self) {
        // One that cannot be removed is stale once the process has ended, and the next one removes it.
        let _ = fs::remove_file(&self.path);
    }
}

impl fmt::Debug for OwnClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnClaim").field("path", &self.path).field("record", &self.record).finish_non_exhaustive()
    }
}

/// Makes a locked claim appear under its name, in place of an older one.
fn place(path: &Path, record: &Record) -> io::Result<File> {
    let new = path.with_extension("new");
    // A file of that name can only be left by a dead process with the same number.
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).custom_flags(PLAIN).open(&new)?;
    let text = serde_json::to_string(record)? + "\n";
    let locked = try_lock(&file, libc::LOCK_EX)
        .and_then(|locked| if locked { Ok(()) } else { Err(io::Error::from(io::ErrorKind::AlreadyExists)) });
    let written = locked.and_then(|()| file.write_all(text.as_bytes())).and_then(|()| fs::rename(&new, path));
    if let Err(error) = written {
        let _ = fs::remove_file(&new);
        return Err(error);
    }
    Ok(file)
}

/// The name of a process's claim. Containers that share a directory may have processes of one number, each in a pid
/// namespace of its own.
fn claim_name(pid: u32, namespace: Option<u64>) -> String {
    match namespace {
        None => format!("{pid}.{SUFFIX}"),
        Some(namespace) => format!("{pid}-{namespace}.{SUFFIX}"),
    }
}

/// The number of the pid namespace of this process; none of the first one, or where it cannot be had.
fn pid_namespace() -> Option<u64> {
    /// Inode of the first pid namespace: `PROC_PID_INIT_INO` (include/linux/proc_ns.h).
    const FIRST: u64 = 0xEFFF_FFFC;
    fs::metadata("/proc/self/ns/pid").ok().map(|namespace| namespace.ino()).filter(|number| *number != FIRST)
}

fn scan(directory: &Path, clean: bool, found: &mut Others) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    let claims =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|is| is == SUFFIX));
    let own = claim_name(process::id(), pid_namespace());
    for path in claims.filter(|path| !path.ends_with(&own)).take(MOST_CLAIMS) {
        match examine(&path) {
            State::Live(record) => found.records.push(record),
            State::Unreadable => found.unreadable.push(path),
            State::Stale if clean => found.removed += usize::from(fs::remove_file(&path).is_ok()),
            State::Stale | State::Gone => {}
        }
    }
}

enum State {
    Live(Record),
    Unreadable,
    Stale,
    Gone,
}

fn examine(path: &Path) -> State {
    let opened = OpenOptions::new().read(true).custom_flags(PLAIN).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return State::Gone,
        Err(_) => return State::Unreadable,
    };
    if !file.metadata().is_ok_and(|about| about.is_file()) {
        return State::Unreadable;
    }
    match try_lock(&file, libc::LOCK_SH) {
        // Replaced by its holder since it was opened: what has the name now is another file.
        Ok(true) if !names(path, &file) => return examine(path),
        Ok(true) => return State::Stale,
        Ok(false) => {}
        Err(_) => return State::Unreadable,
    }
    let mut text = String::new();
    match file.take(MOST_BYTES).read_to_string(&mut text).map(|_| serde_json::from_str(&text)) {
        Ok(Ok(record)) => State::Live(record),
        _ => State::Unreadable,
    }
}

/// Whether a path leads to this file, or to none.
fn names(path: &Path, file: &File) -> bool {
    let Ok((named, held)) = fs::symlink_metadata(path).and_then(|named| Ok((named, file.metadata()?))) else {
        return true;
    };
    (named.dev(), named.ino()) == (held.dev(), held.ino())
}

/// Locks a file if nobody else has; whether it did.
fn try_lock(file: &File, kind: libc::c_int) -> io::Result<bool> {
    // SAFETY: flock takes a descriptor, which `file` keeps open, and numbers.
    if unsafe { libc::flock(file.as_raw_fd(), kind | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::WouldBlock { Ok(false) } else { Err(error) }
}

fn is_root() -> bool {
    // SAFETY: geteuid has no arguments and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of this test alone.
    struct Temporary(PathBuf);

    impl Temporary {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("vmm-claims-{}-{name}", process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Temporary {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn record(pid: u32, cpus: &str) -> Record {
        Record { pid, vcpus: 2, cpus: cpus.parse().unwrap(), exclusive: false }
    }

    #[test]
    fn a_claim_lives_as_long_as_its_holder() {
        let directory = Temporary::new("lives");
        let registry = Registry::at(directory.0.clone());
        let claim = registry.turn().unwrap().claim(record(1, "0-1")).unwrap();
        assert_eq!(registry.look().records, [record(1, "0-1")]);
        drop(claim);
        assert_eq!(registry.look(), Others::default());
    }

    #[test]
    fn a_claim_without_a_lock_is_stale_and_removed_by_whose_turn_it_is() {
        let directory = Temporary::new("stale");
        let registry = Registry::at(directory.0.clone());
        let path = directory.0.join("2.claim");
        fs::write(&path, serde_json::to_string(&record(2, "0")).unwrap()).unwrap();
        assert_eq!(registry.look(), Others::default());
        assert!(path.exists());
        assert_eq!(registry.turn().unwrap().look().removed, 1);
        assert!(!path.exists());
    }

    #[test]
    fn processes_of_one_number_in_two_pid_namespaces_have_two_claims() {
        assert_eq!(claim_name(1, None), "1.claim");
        assert_eq!(claim_name(1, Some(4_026_532_301)), "1-4026532301.claim");
    }

    #[test]
    fn an_update_is_seen_whole() {
        let directory = Temporary::new("update");
        let registry = Registry::at(directory.0.clone());
        let mut claim = registry.turn().unwrap().claim(record(3, "0")).unwrap();
        claim.update("4-5".parse().unwrap(), false).unwrap();
        assert_eq!(registry.look().records, [record(3, "4-5")]);
        assert_eq!(claim.record().cpus.to_string(), "4-5");
    }

    #[test]
    fn garbage_is_counted_and_followed_nowhere() {
        let directory = Temporary::new("garbage");
        let registry = Registry::at(directory.0.clone());
        let held = File::create(directory.0.join("4.claim")).unwrap();
        assert!(try_lock(&held, libc::LOCK_EX).unwrap());
        fs::create_dir(directory.0.join("5.claim")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", directory.0.join("6.claim")).unwrap();
        fs::write(directory.0.join("notes"), "not ours").unwrap();
        let found = registry.turn().unwrap().look();
        assert_eq!((found.records.len(), found.unreadable.len(), found.removed), (0, 3, 0));
        assert!(directory.0.join("notes").exists());
    }

    #[test]
    fn a_place_that_is_no_directory_is_named() {
        let error = Registry::at("/proc/self/status".into()).turn().unwrap_err().to_string();
        assert!(error.contains("/proc/self/status") && error.contains("not coordinated"), "{error}");
        assert_eq!(Registry::at("/proc/self/status".into()).look(), Others::default());
    }

    #[test]
    fn a_pipe_or_a_link_in_place_of_the_lock_holds_nobody_up() {
        let directory = Temporary::new("pipe");
        let registry = Registry::at(directory.0.clone());
        let lock = directory.0.join("lock");
        assert!(process::Command::new("mkfifo").arg(&lock).status().unwrap().success());
        assert!(matches!(registry.turn(), Err(RegistryError::Unusable { .. })));
        fs::remove_file(&lock).unwrap();
        std::os::unix::fs::symlink(directory.0.join("elsewhere"), &lock).unwrap();
        assert!(matches!(registry.turn(), Err(RegistryError::Unusable { .. })));
        assert!(!directory.0.join("elsewhere").exists());
    }

    #[test]
    fn a_turn_that_does_not_end_is_waited_for_no_longer_than_the_limit() {
        let directory = Temporary::new("busy");
        let registry = Registry::at(directory.0.clone());
        let _turn = registry.turn().unwrap();
        let error = registry.turn().unwrap_err();
        assert!(matches!(error, RegistryError::Busy { .. }), "{error}");
    }

    #[test]
    fn turns_do_not_overlap() {
        let directory = Temporary::new("turns");
        let registry = Registry::at(directory.0.clone());
        let turn = registry.turn().unwrap();
        let other = registry.clone();
        let waiter = thread::spawn(move || {
            let started = Instant::now();
            other.turn().map(|_| started.elapsed())
        });
        thread::sleep(Duration::from_millis(50));
        drop(turn);
        assert!(waiter.join().unwrap().unwrap() >= Duration::from_millis(20));
    }
}
