//! Other nodes' blocks and claims, for hosts on a flat network without a routing daemon: which networks lie behind which
//! node's address.
//!
//! A block is reached through the first internal address of its family that its node has; so is each routed address of a
//! claim, through the node of the pod that has the claim now, if the record says that the claim has it: a status could name any
//! address. What is of this node, of nodes that nobody knows, and of nodes
//! without an address of the family is left out, and so are blocks that no node owns.
//!
//! These routes are looked at after those to this node's own pods. So the node that a claim leaves may have its route to the
//! next one at once: packets are delivered here for as long as they can be, and forwarded from the moment on that they cannot.

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

/// These routes, and those of `before` to networks that they do not lead to.
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

/// A block, as far as routes to it are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RemoteBlock {
    /// A node's.
    Node { node: String, subnet: Subnet },
    /// One of claims, which no node owns: the UIDs of those that have addresses of it, also when their object is gone, and
    /// which.
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

    /// Whose it is, and its networks, if it is a node's.
    fn of_node(&self) -> Option<(&str, &Subnet)> {
        match self {
            Self::Node { node, subnet } => Some((node, subnet)),
            Self::Claims(_) => None,
        }
    }

    /// The claims that have addresses of it.
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

/// A claim that a pod has, as far as routes to it are concerned.
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
    /// Those whose object is gone. Their pod keeps the addresses until it ends: they are routed for as long as they are on
    /// record for the claim, and nobody else has them.
    gone: BTreeMap<String, RemoteClaim>,
}

/// How long routes rest after a change: one at a time is told at once, and many at once are told together.
const REST: Duration = Duration::from_millis(10);
/// How long the first routes wait for claims. Told without, the kernel would lose those that an agent before has made.
const CLAIMS_PATIENCE: Duration = Duration::from_secs(5);

/// Where what is known of other nodes comes together.
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

    /// The routes, from the moment that all are known.
    pub(super) fn routes(&self) -> watch::Receiver<Option<RemoteRoutes>> {
        self.routes.subscribe()
    }

    /// Something is different.
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

    /// Keeps the routes as they should be. With `claims`, they wait a while until these are known.
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
    /// Where each address is: only of what the record says that the claim has, whatever its status says. What is gone and free
    /// or somebody else's by now is forgotten.
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
