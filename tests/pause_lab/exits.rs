// SPDX-License-Identifier: Apache-2.0
//! PAUSE exits: the monitor's count beside the kernel's own trace, and the exits that they force.

use std::fmt::Write as _;
use std::time::Duration;

use libtest_mimic::Failed;

use crate::host::{self, sum};

/// PAUSE exits for each forced exit.
const PERIODS: [u64; 2] = [8, 64];
const LIMIT: Duration = Duration::from_secs(400);

/// The kernel's histogram of exit reasons is read when the guest is gone.
fn script() -> String {
    let mut script = "t=/sys/kernel/tracing/events/kvm/kvm_exit\n".to_owned();
    for period in PERIODS {
        // A string takes anything that is written to it.
        let _ = write!(
            script,
            "echo hist:keys=exit_reason >$t/trigger\n\
             timeout -s KILL 120 vmm --cpus 2 --memory 64M --pause observe --pause-source tracepoint \
             --pause-set tracepoint_period={period} --probe 'ring seconds=2 port=off' --report /results/{period}.report\n\
             cp $t/hist /results/{period}.hist\n\
             echo '!hist:keys=exit_reason' >$t/trigger\n"
        );
    }
    script
}

pub(crate) fn counted() -> Result<(), Failed> {
    let files = host::run(&script(), &[], LIMIT)?;
    for period in PERIODS {
        let report = files.report(&format!("{period}.report"))?;
        let traced = pauses(&files.text(&format!("{period}.hist"))?).ok_or("the kernel traced no PAUSE exit")?;
        let (counted, forced) = (sum(&report, "/pause_exits"), sum(&report, "/forced"));
        println!("K = {period}: {counted} PAUSE exits counted, {traced} traced, {forced} exits forced");
        if counted.abs_diff(traced) * 100 > traced {
            return Err(format!("K = {period}: {counted} PAUSE exits counted, {traced} traced").into());
        }
        // Each of the two vCPUs has up to K exits left over.
        let asked = counted / period;
        if forced.abs_diff(asked) > 2 + asked / 100 {
            return Err(format!("K = {period}: {forced} exits forced instead of {asked}").into());
        }
    }
    Ok(())
}

/// The hits of `exit_reason` 0x77, PAUSE, in a histogram.
fn pauses(histogram: &str) -> Option<u64> {
    let line = histogram.lines().find(|line| line.split_whitespace().any(|word| word == "119"))?;
    line.rsplit_once("hitcount:")?.1.trim().parse().ok()
}
