// SPDX-License-Identifier: Apache-2.0
//! The API's server, started before the machine and ended after it.

use std::io;
use std::sync::Arc;

use api::monitor::{Change, Monitor, Ticket};
use api::server::{Limits, Listen, Served, Server, StartError, Token, TokenError};
use api::wire::{Decisions, Generation, Host, Pause, Placement, Stats, Thresholds, Topology, Vcpu, Vcpus, Vm};
use topology::id::VcpuIndex;

use super::pausing;
use super::station::Station;
use crate::config::ApiPlan;
use crate::host::{facts, sysfs};
use crate::pause::clock;

/// The API cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The meeting place.
    #[error("the control API needs an event descriptor: {0}; raise the limit on open files (ulimit -n)")]
    Station(#[source] io::Error),
    /// The token.
    #[error("--api-token-file {0}")]
    Token(#[from] TokenError),
    /// The sockets, or the thread.
    #[error("the control API cannot be offered: {0}")]
    Start(#[from] StartError),
}

/// The API, served until this is dropped.
pub struct Endpoint {
    station: Arc<Station>,
    server: Server,
}

impl Endpoint {
    /// Begins to serve; there is no machine yet.
    ///
    /// # Errors
    /// [`EndpointError`].
    pub fn open(plan: &ApiPlan) -> Result<Self, EndpointError> {
        let station = Arc::new(Station::new(plan.thresholds).map_err(EndpointError::Station)?);
        let tcp = match &plan.tcp {
            Some((address, file)) => Some((*address, Token::read(file)?)),
            None => None,
        };
        let served = Served {
            monitor: Arc::clone(&station) as Arc<dyn Monitor>,
            events: Arc::clone(station.events()),
            serial: Arc::clone(station.serial()),
        };
        let server = Server::start(Listen { socket: plan.sock.clone(), tcp }, served, Limits::of_this_process())?;
        Ok(Self { station, server })
    }

    /// What it serves.
    #[must_use]
    pub fn station(&self) -> &Arc<Station> {
        &self.station
    }

    /// Where it is, for a person.
    #[must_use]
    pub fn places(&self) -> String {
        let sock = self.server.socket().map(|path| path.display().to_string());
        let tcp = self.server.tcp().map(|address| format!("http://{address}/"));
        sock.into_iter().chain(tcp).collect::<Vec<_>>().join(" and ")
    }
}

impl Monitor for Station {
    fn vm(&self) -> Option<Vm> {
        let standing = self.standing();
        let (view, state) = standing.view.zip(standing.state)?;
        let uptime = standing.started.map(|started| started.elapsed().as_nanos());
        Some(Vm {
            state,
            generation: standing.generation,
            configuration: view.configuration.clone(),
            cpus: view.topology.vcpu_count(),
            nodes: u32::try_from(view.topology.nodes().len()).unwrap_or(u32::MAX),
            memory_bytes: view.topology.memory_bytes(),
            uptime_ns: uptime.map(|ns| u64::try_from(ns).unwrap_or(u64::MAX)),
            exit: standing.exit,
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        })
    }

    fn vcpus(&self) -> Option<Vcpus> {
        let view = self.view()?;
        Some(Vcpus { at_ns: clock::now().0, generation: self.generation(), vcpus: view.vcpus() })
    }

    fn vcpu(&self, index: VcpuIndex) -> Option<Vcpu> {
        self.view()?.vcpu(index)
    }

    fn topology(&self) -> Option<Topology> {
        self.view().map(|view| Topology::of(&view.topology))
    }

    fn host(&self) -> Host {
        let (kvm, kernel) = (facts::kvm_kind().to_string(), facts::kernel_release());
        match sysfs::host() {
            Ok(host) => Host::of(&host, Some(kvm), kernel),
            Err(error) => unknown_host(&error.to_string(), kvm, kernel),
        }
    }

    fn placement(&self) -> Option<Placement> {
        self.view().map(|view| view.placement_told(self.generation()))
    }

    fn pause(&self) -> Option<Pause> {
        self.view().map(|view| view.pause_told(self.generation()))
    }

    fn thresholds(&self) -> Option<Thresholds> {
        self.view().map(|_| self.thresholds_told())
    }

    fn stats_of(&self, vcpus: &[Vcpu]) -> Option<Stats> {
        self.view().map(|view| view.stats_of(vcpus))
    }

    fn decisions(&self, limit: usize) -> Option<Decisions> {
        let standing = self.standing();
        let started_ns = pausing::started_ns(standing.started);
        standing.view.map(|view| view.decisions_told(limit, started_ns))
    }

    fn ask(&self, change: Change, expected: Option<Generation>) -> Ticket {
        self.leave(change, expected)
    }
}

/// A host whose shape cannot be read.
fn unknown_host(why: &str, kvm: String, kernel: String) -> Host {
    Host { kvm: Some(kvm), kernel, cpus: Vec::new(), nodes: Vec::new(), assumed: vec![why.to_owned()] }
}
