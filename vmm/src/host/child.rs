// SPDX-License-Identifier: Apache-2.0
#![expect(unsafe_code, reason = "pre_exec is unsafe, and prctl has no safe wrapper here")]
//! Child processes that do not outlive this one.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Has the kernel kill the child when the thread that starts it ends, however it ends (prctl(2), PR_SET_PDEATHSIG). The
/// child is a process group of its own, so that keys of the terminal (Ctrl-C) reach this process alone.
pub fn dies_with_this_thread(command: &mut Command) -> &mut Command {
    let parent = std::process::id();
    let prepare = move || {
        // SAFETY: prctl and getppid are async-signal-safe and touch no memory of this process.
        let (result, found) = unsafe { (libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL), libc::getppid()) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        // Who died before the call sends no signal.
        if u32::try_from(found) == Ok(parent) { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
    };
    command.process_group(0);
    // SAFETY: `prepare` allocates nothing and takes no lock between fork and exec.
    unsafe { command.pre_exec(prepare) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_goes_with_its_thread() {
        let starter = std::thread::spawn(|| dies_with_this_thread(Command::new("sleep").arg("600")).spawn().unwrap());
        let mut child = starter.join().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
    }
}
