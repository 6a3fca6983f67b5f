// SPDX-License-Identifier: Apache-2.0
//! A machine with an API: started, asked, ended. It does not outlive its test.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use api::client::{Answer, Client, ClientError, Endpoint};
use api::wire::{Code, Generation, Problem, Vcpu, Vcpus, Vm};
use rustix::process::Signal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::monitor::{Ended, Monitor, Started};

/// Far more than anything here takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Waits until `look` finds something.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} does not happen");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A monitor whose API answers.
pub(crate) struct Machine {
    started: Option<Started>,
    pub(crate) client: Client,
    pub(crate) socket: PathBuf,
}

impl Machine {
    /// Starts the monitor with these arguments and a socket in its directory, and waits until it is served.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let monitor = Monitor::new(arguments.iter().copied().chain(["--api-sock", "api.sock"]));
        let socket = monitor.directory().join("api.sock");
        Self::of(monitor.start(), socket)
    }

    /// The same on a socket that is elsewhere.
    pub(crate) fn of(started: Started, socket: PathBuf) -> Self {
        let client = Client::new(Endpoint::Unix(socket.clone())).patient(LIMIT);
        let machine = Self { started: Some(started), client, socket };
        eventually("an answer", || machine.client.send("GET", "/api/v1/vm", &[], None).ok());
        machine
    }

    /// A guest of `cpus` vCPUs that runs a workload until it is ended.
    pub(crate) fn running(cpus: u32, workload: &str, more: &[&str]) -> Self {
        let (cpus, probe) = (format!("--cpus={cpus}"), format!("--probe={workload} seconds=300 report=none"));
        Self::start(&[[cpus.as_str(), &probe].as_slice(), more].concat()).once_it_runs()
    }

    /// Waits until the guest runs: the API answers before there is a machine, and a thread tells its number with its first
    /// instruction.
    pub(crate) fn once_it_runs(self) -> Self {
        eventually("a running guest", || {
            let vm: Vm = self.client.get("/api/v1/vm").ok()?;
            let vcpus: Vcpus = self.client.get("/api/v1/vcpus").ok()?;
            (vm.uptime_ns > Some(0) && vcpus.vcpus.iter().all(|vcpu| vcpu.tid.is_some())).then_some(())
        });
        self
    }

    pub(crate) fn started(&self) -> &Started {
        self.started.as_ref().unwrap()
    }

    #[track_caller]
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> T {
        self.client.get(&format!("/api/v1/{path}")).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    #[track_caller]
    pub(crate) fn vm(&self) -> Vm {
        self.get("vm")
    }

    #[track_caller]
    pub(crate) fn vcpu(&self, index: u32) -> Vcpu {
        self.get(&format!("vcpus/{index}"))
    }

    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        body: &impl Serialize,
        generation: Option<Generation>,
    ) -> Result<Answer, ClientError> {
        self.client.change(method, &format!("/api/v1/{path}"), Some(body), generation)
    }

    /// Changes something, which is expected to be possible.
    #[track_caller]
    pub(crate) fn change(&self, method: &str, path: &str, body: &impl Serialize) -> Answer {
        self.ask(method, path, body, None).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Presses a button. On a host that is busy with other things what it does may outlast the answer.
    #[track_caller]
    pub(crate) fn press(&self, path: &str) {
        match self.client.change::<()>("POST", &format!("/api/v1/vm/{path}"), None, None) {
            Ok(answer) => assert_eq!(answer.head.status, 204),
            Err(ClientError::Refused { problem, .. }) if problem.code == Code::Busy => {}
            Err(error) => panic!("{path}: {error}"),
        }
    }

    /// Brings the machine to a state; asks again while a busy host lets it wait.
    #[track_caller]
    pub(crate) fn state(&self, state: &str) {
        let stops = state == "stopped";
        eventually(state, || match self.ask("PUT", "vm/state", &json!({ "state": state }), None) {
            Ok(_) => Some(()),
            Err(ClientError::Refused { problem, .. }) if problem.code == Code::Busy => None,
            // Asked for before, and done meanwhile: whoever waits for the end sees how it was.
            Err(ClientError::Refused { problem, .. }) if stops && problem.code == Code::Ending => Some(()),
            Err(ClientError::Unreachable { .. } | ClientError::Broken(_)) if stops => Some(()),
            Err(error) => panic!("{state}: {error}"),
        });
    }

    /// Waits for its end.
    pub(crate) fn ended(mut self) -> Ended {
        self.started.take().unwrap().wait()
    }

    /// Ends it through the API, and looks how it ended.
    #[track_caller]
    pub(crate) fn stop(self) -> Ended {
        self.state("stopped");
        let ended = self.ended().expect(0);
        ended.expect_reason("stopped through the control API");
        assert!(!ended.files().contains(&"api.sock".to_owned()), "the socket is left behind");
        ended
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(started) = self.started.take() {
            started.signal(Signal::KILL);
            started.wait();
        }
    }
}

/// What a refusal says.
#[track_caller]
pub(crate) fn refused(answer: Result<Answer, ClientError>) -> (u16, Problem) {
    match answer {
        Err(ClientError::Refused { status, problem }) => (status, problem),
        other => panic!("{other:?} should be refused"),
    }
}

/// The code of a refusal.
#[track_caller]
pub(crate) fn code(answer: Result<Answer, ClientError>) -> Code {
    let (status, problem) = refused(answer);
    assert_eq!(status, problem.code.status(), "{problem:?}");
    problem.code
}
