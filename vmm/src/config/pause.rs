// SPDX-License-Identifier: Apache-2.0
//! What can be said about pause loops: mode, source, mechanism, parameters, injected preemption.
//!
//! Pure. Parameters are those of [`PauseConfig`] and of the sources, by their names there; values are checked against
//! their ranges when the machine is resolved, for some ranges depend on other parameters.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use policy::pause::PauseConfig;
use serde::{Deserialize, Serialize};
use topology::cpu_set::CpuSet;
use topology::id::VcpuIndex;

use super::ValueError;
use super::text::{key_value, set_once, split, unknown_key};

/// How much is done about pause loops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum PauseMode {
    /// Nothing: no pause port, and PAUSE exits are switched off where the kernel allows it.
    Off,
    /// KVM alone; pause loops are counted where they can be seen without a guest's help.
    Kernel,
    /// Decide, count and log, and do nothing.
    Observe,
    /// Decide and do it.
    #[default]
    Act,
}

/// Where pause events come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum SourceChoice {
    /// The port, and the tracepoint where the processor makes PAUSE exits.
    #[default]
    Auto,
    /// The guest writes to the pause port (docs/pause-port.md).
    Port,
    /// The kernel's tracepoint of PAUSE exits.
    Tracepoint,
    /// vCPUs that never exit are looked at.
    Sampler,
}

/// How a CPU is given away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum MechanismChoice {
    /// Whatever the start-up probes find useful; the policy chooses among them.
    #[default]
    Auto,
    /// Never.
    None,
    /// Always by `sched_yield`, without a policy.
    Yield,
    /// Always by parking until named, without a policy.
    Park,
    /// Always by the kernel's directed yield, without a policy. Needs VMX or SVM.
    Hypercall,
}

macro_rules! named_by_clap {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let value = self.to_possible_value();
                f.write_str(value.as_ref().map_or("", |value| value.get_name()))
            }
        }
    )*};
}
named_by_clap!(PauseMode, SourceChoice, MechanismChoice);

/// Parameters of the sources, beside those of the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SourceParameters {
    /// Spins that the port's announcement recommends before each write. 1 to 1,000,000.
    pub port_spins: u64,
    /// PAUSE exits of a vCPU for each that is acted on. 1 to 1,000,000.
    pub tracepoint_period: u64,
    /// How long a vCPU may run without an exit before it is looked at, in nanoseconds. 100 µs to 1 s.
    pub sampler_window_ns: u64,
}

impl Default for SourceParameters {
    fn default() -> Self {
        Self { port_spins: 1000, tracepoint_period: 8, sampler_window_ns: 2_000_000 }
    }
}

impl SourceParameters {
    /// The parameters with their values and ranges.
    #[must_use]
    pub const fn parameters(&self) -> [(&'static str, u64, u64, u64); 3] {
        [
            ("port_spins", self.port_spins, 1, 1_000_000),
            ("tracepoint_period", self.tracepoint_period, 1, 1_000_000),
            ("sampler_window_ns", self.sampler_window_ns, 100_000, 1_000_000_000),
        ]
    }
}

/// One parameter: `bail_after=3`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PauseParameter {
    // The position among the known parameters: whatever is held here exists.
    at: usize,
    value: u64,
}

impl PauseParameter {
    /// The parameter `name` with a value; whether that is in its range shows when it is applied.
    ///
    /// # Errors
    /// [`ValueError::UnknownKey`].
    pub fn new(name: &str, value: u64) -> Result<Self, ValueError> {
        let known = known_parameters();
        let at = known.iter().position(|one| *one == name).ok_or_else(|| unknown_key(name, &known))?;
        Ok(Self { at, value })
    }

    /// Its name, one of [`known_parameters`].
    #[must_use]
    pub fn name(&self) -> &'static str {
        known_parameters().get(self.at).copied().unwrap_or_default()
    }

    /// Its value, in the unit that the name says.
    #[must_use]
    pub const fn value(&self) -> u64 {
        self.value
    }
}

/// The names of all parameters: the policy's, then the sources'.
#[must_use]
pub fn known_parameters() -> Vec<&'static str> {
    let policy = PauseConfig::default().parameters();
    let sources = SourceParameters::default().parameters();
    policy.iter().chain(&sources).map(|(name, ..)| *name).collect()
}

impl FromStr for PauseParameter {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let known = known_parameters();
        let (at, value) = key_value(text, &known)?;
        let refused = || ValueError::Parameter { name: known[at], value: value.to_owned() };
        let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
        let value = digits.then(|| value.parse().ok()).flatten().ok_or_else(refused)?;
        Ok(Self { at, value })
    }
}

impl fmt::Display for PauseParameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name(), self.value)
    }
}

impl TryFrom<String> for PauseParameter {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        text.parse()
    }
}

impl From<PauseParameter> for String {
    fn from(parameter: PauseParameter) -> Self {
        parameter.to_string()
    }
}

/// Preemption on demand: `seed=7,mean=10ms,hold=3ms,vcpus=[0-3]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct InjectionConfig {
    /// Seed of the schedule: the same seed, the same schedule.
    pub seed: u64,
    /// Mean time between the end of a hold and the next, of each vCPU, in nanoseconds; at least 10 µs.
    pub mean_ns: u64,
    /// How long a vCPU is held off its CPU, in nanoseconds; 1 µs to 1 s.
    pub hold_ns: u64,
    /// The vCPUs it happens to; empty for all.
    pub vcpus: CpuSet<VcpuIndex>,
}

const INJECTION_KEYS: [&str; 4] = ["seed", "mean", "hold", "vcpus"];

impl FromStr for InjectionConfig {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let (mut seed, mut mean, mut hold, mut vcpus) = (None, None, None, None);
        for word in split(text)? {
            let (key, value) = key_value(word, &INJECTION_KEYS)?;
            match INJECTION_KEYS[key] {
                "seed" => {
                    let refused = |_| ValueError::Parameter { name: "seed", value: value.to_owned() };
                    set_once(&mut seed, "seed", value.parse().map_err(refused)?)?;
                }
                "mean" => set_once(&mut mean, "mean", duration(value, 10_000, 60_000_000_000)?)?,
                "hold" => set_once(&mut hold, "hold", duration(value, 1_000, 1_000_000_000)?)?,
                _ => set_once(&mut vcpus, "vcpus", list(value)?)?,
            }
        }
        let missing = |key| ValueError::MissingKey { key, example: "seed=7,mean=10ms,hold=3ms" };
        Ok(Self {
            seed: seed.ok_or_else(|| missing("seed"))?,
            mean_ns: mean.ok_or_else(|| missing("mean"))?,
            hold_ns: hold.ok_or_else(|| missing("hold"))?,
            vcpus: vcpus.unwrap_or_default(),
        })
    }
}

impl fmt::Display for InjectionConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed={},mean={}ns,hold={}ns", self.seed, self.mean_ns, self.hold_ns)?;
        if self.vcpus.is_empty() { Ok(()) } else { write!(f, ",vcpus=[{}]", self.vcpus) }
    }
}

impl TryFrom<String> for InjectionConfig {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        text.parse()
    }
}

impl From<InjectionConfig> for String {
    fn from(injection: InjectionConfig) -> Self {
        injection.to_string()
    }
}

/// A list of ids, in brackets or without.
fn list<Id: Copy + From<u32> + Into<u32>>(text: &str) -> Result<CpuSet<Id>, ValueError> {
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    Ok(inner.parse()?)
}

/// `10ms`: a whole number with ns, us, ms or s.
fn duration(text: &str, min_ns: u64, max_ns: u64) -> Result<u64, ValueError> {
    let refused = || ValueError::Duration { value: text.to_owned(), min_ns, max_ns };
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(refused)?;
    let (number, unit) = text.split_at(digits);
    let scale: u64 = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(refused()),
    };
    let number: u64 = number.parse().map_err(|_| refused())?;
    let value = number.checked_mul(scale).ok_or_else(refused)?;
    if (min_ns..=max_ns).contains(&value) { Ok(value) } else { Err(refused()) }
}

/// Everything about pause loops that a machine carries: checked, and without handles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PausePlan {
    /// How much is done.
    pub mode: PauseMode,
    /// Where events come from.
    pub source: SourceChoice,
    /// How a CPU is given away.
    pub mechanism: MechanismChoice,
    /// Parameters of the policy, in range.
    pub policy: PauseConfig,
    /// Parameters of the sources, in range.
    pub sources: SourceParameters,
    /// Where decisions are logged.
    pub decision_log: Option<std::path::PathBuf>,
    /// Preemption on demand.
    pub injection: Option<InjectionConfig>,
}

/// Applies parameters by name over the defaults.
///
/// # Errors
/// [`ValueError::OutOfRange`] for the first parameter outside its range.
pub(super) fn apply(parameters: &[PauseParameter]) -> Result<(PauseConfig, SourceParameters), ValueError> {
    set_parameters((PauseConfig::default(), SourceParameters::default()), parameters)
}

/// Applies parameters by name over others, which have passed this.
///
/// # Errors
/// [`ValueError::OutOfRange`] for the first parameter outside its range.
pub fn set_parameters(
    (policy, sources): (PauseConfig, SourceParameters),
    parameters: &[PauseParameter],
) -> Result<(PauseConfig, SourceParameters), ValueError> {
    let policy = overlay(policy, parameters)?;
    let sources = overlay(sources, parameters)?;
    policy.validate().map_err(|error| ValueError::OutOfRange {
        name: error.name,
        value: error.value,
        min: error.min,
        max: error.max,
    })?;
    match sources.parameters().into_iter().find(|(_, value, min, max)| value < min || value > max) {
        Some((name, value, min, max)) => Err(ValueError::OutOfRange { name, value, min, max }),
        None => Ok((policy, sources)),
    }
}

/// Writes the parameters that `T` has over `base`, through its serde names, which are the names of the parameters.
fn overlay<T: Serialize + for<'de> Deserialize<'de>>(base: T, parameters: &[PauseParameter]) -> Result<T, ValueError> {
    let mut fields = match serde_json::to_value(&base) {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => return Ok(base),
    };
    let mut last = None;
    for parameter in parameters {
        if let Some(field) = fields.get_mut(parameter.name()) {
            *field = parameter.value.into();
            last = Some(parameter);
        }
    }
    // Only a number that its field cannot hold can fail here.
    serde_json::from_value(serde_json::Value::Object(fields)).map_err(|_| match last {
        Some(parameter) => {
            ValueError::OutOfRange { name: parameter.name(), value: parameter.value, min: 0, max: u64::from(u32::MAX) }
        }
        None => unknown_key("", &known_parameters()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_policy_and_sources_are_set_by_name() {
        let parameters = ["bail_after=5", "port_spins=77", "bail_after=6"].map(|text| text.parse().unwrap());
        let (policy, sources) = apply(&parameters).unwrap();
        assert_eq!((policy.bail_after, sources.port_spins), (6, 77));
        assert_eq!(policy.scan_limit, PauseConfig::default().scan_limit);
    }

    #[test]
    fn a_wrong_parameter_is_named_with_its_range() {
        let text = "bail_aftr=5".parse::<PauseParameter>().unwrap_err().to_string();
        assert!(text.contains("did you mean `bail_after`?"), "{text}");
        assert!("bail_after=x".parse::<PauseParameter>().is_err());
        for (parameter, part) in [
            ("bail_after=0", "bail_after is 0"),
            ("port_spins=0", "port_spins is 0"),
            ("bail_after=99999999999", "bail_after is 99999999999"),
        ] {
            let text = apply(&[parameter.parse().unwrap()]).unwrap_err().to_string();
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn an_injection_reads_back_as_it_prints() {
        let injection: InjectionConfig = "seed=7,mean=10ms,hold=300us,vcpus=[0-3]".parse().unwrap();
        assert_eq!((injection.mean_ns, injection.hold_ns), (10_000_000, 300_000));
        assert_eq!(injection.to_string().parse(), Ok(injection));
        for text in ["", "seed=7", "seed=7,mean=10,hold=1ms", "seed=7,mean=10ms,hold=9s", "seed=a,mean=1ms,hold=1ms"] {
            assert!(text.parse::<InjectionConfig>().is_err(), "{text}");
        }
    }
}
