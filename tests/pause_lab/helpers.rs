// SPDX-License-Identifier: Apache-2.0
//! Helper vCPUs: that KVM yields to whom they name, that nobody sees them, and that a guest cannot stop them.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use libtest_mimic::Failed;
use serde_json::Value;

use crate::host::{self, sum};

const LIMIT: Duration = Duration::from_secs(400);

/// Fails with `what` unless it holds.
pub(crate) fn must(holds: bool, what: impl FnOnce() -> String) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(what().into()) }
}

/// The mechanism's entry in a report: granted at the end of the run, or why not.
fn granted(report: &Value) -> Result<(), Failed> {
    let mechanisms = report["pause"]["mechanisms"].as_array().into_iter().flatten();
    let found = mechanisms.into_iter().find(|one| one["name"] == "hypercall");
    must(found.is_some_and(|one| one["granted"] == true), || format!("hypercall is not granted: {found:?}"))
}

/// KVM's own count is read from debugfs while the guest runs. PAUSE does not exit: the kernel's own yields would hand the
/// ring on before the guest reports.
pub(crate) fn directed_yields() -> Result<(), Failed> {
    let script = "timeout -s KILL 200 vmm --cpus 2 --memory 64M --pause-source port --pause-mechanism hypercall \
                  --disable-exits pause --probe 'ring seconds=6' --report /results/report >/results/console &\n\
                  monitor=$!\n\
                  while kill -0 $monitor && ! grep -qs '@probe ready' /results/console; do sleep 1; done\n\
                  sleep 3\n\
                  cat /sys/kernel/debug/kvm/[0-9]*/directed_yield_successful >/results/successful\n\
                  wait $monitor\necho $? >/results/status\n";
    let files = host::run(script, &[], LIMIT)?;
    let report = files.report("report")?;
    granted(&report)?;
    let successful = files.text("successful")?;
    let by_kvm = successful.lines().filter_map(|line| line.parse::<u64>().ok()).sum::<u64>();
    let boosted = sum(&report, "/yields/boosted");
    println!("{boosted} yields boosted in the whole run, {by_kvm} successful in KVM's own count by the middle of it");
    must(by_kvm > 0 && boosted > 0, || format!("KVM counts {by_kvm} successful yields, the report {boosted}"))?;
    let seen = (report["guest"]["seen"]["cpus"].as_u64(), report["vcpus"].as_array().map(Vec::len));
    must(seen == (Some(2), Some(2)), || format!("CPUs seen by the guest, vCPUs in the report: {seen:?}"))
}

/// See `hostile.S`.
pub(crate) fn hostile_guest() -> Result<(), Failed> {
    const ROUNDS: u64 = 200;
    let guest = ("/guest".to_owned(), build(ROUNDS)?);
    let script = "timeout -s KILL 200 vmm --cpus 2 --memory 64M --kernel /guest --pause-source port \
                  --pause-mechanism hypercall --report /results/report\necho $? >/results/status\n";
    let files = host::run(script, &[guest], LIMIT)?;
    let status = files.text("status")?;
    must(status.trim() == "0", || format!("status {status} instead of 0: the guest did not power off"))?;
    let report = files.report("report")?;
    granted(&report)?;
    let yields = sum(&report, "/yields/attempted");
    println!("{ROUNDS} rounds, {yields} yields, {} boosted", sum(&report, "/yields/boosted"));
    must(yields >= ROUNDS / 2, || format!("{ROUNDS} rounds brought {yields} yields"))
}

fn build(rounds: u64) -> Result<Vec<u8>, Failed> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = tempfile::tempdir().map_err(|error| format!("a temporary directory: {error}"))?;
    let (image, layout) = (directory.path().join("guest"), tests.join("../resources/bench/payload.ld"));
    let mut cc = Command::new("cc");
    cc.args(["-nostdlib", "-static", "-no-pie", "-Wl,--build-id=none"]);
    cc.arg(format!("-Wl,-T,{}", layout.display())).arg(format!("-DROUNDS={rounds}"));
    let built = cc.arg("-o").arg(&image).arg(tests.join("pause_lab/hostile.S")).status();
    must(built.is_ok_and(|status| status.success()), || "cc cannot build hostile.S".to_owned())?;
    std::fs::read(&image).map_err(|error| format!("{}: {error}", image.display()).into())
}

/// As many vCPUs as an xAPIC can address, each with a helper.
pub(crate) fn many() -> Result<(), Failed> {
    let script = "ulimit -n 4096\n\
                  timeout -s KILL 300 vmm --cpus 255 --memory 512M --pause-source port --pause-mechanism hypercall \
                  --probe 'ring seconds=3 report=none' --report /results/report\necho $? >/results/status\n";
    let files = host::run(script, &[], LIMIT)?;
    let status = files.text("status")?;
    must(status.trim() == "0", || format!("status {status} instead of 0"))?;
    let report = files.report("report")?;
    granted(&report)?;
    let seen = report["vcpus"].as_array().map(Vec::len);
    println!("{} yields", sum(&report, "/yields/attempted"));
    must(seen == Some(255), || format!("{seen:?} vCPUs in the report"))
}
