// SPDX-License-Identifier: Apache-2.0
//! What the guest was told and what KVM might do, at the end of a run, for a person.

use std::fmt;

use super::pause::Granted;
use crate::pause::effective::Grant;

/// One line for what nobody asked about, and one for each thing that was asked for.
pub(super) fn tell(f: &mut fmt::Formatter<'_>, grants: &[Grant]) -> fmt::Result {
    let had = |asked: bool| grants.iter().filter(move |grant| grant.granted && grant.asked == asked);
    let by_default: Vec<&str> = had(false).filter_map(|grant| grant.name.strip_prefix("pv.")).collect();
    if !by_default.is_empty() {
        writeln!(f, "  pv         {} (KVM's default)", by_default.join(", "))?;
    }
    for grant in grants.iter().filter(|grant| grant.asked) {
        writeln!(f, "  {}: {}", grant.name, Granted(grant))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_has_a_line_and_the_default_one_for_all() {
        let default = |name| Grant { asked: false, ..Grant::yes(name, "KVM's default") };
        let grants = [
            default("pv.kvmclock"),
            default("pv.pv-ipi"),
            Grant::unasked("pv.async-pf", "left out by --pv"),
            Grant::no("halt-poll", "no such thing", Some("use another kernel")),
        ];
        struct Shown<'a>(&'a [Grant]);
        impl fmt::Display for Shown<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                tell(f, self.0)
            }
        }
        assert_eq!(
            Shown(&grants).to_string(),
            "  pv         kvmclock, pv-ipi (KVM's default)\n  halt-poll: no, no such thing; use another kernel\n"
        );
    }
}
