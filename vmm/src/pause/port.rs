// SPDX-License-Identifier: Apache-2.0
//! The source `port`, the pause port from the monitor's side: announced in CPUID, and what a write to it says. The ABI is
//! docs/pause-port.md.
//!
//! Pure but for the look at a vCPU's registers. Invariant: any bytes are a hint at most; nothing that a guest writes is an
//! error.

use std::io;

use topology::cpuid::CpuidEntry;
use topology::id::ApicId;

use super::seat::Seat;
use super::source::{Moment, PauseSource, Spin, Tap, Unavailable, decides};
use crate::config::{PausePlan, SourceChoice};
use crate::kvm::vcpu::Vcpu;
use crate::layout;

/// First leaf of the first hypervisor block.
const FIRST_LEAF: u32 = 0x4000_0000;
/// Hypervisor leaves come in blocks of this size.
const BLOCK: u32 = 0x100;
/// Version of the interface.
const VERSION: u32 = 1;
/// EDX[0] of the second leaf: a write to the port behind the first carries a count in ECX.
const FEATURE_COUNTED: u32 = 1 << 0;
/// EDX[1]: a write to the port two behind the first carries a count and comes back with the spins before the next one in ECX.
const FEATURE_ANSWERED: u32 = 1 << 1;

/// So many times the spins before a report are recommended where each vCPU can have a CPU to itself. There a wait is over
/// sooner than an exit (15 us of spins against 60 us, design 3.2), and the exit of one makes the next that waits for it
/// report too: two vCPUs on two CPUs lost a sixth of their hand-overs to that. A report in vain is rare with these, and one
/// that helps comes 0.1 ms later.
const SPINS_WITH_A_CPU_FOR_EACH: u32 = 8;

/// The announcement, to be added to a guest's CPUID: a block of its own behind those that are there.
///
/// `counted` says whether the ports that take a count are served too.
#[must_use]
pub fn announcement(entries: &[CpuidEntry], spins: u32, counted: bool) -> [CpuidEntry; 2] {
    let taken = |base: u32| entries.iter().any(|entry| (base..base + BLOCK).contains(&entry.function));
    let base = (FIRST_LEAF..).step_by(BLOCK as usize).find(|base| !taken(*base)).unwrap_or(FIRST_LEAF);
    let [ebx, ecx, edx] = [*b"VmmP", *b"ause", *b"Loop"].map(u32::from_le_bytes);
    [
        CpuidEntry { function: base, eax: base + 1, ebx, ecx, edx, ..CpuidEntry::default() },
        CpuidEntry {
            function: base + 1,
            eax: VERSION,
            ebx: u32::from(layout::PAUSE_PORT),
            ecx: spins,
            edx: if counted { FEATURE_COUNTED | FEATURE_ANSWERED } else { 0 },
            ..CpuidEntry::default()
        },
    ]
}

/// The source.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// The guest was told of it before it booted; it looks once.
    announced: bool,
    /// The ports that take a count are served too.
    counted: bool,
    /// As was asked for, and as is announced.
    asked_spins: u64,
    spins: u32,
}

impl Port {
    /// For a machine that starts as `plan` says; `counted` if KVM shows registers at an exit, `cpu_for_each` if each vCPU can
    /// have a CPU to itself.
    #[must_use]
    pub fn new(plan: &PausePlan, counted: bool, cpu_for_each: bool) -> Self {
        let announced = decides(plan.mode) && matches!(plan.source, SourceChoice::Auto | SourceChoice::Port);
        let asked_spins = plan.sources.port_spins;
        // In range: checked with the parameters.
        let spins = u32::try_from(asked_spins).unwrap_or(u32::MAX);
        let spins = if cpu_for_each { spins.saturating_mul(SPINS_WITH_A_CPU_FOR_EACH) } else { spins };
        Self { announced, counted, asked_spins, spins }
    }
}

impl PauseSource for Port {
    fn choice(&self) -> SourceChoice {
        SourceChoice::Port
    }

    fn is_asked(&self, plan: &PausePlan) -> bool {
        decides(plan.mode) && matches!(plan.source, SourceChoice::Auto | SourceChoice::Port)
    }

    fn available(&self, plan: &PausePlan) -> Result<String, Unavailable> {
        if !self.announced {
            return Err(Unavailable {
                why: "the guest was not told of it, and a guest looks for it once, when it boots".to_owned(),
                remedy: Some("start with --pause observe or act and --pause-source auto or port, and change them then"),
            });
        }
        let (asked, spins) = (self.asked_spins, self.spins);
        let told = format!("announced to the guest by CPUID, {spins} spins before a report");
        Ok(if plan.sources.port_spins == asked {
            told
        } else {
            format!("{told}, of port_spins={asked}: the guest looked when it booted")
        })
    }

    fn announce(&self, entries: &mut Vec<CpuidEntry>) {
        if self.announced {
            let announcement = announcement(entries, self.spins, self.counted);
            entries.extend(announcement);
        }
    }

    fn begin(&self, vcpu: &mut Vcpu) {
        if self.announced && self.counted {
            vcpu.share_registers();
        }
    }

    fn attach(&self, _plan: &PausePlan, _tid: i32) -> io::Result<Box<dyn Tap>> {
        Ok(Box::new(PortTap { counted: self.counted, spins: self.spins, write: None, to_answer: false }))
    }
}

struct PortTap {
    counted: bool,
    /// Spins before a report, as announced.
    spins: u32,
    write: Option<PortWrite>,
    /// The write that was told of waits for its answer.
    to_answer: bool,
}

impl Tap for PortTap {
    fn takes(&mut self, port: u16, data: &[u8]) -> bool {
        self.write = decode(port, data).filter(|write| !write.counted || self.counted);
        self.write.is_some()
    }

    fn tell(&mut self, moment: &mut Moment<'_>, _seat: &Seat) -> Option<Spin> {
        let Moment::PortWrite(vcpu) = moment else { return None };
        let write = self.write.take()?;
        self.to_answer = write.answered;
        // The guest counts in 32 bits.
        #[expect(clippy::cast_possible_truncation, reason = "the upper half of RCX is not part of the interface")]
        let count = write.counted.then(|| vcpu.shared_rcx() as u32);
        Some(Spin { owner: write.owner, count })
    }

    fn answer(&mut self, vcpu: &mut Vcpu, patience: u32) {
        if std::mem::take(&mut self.to_answer) {
            vcpu.answer_in_rcx(self.spins.saturating_mul(patience).into());
        }
    }
}

/// A write to the pause port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortWrite {
    /// Who is waited for; `None` if the guest does not know, or writes in a width that says nothing.
    pub owner: Option<ApicId>,
    /// Whether ECX holds the count of finished waits.
    pub counted: bool,
    /// Whether ECX is to hold the spins before the next write when the guest goes on.
    pub answered: bool,
}

/// Reads an access; `None` if it is not the pause port's.
#[must_use]
pub fn decode(port: u16, data: &[u8]) -> Option<PortWrite> {
    let (counted, answers) = match port {
        layout::PAUSE_PORT => (false, false),
        layout::PAUSE_COUNT_PORT => (true, false),
        layout::PAUSE_ANSWER_PORT => (true, true),
        _ => return None,
    };
    // A string of writes counts as its last one: the guest has looked at the owner once more each time.
    let (last, alone) = (data.last_chunk::<4>(), data.len() >= 4);
    let owner = last.map(|bytes| u32::from_le_bytes(*bytes)).filter(|id| alone && *id != u32::MAX).map(ApicId);
    // A string of writes counts down in ECX itself.
    Some(PortWrite { owner, counted, answered: answers && data.len() == 4 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_stands_behind_those_that_are_there() {
        let kvm = CpuidEntry { function: 0x4000_0001, ..CpuidEntry::default() };
        let [first, second] = announcement(&[kvm], 1000, true);
        assert_eq!((first.function, first.eax), (0x4000_0100, 0x4000_0101));
        assert_eq!(
            (second.function, second.ebx, second.ecx, second.edx),
            (0x4000_0101, u32::from(layout::PAUSE_PORT), 1000, 3)
        );
        assert_eq!(announcement(&[], 7, false)[0].function, 0x4000_0000);
    }

    #[test]
    fn with_a_cpu_for_each_vcpu_reports_are_rare() {
        let plan = PausePlan::default();
        let spins = |cpu_for_each| {
            let mut entries = Vec::new();
            Port::new(&plan, false, cpu_for_each).announce(&mut entries);
            u64::from(entries[1].ecx)
        };
        assert_eq!((spins(false), spins(true)), (plan.sources.port_spins, 8 * plan.sources.port_spins));
        let port = Port::new(&plan, false, true);
        assert!(port.available(&plan).unwrap().ends_with("8000 spins before a report"));
        let mut changed = plan;
        changed.sources.port_spins = 77;
        assert!(port.available(&changed).unwrap().contains("of port_spins=1000"), "{:?}", port.available(&changed));
    }

    #[test]
    fn any_bytes_are_a_hint_at_most() {
        let owner = |data| decode(layout::PAUSE_PORT, data).map(|write| write.owner);
        assert_eq!(owner(&[5, 0, 0, 0]), Some(Some(ApicId(5))));
        assert_eq!(owner(&[0xFF; 4]), Some(None));
        assert_eq!(owner(&[5]), Some(None));
        assert_eq!(owner(&[1, 0, 0, 0, 2, 0, 0, 0]), Some(Some(ApicId(2))));
        assert_eq!(owner(&[]), Some(None));
        assert_eq!(decode(layout::SERIAL_PORT, &[5, 0, 0, 0]), None);
    }

    #[test]
    fn only_one_write_of_four_bytes_to_the_last_port_is_answered() {
        let answered = |port, data: &[u8]| decode(port, data).map(|write| (write.counted, write.answered));
        assert_eq!(answered(layout::PAUSE_ANSWER_PORT, &[5, 0, 0, 0]), Some((true, true)));
        assert_eq!(answered(layout::PAUSE_ANSWER_PORT, &[0; 8]), Some((true, false)));
        assert_eq!(answered(layout::PAUSE_COUNT_PORT, &[5, 0, 0, 0]), Some((true, false)));
        assert_eq!(answered(layout::PAUSE_PORT, &[5, 0, 0, 0]), Some((false, false)));
    }
}
