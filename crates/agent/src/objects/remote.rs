//! Routes to other nodes' blocks and claims, for hosts on a flat network without a routing daemon: which networks are behind
//! which node's address.
//!
//! A block is reached through its node's first internal address of the same family. A routed address of a claim is reached
//! through the node of the pod that has the claim now, if the record confirms the address: a status could name any address.
//! This node's own blocks, unknown nodes, nodes without an address of the family, and blocks without a node are left out.
//!
//! The kernel looks these routes up after those to this node's own pods. So the node that a claim leaves can have its route to
//! the next node at once: it delivers packets locally as long as it can, and forwards them afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use tenure_api::coil::AddressBlock;
use tenure_ipam::{Address, Cidr, Family, Subnet};
use tenure_watch::{Cache, Seen};
use tokio::sync::{Notify, watch};

use super::lock;

/// The networks behind each gateway.
pub type RemoteRoutes = BTreeMap<IpAddr, BTreeSet<Cidr>>;

/// These routes, and those of `before` to networks that they do not cover.
pub fn with_lingering(routes: &RemoteRoutes, before: &RemoteRoutes) -> RemoteRoutes {
    let known: BTreeSet<Cidr> = routes.values().flatten().copied().collect();
    let mut all = routes.clone();
    for (gateway, networks) in before {
        for network in networks.iter().filter(|network| !known.contains(network)) {
            all.entry(*gateway).or_default().insert(*network);
        }
    }
    all
}

/// A block, as far as its routes are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RemoteBlock {
    /// A node's block.
    Node { node: String, subnet: Subnet },
    /// A block of claims, which no node owns: the addresses by claim UID, also of claims whose object is gone.
    Claims(Vec<(Box<str>, Vec<Address>)>),
}

impl RemoteBlock {
    pub(super) fn of(block: &AddressBlock) -> Option<Self> {
        if block.is_floating() {
            let held = tenure_claims::in_block(block);
            let held = held.map(|(record, addresses)| (record.uid.as_str().into(), addresses));
            return Some(Self::Claims(held.collect()));
        }
        Some(Self::Node { node: block.node()?.to_owned(), subnet: block.spec.to_subnet().ok()? })
    }

    /// Its owner and its networks, if a node owns it.
    fn of_node(&self) -> Option<(&str, &Subnet)> {
        match self {
            Self::Node { node, subnet } => Some((node, subnet)),
            Self::Claims(_) => None,
        }
    }

    /// The claims with addresses in it.
    fn of_claims(&self) -> &[(Box<str>, Vec<Address>)] {
        match self {
            Self::Node { .. } => &[],
            Self::Claims(held) => held,
        }
    }
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

/// A claim that a pod has, as far as its routes are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoteClaim {
    /// The pod's node.
    pub(crate) node: String,
    /// The addresses that are routed.
    pub(crate) addresses: Vec<Address>,
}

/// Claims that pods have, by UID.
#[derive(Debug, Default)]
struct RemoteClaims {
    /// Whether all are known.
    listed: bool,
    living: BTreeMap<String, RemoteClaim>,
    /// Claims whose object is gone. Their pods keep the addresses until they end: these are routed as long as the record names
    /// the claim, and nobody else has them.
    gone: BTreeMap<String, RemoteClaim>,
}

/// How long to wait after a change: single changes are published at once, and bursts together.
const REST: Duration = Duration::from_millis(10);
/// How long the first routes wait for claims. Without them the kernel would lose the routes of a previous agent.
const CLAIMS_PATIENCE: Duration = Duration::from_secs(5);

/// Collects what is known of other nodes.
pub(super) struct Remote {
    own: String,
    pub(super) blocks: Mutex<Cache<Seen<RemoteBlock>>>,
    pub(super) nodes: Mutex<Cache<Seen<NodeAddresses>>>,
    claims: Mutex<RemoteClaims>,
    changed: Notify,
    routes: watch::Sender<Option<RemoteRoutes>>,
}

impl Remote {
    pub(super) fn new(own: String) -> Self {
        Self {
            own,
            blocks: Mutex::default(),
            nodes: Mutex::default(),
            claims: Mutex::default(),
            changed: Notify::new(),
            routes: watch::Sender::new(None),
        }
    }

    /// The routes, once all are known.
    pub(super) fn routes(&self) -> watch::Receiver<Option<RemoteRoutes>> {
        self.routes.subscribe()
    }

    /// Something has changed.
    pub(super) fn look(&self) {
        self.changed.notify_one();
    }

    /// A pod has a claim, or none does.
    pub(super) fn claim_seen(&self, uid: &str, claim: Option<RemoteClaim>) {
        let mut claims = lock(&self.claims);
        claims.gone.remove(uid);
        match claim {
            Some(claim) => claims.living.insert(uid.to_owned(), claim),
            None => claims.living.remove(uid),
        };
        drop(claims);
        self.look();
    }

    /// A claim's object is gone.
    pub(super) fn claim_gone(&self, uid: &str) {
        let mut claims = lock(&self.claims);
        if let Some(claim) = claims.living.remove(uid) {
            claims.gone.insert(uid.to_owned(), claim);
        }
    }

    /// All claims are known.
    pub(super) fn claims_listed(&self) {
        lock(&self.claims).listed = true;
        self.look();
    }

    /// Keeps the routes up to date. With `claims`, they wait a while until these are known.
    pub(super) async fn keep(&self, claims: bool) {
        if claims {
            let listed = async {
                while !lock(&self.claims).listed {
                    self.changed.notified().await;
                }
            };
            drop(tokio::time::timeout(CLAIMS_PATIENCE, listed).await);
        }
        loop {
            self.update();
            tokio::time::sleep(REST).await;
            self.changed.notified().await;
        }
    }

    fn update(&self) {
        let (blocks, nodes) = (lock(&self.blocks), lock(&self.nodes));
        if blocks.is_complete() && nodes.is_complete() {
            let routes = routes(&self.own, &blocks, &nodes, &mut lock(&self.claims));
            self.routes.send_if_modified(|known| {
                let changed = known.as_ref() != Some(&routes);
                *known = Some(routes);
                changed
            });
        }
    }
}

fn routes(
    own: &str,
    blocks: &Cache<Seen<RemoteBlock>>,
    nodes: &Cache<Seen<NodeAddresses>>,
    claims: &mut RemoteClaims,
) -> RemoteRoutes {
    let mut routes = RemoteRoutes::new();
    let of_nodes = blocks.iter().filter_map(|block| block.facts.of_node());
    for (node, subnet) in of_nodes.filter(|(node, _)| *node != own) {
        let Some(node) = nodes.facts(node) else { continue };
        for (network, gateway) in [(subnet.ipv4, node.ipv4), (subnet.ipv6, node.ipv6)] {
            if let (Some(network), Some(gateway)) = (network, gateway) {
                routes.entry(gateway).or_default().insert(network);
            }
        }
    }
    for (address, node) in claims.places(blocks).into_iter().filter(|(_, node)| node != own) {
        let Some(node) = nodes.facts(&node) else { continue };
        let gateway = match address.family() {
            Family::V4 => node.ipv4,
            Family::V6 => node.ipv6,
        };
        if let Some(gateway) = gateway {
            routes.entry(gateway).or_default().insert(Cidr::host(address));
        }
    }
    routes
}

impl RemoteClaims {
    /// Where each address is: only those that the record confirms, whatever the status says. Forgets gone claims whose
    /// addresses are free or belong to others.
    fn places(&mut self, blocks: &Cache<Seen<RemoteBlock>>) -> BTreeMap<Address, String> {
        let on_record: BTreeSet<(&str, Address)> = blocks
            .iter()
            .flat_map(|block| block.facts.of_claims())
            .flat_map(|(uid, addresses)| addresses.iter().map(move |address| (&**uid, *address)))
            .collect();
        let mut places = BTreeMap::new();
        for (uid, claim) in &self.living {
            let proven = claim.addresses.iter().filter(|it| on_record.contains(&(uid.as_str(), **it)));
            places.extend(proven.map(|address| (*address, claim.node.clone())));
        }
        self.gone.retain(|uid, claim| {
            claim.addresses.retain(|address| on_record.contains(&(uid.as_str(), *address)));
            !claim.addresses.is_empty()
        });
        for claim in self.gone.values() {
            places.extend(claim.addresses.iter().map(|address| (*address, claim.node.clone())));
        }
        places
    }
}
