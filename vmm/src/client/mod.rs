// SPDX-License-Identifier: Apache-2.0
//! The other side of the control API: `vmm ctl` and what `vmm top` shares with it.
//!
//! A call of the command line becomes one request ([`call`]); the answer is printed as it came or as text for people
//! ([`render`], [`vcpu_table`]). Invariant: nothing is printed on stdout but an answer of the machine.

mod call;
pub(crate) mod figures;
mod render;
mod streams;
mod vcpu_table;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use api::client::{Client, ClientError, Endpoint};
use api::wire::Vcpus;

use crate::config::client::{Call, CtlArgs, EndpointArgs};
use crate::config::{FileError, MachineConfig, ParseError};
use crate::report::ExitStatus;
use call::Ask;

/// A call that brought no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No machine was named.
    #[error(
        "which machine? name its socket with --api-sock PATH, or its address with --api-listen and --api-token-file"
    )]
    Nowhere,
    /// TCP without a token.
    #[error("--api-listen: a machine on TCP asks for a token; name its file with --api-token-file")]
    NoToken,
    /// A token without TCP.
    #[error("--api-token-file: only a machine on TCP asks for a token; add --api-listen, or drop it")]
    TokenAlone,
    /// The token cannot be read.
    #[error("--api-token-file {}: cannot be read: {source}; name the file that the machine was started with", .path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The file that describes a machine.
    #[error(transparent)]
    File(#[from] FileError),
    /// Stdin that describes a machine.
    #[error("stdin: {0}")]
    Stdin(#[source] ParseError),
    /// Stdin that cannot be read.
    #[error("stdin cannot be read: {0}; give the machine as a file")]
    NoStdin(#[source] io::Error),
    /// A machine that describes its own API.
    #[error("the keys that begin with api_ belong to the process that is there already; leave them out")]
    DescribesApi,
    /// A generation where nothing is changed.
    #[error("--if-match: this call changes no machine; drop it, or say what is to be changed")]
    NothingChanged,
    /// The machine's answer, or that there is none.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// An answer that cannot be shown.
    #[error("the answer cannot be shown: {0}; do client and server have the same version?")]
    Answer(#[from] serde_json::Error),
    /// Standard output.
    #[error("standard output cannot be written: {0}")]
    Output(#[source] io::Error),
    /// The screen of `vmm top`.
    #[error("vmm top needs a terminal in the foreground as stdin and stdout; --batch N prints N looks without one")]
    NoTerminal,
    /// The terminal itself.
    #[error("the terminal: {0}")]
    Terminal(#[source] io::Error),
}

impl CallError {
    /// The exit status that says whose fault it was.
    #[must_use]
    pub const fn status(&self) -> ExitStatus {
        match self {
            Self::Nowhere
            | Self::NoToken
            | Self::TokenAlone
            | Self::File(_)
            | Self::Stdin(_)
            | Self::DescribesApi
            | Self::NothingChanged
            | Self::NoTerminal => ExitStatus::Usage,
            Self::Token { .. }
            | Self::NoStdin(_)
            | Self::Client(_)
            | Self::Answer(_)
            | Self::Output(_)
            | Self::Terminal(_) => ExitStatus::MonitorError,
        }
    }
}

/// Where the machine is that `args` name.
///
/// # Errors
/// [`CallError`]: none is named, or its token cannot be read.
pub fn endpoint(args: &EndpointArgs) -> Result<Endpoint, CallError> {
    match (&args.api_sock, args.api_listen, &args.api_token_file) {
        (Some(path), None, None) => Ok(Endpoint::Unix(path.clone())),
        (None, Some(address), Some(path)) => {
            let text = fs::read_to_string(path).map_err(|source| CallError::Token { path: path.clone(), source })?;
            Ok(Endpoint::Tcp { address, token: text.trim().to_owned() })
        }
        (None, Some(_), None) => Err(CallError::NoToken),
        (None, None, None) => Err(CallError::Nowhere),
        (_, _, Some(_)) => Err(CallError::TokenAlone),
        (Some(_), Some(_), None) => Err(CallError::Nowhere),
    }
}

/// Asks what `args` say, and prints the answer.
///
/// # Errors
/// [`CallError`].
pub fn run(args: &CtlArgs) -> Result<(), CallError> {
    let client = Client::new(endpoint(&args.endpoint)?);
    match &args.call {
        Call::Serial { .. } | Call::Events { .. } if args.if_match.is_some() => Err(CallError::NothingChanged),
        Call::Serial { from, follow } => streams::serial(&client, *from, *follow),
        Call::Events { after, count } => streams::events(&client, *after, *count, args.json),
        call => {
            let text = ask(&client, call, args)?;
            print(text.as_bytes())
        }
    }
}

fn ask(client: &Client, call: &Call, args: &CtlArgs) -> Result<String, CallError> {
    let Ask { method, path, body } = Ask::of(call, machine)?;
    // Before a machine is created there is no generation to compare with.
    if args.if_match.is_some() && (method == "GET" || matches!(call, Call::Create { .. })) {
        return Err(CallError::NothingChanged);
    }
    let answer = client.change(method, &path, body.as_ref(), args.if_match.map(api::wire::Generation))?;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    if text.is_empty() || matches!(call, Call::Metrics | Call::Openapi) {
        return Ok(text);
    }
    if args.json {
        return Ok(text + "\n");
    }
    if matches!(call, Call::Vcpus) {
        return Ok(vcpu_table::render(&serde_json::from_str::<Vcpus>(&text)?));
    }
    Ok(render::render(&serde_json::from_str(&text)?))
}

/// The machine that a file, or stdin, describes.
fn machine(file: &Path) -> Result<MachineConfig, CallError> {
    let config = if file.as_os_str() == "-" {
        let text = io::read_to_string(io::stdin()).map_err(CallError::NoStdin)?;
        crate::config::parse(&text).map_err(CallError::Stdin)?
    } else {
        crate::config::read(file)?
    };
    if config.without_api() == config { Ok(config) } else { Err(CallError::DescribesApi) }
}

/// Writes to stdout. A reader that has gone has seen what it wanted.
pub(crate) fn print(bytes: &[u8]) -> Result<(), CallError> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(CallError::Output(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_named_by_one_endpoint() {
        let unix = EndpointArgs { api_sock: Some("s".into()), ..EndpointArgs::default() };
        assert_eq!(endpoint(&unix).unwrap(), Endpoint::Unix("s".into()));
        assert!(matches!(endpoint(&EndpointArgs::default()), Err(CallError::Nowhere)));
        let tcp = EndpointArgs { api_listen: Some("127.0.0.1:1".parse().unwrap()), ..EndpointArgs::default() };
        assert!(matches!(endpoint(&tcp), Err(CallError::NoToken)));
        let token = EndpointArgs { api_token_file: Some("/nowhere/token".into()), ..tcp };
        assert!(matches!(endpoint(&token), Err(CallError::Token { .. })));
        let alone = EndpointArgs { api_listen: None, ..token };
        assert!(matches!(endpoint(&alone), Err(CallError::TokenAlone)));
    }
}
