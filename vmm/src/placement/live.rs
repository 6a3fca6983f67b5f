// SPDX-License-Identifier: Apache-2.0
//! The thread that goes on placing while the guest runs.
//!
//! Every period it looks whether the host has changed (CPUs, cpuset, claims of others), measures loads, asks
//! `policy::placement::Balancer`, and carries out what that says. While nothing improves the periods grow, so that a calm
//! guest pays for one look in [`LONGEST`]. Invariant: it never holds up a vCPU, and what it cannot
//! do it counts.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use policy::placement::{Balancer, Claim, Config, Decision, FULL, Rules, Snapshot};
use policy::time::Nanos;
use topology::cpu_set::CpuSet;
use topology::id::HostCpu;

use super::account::Account;
use super::confine;
use super::loads::{Counters, TaskTimes, Window, cpu_times};
use super::memory::{self, NodeMemory};
use super::site::Site;
use crate::host::registry::{Record, Registry};
use crate::host::{affinity, sysfs};
use crate::vcpu::thread::{ThreadId, VcpuHandle};

/// Between two looks while somebody waits or moves.
const SHORTEST: Duration = Duration::from_millis(100);
/// Between two looks when nothing improves.
const LONGEST: Duration = Duration::from_millis(800);
/// The same while somebody waits all the same.
const LONGEST_WAITING: Duration = Duration::from_millis(400);
/// From this part of its time on a vCPU counts as waiting.
const WAITS: u32 = FULL / 16;
/// Looks between two questions where memory is: pages seldom move by themselves.
const MEMORY_EVERY: u64 = 16;
/// Pages of a guest node that are asked for.
const MEMORY_PAGES: usize = 512;
const STACK_BYTES: usize = 256 * 1024;

/// The thread; ends when it is stopped or dropped.
#[derive(Debug)]
pub struct Live {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<(Site, Account)>>,
}

#[derive(Debug, Default)]
struct Stop {
    asked: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Waits, but no longer than until the end is asked for; whether it was.
    fn wait(&self, period: Duration) -> bool {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(asked, period, |asked| !*asked);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn ask(&self) {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }
}

impl Live {
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread can be started; the site is lost with it, and with that the claim.
    pub(super) fn start(site: Site, rules: Rules, memory: &[NodeMemory], vcpus: &[VcpuHandle]) -> io::Result<Self> {
        let stop = Arc::new(Stop::default());
        let of_thread = Arc::clone(&stop);
        let threads = vcpus.iter().map(VcpuHandle::thread_id).collect();
        // Pages are looked for only where they can be on one node or the other.
        let memory = if site.host.nodes().len() > 1 { memory.to_vec() } else { Vec::new() };
        let thread = thread::Builder::new()
            .name("placement".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || Mover::new(site, rules, memory, threads).run(&of_thread))?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends the thread and gives back the site, as it was last applied.
    pub(super) fn finish(mut self) -> Option<(Site, Account)> {
        self.stop.ask();
        // A panic aborts the process, so a join cannot fail.
        self.thread.take().and_then(|thread| thread.join().ok())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.stop.ask();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What tells that the host has changed.
type Signature = (Option<String>, Option<String>, Option<CpuSet<HostCpu>>);

/// What a look came to.
enum Looked {
    /// The host changed, or vCPUs moved.
    Changed,
    /// Somebody waits, and nothing is to be done about it.
    Waiting,
    /// Nothing.
    Calm,
}

struct Mover {
    site: Site,
    balancer: Balancer,
    /// Where each vCPU was placed last.
    places: Vec<HostCpu>,
    threads: Vec<ThreadId>,
    window: Window,
    memory: Vec<NodeMemory>,
    /// For each guest node, bytes on each host node.
    located: Vec<Vec<u64>>,
    registry: Option<Registry>,
    signature: Signature,
    began: Instant,
    account: Account,
}

impl Mover {
    fn new(site: Site, rules: Rules, memory: Vec<NodeMemory>, threads: Vec<ThreadId>) -> Self {
        widen(&site.process);
        let places: Vec<HostCpu> = site.plan.places.iter().map(|place| place.decision.to).collect();
        let balancer =
            Balancer::new(site.host.clone(), site.guest.clone(), Config { rules, ..Config::default() }, Nanos(0));
        let window = Window::open(Nanos(0), counters(&threads));
        Self {
            balancer,
            places,
            window,
            memory,
            located: Vec::new(),
            registry: site.own.is_some().then(Registry::of_this_user).and_then(Result::ok),
            // Differs from any: what was decided on may be old already.
            signature: Signature::default(),
            began: Instant::now(),
            account: Account::default(),
            threads,
            site,
        }
    }

    fn run(mut self, stop: &Stop) -> (Site, Account) {
        let mut period = SHORTEST;
        while !stop.wait(period) {
            let start = Instant::now();
            let looked = self.look();
            self.account.spent += start.elapsed();
            period = match looked {
                Looked::Changed => SHORTEST,
                Looked::Waiting => LONGEST_WAITING.min(period * 2),
                Looked::Calm => LONGEST.min(period * 2),
            };
        }
        (self.site, self.account)
    }

    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// One look.
    fn look(&mut self) -> Looked {
        let now = self.now();
        let changed = self.notice();
        let loads = self.window.close(now, counters(&self.threads), &self.site.host, (&self.places, &self.site.claims));
        if self.account.looks.is_multiple_of(MEMORY_EVERY) {
            self.located = self.memory.iter().map(|node| bytes_by_node(node, &self.site)).collect();
        }
        self.account.looks += 1;
        let deciding = Instant::now();
        let snapshot = Snapshot { now, vcpus: &loads.vcpus, cpus: &loads.cpus, memory: &self.located, pairs: &[] };
        let pass = self.balancer.pass(&snapshot);
        self.balancer.charge(u64::try_from(deciding.elapsed().as_nanos()).unwrap_or(u64::MAX), now);
        if changed || !pass.moves.is_empty() {
            self.carry_out(&pass.moves, changed);
        }
        match loads.vcpus.iter().any(|load| load.waiting >= WAITS) {
            _ if changed || !pass.moves.is_empty() => Looked::Changed,
            true => Looked::Waiting,
            false => Looked::Calm,
        }
    }

    /// Takes note of what changed outside: whether anything did.
    fn notice(&mut self) -> bool {
        let claims: Option<Vec<Claim>> =
            self.registry.as_ref().map(|registry| registry.look().records.iter().map(Record::claim).collect());
        let claimed = claims.filter(|claims| *claims != self.site.claims);
        let signature = signature();
        let mut moved = false;
        if signature != self.signature {
            // A host that cannot be read now is read again at the next look.
            if let Ok(host) = sysfs::host() {
                self.signature = signature;
                moved = host.usable() != self.site.host.usable() || host.cpus() != self.site.host.cpus();
                self.site.host = host.clone();
                self.balancer.host_changed(host, self.now());
            }
        }
        let changed = moved || claimed.is_some() || self.strayed();
        self.site.claims = claimed.unwrap_or_else(|| std::mem::take(&mut self.site.claims));
        self.account.host_changes += u64::from(changed);
        changed
    }

    /// Whether the kernel, or somebody else, lets a vCPU thread run elsewhere than it was told to: older kernels forget
    /// affinities when a cpuset changes.
    fn strayed(&self) -> bool {
        let elsewhere = |(thread, cpus): (&ThreadId, &CpuSet<HostCpu>)| {
            thread.get().and_then(|tid| affinity::of(tid).ok()).is_some_and(|now| now != *cpus)
        };
        self.threads.iter().zip(&self.site.cpus).any(elsewhere)
    }

    /// Makes the moves, in their order. After a change of the cpuset the kernel may have put threads elsewhere, so all
    /// are put where they belong.
    fn carry_out(&mut self, moves: &[Decision], all: bool) {
        for decision in moves {
            let from = self.places.get(decision.vcpu.index()).copied();
            let pairs = [Some((decision.vcpu, decision.to)), decision.swap_with.zip(from)];
            for (vcpu, cpu) in pairs.into_iter().flatten() {
                if let Some(place) = self.places.get_mut(vcpu.index()) {
                    *place = cpu;
                }
            }
        }
        let cpus = confine::vcpus(&self.site.host, &self.places, &self.site.claims);
        for (index, (thread, wanted)) in self.threads.iter().zip(&cpus).enumerate() {
            let same = self.site.cpus.get(index) == Some(wanted);
            let Some(tid) = thread.get().filter(|_| all || !same) else { continue };
            if affinity::set(tid, wanted.iter()).is_err() {
                self.account.refused += 1;
                continue;
            }
            let decision = moves.iter().find(|decision| decision.vcpu.index() == index);
            if let Some(decision) = decision.filter(|_| !same) {
                self.account.moved(self.began.elapsed(), *decision);
            }
        }
        self.site.cpus = cpus;
        self.make_room();
    }

    /// Lets the main thread keep off the vCPUs' new CPUs, and tells other VMs of them.
    fn make_room(&mut self) {
        let others = confine::others(&self.site.host, &self.places, &self.site.claims);
        let cpus = others.clone().unwrap_or_else(|| self.site.host.usable().clone());
        // The main thread has the number of its process.
        let main = i32::try_from(std::process::id()).unwrap_or(0);
        if others != self.site.others && affinity::set(main, cpus.iter()).is_ok() {
            self.site.others = others;
        }
        if let Some(own) = &mut self.site.own {
            // The old claim stays where the new one cannot be written: others keep off a little too much.
            let _ = own.update(self.places.iter().copied().collect());
        }
    }
}

/// Lets the calling thread see what the process may use: all that its cpuset allows, unless the process was confined to
/// less than that from outside.
fn widen(process: &CpuSet<HostCpu>) {
    /// More CPUs than any kernel has: the kernel takes those that the cpuset allows.
    const EVERY_CPU: u32 = 8192;
    let (online, cpuset) = sysfs::signature(&sysfs::read_small);
    let list = |text: Option<String>| text.and_then(|text| text.parse::<CpuSet<HostCpu>>().ok());
    let online = list(online).unwrap_or_default();
    let allowed = list(cpuset).map_or(online.clone(), |cpuset| online.intersection(&cpuset));
    let wide: CpuSet<HostCpu> = if *process == allowed { CpuSet::first(EVERY_CPU) } else { process.clone() };
    // Where the kernel refuses, changes that make room go unnoticed; those that take it do not.
    let _ = affinity::pin_this_thread(wide.iter());
}

fn signature() -> Signature {
    let (online, cpuset) = sysfs::signature(&sysfs::read_small);
    (online, cpuset, affinity::of_this_thread().ok())
}

fn counters(threads: &[ThreadId]) -> Counters {
    let times = |thread: &ThreadId| {
        let text = sysfs::read_small(&format!("/proc/self/task/{}/schedstat", thread.get()?)).ok()?;
        TaskTimes::read(&text)
    };
    let cpus = sysfs::read_small("/proc/stat").map(|text| cpu_times(&text)).unwrap_or_default();
    Counters { tasks: threads.iter().map(times).collect(), cpus }
}

fn bytes_by_node(node: &NodeMemory, site: &Site) -> Vec<u64> {
    let located = memory::locate(node, MEMORY_PAGES).unwrap_or_default();
    let bytes: u64 = node.spans.iter().map(|span| span.bytes as u64).sum();
    let each = bytes / located.asked.max(1);
    let on = |host: &topology::host::Node| located.pages.get(&host.id).map_or(0, |pages| pages * each);
    site.host.nodes().iter().map(on).collect()
}
