// SPDX-License-Identifier: Apache-2.0
//! What a Linux guest is to run: a tool and its settings, as in `dbench clients=16`.
//!
//! Invariant: a [`Job`] can be carried out; what [`std::fmt::Display`] prints, a word without blanks for the kernel's command
//! line, [`Job::parse`] reads back as the same job. Compiled into the agent too.

use std::fmt;
use std::ops::RangeInclusive;

/// Tools that a guest can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tool {
    /// Threads that copy and search blocks of memory: our own, after the public description of ebizzy.
    Ebizzy,
    /// Debian's dbench, on tmpfs, with its own load file.
    Dbench,
    /// Debian's sysbench.
    Sysbench,
    /// Debian's stress-ng.
    StressNg,
    /// hackbench of Debian's rt-tests.
    Hackbench,
    /// A small build: fork, exec, file metadata, compute.
    Kernbuild,
}

/// What a key may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Number(u32, u32),
    OneOf(&'static [&'static str]),
}

const AT_ONCE: Kind = Kind::Number(1, 4096);
const SECONDS: Kind = Kind::Number(1, 300);
/// Stressors that lock, switch or fork.
const STRESSORS: &[&str] = &["futex", "switch", "pipe", "fork", "mmap", "cpu"];

impl Tool {
    /// Every tool.
    pub const ALL: [Self; 6] =
        [Self::Ebizzy, Self::Dbench, Self::Sysbench, Self::StressNg, Self::Hackbench, Self::Kernbuild];

    /// Its name in plans.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ebizzy => "ebizzy",
            Self::Dbench => "dbench",
            Self::Sysbench => "sysbench",
            Self::StressNg => "stress-ng",
            Self::Hackbench => "hackbench",
            Self::Kernbuild => "kernbuild",
        }
    }

    /// The tool of a name, if there is one.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// What it counts.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Ebizzy => "records",
            Self::Dbench => "MB",
            Self::Sysbench => "events",
            Self::StressNg => "bogo-ops",
            Self::Hackbench => "messages",
            Self::Kernbuild => "units",
        }
    }

    const fn keys(self) -> &'static [(&'static str, Kind)] {
        match self {
            Self::Ebizzy => &[
                ("seconds", SECONDS),
                ("threads", AT_ONCE),
                ("chunk", Kind::Number(64, 1 << 30)),
                ("chunks", Kind::Number(1, 100_000)),
                ("mmap", Kind::OneOf(&["always", "never"])),
            ],
            Self::Dbench => &[("seconds", SECONDS), ("clients", AT_ONCE)],
            Self::Sysbench => &[("seconds", SECONDS), ("threads", AT_ONCE), ("test", Kind::OneOf(&["threads", "cpu"]))],
            Self::StressNg => &[("seconds", SECONDS), ("instances", AT_ONCE), ("stressor", Kind::OneOf(STRESSORS))],
            Self::Hackbench => {
                &[("seconds", SECONDS), ("groups", Kind::Number(1, 100)), ("loops", Kind::Number(1, 1_000_000))]
            }
            Self::Kernbuild => &[("seconds", SECONDS), ("jobs", AT_ONCE)],
        }
    }
}

/// Why a text is no job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobError {
    /// There is no such tool.
    UnknownTool(String),
    /// The tool has no such key, or a word has no `=`.
    UnknownKey(Tool, String),
    /// A key that is given twice.
    Twice(String),
    /// A value that the key cannot have: key, value, what it may be.
    BadValue(String, String, String),
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownTool(name) => {
                let known: Vec<&str> = Tool::ALL.iter().map(|tool| tool.name()).collect();
                write!(f, "there is no Linux workload `{name}`; known are {}", known.join(", "))
            }
            Self::UnknownKey(tool, word) => {
                let known: Vec<String> = tool.keys().iter().map(|(key, _)| format!("{key}=")).collect();
                write!(f, "`{word}` is no setting of {}; known are {}", tool.name(), known.join(", "))
            }
            Self::Twice(key) => write!(f, "`{key}` is given twice; leave one out"),
            Self::BadValue(key, value, wanted) => write!(f, "`{value}` is no value of `{key}`; give {wanted}"),
        }
    }
}

impl std::error::Error for JobError {}

/// A tool, and what is said about how to run it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The tool.
    pub tool: Tool,
    /// Settings in the order of the tool's keys.
    settings: Vec<(&'static str, String)>,
}

/// A program to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// Its path in the guest.
    pub program: &'static str,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// How a tool fills the time that it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Run {
    /// It is told how long to run.
    Once(Invocation),
    /// It is started again and again until the time is over, and counts so many operations each time.
    Again(Invocation, u64),
    /// So many at a time are started again and again; each is one operation, and gets its number as its last argument.
    InParallel(Invocation, u32),
}

impl Job {
    /// Reads a job: the tool's name, then `key=value`, with blanks or commas between.
    ///
    /// # Errors
    /// [`JobError`].
    pub fn parse(text: &str) -> Result<Self, JobError> {
        let mut words = text.split([' ', '\t', ',']).filter(|word| !word.is_empty());
        let name = words.next().unwrap_or_default();
        let tool = Tool::named(name).ok_or_else(|| JobError::UnknownTool(name.to_owned()))?;
        let mut job = Self { tool, settings: Vec::new() };
        for word in words {
            let known = |key: &str| tool.keys().iter().find(|(known, _)| *known == key);
            let found = word.split_once('=').and_then(|(key, value)| Some((known(key)?, value)));
            let ((key, kind), value) = found.ok_or_else(|| JobError::UnknownKey(tool, word.to_owned()))?;
            let bad = |wanted| JobError::BadValue((*key).to_owned(), value.to_owned(), wanted);
            kind.check(value).map_err(bad)?;
            if job.word(key).is_some() {
                return Err(JobError::Twice((*key).to_owned()));
            }
            job.settings.push((key, value.to_owned()));
        }
        job.settings.sort_by_key(|(key, _)| tool.keys().iter().position(|(known, _)| known == key));
        Ok(job)
    }

    /// The same job for so many seconds, 1 to 300.
    ///
    /// # Errors
    /// [`JobError::BadValue`], and [`JobError::Twice`] if it says for how long already.
    pub fn lasting(&self, seconds: u32) -> Result<Self, JobError> {
        Self::parse(&format!("{self},seconds={seconds}"))
    }

    /// How long it runs, in seconds.
    #[must_use]
    pub fn seconds(&self) -> u32 {
        self.number("seconds", 10)
    }

    /// What is started on a guest of so many CPUs.
    #[must_use]
    pub fn run(&self, cpus: u32) -> Run {
        let seconds = self.seconds();
        match self.tool {
            Tool::Ebizzy => Run::Once(self.ebizzy(cpus)),
            Tool::Dbench => Run::Once(Invocation::new(
                "/usr/bin/dbench",
                format!("-t {seconds} -c /usr/share/dbench/client.txt -D /tmp/dbench {}", self.number("clients", cpus)),
            )),
            Tool::Sysbench => Run::Once(Invocation::new(
                "/usr/bin/sysbench",
                format!(
                    "{} --threads={} --time={seconds} --events=0 run",
                    self.word("test").unwrap_or("threads"),
                    self.number("threads", cpus)
                ),
            )),
            Tool::StressNg => Run::Once(Invocation::new(
                "/usr/bin/stress-ng",
                format!(
                    "--{} {} -t {seconds}s --metrics-brief --temp-path /tmp",
                    self.word("stressor").unwrap_or("futex"),
                    self.number("instances", cpus)
                ),
            )),
            Tool::Hackbench => {
                let (groups, loops) = (self.number("groups", 1), self.number("loops", 100));
                // Twenty senders a group, each to twenty receivers.
                let messages = u64::from(groups) * 400 * u64::from(loops);
                Run::Again(Invocation::new("/usr/bin/hackbench", format!("-g {groups} -l {loops}")), messages)
            }
            Tool::Kernbuild => {
                let unit = Invocation::new("/bin/busybox", "sh /build/unit.sh".to_owned());
                Run::InParallel(unit, self.number("jobs", cpus))
            }
        }
    }

    fn ebizzy(&self, cpus: u32) -> Invocation {
        let mut words = format!("-S {} -t {}", self.seconds(), self.number("threads", cpus.saturating_mul(2)));
        for (key, option) in [("chunk", "-s"), ("chunks", "-n")] {
            if let Some(value) = self.word(key) {
                words += &format!(" {option} {value}");
            }
        }
        match self.word("mmap") {
            Some("always") => words += " -m",
            Some("never") => words += " -M",
            _ => {}
        }
        Invocation::new("/bin/ebizzy", words)
    }

    fn word(&self, key: &str) -> Option<&str> {
        self.settings.iter().find(|(known, _)| *known == key).map(|(_, value)| value.as_str())
    }

    fn number(&self, key: &str, default: u32) -> u32 {
        self.word(key).and_then(|value| value.parse().ok()).unwrap_or(default)
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.tool.name())?;
        self.settings.iter().try_for_each(|(key, value)| write!(f, ",{key}={value}"))
    }
}

impl Kind {
    /// Whether a value is one; the error says what would be.
    fn check(self, value: &str) -> Result<(), String> {
        match self {
            Self::Number(least, most) => {
                let range: RangeInclusive<u32> = least..=most;
                let number = value.bytes().all(|byte| byte.is_ascii_digit()).then(|| value.parse().ok()).flatten();
                let fits = number.is_some_and(|number| range.contains(&number));
                if fits { Ok(()) } else { Err(format!("a whole number from {least} to {most}")) }
            }
            Self::OneOf(words) if words.contains(&value) => Ok(()),
            Self::OneOf(words) => Err(format!("one of {}", words.join(", "))),
        }
    }
}

impl Invocation {
    fn new(program: &'static str, arguments: String) -> Self {
        Self { program, arguments: arguments.split(' ').map(str::to_owned).collect() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(text: &str, cpus: u32) -> String {
        match Job::parse(text).unwrap().run(cpus) {
            Run::Once(one) | Run::Again(one, _) | Run::InParallel(one, _) => {
                format!("{} {}", one.program, one.arguments.join(" "))
            }
        }
    }

    #[test]
    fn a_job_is_a_command_line() {
        assert_eq!(line("ebizzy", 4), "/bin/ebizzy -S 10 -t 8");
        assert_eq!(
            line("ebizzy,mmap=never chunk=4096 chunks=3 seconds=2 threads=1", 4),
            "/bin/ebizzy -S 2 -t 1 -s 4096 -n 3 -M"
        );
        assert_eq!(
            line("dbench clients=16 seconds=60", 2),
            "/usr/bin/dbench -t 60 -c /usr/share/dbench/client.txt -D /tmp/dbench 16"
        );
        assert_eq!(line("sysbench", 3), "/usr/bin/sysbench threads --threads=3 --time=10 --events=0 run");
        assert_eq!(
            line("stress-ng stressor=switch", 3),
            "/usr/bin/stress-ng --switch 3 -t 10s --metrics-brief --temp-path /tmp"
        );
        assert_eq!(Job::parse("hackbench groups=2 loops=10").unwrap().run(9), {
            let arguments = ["-g", "2", "-l", "10"].map(str::to_owned).to_vec();
            Run::Again(Invocation { program: "/usr/bin/hackbench", arguments }, 8000)
        });
        assert!(matches!(Job::parse("kernbuild").unwrap().run(5), Run::InParallel(_, 5)));
    }

    #[test]
    fn what_is_no_job_is_refused_with_what_would_be_one() {
        for (text, part) in [
            ("", "there is no Linux workload ``; known are ebizzy"),
            ("dbnech", "no Linux workload `dbnech`"),
            ("dbench client=3", "`client=3` is no setting of dbench; known are seconds=, clients="),
            ("dbench 16", "`16` is no setting"),
            ("dbench clients=0", "`0` is no value of `clients`; give a whole number from 1 to 4096"),
            ("dbench clients=+1", "`+1` is no value"),
            ("dbench clients=1 clients=2", "`clients` is given twice"),
            ("ebizzy mmap=yes", "give one of always, never"),
        ] {
            let error = Job::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(Job::parse("dbench seconds=1").unwrap().lasting(3).is_err());
        assert_eq!(Job::parse("dbench").unwrap().lasting(3).unwrap().seconds(), 3);
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(tool in 0usize..6, threads in 1u32..4096, seconds in 1u32..300) {
            let tool = Tool::ALL[tool];
            let key = tool.keys()[1].0;
            let threads = if tool == Tool::Hackbench { threads % 100 + 1 } else { threads };
            let job = Job::parse(&format!("{} {key}={threads}", tool.name())).unwrap().lasting(seconds).unwrap();
            let printed = job.to_string();
            prop_assert!(!printed.contains(' '));
            prop_assert_eq!(Job::parse(&printed).unwrap(), job);
        }

        #[test]
        fn no_text_panics_and_what_is_accepted_is_printed_and_read_back(text in ".{0,60}") {
            if let Ok(job) = Job::parse(&text) {
                prop_assert_eq!(Job::parse(&job.to_string()).unwrap(), job);
            }
        }
    }
}
