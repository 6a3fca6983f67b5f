// SPDX-License-Identifier: Apache-2.0
#![expect(unsafe_code, reason = "pthread_kill and affinity of a thread that is not joined yet")]
//! vCPU threads: started, named, kicked, joined. No exit logic.

use std::io;
use std::ops::Deref;
use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use topology::cpu_set::CpuSet;
use topology::id::{ApicId, HostCpu, VcpuIndex};

use super::control::{NoAnswer, Reply, Request, State};
use super::counters::ExitCounters;
use super::hook::VcpuHook;
use super::kick::{self, Kickable};
use super::run_loop::{AccessHandler, End, RunLoop};
use super::shared::Shared;
use super::watch::VcpuWatch;
use crate::host::affinity;
use crate::kvm::stats::{Stats, StatsError};
use crate::kvm::vcpu::Vcpu;
use crate::ledger::Ledger;

/// Stack of a vCPU thread, in bytes. The run loop is shallow; what is not touched costs nothing.
const STACK_BYTES: usize = 256 * 1024;

/// How long a thread may take to answer. A kick ends `KVM_RUN` within microseconds; a thread that is silent for this
/// long is stuck in the kernel.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// How long a thread may take to answer before it is kicked once more.
const KICK_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Told when a vCPU comes to its end by itself.
pub trait EndListener: Send + Sync {
    /// `vcpu` has ended; called on its thread, at most once.
    fn vcpu_ended(&self, vcpu: VcpuIndex, end: End);
}

/// A vCPU thread, from outside.
#[derive(Debug)]
pub struct VcpuHandle {
    index: VcpuIndex,
    apic_id: ApicId,
    shared: Arc<Shared>,
    stats: Arc<Result<Stats, StatsError>>,
    thread: Option<JoinHandle<()>>,
}

/// A vCPU's thread for threads that do not have its handle: where its number is to be had, and a way to put it on CPUs.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(Default))]
pub struct ThreadId(Arc<Shared>);

impl ThreadId {
    /// As [`VcpuHandle::tid`].
    #[must_use]
    pub fn get(&self) -> Option<i32> {
        self.0.tid()
    }

    /// Lets the thread run on these host CPUs only, from now on, also if it has not run yet.
    ///
    /// # Errors
    /// The kernel's own: `EINVAL` if none of them is online and allowed, `ESRCH` if the thread has ended.
    pub fn confine(&self, cpus: &CpuSet<HostCpu>) -> io::Result<()> {
        if let Some(tid) = self.get() {
            return affinity::set(tid, cpus.iter());
        }
        let thread = self.0.pthread.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(thread) = *thread else { return Err(io::Error::from_raw_os_error(libc::ESRCH)) };
        // SAFETY: `pthread` is emptied under this lock before the thread is joined or left behind. The thread has not told
        // its number, so it has not come to its end, where the kernel clears what stands behind `thread`.
        unsafe { affinity::set_of_pthread(thread, cpus.iter()) }
    }

    /// A thread that is not one of a vCPU takes the place of one.
    #[cfg(test)]
    pub(crate) fn born(&self, thread: &JoinHandle<()>) {
        *self.0.pthread.lock().unwrap() = Some(thread.as_pthread_t());
    }

    /// It tells its number.
    #[cfg(test)]
    pub(crate) fn tell(&self) {
        self.0.tid.store(own_tid(), Ordering::Release);
    }

    /// It is about to be joined.
    #[cfg(test)]
    pub(crate) fn gone(&self) {
        *self.0.pthread.lock().unwrap() = None;
    }
}

/// The numbers of these threads, once each has run its first instruction; `None` if a busy host lets that wait longer than
/// `limit`.
#[must_use]
pub fn ids_within(threads: &[ThreadId], limit: Duration) -> Option<Vec<i32>> {
    const POLL: Duration = Duration::from_micros(100);
    let deadline = Instant::now() + limit;
    loop {
        let ids: Option<Vec<i32>> = threads.iter().map(ThreadId::get).collect();
        if ids.is_some() || Instant::now() >= deadline {
            return ids;
        }
        thread::sleep(POLL);
    }
}

/// The thread could not be started.
#[derive(Debug, thiserror::Error)]
#[error(
    "the thread of vCPU {index} cannot be started: {source}; raise the limit on processes (ulimit -u, pids cgroup)"
)]
pub struct SpawnError {
    /// Which vCPU.
    pub index: VcpuIndex,
    /// The kernel's reason.
    pub source: io::Error,
}

impl VcpuHandle {
    /// Starts the thread of a vCPU; it waits for [`Request::Run`].
    ///
    /// # Errors
    /// [`SpawnError`].
    pub fn spawn<H, K, L>(
        index: VcpuIndex,
        apic_id: ApicId,
        vcpu: Vcpu,
        accesses: Arc<H>,
        hook: K,
        listener: Arc<L>,
    ) -> Result<Self, SpawnError>
    where
        H: AccessHandler + Send + Sync + 'static,
        K: VcpuHook + 'static,
        L: EndListener + 'static,
    {
        let shared = Arc::new(Shared::default());
        let stats = Arc::new(vcpu.stats());
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name(format!("vcpu{index}"))
            .stack_size(STACK_BYTES)
            .spawn(move || body(index, vcpu, &of_thread, &*accesses, hook, &*listener))
            .map_err(|source| SpawnError { index, source })?;
        *shared.pthread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread.as_pthread_t());
        Ok(Self { index, apic_id, shared, stats, thread: Some(thread) })
    }

    /// Which vCPU this is.
    #[must_use]
    pub fn index(&self) -> VcpuIndex {
        self.index
    }

    /// Its APIC id.
    #[must_use]
    pub fn apic_id(&self) -> ApicId {
        self.apic_id
    }

    /// Its thread id; `None` until the thread has run its first instruction.
    #[must_use]
    pub fn tid(&self) -> Option<i32> {
        self.shared.tid()
    }

    /// The same for others.
    #[must_use]
    pub fn thread_id(&self) -> ThreadId {
        ThreadId(Arc::clone(&self.shared))
    }

    /// Lets the thread run on these host CPUs only, from now on.
    ///
    /// # Errors
    /// The kernel's own: `EINVAL` if none of them is online and allowed, `ESRCH` if the thread has ended.
    pub fn confine(&self, cpus: &CpuSet<HostCpu>) -> io::Result<()> {
        self.thread_id().confine(cpus)
    }

    /// The state it last reported.
    #[must_use]
    pub fn state(&self) -> State {
        self.shared.mailbox.state()
    }

    /// Its exits so far.
    #[must_use]
    pub fn exits(&self) -> &ExitCounters {
        &self.shared.exits
    }

    /// KVM's counters of it, or why there are none.
    ///
    /// # Errors
    /// [`StatsError`].
    pub fn stats(&self) -> Result<&Stats, &StatsError> {
        Result::as_ref(&self.stats)
    }

    /// What others may look at while it runs.
    #[must_use]
    pub fn watch(&self) -> VcpuWatch {
        let (shared, stats) = (Arc::clone(&self.shared), Arc::clone(&self.stats));
        VcpuWatch { index: self.index, apic_id: self.apic_id, shared, stats }
    }

    /// Where its time went while it ran guest code, up to its last pause or its end.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        Ledger::of(&Shared::with_kvm(self.shared.meter.measured(), self.stats()))
    }

    /// How long it was in the run loop, in nanoseconds, up to its last pause or its end.
    #[must_use]
    pub fn run_loop_ns(&self) -> u64 {
        self.shared.meter.measured().wall_ns
    }

    /// When it first went to run guest code; `None` before that.
    #[must_use]
    pub fn first_run(&self) -> Option<Instant> {
        self.shared.first_run.get().copied()
    }

    /// Asks something of the thread and kicks it, without waiting. Asking all first and waiting then makes a change to
    /// many vCPUs take as long as the slowest, not the sum.
    pub fn ask(&self, request: Request) {
        if self.shared.mailbox.post(request) {
            self.kick();
        }
    }

    /// Waits for the answer to what was asked last, and kicks again now and then: the kick is never lost on a thread
    /// that goes to `KVM_RUN`, but it may be on one that was about to wait in another system call.
    ///
    /// # Errors
    /// [`NoAnswer`] after `limit`.
    pub fn wait(&self, limit: Duration) -> Result<Reply, NoAnswer> {
        let asked = Instant::now();
        loop {
            let left = limit.saturating_sub(asked.elapsed());
            match self.shared.mailbox.wait(left.min(KICK_AGAIN_AFTER)) {
                Err(_) if left > KICK_AGAIN_AFTER => self.kick(),
                Err(_) => return Err(NoAnswer { waited: limit }),
                answer => return answer,
            }
        }
    }

    /// Waits for the end that was asked for. A thread that does not come to it is stuck in the kernel: it is left
    /// behind, so that the process can end, which ends it too; nobody waits for it again. What it uses is shared with it
    /// and stays.
    fn end(&mut self, limit: Duration) {
        let ended = self.thread.is_none() || self.wait(limit).is_ok();
        *self.shared.pthread.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if let Some(thread) = self.thread.take().filter(|_| ended) {
            // A panic aborts the process, so a join cannot fail.
            let _ = thread.join();
        }
    }

    fn kick(&self) {
        if let Some(thread) = &self.thread {
            // SAFETY: the thread is not joined while `self.thread` is there, so its pthread_t is valid even after the
            // thread has ended; the handler of this signal was installed before any thread was started. An error can
            // only be ESRCH, from a thread that has ended, and then there is nobody to kick.
            unsafe { libc::pthread_kill(thread.as_pthread_t() as libc::pthread_t, kick::signal()) };
        }
    }
}

impl Drop for VcpuHandle {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.ask(Request::Finish);
            self.end(ANSWER_LIMIT);
        }
    }
}

/// The vCPU threads of a machine, in the order of the index. They end together, and one limit is for all of them.
#[derive(Debug)]
pub struct VcpuThreads(Vec<VcpuHandle>);

impl VcpuThreads {
    /// Ends all threads and waits for that, for [`ANSWER_LIMIT`] altogether. What they counted can still be read.
    pub fn end(&mut self) {
        self.end_within(ANSWER_LIMIT);
    }

    fn end_within(&mut self, limit: Duration) {
        let asked = Instant::now();
        for handle in &self.0 {
            handle.ask(Request::Finish);
        }
        for handle in &mut self.0 {
            handle.end(limit.saturating_sub(asked.elapsed()));
        }
    }
}

impl FromIterator<VcpuHandle> for VcpuThreads {
    fn from_iter<T: IntoIterator<Item = VcpuHandle>>(handles: T) -> Self {
        Self(handles.into_iter().collect())
    }
}

impl Deref for VcpuThreads {
    type Target = [VcpuHandle];

    fn deref(&self) -> &[VcpuHandle] {
        &self.0
    }
}

impl Drop for VcpuThreads {
    fn drop(&mut self) {
        self.end();
    }
}

fn body<H: AccessHandler, K: VcpuHook, L: EndListener>(
    index: VcpuIndex,
    mut vcpu: Vcpu,
    shared: &Shared,
    accesses: &H,
    mut hook: K,
    listener: &L,
) {
    let tid = own_tid();
    shared.tid.store(tid, Ordering::Release);
    let kickable = Kickable::new(vcpu.immediate_exit());
    hook.begin(tid, &mut vcpu);
    let mut run_loop = RunLoop {
        vcpu,
        mailbox: &shared.mailbox,
        accesses,
        hook,
        exits: &shared.exits,
        meter: &shared.meter,
        first_run: &shared.first_run,
    };
    let end = run_loop.serve();
    run_loop.hook.ended();
    drop(kickable);
    shared.mailbox.finished();
    if end != End::Asked {
        listener.vcpu_ended(index, end);
    }
}

/// The calling thread's id. By system call: the standard library names glibc's `gettid` as a weak symbol, and a weak
/// symbol stays null in a static binary.
pub(crate) fn own_tid() -> i32 {
    // SAFETY: gettid has no arguments and cannot fail.
    let tid = unsafe { libc::syscall(libc::SYS_gettid) };
    i32::try_from(tid).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn many_stuck_threads_are_waited_for_as_long_as_one() {
        const LIMIT: Duration = Duration::from_millis(100);
        const THREADS: u32 = 30;
        kick::install_handler().expect("a signal handler");
        let (release, stuck) = mpsc::channel::<()>();
        let stuck = Arc::new(std::sync::Mutex::new(stuck));
        let handle = |index| {
            let stuck = Arc::clone(&stuck);
            let body = move || drop(stuck.lock().map(|stuck| stuck.recv()));
            VcpuHandle {
                index: VcpuIndex(index),
                apic_id: ApicId(index),
                shared: Arc::default(),
                stats: Arc::new(Err(StatsError::Unsupported)),
                thread: Some(thread::spawn(body)),
            }
        };
        let mut threads: VcpuThreads = (0..THREADS).map(handle).collect();
        let begun = Instant::now();
        threads.end_within(LIMIT);
        drop(threads);
        assert!(begun.elapsed() < LIMIT * THREADS / 2, "{:?}", begun.elapsed());
        drop(release);
    }
}
