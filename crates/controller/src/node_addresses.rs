//! Addresses of nodes: which node gets which address of which pool, and when it may apply it.
//!
//! ```text
//!  policy, nodes ──▶ enactment created ──▶ pool: offset taken, promised ──▶ enactment: address, turn ──▶ agent applies
//!                    enactment deleted ──▶ agent removes the address ──▶ pool: offset freed, cools ──▶ enactment gone
//! ```
//!
//! The pool is the lock: an offset is taken there before an enactment names its address. It is freed only after the
//! node has reported, for an enactment in deletion, that the address is off its interfaces. An enactment's addresses
//! never change; another address means another enactment.

mod belongs;
mod companion;
mod conditions;
mod events;
mod known;
mod metrics;
mod perform;
mod planner;
mod policy;
mod pool;
#[cfg(test)]
mod proptests;
#[cfg(test)]
mod tests;
mod write;

use std::sync::Arc;
use std::time::Duration;

use kube::{Api, Client};
use prometheus_client::registry::Registry;
use tenure_api::nmstate::{NodeIPPool, NodeNetworkConfigurationEnactment, NodeNetworkConfigurationPolicy};

use crate::cache::Seen;
use crate::kind::kept_kind;
use crate::part::{Count, Part, Perform, Plan};
use crate::watch::{Watch, Watches};
use crate::world::World;

pub use known::{EnactmentFacts, Mode, NodeAddresses, PolicyFacts, PoolFacts};
pub use write::NodeAddressWrite;

/// Addresses of nodes, as a part of the controller.
#[derive(Clone, Debug)]
pub struct NodeAddressesPart {
    /// How long a freed address cools before another node gets it.
    pub cooling: Duration,
    /// How long a node has to be missing before its addresses are freed without it.
    pub missing_node_rest: Duration,
}

impl Part for NodeAddressesPart {
    fn watch(&self, watches: &mut Watches<'_>) {
        let client = watches.client();
        let optional = || Watch { may_be_missing: true, ..Watch::default() };
        watches.add::<NodeIPPool>(Api::all(client.clone()), optional());
        watches.add::<NodeNetworkConfigurationPolicy>(Api::all(client.clone()), optional());
        watches.add::<NodeNetworkConfigurationEnactment>(Api::all(client), optional());
    }

    fn planner(&self) -> Box<dyn Plan> {
        Box::new(planner::NodePlanner::new(self))
    }

    fn performer(&self, client: &Client) -> (&'static str, Arc<dyn Perform>) {
        (write::PART, Arc::new(perform::NodePerformer::new(client.clone())))
    }

    fn metrics(&self, registry: &mut Registry) -> Box<dyn Count> {
        Box::new(metrics::NodeMetrics::registered(registry))
    }
}

kept_kind!(NodeIPPool, "NodeIPPool", Seen<PoolFacts>, node_addresses_mut.pools, PoolFacts::seen, forget_mode);
kept_kind!(
    NodeNetworkConfigurationPolicy,
    "NodeNetworkConfigurationPolicy",
    Seen<PolicyFacts>,
    node_addresses_mut.policies,
    PolicyFacts::seen,
    forget_mode
);
kept_kind!(
    NodeNetworkConfigurationEnactment,
    "NodeNetworkConfigurationEnactment",
    Seen<EnactmentFacts>,
    node_addresses_mut.enactments,
    EnactmentFacts::seen,
    forget_mode
);

/// Without the kinds, it is not known who configures interfaces.
fn forget_mode(world: &mut World) {
    world.node_addresses_mut().forget_mode();
}
