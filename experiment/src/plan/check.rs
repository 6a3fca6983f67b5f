// SPDX-License-Identifier: Apache-2.0
//! From what is written to what can be carried out.
//!
//! Invariant: each refusal names the line and the key; nothing is corrected in silence.

use std::fmt::Display;
use std::ops::RangeInclusive;

use toml::Spanned;
use topology::cpu_set::CpuSet;
use topology::id::HostCpu;

use super::arm::{self, Arm};
use super::error::{PlanFault, Problem};
use super::file::{self, GuestsFile, LookFile, NumberOrWord, PlanFile};
use super::guests::{GuestSet, Size};
use super::workloads::{System, workloads};
use super::{Load, Look, Place, Plan, Ratio, Workload};

/// Most repetitions, warm-ups included.
const REPETITIONS: RangeInclusive<u32> = 1..=1000;
/// What the probe guest's clock allows.
const WINDOW_MS: RangeInclusive<u32> = 10..=300_000;
const TIME_LIMIT_S: RangeInclusive<u32> = 1..=3600;
/// Of one guest, as KVM has it at most (KVM_MAX_VCPUS).
const VCPUS: RangeInclusive<u32> = 1..=4096;
const GUESTS: RangeInclusive<u32> = 1..=256;
const NODES: RangeInclusive<u32> = 1..=64;
const MEMORY_MIB: RangeInclusive<u32> = 16..=1 << 20;
/// More is not sound (docs/lab.md).
const LAB_CPUS: RangeInclusive<u32> = 1..=8;
const LAB_MEMORY_MIB: RangeInclusive<u32> = 512..=1 << 18;
const LONGEST_NAME: usize = 40;

/// Where in the text faults are.
pub(super) struct Places<'a>(&'a str);

impl Places<'_> {
    pub(super) fn fault<T>(&self, key: &str, at: &Spanned<T>, problem: Problem) -> PlanFault {
        PlanFault { line: file::line_of(self.0, at.span().start), key: key.to_owned(), problem }
    }

    pub(super) fn line<T>(&self, at: &Spanned<T>) -> usize {
        file::line_of(self.0, at.span().start)
    }

    fn within(&self, key: &str, value: &Spanned<u32>, range: &RangeInclusive<u32>) -> Result<u32, PlanFault> {
        let found = *value.get_ref();
        if range.contains(&found) {
            return Ok(found);
        }
        Err(self.fault(key, value, out_of_range(found, range.start(), range.end())))
    }

    fn within_or(
        &self,
        key: &str,
        value: Option<&Spanned<u32>>,
        range: &RangeInclusive<u32>,
        default: u32,
    ) -> Result<u32, PlanFault> {
        value.map_or(Ok(default), |value| self.within(key, value, range))
    }

    pub(super) fn name(&self, key: &str, name: &Spanned<String>) -> Result<String, PlanFault> {
        let text = name.get_ref();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if text.is_empty() || text.len() > LONGEST_NAME || !text.bytes().all(plain) || text.starts_with('.') {
            return Err(self.fault(key, name, Problem::BadName { name: text.clone() }));
        }
        Ok(text.clone())
    }

    /// Every member of a list that has one, none twice.
    pub(super) fn distinct<T: Clone, U: PartialEq>(
        &self,
        key: &str,
        list: &Spanned<Vec<Spanned<T>>>,
        each: impl Fn(&Spanned<T>) -> Result<(String, U), PlanFault>,
    ) -> Result<Vec<U>, PlanFault> {
        if list.get_ref().is_empty() {
            return Err(self.fault(key, list, Problem::Empty));
        }
        let mut all = Vec::new();
        for item in list.get_ref() {
            let (name, value) = each(item)?;
            if all.contains(&value) {
                return Err(self.fault(key, item, Problem::Twice { name }));
            }
            all.push(value);
        }
        Ok(all)
    }
}

fn out_of_range(value: impl Display, least: impl Display, most: impl Display) -> Problem {
    Problem::OutOfRange { value: value.to_string(), least: least.to_string(), most: most.to_string() }
}

pub(super) fn check(text: &str, file: PlanFile, allowed: &CpuSet<HostCpu>) -> Result<Plan, PlanFault> {
    let places = Places(text);
    let place = place(&places, &file)?;
    let allowed = match place {
        Place::Native => allowed.clone(),
        Place::Lab { cpus, .. } => (0..cpus).map(HostCpu).collect(),
    };
    let cpus = host_cpus(&places, file.guests.get_ref(), &allowed)?;
    let system = System::of(&places, file.guests.get_ref().system.as_ref())?;
    let arms = arms(&places, &file)?;
    let window_ms = window(&places, &file, system)?;
    let default_limit = window_ms.div_ceil(1000) * 2 + system.grace_s();
    let (loads, workloads) = (loads(&places, &file, &cpus, system)?, workloads(&places, &file, system)?);
    let look = file.look.as_ref().map(|asked| look(&places, asked, (&workloads, &loads, &arms))).transpose()?;
    let plan = Plan {
        name: places.name("name", &file.name)?,
        repetitions: places.within("repetitions", &file.repetitions, &REPETITIONS)?,
        warm_up: places.within_or("warm_up", file.warm_up.as_ref(), &(0..=*REPETITIONS.end()), 0)?,
        window_ms,
        time_limit_s: time_limit(&places, &file, window_ms, default_limit)?,
        loads,
        workloads,
        look,
        baseline: baseline(&places, &file, &arms)?,
        arms,
        cpus,
        place,
        seed: file.seed,
        description: file.description,
    };
    Ok(plan)
}

/// How long guests work. Tools of the Linux guest count whole seconds.
fn window(places: &Places<'_>, file: &PlanFile, system: System) -> Result<u32, PlanFault> {
    let window_ms = places.within("window_ms", &file.window_ms, &WINDOW_MS)?;
    if system == System::Linux && window_ms % 1000 != 0 {
        return Err(places.fault("window_ms", &file.window_ms, Problem::WholeSeconds { window_ms }));
    }
    Ok(window_ms)
}

fn place(places: &Places<'_>, file: &PlanFile) -> Result<Place, PlanFault> {
    let on = file.on.as_ref().map_or("native", |on| on.get_ref().as_str());
    match (on, &file.lab, &file.on) {
        ("native", None, _) => Ok(Place::Native),
        ("native", Some(lab), _) => Err(places.fault("lab", lab, Problem::LabUnused)),
        ("lab", lab, _) => {
            let lab = lab.as_ref().map(Spanned::get_ref);
            let (cpus, memory) = (lab.and_then(|lab| lab.cpus.as_ref()), lab.and_then(|lab| lab.memory_mib.as_ref()));
            let cpus = places.within_or("cpus", cpus, &LAB_CPUS, 1)?;
            let counted = lab.and_then(|lab| lab.counted_time.as_ref());
            if let Some(counted) = counted.filter(|counted| *counted.get_ref() && cpus > 1) {
                return Err(places.fault("counted_time", counted, Problem::CountedTime));
            }
            let memory_mib = places.within_or("memory_mib", memory, &LAB_MEMORY_MIB, 3072)?;
            Ok(Place::Lab { cpus, memory_mib, counted_time: counted.is_some_and(|counted| *counted.get_ref()) })
        }
        (other, _, Some(on)) => Err(places.fault("on", on, unknown("place", other, &["native", "lab"]))),
        (_, _, None) => Ok(Place::Native),
    }
}

fn time_limit(places: &Places<'_>, file: &PlanFile, window_ms: u32, default: u32) -> Result<u32, PlanFault> {
    let Some(limit) = &file.time_limit_s else { return Ok(default.min(*TIME_LIMIT_S.end())) };
    let found = places.within("time_limit_s", limit, &TIME_LIMIT_S)?;
    let least = window_ms / 1000 + 1;
    if found < least {
        return Err(places.fault("time_limit_s", limit, out_of_range(found, least, TIME_LIMIT_S.end())));
    }
    Ok(found)
}

fn host_cpus(
    places: &Places<'_>,
    guests: &GuestsFile,
    allowed: &CpuSet<HostCpu>,
) -> Result<CpuSet<HostCpu>, PlanFault> {
    let Some(written) = &guests.cpus else { return Ok(allowed.clone()) };
    let asked: CpuSet<HostCpu> = written.get_ref().parse().map_err(|error: topology::cpu_set::CpuSetError| {
        places.fault("cpus", written, Problem::Text(error.to_string()))
    })?;
    if asked.is_empty() {
        return Err(places.fault("cpus", written, Problem::Empty));
    }
    if !asked.iter().all(|cpu| allowed.contains(cpu)) {
        let problem = Problem::Cpus { asked: asked.to_string(), allowed: allowed.to_string() };
        return Err(places.fault("cpus", written, problem));
    }
    Ok(asked)
}

fn loads(places: &Places<'_>, file: &PlanFile, cpus: &CpuSet<HostCpu>, system: System) -> Result<Vec<Load>, PlanFault> {
    let guests = file.guests.get_ref();
    let host_cpus = u32::try_from(cpus.len()).unwrap_or(u32::MAX);
    let size = match (&guests.count, &guests.vcpus) {
        (Some(count), None) => Size::Count(places.within("count", count, &GUESTS)?),
        (None, Some(written)) => Size::Vcpus(vcpus(places, written, host_cpus)?),
        (Some(_), Some(both)) => return Err(places.fault("guests", both, Problem::Size("both"))),
        (None, None) => return Err(places.fault("guests", &file.guests, Problem::Size("neither"))),
    };
    let nodes = places.within_or("nodes", guests.nodes.as_ref(), &NODES, 1)?;
    let memory_mib = places.within_or("memory_mib", guests.memory_mib.as_ref(), &MEMORY_MIB, system.memory_mib())?;
    places.distinct("overcommit", &file.overcommit, |written| {
        let (least, most) = Ratio::RANGE;
        let found = *written.get_ref();
        let ratio = Ratio::new(found);
        let ratio = ratio.ok_or_else(|| {
            let problem = match (least..=most).contains(&found) {
                true => Problem::Text(format!("{found} has more than three decimals")),
                false => out_of_range(found, least, most),
            };
            places.fault("overcommit", written, problem)
        })?;
        let refused = |why| places.fault("overcommit", written, Problem::Ratio { why });
        let (count, vcpus) = size.at(ratio, host_cpus).map_err(refused)?;
        if !VCPUS.contains(&vcpus) || !GUESTS.contains(&count) {
            let most = format!("{} guests of {}", GUESTS.end(), VCPUS.end());
            return Err(refused(format!("{ratio} is {count} guests of {vcpus} vCPUs, more than {most}")));
        }
        if nodes > vcpus {
            return Err(refused(format!("{ratio} is {vcpus} vCPUs a guest, fewer than its {nodes} nodes")));
        }
        Ok((ratio.to_string(), Load { ratio, guests: GuestSet { count, vcpus, nodes, memory_mib } }))
    })
}

/// vCPUs of a guest: a number, or as many as the host CPUs of the plan.
fn vcpus(places: &Places<'_>, written: &Spanned<NumberOrWord>, host_cpus: u32) -> Result<u32, PlanFault> {
    match written.get_ref() {
        NumberOrWord::Number(number) if VCPUS.contains(number) => Ok(*number),
        NumberOrWord::Number(number) => {
            Err(places.fault("vcpus", written, out_of_range(number, VCPUS.start(), VCPUS.end())))
        }
        NumberOrWord::Word(word) if word == "host" => Ok(host_cpus),
        NumberOrWord::Word(word) => Err(places.fault("vcpus", written, unknown("size of guests", word, &["host"]))),
    }
}

fn arms(places: &Places<'_>, file: &PlanFile) -> Result<Vec<Arm>, PlanFault> {
    let named = file.arm.iter().map(|arm| arm.name.get_ref().as_str());
    let mut known: Vec<&str> = arm::known_names().collect();
    known.extend(named);
    for arm in &file.arm {
        places.name("name", &arm.name)?;
    }
    let found = places.distinct("arms", &file.arms, |name| {
        let text = name.get_ref();
        let own = file.arm.iter().find(|arm| arm.name.get_ref() == text);
        let (settings, line) = match own {
            Some(own) => (own.settings(), places.line(&own.name)),
            None => {
                let settings = arm::known(text);
                let missing = || places.fault("arms", name, unknown("arm", text, &known));
                (settings.ok_or_else(missing)?, places.line(name))
            }
        };
        Ok((text.clone(), Named(Arm { name: text.clone(), settings, line })))
    })?;
    Ok(found.into_iter().map(|named| named.0).collect())
}

/// Arms are the same if their names are.
struct Named(Arm);

impl PartialEq for Named {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

fn baseline(places: &Places<'_>, file: &PlanFile, arms: &[Arm]) -> Result<usize, PlanFault> {
    let Some(name) = &file.baseline else { return Ok(0) };
    let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
    let found = names.iter().position(|known| known == name.get_ref());
    found.ok_or_else(|| places.fault("baseline", name, unknown("arm", name.get_ref(), &names)))
}

fn look(
    places: &Places<'_>,
    asked: &LookFile,
    (workloads, loads, arms): (&[Workload], &[Load], &[Arm]),
) -> Result<Look, PlanFault> {
    let find = |key, what, written: &Spanned<String>, names: Vec<&str>| {
        let found = names.iter().position(|name| name == written.get_ref());
        found.ok_or_else(|| places.fault(key, written, unknown(what, written.get_ref(), &names)))
    };
    let names = workloads.iter().map(|workload| workload.name.as_str()).collect();
    let workload = find("workload", "workload", &asked.workload, names)?;
    let arm = find("arm", "arm", &asked.arm, arms.iter().map(|arm| arm.name.as_str()).collect())?;
    if !arms[arm].settings.asks_policy() {
        return Err(places.fault("arm", &asked.arm, Problem::NoDecisions { arm: arms[arm].name.clone() }));
    }
    let ratio = Ratio::new(*asked.overcommit.get_ref());
    let load = loads.iter().position(|load| Some(load.ratio) == ratio).ok_or_else(|| {
        let known: Vec<String> = loads.iter().map(|load| load.ratio.value().to_string()).collect();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        places.fault("overcommit", &asked.overcommit, unknown("ratio", &asked.overcommit.get_ref().to_string(), &known))
    })?;
    Ok(Look { workload, load, arm })
}

pub(super) fn unknown(what: &'static str, name: &str, known: &[&str]) -> Problem {
    let distance = |other: &str| strsim::damerau_levenshtein(name, other);
    let near = known.iter().filter(|other| distance(other) <= (other.len() / 3).max(1));
    let nearest = near.min_by_key(|other| distance(other));
    Problem::Unknown {
        what,
        name: name.to_owned(),
        nearest: nearest.map(|name| (*name).to_owned()),
        known: known.join(", "),
    }
}
