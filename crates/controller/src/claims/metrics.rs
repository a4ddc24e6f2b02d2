//! Claims in numbers: of networks how many have their addresses and how many wait, of pools what is for them.

use std::collections::BTreeMap;

use prometheus_client::registry::Registry;
use tenure_handles::Timestamp;

use crate::metrics::Numbers;
use crate::part::Count;
use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct ClaimMetrics {
    claims: Numbers,
    blocks: Numbers,
    addresses: Numbers,
}

impl ClaimMetrics {
    pub(super) fn registered(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        metrics.register(registry);
        metrics
    }

    fn register(&self, registry: &mut Registry) {
        registry.register(
            "tenure_claims",
            "Claims of a network by state: allocated, or waiting for addresses",
            self.claims.clone(),
        );
        registry.register(
            "tenure_pool_floating_blocks",
            "Blocks of a pool that no node owns, because their addresses are for claims",
            self.blocks.clone(),
        );
        registry.register(
            "tenure_pool_claimed_addresses",
            "Addresses of a pool that claims have, or had while they cool, by state",
            self.addresses.clone(),
        );
    }
}

impl Count for ClaimMetrics {
    fn count(&self, world: &World, leads: bool, _: usize, _: Timestamp) {
        for numbers in [&self.claims, &self.blocks, &self.addresses] {
            numbers.clear();
        }
        if !leads {
            return;
        }
        let mut claims: BTreeMap<(&str, &'static str), u32> = BTreeMap::new();
        for claim in world.claims().all.iter() {
            let state = if claim.facts.held { "allocated" } else { "waiting" };
            *claims.entry((&claim.facts.network, state)).or_default() += 1;
        }
        for ((network, state), count) in claims {
            let labels = vec![("network", network.to_owned()), ("state", state.to_owned())];
            self.claims.get_or_create(&labels).set(count.into());
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
            self.blocks.get_or_create(&vec![("pool", pool.to_owned())]).set(blocks.into());
            for (state, count) in [("allocated", held), ("cooling", cooling)] {
                let labels = vec![("pool", pool.to_owned()), ("state", state.to_owned())];
                self.addresses.get_or_create(&labels).set(count.into());
            }
        }
    }
}
