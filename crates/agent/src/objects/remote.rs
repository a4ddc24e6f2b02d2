//! Other nodes' blocks, for hosts on a flat network without a routing daemon: which networks lie behind which node's
//! address.
//!
//! A block is reached through the first internal address of its family that its node has. Blocks of this node, of nodes
//! that nobody knows, and of nodes without an address of the family are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::Node;
use tenure_ipam::{Cidr, Subnet};
use tokio::sync::watch;

use super::lock;
use super::mirror::Mirror;

/// The networks behind each gateway.
pub type RemoteRoutes = BTreeMap<IpAddr, BTreeSet<Cidr>>;

/// A block, as far as routes to it are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RemoteBlock {
    pub(super) node: String,
    pub(super) subnet: Subnet,
}

/// A node's internal addresses, the first one of each family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeAddresses {
    pub(super) ipv4: Option<IpAddr>,
    pub(super) ipv6: Option<IpAddr>,
}

impl NodeAddresses {
    pub(super) fn of(node: &Node) -> Self {
        let status = node.status.as_ref();
        let listed = status.and_then(|status| status.addresses.as_deref()).unwrap_or_default();
        let internal = listed.iter().filter(|address| address.type_ == "InternalIP");
        let parsed: Vec<IpAddr> = internal.filter_map(|address| address.address.parse().ok()).collect();
        Self {
            ipv4: parsed.iter().copied().find(IpAddr::is_ipv4),
            ipv6: parsed.iter().copied().find(IpAddr::is_ipv6),
        }
    }
}

/// Where what is known of other nodes comes together.
pub(super) struct Remote {
    own: String,
    pub(super) blocks: Arc<Mutex<Mirror<RemoteBlock>>>,
    pub(super) nodes: Arc<Mutex<Mirror<NodeAddresses>>>,
    routes: watch::Sender<Option<RemoteRoutes>>,
}

impl Remote {
    pub(super) fn new(own: String) -> Self {
        Self { own, blocks: Arc::default(), nodes: Arc::default(), routes: watch::Sender::new(None) }
    }

    /// The routes, from the moment that all are known.
    pub(super) fn routes(&self) -> watch::Receiver<Option<RemoteRoutes>> {
        self.routes.subscribe()
    }

    /// Something is different.
    pub(super) fn look(&self) {
        let blocks = lock(&self.blocks);
        let nodes = lock(&self.nodes);
        if blocks.is_complete() && nodes.is_complete() {
            let routes = routes(&self.own, &blocks, &nodes);
            self.routes.send_if_modified(|known| {
                let changed = known.as_ref() != Some(&routes);
                *known = Some(routes);
                changed
            });
        }
    }
}

fn routes(own: &str, blocks: &Mirror<RemoteBlock>, nodes: &Mirror<NodeAddresses>) -> RemoteRoutes {
    let mut routes = RemoteRoutes::new();
    for (_, block) in blocks.iter().filter(|(_, block)| block.node != own) {
        let Some(node) = nodes.get(&block.node) else { continue };
        for (network, gateway) in [(block.subnet.ipv4, node.ipv4), (block.subnet.ipv6, node.ipv6)] {
            if let (Some(network), Some(gateway)) = (network, gateway) {
                routes.entry(gateway).or_default().insert(network);
            }
        }
    }
    routes
}
