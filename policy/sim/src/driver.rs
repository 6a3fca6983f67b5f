// SPDX-License-Identifier: Apache-2.0
//! The pause policy as the simulator asks it: what it is shown, what it remembers, and a log of what it decided.
//!
//! To the engine it is what the monitor's driver is on a live host. A live log can be fed through it ([`replay`]), and the
//! log it writes is one that `vmm replay` reads. Invariant: a decision is [`policy::pause::decide`]'s and nobody else's.

use policy::pause::log::{LogError, Mismatch, Reader, Record, Replayed, Writer};
use policy::pause::{Decision, HostView, OutcomeEvent, PauseConfig, PauseEvent, PauseState, Reason, VcpuView, decide};
use policy::time::Nanos;
use topology::id::VcpuIndex;

/// The policy of one VM.
#[derive(Clone, Debug)]
pub struct Driver {
    view: HostView,
    state: PauseState,
    config: PauseConfig,
    log: Option<(Writer, Vec<u8>)>,
}

impl Driver {
    /// A policy that has seen nothing but `view`.
    #[must_use]
    pub fn new(view: HostView, config: PauseConfig) -> Self {
        Self { state: PauseState::new(view.vcpu_count()), view, config, log: None }
    }

    /// Keeps a log from now on; call it before the first decision.
    pub fn keep_log(&mut self) {
        let mut bytes = Vec::new();
        let writer = Writer::new(&self.view, &self.config, &mut bytes);
        self.log = Some((writer, bytes));
    }

    /// The log so far; `None` if none is kept.
    #[must_use]
    pub fn log(&self) -> Option<&[u8]> {
        self.log.as_ref().map(|(_, bytes)| bytes.as_slice())
    }

    /// Shows the policy a vCPU.
    pub fn show(&mut self, vcpu: VcpuIndex, seen: VcpuView) {
        self.view.set(vcpu, seen);
    }

    /// Asks about an event.
    pub fn decide(&mut self, event: &PauseEvent, now: Nanos) -> Decision {
        let decision = decide(event, &self.view, &mut self.state, &self.config, now);
        if let Some((writer, bytes)) = &mut self.log {
            writer.decision(event, &self.view, &decision, now, bytes);
        }
        decision
    }

    /// Says how an action ended.
    pub fn outcome(&mut self, event: &OutcomeEvent, now: Nanos) {
        if let Some((writer, bytes)) = &mut self.log {
            writer.outcome(event, now, bytes);
        }
        self.state.outcome(event, &self.config, now);
    }

    /// Bail-outs of all vCPUs, by [`Reason::index`].
    #[must_use]
    pub fn bailed(&self) -> Vec<u64> {
        let mut sums = vec![0; Reason::ALL.len()];
        let vcpus = (0..self.view.vcpu_count()).filter_map(|at| u32::try_from(at).ok()).map(VcpuIndex);
        for counters in vcpus.filter_map(|vcpu| self.state.counters(vcpu)) {
            sums.iter_mut().zip(counters.bailed).for_each(|(sum, n)| *sum += n);
        }
        sums
    }

    /// Takes over what `seen` shows and this one does not yet.
    fn look_at(&mut self, seen: &HostView) {
        self.view.set_usable_cpus(seen.usable_cpus());
        self.view.set_utilisation(seen.utilisation());
        for vcpu in (0..seen.vcpu_count()).filter_map(|at| u32::try_from(at).ok()).map(VcpuIndex) {
            if let Some(one) = seen.get(vcpu).filter(|_| seen.get(vcpu) != self.view.get(vcpu)) {
                self.view.set(vcpu, *one);
            }
        }
    }
}

/// Feeds a decision log, live or simulated, through the simulator's policy, up to the first decision that differs.
///
/// # Errors
/// The bytes are not a log, or a damaged one.
pub fn replay(bytes: &[u8]) -> Result<Replayed, LogError> {
    let mut reader = Reader::new(bytes)?;
    let (vcpus, places) = (reader.view().vcpu_count(), reader.view().localities().to_vec());
    let mut driver = Driver::new(HostView::new(vcpus, places, 1), *reader.config());
    let mut decisions = 0;
    while let Some(record) = reader.next_record()? {
        // Parameters can be changed while a machine runs.
        driver.config = *reader.config();
        match record {
            Record::Outcome { now, event } => driver.outcome(&event, now),
            Record::Decision { now, event, decision: logged } => {
                driver.look_at(reader.view());
                let decided = driver.decide(&event, now);
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
