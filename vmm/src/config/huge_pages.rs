// SPDX-License-Identifier: Apache-2.0
//! How large the pages of guest memory are on the host: `2M`, `1G`, `thp` or `none`. Pure.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The pages that guest memory is made of on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ValueEnum)]
pub enum HugePages {
    /// Pages of 2 MiB from the host's pool, reserved before the guest starts.
    #[serde(rename = "2M")]
    #[value(name = "2M")]
    Pool2M,
    /// Pages of 1 GiB from the host's pool, reserved before the guest starts.
    #[serde(rename = "1G")]
    #[value(name = "1G")]
    Pool1G,
    /// Transparent huge pages: the kernel is asked to use pages of 2 MiB where it has them.
    #[serde(rename = "thp")]
    Thp,
    /// Pages of 4 KiB and no others, also where the host would use transparent huge pages by itself.
    #[serde(rename = "none")]
    None,
}

impl HugePages {
    /// Size of a page from the pool in bytes; `None` where no pool is used.
    #[must_use]
    pub const fn pool_page_bytes(self) -> Option<u64> {
        match self {
            Self::Pool2M => Some(2 << 20),
            Self::Pool1G => Some(1 << 30),
            Self::Thp | Self::None => None,
        }
    }
}

impl fmt::Display for HugePages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pool2M => "2M",
            Self::Pool1G => "1G",
            Self::Thp => "thp",
            Self::None => "none",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_files_spell_it_alike() {
        for pages in HugePages::value_variants() {
            assert_eq!(HugePages::from_str(&pages.to_string(), false), Ok(*pages));
            assert_eq!(serde_json::to_value(pages).unwrap(), pages.to_string());
        }
    }
}
