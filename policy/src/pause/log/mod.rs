// SPDX-License-Identifier: Apache-2.0
//! The decision log: every event, what changed in the view since the last one, and the decision, in a few bytes each.
//!
//! ```text
//! header    "VPLG", version, parameters, vCPU count, host CPUs (cluster, LLC, node), usable CPUs, utilisation
//! decision  1, now, event, changed vCPUs, usable CPUs, utilisation, decision
//! outcome   2, now, source, target, outcome, donated
//! changed   3, now, parameters: what follows is decided by these
//! ```
//! Numbers are LEB128; times are distances from the previous record's time. A log begins with a fresh [`PauseState`], so
//! that [`replay`] can follow it from the first record.
//!
//! Invariant: what was written reads back equal; no bytes make the reader panic or allocate more than
//! [`MAX_VCPUS`] and [`MAX_HOST_CPUS`] entries.

mod record;
mod wire;

use thiserror::Error;

use super::config::{ConfigError, Mechanisms, PauseConfig};
use super::decide;
use super::decision::{Decision, PauseEvent};
use super::state::{OutcomeEvent, PauseState};
use super::view::{HostView, Locality, VcpuView};
use crate::time::Nanos;
use topology::id::{HostNode, VcpuIndex};
use wire::{Put, Take};

/// Version of the format. Readers refuse any other.
pub const VERSION: u8 = 4;
/// Most vCPUs a log may speak of: KVM_MAX_VCPUS of an x86 kernel at its largest setting (CONFIG_KVM_MAX_NR_VCPUS).
pub const MAX_VCPUS: u32 = 4096;
/// Most host CPUs a log may speak of: NR_CPUS of an x86 kernel at its largest setting (MAXSMP).
pub const MAX_HOST_CPUS: u32 = 8192;

/// The first bytes of a log.
pub const MAGIC: &[u8; 4] = b"VPLG";

/// Why bytes are not a decision log.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LogError {
    /// The first bytes are not a log's.
    #[error("not a decision log: it does not begin with \"VPLG\"; name a file written with --decision-log")]
    NotALog,
    /// Another version of the format.
    #[error("decision log has version {found}, this build reads {VERSION}: replay it with the build that wrote it")]
    Version {
        /// The version in the header.
        found: u8,
    },
    /// The bytes end inside a record.
    #[error("decision log ends inside a record at byte {at}: the writer was cut off; the records before are whole")]
    Truncated {
        /// Offset of the missing byte.
        at: usize,
    },
    /// A number that is too large or not in its shortest form.
    #[error("decision log holds a malformed number at byte {at}: the file is damaged")]
    BadNumber {
        /// Offset of its first byte.
        at: usize,
    },
    /// A tag no version writes.
    #[error("decision log holds {what} {value}, which does not exist, at byte {at}: the file is damaged")]
    UnknownTag {
        /// What the tag should have named.
        what: &'static str,
        /// Its value.
        value: u8,
        /// Its offset.
        at: usize,
    },
    /// More vCPUs or host CPUs than there can be, or a vCPU the header does not have.
    #[error("decision log speaks of {what} {value}, the most is {max}: the file is damaged")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its value.
        value: u32,
        /// The largest value allowed.
        max: u32,
    },
    /// The header's parameters are out of range.
    #[error("decision log has bad parameters: the file is damaged")]
    Config(#[from] ConfigError),
}

/// One record of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A decision was made, on the view that [`Reader::view`] now shows.
    Decision {
        /// When.
        now: Nanos,
        /// About what.
        event: PauseEvent,
        /// What was decided.
        decision: Decision,
    },
    /// An action ended.
    Outcome {
        /// When.
        now: Nanos,
        /// How.
        event: OutcomeEvent,
    },
}

/// Writes a log. Bytes are appended to the caller's buffer; nothing is written anywhere else.
#[derive(Clone, Debug)]
pub struct Writer {
    view: HostView,
    config: PauseConfig,
    last: Nanos,
}

impl Writer {
    /// Begins a log of decisions about the VM that `view` shows, with parameters `config`.
    #[must_use]
    pub fn new(view: &HostView, config: &PauseConfig, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(MAGIC);
        let mut put = Put { out, base: Nanos(0) };
        put.byte(VERSION);
        record::put_config(&mut put, config);
        put.number(view.vcpu_count() as u64);
        put.number(view.localities().len() as u64);
        for place in view.localities() {
            put.optional(place.map(|p| p.cluster));
            if let Some(place) = place {
                put.number(place.llc.into());
                put.number(place.node.0.into());
            }
        }
        let empty = HostView::new(view.vcpu_count(), view.localities().to_vec(), 1);
        Self { view: empty, config: *config, last: Nanos(0) }
    }

    /// Appends the parameters that what follows is decided by, if they are others than before.
    pub fn parameters(&mut self, config: &PauseConfig, now: Nanos, out: &mut Vec<u8>) {
        if *config != self.config {
            let mut put = self.begin(record::CHANGED, now, out);
            record::put_config(&mut put, config);
            self.config = *config;
        }
    }

    /// Appends a decision with what changed in the view since the last one.
    pub fn decision(
        &mut self,
        event: &PauseEvent,
        view: &HostView,
        decision: &Decision,
        now: Nanos,
        out: &mut Vec<u8>,
    ) {
        let mut put = self.begin(record::DECISION, now, out);
        record::put_event(&mut put, event);
        put.number(u64::from(view.usable_cpus()));
        put.optional(view.utilisation());
        let changed = (0..self.view.vcpu_count()).filter_map(|at| u32::try_from(at).ok()).map(VcpuIndex);
        let changed: Vec<(VcpuIndex, VcpuView)> = changed
            .filter(|v| view.get(*v) != self.view.get(*v))
            .filter_map(|v| view.get(v).map(|seen| (v, *seen)))
            .collect();
        put.number(changed.len() as u64);
        for (vcpu, seen) in changed {
            put.vcpu(vcpu);
            record::put_vcpu(&mut put, &seen);
            self.view.set(vcpu, seen);
        }
        record::put_decision(&mut put, decision);
    }

    /// Appends how an action ended.
    pub fn outcome(&mut self, event: &OutcomeEvent, now: Nanos, out: &mut Vec<u8>) {
        let mut put = self.begin(record::OUTCOME, now, out);
        record::put_outcome(&mut put, event);
    }

    fn begin<'a>(&mut self, tag: u8, now: Nanos, out: &'a mut Vec<u8>) -> Put<'a> {
        let mut put = Put { out, base: self.last };
        put.byte(tag);
        put.time(now);
        put.base = now;
        self.last = now;
        put
    }
}

/// Reads a log, record by record.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    last: Nanos,
    config: PauseConfig,
    view: HostView,
}

impl<'a> Reader<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// The bytes are not a log of this version, or its header is damaged.
    pub fn new(bytes: &'a [u8]) -> Result<Self, LogError> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(LogError::NotALog)?;
        let mut take = Take { bytes, at: bytes.len() - rest.len(), base: Nanos(0) };
        let found = take.byte()?;
        if found != VERSION {
            return Err(LogError::Version { found });
        }
        let config = record::take_config(&mut take)?;
        config.validate()?;
        let vcpus = bounded(take.small()?, "vCPU count", MAX_VCPUS)?;
        let cpus = bounded(take.small()?, "host CPU count", MAX_HOST_CPUS)?;
        let mut localities = Vec::new();
        for _ in 0..cpus {
            let Some(cluster) = take.optional()? else {
                localities.push(None);
                continue;
            };
            localities.push(Some(Locality { cluster, llc: take.small()?, node: HostNode(take.small()?) }));
        }
        Ok(Self { bytes, at: take.at, last: Nanos(0), config, view: HostView::new(vcpus as usize, localities, 1) })
    }

    /// The parameters that the record read last was made with.
    #[must_use]
    pub const fn config(&self) -> &PauseConfig {
        &self.config
    }

    /// The view as of the record read last.
    #[must_use]
    pub const fn view(&self) -> &HostView {
        &self.view
    }

    /// The next record, `None` at the end.
    ///
    /// # Errors
    /// The record is damaged or cut off. Do not read on.
    pub fn next_record(&mut self) -> Result<Option<Record>, LogError> {
        let mut found = None;
        while found.is_none() {
            let mut take = Take { bytes: self.bytes, at: self.at, base: self.last };
            if take.is_empty() {
                break;
            }
            let tag = take.byte()?;
            let now = take.time()?;
            take.base = now;
            match tag {
                record::DECISION => {
                    let event = record::take_event(&mut take)?;
                    self.take_view(&mut take)?;
                    found = Some(Record::Decision { now, event, decision: record::take_decision(&mut take)? });
                }
                record::OUTCOME => found = Some(Record::Outcome { now, event: record::take_outcome(&mut take)? }),
                record::CHANGED => {
                    self.config = record::take_config(&mut take)?;
                    self.config.validate()?;
                }
                value => return Err(LogError::UnknownTag { what: "record type", value, at: self.at }),
            }
            self.at = take.at;
            self.last = now;
        }
        Ok(found)
    }

    fn take_view(&mut self, take: &mut Take<'_>) -> Result<(), LogError> {
        self.view.set_usable_cpus(take.small()?);
        self.view.set_utilisation(take.optional()?);
        let vcpus = u32::try_from(self.view.vcpu_count()).unwrap_or(MAX_VCPUS);
        for _ in 0..bounded(take.small()?, "number of changes", vcpus)? {
            let vcpu = bounded(take.small()?, "vCPU", vcpus.saturating_sub(1))?;
            self.view.set(VcpuIndex(vcpu), record::take_vcpu(take)?);
        }
        Ok(())
    }
}

fn bounded(value: u32, what: &'static str, max: u32) -> Result<u32, LogError> {
    if value > max { Err(LogError::TooLarge { what, value, max }) } else { Ok(value) }
}

/// What a replay found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Decisions that came out the same.
    pub decisions: u64,
    /// The first that did not, after which the replay stopped.
    pub mismatch: Option<Mismatch>,
}

/// A decision that came out differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Number of the decision in the log, from 0.
    pub number: u64,
    /// When it was made.
    pub now: Nanos,
    /// About what.
    pub event: PauseEvent,
    /// What the log says.
    pub logged: Decision,
    /// What was decided now.
    pub decided: Decision,
}

/// Feeds a log through the policy again, up to the first decision that differs.
///
/// # Errors
/// The bytes are not a log, or a damaged one.
pub fn replay(bytes: &[u8]) -> Result<Replayed, LogError> {
    let mut reader = Reader::new(bytes)?;
    let mut state = PauseState::new(reader.view().vcpu_count());
    let mut decisions = 0;
    while let Some(record) = reader.next_record()? {
        match record {
            Record::Outcome { now, event } => state.outcome(&event, reader.config(), now),
            Record::Decision { now, event, decision: logged } => {
                let decided = decide(&event, reader.view(), &mut state, reader.config(), now);
                if decided != logged {
                    let mismatch = Some(Mismatch { number: decisions, now, event, logged, decided });
                    return Ok(Replayed { decisions, mismatch });
                }
                decisions += 1;
            }
        }
    }
    Ok(Replayed { decisions, mismatch: None })
}
