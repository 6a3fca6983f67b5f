// SPDX-License-Identifier: Apache-2.0
//! What `/dev/kvm` is here, and which of its capabilities later parts of a run use.

use kvm_bindings::{
    KVM_CAP_BINARY_STATS_FD, KVM_CAP_ENFORCE_PV_FEATURE_CPUID, KVM_CAP_HALT_POLL, KVM_CAP_IMMEDIATE_EXIT,
    KVM_CAP_MAX_VCPU_ID, KVM_CAP_MAX_VCPUS, KVM_CAP_SPLIT_IRQCHIP, KVM_CAP_SYNC_REGS, KVM_CAP_X2APIC_API,
    KVM_CAP_X86_DISABLE_EXITS, KVM_SYNC_X86_VALID_FIELDS, KVM_X86_DISABLE_EXITS_CSTATE, KVM_X86_DISABLE_EXITS_HLT,
    KVM_X86_DISABLE_EXITS_MWAIT, KVM_X86_DISABLE_EXITS_PAUSE,
};
use kvm_ioctls::Kvm;

use super::{Finding, ReadText, Ring0, Ring0Mode, measure_ring0};
use crate::host::facts;
use crate::kvm::cpuid;
use crate::kvm::system::API_VERSION;
use crate::offer;
use crate::report::KvmKind;

/// Bits of KVM_CAP_X86_DISABLE_EXITS, with the words of `--help` for them.
const DISABLE_EXITS: [(u32, &str); 4] = [
    (KVM_X86_DISABLE_EXITS_MWAIT, "mwait"),
    (KVM_X86_DISABLE_EXITS_HLT, "hlt"),
    (KVM_X86_DISABLE_EXITS_PAUSE, "pause"),
    (KVM_X86_DISABLE_EXITS_CSTATE, "cstate"),
];

/// A capability that is there or not: its number, its key, and what is lost without it.
const PLAIN: [(u32, &str, &str); 5] = [
    (KVM_CAP_IMMEDIATE_EXIT, "kvm.immediate_exit", "a vCPU cannot be stopped without losing a signal (Linux 4.13)"),
    (KVM_CAP_SPLIT_IRQCHIP, "kvm.split_irqchip", "the I/O APIC stays in the kernel (Linux 4.4)"),
    (KVM_CAP_BINARY_STATS_FD, "kvm.stats_fd", "the report has no counters of KVM's own (Linux 5.14)"),
    (KVM_CAP_HALT_POLL, "kvm.halt_poll", "halt polling is the host's default for all VMs (Linux 5.12)"),
    (
        KVM_CAP_ENFORCE_PV_FEATURE_CPUID,
        "kvm.enforce_pv_cpuid",
        "a guest can use paravirtual features it was not offered (Linux 5.10)",
    ),
];

/// All that was found out about KVM.
pub(super) struct KvmInspection {
    pub(super) kind: Option<KvmKind>,
    pub(super) ring0: Option<Ring0>,
    pub(super) findings: Vec<Finding>,
}

pub(super) fn inspect(read: ReadText<'_>) -> KvmInspection {
    let kvm = match Kvm::new() {
        Ok(kvm) => kvm,
        Err(error) => return KvmInspection { kind: None, ring0: None, findings: vec![no_device(error)] },
    };
    let kind = facts::kvm_kind();
    let mut findings = vec![device(&kvm), hardware(kind)];
    let ring0 = measure_ring0(&kvm);
    findings.push(match &ring0 {
        Ok(ring0) => kernel_mode(ring0),
        Err(error) => Finding::unknown("kvm.native_kernel_mode", error.to_string()),
    });
    findings.extend(capabilities(&|capability| kvm.check_extension_raw(capability.into())));
    findings.push(pv_features(&kvm));
    findings.push(pause_loop_exits(kind, read));
    KvmInspection { kind: Some(kind), ring0: ring0.ok(), findings }
}

fn no_device(error: kvm_ioctls::Error) -> Finding {
    let remedy = match error.errno() {
        libc::EACCES | libc::EPERM => "add the user to the group of /dev/kvm (usually kvm), or run as root",
        libc::ENOENT | libc::ENODEV | libc::ENXIO => {
            "load kvm_intel or kvm_amd; if they do not load, switch virtualisation on in the firmware, or nesting on in \
             the hypervisor this machine is a guest of"
        }
        _ => "look at the kernel's messages (dmesg) for kvm",
    };
    Finding::no("kvm.device", format!("/dev/kvm: {error}"), remedy)
}

fn device(kvm: &Kvm) -> Finding {
    match kvm.get_api_version() {
        API_VERSION => Finding::yes("kvm.device", format!("/dev/kvm, API version {API_VERSION}")),
        other => Finding::no(
            "kvm.device",
            format!("/dev/kvm has API version {other}, not {API_VERSION}"),
            "use a kernel of 5.15 or later",
        ),
    }
}

fn hardware(kind: KvmKind) -> Finding {
    match kind {
        KvmKind::Vmx => Finding::yes("kvm.hardware", "vmx"),
        KvmKind::Svm => Finding::yes("kvm.hardware", "svm"),
        KvmKind::Software => Finding::no(
            "kvm.hardware",
            "the CPU has neither VMX nor SVM: KVM virtualises by software",
            "run the built-in probe guest here; an unmodified Linux guest needs a host with vmx or svm; \
             `vmm lab -- ARGS...` emulates one",
        ),
    }
}

fn kernel_mode(ring0: &Ring0) -> Finding {
    let rate = format!("{:.1} million instructions/s in guest ring 0, measured", ring0.instructions_per_s / 1e6);
    match ring0.mode {
        Ring0Mode::Native => Finding::yes("kvm.native_kernel_mode", rate),
        Ring0Mode::Emulated => Finding::no(
            "kvm.native_kernel_mode",
            format!("emulated: {rate}"),
            "let guests work in ring 3, as the built-in probe guest does; Linux needs a host with vmx or svm; \
             `vmm lab -- ARGS...` emulates one",
        ),
    }
}

/// Answers from KVM_CHECK_EXTENSION, which is handed in: 0 is no.
fn capabilities(check: &dyn Fn(u32) -> i32) -> Vec<Finding> {
    let value = |capability| u32::try_from(check(capability)).unwrap_or(0);
    let number = |key, capability| match value(capability) {
        0 => Finding::unknown(key, "KVM does not say"),
        limit => Finding::yes(key, limit.to_string()),
    };
    let mut findings = vec![number("kvm.max_vcpus", KVM_CAP_MAX_VCPUS), number("kvm.max_vcpu_id", KVM_CAP_MAX_VCPU_ID)];
    let newer = "use a newer kernel, or do without";
    let flag = |key, capability, shown: String, lost: &str| match value(capability) {
        0 => Finding::no(key, lost, newer),
        _ => Finding::yes(key, shown),
    };
    findings.extend(PLAIN.map(|(capability, key, lost)| flag(key, capability, "offered".to_owned(), lost)));
    let bits = value(KVM_CAP_X2APIC_API);
    let x2apic = format!("flags {bits:#x}");
    findings.push(flag("kvm.x2apic_api", KVM_CAP_X2APIC_API, x2apic, "APIC ids end at 254 (Linux 4.7)"));
    let fields = value(KVM_CAP_SYNC_REGS);
    findings.push(match fields & KVM_SYNC_X86_VALID_FIELDS {
        KVM_SYNC_X86_VALID_FIELDS => Finding::yes("kvm.sync_regs", "regs, sregs, events"),
        _ => Finding::no(
            "kvm.sync_regs",
            format!("fields {fields:#x}: registers take a system call each way (Linux 4.17)"),
            newer,
        ),
    });
    findings.push(disable_exits(value(KVM_CAP_X86_DISABLE_EXITS)));
    findings
}

/// The paravirtual features that a guest is offered unless `--pv` says otherwise.
fn pv_features(kvm: &Kvm) -> Finding {
    const KEY: &str = "kvm.pv_features";
    match cpuid::supported(kvm).map(|table| offer::names_offered(&table)) {
        Ok(names) if names.is_empty() => {
            Finding::no(KEY, "KVM offers none", "nothing needs to be done: guests do without")
        }
        Ok(names) => Finding::yes(KEY, names.join(", ")),
        Err(error) => Finding::unknown(KEY, format!("KVM_GET_SUPPORTED_CPUID: {error}")),
    }
}

fn disable_exits(bits: u32) -> Finding {
    let names: Vec<&str> = DISABLE_EXITS.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect();
    match names.is_empty() {
        true => Finding::no(
            "kvm.disable_exits",
            "no exit can be switched off",
            "nothing needs to be done: PAUSE and HLT keep leaving the guest",
        ),
        false => Finding::yes("kvm.disable_exits", names.join(", ")),
    }
}

/// Whether PAUSE in a loop leaves the guest, from the parameters of KVM's vendor module.
fn pause_loop_exits(kind: KvmKind, read: ReadText<'_>) -> Finding {
    const KEY: &str = "kvm.pause_loop_exits";
    let Some(switch) = facts::pause_exit_parameter(kind) else {
        let remedy = "let the guest report its pause loops, or sample them";
        return Finding::no(KEY, "software-virtualised KVM does not intercept PAUSE", remedy);
    };
    let with = match kind {
        KvmKind::Vmx => "/sys/module/kvm_intel/parameters/ple_window",
        KvmKind::Svm | KvmKind::Software => "/sys/module/kvm_amd/parameters/pause_filter_thresh",
    };
    let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    match (read(switch), read(with)) {
        (Ok(value), _) if value == "0" => Finding::no(
            KEY,
            format!("{} is 0", name(switch)),
            "reload KVM's module with its default parameters; if it stays 0 the CPU has no pause-loop exits",
        ),
        (Ok(value), Ok(other)) => Finding::yes(KEY, format!("{} {value}, {} {other}", name(switch), name(with))),
        (Err(error), _) => Finding::unknown(KEY, format!("{switch}: {error}")),
        (_, Err(error)) => Finding::unknown(KEY, format!("{with}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::{Answer, fixture};

    #[test]
    fn an_old_kernel_lacks_everything_and_each_lack_is_explained() {
        for finding in capabilities(&|_| 0) {
            assert_ne!(finding.answer, Answer::Yes, "{}", finding.key);
            assert!(!finding.detail.is_empty());
        }
        assert!(capabilities(&|_| -1).iter().all(|finding| finding.answer != Answer::Yes));
    }

    #[test]
    fn values_are_shown_in_words() {
        let all = capabilities(&|capability| if capability == KVM_CAP_X86_DISABLE_EXITS { 0b1110 } else { 7 });
        let detail = |key| all.iter().find(|finding| finding.key == key).map(|finding| finding.detail.as_str());
        assert_eq!(detail("kvm.disable_exits"), Some("hlt, pause, cstate"));
        assert_eq!(detail("kvm.sync_regs"), Some("regs, sregs, events"));
        assert_eq!(detail("kvm.max_vcpus"), Some("7"));
    }

    #[test]
    fn pause_loop_exits_are_a_parameter_of_the_module() {
        let (gap, window) = ("/sys/module/kvm_intel/parameters/ple_gap", "/sys/module/kvm_intel/parameters/ple_window");
        let on = pause_loop_exits(KvmKind::Vmx, &fixture(&[(gap, "128"), (window, "4096")]));
        assert_eq!((on.answer, on.detail.as_str()), (Answer::Yes, "ple_gap 128, ple_window 4096"));
        let off = pause_loop_exits(KvmKind::Vmx, &fixture(&[(gap, "0"), (window, "4096")]));
        assert_eq!(off.answer, Answer::No);
        assert_eq!(pause_loop_exits(KvmKind::Svm, &fixture(&[])).answer, Answer::Unknown);
        assert_eq!(pause_loop_exits(KvmKind::Software, &fixture(&[])).answer, Answer::No);
    }
}
