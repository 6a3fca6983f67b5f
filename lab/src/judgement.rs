// SPDX-License-Identifier: Apache-2.0
//! Whose fault the end of an attempt is: the script's, the lab host's, or nobody's.
//!
//! Place in the flow: between [`crate::session`], which saw how the emulator ended, and [`crate::host`], which may start it
//! again. Invariant: only a heartbeat that stopped or raced, or results that are cut short, are blamed on the lab host.

use thiserror::Error;

use crate::qemu::PortFiles;
use crate::results::{self, Results, ResultsError};
use crate::session::{End, Outcome};
use crate::watchdog::Verdict;

/// How much of the console an error quotes.
const CONSOLE_TAIL_BYTES: usize = 4000;

/// Attempts and how they failed.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) attempts: u32,
    pub(crate) hung: u32,
    pub(crate) died: u32,
}

impl Tally {
    /// Adds one failed attempt.
    pub(crate) fn count(&mut self, failure: &Failure) {
        match failure {
            Failure::Hung(_) => self.hung += 1,
            Failure::Died(_) => self.died += 1,
        }
    }
}

/// How the lab host failed.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// Its heartbeat stopped, never came, or came too fast.
    #[error("{0}")]
    Hung(String),
    /// The emulator ended without the results being complete.
    #[error("{0}")]
    Died(String),
}

/// Whose fault the end of an attempt is.
#[derive(Debug)]
pub(crate) enum Judgement {
    /// The script ran to its end.
    Done(Results),
    /// The results came, but not as they were sent.
    Damaged(ResultsError),
    /// Time was up with the lab host alive.
    ScriptFailed,
    /// The lab host is at fault.
    LabHostFailed(Failure),
    /// Nobody's: an end was asked for.
    Asked,
}

/// Looks at how an attempt ended and at what its results port holds.
pub(crate) fn judge(outcome: &Outcome, ports: &PortFiles) -> Judgement {
    let hung = |why| Judgement::LabHostFailed(Failure::Hung(why));
    let status = match outcome.end {
        End::Stopped(Verdict::DeadlinePassed | Verdict::Alive) => return Judgement::ScriptFailed,
        End::Stopped(Verdict::Silent { silent }) => {
            return hung(format!("its heartbeat stopped {} s before it was ended", silent.as_secs()));
        }
        End::Stopped(Verdict::NeverReady { waited }) => {
            return hung(format!("it was not ready after {} s", waited.as_secs()));
        }
        End::Stopped(Verdict::ClockTooFast { inside, outside }) => {
            let outside = outside.as_secs_f64();
            return hung(format!("its clock is wrong: {inside} s passed inside in {outside:.1} s"));
        }
        End::Asked => return Judgement::Asked,
        End::Ended(status) => status,
    };
    let stream = std::fs::read(&ports.results).unwrap_or_default();
    match results::parse(&stream) {
        Ok(results) => Judgement::Done(results),
        Err(error @ ResultsError::Truncated { .. }) => {
            let said = std::fs::read(&ports.complaints).unwrap_or_default();
            let said = String::from_utf8_lossy(&said).trim().to_owned();
            let said = if said.is_empty() { said } else { format!("; the emulator says: {said}") };
            Judgement::LabHostFailed(Failure::Died(format!("the emulator ended with {status}: {error}{said}")))
        }
        Err(error) => Judgement::Damaged(error),
    }
}

/// Console text without the carriage returns of a terminal.
pub(crate) fn readable(console: &[u8]) -> String {
    String::from_utf8_lossy(console).replace('\r', "")
}

/// The end of the console, for an error.
pub(crate) fn console_tail(console: &[u8]) -> String {
    readable(&console[console.len().saturating_sub(CONSOLE_TAIL_BYTES)..])
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;
    use std::time::Duration;

    use super::*;

    fn judged(end: End, results: &str, complaints: &str) -> Judgement {
        let directory = tempfile::tempdir().unwrap();
        let ports = PortFiles::in_directory(directory.path());
        std::fs::write(&ports.results, results).unwrap();
        std::fs::write(&ports.complaints, complaints).unwrap();
        let took = Duration::from_secs(9);
        let outcome = Outcome { end, console: Vec::new(), output: Vec::new(), ready_after: None, took };
        judge(&outcome, &ports)
    }

    #[test]
    fn complete_results_are_taken_whatever_the_emulator_says() {
        let end = End::Ended(ExitStatus::from_raw(1 << 8));
        let judgement = judged(end, "vmm-lab-results 1\nstatus 7\nend\n", "warning");
        assert!(matches!(judgement, Judgement::Done(Results { status: 7, .. })), "{judgement:?}");
    }

    #[test]
    fn results_cut_short_mean_that_the_lab_host_died_and_the_emulator_is_quoted() {
        let judgement =
            judged(End::Ended(ExitStatus::from_raw(0)), "vmm-lab-results 1\n", "cannot set up guest memory");
        let Judgement::LabHostFailed(failure @ Failure::Died(_)) = judgement else { panic!("{judgement:?}") };
        assert!(failure.to_string().contains("the emulator says: cannot set up guest memory"), "{failure}");
    }

    #[test]
    fn damaged_results_are_neither_taken_nor_blamed_on_the_script() {
        let judgement =
            judged(End::Ended(ExitStatus::from_raw(0)), "vmm-lab-results 1\nfile 1 0 a\nxstatus 0\nend\n", "");
        assert!(matches!(judgement, Judgement::Damaged(ResultsError::Checksum { .. })), "{judgement:?}");
    }

    #[test]
    fn silence_is_the_lab_hosts_fault_and_the_deadline_is_the_scripts() {
        let silent = End::Stopped(Verdict::Silent { silent: Duration::from_secs(90) });
        assert!(matches!(judged(silent, "", ""), Judgement::LabHostFailed(Failure::Hung(_))));
        let never = End::Stopped(Verdict::NeverReady { waited: Duration::from_secs(240) });
        assert!(matches!(judged(never, "", ""), Judgement::LabHostFailed(Failure::Hung(_))));
        assert!(matches!(judged(End::Stopped(Verdict::DeadlinePassed), "", ""), Judgement::ScriptFailed));
    }

    #[test]
    fn an_error_quotes_the_end_of_the_console() {
        let console = [vec![b'x'; 5000], b"the end\r\n".to_vec()].concat();
        let tail = console_tail(&console);
        assert!(tail.ends_with("xthe end\n") && tail.len() < 4001, "{tail}");
    }
}
