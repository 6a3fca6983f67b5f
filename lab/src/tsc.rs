// SPDX-License-Identifier: Apache-2.0
//! The rate of this machine's time-stamp counter, which is the lab host's too.
//!
//! Place in the flow: `qemu` puts it on the lab kernel's command line. Without it Linux measures the counter against the
//! emulated PIT (arch/x86/kernel/tsc.c: `pit_calibrate_tsc`), and an emulator that does not get a processor for some
//! milliseconds between two of the reads makes the result wrong, up to ten times, and with it every clock of the lab host.
//! Invariant: only a rate that the kernel of this machine states; where it states none, none is given.

use std::fs;
use std::path::Path;

const CPU_INFO: &str = "/proc/cpuinfo";
const SCALING: &str = "/sys/devices/system/cpu/cpu0/cpufreq";

/// The rate in kHz, where this machine's kernel states it.
pub(crate) fn stated_khz() -> Option<u32> {
    from_text(&fs::read_to_string(CPU_INFO).ok()?, Path::new(SCALING).exists())
}

/// `cpu MHz` is the rate of the counter only where nothing measures or sets the processor's own: no cpufreq, no APERF and
/// MPERF (arch/x86/kernel/cpu/aperfmperf.c: `arch_freq_get_on_cpu` falls back to `cpu_khz`). Most virtual machines are so.
fn from_text(cpu_info: &str, scales: bool) -> Option<u32> {
    let field = |name: &str| {
        let line = cpu_info.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
        Some(line.split_once(':')?.1.trim())
    };
    let has = |flag: &str| field("flags").is_some_and(|flags| flags.split(' ').any(|word| word == flag));
    if scales || has("aperfmperf") || !has("constant_tsc") {
        return None;
    }
    let (mhz, fraction) = field("cpu MHz")?.split_once('.')?;
    let khz = mhz.parse::<u32>().ok()?.checked_mul(1000)?.checked_add(fraction.get(..3)?.parse().ok()?)?;
    (khz > 0).then_some(khz)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUEST: &str = "processor\t: 0\ncpu MHz\t\t: 2599.998\nflags\t\t: fpu tsc constant_tsc hypervisor\n";

    #[test]
    fn a_virtual_machine_states_the_rate_of_the_counter() {
        assert_eq!(from_text(GUEST, false), Some(2_599_998));
    }

    #[test]
    fn a_processor_that_changes_its_speed_states_another_rate() {
        assert_eq!(from_text(GUEST, true), None);
        assert_eq!(from_text(&GUEST.replace("hypervisor", "aperfmperf"), false), None);
        assert_eq!(from_text(&GUEST.replace("constant_tsc ", ""), false), None);
    }

    #[test]
    fn text_of_another_shape_states_nothing() {
        for text in ["", "cpu MHz : x.998\nflags : constant_tsc", "cpu MHz : 0.000\nflags : constant_tsc", "flags"] {
            assert_eq!(from_text(text, false), None, "{text}");
        }
    }
}
