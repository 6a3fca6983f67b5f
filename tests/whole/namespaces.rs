// SPDX-License-Identifier: Apache-2.0
//! Hosts that lack something, made of this one: a mount namespace of the monitor's own, or another user.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::Missing;
use crate::monitor::{self, Monitor};

/// For tests that change mounts or the user.
pub(crate) fn root() -> Missing {
    let run = |tool: &str, arguments: &[&str]| {
        let done = Command::new(tool).args(arguments).output();
        match done {
            Ok(output) if output.status.success() => None,
            Ok(output) => Some(format!("{tool}: {}", String::from_utf8_lossy(&output.stderr).trim())),
            Err(error) => Some(format!("{tool}: {error}")),
        }
    };
    let mounts = ["-m", "sh", "-c", "mount -t tmpfs none /dev"];
    run("unshare", &mounts).or_else(|| run("setpriv", &["--reuid=65534", "--clear-groups", "true"]))
}

/// The monitor after `preparation`, a shell command, in a mount namespace that ends with it.
pub(crate) fn after(preparation: &str, arguments: &[&str]) -> Monitor {
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &format!("set -e\n{preparation}\nexec \"$0\" \"$@\"")]);
    command.arg(monitor::program()).args(arguments);
    Monitor::of(command)
}

/// The monitor as a user who owns nothing, in a namespace where `/dev/kvm` belongs to root alone.
pub(crate) fn as_nobody(arguments: &[&str]) -> Monitor {
    let preparation = "mount -t tmpfs none /dev\nmknod -m 600 /dev/kvm c 10 232\n\
                       exec setpriv --reuid=65534 --regid=65534 --clear-groups ./vmm \"$@\"";
    let monitor = after(preparation, arguments);
    // The program itself may be where that user cannot go.
    let copy = monitor.directory().join("vmm");
    fs::copy(monitor::program(), &copy).unwrap();
    fs::set_permissions(monitor.directory(), fs::Permissions::from_mode(0o755)).unwrap();
    monitor
}
