// SPDX-License-Identifier: Apache-2.0
//! Brings guest memory to where its vCPUs have gone for good (`policy::placement::rehome`).
//!
//! Invariant: memory that the user has tied stays; what the kernel refuses is counted and not tried again before something
//! else changes.

use std::time::Instant;

use policy::placement::{Home, rehome};
use policy::time::Nanos;
use topology::id::HostNode;

use super::account::Migration;
use super::memory;
use super::mover::Mover;

/// How long vCPUs must have been away from memory to which they cannot come back.
const PATIENCE_NS: u64 = 2_000_000_000;
/// Pages that are asked for afterwards.
const PAGES: usize = 512;

/// Since when memory should be elsewhere.
#[derive(Debug, Default)]
pub(super) struct Away {
    homes: Vec<Home>,
    since: Nanos,
    given_up: bool,
}

impl Mover {
    /// Moves memory whose vCPUs have been elsewhere for long enough.
    pub(super) fn follow(&mut self, now: Nanos) {
        if self.memory.len() != self.site.guest.nodes.len() || self.site.host.nodes().len() < 2 {
            return;
        }
        let homes: Vec<Option<HostNode>> = self.memory.iter().map(memory::movable_home).collect();
        let wanted = rehome(&self.site.host, &self.site.guest, &self.places, &homes);
        if wanted != self.away.homes {
            self.away = Away { homes: wanted, since: now, given_up: false };
            return;
        }
        if self.away.given_up || now.since(self.away.since) < PATIENCE_NS {
            return;
        }
        for home in self.away.homes.clone() {
            self.bring(home);
        }
    }

    fn bring(&mut self, home: Home) {
        let at = self.began.elapsed();
        let node = self.memory.iter_mut().find(|node| node.guest == home.guest);
        let Some((node, to)) = node.zip(home.host) else { return };
        let Some(from) = node.host_nodes.lowest() else { return };
        let begun = Instant::now();
        if memory::follow(node, to).is_err() {
            self.account.refused += 1;
            self.away.given_up = true;
            return;
        }
        let took = begun.elapsed();
        let found = memory::locate(node, PAGES).unwrap_or_default();
        self.account.migrations.push(Migration { at, guest: home.guest, from, to, took, found });
    }
}
