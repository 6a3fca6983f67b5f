// SPDX-License-Identifier: Apache-2.0
//! The pause handling as it can be looked at and changed while the guest runs: mode, source, mechanism, parameters.
//!
//! A [`Control`] is a handle: any thread may hold one, and all of them speak of the same machine. Changes come one after
//! another; each is granted whole or refused whole. Once [`Control::change`] has returned no decision is made by what held
//! before; the vCPUs' threads change their sources before they enter the guest again, for which they are kicked.
//! Invariant: what is refused changes nothing.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use policy::pause::PauseConfig;
use serde::{Deserialize, Serialize};

use super::driver::Driver;
use super::effective::{Effective, Grant};
use super::helper::Helper;
use super::hypercall::HYPERCALL;
use super::mechanisms;
use super::source::{self, PauseSource, decides};
use super::trial::{Terms, YIELD};
use crate::config::{MechanismChoice, PauseMode, PauseParameter, PausePlan, SourceChoice, ValueError, set_parameters};

/// What is to be changed; what is absent stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Change {
    /// How much is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<PauseMode>,
    /// Where pause events come from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceChoice>,
    /// How a CPU is given away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<MechanismChoice>,
    /// Parameters of policy and sources, by the names that `--pause-set` takes, in the units that the names say.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, u64>,
}

/// A change that was refused; everything is as it was.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// A parameter that does not exist, or a value out of its range.
    #[error("pause parameters: {0}")]
    Parameter(#[from] ValueError),
    /// A source that was asked for by name and is not there.
    #[error("pause source {name}: {why}")]
    Source {
        /// The source.
        name: String,
        /// Why not, and what to do.
        why: String,
    },
    /// A mechanism that was asked for by name and is not there.
    #[error("pause mechanism {name}: {why}")]
    Mechanism {
        /// The mechanism.
        name: String,
        /// Why not, and what to do.
        why: String,
    },
    /// The thread of a source.
    #[error("a thread beside the vCPUs cannot be started: {0}; raise the limit on processes (ulimit -u, pids cgroup)")]
    Helper(#[source] io::Error),
}

/// The handle.
#[derive(Clone)]
pub struct Control(Arc<Shared>);

struct Shared {
    driver: Arc<Driver>,
    registry: Arc<[Arc<dyn PauseSource>]>,
    /// What came of switching PAUSE exits off, if that was tried when the machine was made.
    exits_off: Option<Grant>,
    standing: Mutex<Standing>,
}

/// What holds now.
struct Standing {
    /// As asked.
    plan: PausePlan,
    sources: Vec<Grant>,
    mechanisms: Vec<Grant>,
    /// What the sources run beside the vCPUs' threads, once there are some.
    beside: Vec<Helper>,
    started: bool,
}

/// A plan and what the host grants of it.
struct Granted {
    plan: PausePlan,
    /// The plan's, with the mechanisms that the host grants.
    config: PauseConfig,
    terms: Terms,
    attached: Vec<Arc<dyn PauseSource>>,
    sources: Vec<Grant>,
    mechanisms: Vec<Grant>,
}

impl Change {
    /// `plan` with the change made.
    fn over(&self, plan: &PausePlan) -> Result<PausePlan, ValueError> {
        let parameters = self.parameters.iter().map(|(name, value)| PauseParameter::new(name, *value));
        let parameters = parameters.collect::<Result<Vec<_>, _>>()?;
        let (policy, sources) = set_parameters((plan.policy, plan.sources), &parameters)?;
        Ok(PausePlan {
            mode: self.mode.unwrap_or(plan.mode),
            source: self.source.unwrap_or(plan.source),
            mechanism: self.mechanism.unwrap_or(plan.mechanism),
            policy,
            sources,
            ..plan.clone()
        })
    }
}

impl Control {
    /// The handle of a machine none of whose vCPUs runs yet. `exits_off` is what came of switching its PAUSE exits off.
    ///
    /// # Errors
    /// What was asked for by name and is not there.
    pub(super) fn new(
        driver: Arc<Driver>,
        registry: Arc<[Arc<dyn PauseSource>]>,
        plan: &PausePlan,
        exits_off: Option<Grant>,
    ) -> Result<Self, ChangeError> {
        let granted = grant(&driver, &registry, plan.clone())?;
        let Granted { plan, config, terms, attached, sources, mechanisms } = granted;
        driver.adopt(&plan, config, terms, attached);
        let standing = Mutex::new(Standing { plan, sources, mechanisms, beside: Vec::new(), started: false });
        Ok(Self(Arc::new(Shared { driver, registry, exits_off, standing })))
    }

    /// What was asked for, what is used of it, and why not the rest, as things stand.
    #[must_use]
    pub fn effective(&self) -> Effective {
        self.told(&self.standing())
    }

    /// Changes what is asked for, and gives what holds then.
    ///
    /// # Errors
    /// [`ChangeError`]; nothing was changed.
    pub fn change(&self, change: &Change) -> Result<Effective, ChangeError> {
        let mut standing = self.standing();
        let granted = grant(&self.0.driver, &self.0.registry, change.over(&standing.plan)?)?;
        let beside = if standing.started { self.beside(&granted)? } else { Vec::new() };
        let Granted { plan, config, terms, attached, sources, mechanisms } = granted;
        self.0.driver.adopt(&plan, config, terms, attached);
        *standing = Standing { plan, sources, mechanisms, beside, started: standing.started };
        Ok(self.told(&standing))
    }

    /// Starts what the sources run beside the vCPUs' threads, which are there now.
    pub(super) fn start(&self) -> Result<(), ChangeError> {
        let mut standing = self.standing();
        let granted = grant(&self.0.driver, &self.0.registry, standing.plan.clone())?;
        standing.beside = self.beside(&granted)?;
        standing.started = true;
        Ok(())
    }

    /// Ends it, before the vCPUs' threads end.
    pub(super) fn stop(&self) {
        let mut standing = self.standing();
        standing.started = false;
        standing.beside.clear();
    }

    fn beside(&self, granted: &Granted) -> Result<Vec<Helper>, ChangeError> {
        let started = granted.attached.iter().map(|source| source.beside(&self.0.driver, &granted.plan));
        started.filter_map(Result::transpose).collect::<io::Result<Vec<_>>>().map_err(ChangeError::Helper)
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        // A thread that panics aborts the process; a poisoned lock cannot be seen.
        self.0.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn told(&self, standing: &Standing) -> Effective {
        let driver = &self.0.driver;
        let mut mechanisms = standing.mechanisms.clone();
        for mechanism in mechanisms.iter_mut().filter(|one| one.asked) {
            match &*mechanism.name {
                YIELD => *mechanism = driver.trial().grant(),
                HYPERCALL => *mechanism = driver.hypercalls().grant(standing.plan.mechanism),
                _ => {}
            }
        }
        let exits_off = (standing.plan.mode == PauseMode::Off).then(|| self.exits_off());
        Effective {
            mode: standing.plan.mode.to_string(),
            source: standing.plan.source.to_string(),
            mechanism: standing.plan.mechanism.to_string(),
            sources: standing.sources.iter().cloned().chain(exits_off).collect(),
            unseen: driver.unseen(),
            mechanisms,
            views: driver.views(),
            parameters: parameters(&standing.plan),
        }
    }

    fn exits_off(&self) -> Grant {
        self.0.exits_off.clone().unwrap_or_else(|| {
            Grant::no(
                NO_PAUSE_EXITS,
                "PAUSE exits can only be switched off before the first vCPU is made",
                Some("start with --pause off"),
            )
        })
    }
}

/// The name of the grant that says whether PAUSE exits are switched off.
pub(super) const NO_PAUSE_EXITS: &str = "no-pause-exits";

/// What the host grants of `plan`.
fn grant(driver: &Driver, registry: &[Arc<dyn PauseSource>], plan: PausePlan) -> Result<Granted, ChangeError> {
    let terms = mechanisms::terms(&plan, driver.seats().len());
    let (config, mechanisms) = mechanisms::grant(&plan, driver.trial(), driver.hypercalls(), &terms);
    if let Some(refused) = mechanisms.iter().find(|one| one.name == plan.mechanism.to_string() && !one.granted) {
        return Err(ChangeError::Mechanism { name: refused.name.clone(), why: refused.in_words() });
    }
    let (attached, sources) = source::grant(registry, &plan);
    let named = |one: &&Grant| decides(plan.mode) && one.name == plan.source.to_string();
    if let Some(refused) = sources.iter().find(named).filter(|one| one.asked && !one.granted) {
        return Err(ChangeError::Source { name: refused.name.clone(), why: refused.in_words() });
    }
    Ok(Granted { plan, config, terms, attached, sources, mechanisms })
}

fn parameters(plan: &PausePlan) -> BTreeMap<String, u64> {
    let policy = plan.policy.parameters();
    let sources = plan.sources.parameters();
    policy.iter().chain(&sources).map(|(name, value, ..)| ((*name).to_owned(), *value)).collect()
}

#[cfg(test)]
mod tests {
    use policy::pause::YieldOutcome;
    use topology::id::{ApicId, VcpuIndex};

    use super::super::hypercall::Hypercalls;
    use super::super::log::replay_file;
    use super::super::order::Report;
    use super::super::port::Port;
    use super::super::setup::DriverParts;
    use super::*;
    use crate::host::runqueue::OwnThreads;
    use crate::pause::clock;
    use crate::report::KvmKind;

    fn control(plan: &PausePlan) -> Control {
        let parts = DriverParts {
            plan: plan.clone(),
            apic_ids: vec![ApicId(0), ApicId(1)],
            usable_cpus: 1,
            runqueues: Arc::new(OwnThreads::new(2)),
            hypercalls: Hypercalls::none(KvmKind::Software, "none here".to_owned()),
        };
        let driver = Arc::new(Driver::new(parts).unwrap());
        let registry: Arc<[Arc<dyn PauseSource>]> = [Arc::new(Port::new(plan, false, false)) as _].into();
        (0..2).for_each(|vcpu| driver.set_running(VcpuIndex(vcpu), true, None));
        Control::new(driver, registry, plan, None).unwrap()
    }

    /// Two reports by vCPU 0 that it waits for vCPU 1: how many of them came to a decision of the policy.
    fn decided(control: &Control) -> u64 {
        let driver = &control.0.driver;
        let before = driver.counters(VcpuIndex(0)).events;
        for _ in 0..2 {
            driver.decide(VcpuIndex(0), &Report { owner: Some(ApicId(1)), ..Report::default() }, clock::now());
        }
        driver.counters(VcpuIndex(0)).events - before
    }

    fn parameter(name: &str, value: u64) -> Change {
        Change { parameters: [(name.to_owned(), value)].into(), ..Change::default() }
    }

    #[test]
    fn the_next_decision_is_made_by_what_was_changed() {
        let control = control(&PausePlan::default());
        assert_eq!(decided(&control), 2);
        let off = Change { mode: Some(PauseMode::Off), ..Change::default() };
        let effective = control.change(&off).unwrap();
        assert_eq!((&*effective.mode, decided(&control)), ("off", 0));
        let fixed = Change { mode: Some(PauseMode::Act), mechanism: Some(MechanismChoice::Park), ..Change::default() };
        let effective = control.change(&fixed).unwrap();
        assert_eq!((&*effective.mechanism, decided(&control)), ("park", 0), "a fixed mechanism asks no policy");
        let observe =
            Change { mode: Some(PauseMode::Observe), mechanism: Some(MechanismChoice::Auto), ..Change::default() };
        control.change(&observe).unwrap();
        assert_eq!(decided(&control), 2);
        let effective = control.change(&parameter("bail_after", 7)).unwrap();
        assert_eq!((effective.parameters["bail_after"], control.effective().parameters["bail_after"]), (7, 7));
    }

    #[test]
    fn the_next_decision_is_made_for_the_cpus_that_there_are() {
        let control = control(&PausePlan::default());
        let spins = || control.0.driver.seat(VcpuIndex(0)).spins.get();
        decided(&control);
        assert_eq!(spins(), 0, "on one CPU nobody else runs while one spins");
        control.0.driver.set_usable_cpus(2);
        decided(&control);
        assert!(spins() > 0, "with a CPU for each there is nothing better to do");
    }

    #[test]
    fn a_log_replays_bit_for_bit_across_changes_of_mode_mechanism_and_parameters() {
        let path = std::env::temp_dir().join(format!("vmm-changes-{}.log", std::process::id()));
        let control = control(&PausePlan { decision_log: Some(path.clone()), ..PausePlan::default() });
        let driver = &control.0.driver;
        let mode = |mode| Change { mode: Some(mode), ..Change::default() };
        let mechanism = |mechanism| Change { mechanism: Some(mechanism), ..Change::default() };
        let changes = [
            parameter("epoch_ns", 1_000_000),
            mode(PauseMode::Observe),
            parameter("park_named_ns", 2_000_000),
            mode(PauseMode::Off),
            mode(PauseMode::Act),
            mechanism(MechanismChoice::Yield),
            mechanism(MechanismChoice::Auto),
            parameter("backoff_base_ns", 7_000),
        ];
        let mut now = clock::now();
        for (turn, change) in (0..).zip(changes.iter().cycle().take(40)) {
            for event in 0..20 {
                now = now.after(170_000);
                let source = VcpuIndex((turn + event) % 2);
                // Somebody, the other, nobody there is.
                let owner = [None, Some(ApicId(1 - source.0)), Some(ApicId(9))][event as usize % 3];
                let report = Report { owner, progress: Some(event % 4), ..Report::default() };
                let order = driver.decide(source, &report, now);
                // The outcome may come after the change.
                if event == 19 {
                    control.change(change).unwrap();
                    driver.set_usable_cpus(turn % 3 + 1);
                }
                if !order.deed.is_nothing() {
                    driver.conclude(source, &order, Some(YieldOutcome::Boosted), 40_000, now.after(40_000));
                }
            }
        }
        let decided: u64 = (0..2).map(|vcpu| driver.counters(VcpuIndex(vcpu)).events).sum();
        driver.finish_log().unwrap();
        let replayed = replay_file(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(replayed.mismatch.is_none(), "{replayed:?}");
        assert!(decided > 400 && replayed.decisions == decided, "{decided} {replayed:?}");
    }

    #[test]
    fn what_is_refused_changes_nothing() {
        let control = control(&PausePlan { mode: PauseMode::Off, ..PausePlan::default() });
        let before = control.effective();
        let source = Some(SourceChoice::Port);
        let act = Change { mode: Some(PauseMode::Act), source, ..parameter("bail_after", 5) };
        let late = control.change(&act).unwrap_err().to_string();
        assert!(late.contains("the guest was not told of it") && late.contains("start with"), "{late}");
        for (change, part) in [
            (parameter("bail_aftr", 5), "bail_after"),
            (parameter("bail_after", 65), "outside 1 to 64"),
            (parameter("bail_after", u64::MAX), "bail_after is 18446744073709551615"),
            (parameter("backoff_max_ns", 10_000), "outside 50000"),
        ] {
            let refused = control.change(&change).unwrap_err().to_string();
            assert!(refused.contains(part), "{refused}");
        }
        assert_eq!(control.effective(), before);
    }

    #[test]
    fn changes_at_the_same_time_come_one_after_another() {
        let control = control(&PausePlan::default());
        let turn = |mode: PauseMode, value: u64| {
            let control = control.clone();
            move || {
                let change = Change { mode: Some(mode), ..parameter("bail_after", value) };
                (0..200).all(|_| {
                    let told = control.change(&change).unwrap();
                    (told.mode, told.parameters["bail_after"]) == (mode.to_string(), value)
                })
            }
        };
        let turns = [turn(PauseMode::Act, 1), turn(PauseMode::Observe, 2), turn(PauseMode::Kernel, 3)];
        std::thread::scope(|scope| {
            let turns = turns.map(|turn| scope.spawn(turn));
            assert!(turns.into_iter().all(|turn| turn.join().unwrap()), "each sees its own change whole");
        });
        let last = control.effective();
        let whole = [("act", 1), ("observe", 2), ("kernel", 3)];
        assert!(whole.contains(&(&*last.mode, last.parameters["bail_after"])), "{last:?}");
    }

    #[test]
    fn a_change_is_read_as_json_and_unknown_keys_are_errors() {
        let change: Change = serde_json::from_str(r#"{"mode": "observe", "parameters": {"bail_after": 5}}"#).unwrap();
        assert_eq!(change, Change { mode: Some(PauseMode::Observe), ..parameter("bail_after", 5) });
        assert!(serde_json::from_str::<Change>(r#"{"modus": "act"}"#).is_err());
    }
}
