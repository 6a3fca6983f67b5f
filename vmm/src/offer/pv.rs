// SPDX-License-Identifier: Apache-2.0
//! KVM's paravirtual features in CPUID leaf 0x40000001 (Documentation/virt/kvm/x86/cpuid.rst). Pure.

use std::arch::x86_64::{__cpuid, CpuidResult};

use topology::cpuid::CpuidEntry;

use crate::config::{OfferPlan, PvFeature, QuietExit};
use crate::pause::effective::Grant;

/// KVM's leaf of features.
const KVM_FEATURES: u32 = 0x4000_0001;

/// CPUID.40000001H:EAX bits of a feature (arch/x86/include/uapi/asm/kvm_para.h).
const fn bits(feature: PvFeature) -> u32 {
    match feature {
        // CLOCKSOURCE, CLOCKSOURCE2, CLOCKSOURCE_STABLE_BIT.
        PvFeature::Kvmclock => 1 << 0 | 1 << 3 | 1 << 24,
        // ASYNC_PF, ASYNC_PF_VMEXIT, ASYNC_PF_INT.
        PvFeature::AsyncPf => 1 << 4 | 1 << 10 | 1 << 14,
        PvFeature::StealTime => 1 << 5,
        PvFeature::PvEoi => 1 << 6,
        PvFeature::PvUnhalt => 1 << 7,
        PvFeature::PvTlbFlush => 1 << 9,
        PvFeature::PvIpi => 1 << 11,
        PvFeature::PollControl => 1 << 12,
        PvFeature::PvSchedYield => 1 << 13,
    }
}

fn leaf(cpuid: &[CpuidEntry]) -> u32 {
    cpuid.iter().find(|entry| entry.function == KVM_FEATURES).map_or(0, |entry| entry.eax)
}

/// Whether a table offers a feature.
#[must_use]
pub fn offered(cpuid: &[CpuidEntry], feature: PvFeature) -> bool {
    leaf(cpuid) & bits(feature) != 0
}

/// Leaves in the table what was chosen and KVM has; one grant a feature.
pub(super) fn apply(plan: &OfferPlan, cpuid: &mut [CpuidEntry]) -> Vec<Grant> {
    let there = leaf(cpuid);
    let mut kept = there;
    let grants = PvFeature::ALL.map(|feature| {
        let chosen = plan.pv.as_ref().map(|choice| choice.has(feature));
        let grant = decide(feature, there & bits(feature) != 0, chosen, plan.is_quiet(QuietExit::Hlt));
        if !grant.granted {
            kept &= !bits(feature);
        }
        grant
    });
    cpuid.iter_mut().filter(|entry| entry.function == KVM_FEATURES).for_each(|entry| entry.eax = kept);
    grants.into()
}

/// `chosen` is `None` where nothing was said: then KVM decides.
fn decide(feature: PvFeature, there: bool, chosen: Option<bool>, quiet_halt: bool) -> Grant {
    let name = format!("pv.{}", feature.name());
    match (chosen, there) {
        (Some(false), _) if feature == PvFeature::Kvmclock => Grant::unasked(
            &name,
            "left out by --pv; the machine has no PIT, HPET or PM timer, so Linux boots only where CPUID leaf 15H tells \
             the rate of the TSC",
        ),
        (Some(false), _) => Grant::unasked(&name, "left out by --pv"),
        (_, true) if quiet_halt && feature == PvFeature::PvUnhalt => {
            Grant::unasked(&name, "a halted vCPU that does not exit cannot be kicked (--disable-exits hlt)")
        }
        (Some(true), true) => Grant::yes(&name, "asked for by --pv, offered by KVM"),
        (None, true) => Grant { asked: false, ..Grant::yes(&name, "KVM's default") },
        (Some(true), false) => {
            Grant::no(&name, "this host's KVM does not offer it (KVM_GET_SUPPORTED_CPUID)", Some("use a newer kernel"))
        }
        (None, false) => Grant::unasked(&name, "this host's KVM does not offer it (KVM_GET_SUPPORTED_CPUID)"),
    }
}

/// With MWAIT exits off the guest may be shown MONITOR/MWAIT, which KVM hides: CPUID.01H:ECX[3] and leaf 5, as the host has.
pub(super) fn show_mwait(cpuid: &mut Vec<CpuidEntry>) {
    const MONITOR: u32 = 1 << 3;
    if __cpuid(1).ecx & MONITOR == 0 {
        return;
    }
    cpuid.iter_mut().filter(|entry| entry.function == 1).for_each(|entry| entry.ecx |= MONITOR);
    cpuid.retain(|entry| entry.function != 5);
    let CpuidResult { eax, ebx, ecx, edx } = __cpuid(5);
    cpuid.push(CpuidEntry { function: 5, index: 0, indexed: false, eax, ebx, ecx, edx });
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::offer) fn empty(function: u32) -> CpuidEntry {
        CpuidEntry { function, index: 0, indexed: function == 7, eax: 0, ebx: 0, ecx: 0, edx: 0 }
    }

    fn kvm(eax: u32) -> Vec<CpuidEntry> {
        vec![CpuidEntry { eax, ..empty(KVM_FEATURES) }, empty(1)]
    }

    fn plan(pv: Option<&str>, quiet: Option<&str>) -> OfferPlan {
        OfferPlan {
            pv: pv.map(|text| text.parse().expect("known")),
            quiet: quiet.map(|text| text.parse().expect("known")),
            ..OfferPlan::default()
        }
    }

    #[test]
    fn what_is_not_chosen_is_taken_out_and_what_has_no_name_stays() {
        const NOP_IO_DELAY: u32 = 1 << 1;
        for (pv, eax) in [
            (None, u32::MAX),
            (Some("all"), u32::MAX),
            (Some("pv-ipi,steal-time"), !PvFeature::ALL.map(bits).iter().sum::<u32>() | 1 << 11 | 1 << 5),
        ] {
            let mut table = kvm(u32::MAX);
            apply(&plan(pv, None), &mut table);
            assert_eq!(leaf(&table), eax, "{pv:?}");
        }
        let mut table = kvm(NOP_IO_DELAY | 1 << 5);
        apply(&plan(Some("none"), None), &mut table);
        assert_eq!(leaf(&table), NOP_IO_DELAY);
    }

    #[test]
    fn each_grant_says_who_decided() {
        let mut table = kvm(bits(PvFeature::StealTime));
        let grants = apply(&plan(Some("steal-time,pv-ipi"), None), &mut table);
        let of = |name: &str| grants.iter().find(|grant| grant.name == name).map(|grant| (grant.asked, grant.granted));
        assert_eq!(of("pv.steal-time"), Some((true, true)));
        assert_eq!(of("pv.pv-ipi"), Some((true, false)));
        assert_eq!(of("pv.kvmclock"), Some((false, false)));
        assert_eq!(grants.len(), PvFeature::ALL.len());
    }

    #[test]
    fn without_halt_exits_nobody_is_offered_unhalt() {
        let mut table = kvm(u32::MAX);
        apply(&plan(None, Some("hlt")), &mut table);
        assert!(!offered(&table, PvFeature::PvUnhalt) && offered(&table, PvFeature::PvIpi));
    }
}
