// SPDX-License-Identifier: Apache-2.0
//! How fast the time-stamp counter runs.
//!
//! In this order: `CPUID.(EAX=15H)` if complete, the hypervisor's timing leaf, the scale of KVM's clock page, a
//! measurement against the local APIC's timer. There may be no PIT to ask. The invariant: the frequency is never zero.

use core::cell::UnsafeCell;
use core::hint::spin_loop;

use crate::apic;
use crate::hardware::{cpuid, tsc};
use crate::record::ClockSource;
use crate::service;

/// The two clocks of a run.
#[derive(Clone, Copy)]
pub struct Clocks {
    /// Where the frequency comes from.
    pub source: ClockSource,
    /// Frequency of the time-stamp counter, in kHz.
    pub tsc_khz: u64,
    /// Frequency of the local APIC's timer before its divider, in kHz.
    pub timer_khz: u64,
}

const HYPERVISOR: u32 = 0x4000_0000;
const TIMING: u32 = HYPERVISOR + 0x10;
/// KVM's local APIC timer runs at 1 GHz unless told otherwise (Documentation/virt/kvm/api.rst, KVM_CAP_X86_APIC_BUS_CYCLES_NS).
const DEFAULT_TIMER_KHZ: u64 = 1_000_000;

impl Clocks {
    /// Finds out. The local APIC is on.
    pub fn find() -> Self {
        let hypervisor_max = if cpuid(1, 0)[2] >> 31 == 1 { cpuid(HYPERVISOR, 0)[0] } else { 0 };
        let timing = if (TIMING..TIMING + 0x1000).contains(&hypervisor_max) { cpuid(TIMING, 0) } else { [0; 4] };
        let timer_khz = if timing[1] == 0 { DEFAULT_TIMER_KHZ } else { u64::from(timing[1]) };
        let (source, tsc_khz) = crystal()
            .map(|khz| (ClockSource::Crystal, khz))
            .or_else(|| (timing[0] != 0).then(|| (ClockSource::Hypervisor, u64::from(timing[0]))))
            .or_else(|| kvm_clock(hypervisor_max).map(|khz| (ClockSource::KvmClock, khz)))
            .unwrap_or_else(|| (ClockSource::LapicTimer, measure(timer_khz)));
        Self { source, tsc_khz: tsc_khz.max(1), timer_khz }
    }

    /// Ticks of the counter in microseconds.
    pub fn us(&self, ticks: u64) -> u64 {
        (u128::from(ticks) * 1000 / u128::from(self.tsc_khz)) as u64
    }

    /// Ticks of the counter in nanoseconds.
    pub fn ns(&self, ticks: u64) -> u64 {
        (u128::from(ticks) * 1_000_000 / u128::from(self.tsc_khz)) as u64
    }

    /// Ticks of the timer in `us` microseconds, at most what it can count.
    pub fn timer_ticks(&self, us: u64) -> u32 {
        let ticks = us.saturating_mul(self.timer_khz) / 1000 / apic::TIMER_DIVIDER;
        u32::try_from(ticks).unwrap_or(u32::MAX)
    }

    /// Arms the timer to fire once in `us` microseconds.
    pub fn arm(&self, us: u64) {
        apic::arm_timer(self.timer_ticks(us));
    }
}

/// CPUID.(EAX=15H): EBX/EAX the counter's ratio to the crystal, ECX the crystal in Hz (Intel SDM vol. 3B, section 18.7.3).
fn crystal() -> Option<u64> {
    if cpuid(0, 0)[0] < 0x15 {
        return None;
    }
    let [denominator, numerator, hz, _] = cpuid(0x15, 0).map(u64::from);
    (denominator != 0 && numerator != 0 && hz != 0).then(|| hz * numerator / denominator / 1000)
}

#[repr(C, align(64))]
struct ClockPage(UnsafeCell<[u8; 64]>);

// SAFETY: used by the first CPU only.
unsafe impl Sync for ClockPage {}

static CLOCK_PAGE: ClockPage = ClockPage(UnsafeCell::new([0; 64]));
const MSR_KVM_SYSTEM_TIME_NEW: u32 = 0x4b56_4d01;

/// `struct pvclock_vcpu_time_info` (Documentation/virt/kvm/x86/msr.rst): u32 tsc_to_system_mul at 24, s8 tsc_shift at
/// 28; nanoseconds = (ticks << shift) * mul >> 32.
fn kvm_clock(hypervisor_max: u32) -> Option<u64> {
    let is_kvm = cpuid(HYPERVISOR, 0)[1..] == [0x4b4d_564b, 0x564b_4d56, 0x4d];
    if !is_kvm || hypervisor_max <= HYPERVISOR || cpuid(HYPERVISOR + 1, 0)[0] >> 3 & 1 == 0 {
        return None;
    }
    let page = CLOCK_PAGE.0.get().cast::<u8>();
    // SAFETY: the page is ours and aligned; KVM writes within its 32 bytes, and stops when the MSR is cleared.
    let (scale, shift) = unsafe {
        service::write_msr(MSR_KVM_SYSTEM_TIME_NEW, page as u64 | 1);
        let scale = page.add(24).cast::<u32>().read_volatile();
        let shift = page.add(28).cast::<i8>().read_volatile();
        service::write_msr(MSR_KVM_SYSTEM_TIME_NEW, 0);
        (scale, shift)
    };
    let khz = (1_000_000_u64 << 32).checked_div(u64::from(scale))?;
    Some(if shift < 0 { khz << (-i32::from(shift)).min(31) } else { khz >> i32::from(shift).min(31) })
}

/// Ticks of the counter while the timer counts 5 ms.
fn measure(timer_khz: u64) -> u64 {
    let window = (timer_khz * 5 / apic::TIMER_DIVIDER) as u32;
    apic::run_timer_masked();
    let (from_count, from) = (apic::timer_count(), tsc());
    // A timer that does not count must not hang the guest.
    let limit = 1 << 36;
    let mut passed = 0;
    while passed < window && tsc() - from < limit {
        passed = from_count.wrapping_sub(apic::timer_count());
        spin_loop();
    }
    let ticks = tsc() - from;
    apic::stop_timer();
    (u128::from(ticks) * u128::from(timer_khz) / u128::from(passed.max(1)) / u128::from(apic::TIMER_DIVIDER)) as u64
}
