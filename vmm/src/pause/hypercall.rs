// SPDX-License-Identifier: Apache-2.0
//! The mechanism `hypercall`: helper vCPUs for the vCPU threads, and what a directed yield is worth on this kernel.
//!
//! Whether KVM yields to whom it is told, and whether that one then runs, is tried in a VM of its own, with two threads on
//! one CPU and within [`BOUND`]: an instruction that never comes back is ended by a signal. Invariant: no helper vCPU is
//! made in a guest's VM before a trial has shown that such vCPUs come back.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use topology::id::{ApicId, HostCpu, VcpuIndex};

use super::effective::Grant;
use super::yielding::{current_cpu, switches};
use crate::config::{Machine, MechanismChoice};
use crate::host::{affinity, facts};
use crate::kvm::helper_vcpu::{DirectedYield, HelperError, HelperVcpu, HelperVcpus};
use crate::kvm::system::{OpenError, System};
use crate::kvm::vm::{Vm, VmError};
use crate::report::KvmKind;
use crate::vcpu::kick::{self, Kickable};
use crate::vcpu::thread::own_tid;

/// The name of the mechanism.
pub(super) const HYPERCALL: &str = "hypercall";

/// How long a trial takes at most.
const BOUND: Duration = Duration::from_millis(200);

/// A trial came to no result.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// `/dev/kvm`.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Its VM.
    #[error(transparent)]
    Vm(#[from] VmError),
    /// Its vCPUs.
    #[error(transparent)]
    Helper(#[from] HelperError),
    /// A thread, a signal handler, a CPU to be on.
    #[error("two threads on one CPU cannot be had: {0}; raise the limit on processes (ulimit -u, pids cgroup)")]
    Threads(#[from] io::Error),
    /// A signal had to end it.
    #[error("a helper vCPU does not come back within {} ms", BOUND.as_millis())]
    Hangs,
}

/// What a trial found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HypercallProbe {
    /// Directed yields made while the target waited for the CPU.
    pub yields: u32,
    /// Of these, how many the kernel says it has done.
    pub done: u32,
    /// Of these, after how many the yielding thread was off its CPU.
    pub switched: u32,
}

impl HypercallProbe {
    /// Whether a directed yield is worth anything: half of them let somebody run.
    #[must_use]
    pub const fn is_useful(&self) -> bool {
        self.switched > 0 && self.switched * 2 >= self.yields
    }
}

/// The helper vCPUs of one machine, and the trial that says whether to use them.
#[derive(Debug)]
pub struct Hypercalls {
    kind: KvmKind,
    /// By the index of the guest's vCPUs.
    ids: Vec<ApicId>,
    /// Where they come from, or why there are none.
    vcpus: Result<HelperVcpus, String>,
    begun: AtomicBool,
    found: OnceLock<Result<HypercallProbe, TrialError>>,
    failed: OnceLock<HelperError>,
}

impl Hypercalls {
    /// For a machine whose VM has its memory and no vCPUs yet; they are tried and made when they are wanted.
    pub(super) fn of(machine: &Machine, system: &System, vm: &Vm) -> Self {
        let (kind, topology) = (facts::kvm_kind(), &machine.topology);
        let ids: Vec<_> = topology.vcpus().map(|vcpu| topology.apic_id(vcpu)).collect();
        match vm.helper_vcpus(system, kind, &ids) {
            Ok(vcpus) => Self { ids, vcpus: Ok(vcpus), ..Self::none(kind, String::new()) },
            Err(error) => Self::none(kind, error.to_string()),
        }
    }

    /// None, and why.
    pub(super) const fn none(kind: KvmKind, why: String) -> Self {
        Self {
            kind,
            ids: Vec::new(),
            vcpus: Err(why),
            begun: AtomicBool::new(false),
            found: OnceLock::new(),
            failed: OnceLock::new(),
        }
    }

    /// Makes the trial, on threads of its own, and waits for it. Once; others go on without its result meanwhile.
    pub(super) fn make_trial_at_once(&self) {
        if self.vcpus.is_ok() && !self.begun.swap(true, Ordering::Relaxed) {
            let _ = self.found.set(probe(self.kind));
        }
    }

    /// Whether a trial may show that directed yields are useful.
    pub(super) fn may_be_tried(&self) -> bool {
        self.vcpus.is_ok() && !self.begun.load(Ordering::Relaxed)
    }

    /// Whether a trial has shown that they are.
    pub(super) fn are_useful(&self) -> bool {
        matches!(self.found.get(), Some(Ok(probe)) if probe.is_useful())
    }

    /// Makes the helper of a vCPU, if helpers are used; the first failure is kept for the summary.
    pub(super) fn make(&self, vcpu: VcpuIndex) -> Option<HelperVcpu> {
        let come_back = matches!(self.found.get(), Some(Ok(_))) && self.failed.get().is_none();
        let vcpus = self.vcpus.as_ref().ok().filter(|_| come_back)?;
        vcpus.make(vcpu.0).map_err(|error| self.note_failed(error)).ok()
    }

    /// A helper vCPU did what it cannot do.
    pub(super) fn note_failed(&self, error: HelperError) {
        let _ = self.failed.set(error);
    }

    /// By which id the thread of `vcpu` is reached: the one of the vCPU that it runs.
    pub(super) fn id_of(&self, vcpu: VcpuIndex, in_helper: bool) -> Option<ApicId> {
        let own = self.ids.get(vcpu.index()).copied();
        if in_helper { self.vcpus.as_ref().ok().map(|vcpus| vcpus.id(vcpu.0)) } else { own }
    }

    /// The mechanism as it stands now, for a machine that asks for `choice`: by name it is used whether useful or not.
    pub(super) fn grant(&self, choice: MechanismChoice) -> Grant {
        if let Err(why) = &self.vcpus {
            return Grant::no(HYPERCALL, why.as_str(), None);
        }
        if let Some(error) = self.failed.get() {
            return Grant::no(HYPERCALL, format!("given up: {error}"), None);
        }
        match self.found.get() {
            Some(Ok(HypercallProbe { yields, done, switched })) => {
                let why = format!("KVM did {done} of {yields} directed yields, {switched} let the target run");
                let used = choice == MechanismChoice::Hypercall || self.are_useful();
                if used { Grant::yes(HYPERCALL, why) } else { Grant::no(HYPERCALL, why, None) }
            }
            Some(Err(error)) => Grant::no(HYPERCALL, error.to_string(), None),
            None => Grant::no(HYPERCALL, "not tried: only where sched_yield is of no use", None),
        }
    }
}

/// Two threads on one CPU: one runs a vCPU that never comes back by itself, the other wakes now and then, taking the CPU
/// from it, and yields to it.
///
/// # Errors
/// [`TrialError`].
pub fn probe(kind: KvmKind) -> Result<HypercallProbe, TrialError> {
    const TARGET: u32 = 0;
    const YIELDER: u32 = 1;
    let cpu = current_cpu().ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSYS))?;
    kick::install_handler()?;
    let system = System::open()?;
    let vm = Vm::create(&system)?;
    let ids = [ApicId(TARGET), ApicId(YIELDER)];
    let vcpus = vm.helper_vcpus(&system, kind, &ids)?;
    vm.create_interrupt_controllers(false)?;
    let (busy, helper) = (vcpus.make_busy(TARGET)?, vcpus.make(YIELDER)?);
    let trial = Trial { cpu, stop: AtomicBool::new(false), busy: AtomicBool::new(false), tids: Default::default() };
    thread::scope(|scope| {
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        let yielder = named("directed-yield").spawn_scoped(scope, || trial.yield_to(helper, vcpus.id(TARGET)))?;
        let target = match named("yield-target").spawn_scoped(scope, || trial.be_busy(busy)) {
            Ok(target) => target,
            Err(error) => {
                trial.end(&[&yielder]);
                return Err(error.into());
            }
        };
        let hangs = !trial.await_end(&yielder);
        trial.end(&[&yielder, &target]);
        let found = yielder.join().unwrap_or_else(|_| Ok(HypercallProbe::default()));
        if hangs { Err(TrialError::Hangs) } else { Ok(found?) }
    })
}

/// What the two threads of a trial share.
struct Trial {
    cpu: HostCpu,
    stop: AtomicBool,
    busy: AtomicBool,
    tids: [AtomicI32; 2],
}

impl Trial {
    fn begin(&self, slot: usize) -> io::Result<()> {
        self.tids[slot].store(own_tid(), Ordering::Release);
        affinity::pin_this_thread([self.cpu])
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn be_busy(&self, mut vcpu: HelperVcpu) {
        if self.begin(0).is_err() {
            return;
        }
        let _kickable = Kickable::new(vcpu.immediate_exit());
        self.busy.store(true, Ordering::Release);
        // A signal of somebody else's is no reason to end.
        while !self.stopped() && matches!(vcpu.run(), Ok(false)) {}
        self.busy.store(false, Ordering::Release);
    }

    fn yield_to(&self, mut helper: HelperVcpu, target: ApicId) -> Result<HypercallProbe, TrialError> {
        const MOST_YIELDS: u32 = 8;
        /// Each lets the target run for a slice, 3 ms and more.
        const LONGEST: Duration = Duration::from_millis(60);
        const NAP: Duration = Duration::from_micros(200);
        self.begin(1)?;
        let _kickable = Kickable::new(helper.immediate_exit());
        let (mut found, start) = (HypercallProbe::default(), Instant::now());
        while found.yields < MOST_YIELDS && start.elapsed() < LONGEST && !self.stopped() {
            thread::sleep(NAP);
            if !self.busy.load(Ordering::Acquire) {
                continue;
            }
            let before = switches();
            let done = helper.yield_to(target)?;
            found.yields += 1;
            found.done += u32::from(done == DirectedYield::Done);
            found.switched += u32::from(switches() > before);
        }
        Ok(found)
    }

    /// Waits until a thread has ended; false if it does not by itself.
    fn await_end<T>(&self, thread: &thread::ScopedJoinHandle<'_, T>) -> bool {
        let start = Instant::now();
        while !thread.is_finished() && start.elapsed() < BOUND {
            thread::sleep(Duration::from_millis(1));
        }
        thread.is_finished()
    }

    /// Has both threads end.
    fn end(&self, threads: &[&dyn Ended]) {
        self.stop.store(true, Ordering::Release);
        while !threads.iter().all(|thread| thread.has_ended()) {
            for tid in &self.tids {
                kick::kick(tid.load(Ordering::Acquire), kick::signal());
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A thread that may have ended, whatever it returns.
trait Ended {
    fn has_ended(&self) -> bool;
}

impl<T> Ended for thread::ScopedJoinHandle<'_, T> {
    fn has_ended(&self) -> bool {
        self.is_finished()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_yields_must_let_somebody_run() {
        let probe = |yields, switched| HypercallProbe { yields, done: yields, switched };
        assert!(probe(8, 4).is_useful());
        assert!(!probe(8, 3).is_useful());
        assert!(!probe(0, 0).is_useful(), "no yield shows nothing");
    }

    #[test]
    fn where_there_are_none_there_is_nothing_to_try() {
        let none = Hypercalls::none(KvmKind::Software, "no such thing".to_owned());
        none.make_trial_at_once();
        assert!(!none.may_be_tried() && !none.are_useful());
        assert!(none.make(VcpuIndex(0)).is_none());
        let grant = none.grant(MechanismChoice::Hypercall);
        assert!(!grant.granted && grant.why == "no such thing");
    }
}
