//! What people see of the node's own addresses: health, and their section of the node's view.

use ipnet::IpNet;
use tenure_watch::ApiHealth;

use super::{NodeAddresses, PolicyState};
use crate::part::Inspect;

impl Inspect for NodeAddresses {
    fn health(&self) -> Option<ApiHealth> {
        Some(Self::health(self))
    }

    fn show(&self, node: &mut tenure_view::Node) {
        node.node_addresses = self.state().into_iter().map(policy).collect();
    }
}

fn policy(state: PolicyState) -> tenure_view::NodePolicy {
    let PolicyState { policy, addresses, problem } = state;
    let address = |(interface, address): (String, IpNet)| tenure_view::NodeAddress { interface, address };
    tenure_view::NodePolicy { policy, addresses: addresses.into_iter().map(address).collect(), problem }
}
