// SPDX-License-Identifier: Apache-2.0
//! The caches of a machine: how large, and shared by whom.
//!
//! Sizes come from the host's CPUID ([`crate::cpuid::host_caches`]) so that software which tunes itself to a cache
//! tunes to the real one, or from [`default_caches`]. Sharing never comes from the host: it follows the guest's shape.
//! Invariant: every CPU has the same caches.

use serde::{Deserialize, Serialize};

use crate::error::TopologyError;

/// What a cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheKind {
    /// Data only.
    Data,
    /// Instructions only.
    Instruction,
    /// Both.
    Unified,
}

impl CacheKind {
    /// The letter that tools print behind the level: `L1d`, `L1i`, `L2`.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Data => "d",
            Self::Instruction => "i",
            Self::Unified => "",
        }
    }

    /// The kind as a word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Instruction => "instruction",
            Self::Unified => "unified",
        }
    }
}

/// Which part of the machine has one such cache to share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheScope {
    /// The threads of a core.
    Core,
    /// The cores of a cluster (Intel: module).
    Cluster,
    /// The clusters of a die.
    Die,
}

/// One cache of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CacheSpec {
    /// Level, 1 to 3.
    pub level: u8,
    /// What it holds.
    pub kind: CacheKind,
    /// Size in bytes of each such cache: a multiple of `ways * line_bytes`.
    pub size_bytes: u64,
    /// Ways of associativity, 1 to 1024; 1 is direct-mapped.
    pub ways: u32,
    /// Size of a line in bytes, a power of two up to 4096.
    pub line_bytes: u32,
    /// Whether every line of the lower levels is also in this one.
    pub inclusive: bool,
}

impl CacheSpec {
    /// Number of sets.
    #[must_use]
    pub fn sets(&self) -> u64 {
        self.size_bytes / (u64::from(self.ways) * u64::from(self.line_bytes)).max(1)
    }

    /// The name that tools give it: `L1d`, `L1i`, `L2`, `L3`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("L{}{}", self.level, self.kind.suffix())
    }

    pub(crate) fn check(&self) -> Result<(), TopologyError> {
        if !(1..=3).contains(&self.level) {
            return Err(TopologyError::CacheLevel { level: self.level, kind: self.kind.name() });
        }
        let way_bytes = u64::from(self.ways) * u64::from(self.line_bytes);
        let fits = (1..=1024).contains(&self.ways)
            && self.line_bytes.is_power_of_two()
            && self.line_bytes <= 4096
            && self.size_bytes >= way_bytes
            && self.size_bytes.is_multiple_of(way_bytes)
            && u32::try_from(self.sets()).is_ok();
        if fits {
            return Ok(());
        }
        let Self { level, size_bytes, ways, line_bytes, .. } = *self;
        Err(TopologyError::CacheGeometry { level, size_bytes, ways, line_bytes })
    }
}

/// The caches of a machine whose host says nothing: those of an ordinary server core.
///
/// 32 KiB of L1 for data and for instructions (8 ways), 1 MiB of L2 (16 ways), 16 MiB of L3 (16 ways), lines of 64
/// bytes, none inclusive.
#[must_use]
pub fn default_caches() -> Vec<CacheSpec> {
    let cache = |level, kind, kib: u64, ways| CacheSpec {
        level,
        kind,
        size_bytes: kib << 10,
        ways,
        line_bytes: 64,
        inclusive: false,
    };
    vec![
        cache(1, CacheKind::Data, 32, 8),
        cache(1, CacheKind::Instruction, 32, 8),
        cache(2, CacheKind::Unified, 1024, 16),
        cache(3, CacheKind::Unified, 16 << 10, 16),
    ]
}

/// Checks caches and puts them in the order in which CPUID lists them: by level, data before instructions.
///
/// An empty list means the default ones. Linux expects an L3 cache at index 3 on AMD
/// (`arch/x86/kernel/cpu/cacheinfo.c`, `__cache_amd_cpumap_setup`).
pub(crate) fn checked(mut caches: Vec<CacheSpec>) -> Result<Vec<CacheSpec>, TopologyError> {
    if caches.is_empty() {
        return Ok(default_caches());
    }
    caches.sort_by_key(|cache| (cache.level, cache.kind));
    for cache in &caches {
        cache.check()?;
    }
    for pair in caches.windows(2) {
        if (pair[0].level, pair[0].kind) == (pair[1].level, pair[1].kind) {
            return Err(TopologyError::CacheLevel { level: pair[1].level, kind: pair[1].kind.name() });
        }
    }
    Ok(caches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_sound_and_in_order() {
        let caches = default_caches();
        assert_eq!(checked(caches.clone()).unwrap(), caches);
        assert_eq!(checked(Vec::new()).unwrap(), caches);
        let names: Vec<String> = caches.iter().map(CacheSpec::name).collect();
        assert_eq!(names, ["L1d", "L1i", "L2", "L3"]);
        assert_eq!(caches.iter().map(CacheSpec::sets).collect::<Vec<_>>(), [64, 64, 1024, 16384]);
    }

    #[test]
    fn a_cache_that_cannot_be_is_refused() {
        let l2 = default_caches()[2];
        for wrong in [
            CacheSpec { ways: 0, ..l2 },
            CacheSpec { ways: 3, ..l2 },
            CacheSpec { ways: 2048, ..l2 },
            CacheSpec { line_bytes: 0, ..l2 },
            CacheSpec { line_bytes: 48, ..l2 },
            CacheSpec { size_bytes: 0, ..l2 },
        ] {
            assert!(matches!(checked(vec![wrong]), Err(TopologyError::CacheGeometry { .. })), "{wrong:?}");
        }
        assert!(matches!(checked(vec![CacheSpec { level: 4, ..l2 }]), Err(TopologyError::CacheLevel { level: 4, .. })));
        assert!(matches!(checked(vec![l2, l2]), Err(TopologyError::CacheLevel { level: 2, kind: "unified" })));
    }
}
