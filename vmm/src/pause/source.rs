// SPDX-License-Identifier: Apache-2.0
//! What a source of pause events is, whichever it is: found out about once, attached to each vCPU's thread, asked at the
//! moments when that thread is out of the guest.
//!
//! Sources can be changed while the guest runs: a thread detaches what it had and attaches what there is now, before it
//! enters the guest again. Invariant: what a source tells is a hint, and costs the thread that it tells of nothing but
//! the decision.

use std::io;
use std::sync::Arc;

use topology::cpuid::CpuidEntry;
use topology::id::ApicId;

use super::driver::Driver;
use super::effective::Grant;
use super::helper::Helper;
use super::port::Port;
use super::sampler::Sampler;
use super::seat::Seat;
use super::tracepoint::PauseExits;
use crate::config::{PauseMode, PausePlan, SourceChoice};
use crate::kvm::vcpu::Vcpu;
use crate::memory::GuestRam;

/// A spinning vCPU, as its source tells of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spin {
    /// Who is waited for, if the guest said.
    pub owner: Option<ApicId>,
    /// The guest's own count of the waits it has begun, if it said.
    pub count: Option<u32>,
}

/// Why a source is not to be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// The reason.
    pub why: String,
    /// What to do about it, where something can be done.
    pub remedy: Option<&'static str>,
}

/// A moment at which a vCPU's thread is out of the guest.
#[derive(Debug)]
pub enum Moment<'a> {
    /// The guest has written to a port that [`Tap::takes`] has claimed.
    PortWrite(&'a mut Vcpu),
    /// A signal ended the run of the guest.
    Interrupted(&'a mut Vcpu),
    /// The guest is about to be entered.
    Entering,
}

/// A way in which the monitor learns that a vCPU spins.
pub trait PauseSource: Send + Sync {
    /// Its name, as the flags spell it.
    fn choice(&self) -> SourceChoice;

    /// Whether `plan` asks for it.
    fn is_asked(&self, plan: &PausePlan) -> bool {
        decides(plan.mode) && plan.source == self.choice()
    }

    /// Whether it can be had now: in what way, or why not and what to do.
    ///
    /// # Errors
    /// Why not.
    fn available(&self, plan: &PausePlan) -> Result<String, Unavailable>;

    /// Adds to a vCPU's CPUID what the guest is to find of it.
    fn announce(&self, _entries: &mut Vec<CpuidEntry>) {}

    /// Once on each vCPU's thread, before any guest code runs.
    fn begin(&self, _vcpu: &mut Vcpu) {}

    /// Its part on the calling thread, whose id is `tid`: a vCPU's.
    ///
    /// # Errors
    /// The kernel's own.
    fn attach(&self, plan: &PausePlan, tid: i32) -> io::Result<Box<dyn Tap>>;

    /// What it needs beside the vCPUs' threads, running until it is dropped.
    ///
    /// # Errors
    /// No thread can be started.
    fn beside(&self, _driver: &Arc<Driver>, _plan: &PausePlan) -> io::Result<Option<Helper>> {
        Ok(None)
    }
}

/// A source's part on one vCPU's thread.
pub trait Tap: Send {
    /// Whether a write to a port is one of its own; then [`Tap::tell`] follows with [`Moment::PortWrite`].
    fn takes(&mut self, _port: u16, _data: &[u8]) -> bool {
        false
    }

    /// Whether the vCPU spins, as far as this source knows at this moment. `seat` is where it counts what it saw.
    fn tell(&mut self, moment: &mut Moment<'_>, seat: &Seat) -> Option<Spin>;

    /// What [`Tap::tell`] told of was dealt with; `helped` says whether somebody was let run for it.
    fn settled(&mut self, _helped: bool) {}

    /// What [`Tap::tell`] told of with [`Moment::PortWrite`] was dealt with: the vCPU need not report again before it has
    /// spun `patience` times as long as it was told to.
    fn answer(&mut self, _vcpu: &mut Vcpu, _patience: u32) {}

    /// The thread is done with it.
    fn detach(&mut self, _seat: &Seat) {}
}

/// What the sources must know of the machine when it is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances {
    /// KVM shows registers at an exit.
    pub(super) counted: bool,
    /// PAUSE exits were switched off for this machine.
    pub(super) no_exits: bool,
    /// Each vCPU can have a host CPU to itself.
    pub(super) cpu_for_each: bool,
}

/// Every source there is, for a machine that starts as `plan` says.
pub(super) fn registry(plan: &PausePlan, ram: &GuestRam, made: Circumstances) -> Vec<Arc<dyn PauseSource>> {
    vec![
        Arc::new(Port::new(plan, made.counted, made.cpu_for_each)),
        Arc::new(PauseExits::new(made.no_exits)),
        Arc::new(Sampler::new(ram.clone())),
    ]
}

/// Whether the mode looks at events at all.
#[must_use]
pub fn decides(mode: PauseMode) -> bool {
    matches!(mode, PauseMode::Observe | PauseMode::Act)
}

/// The sources that `plan` gets of those there are, and what is to be said of each.
pub(super) fn grant(registry: &[Arc<dyn PauseSource>], plan: &PausePlan) -> (Vec<Arc<dyn PauseSource>>, Vec<Grant>) {
    let mut granted = Vec::new();
    let grants = registry.iter().map(|source| {
        let name = source.choice().to_string();
        if !source.is_asked(plan) {
            return Grant::unasked(&name, format!("--pause {} --pause-source {}", plan.mode, plan.source));
        }
        match source.available(plan) {
            Ok(how) => {
                granted.push(Arc::clone(source));
                Grant::yes(&name, how)
            }
            Err(Unavailable { why, remedy }) => Grant::no(&name, why, remedy),
        }
    });
    let grants = grants.collect();
    (granted, grants)
}
