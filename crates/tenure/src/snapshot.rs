//! What was read of a system: objects of the API, agents' states, and pods. The output of verbs follows from
//! this alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::io::{self, Write as _};
use std::net::IpAddr;

use anyhow::{Result, anyhow};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest, EnginePool};
use tenure_api::read::Read;
use tenure_claims::Slots;
use tenure_handles::{Clock, SystemClock};
use tenure_ipam::{Address, Cidr, Subnet};
use tenure_view::Counts;

use crate::agents::Answers;
use crate::aliases::Aliases;
use crate::node_pools::NodePools;
use crate::query::Source;
use crate::ranges::Ranges;

/// The page size of lists.
const PAGE: u32 = 500;
/// The annotation of a static pod's mirror.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// What was read.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// When it was read.
    pub(crate) now: Timestamp,
    pub(crate) pools: Vec<AddressPool>,
    pub(crate) blocks: Vec<AddressBlock>,
    pub(crate) requests: Vec<BlockRequest>,
    /// Whereabouts' ranges.
    pub(crate) ranges: Ranges,
    /// Addresses of nodes.
    pub(crate) node_pools: NodePools,
    /// Alias addresses of a cloud.
    pub(crate) aliases: Aliases,
    /// The names of all nodes.
    pub(crate) nodes: BTreeSet<String>,
    /// Agents' answers, by node.
    pub(crate) agents: Answers,
    /// The pods of the cluster; `None` without Kubernetes.
    pub(crate) pods: Option<Vec<PodFacts>>,
    /// Which pods have a claim, by its namespace and name: for claims that were asked for.
    pub(crate) claims: BTreeMap<String, Slots>,
}

/// The facts about a pod's addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodFacts {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Empty if it is unknown which pod it is.
    pub(crate) uid: String,
    pub(crate) node: String,
    pub(crate) addresses: Vec<IpAddr>,
    /// Addresses on further networks, from its network status.
    pub(crate) networks: Vec<IpAddr>,
    /// The MAC addresses of its interfaces, from its network status.
    pub(crate) macs: Vec<String>,
    /// Whether it uses its node's own network.
    pub(crate) host_network: bool,
    /// Whether it has ended and has no interface any more.
    pub(crate) over: bool,
}

impl Snapshot {
    /// An empty snapshot of that time.
    pub(crate) fn empty(now: Timestamp) -> Self {
        Self {
            now,
            pools: Vec::new(),
            blocks: Vec::new(),
            requests: Vec::new(),
            ranges: Ranges::default(),
            node_pools: NodePools::default(),
            aliases: Aliases::default(),
            nodes: BTreeSet::new(),
            agents: Answers::new(),
            pods: None,
            claims: BTreeMap::new(),
        }
    }

    /// Pools and blocks, without asking agents.
    pub(crate) async fn of_objects(source: &Source) -> Result<Self> {
        let client = source.client()?;
        let mut snapshot = Self::empty(SystemClock.now().to_jiff());
        let ranges = &mut snapshot.ranges;
        (snapshot.pools, snapshot.blocks, ranges.slices, ranges.ledgers) = tokio::try_join!(
            every(client, "AddressPools", |it: AddressPool| Some(it)),
            every(client, "AddressBlocks", |it: AddressBlock| Some(it)),
            every_if_known(client, "NodeSlicePools"),
            every_if_known(client, "IPPools"),
        )?;
        let of_nodes = &mut snapshot.node_pools;
        *of_nodes = NodePools::read(client).await?;
        let aliases = &mut snapshot.aliases;
        (aliases.pools, aliases.ledgers, aliases.nodes) = tokio::try_join!(
            every_if_known(client, "IPPools of alias addresses"),
            every_if_known(client, "IPLedgers"),
            every_if_known(client, "NodeAliases"),
        )?;
        aliases.pools.sort_by_key(ResourceExt::name_any);
        aliases.ledgers.sort_by_key(ResourceExt::name_any);
        aliases.nodes.sort_by_key(ResourceExt::name_any);
        of_nodes.pools.sort_by_key(ResourceExt::name_any);
        of_nodes.enactments.sort_by_key(ResourceExt::name_any);
        ranges.slices.sort_by_key(ResourceExt::name_any);
        ranges.ledgers.sort_by_key(ResourceExt::name_any);
        snapshot.pools.sort_by_key(ResourceExt::name_any);
        snapshot.blocks.sort_by_key(|block| (block.pool().map(str::to_owned), block.spec.index));
        Ok(snapshot)
    }

    /// Whereabouts' ranges alone.
    pub(crate) async fn of_ranges(source: &Source) -> Result<Ranges> {
        let client = source.client()?;
        let (slices, ledgers) =
            tokio::try_join!(every_if_known(client, "NodeSlicePools"), every_if_known(client, "IPPools"),)?;
        Ok(Ranges { slices, ledgers, reservations: Vec::new() })
    }

    /// Pools, blocks, and the answers of their nodes' agents.
    pub(crate) async fn of_use(source: &Source) -> Result<Self> {
        let mut snapshot = Self::of_objects(source).await?;
        snapshot.agents = source.agents.all(&snapshot.owners()).await;
        Ok(snapshot)
    }

    /// Everything.
    pub(crate) async fn of_everything(source: &Source) -> Result<Self> {
        let client = source.client()?;
        let mut snapshot = Self::of_objects(source).await?;
        let (requests, nodes, reservations) = tokio::try_join!(
            every(client, "BlockRequests", |it: BlockRequest| Some(it)),
            every(client, "Nodes", |it: Node| Some(it.name_any())),
            every_if_known(client, "OverlappingRangeIPReservations"),
        )?;
        snapshot.ranges.reservations = reservations;
        (snapshot.requests, snapshot.nodes) = (requests, nodes.into_iter().collect());
        snapshot.requests.sort_by_key(ResourceExt::name_any);
        let mut asked = snapshot.owners();
        if source.cluster {
            // Agents of nodes without blocks have something to report, too: what they wait for.
            asked.retain(|node| snapshot.nodes.contains(node));
        }
        snapshot.agents = source.agents.all(&asked).await;
        if source.cluster {
            // Listed after the agents were asked, so that the pod of every hold is in the list or is gone by
            // now.
            snapshot.pods = Some(every(client, "Pods", |it: Pod| PodFacts::of(&it)).await?);
        }
        Ok(snapshot)
    }

    /// The nodes that blocks name.
    pub(crate) fn owners(&self) -> BTreeSet<String> {
        self.blocks.iter().filter_map(AddressBlock::node).map(str::to_owned).collect()
    }

    /// The block that answers a request by itself, if the request takes that as its answer.
    pub(crate) fn block_that_answers(&self, request: &BlockRequest) -> Option<&AddressBlock> {
        let uid = request.metadata.uid.as_deref().filter(|_| request.is_answered_by_block())?;
        self.blocks.iter().find(|block| block.request_uid() == Some(uid))
    }

    /// The readable pools as the engine's pools, by name.
    pub(crate) fn engines(&self) -> BTreeMap<String, EnginePool> {
        let engine = |pool: &AddressPool| Some((pool.name_any(), EnginePool::try_from(&pool.spec).ok()?));
        self.pools.iter().filter_map(engine).collect()
    }

    /// The agent's information about a block, or why there is none.
    pub(crate) fn told(&self, block: &AddressBlock) -> Result<&tenure_view::Block, String> {
        let node = block.node().ok_or("it names no node")?;
        let told = self.agents.get(node).ok_or_else(|| format!("nobody was asked on node \"{node}\""))?;
        let told = told.as_ref().map_err(Clone::clone)?;
        let uid = block.uid().unwrap_or_default();
        let known = told.blocks.iter().find(|it| it.uid == uid);
        known.ok_or_else(|| format!("the agent of node \"{node}\" does not know it"))
    }

    /// How many addresses of a block are in each state: from its agent, or for claims from its records.
    pub(crate) fn counts(&self, block: &AddressBlock) -> Result<Counts, String> {
        if !block.is_floating() {
            return self.told(block).map(|told| told.addresses);
        }
        let engine = block.pool().and_then(|name| self.pools.iter().find(|pool| pool.name_any() == name));
        let engine = engine.and_then(|pool| EnginePool::try_from(&pool.spec).ok());
        let space = engine.zip(subnet(block)).and_then(|(engine, subnet)| engine.space(&subnet).ok());
        let capacity = space.map_or(0, |space| u64::try_from(space.capacity()).unwrap_or(u64::MAX));
        let cooling = block.spec.claims.values().filter(|record| record.freed.is_some()).count() as u64;
        let held = block.spec.claims.len() as u64 - cooling;
        let free = capacity.saturating_sub(held).saturating_sub(cooling);
        Ok(Counts { capacity, held, cooling, reserved: 0, free })
    }

    /// Why agents did not answer, one line per node.
    pub(crate) fn silent(&self) -> Vec<String> {
        let silent = self.agents.iter().filter_map(|(node, told)| Some((node, told.as_ref().err()?)));
        silent.map(|(node, problem)| format!("? {node}: {problem}")).collect()
    }
}

impl PodFacts {
    pub(crate) fn of(pod: &Pod) -> Option<Self> {
        let (spec, status) = (pod.spec.as_ref()?, pod.status.as_ref()?);
        let addresses = status.pod_ips.iter().flatten().filter_map(|ip| ip.ip.parse().ok());
        Some(Self {
            namespace: pod.namespace()?,
            name: pod.name_any(),
            // The runtime knows a static pod by another UID than its mirror in the API.
            uid: pod.uid().filter(|_| !pod.annotations().contains_key(MIRROR)).unwrap_or_default(),
            node: spec.node_name.clone()?,
            addresses: addresses.collect(),
            networks: further_networks(pod),
            macs: macs(pod),
            host_network: spec.host_network == Some(true),
            over: matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")),
        })
    }

    pub(crate) fn label(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// A block's networks; `None` if they cannot be read.
pub(crate) fn subnet(block: &AddressBlock) -> Option<Subnet> {
    block.spec.to_subnet().ok()
}

/// A block's networks, one per family.
pub(crate) fn networks(block: &AddressBlock) -> impl Iterator<Item = Cidr> + use<> {
    subnet(block).into_iter().flat_map(|subnet| [subnet.ipv4, subnet.ipv6]).flatten()
}

/// Whether the address is in the block.
pub(crate) fn has(block: &AddressBlock, address: Address) -> bool {
    networks(block).any(|network| network.contains(address))
}

/// Every object of a kind, converted.
async fn every<K, T>(client: &Client, what: &str, of: impl Fn(K) -> Option<T>) -> Result<Vec<T>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let api: Api<Read<K>> = Api::all(client.clone());
    let mut params = ListParams::default().limit(PAGE);
    let mut found = Vec::new();
    loop {
        let page = api.list(&params).await.map_err(|error| friendly(error, what))?;
        let next = page.metadata.continue_.clone().filter(|token| !token.is_empty());
        for read in page.items {
            match read {
                Read::Is(object) => found.extend(of(object)),
                // The others are still worth showing.
                Read::Unreadable(it) => {
                    let _ = writeln!(io::stderr(), "tenure: of {what}, {it}");
                }
            }
        }
        match next {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

/// Every object of a kind that a cluster may lack.
pub(crate) async fn every_if_known<K>(client: &Client, what: &str) -> Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    match every(client, what, |it: K| Some(it)).await {
        Err(error) if is_unknown(&error) => Ok(Vec::new()),
        other => other,
    }
}

fn is_unknown(error: &anyhow::Error) -> bool {
    let status = error.chain().filter_map(|cause| cause.downcast_ref::<kube::Error>());
    status.into_iter().any(|error| matches!(error, kube::Error::Api(status) if status.code == 404))
}

/// A pod's networks, as the program that attached them reports.
fn network_status(pod: &Pod) -> Vec<serde_json::Value> {
    let status = pod.annotations().get(tenure_whereabouts::reconcile::NETWORK_STATUS);
    status.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// The MAC addresses of a pod's interfaces.
fn macs(pod: &Pod) -> Vec<String> {
    let networks = network_status(pod).into_iter();
    networks.filter_map(|network| Some(network.get("mac")?.as_str()?.to_lowercase())).collect()
}

/// The addresses on a pod's networks beyond the cluster's own.
fn further_networks(pod: &Pod) -> Vec<IpAddr> {
    let own = |network: &serde_json::Value| network.get("default").and_then(serde_json::Value::as_bool);
    let networks = network_status(pod).into_iter().filter(|network| own(network) != Some(true));
    let ips = networks.filter_map(|network| network.get("ips")?.as_array().cloned()).flatten();
    ips.filter_map(|ip| ip.as_str()?.parse().ok()).collect()
}

fn friendly(error: kube::Error, what: &str) -> anyhow::Error {
    let help = match &error {
        kube::Error::Api(status) if status.code == 404 => {
            "this server does not know them; are Tenure's kinds installed (deploy/crds)?"
        }
        kube::Error::Api(status) if status.code == 403 || status.code == 401 => {
            "you are not allowed to; ask whoever runs the cluster, or name another --context"
        }
        kube::Error::Api(_) => "the API server refused",
        _ => "the API server does not answer; is it the right one (--kubeconfig, --context)?",
    };
    anyhow!(error).context(format!("cannot list {what}: {help}"))
}

/// The present time, for verbs that ask only agents.
pub(crate) fn now() -> Timestamp {
    SystemClock.now().to_jiff()
}

#[cfg(test)]
pub(crate) mod example;
