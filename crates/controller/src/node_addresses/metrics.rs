//! Metrics of node addresses.

use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tenure_api::nmstate::condition;
use tenure_handles::Timestamp;

use crate::cache::Known;
use crate::metrics::{Numbers, labels, metric};
use crate::part::Count;
use crate::world::World;

/// Counts of pools and policies.
#[derive(Debug)]
pub(super) struct NodeMetrics {
    addresses: Numbers,
    enactments: Numbers,
}

impl NodeMetrics {
    pub(super) fn registered(registry: &mut Registry) -> Self {
        Self {
            addresses: metric(
                registry,
                "tenure_node_pool_addresses",
                "Addresses of a NodeIPPool by state: capacity, allocated, free",
            ),
            enactments: metric(
                registry,
                "tenure_node_policy_enactments",
                "Nodes of a NodeNetworkConfigurationPolicy by state: available, failing, leaving, waiting",
            ),
        }
    }
}

impl Count for NodeMetrics {
    fn count(&self, world: &World, leads: bool, _: usize, _: Timestamp) {
        [&self.addresses, &self.enactments].into_iter().for_each(Family::clear);
        if !leads {
            return;
        }
        for pool in world.node_addresses().pools.iter() {
            let usage = pool.facts.object.status.as_ref().and_then(|it| it.addresses.as_ref());
            let Some(usage) = usage else { continue };
            let counts =
                [("capacity", &usage.capacity), ("allocated", &usage.allocated), ("free", &usage.free)];
            for (state, count) in counts {
                let labels = labels([("pool", &pool.key()), ("state", state)]);
                self.addresses.get_or_create(&labels).set(count.parse().unwrap_or_default());
            }
        }
        for enactment in world.node_addresses().enactments.iter() {
            let facts = &enactment.facts;
            let state = if facts.deleting {
                "leaving"
            } else if facts.is(condition::AVAILABLE).is_some() {
                "available"
            } else if facts.is(condition::FAILING).is_some() {
                "failing"
            } else {
                "waiting"
            };
            let policy = facts.policy.as_deref().unwrap_or_default();
            let labels = labels([("policy", policy), ("state", state)]);
            self.enactments.get_or_create(&labels).inc();
        }
    }
}
