// SPDX-License-Identifier: Apache-2.0
//! One thing that happens to the machine, and its text form: `out PORT WIDTH BYTES`, `in PORT WIDTH LENGTH`,
//! `feed BYTES`, `flush`, `press`, `output ready|busy|slow N|interrupted|gone`. Numbers are hexadecimal; `BYTES` may
//! end in `*N`, N times.

use std::fmt;
use std::str::FromStr;

use devices::Width;
use proptest::prelude::*;

/// What the output does from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    Ready,
    Busy,
    Slow(usize),
    Interrupted,
    Gone,
}

/// Bytes, repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bytes {
    pub(crate) pattern: Vec<u8>,
    pub(crate) times: usize,
}

impl Bytes {
    pub(crate) fn expand(&self) -> Vec<u8> {
        self.pattern.repeat(self.times)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Out { port: u64, width: Width, data: Bytes },
    In { port: u64, width: Width, len: usize },
    Feed(Bytes),
    Flush,
    Press,
    Output(Mood),
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pattern.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, "*{:x}", self.times)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Out { port, width, data } => write!(f, "out {port:x} {:x} {data}", width.bytes()),
            Self::In { port, width, len } => write!(f, "in {port:x} {:x} {len:x}", width.bytes()),
            Self::Feed(data) => write!(f, "feed {data}"),
            Self::Flush => f.write_str("flush"),
            Self::Press => f.write_str("press"),
            Self::Output(Mood::Ready) => f.write_str("output ready"),
            Self::Output(Mood::Busy) => f.write_str("output busy"),
            Self::Output(Mood::Slow(limit)) => write!(f, "output slow {limit:x}"),
            Self::Output(Mood::Interrupted) => f.write_str("output interrupted"),
            Self::Output(Mood::Gone) => f.write_str("output gone"),
        }
    }
}

fn number(word: &str) -> Result<usize, String> {
    usize::from_str_radix(word, 16).map_err(|error| format!("{word}: {error}"))
}

fn width(word: &str) -> Result<Width, String> {
    Width::from_bytes(number(word)?).ok_or_else(|| format!("{word}: no such width"))
}

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (pattern, times) = text.split_once('*').unwrap_or((text, "1"));
        let byte = |at| pattern.get(at..at + 2).ok_or_else(|| format!("{pattern}: odd number of digits"));
        let digits = (0..pattern.len()).step_by(2).map(byte);
        let pattern = digits
            .map(|pair| u8::from_str_radix(pair?, 16).map_err(|error| error.to_string()))
            .collect::<Result<_, _>>()?;
        Ok(Self { pattern, times: number(times)? })
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        Ok(match words[..] {
            ["out", port, size, data] => {
                Self::Out { port: number(port)? as u64, width: width(size)?, data: data.parse()? }
            }
            ["in", port, size, len] => Self::In { port: number(port)? as u64, width: width(size)?, len: number(len)? },
            ["feed", data] => Self::Feed(data.parse()?),
            ["flush"] => Self::Flush,
            ["press"] => Self::Press,
            ["output", "ready"] => Self::Output(Mood::Ready),
            ["output", "busy"] => Self::Output(Mood::Busy),
            ["output", "slow", limit] => Self::Output(Mood::Slow(number(limit)?)),
            ["output", "interrupted"] => Self::Output(Mood::Interrupted),
            ["output", "gone"] => Self::Output(Mood::Gone),
            _ => return Err(format!("{line}: no such step")),
        })
    }
}

/// Mostly ports that have a device, or a neighbour of one; now and then any port.
fn any_port() -> impl Strategy<Value = u64> {
    prop_oneof![
        12 => Just(0x3F8),
        6 => 0x3F6_u64..0x401,
        2 => 0x5E_u64..0x66,
        2 => 0x5FE_u64..0x606,
        1 => 0x503_u64..0x507,
        1 => 0_u64..0x1_0000,
    ]
}

fn any_width() -> impl Strategy<Value = Width> {
    prop_oneof![6 => Just(Width::Byte), 1 => Just(Width::Word), 1 => Just(Width::Dword), 1 => Just(Width::Qword)]
}

fn any_bytes(times: impl Strategy<Value = usize>) -> impl Strategy<Value = Bytes> {
    (prop::collection::vec(any::<u8>(), 1..9), times).prop_map(|(pattern, times)| Bytes { pattern, times })
}

fn any_mood() -> impl Strategy<Value = Mood> {
    prop_oneof![
        8 => Just(Mood::Ready),
        4 => Just(Mood::Busy),
        4 => (1_usize..100).prop_map(Mood::Slow),
        4 => Just(Mood::Interrupted),
        1 => Just(Mood::Gone),
    ]
}

pub(crate) fn any_step() -> impl Strategy<Value = Step> {
    let times = prop_oneof![4 => Just(1_usize), 1 => 1_usize..2048];
    prop_oneof![
        12 => (any_port(), any_width(), any_bytes(times))
            .prop_map(|(port, width, data)| Step::Out { port, width, data }),
        8 => (any_port(), any_width(), 1_usize..80).prop_map(|(port, width, len)| Step::In { port, width, len }),
        3 => any_bytes(1_usize..12).prop_map(Step::Feed),
        1 => Just(Step::Flush),
        1 => Just(Step::Press),
        2 => any_mood().prop_map(Step::Output),
    ]
}
