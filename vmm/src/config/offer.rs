// SPDX-License-Identifier: Apache-2.0
//! What the guest is told of its host, and what KVM may do: paravirtual features, exits that are switched off, CPU
//! features that are left out.
//!
//! Pure. All are lists of known words; a word that is not known is an error with the nearest one that is.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::ValueError;
use super::nearest::nearest;
use crate::offer::features::FEATURES;

/// A paravirtual feature of KVM (Documentation/virt/kvm/x86/cpuid.rst).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PvFeature {
    /// A clock that the host keeps in guest memory.
    Kvmclock,
    /// The guest is told of a page that is being brought in, and goes on with something else.
    AsyncPf,
    /// The host says how long a vCPU waited for a CPU, and whether it is preempted.
    StealTime,
    /// The end of an interrupt is told in memory, without an exit.
    PvEoi,
    /// A waiter for a lock halts, and who unlocks kicks it.
    PvUnhalt,
    /// TLBs of preempted vCPUs are flushed when they run again.
    PvTlbFlush,
    /// One hypercall sends an interrupt to many vCPUs.
    PvIpi,
    /// The guest may switch the host's halt polling off.
    PollControl,
    /// A hypercall gives the CPU to a preempted vCPU.
    PvSchedYield,
}

impl PvFeature {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Kvmclock,
        Self::AsyncPf,
        Self::StealTime,
        Self::PvEoi,
        Self::PvUnhalt,
        Self::PvTlbFlush,
        Self::PvIpi,
        Self::PollControl,
        Self::PvSchedYield,
    ];

    /// Its name, as `--pv` spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kvmclock => "kvmclock",
            Self::AsyncPf => "async-pf",
            Self::StealTime => "steal-time",
            Self::PvEoi => "pv-eoi",
            Self::PvUnhalt => "pv-unhalt",
            Self::PvTlbFlush => "pv-tlb-flush",
            Self::PvIpi => "pv-ipi",
            Self::PollControl => "poll-control",
            Self::PvSchedYield => "pv-sched-yield",
        }
    }
}

/// The paravirtual features that were chosen: `all`, `none`, names, or `all` without those with a `-` in front.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PvChoice(BTreeSet<PvFeature>);

impl PvChoice {
    /// Whether a feature is among them.
    #[must_use]
    pub fn has(&self, feature: PvFeature) -> bool {
        self.0.contains(&feature)
    }
}

impl FromStr for PvChoice {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let mut chosen = BTreeSet::new();
        for (place, word) in text.split(',').enumerate() {
            match (word, word.strip_prefix('-')) {
                ("all", _) => chosen.extend(PvFeature::ALL),
                ("none", _) => chosen.clear(),
                (_, Some(name)) => {
                    // A list that begins with what is left out means all the rest.
                    if place == 0 {
                        chosen.extend(PvFeature::ALL);
                    }
                    chosen.remove(&feature(name)?);
                }
                (name, None) => {
                    chosen.insert(feature(name)?);
                }
            }
        }
        Ok(Self(chosen))
    }
}

fn feature(name: &str) -> Result<PvFeature, ValueError> {
    let found = PvFeature::ALL.into_iter().find(|feature| feature.name() == name);
    found.ok_or_else(|| unknown("paravirtual feature", name, PvFeature::ALL.map(PvFeature::name)))
}

impl fmt::Display for PvChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            0 => f.write_str("none"),
            all if all == PvFeature::ALL.len() => f.write_str("all"),
            _ => join(f, self.0.iter().map(|feature| feature.name())),
        }
    }
}

/// An instruction that need not leave the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuietExit {
    /// HLT: a halted vCPU keeps its CPU.
    Hlt,
    /// MONITOR and MWAIT.
    Mwait,
    /// PAUSE.
    Pause,
    /// Reading the residency counters of C-states.
    Cstate,
}

impl QuietExit {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Hlt, Self::Mwait, Self::Pause, Self::Cstate];

    /// Its name, as `--disable-exits` spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hlt => "hlt",
            Self::Mwait => "mwait",
            Self::Pause => "pause",
            Self::Cstate => "cstate",
        }
    }
}

/// The exits to be switched off: names with commas between.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct QuietExits(BTreeSet<QuietExit>);

impl QuietExits {
    /// Those that were named, in a fixed order.
    pub fn iter(&self) -> impl Iterator<Item = QuietExit> {
        self.0.iter().copied()
    }
}

impl FromStr for QuietExits {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let exit = |name: &str| {
            let found = QuietExit::ALL.into_iter().find(|exit| exit.name() == name);
            found.ok_or_else(|| unknown("exit", name, QuietExit::ALL.map(QuietExit::name)))
        };
        text.split(',').map(exit).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for QuietExits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        join(f, self.0.iter().map(|exit| exit.name()))
    }
}

/// CPU features that the guest is not shown, by the names of `/proc/cpuinfo`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuMask(BTreeSet<&'static str>);

impl CpuMask {
    /// The names.
    pub fn iter(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().copied()
    }
}

impl FromStr for CpuMask {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let known = || FEATURES.iter().map(|feature| feature.name);
        let named = |name: &str| {
            known().find(|one| *one == name).ok_or_else(|| ValueError::UnknownWord {
                kind: "CPU feature that can be left out",
                word: name.to_owned(),
                nearest: nearest(name, known()).map(str::to_owned),
                known: "names of /proc/cpuinfo (docs/linux-guests.md has the list)".to_owned(),
            })
        };
        text.split(',').map(named).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for CpuMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        join(f, self.iter())
    }
}

fn unknown<const N: usize>(kind: &'static str, word: &str, known: [&'static str; N]) -> ValueError {
    let nearest = nearest(word, known).map(str::to_owned);
    ValueError::UnknownWord { kind, word: word.to_owned(), nearest, known: known.join(", ") }
}

fn join<'a>(f: &mut fmt::Formatter<'_>, words: impl Iterator<Item = &'a str>) -> fmt::Result {
    f.write_str(&words.collect::<Vec<_>>().join(","))
}

macro_rules! as_text {
    ($($name:ident),*) => {$(
        impl TryFrom<String> for $name {
            type Error = ValueError;

            fn try_from(text: String) -> Result<Self, ValueError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.to_string()
            }
        }
    )*};
}
as_text!(PvChoice, QuietExits, CpuMask);

/// All of it for one machine, checked against one another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfferPlan {
    /// Paravirtual features; `None` leaves it to KVM.
    pub pv: Option<PvChoice>,
    /// Exits that are switched off.
    pub quiet: Option<QuietExits>,
    /// Longest halt polling in nanoseconds; `None` leaves it to the host.
    pub halt_poll_ns: Option<u32>,
    /// CPU features that are left out.
    pub mask: Option<CpuMask>,
}

impl OfferPlan {
    /// Whether an exit is to be switched off.
    #[must_use]
    pub fn is_quiet(&self, exit: QuietExit) -> bool {
        self.quiet.as_ref().is_some_and(|quiet| quiet.0.contains(&exit))
    }

    /// Whether KVM forbids it: a halted vCPU that does not exit cannot be kicked by the host.
    #[must_use]
    pub fn wants_unhalt_without_halt(&self) -> bool {
        self.is_quiet(QuietExit::Hlt) && self.pv.as_ref().is_some_and(|pv| pv.has(PvFeature::PvUnhalt))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn features_are_chosen_by_name_or_left_out_of_all() {
        for (text, same) in [
            ("all", "all"),
            ("none", "none"),
            ("all,none", "none"),
            ("pv-ipi,steal-time", "steal-time,pv-ipi"),
            ("-pv-unhalt,-async-pf", "kvmclock,steal-time,pv-eoi,pv-tlb-flush,pv-ipi,poll-control,pv-sched-yield"),
            ("all,-kvmclock,kvmclock", "all"),
            ("none,pv-eoi", "pv-eoi"),
        ] {
            assert_eq!(text.parse::<PvChoice>().map(|choice| choice.to_string()), Ok(same.to_owned()), "{text}");
        }
        let error = "steal_tim".parse::<PvChoice>().expect_err("no such feature").to_string();
        assert!(error.contains("did you mean `steal-time`?"), "{error}");
        assert!("".parse::<PvChoice>().is_err() && "all,".parse::<PvChoice>().is_err());
    }

    #[test]
    fn exits_and_cpu_features_are_known_words() {
        assert_eq!("pause,hlt".parse::<QuietExits>().map(|exits| exits.to_string()), Ok("hlt,pause".to_owned()));
        assert!("halt".parse::<QuietExits>().expect_err("no such exit").to_string().contains("did you mean `hlt`?"));
        assert_eq!("avx2,avx".parse::<CpuMask>().map(|mask| mask.to_string()), Ok("avx,avx2".to_owned()));
        assert!("axv2".parse::<CpuMask>().expect_err("no such feature").to_string().contains("did you mean `avx2`?"));
    }

    #[test]
    fn unhalt_without_halt_exits_is_noticed() {
        let plan = |pv: &str, quiet: &str| OfferPlan {
            pv: Some(pv.parse().expect("known")),
            quiet: Some(quiet.parse().expect("known")),
            ..OfferPlan::default()
        };
        assert!(plan("all", "hlt").wants_unhalt_without_halt());
        assert!(!plan("-pv-unhalt", "hlt").wants_unhalt_without_halt());
        assert!(!plan("all", "pause").wants_unhalt_without_halt());
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(words in "(-?(pv-ipi|steal-time|all|none|pv-unhalt),){0,4}kvmclock") {
            if let Ok(choice) = words.parse::<PvChoice>() {
                prop_assert_eq!(choice.to_string().parse(), Ok(choice));
            }
        }
    }
}
