// SPDX-License-Identifier: Apache-2.0
//! What the bytes behind a KVM statistics descriptor mean (Documentation/virt/kvm/api.rst, 4.133 `KVM_GET_STATS_FD`).
//!
//! Pure: bytes in, [`Layout`] out, once per kernel object; values are then picked out of the data block by descriptor.
//! Invariant: whatever the bytes say, nothing is read outside them and no more than a
//! mebibyte of description and one of data is ever asked for.

/// Bytes of `struct kvm_stats_header`: six 32-bit words.
pub(super) const HEADER_BYTES: usize = 24;
/// Bytes of `struct kvm_stats_desc` before its name.
const DESCRIPTOR_BYTES: usize = 16;
/// Longest name that is taken; the kernel uses 48 bytes (`KVM_STATS_NAME_SIZE`).
const NAME_MAX: u32 = 256;
/// Most descriptors that are taken; the kernel has about 50.
const DESCRIPTORS_MAX: u32 = 1024;
/// Most bytes of header, id and descriptors.
pub(super) const PREFIX_MAX: usize = 1 << 20;
/// Most bytes of data.
pub(super) const DATA_MAX: usize = 1 << 20;

/// Bytes that are no description of statistics.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// There are fewer bytes than the description needs.
    #[error("{needed} bytes of KVM statistics are needed and {have} are there")]
    Truncated {
        /// Needed.
        needed: usize,
        /// There.
        have: usize,
    },
    /// Names longer than anything the kernel has.
    #[error("KVM statistics claim names of {bytes} bytes; 1 to {NAME_MAX} are taken")]
    NameSize {
        /// Claimed.
        bytes: u32,
    },
    /// More descriptors than anything the kernel has.
    #[error("KVM statistics claim {count} descriptors; at most {DESCRIPTORS_MAX} are taken")]
    Descriptors {
        /// Claimed.
        count: u32,
    },
    /// A block lies too far out.
    #[error("the {block} of the KVM statistics would end at byte {end}; at most {max} are taken")]
    Place {
        /// Which block.
        block: &'static str,
        /// Its end, in bytes.
        end: u64,
        /// What is taken.
        max: usize,
    },
    /// A name is not text that ends within its field, or is empty.
    #[error("descriptor {descriptor} of the KVM statistics has no name")]
    Name {
        /// Which, from 0.
        descriptor: u32,
    },
}

/// How values behave over time (`KVM_STATS_TYPE_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Cumulative,
    /// A state: may grow and shrink.
    Instant,
    /// The largest ever seen.
    Peak,
    /// Counts in buckets of equal width, [`Descriptor::bucket_size`]; the last bucket is open.
    LinearHistogram,
    /// Counts in buckets whose bounds are powers of two: bucket 0 holds 0, bucket n holds 2^(n-1) up to 2^n - 1.
    LogHistogram,
    /// One this program does not know, by its number.
    Unknown(u8),
}

impl Kind {
    /// The stable name in the report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cumulative => "cumulative",
            Self::Instant => "instant",
            Self::Peak => "peak",
            Self::LinearHistogram => "linear_histogram",
            Self::LogHistogram => "log_histogram",
            Self::Unknown(_) => "unknown",
        }
    }
}

/// What is counted (`KVM_STATS_UNIT_*`), before the exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Events or things.
    Count,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// Clock cycles.
    Cycles,
    /// 0 or 1.
    Boolean,
    /// One this program does not know, by its number.
    Unknown(u8),
}

/// What the exponent raises (`KVM_STATS_BASE_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// Powers of ten.
    Ten,
    /// Powers of two.
    Two,
    /// One this program does not know, by its number.
    Unknown(u8),
}

/// One statistic: its name and what its values mean (`struct kvm_stats_desc`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The kernel's name.
    pub name: Box<str>,
    /// How values behave.
    pub kind: Kind,
    /// What they count.
    pub unit: Unit,
    /// What `exponent` raises.
    pub base: Base,
    /// A value counts `base ^ exponent` units.
    pub exponent: i16,
    /// Number of 64-bit values: 1, or the number of buckets.
    pub values: u16,
    /// Width of a bucket of a linear histogram.
    pub bucket_size: u32,
    offset: u32,
}

impl Descriptor {
    /// The unit with its exponent, as the report spells it: `count`, `ns`, `bytes`, `KiB`, or `10^e seconds`.
    #[must_use]
    pub fn unit_name(&self) -> String {
        let unit = match self.unit {
            Unit::Count => "count",
            Unit::Bytes => "bytes",
            Unit::Seconds => "seconds",
            Unit::Cycles => "cycles",
            Unit::Boolean => "boolean",
            Unit::Unknown(_) => "unknown",
        };
        match (self.unit, self.base, self.exponent) {
            (_, _, 0) => unit.to_owned(),
            (Unit::Seconds, Base::Ten, -9) => "ns".to_owned(),
            (Unit::Bytes, Base::Two, 10) => "KiB".to_owned(),
            (_, Base::Ten, exponent) => format!("10^{exponent} {unit}"),
            (_, Base::Two, exponent) => format!("2^{exponent} {unit}"),
            (_, Base::Unknown(base), exponent) => format!("base {base} ^{exponent} {unit}"),
        }
    }

    /// A value of this statistic in nanoseconds, saturating; `None` unless it counts (decimal parts of) seconds.
    #[must_use]
    pub fn to_ns(&self, value: u64) -> Option<u64> {
        if self.unit != Unit::Seconds || !(self.base == Base::Ten || self.exponent == 0) {
            return None;
        }
        let power = i32::from(self.exponent) + 9;
        let factor = 10u64.checked_pow(power.unsigned_abs()).unwrap_or(u64::MAX);
        Some(if power >= 0 { value.saturating_mul(factor) } else { value / factor })
    }

    fn end(&self) -> u64 {
        u64::from(self.offset) + u64::from(self.values) * 8
    }
}

/// `struct kvm_stats_header`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    name_bytes: u32,
    descriptors: u32,
    id_offset: u32,
    descriptors_offset: u32,
    data_offset: u32,
}

impl Header {
    /// Reads the header, with every number in it checked.
    ///
    /// # Errors
    /// [`FormatError`]; never for bytes behind the header.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        // Word 0 is `flags`, always 0 and reserved.
        let header = Self {
            name_bytes: word(bytes, 4)?,
            descriptors: word(bytes, 8)?,
            id_offset: word(bytes, 12)?,
            descriptors_offset: word(bytes, 16)?,
            data_offset: word(bytes, 20)?,
        };
        if header.name_bytes == 0 || header.name_bytes > NAME_MAX {
            return Err(FormatError::NameSize { bytes: header.name_bytes });
        }
        if header.descriptors > DESCRIPTORS_MAX {
            return Err(FormatError::Descriptors { count: header.descriptors });
        }
        header.prefix_bytes().map(|_| header)
    }

    /// How many bytes from the start hold header, id and descriptors: at most 1 MiB.
    ///
    /// # Errors
    /// [`FormatError::Place`].
    pub fn prefix_bytes(&self) -> Result<usize, FormatError> {
        let id_end = u64::from(self.id_offset) + u64::from(self.name_bytes);
        let stride = DESCRIPTOR_BYTES as u64 + u64::from(self.name_bytes);
        let descriptors_end = u64::from(self.descriptors_offset) + u64::from(self.descriptors) * stride;
        let end = id_end.max(descriptors_end).max(HEADER_BYTES as u64);
        place("description", end, PREFIX_MAX)
    }

    fn descriptor_at(&self, number: u32) -> usize {
        self.descriptors_offset as usize + number as usize * (DESCRIPTOR_BYTES + self.name_bytes as usize)
    }
}

/// Everything about a statistics descriptor but the values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    header: Header,
    descriptors: Vec<Descriptor>,
    data_bytes: usize,
}

impl Layout {
    /// Reads header and descriptors from the first [`Header::prefix_bytes`] bytes.
    ///
    /// # Errors
    /// [`FormatError`], one variant per way to be wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let header = Header::parse(bytes)?;
        let needed = header.prefix_bytes()?;
        if bytes.len() < needed {
            return Err(FormatError::Truncated { needed, have: bytes.len() });
        }
        let descriptors = (0..header.descriptors)
            .map(|number| descriptor(bytes, header.descriptor_at(number), header.name_bytes as usize, number))
            .collect::<Result<Vec<_>, _>>()?;
        let end = descriptors.iter().map(Descriptor::end).max().unwrap_or(0);
        Ok(Self { header, data_bytes: place("data", end, DATA_MAX)?, descriptors })
    }

    /// The header this was read from: an object of the same kind has the same.
    #[must_use]
    pub fn header(&self) -> Header {
        self.header
    }

    /// Every statistic, in the kernel's order.
    #[must_use]
    pub fn descriptors(&self) -> &[Descriptor] {
        &self.descriptors
    }

    /// The statistic of a name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Descriptor> {
        self.descriptors.iter().find(|descriptor| &*descriptor.name == name)
    }

    /// Where the values begin in the file, in bytes.
    #[must_use]
    pub fn data_offset(&self) -> u64 {
        u64::from(self.header.data_offset)
    }

    /// How many bytes all values take: at most 1 MiB.
    #[must_use]
    pub fn data_bytes(&self) -> usize {
        self.data_bytes
    }
}

/// The values of one statistic in the data block: one, or one a bucket. Values that lie outside are left out.
pub(super) fn values<'a>(descriptor: &Descriptor, data: &'a [u8]) -> impl Iterator<Item = u64> + use<'a> {
    let start = descriptor.offset as usize;
    let end = start.saturating_add(usize::from(descriptor.values) * 8).min(data.len());
    let (words, _) = data.get(start..end).unwrap_or_default().as_chunks::<8>();
    words.iter().map(|word| u64::from_ne_bytes(*word))
}

fn descriptor(bytes: &[u8], at: usize, name_bytes: usize, number: u32) -> Result<Descriptor, FormatError> {
    let flags = word(bytes, at)?;
    let [e0, e1, v0, v1] = word(bytes, at + 4)?.to_ne_bytes();
    let field = bytes.get(at + DESCRIPTOR_BYTES..at + DESCRIPTOR_BYTES + name_bytes).unwrap_or_default();
    let length = field.iter().position(|byte| *byte == 0).unwrap_or(0);
    let name = std::str::from_utf8(&field[..length]).unwrap_or_default();
    if name.is_empty() {
        return Err(FormatError::Name { descriptor: number });
    }
    Ok(Descriptor {
        name: name.into(),
        kind: kind(flags),
        unit: unit(flags),
        base: base(flags),
        exponent: i16::from_ne_bytes([e0, e1]),
        values: u16::from_ne_bytes([v0, v1]),
        offset: word(bytes, at + 8)?,
        bucket_size: word(bytes, at + 12)?,
    })
}

/// Flags[3:0], `KVM_STATS_TYPE_MASK`.
fn kind(flags: u32) -> Kind {
    match nibble(flags, 0) {
        0 => Kind::Cumulative,
        1 => Kind::Instant,
        2 => Kind::Peak,
        3 => Kind::LinearHistogram,
        4 => Kind::LogHistogram,
        other => Kind::Unknown(other),
    }
}

/// Flags[7:4], `KVM_STATS_UNIT_MASK`.
fn unit(flags: u32) -> Unit {
    match nibble(flags, 4) {
        0 => Unit::Count,
        1 => Unit::Bytes,
        2 => Unit::Seconds,
        3 => Unit::Cycles,
        4 => Unit::Boolean,
        other => Unit::Unknown(other),
    }
}

/// Flags[11:8], `KVM_STATS_BASE_MASK`.
fn base(flags: u32) -> Base {
    match nibble(flags, 8) {
        0 => Base::Ten,
        1 => Base::Two,
        other => Base::Unknown(other),
    }
}

fn nibble(flags: u32, shift: u32) -> u8 {
    (flags >> shift).to_le_bytes()[0] & 0xF
}

fn word(bytes: &[u8], at: usize) -> Result<u32, FormatError> {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk());
    word.map(|word| u32::from_ne_bytes(*word)).ok_or(FormatError::Truncated { needed: at + 4, have: bytes.len() })
}

fn place(block: &'static str, end: u64, max: usize) -> Result<usize, FormatError> {
    usize::try_from(end).ok().filter(|end| *end <= max).ok_or(FormatError::Place { block, end, max })
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
