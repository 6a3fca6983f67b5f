// SPDX-License-Identifier: Apache-2.0
//! What the guest is told of its host, and what KVM may do on its behalf: asked for by flags, granted by the kernel.
//!
//! Prepared once, before the first vCPU: the kernel takes some of it only then. Invariant: whatever was asked for has an
//! entry in [`Offers::grants`] that says whether it was had, and who decided.

pub mod features;
mod pv;

use std::io;

use kvm_bindings::{
    KVM_CAP_ENFORCE_PV_FEATURE_CPUID, KVM_CAP_HALT_POLL, KVM_CAP_X86_DISABLE_EXITS, KVM_X86_DISABLE_EXITS_CSTATE,
    KVM_X86_DISABLE_EXITS_HLT, KVM_X86_DISABLE_EXITS_MWAIT, KVM_X86_DISABLE_EXITS_PAUSE,
};
use topology::cpuid::CpuidEntry;

use crate::config::{CpuMask, OfferPlan, PvFeature, QuietExit};
use crate::host::facts;
use crate::kvm::system::System;
use crate::kvm::vcpu::Vcpu;
use crate::kvm::vm::Vm;
use crate::pause::effective::Grant;
use crate::report::KvmKind;
use features::{FEATURES, Feature};

pub use pv::offered;

/// What a machine was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offers {
    enforce: bool,
    grants: Vec<Grant>,
}

impl Offers {
    /// Sets up the VM and changes the CPUID table that all vCPUs are made from.
    ///
    /// # Errors
    /// The kernel's own, for something it has and then refuses. What it lacks is no error but a grant that says no.
    pub fn prepare(plan: &OfferPlan, system: &System, vm: &Vm, cpuid: &mut Vec<CpuidEntry>) -> io::Result<Self> {
        let mut grants = pv::apply(plan, cpuid);
        let enforce = plan.pv.is_some() && system.capability_raw(KVM_CAP_ENFORCE_PV_FEATURE_CPUID) != 0;
        if plan.pv.is_some() {
            grants.push(enforced(enforce));
        }
        grants.extend(quiet_exits(plan, system.capability_raw(KVM_CAP_X86_DISABLE_EXITS), vm)?);
        if plan.is_quiet(QuietExit::Mwait) {
            pv::show_mwait(cpuid);
        }
        if let Some(ns) = plan.halt_poll_ns {
            grants.push(halt_poll(ns, system.capability_raw(KVM_CAP_HALT_POLL) != 0, vm)?);
        }
        if let Some(mask) = &plan.mask {
            grants.extend(leave_out(mask, cpuid, facts::kvm_kind(), features::this_processor_has));
        }
        Ok(Self { enforce, grants })
    }

    /// Prepares one vCPU.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn enforce(&self, vcpu: &Vcpu) -> io::Result<()> {
        if self.enforce { vcpu.enforce_pv_features() } else { Ok(()) }
    }

    /// What was asked for and what was granted.
    #[must_use]
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }
}

fn enforced(granted: bool) -> Grant {
    if granted {
        Grant::yes("pv-enforced", "KVM_CAP_ENFORCE_PV_FEATURE_CPUID: what is not offered cannot be used")
    } else {
        Grant::no(
            "pv-enforced",
            "the kernel has no KVM_CAP_ENFORCE_PV_FEATURE_CPUID: a guest can use what it was not offered",
            Some("use Linux 5.10 or later"),
        )
    }
}

/// Switches off the exits that the kernel allows to.
fn quiet_exits(plan: &OfferPlan, allowed: u32, vm: &Vm) -> io::Result<Vec<Grant>> {
    let bit = |exit| match exit {
        QuietExit::Hlt => KVM_X86_DISABLE_EXITS_HLT,
        QuietExit::Mwait => KVM_X86_DISABLE_EXITS_MWAIT,
        QuietExit::Pause => KVM_X86_DISABLE_EXITS_PAUSE,
        QuietExit::Cstate => KVM_X86_DISABLE_EXITS_CSTATE,
    };
    let asked: Vec<QuietExit> = QuietExit::ALL.into_iter().filter(|exit| plan.is_quiet(*exit)).collect();
    let bits = asked.iter().map(|exit| bit(*exit)).fold(0, |bits, bit| bits | bit) & allowed;
    if bits != 0 {
        vm.disable_exits(bits)?;
    }
    let grant = |exit: QuietExit| {
        let name = format!("no-exit.{}", exit.name());
        if bits & bit(exit) != 0 {
            Grant::yes(&name, "KVM_CAP_X86_DISABLE_EXITS")
        } else {
            let why =
                "the kernel or this processor does not allow it (KVM_CHECK_EXTENSION of KVM_CAP_X86_DISABLE_EXITS)";
            Grant::no(&name, why, None)
        }
    };
    Ok(asked.into_iter().map(grant).collect())
}

fn halt_poll(ns: u32, there: bool, vm: &Vm) -> io::Result<Grant> {
    if !there {
        let why = "the kernel has no KVM_CAP_HALT_POLL: the host's halt_poll_ns holds";
        return Ok(Grant::no("halt-poll", why, Some("use Linux 5.12 or later, or set kvm.halt_poll_ns")));
    }
    vm.limit_halt_poll(ns)?;
    Ok(Grant::yes("halt-poll", format!("KVM_CAP_HALT_POLL: at most {ns} ns")))
}

/// Takes the masked features out of CPUID. `processor_has` says what the processor itself shows, which KVM may hide.
fn leave_out(
    mask: &CpuMask,
    cpuid: &mut [CpuidEntry],
    kvm: KvmKind,
    processor_has: fn(&Feature) -> bool,
) -> Vec<Grant> {
    let grant = |name: &'static str| {
        let feature = FEATURES.iter().find(|feature| feature.name == name);
        let was_there = feature.is_some_and(|feature| features::take_out(cpuid, feature));
        let shown = format!("cpu-mask.{name}");
        let passes = |feature: &Feature| {
            kvm == KvmKind::Software && matches!(feature.function, 1 | 7 | 0xD) && processor_has(feature)
        };
        match was_there {
            _ if feature.is_some_and(passes) => {
                Grant::no(&shown, "software-virtualised KVM shows the host's leaves 1, 7 and 0xD whatever is set", None)
            }
            true => Grant::yes(&shown, "taken out of CPUID"),
            false => Grant::yes(&shown, "this host does not have it"),
        }
    };
    mask.iter().map(grant).collect()
}

/// For `vmm host`: the names of the paravirtual features in a CPUID table.
#[must_use]
pub fn names_offered(cpuid: &[CpuidEntry]) -> Vec<&'static str> {
    PvFeature::ALL.into_iter().filter(|feature| offered(cpuid, *feature)).map(PvFeature::name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_masked_feature_is_accounted_for() {
        let mut cpuid = vec![CpuidEntry { function: 7, ebx: 1 << 5, ..pv::tests::empty(7) }];
        let mask = "avx2,rdrand".parse().expect("known");
        let both = |grants: Vec<Grant>| grants.iter().map(|grant| grant.granted).collect::<Vec<_>>();
        // KVM hides rdrand of a processor that has it, and the guest sees it all the same.
        assert_eq!(both(leave_out(&mask, &mut cpuid.clone(), KvmKind::Software, |_| true)), [false, false]);
        let only_avx2: fn(&Feature) -> bool = |feature| feature.name == "avx2";
        assert_eq!(both(leave_out(&mask, &mut cpuid.clone(), KvmKind::Software, only_avx2)), [false, true]);
        assert_eq!(both(leave_out(&mask, &mut cpuid, KvmKind::Svm, |_| true)), [true, true]);
        assert_eq!(cpuid[0].ebx, 0);
    }
}
