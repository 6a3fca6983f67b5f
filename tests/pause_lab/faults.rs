// SPDX-License-Identifier: Apache-2.0
//! A host that loses what the source `tracepoint` needs: at the start, and under a guest that runs.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use libtest_mimic::Failed;

use crate::helpers::must;
use crate::host::{self, Files, sum};

const LIMIT: Duration = Duration::from_secs(400);

/// `run NAME COMMAND...` has what the monitor said and its status in files of that name; `ready NAME` waits for its guest.
/// `again SOCKET NAME` has the monitor attach its sources anew, with another period.
const FUNCTIONS: &str = "
run() {
    name=$1; shift
    timeout -s KILL 120 \"$@\" --cpus 2 --memory 64M --report /results/$name.report \
        >/results/$name.console 2>/results/$name.errors </dev/null
    echo $? >/results/$name.status
}
ready() {
    n=0
    while ! grep -qs '@probe ready' /results/$1.console && [ $n -lt 60 ]; do sleep 1; n=$((n + 1)); done
}
again() {
    timeout -s KILL 30 vmm ctl --api-sock $1 pause-loops --set tracepoint_period=16 >/results/$2.ctl 2>&1
}
";

/// The descriptors are at their end, but for the one that a client of the control API needs: refused before the guest runs where the source was asked for by name, done without where
/// it was not, and refused while the guest runs on.
pub(crate) fn no_descriptors() -> Result<(), Failed> {
    let script = format!(
        "{FUNCTIONS}
run named faults refuse-perf vmm --pause-source tracepoint --probe 'ring seconds=1 port=off'
run auto faults refuse-perf vmm --probe 'ring seconds=1 port=off'
run later vmm --pause-source tracepoint --api-sock /tmp/later --probe 'ring seconds=10 port=off' &
ready later
monitor=$(pidof vmm)
faults limit-files $monitor $(($(ls /proc/$monitor/fd | wc -l) + 1))
again /tmp/later later
wait
"
    );
    let files = host::run(&script, &[("/bin/faults".to_owned(), faults()?)], LIMIT)?;
    ended(&files, "named", "1")?;
    told(&files, "named.errors", "raise the limit on open files")?;
    ended(&files, "auto", "0")?;
    told(&files, "auto.errors", "source tracepoint: no, a perf event on kvm:kvm_exit does not open")?;
    ended(&files, "later", "0")?;
    told(&files, "later.ctl", "ulimit -n")?;
    must(sum(&files.report("later.report")?, "/forced") > 0, || "no exit was forced".to_owned())
}

/// tracefs goes away under a guest that runs: what is attached stays, what is attached anew is refused with what to do.
pub(crate) fn no_tracefs() -> Result<(), Failed> {
    let script = format!(
        "{FUNCTIONS}
run unmounted vmm --pause-source tracepoint --api-sock /tmp/unmounted --probe 'ring seconds=10 port=off' &
ready unmounted
umount /sys/kernel/debug/tracing
umount /sys/kernel/debug
umount /sys/kernel/tracing
again /tmp/unmounted unmounted
wait
run without vmm --probe 'ring seconds=1 port=off'
"
    );
    let files = host::run(&script, &[("/bin/faults".to_owned(), faults()?)], LIMIT)?;
    ended(&files, "unmounted", "0")?;
    told(&files, "unmounted.ctl", "mount -t tracefs")?;
    must(sum(&files.report("unmounted.report")?, "/pause_exits") > 0, || "no PAUSE exit was counted".to_owned())?;
    ended(&files, "without", "0")?;
    told(&files, "without.errors", "tracefs is not mounted")
}

fn ended(files: &Files, name: &str, status: &str) -> Result<(), Failed> {
    let found = files.text(&format!("{name}.status"))?;
    let errors = files.text(&format!("{name}.errors"))?;
    must(found.trim() == status, || format!("{name}: status {found} instead of {status}\n{errors}"))
}

fn told(files: &Files, name: &str, part: &str) -> Result<(), Failed> {
    let text = files.text(name)?;
    must(text.contains(part), || format!("{name} should say {part}: {text}"))
}

/// `faults.c` as a program that the lab can run.
fn faults() -> Result<Vec<u8>, Failed> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("whole/faults.c");
    let directory = tempfile::tempdir().map_err(|error| format!("a temporary directory: {error}"))?;
    let program = directory.path().join("faults");
    let built = Command::new("cc").args(["-O1", "-static", "-o"]).arg(&program).arg(source).status();
    must(built.is_ok_and(|status| status.success()), || "cc cannot build faults.c".to_owned())?;
    std::fs::read(&program).map_err(|error| format!("{}: {error}", program.display()).into())
}
