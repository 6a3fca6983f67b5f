// SPDX-License-Identifier: Apache-2.0
//! `vmm placement`: where vCPU threads and guest memory would go, on this host or on a captured one. Needs no KVM.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use policy::placement::picture::{self, Scene};
use policy::placement::{self, Guest, PlacementError, Plan, Wishes};
use serde::Serialize;
use topology::guest::GuestTopology;
use topology::host::{Capture, HostError, HostTopology};
use topology::id::{HostCpu, VcpuIndex};

use crate::config::cli::PlacementFormat;
use crate::host::sysfs;

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
    #[serde(flatten)]
    plan: &'a Plan,
}

/// Where a machine goes, in the format that was asked for; on the host of the fixture if there is one.
///
/// # Errors
/// [`PlacementCommandError`].
pub(super) fn explain(
    machine: &GuestTopology,
    fixture: Option<&Path>,
    format: PlacementFormat,
) -> Result<String, PlacementCommandError> {
    let host = fixture.map_or_else(|| Ok(sysfs::host()?), captured)?;
    let guest = Guest::new(machine);
    let wishes = Wishes::default();
    let plan = placement::plan(&host, &guest, &wishes)?;
    let places: Vec<(VcpuIndex, HostCpu)> =
        plan.places.iter().map(|place| (place.decision.vcpu, place.decision.to)).collect();
    let scene = Scene { places: &places, claims: &wishes.claims };
    Ok(match format {
        PlacementFormat::Table => {
            let unknown = host.degradations().iter().map(|unknown| format!("host: {unknown}\n"));
            placement::table(&host, &guest, &plan) + &unknown.collect::<String>()
        }
        PlacementFormat::Json => {
            let degradations = host.degradations().iter().map(ToString::to_string).collect();
            serde_json::to_string_pretty(&Document { schema: 1, degradations, plan: &plan })? + "\n"
        }
        PlacementFormat::Svg => picture::svg(&host, &scene),
        PlacementFormat::Text => picture::text(&host, &scene),
    })
}

fn captured(path: &Path) -> Result<HostTopology, PlacementCommandError> {
    let text =
        fs::read_to_string(path).map_err(|source| PlacementCommandError::Fixture { path: path.to_owned(), source })?;
    Ok(HostTopology::from_capture(&Capture::parse(&text)?)?)
}
