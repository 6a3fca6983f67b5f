// SPDX-License-Identifier: Apache-2.0
//! What a guest leaves KVM for until its init writes a line, under `vmm` and under QEMU's microvm: the same kernel and initial
//! RAM disk on the same lab host, in turns. Counts come from the kernel (resources/lab/count-exits.sh) and are exact.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use experiment::stats::{Summary, Verdict, compare_unpaired, holm};
use lab::cpio::Archive;
use lab::packages::{Flavour, Series, Store};
use lab::{Lab, LabResult};
use libtest_mimic::{Completion, Failed, Trial};

use crate::{Set, monitor, trial};

/// Rounds. For a look, `VMM_EXITS_ROUNDS` sets another number, and `VMM_EXITS_FLAGS` adds an arm: `vmm` with these flags.
const ROUNDS: u32 = 7;
/// Real time for a run: 32 vCPUs take a minute or so on a quiet machine.
const RUN_LIMIT: Duration = Duration::from_secs(300);

pub(crate) fn trials() -> Vec<Trial> {
    let of = |cpus: u32, memory: &'static str| {
        let name = format!("exits_until_init_with_{cpus}_vcpus_are_no_more_than_qemu_microvm_makes");
        trial(&name, Set::Full, move || compared(cpus, memory))
    };
    vec![of(1, "512M"), of(32, "1G"), Trial::test("exits_are_more_when_chance_does_not_explain_them", judges)]
}

/// What is compared, by the name of its results, with its command.
fn arms(cpus: u32, memory: &str) -> Vec<(&'static str, String)> {
    let ours = format!("vmm --cpus {cpus} --memory {memory} --kernel /kernel --initrd /initrd --cmdline console=ttyS0");
    let theirs = format!(
        "/usr/bin/qemu-system-x86_64 -L /qemu -accel kvm -M microvm -cpu host -smp {cpus} -m {memory} -kernel /kernel \
         -initrd /initrd -append console=ttyS0 -nodefaults -no-user-config -display none -serial stdio"
    );
    let mut arms = vec![("vmm", ours.clone()), ("qemu", theirs)];
    if let Ok(flags) = std::env::var("VMM_EXITS_FLAGS") {
        arms.push(("flags", format!("{ours} {flags}")));
    }
    arms
}

fn compared(cpus: u32, memory: &str) -> Result<Completion, Failed> {
    let rounds = std::env::var("VMM_EXITS_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let arms = arms(cpus, memory);
    let runs = arms.iter().fold(Duration::ZERO, |sum, _| sum + RUN_LIMIT * rounds);
    let lab = lab_for()?.deadline(runs);
    let mut script = concat!("cd /results\n", include_str!("../../resources/lab/count-exits.sh")).to_owned();
    for round in 0..rounds {
        let mut turns: Vec<String> =
            arms.iter().map(|(arm, command)| format!("count {arm}{round} {command}\n")).collect();
        // Who is first changes, so that none always finds what the others left in the caches.
        if round % 2 == 1 {
            turns.reverse();
        }
        script.extend(turns);
    }
    let result = lab.run(&script)?;
    crate::guests::keep(&result.files);
    let counted = arms.iter().map(|(arm, _)| {
        let runs = (0..rounds).map(|round| Counted::of(&result, arm, round));
        Ok((*arm, runs.collect::<Result<Vec<_>, Failed>>()?))
    });
    let counted: Vec<(&str, Vec<Counted>)> = counted.collect::<Result<_, Failed>>()?;
    let verdicts = verdicts(&counted[0].1, &counted[1].1);
    println!("{cpus} vCPUs, {memory}, {rounds} runs each\n{}{}", table(&counted), verdicts.join("\n"));
    let more: Vec<&String> = verdicts.iter().filter(|verdict| verdict.starts_with(MORE)).collect();
    crate::none_of("more exits than QEMU's", &more).map(|()| Completion::Completed)
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
const REASONS: [(&str, &str); 17] = [
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
    ("141", "XSETBV"),
    ("1024", "nested page fault"),
];

/// Ports, addresses and registers that were used less often are not printed.
const PRINTED_MIN: f64 = 20.0;

/// How the names of what is judged begin: exits by their reason.
const KINDS: &str = "kvm_exit ";

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

fn summary(values: &[f64]) -> Summary {
    Summary::of(values).expect("invariant: there is at least one run, and a count is a number")
}

#[expect(clippy::cast_precision_loss, reason = "counts and milliseconds of a boot are far below 2^53")]
fn numbers(runs: &[Counted], of: impl Fn(&Counted) -> u64) -> Vec<f64> {
    runs.iter().map(|counted| of(counted) as f64).collect()
}

fn counts(runs: &[Counted], name: &str) -> Vec<f64> {
    numbers(runs, |counted| counted.counts.get(name).copied().unwrap_or(0))
}

/// All arms beside each other: times, and what was counted.
fn table(arms: &[(&str, Vec<Counted>)]) -> String {
    let mut table = String::new();
    for (arm, runs) in arms {
        let ms = summary(&numbers(runs, |counted| counted.ms));
        let _ = writeln!(table, "{arm}: {} ({} to {}) ms to the line", ms.median, ms.min, ms.max);
    }
    let columns: Vec<String> = arms.iter().map(|(arm, _)| format!("{arm:>10}")).collect();
    let _ = writeln!(table, "{}", columns.join(" "));
    let names: BTreeSet<&String> =
        arms.iter().flat_map(|(_, runs)| runs).flat_map(|counted| counted.counts.keys()).collect();
    for name in names {
        let medians: Vec<f64> = arms.iter().map(|(_, runs)| summary(&counts(runs, name)).median).collect();
        let detail = name.starts_with("kvm_") && !name.starts_with(KINDS);
        if medians.iter().sum::<f64>() > if detail { PRINTED_MIN } else { 0.0 } {
            let medians: Vec<String> = medians.iter().map(|median| format!("{median:>10}")).collect();
            let _ = writeln!(table, "{} {}", medians.join(" "), readable(name));
        }
    }
    table
}

/// How a verdict begins, of a kind of which ours are more, fewer, or not shown to be either.
const MORE: &str = "more: ";
const FEWER: &str = "fewer: ";
const AS_MANY: &str = "no difference shown: ";

/// One line a kind of exit. Runs of one machine differ by half and more (how often it ticks goes with the time that it takes),
/// so more is what chance does not explain: Welch's test of the logarithms, at 5 % for all kinds together (Holm). A kind
/// that one of them does not know is judged by the medians.
fn verdicts(ours: &[Counted], theirs: &[Counted]) -> Vec<String> {
    let all = ours.iter().chain(theirs);
    let kinds: BTreeSet<&String> =
        all.flat_map(|counted| counted.counts.keys()).filter(|name| name.starts_with(KINDS)).collect();
    let runs: Vec<(&String, Vec<f64>, Vec<f64>)> =
        kinds.into_iter().map(|name| (name, counts(ours, name), counts(theirs, name))).collect();
    let differences: Vec<_> = runs.iter().map(|(_, ours, theirs)| compare_unpaired(ours, theirs)).collect();
    let corrected = holm(&differences.iter().flatten().map(|difference| difference.p).collect::<Vec<_>>());
    let mut corrected = corrected.into_iter();
    let judged = runs.iter().zip(differences).map(|((name, ours, theirs), difference)| {
        let (ours, theirs) = (summary(ours).median, summary(theirs).median);
        let verdict = match difference.and_then(|difference| Some((difference, corrected.next()?))) {
            Some((difference, p)) => difference.verdict(p),
            None if ours > theirs => Verdict::More,
            None if ours < theirs => Verdict::Less,
            None => Verdict::NoDifferenceShown,
        };
        let begins = match verdict {
            Verdict::More => MORE,
            Verdict::Less => FEWER,
            Verdict::NoDifferenceShown => AS_MANY,
        };
        format!("{begins}{}: {ours}, QEMU {theirs}", readable(name))
    });
    judged.collect()
}

fn judges() -> Result<(), Failed> {
    let run = |hlt, port, rare| {
        let counts = [
            ("kvm_exit exit_reason: 120", hlt),
            ("kvm_exit exit_reason: 123", port),
            ("kvm_exit exit_reason: 141", rare),
        ];
        let mut counts: BTreeMap<_, _> = counts.map(|(name, count)| (name.to_owned(), count)).into();
        counts.insert("kvm_msr ecx: 1".to_owned(), port * 10);
        Counted { ms: hlt, counts }
    };
    // HLT scatters, ports are a third more each time, XSETBV is made by one of them alone.
    let ours = [run(30, 40, 1), run(10, 41, 1), run(40, 39, 1), run(20, 40, 0)];
    let theirs = [run(24, 30, 0), run(25, 30, 0), run(23, 31, 0), run(12, 29, 0)];
    let found = verdicts(&ours, &theirs);
    let wanted = [
        "no difference shown: exit 120: HLT: 25, QEMU 23.5",
        "more: exit 123: port: 40, QEMU 30",
        "more: exit 141: XSETBV: 1, QEMU 0",
    ];
    let turned = verdicts(&theirs, &ours);
    let shown = table(&[("vmm", ours.into()), ("qemu", theirs.into())]);
    // The median of an even number of runs is the mean of the middle two; a register is no kind of exit.
    let holds = found == wanted
        && turned.iter().filter(|verdict| verdict.starts_with(FEWER)).count() == 2
        && shown.contains("vmm: 25 (10 to 40) ms")
        && shown.contains("        25       23.5 exit 120: HLT")
        && shown.contains("       400        300 kvm_msr ecx: 1");
    if holds { Ok(()) } else { Err(format!("{found:#?}\n{turned:#?}\n{shown}").into()) }
}
