// SPDX-License-Identifier: Apache-2.0
//! Several Linux guests in one start of the lab: each with its kernel, its arguments and a script that its init runs.
//!
//! Starting the lab host costs more than a guest, so guests that belong together share one. Each guest has its own
//! deadline inside the lab, so that one that hangs does not take the others' results with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use lab::packages::{DebianKernel, Flavour, Series, Store};
use lab::{Lab, initramfs};
use libtest_mimic::{Completion, Failed};
use topology::doctor::Report;

use crate::{full, monitor};

/// Seconds of the lab host's clock that a guest may take. Under a load of 15 a guest of 4 vCPUs took 50.
const GUEST_LIMIT_S: u32 = 300;

/// The same for one of 32 vCPUs, which takes 25 to 48 s on a quiet machine.
pub(crate) const LARGE_GUEST_LIMIT_S: u32 = 900;

/// Real time for the lab host itself.
const HOST_LIMIT: Duration = Duration::from_secs(120);

/// A Linux guest.
pub(crate) struct Guest {
    /// Names its results.
    pub(crate) name: String,
    /// Which of Debian's kernels.
    pub(crate) kernel: (Series, Flavour),
    /// Arguments of `vmm` that shape the machine, as one shell text.
    pub(crate) machine: String,
    /// Other arguments of `vmm`.
    pub(crate) options: String,
    /// Added to the kernel's command line.
    pub(crate) command_line: String,
    /// Seconds of the lab host's clock that it may take.
    pub(crate) limit_s: u32,
    /// What its init runs.
    pub(crate) script: String,
    /// Boots this image instead of the kernel's own.
    pub(crate) image: Option<Vec<u8>>,
    /// Programs of Debian's packages, package and path, to put into it with their libraries.
    pub(crate) programs: Vec<(&'static str, &'static str)>,
    /// Modules to put into it as `/NAME.ko`, decompressed by the guest.
    pub(crate) modules: Vec<&'static str>,
    /// Shell text that runs on the lab host beside the guest; `$guest` is the monitor's process id.
    pub(crate) beside: String,
}

impl Guest {
    /// A guest that does nothing but reach its init and power off.
    pub(crate) fn new(name: &str, kernel: (Series, Flavour), machine: &str) -> Self {
        Self {
            name: name.to_owned(),
            kernel,
            machine: machine.to_owned(),
            options: String::new(),
            command_line: String::new(),
            limit_s: GUEST_LIMIT_S,
            script: "true".to_owned(),
            image: None,
            programs: Vec::new(),
            modules: Vec::new(),
            beside: String::new(),
        }
    }
}

/// What came of a guest.
#[derive(Debug)]
pub(crate) struct Run {
    /// Exit status of the monitor; 137 when the guest's time was up.
    pub(crate) status: u8,
    /// What the guest wrote.
    pub(crate) console: String,
    /// What the monitor wrote.
    pub(crate) told: String,
    /// The monitor's report; null when it wrote none.
    pub(crate) report: serde_json::Value,
    /// What the doctor says of the same machine on the lab host.
    pub(crate) doctor: Report,
}

/// Lab hosts that the guests get: one more than the first.
const LAB_HOSTS: u32 = 2;

/// Runs the guests one after the other and hands what came of them to `judge`. A lab host that stops is the emulator's fault
/// and not the guests': they get one more, and if that stops too, there is no verdict on them. That is a failure only of
/// the whole matrix, which somebody asked for.
pub(crate) fn check(
    guests: &[Guest],
    judge: impl FnOnce(BTreeMap<String, Run>) -> Result<(), Failed>,
) -> Result<Completion, Failed> {
    let (lab, script) = lab_for(guests)?;
    let mut result = match lab.run(&script) {
        Ok(result) => result,
        Err(error) => {
            return match error.no_verdict().filter(|_| !full()) {
                Some(reason) => Ok(Completion::ignored_with(reason)),
                None => Err(error.into()),
            };
        }
    };
    if result.attempts > 1 {
        eprintln!(
            "lab hosts started: {}; {} hung, {} died",
            result.attempts, result.lab_host_hung, result.lab_host_died
        );
    }
    keep(&result.files);
    let runs = guests.iter().map(|guest| Ok((guest.name.clone(), collect(&guest.name, &mut result.files)?)));
    judge(runs.collect::<Result<_, Failed>>()?).map(|()| Completion::Completed)
}

/// A lab host with what the guests need, and the script that runs them.
fn lab_for(guests: &[Guest]) -> Result<(Lab<'static>, String), Failed> {
    let store = Store::open()?;
    // Not every guest takes all of its time.
    let limit = guests.iter().fold(HOST_LIMIT, |sum, guest| sum + Duration::from_secs(u64::from(guest.limit_s) / 2));
    let mut lab = Lab::new().program_at(monitor::path(), "/bin/vmm").deadline(limit * LAB_HOSTS).starts(LAB_HOSTS);
    let mut script = "cd /results\n".to_owned();
    let mut images = BTreeSet::new();
    for guest in guests {
        let kernel = store.kernel(guest.kernel.0, guest.kernel.1)?;
        let image = match &guest.image {
            Some(_) => format!("/kernels/{}", guest.name),
            None => format!("/kernels/{}", kernel.release),
        };
        if images.insert(image.clone()) {
            let bytes = guest.image.clone().map_or_else(|| read(&kernel.vmlinuz), Ok)?;
            lab = lab.file(&image, bytes);
        }
        let files = files_of(guest, &store, &kernel)?;
        let files: Vec<(&str, &[u8])> = files.iter().map(|(path, bytes)| (path.as_str(), bytes.as_slice())).collect();
        lab = lab.file(&format!("/initrd/{}", guest.name), initramfs::guest(&store, &guest.script, &files)?);
        steps(&mut script, guest, &image)?;
    }
    Ok((lab, script))
}

/// Modules and programs: the path in the guest, and the bytes.
fn files_of(guest: &Guest, store: &Store, kernel: &DebianKernel) -> Result<Vec<(String, Vec<u8>)>, Failed> {
    let mut files = Vec::new();
    for name in &guest.modules {
        let path = kernel.module(name).ok_or_else(|| format!("{} has no module {name}", kernel.release))?;
        let xz = path.extension().is_some_and(|extension| extension == "xz");
        files.push((format!("/{name}.ko{}", if xz { ".xz" } else { "" }), read(&path)?));
    }
    for (package, path) in &guest.programs {
        for (place, file) in store.program(package, path)? {
            files.push((place, read(&file)?));
        }
    }
    Ok(files)
}

fn read(path: &Path) -> Result<Vec<u8>, Failed> {
    Ok(std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?)
}

fn steps(script: &mut String, guest: &Guest, image: &str) -> Result<(), Failed> {
    let Guest { name, machine, options, command_line, limit_s, beside, .. } = guest;
    // With `sched_verbose` Linux says in its log which CPUs each scheduler domain spans; debugfs does not.
    writeln!(
        script,
        "timeout -s KILL {limit_s} vmm --kernel {image} --initrd /initrd/{name} {machine} \
         {options} --cmdline 'console=ttyS0 sched_verbose {command_line}' --report {name}.report \
         >{name}.console 2>{name}.told </dev/null &\nguest=$!\n{beside}\nwait $guest\necho $? >{name}.status\n\
         vmm topology --format json {machine} >{name}.topology"
    )?;
    Ok(())
}

fn collect(name: &str, files: &mut BTreeMap<String, Vec<u8>>) -> Result<Run, Failed> {
    let mut text = |kind: &str| {
        let bytes = files.remove(&format!("{name}.{kind}")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\r', "")
    };
    let topology: serde_json::Value = serde_json::from_str(&text("topology"))
        .map_err(|error| format!("{name}: vmm topology said no JSON: {error}"))?;
    Ok(Run {
        status: text("status").trim().parse().map_err(|error| format!("{name}: no exit status: {error}"))?,
        console: text("console"),
        told: text("told"),
        report: serde_json::from_str(&text("report")).unwrap_or_default(),
        doctor: serde_json::from_value(topology["doctor"].clone()).map_err(|error| format!("{name}: {error}"))?,
    })
}

/// With `VMM_LAB_KEEP=DIRECTORY` everything that came back is left there, for a look by hand.
pub(crate) fn keep(files: &BTreeMap<String, Vec<u8>>) {
    let Some(directory) = std::env::var_os("VMM_LAB_KEEP") else { return };
    for (name, bytes) in files {
        // Only a convenience: a directory that cannot be written changes no result.
        let _ = std::fs::write(Path::new(&directory).join(name), bytes);
    }
}

impl Run {
    /// Fails with what was said unless the guest ended with `status`.
    pub(crate) fn ended_with(&self, status: u8) -> Result<(), Failed> {
        if self.status == status {
            return Ok(());
        }
        let tail: Vec<&str> = self.console.lines().rev().take(30).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        Err(format!("status {} instead of {status}; {}\n{}", self.status, self.told, tail.join("\n")).into())
    }
}
