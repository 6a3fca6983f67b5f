// SPDX-License-Identifier: Apache-2.0
//! The probe guest's command line: words separated by spaces, a workload and `key=value` pairs in any order.
//!
//! The same parser serves the guest and whoever wants to refuse a wrong line before boot. Invariant: a word that is not
//! understood is an error, never ignored. Compiled into the guest too, so it needs nothing but `core`.

use core::fmt;

use crate::value::{Word, words};

words! {
    /// What the guest does after its report.
    Workload {
        /// Only the report.
        Report = "report",
        /// Every CPU halts.
        Idle = "idle",
        /// Every CPU counts.
        Spin = "spin",
        /// A lock is handed from CPU to CPU in order.
        Ring = "ring",
        /// All CPUs contend for a ticket lock.
        Ticket = "ticket",
        /// The first CPU interrupts all others and waits for every answer.
        Ipi = "ipi",
        /// CPUs allocate, copy and search blocks under one allocator lock.
        Ebizzy = "ebizzy",
        /// Echoes serial input until a line `quit`.
        Echo = "echo",
        /// Writes the ACPI reset register.
        Reset = "reset",
        /// Asks the keyboard controller for a reset.
        I8042Reset = "i8042-reset",
        /// Ends in a triple fault.
        TripleFault = "triple-fault",
        /// Reports a panic to the pvpanic device.
        Panic = "panic",
        /// All CPUs stop with interrupts off.
        Hang = "hang",
    }
}

words! {
    /// The privilege level a workload runs in.
    Ring {
        /// Kernel mode.
        Kernel = "0",
        /// User mode.
        User = "3",
    }
}

words! {
    /// Whether spinning CPUs write to the pause port.
    PortUse {
        /// If the machine has one.
        Auto = "auto",
        /// Yes; without one the run is an error.
        On = "on",
        /// No.
        Off = "off",
    }
}

words! {
    /// How the workload ipi sends its interrupts.
    Send {
        /// One write reaches all others.
        Broadcast = "broadcast",
        /// One write a CPU.
        Each = "each",
    }
}

words! {
    /// What the workload waits for, all CPUs being up.
    Wait {
        /// Nothing.
        None = "none",
        /// A line on COM1: whoever runs several guests starts them all at once.
        Line = "line",
    }
}

words! {
    /// What is printed before the workload.
    Detail {
        /// A table and the machine-readable lines.
        Full = "full",
        /// The machine-readable lines.
        Lines = "lines",
        /// Neither.
        None = "none",
    }
}

words! {
    /// What stands before the `=`.
    Key {
        /// What the guest does.
        Workload = "workload",
        /// For how long.
        Seconds = "seconds",
        /// In which ring.
        Cpl = "cpl",
        /// Whether spinners write to the pause port.
        Port = "port",
        /// After how many spins.
        Spins = "spins",
        /// How many CPUs share a lock that goes round.
        Size = "size",
        /// For how long the lock is held.
        Hold = "hold",
        /// For how long it is let alone.
        Think = "think",
        /// How large a block is.
        Block = "block",
        /// How interrupts are sent.
        Send = "send",
        /// What is printed.
        Report = "report",
        /// What is waited for before the workload.
        Wait = "wait",
    }
}

impl Key {
    /// The words it takes; none if it takes a number.
    #[must_use]
    pub const fn words(self) -> &'static [&'static str] {
        match self {
            Self::Workload => Workload::WORDS,
            Self::Cpl => Ring::WORDS,
            Self::Port => PortUse::WORDS,
            Self::Send => Send::WORDS,
            Self::Report => Detail::WORDS,
            Self::Wait => Wait::WORDS,
            Self::Seconds | Self::Spins | Self::Size | Self::Hold | Self::Think | Self::Block => &[],
        }
    }

    /// The numbers it takes, in words; empty if it takes words.
    #[must_use]
    pub const fn numbers(self) -> &'static str {
        match self {
            Self::Seconds => "0.001 to 300, with at most three decimals",
            Self::Spins => "a whole number from 1 to 4294967295",
            Self::Size | Self::Hold | Self::Think => "a whole number from 0 to 4294967295",
            Self::Block => "a whole number from 64 to 1048576",
            Self::Workload | Self::Cpl | Self::Port | Self::Send | Self::Report | Self::Wait => "",
        }
    }
}

/// Everything a command line can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// `workload=NAME` or just `NAME`; `report` if not given.
    pub workload: Workload,
    /// `seconds=N`, decimals allowed: how long, 1 ms to 300 s. Default 1 s.
    pub duration_ms: u32,
    /// `cpl=0|3`. Default 3.
    pub cpl: Ring,
    /// `port=auto|on|off`. Default auto.
    pub port: PortUse,
    /// `spins=N`: spins before each write to the port, at least 1. Default: what the machine recommends, else 1000.
    pub spins: Option<u32>,
    /// `size=N`: CPUs of a ring, 1 to all; those that come up next to each other hand their own lock on. 0, the default:
    /// all.
    pub ring_size: u32,
    /// `hold=N`: iterations spent holding the lock. Default 100.
    pub hold: u32,
    /// `think=N`: iterations between two uses of the lock. Default 1000.
    pub think: u32,
    /// `block=BYTES`: size of a block of ebizzy, 64 bytes to 1 MiB. Default 16384.
    pub block_bytes: u32,
    /// `send=broadcast|each`. Default broadcast.
    pub send: Send,
    /// `report=full|lines|none`. Default full.
    pub detail: Detail,
    /// `wait=none|line`. Default none.
    pub wait: Wait,
}

impl Default for Command {
    fn default() -> Self {
        Self {
            workload: Workload::Report,
            duration_ms: 1000,
            cpl: Ring::User,
            port: PortUse::Auto,
            spins: None,
            ring_size: 0,
            hold: 100,
            think: 1000,
            block_bytes: 16384,
            send: Send::Broadcast,
            detail: Detail::Full,
            wait: Wait::None,
        }
    }
}

/// What is wrong with a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// Neither a workload nor a known key.
    UnknownWord(Word),
    /// The key is known, the value is not one of its values.
    BadValue(Word),
    /// A second workload.
    SecondWorkload(Word),
}

impl CommandError {
    /// The fixed word for the `reason` of an error line.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::UnknownWord(_) => "unknown-word",
            Self::BadValue(_) => "bad-value",
            Self::SecondWorkload(_) => "second-workload",
        }
    }

    /// The word of the command line that is wrong.
    #[must_use]
    pub const fn word(self) -> Word {
        match self {
            Self::UnknownWord(word) | Self::BadValue(word) | Self::SecondWorkload(word) => word,
        }
    }
}

impl CommandError {
    /// The words that could stand where the wrong one does, or behind its `=`: empty where a number belongs.
    pub fn known(&self) -> impl Iterator<Item = &'static str> {
        let (words, more): (&[_], &[_]) = match self {
            Self::UnknownWord(_) => (Workload::WORDS, Key::WORDS),
            Self::BadValue(word) => (key_of(word).map_or(&[], Key::words), &[]),
            Self::SecondWorkload(_) => (&[], &[]),
        };
        words.iter().chain(more).copied()
    }
}

fn key_of(word: &Word) -> Option<Key> {
    Key::from_word(word.as_str().split_once('=')?.0)
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownWord(word) => {
                write!(f, "the probe guest does not know the word `{word}`: use a workload (")?;
                list(f, Workload::WORDS)?;
                f.write_str(") or KEY=VALUE (")?;
                list(f, Key::WORDS)?;
                f.write_str(")")
            }
            Self::BadValue(word) => {
                write!(f, "the probe guest does not take `{word}`")?;
                let Some(key) = key_of(word) else { return Ok(()) };
                write!(f, ": {} takes {}", key.word(), key.numbers())?;
                list(f, key.words())
            }
            Self::SecondWorkload(word) => {
                write!(f, "the probe guest runs one workload, and `{word}` is a second: drop one")
            }
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, words: &[&str]) -> fmt::Result {
    words.iter().enumerate().try_for_each(|(i, word)| write!(f, "{}{word}", if i == 0 { "" } else { ", " }))
}

impl core::error::Error for CommandError {}

/// Longest run: what the local APIC's 32-bit timer can count at 1 GHz divided by 128, with room to spare.
const MAX_MS: u32 = 300_000;

impl Command {
    /// Parses a command line.
    ///
    /// # Errors
    /// The first word that is wrong.
    pub fn parse(line: &str) -> Result<Self, CommandError> {
        let mut command = Self::default();
        let mut named = false;
        for text in line.split_ascii_whitespace() {
            let word = Word::new(text.as_bytes());
            let (key, value) = text.split_once('=').unwrap_or((Key::Workload.word(), text));
            let key = Key::from_word(key).ok_or(CommandError::UnknownWord(word))?;
            let wrong = if text == value { CommandError::UnknownWord(word) } else { CommandError::BadValue(word) };
            command.set(key, value).ok_or(wrong)?;
            if key == Key::Workload && core::mem::replace(&mut named, true) {
                return Err(CommandError::SecondWorkload(word));
            }
        }
        Ok(command)
    }

    /// `None`: not a value of it.
    fn set(&mut self, key: Key, value: &str) -> Option<()> {
        match key {
            Key::Workload => self.workload = Workload::from_word(value)?,
            Key::Seconds => self.duration_ms = milliseconds(value)?,
            Key::Cpl => self.cpl = Ring::from_word(value)?,
            Key::Port => self.port = PortUse::from_word(value)?,
            Key::Spins => self.spins = Some(number(value, 1, u32::MAX)?),
            Key::Size => self.ring_size = number(value, 0, u32::MAX)?,
            Key::Hold => self.hold = number(value, 0, u32::MAX)?,
            Key::Think => self.think = number(value, 0, u32::MAX)?,
            Key::Block => self.block_bytes = number(value, 64, 1 << 20)?,
            Key::Send => self.send = Send::from_word(value)?,
            Key::Report => self.detail = Detail::from_word(value)?,
            Key::Wait => self.wait = Wait::from_word(value)?,
        }
        Some(())
    }
}

fn number(text: &str, least: u32, most: u32) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let value = digits.then(|| text.parse().ok()).flatten()?;
    (least..=most).contains(&value).then_some(value)
}

/// `3` or `0.25`: up to three decimals.
fn milliseconds(text: &str) -> Option<u32> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let scale = match decimals.len() {
        1 => 100,
        2 => 10,
        3 => 1,
        _ => return None,
    };
    let value = number(whole, 0, MAX_MS / 1000)? * 1000 + number(decimals, 0, 999)? * scale;
    (1..=MAX_MS).contains(&value).then_some(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn word(text: &str) -> Word {
        Word::new(text.as_bytes())
    }

    #[test]
    fn a_bare_name_and_a_named_workload_are_the_same() {
        let expected = Command { workload: Workload::Ring, duration_ms: 3000, ..Command::default() };
        assert_eq!(Command::parse("ring seconds=3"), Ok(expected));
        assert_eq!(Command::parse(" seconds=3.000   workload=ring "), Ok(expected));
        assert_eq!(Command::parse(""), Ok(Command::default()));
    }

    #[test]
    fn every_key_is_set() {
        let line = "ticket seconds=0.25 cpl=0 port=on spins=200 size=2 hold=7 think=0 block=64 send=each report=none wait=line";
        let expected = Command {
            workload: Workload::Ticket,
            duration_ms: 250,
            cpl: Ring::Kernel,
            port: PortUse::On,
            spins: Some(200),
            ring_size: 2,
            hold: 7,
            think: 0,
            block_bytes: 64,
            send: Send::Each,
            detail: Detail::None,
            wait: Wait::Line,
        };
        assert_eq!(Command::parse(line), Ok(expected));
    }

    #[test]
    fn every_wrong_word_is_named() {
        for text in ["rings", "console=ttyS0", "=", "seconds", "Ring"] {
            assert_eq!(Command::parse(text), Err(CommandError::UnknownWord(word(text))), "{text}");
        }
        for text in ["workload=x", "seconds=", "seconds=0", "seconds=301", "seconds=1.2345", "seconds=1.", "spins=0"] {
            assert_eq!(Command::parse(text), Err(CommandError::BadValue(word(text))), "{text}");
        }
        for text in ["cpl=1", "port=yes", "hold=-1", "block=63", "block=1048577", "send=", "think=4294967296"] {
            assert_eq!(Command::parse(text), Err(CommandError::BadValue(word(text))), "{text}");
        }
        assert_eq!(Command::parse("ring spin"), Err(CommandError::SecondWorkload(word("spin"))));
    }

    #[test]
    fn an_error_says_what_would_be_taken() {
        let error = |line| Command::parse(line).unwrap_err();
        for (line, part) in [
            ("workload=x", "workload takes report, idle, spin"),
            ("port=yes", "port takes auto, on, off"),
            ("seconds=301", "seconds takes 0.001 to 300"),
            ("spins=0", "spins takes a whole number from 1 to 4294967295"),
            ("block=63", "from 64 to 1048576"),
            ("rings", "seconds, cpl, port, spins"),
            ("ring spin", "drop one"),
        ] {
            let text = error(line).to_string();
            assert!(text.contains(part), "{text} should say {part}");
        }
        assert!(error("send=x").known().eq(["broadcast", "each"]));
        assert_eq!(error("hold=x").known().count(), 0);
        assert_eq!(error("x").known().count(), Workload::ALL.len() + Key::ALL.len());
        for key in Key::ALL {
            assert!(key.words().is_empty() != key.numbers().is_empty(), "{key:?} takes either");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_a_command_or_an_error(line in "\\PC*") {
            if let Err(error) = Command::parse(&line) {
                prop_assert!(error.to_string().len() < 400);
            }
        }
    }
}
