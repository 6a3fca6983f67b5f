// SPDX-License-Identifier: Apache-2.0
//! `vmm placement`: where vCPU threads and guest memory would go, on this host or on a captured one. Needs no KVM.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use policy::placement::picture::{self, Scene};
use policy::placement::{self, Claim, Guest, PlacementError, Plan, Wishes};
use serde::Serialize;
use topology::host::{Capture, HostError, HostTopology};
use topology::id::{HostCpu, VcpuIndex};

use crate::config::Machine;
use crate::config::cli::PlacementFormat;
use crate::host::registry::{Others, Record, Registry, RegistryError};
use crate::host::sysfs;
use crate::placement::memory;

/// The placement cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum PlacementCommandError {
    /// The fixture.
    #[error(
        "--host-fixture {}: cannot read it: {source}; give the path of a capture (resources/hosts/capture.sh makes one)",
        .path.display()
    )]
    Fixture {
        /// The path as given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The host.
    #[error("the host's topology cannot be used: {0}")]
    Host(#[from] HostError),
    /// The plan.
    #[error(transparent)]
    Plan(#[from] PlacementError),
    /// The registry.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// JSON.
    #[error("the placement cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// The JSON document.
#[derive(Serialize)]
struct Document<'a> {
    /// Version: raised only if a key changes its meaning.
    schema: u32,
    /// What was not known of the host, and what is assumed instead.
    degradations: Vec<String>,
    /// What other machines on this host have; none on a captured host.
    claims: &'a [Record],
    #[serde(flatten)]
    plan: &'a Plan,
}

/// A host, what is claimed there, and where a machine goes.
struct Answer {
    host: HostTopology,
    guest: Guest,
    others: Others,
    claims: Vec<Claim>,
    plan: Plan,
}

impl Answer {
    fn new(machine: &Machine, host: HostTopology, others: Others) -> Result<Self, PlacementError> {
        let mut guest = Guest::new(&machine.topology);
        memory::wish(&mut guest, &machine.node_wishes, machine.huge_pages);
        let wishes = Wishes { mode: machine.placement.mode.clone(), rules: machine.rules, claims: others.claims() };
        let plan = placement::plan(&host, &guest, &wishes)?;
        Ok(Self { host, guest, others, claims: wishes.claims, plan })
    }

    fn table(&self) -> String {
        let unknown = self.host.degradations().iter().map(|unknown| format!("host: {unknown}\n"));
        placement::table(&self.host, &self.guest, &self.plan) + &unknown.collect::<String>()
    }

    fn json(&self) -> Result<String, serde_json::Error> {
        let degradations = self.host.degradations().iter().map(ToString::to_string).collect();
        let document = Document { schema: 1, degradations, claims: &self.others.records, plan: &self.plan };
        Ok(serde_json::to_string_pretty(&document)? + "\n")
    }

    fn picture(&self, draw: fn(&HostTopology, &Scene<'_>) -> String) -> String {
        let place = |place: &placement::Place| (place.decision.vcpu, place.decision.to);
        let places: Vec<(VcpuIndex, HostCpu)> = self.plan.places.iter().map(place).collect();
        draw(&self.host, &Scene { places: &places, claims: &self.claims })
    }

    /// Who has what, a line a claim.
    fn claims(&self) -> String {
        let mut text = String::new();
        for record in &self.others.records {
            let Record { pid, vcpus, cpus, exclusive } = record;
            let kept = if *exclusive { ", exclusively" } else { "" };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "process {pid} has CPUs {cpus} for {vcpus} vCPUs{kept}");
        }
        for path in &self.others.unreadable {
            let _ = writeln!(text, "{} cannot be read and is ignored", path.display());
        }
        if text.is_empty() { "no claims on this host\n".to_owned() } else { text }
    }
}

/// Who has which CPUs of this host, and what the next machine, which is this one, would get.
///
/// # Errors
/// [`PlacementCommandError`].
pub(super) fn claims(machine: &Machine, json: bool) -> Result<String, PlacementCommandError> {
    let others = Registry::of_this_user()?.look();
    let answer = Answer::new(machine, sysfs::host()?, others)?;
    if json {
        return Ok(answer.json()?);
    }
    let vcpus = answer.guest.vcpus.len();
    Ok(format!(
        "{}\nthe next machine, with {vcpus} vCPUs:\n{}\n{}",
        answer.claims(),
        answer.table(),
        answer.picture(picture::text)
    ))
}

/// Where a machine goes, in the format that was asked for; on the host of the fixture if there is one, where nobody has
/// claimed anything.
///
/// # Errors
/// [`PlacementCommandError`].
pub(super) fn explain(
    machine: &Machine,
    fixture: Option<&Path>,
    format: PlacementFormat,
) -> Result<String, PlacementCommandError> {
    let (host, others) = match fixture {
        Some(path) => (captured(path)?, Others::default()),
        // A decision without a registry is made as if there were no claims, as a run makes it.
        None => (sysfs::host()?, Registry::of_this_user().map(|registry| registry.look()).unwrap_or_default()),
    };
    let answer = Answer::new(machine, host, others)?;
    Ok(match format {
        PlacementFormat::Table => answer.table(),
        PlacementFormat::Json => answer.json()?,
        PlacementFormat::Svg => answer.picture(picture::svg),
        PlacementFormat::Text => answer.picture(picture::text),
    })
}

/// A capture's text, if it is not longer than one can be.
fn bounded(path: &Path) -> io::Result<String> {
    /// Of 8192 CPUs, with all that is written once for each, 4 KiB of it.
    const MOST_BYTES: u64 = 32 << 20;
    let mut text = String::new();
    if File::open(path)?.take(MOST_BYTES + 1).read_to_string(&mut text)? as u64 > MOST_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it has more than 32 MiB, and is no capture"));
    }
    Ok(text)
}

fn captured(path: &Path) -> Result<HostTopology, PlacementCommandError> {
    let text = bounded(path).map_err(|source| PlacementCommandError::Fixture { path: path.to_owned(), source })?;
    Ok(HostTopology::from_capture(&Capture::parse(&text)?)?)
}
