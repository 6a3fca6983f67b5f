// SPDX-License-Identifier: Apache-2.0
//! What comes for as long as the machine is there: serial output and events.

use std::io::{self, Read, Write};

use api::client::{Client, ClientError};
use api::wire::Event;
use serde_json::Value;

use super::{CallError, figures, print};

/// Bytes of serial output that are read at once.
const PIECE: usize = 16 * 1024;

/// Prints serial output as the guest sent it.
pub(super) fn serial(client: &Client, from: Option<u64>, follow: bool) -> Result<(), CallError> {
    let from = from.map(|from| format!("?from={from}")).unwrap_or_default();
    let path = if follow { "/api/v1/serial/stream" } else { "/api/v1/serial" };
    if !follow {
        return print(&client.change::<Value>("GET", &format!("{path}{from}"), None, None)?.body);
    }
    let (head, mut coming) = client.open("GET", &format!("{path}{from}"), &[], None)?;
    if head.status != 200 {
        let problem = serde_json::from_reader(coming)?;
        return Err(ClientError::Refused { status: head.status, problem }.into());
    }
    let mut piece = vec![0; PIECE];
    loop {
        // A machine that ends breaks the stream off: what came is all there is.
        let read = coming.read(&mut piece).unwrap_or(0);
        if read == 0 || !shown(&piece[..read])? {
            return Ok(());
        }
    }
}

/// Prints events, one a line, until the machine ends or `count` were printed.
pub(super) fn events(client: &Client, after: Option<u64>, count: Option<u64>, json: bool) -> Result<(), CallError> {
    let most = count.map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX));
    for event in client.events(after)?.take(most) {
        let event = match event {
            Err(ClientError::Broken(_)) => return Ok(()),
            other => other?,
        };
        let line = if json { serde_json::to_string(&event)? } else { line(&event)? };
        if !shown((line + "\n").as_bytes())? {
            return Ok(());
        }
    }
    Ok(())
}

/// Whether there still is a reader.
fn shown(bytes: &[u8]) -> Result<bool, CallError> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(CallError::Output(error)),
        Ok(()) => Ok(true),
    }
}

fn line(event: &Event) -> Result<String, CallError> {
    let what = serde_json::to_value(&event.what)?;
    let keys = what.as_object().into_iter().flatten().filter(|(key, _)| *key != "kind");
    let pair = |(key, value): (&String, &Value)| match value {
        Value::String(text) => format!("{key}={}", text.escape_debug()),
        other => format!("{key}={other}"),
    };
    let pairs = keys.map(pair).collect::<Vec<_>>().join(" ");
    Ok(format!("{:>6}  {:>12}  {}  {pairs}", event.id, figures::time(event.at_ns), event.what.name()))
}

#[cfg(test)]
mod tests {
    use api::wire::{EventKind, Generation, VmState};

    use super::*;

    #[test]
    fn an_event_is_a_line() {
        let what =
            EventKind::StateChanged { state: VmState::Running, generation: Generation(2), why: "a\nb".to_owned() };
        let text = line(&Event { id: 7, at_ns: 1_500_000, what }).unwrap();
        assert_eq!(text, "     7        1.5 ms  state_changed  generation=2 state=running why=a\\nb");
    }
}
