// SPDX-License-Identifier: Apache-2.0
//! Clients that come, go, and do not behave: the guest does not notice.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use api::client::{Client, Endpoint};
use api::wire::{Code, Stats, VmState};
use libtest_mimic::Trial;

use crate::machine::{Machine, code, eventually};
use crate::monitor::Monitor;
use crate::trial;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_client_that_goes_in_the_middle_of_a_stream_leaves_nothing", gone),
        trial("serial_output_is_followed_byte_by_byte", serial),
        trial("clients_that_talk_nonsense_do_not_disturb_a_guest", nonsense),
        trial("the_bench_of_the_api_measures_every_arm", bench),
        trial("tcp_is_for_those_with_the_token", tcp),
    ]
}

fn gone() {
    let machine = Machine::running(2, "ring", &[]);
    let streams = || machine.get::<Stats>("stats").api.streams;
    for path in ["/api/v1/events?after=0", "/api/v1/serial/stream"] {
        let opened: Vec<_> = (0..8).map(|_| machine.client.open("GET", path, &[], None).unwrap()).collect();
        assert!(opened.iter().all(|(head, _)| head.status == 200));
        eventually("eight streams", || (streams() == 8).then_some(()));
        drop(opened);
        eventually("an end of the streams", || (streams() == 0).then_some(()));
    }
    // Half a request, and gone.
    let mut half = UnixStream::connect(&machine.socket).unwrap();
    half.write_all(
        b"PATCH /api/v1/pause HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 40\r\n\r\n{",
    )
    .unwrap();
    drop(half);
    assert_eq!(machine.vm().state, VmState::Running);
    machine.stop();
}

fn serial() {
    let machine = Machine::start(&["--cpus=2", "--probe=idle seconds=300 report=lines"]);
    let (head, mut coming) = machine.client.open("GET", "/api/v1/serial/stream", &[], None).unwrap();
    assert_eq!((head.status, head.header("serial-from")), (200, Some("0")));
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("@probe machine") {
        let mut piece = [0; 64];
        let read = coming.read(&mut piece).unwrap();
        assert!(read > 0, "the stream ends: {}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&piece[..read]);
    }
    let history = machine.client.send("GET", "/api/v1/serial", &[], None).unwrap().body;
    assert!(history.starts_with(&seen), "history and stream are the same bytes");
    let ended = machine.stop();
    assert!(ended.output.as_bytes().starts_with(&seen), "and the same as on stdout");
}

fn nonsense() {
    let machine = Machine::running(1, "spin", &[]);
    for bytes in [b"\x16\x03\x01\x02\x00".as_slice(), b"GET / HTTP/9.9\r\n\r\n", b"\0\0\0\0\r\n\r\n", &[b'A'; 100_000]]
    {
        let mut stream = UnixStream::connect(&machine.socket).unwrap();
        // The server may close before all is written.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let deep = format!("{{\"parameters\":{}1{}}}", "[".repeat(20_000), "]".repeat(20_000));
    let headers = [("content-type", "application/json")];
    let answer = machine.client.send("PATCH", "/api/v1/pause", &headers, Some(deep.as_bytes())).unwrap();
    assert_eq!(answer.head.status, 400, "{}", String::from_utf8_lossy(&answer.body));
    assert_eq!(machine.vm().state, VmState::Running);
    machine.stop();
}

fn tcp() {
    let directory = tempfile::TempDir::new().unwrap();
    let (socket, token) = (directory.path().join("api.sock"), directory.path().join("token"));
    fs::write(&token, "0123456789abcdef\n").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    // On port 0 the kernel chooses; which one it was is told on stderr.
    let errors = directory.path().join("errors");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "exec \"$@\" 2>\"$0\""]).arg(&errors).arg(crate::monitor::program());
    command.args(["--cpus=1", "--probe=idle seconds=300 report=none", "--api-listen=127.0.0.1:0"]);
    command.arg("--api-sock").arg(&socket).arg("--api-token-file").arg(&token);
    let machine = Machine::of(Monitor::of(command).start(), socket).once_it_runs();
    let address = eventually("an address", || {
        let told = fs::read_to_string(&errors).unwrap();
        told.split_once("http://")?.1.split_once('/')?.0.parse().ok()
    });
    let with = |token: &str| Client::new(Endpoint::Tcp { address, token: token.to_owned() });
    let vm: api::wire::Vm = with("0123456789abcdef").get("/api/v1/vm").unwrap();
    assert_eq!(vm.pid, machine.vm().pid);
    for wrong in ["", "0123456789abcdeg", "0123456789abcde"] {
        assert_eq!(code(with(wrong).change::<()>("GET", "/api/v1/vm", None, None)), Code::Unauthorized, "{wrong}");
    }
    machine.state("stopped");
    machine.ended().expect(0);
}

fn bench() {
    let mut command = std::process::Command::new(crate::monitor::program());
    let measured =
        command.args(["bench", "api", "--rounds=1", "--seconds=0.3", "--cpus=2", "--pace=50"]).output().unwrap();
    let text = String::from_utf8(measured.stdout).unwrap();
    assert!(measured.status.success(), "{text}{}", String::from_utf8_lossy(&measured.stderr));
    let cells = |start: &str| -> Vec<f64> {
        let line = text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}: {text}"));
        let numbers = line.split('|').filter_map(|cell| cell.split_ascii_whitespace().next()?.parse().ok());
        numbers.collect()
    };
    for asked in ["| GET /vm, 50 a second", "| GET /vm, no break", "| GET /metrics of 255"] {
        assert!(cells(asked).iter().all(|number| *number > 0.0) && cells(asked).len() == 8, "{text}");
    }
    for arm in ["| no API", "| an API that nobody asks", "| asked 50 times a second", "| asked without a break"] {
        assert!(cells(arm)[0] > 0.0, "{text}");
    }
}
