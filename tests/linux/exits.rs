// SPDX-License-Identifier: Apache-2.0
//! What a guest leaves KVM for until its init writes a line, under `vmm` and under QEMU's microvm: the same kernel and initial
//! RAM disk on the same lab host, in turns. Counts come from the kernel (resources/lab/count-exits.sh) and are exact.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use lab::cpio::Archive;
use lab::packages::{Flavour, Series, Store};
use lab::{Lab, LabResult};
use libtest_mimic::{Completion, Failed, Trial};

use crate::{Set, monitor, trial};

/// Pairs of runs. For a look, `VMM_EXITS_PAIRS` sets another number and `VMM_EXITS_FLAGS` adds flags for `vmm`.
const PAIRS: u32 = 7;
const MONITORS: [&str; 2] = ["vmm", "qemu"];
/// Real time for a pair: 32 vCPUs take a minute or so each on a quiet machine.
const PAIR_LIMIT: Duration = Duration::from_secs(600);

pub(crate) fn trials() -> Vec<Trial> {
    let of = |cpus: u32, memory: &'static str| {
        let name = format!("exits_until_init_with_{cpus}_vcpus_are_fewer_than_qemu_microvm_makes");
        trial(&name, Set::Full, move || compared(cpus, memory))
    };
    vec![of(1, "512M"), of(32, "1G")]
}

fn compared(cpus: u32, memory: &str) -> Result<Completion, Failed> {
    let pairs = std::env::var("VMM_EXITS_PAIRS").ok().and_then(|text| text.parse().ok()).unwrap_or(PAIRS);
    let flags = std::env::var("VMM_EXITS_FLAGS").unwrap_or_default();
    let lab = lab_for()?.deadline(PAIR_LIMIT * pairs);
    let mut script = concat!("cd /results\n", include_str!("../../resources/lab/count-exits.sh")).to_owned();
    for pair in 0..pairs {
        // Who is first changes, so that neither always finds what the other left in the caches.
        let mut turns = [
            format!(
                "count vmm{pair} vmm --cpus {cpus} --memory {memory} --kernel /kernel --initrd /initrd \
                 --cmdline console=ttyS0 {flags}\n"
            ),
            format!(
                "count qemu{pair} /usr/bin/qemu-system-x86_64 -L /qemu -accel kvm -M microvm -cpu host -smp {cpus} -m {memory} \
                 -kernel /kernel -initrd /initrd -append console=ttyS0 -nodefaults -no-user-config -display none \
                 -serial stdio\n"
            ),
        ];
        if pair % 2 == 1 {
            turns.swap(0, 1);
        }
        script.extend(turns);
    }
    let result = lab.run(&script)?;
    crate::guests::keep(&result.files);
    let counted = MONITORS
        .map(|monitor| (0..pairs).map(|pair| Counted::of(&result, monitor, pair)).collect::<Result<Vec<_>, _>>());
    let [ours, theirs] = counted;
    judge(cpus, &ours?, &theirs?)
}

/// A lab host with both monitors, the kernel, and an initial RAM disk whose init writes a line and sleeps.
fn lab_for() -> Result<Lab<'static>, Failed> {
    let store = Store::open()?;
    let read = |path: &Path| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    let mut archive = Archive::new();
    archive.file("/bin/busybox", 0o755, read(&store.busybox()?)?)?;
    let init = "#!/bin/busybox sh\necho guest: init\nexec /bin/busybox sleep 10000\n";
    archive.file("/init", 0o755, init.as_bytes().to_vec())?;
    let mut lab = Lab::new()
        .program_at(monitor::path(), "/bin/vmm")
        .file("/kernel", read(&store.kernel(Series::V6_12, Flavour::Cloud)?.vmlinuz)?)
        .file("/initrd", archive.finish());
    for (place, file) in store.program("qemu-system-x86", "/usr/bin/qemu-system-x86_64")? {
        lab = lab.file(&place, read(&file)?);
    }
    for (place, file) in
        store.files("qemu-system-x86", &["usr/share/seabios/bios-microvm.bin", "usr/share/qemu/linuxboot_dma.bin"])?
    {
        lab = lab.file(&format!("/qemu/{place}"), read(&file)?);
    }
    Ok(lab)
}

/// Exit codes of SVM (AMD APM vol. 2, appendix C) and what a guest did.
const REASONS: [(&str, &str); 16] = [
    ("0", "CR0 read"),
    ("4", "CR4 read"),
    ("16", "CR0 written"),
    ("20", "CR4 written"),
    ("55", "DR7 written"),
    ("78", "page fault"),
    ("96", "interrupt of the host"),
    ("100", "window for an interrupt"),
    ("101", "CR0 written (selective)"),
    ("114", "CPUID"),
    ("120", "HLT"),
    ("121", "INVLPG"),
    ("123", "port"),
    ("124", "MSR"),
    ("129", "VMMCALL"),
    ("1024", "nested page fault"),
];

/// Ports, addresses and registers that were used less often are not printed.
const PRINTED_MIN: u64 = 20;

/// What was counted in one run.
#[derive(Debug)]
struct Counted {
    ms: u64,
    /// By what was counted: `kvm_exit exit_reason: 120`, or the name of one of KVM's own counters.
    counts: BTreeMap<String, u64>,
}

impl Counted {
    fn of(result: &LabResult, monitor: &str, pair: u32) -> Result<Self, Failed> {
        let text = |kind: &str| -> Result<String, Failed> {
            let name = format!("{monitor}{pair}.{kind}");
            let bytes = result.files.get(&name).ok_or_else(|| format!("{name} is missing"))?;
            Ok(String::from_utf8_lossy(bytes).replace('\r', ""))
        };
        if !text("console")?.contains("guest: init") {
            return Err(format!("{monitor}{pair} did not reach its init: {}{}", text("told")?, text("console")?).into());
        }
        let exits = text("exits")?;
        let kvm = text("kvm")?;
        let exits = exits.lines().filter_map(|line| line.rsplit_once(" = "));
        let counts = exits.chain(kvm.lines().filter_map(|line| line.rsplit_once(' ')));
        let counts = counts.filter_map(|(name, count)| Some((name.trim().to_owned(), count.trim().parse().ok()?)));
        Ok(Self { ms: text("ms")?.trim().parse()?, counts: counts.collect() })
    }
}

/// The name of an exit by its code.
fn readable(name: &str) -> String {
    let code = name.strip_prefix("kvm_exit exit_reason: ");
    let known = code.and_then(|code| REASONS.iter().find(|(known, _)| *known == code));
    known.map_or_else(|| name.to_owned(), |(code, what)| format!("exit {code}: {what}"))
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}

/// Prints both beside each other and says where ours are not fewer.
fn judge(cpus: u32, ours: &[Counted], theirs: &[Counted]) -> Result<Completion, Failed> {
    let names: BTreeSet<&String> = ours.iter().chain(theirs).flat_map(|counted| counted.counts.keys()).collect();
    let of = |runs: &[Counted], name: &str| {
        median(runs.iter().map(|counted| counted.counts.get(name).copied().unwrap_or(0)).collect())
    };
    let spread = |runs: &[Counted]| {
        let mut times: Vec<u64> = runs.iter().map(|counted| counted.ms).collect();
        times.sort_unstable();
        format!("{} ({} to {}) ms", times[times.len() / 2], times[0], times[times.len() - 1])
    };
    let mut table = format!("{cpus} vCPUs, {} runs each: vmm {}, qemu {}\n", ours.len(), spread(ours), spread(theirs));
    let mut more = Vec::new();
    for name in names {
        let (mine, other) = (of(ours, name), of(theirs, name));
        let detail = name.starts_with("kvm_") && !name.starts_with("kvm_exit ");
        if mine + other > if detail { PRINTED_MIN } else { 0 } {
            writeln!(table, "{mine:>10} {other:>10} {}", readable(name))?;
        }
        if name.starts_with("kvm_exit ") && mine > other {
            more.push(format!("{}: {mine}, QEMU {other}", readable(name)));
        }
    }
    println!("{table}");
    crate::none_of("more exits than QEMU's", &more).map(|()| Completion::Completed)
}
