//! Metrics of claims: how many of each network have their addresses or wait, and what pools set aside for them.

use std::collections::BTreeMap;

use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tenure_handles::Timestamp;

use crate::metrics::{Moves, Numbers, labels, metric};
use crate::part::Count;
use crate::world::World;

#[derive(Debug)]
pub(super) struct ClaimMetrics {
    claims: Numbers,
    blocks: Numbers,
    addresses: Numbers,
    moves: Moves,
}

impl ClaimMetrics {
    pub(super) fn registered(registry: &mut Registry) -> Self {
        Self {
            claims: metric(
                registry,
                "tenure_claims",
                "Claims of a network by state: allocated, or waiting for addresses",
            ),
            blocks: metric(
                registry,
                "tenure_pool_floating_blocks",
                "Blocks of a pool that no node owns, because their addresses are for claims",
            ),
            addresses: metric(
                registry,
                "tenure_pool_claimed_addresses",
                "Addresses of a pool that claims hold, or held while they cool, by state",
            ),
            moves: Moves::registered(
                registry,
                ["tenure_claim_moves", "tenure_claim_move_oldest_start_seconds"],
            ),
        }
    }
}

impl Count for ClaimMetrics {
    fn count(&self, world: &World, leads: bool, _: usize, now: Timestamp) {
        [&self.claims, &self.blocks, &self.addresses].into_iter().for_each(Family::clear);
        let all = leads.then(|| world.claims().all.iter()).into_iter().flatten();
        let moving = all.filter(|claim| claim.facts.slots.incoming.is_some());
        self.moves.are(moving.map(|claim| claim.facts.uid.clone()), now);
        if !leads {
            return;
        }
        let mut claims: BTreeMap<(&str, &'static str), u32> = BTreeMap::new();
        for claim in world.claims().all.iter() {
            let state = if claim.facts.held { "allocated" } else { "waiting" };
            *claims.entry((&claim.facts.network, state)).or_default() += 1;
        }
        for ((network, state), count) in claims {
            self.claims.get_or_create(&labels([("network", network), ("state", state)])).set(count.into());
        }
        let mut pools: BTreeMap<&str, [u32; 3]> = BTreeMap::new();
        for block in world.coil().blocks.iter().filter(|block| block.is_floating()) {
            let [blocks, held, cooling] = pools.entry(block.pool().unwrap_or_default()).or_default();
            let freed = block.spec.claims.values().filter(|record| record.freed.is_some()).count();
            let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
            *blocks += 1;
            *held += count(block.spec.claims.len() - freed);
            *cooling += count(freed);
        }
        for (pool, [blocks, held, cooling]) in pools {
            self.blocks.get_or_create(&labels([("pool", pool)])).set(blocks.into());
            for (state, count) in [("allocated", held), ("cooling", cooling)] {
                self.addresses.get_or_create(&labels([("pool", pool), ("state", state)])).set(count.into());
            }
        }
    }
}
