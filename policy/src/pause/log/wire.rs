// SPDX-License-Identifier: Apache-2.0
//! The numbers of the decision log: LEB128 varints, and times as signed distances.
//!
//! Invariant: reading never panics and never reads past the end; a number has one encoding only.

use topology::id::VcpuIndex;

use super::LogError;
use crate::time::Nanos;

/// Appends the fields of a record.
pub(super) struct Put<'a> {
    pub(super) out: &'a mut Vec<u8>,
    /// What times are written relative to.
    pub(super) base: Nanos,
}

impl Put<'_> {
    pub(super) fn byte(&mut self, value: u8) {
        self.out.push(value);
    }

    pub(super) fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.out.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.out.push(value.to_le_bytes()[0]);
    }

    pub(super) fn vcpu(&mut self, vcpu: VcpuIndex) {
        self.number(vcpu.0.into());
    }

    /// A number that may be missing: 0, or the number plus one.
    pub(super) fn optional(&mut self, value: Option<u32>) {
        self.number(value.map_or(0, |v| u64::from(v) + 1));
    }

    /// A time, as a zigzag distance from the base.
    pub(super) fn time(&mut self, time: Nanos) {
        let distance = time.0.wrapping_sub(self.base.0).cast_signed();
        self.number(((distance << 1) ^ (distance >> 63)).cast_unsigned());
    }
}

/// Takes the fields of a record off the front of the bytes.
pub(super) struct Take<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
    pub(super) base: Nanos,
}

impl Take<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    pub(super) fn byte(&mut self) -> Result<u8, LogError> {
        let byte = *self.bytes.get(self.at).ok_or(LogError::Truncated { at: self.at })?;
        self.at += 1;
        Ok(byte)
    }

    pub(super) fn number(&mut self) -> Result<u64, LogError> {
        let start = self.at;
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            let overflows = shift == 63 && bits > 1;
            let overlong = shift > 0 && byte == 0;
            if overflows || overlong {
                return Err(LogError::BadNumber { at: start });
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(LogError::BadNumber { at: start })
    }

    pub(super) fn small(&mut self) -> Result<u32, LogError> {
        let start = self.at;
        u32::try_from(self.number()?).map_err(|_| LogError::BadNumber { at: start })
    }

    pub(super) fn vcpu(&mut self) -> Result<VcpuIndex, LogError> {
        self.small().map(VcpuIndex)
    }

    pub(super) fn optional(&mut self) -> Result<Option<u32>, LogError> {
        let start = self.at;
        match self.number()? {
            0 => Ok(None),
            n => u32::try_from(n - 1).map(Some).map_err(|_| LogError::BadNumber { at: start }),
        }
    }

    pub(super) fn time(&mut self) -> Result<Nanos, LogError> {
        let coded = self.number()?;
        let distance = (coded >> 1) ^ (coded & 1).wrapping_neg();
        Ok(self.base.after(distance))
    }

    /// The variant whose position was written, of an enum with these variants.
    pub(super) fn variant<T: Copy>(&mut self, all: &[T], what: &'static str) -> Result<T, LogError> {
        let at = self.at;
        let value = self.byte()?;
        all.get(usize::from(value)).copied().ok_or(LogError::UnknownTag { what, value, at })
    }
}
