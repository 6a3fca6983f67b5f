// SPDX-License-Identifier: Apache-2.0
//! What can be wrong with one value of a flag or key, before anything is known of the rest of the configuration.

use topology::cpu_set::CpuSetError;

/// Why a value was refused. The message does not name the flag: whoever knows it puts it in front.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// A key of a `key=value` list that does not exist.
    #[error("unknown key `{key}`{}; known keys are {known}", did_you_mean(.nearest.as_deref()))]
    UnknownKey {
        /// The key as written.
        key: String,
        /// The known key nearest to it, if one is near.
        nearest: Option<String>,
        /// All known keys, separated by commas.
        known: String,
    },
    /// A key given twice, where the second would silently win.
    #[error("key `{key}` is given twice; give it once")]
    RepeatedKey {
        /// The key.
        key: String,
    },
    /// A word without `=` where a `key=value` is expected.
    #[error("`{word}` is not of the form key=value; known keys are {known}")]
    NotKeyValue {
        /// The word.
        word: String,
        /// All known keys, separated by commas.
        known: String,
    },
    /// The first word must be a number and is not.
    #[error("`{value}` is not a whole number from {min} to {max}")]
    Number {
        /// What was written.
        value: String,
        /// Least accepted number.
        min: u32,
        /// Greatest accepted number.
        max: u32,
    },
    /// Not a size.
    #[error("`{value}` is not a size; write bytes, or a whole number with K, M, G or T (powers of 1024), as in 512M")]
    Size {
        /// What was written.
        value: String,
    },
    /// A size of 2^64 bytes or more.
    #[error("`{value}` does not fit 64 bits of bytes; the greatest size is {}T", u64::MAX >> 40)]
    SizeOverflow {
        /// What was written.
        value: String,
    },
    /// Brackets that do not match.
    #[error("brackets in `{value}` do not match; a list is written [0-3,8]")]
    Brackets {
        /// What was written.
        value: String,
    },
    /// A word of a list that is none of those known.
    #[error("`{word}` is no {kind}{}; known are {known}", did_you_mean(.nearest.as_deref()))]
    UnknownWord {
        /// What the words of the list name.
        kind: &'static str,
        /// The word as written.
        word: String,
        /// The known word nearest to it, if one is near.
        nearest: Option<String>,
        /// The known words.
        known: String,
    },
    /// Not a list of CPUs.
    #[error(transparent)]
    CpuList(#[from] CpuSetError),
    /// Not a distance.
    #[error("`{value}` is not a distance; write FROM:TO=DISTANCE, as in 0:1=21")]
    Distance {
        /// What was written.
        value: String,
    },
    /// Not a number.
    #[error("`{value}` is not a value of {name}; write a whole number")]
    Parameter {
        /// The parameter.
        name: &'static str,
        /// What was written.
        value: String,
    },
    /// A parameter out of its range.
    #[error("{name} is {value}, outside {min} to {max}; choose a value in that range")]
    OutOfRange {
        /// The parameter.
        name: &'static str,
        /// What was asked for.
        value: u64,
        /// Least accepted value.
        min: u64,
        /// Greatest accepted value.
        max: u64,
    },
    /// A key that must be given is not.
    #[error("`{key}` is missing; write for example {example}")]
    MissingKey {
        /// The key.
        key: &'static str,
        /// A whole value.
        example: &'static str,
    },
    /// Not a duration, or one out of range.
    #[error("`{value}` is not a time from {min_ns} ns to {max_ns} ns; write a whole number with ns, us, ms or s")]
    Duration {
        /// What was written.
        value: String,
        /// Least accepted time.
        min_ns: u64,
        /// Greatest accepted time.
        max_ns: u64,
    },
    /// No host nodes where there must be one.
    #[error("`{value}` names no host node; write host-node=0 or host-node=[0,1], or leave it out")]
    NoHostNodes {
        /// What was written.
        value: String,
    },
    /// No CPUs where there must be one.
    #[error("`{value}` names no host CPU; write pin=0 or pin=[0,1]")]
    NoCpus {
        /// What was written.
        value: String,
    },
    /// Not a place for the serial port.
    #[error("`{value}` is no place for the serial port; write stdio, none or file=PATH")]
    Serial {
        /// What was written.
        value: String,
    },
    /// Not a placement.
    #[error(
        "`{value}` is no placement; write auto, spread, pack, none, pin=CPU or pin=[LIST], and ,exclusive behind any but none"
    )]
    Placement {
        /// What was written.
        value: String,
    },
    /// Not a memory policy.
    #[error("`{value}` is no memory policy; write default, preferred, bind or interleave")]
    MemoryPolicy {
        /// What was written.
        value: String,
    },
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |nearest| format!(", did you mean `{nearest}`?"))
}
