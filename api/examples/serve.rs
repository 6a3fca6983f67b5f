// SPDX-License-Identifier: Apache-2.0
//! Serves a machine that is only memory, to try clients and the page: `cargo run -p api --example serve -- SOCKET [ADDRESS TOKENFILE]`.
//!
//! Time passes for it as it passes here. Ends with the process.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use api::fake::FakeMonitor;
use api::server::{Limits, Listen, Served, Server, Token};

fn main() -> ExitCode {
    match serve() {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Result<std::convert::Infallible, Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let socket = arguments.next().ok_or("usage: serve SOCKET [ADDRESS TOKENFILE]")?;
    let mut listen = Listen { socket: Some(PathBuf::from(socket)), tcp: None };
    if let (Some(address), Some(file)) = (arguments.next(), arguments.next()) {
        listen.tcp = Some((address.parse()?, Token::read(file.as_ref())?));
    }
    let monitor = Arc::new(FakeMonitor::running(8));
    let served = Served { monitor: monitor.clone(), events: monitor.events(), serial: monitor.serial() };
    let _server = Server::start(listen, served, Limits::of_this_process())?;
    let mut last = Instant::now();
    loop {
        thread::sleep(Duration::from_millis(100));
        let now = Instant::now();
        monitor.advance(u64::try_from((now - last).as_nanos())?);
        monitor.serial().append(b"tick\n");
        last = now;
    }
}
