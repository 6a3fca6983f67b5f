// SPDX-License-Identifier: Apache-2.0
//! Scenarios that are hard on the policy: drawn at random, measured by what acting loses, and made smaller while they do.
//!
//! A *draft* is a scenario of few parts; its text is a scenario file, so that what was found can be kept. Its *loss* is
//! what the arm `act` brings less than the arm `kernel`, which is `off` where hardware sees no pause loops. Invariant: a draft is a function of its seed, and
//! each of its smaller ones has fewer or simpler parts, so that making smaller ends.

use std::fmt::Write as _;

use crate::rng::Rng;
use crate::scenario::{Measure, Report};

/// Operations of the better arm a second below which a loss is chance.
const FEWEST: f64 = 500.0;

/// One step of a draft's program, with its mean duration in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Work { ns: u64, kernel: bool },
    Lock { which: usize, hold_ns: u64, halts: bool, irqs_off: bool },
    Shootdown,
    Barrier { halts: bool },
    Sleep { ns: u64 },
}

/// A scenario in the making.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    nodes: u64,
    cores: u64,
    threads: u64,
    vms: u64,
    vcpus: u64,
    pinned: bool,
    /// Hardware sees pause loops, and the kernel handles them.
    hardware: bool,
    source: &'static str,
    yields: &'static str,
    locks: [&'static str; 2],
    steps: Vec<Step>,
}

impl Draft {
    /// The draft of a seed.
    #[must_use]
    pub fn random(seed: u64) -> Self {
        let mut rng = Rng::new(seed, 0xAD);
        let hardware = rng.below(2) == 0;
        let source = if hardware { ["tracepoint", "port", "sampler"] } else { ["port", "port", "sampler"] };
        let ring = rng.below(5) == 0;
        let mut draft = Self {
            nodes: one_of(&mut rng, &[1, 1, 1, 2]),
            cores: one_of(&mut rng, &[1, 2, 2, 4, 4, 8]),
            threads: one_of(&mut rng, &[1, 1, 1, 2]),
            vms: one_of(&mut rng, &[1, 1, 2, 3]),
            vcpus: one_of(&mut rng, &[2, 3, 4, 6, 8, 12, 16]),
            pinned: rng.below(4) == 0,
            hardware,
            source: one_of(&mut rng, &source),
            yields: one_of(&mut rng, &["forfeit-lag", "forfeit-lag", "skip", "deadline-only"]),
            locks: [(); 2].map(|()| one_of(&mut rng, &["ticket", "queued", "unfair"])),
            steps: Vec::new(),
        };
        if ring {
            draft.locks[0] = "ring";
        }
        let count = 1 + rng.below(4);
        draft.steps = (0..count).map(|_| step(&mut rng, ring)).collect();
        draft.steps.insert(0, Step::Work { ns: one_of(&mut rng, &[500, 5_000, 50_000, 500_000]), kernel: false });
        draft
    }

    /// The scenario file. `loss` is what was found, for its reader.
    #[must_use]
    pub fn text(&self, loss: Option<f64>) -> String {
        let mut text = String::from("# SPDX-License-Identifier: Apache-2.0\n");
        if let Some(percent) = loss {
            let _ = writeln!(text, "# Found by `vmm sim attack`: acting brought {percent:.1} % less than not acting.");
        }
        let _ = writeln!(
            text,
            "title = \"{} x {} vCPUs on {} CPUs, seen by the {}\"\nduration = \"1s\"\n",
            self.vms,
            self.vcpus,
            self.nodes * self.cores * self.threads,
            self.source
        );
        let _ = writeln!(
            text,
            "[host]\nnodes = {}\ncores = {}\nthreads = {}\ncosts = {{ yields = \"{}\" }}\n",
            self.nodes, self.cores, self.threads, self.yields
        );
        let _ = writeln!(
            text,
            "[[vm]]\nname = \"vm\"\ncount = {}\nvcpus = {}\nplacing = \"{}\"\nlocks = {{ a = \"{}\", b = \"{}\" }}\nsteps = [",
            self.vms,
            self.vcpus,
            if self.pinned { "pinned" } else { "free" },
            self.locks[0],
            self.locks[1]
        );
        self.steps.iter().for_each(|step| text.push_str(&line(step)));
        let kernel = self.hardware;
        let _ = write!(
            text,
            "]\n\n[[arm]]\nname = \"off\"\n\n[[arm]]\nname = \"kernel\"\nkernel = {kernel}\n\n[[arm]]\nname = \"act\"\n\
             kernel = {kernel}\nsource = \"{}\"\naction = \"policy\"\n",
            self.source
        );
        text
    }

    /// Drafts with one part fewer or simpler.
    #[must_use]
    pub fn smaller(&self) -> Vec<Self> {
        let mut all = Vec::new();
        let mut with = |change: &dyn Fn(&mut Self)| {
            let mut other = self.clone();
            change(&mut other);
            if other != *self {
                all.push(other);
            }
        };
        with(&|one| one.vms = one.vms.div_ceil(2));
        with(&|one| one.nodes = 1);
        with(&|one| one.threads = 1);
        with(&|one| one.cores = one.cores.div_ceil(2));
        with(&|one| one.vcpus = one.vcpus.div_ceil(2).max(2));
        with(&|one| one.vcpus = (one.vcpus - 1).max(2));
        with(&|one| one.pinned = false);
        with(&|one| one.yields = "forfeit-lag");
        for at in 0..self.steps.len() {
            // Something must take time, or a lap would be a nanosecond.
            if self.steps.len() > 1 {
                with(&|one| {
                    one.steps.remove(at);
                });
            }
            with(&|one| one.steps[at] = simpler(one.steps[at]));
        }
        all
    }
}

fn one_of<T: Copy>(rng: &mut Rng, choices: &[T]) -> T {
    let at = usize::try_from(rng.below(choices.len() as u64)).unwrap_or(0);
    choices[at]
}

fn step(rng: &mut Rng, ring: bool) -> Step {
    let hold_ns = one_of(rng, &[200, 1_000, 5_000, 20_000, 200_000, 3_000_000]);
    if ring {
        // Who waits for its turn must not wait for anything else at the same time.
        return Step::Lock { which: 0, hold_ns, halts: false, irqs_off: false };
    }
    match rng.below(8) {
        0 => Step::Work { ns: one_of(rng, &[1_000, 20_000, 300_000]), kernel: true },
        1 => Step::Shootdown,
        2 => Step::Barrier { halts: rng.below(2) == 0 },
        3 => Step::Sleep { ns: one_of(rng, &[20_000, 200_000, 2_000_000]) },
        which => Step::Lock {
            which: usize::try_from(which % 2).unwrap_or(0),
            hold_ns,
            halts: rng.below(4) == 0,
            irqs_off: rng.below(6) == 0,
        },
    }
}

fn simpler(step: Step) -> Step {
    match step {
        Step::Work { ns, .. } => Step::Work { ns, kernel: false },
        Step::Lock { which, hold_ns, .. } => Step::Lock { which, hold_ns, halts: false, irqs_off: false },
        Step::Barrier { .. } => Step::Barrier { halts: false },
        Step::Shootdown | Step::Sleep { .. } => step,
    }
}

fn line(step: &Step) -> String {
    let wait = |halts: bool| if halts { "halt" } else { "spin" };
    match *step {
        Step::Work { ns, kernel } => format!("    {{ work = \"{ns}ns\", kernel = {kernel} }},\n"),
        Step::Lock { which, hold_ns, halts, irqs_off } => format!(
            "    {{ lock = \"{}\", hold = \"{hold_ns}ns\", wait = \"{}\", irqs-off = {irqs_off} }},\n",
            ["a", "b"][which],
            wait(halts)
        ),
        Step::Shootdown => "    { shootdown = true },\n".to_owned(),
        Step::Barrier { halts } => format!("    {{ barrier = \"{}\" }},\n", wait(halts)),
        Step::Sleep { ns } => format!("    {{ sleep = \"{ns}ns\" }},\n"),
    }
}

/// What the arm `act` loses for certain against the arm `kernel`, in per cent of that: the difference of the means, less two
/// standard errors of it; negative if it brings more. `None` if `kernel` brings so little that it says nothing, or an arm is
/// missing.
///
/// Not against `off`: where hardware sees pause loops the kernel handles them before any monitor is asked, and PAUSE exits are
/// switched on or off before the guest begins. What the kernel's own handling loses is in the report, and no policy's loss.
#[must_use]
pub fn loss(report: &Report) -> Option<f64> {
    loss_against(report, "kernel")
}

/// The same against another arm.
#[must_use]
pub fn loss_against(report: &Report, base: &str) -> Option<f64> {
    let arm = |name: &str| report.rows.iter().find(|row| row.arm == name).map(|row| row.cells[0].measure);
    let (act, base) = (arm("act")?, arm(base)?);
    let variance =
        |measure: Measure| measure.stdev * measure.stdev / f64::from(u32::try_from(measure.runs).unwrap_or(1));
    let error = (variance(act) + variance(base)).sqrt();
    (base.mean >= FEWEST).then(|| (base.mean - act.mean - 2.0 * error) * 100.0 / base.mean)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn every_draft_is_a_scenario_and_the_same_seed_draws_the_same() {
        for seed in 0..300 {
            let draft = Draft::random(seed);
            assert_eq!(draft, Draft::random(seed));
            for one in [draft.clone()].iter().chain(&draft.smaller()) {
                let scenario = Scenario::parse(&one.text(None));
                assert!(scenario.is_ok(), "{seed}: {scenario:?}\n{}", one.text(None));
            }
        }
        assert!(Draft::random(1).text(Some(7.0)).contains("7.0 % less"));
    }

    #[test]
    fn making_smaller_ends() {
        for seed in 0..50 {
            let (mut draft, mut steps) = (Draft::random(seed), 0);
            while let Some(next) = draft.smaller().pop() {
                draft = next;
                steps += 1;
                assert!(steps < 100, "{draft:?}");
            }
        }
    }

    #[test]
    fn a_loss_is_against_the_kernel_and_certain() {
        let text = Draft::random(1).text(None).replace("1s", "20ms");
        let scenario = Scenario::parse(&text).unwrap();
        let mut report = scenario.run(&scenario.host(None).unwrap(), 1, 1).unwrap();
        let means = [9_000.0, 2_000.0, 1_500.0];
        report.rows.iter_mut().zip(means).for_each(|(row, mean)| row.cells[0].measure.mean = mean);
        assert_eq!(loss(&report), Some(25.0));
        report.rows[2].cells[0].measure = Measure { mean: 1_500.0, stdev: 400.0, runs: 16 };
        assert_eq!(loss(&report), Some(15.0));
        report.rows.iter_mut().for_each(|row| row.cells[0].measure.mean = 1.0);
        assert_eq!(loss(&report), None);
    }
}
