// SPDX-License-Identifier: Apache-2.0
//! Pause loops at the end of a run, told to a person.

use std::collections::BTreeMap;
use std::fmt;

use crate::pause::effective::{Effective, Grant};
use crate::report::{PauseReport, VcpuReport};

/// Tells a person what was asked for, what was granted, and what came of it.
pub(super) fn tell(f: &mut fmt::Formatter<'_>, effective: &Effective, vcpus: &[VcpuReport]) -> fmt::Result {
    writeln!(f, "  pause      {}", effective.mode)?;
    let groups = [("source", &effective.sources), ("mechanism", &effective.mechanisms), ("view", &effective.views)];
    for (kind, grant) in groups.iter().flat_map(|(kind, grants)| grants.iter().map(move |grant| (kind, grant))) {
        if grant.asked {
            writeln!(f, "    {kind} {}: {}", grant.name, Granted(grant))?;
        }
    }
    let sum = |of: fn(&PauseReport) -> u64| vcpus.iter().map(|vcpu| of(&vcpu.pause)).sum::<u64>();
    let seen = seen(vcpus.iter().map(|vcpu| &vcpu.pause));
    if !seen.is_empty() {
        writeln!(f, "    {seen}")?;
    }
    if let Some(why) = &effective.unseen {
        writeln!(f, "    PAUSE exits of a vCPU not seen: {why}")?;
    }
    if sum(|pause| pause.events) == 0 {
        return Ok(());
    }
    writeln!(
        f,
        "    {} events, {} in quiet windows, {} decisions to spin; {} actions: {} boosted, {} not, {} with nobody waiting",
        sum(|pause| pause.events),
        sum(|pause| pause.quiet),
        sum(|pause| pause.spins),
        sum(|pause| pause.yields.attempted),
        sum(|pause| pause.yields.boosted),
        sum(|pause| pause.yields.not_boosted),
        sum(|pause| pause.yields.nobody_waiting),
    )?;
    let mut bailed: BTreeMap<&str, u64> = BTreeMap::new();
    for (reason, count) in vcpus.iter().flat_map(|vcpu| &vcpu.pause.bailed) {
        *bailed.entry(reason).or_insert(0) += count;
    }
    let reasons: Vec<String> = bailed.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    writeln!(f, "    bailed out: {}", if reasons.is_empty() { "never".to_owned() } else { reasons.join(", ") })
}

/// What the sources saw beside the port, in words; empty if nothing.
fn seen<'a>(vcpus: impl Iterator<Item = &'a PauseReport>) -> String {
    let mut sums = [
        (0, "PAUSE exits"),
        (0, "of the events forced by the tracepoint"),
        (0, "of these left to the kernel, whose yields worked"),
        (0, "looks by the sampler"),
    ];
    for pause in vcpus {
        for ((sum, _), count) in
            sums.iter_mut().zip([pause.pause_exits, pause.forced, pause.left_to_kernel, pause.sampled])
        {
            *sum += count;
        }
    }
    let texts: Vec<String> =
        sums.iter().filter(|(sum, _)| *sum > 0).map(|(sum, what)| format!("{sum} {what}")).collect();
    texts.join(", ")
}

/// A grant in words.
pub(super) struct Granted<'a>(pub(super) &'a Grant);

impl fmt::Display for Granted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Grant { granted, why, remedy, .. } = self.0;
        write!(f, "{}, {why}", if *granted { "yes" } else { "no" })?;
        remedy.as_ref().map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_source_saw_is_not_mentioned() {
        let exits = PauseReport { pause_exits: 7, ..PauseReport::default() };
        let looks = PauseReport { sampled: 2, ..exits.clone() };
        assert_eq!(seen([&PauseReport::default()].into_iter()), "");
        assert_eq!(seen([&exits, &looks].into_iter()), "14 PAUSE exits, 2 looks by the sampler");
    }
}
