//! A cluster as the controller knows it: half of what nodes have are blocks of ten pools, half are ledgers of ten networks that
//! are cut into slices. Some ranges are shared by all nodes, and some pods refer to claims.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::Resource;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use tenure_api::claims::IPAMClaim;
use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest};
use tenure_api::networks::NetworkAttachmentDefinition;
use tenure_api::whereabouts::{IPPool, NodeSlicePool, OverlappingRangeIPReservation, label, pool_name};
use tenure_controller::{
    ClaimsPart, Coil, Kind, Observation, Part, Planner, PodBrief, VirtualMachine, VirtualMachineInstance,
    Whereabouts, World,
};
use tenure_handles::Timestamp;

use super::PartName;

/// Pools, sliced networks and namespaces.
pub(super) const TEN: usize = 10;
/// Blocks of a node, and ledgers of a node.
const HALF: usize = 5;
/// Pods of a node.
pub(super) const PODS: usize = 20;
/// Those of them that refer to a claim.
pub(super) const CLAIMS: usize = 4;
/// So many nodes have a pod each with an address of one shared range.
const SHARERS: usize = 500;
/// As many records have a number of their own in each object of a shared range.
const IN_AN_OBJECT: usize = 256;
/// Rounds in which plans are carried out until nothing is left to do.
const PLANS: usize = 50;
/// How much time passes between two events: whatever is written at most once a second is written again.
const BETWEEN: Duration = Duration::from_secs(2);

pub(super) const NAMESPACE: &str = "kube-system";
const CLUSTER_NETWORK: &str = "cluster";
/// What the writers of an object have agreed on.
const STATE: &str = "whereabouts.cni.cncf.io/state";

/// What the controller knows, its planner, and the API server's version.
pub(super) struct Cluster {
    pub(super) world: World,
    pub(super) planner: Planner,
    pub(super) now: Timestamp,
    pub(super) nodes: usize,
    pub(super) version: u64,
    /// How many things have happened, so that each happens to somebody else.
    pub(super) turn: usize,
}

impl Cluster {
    /// A cluster with so many nodes in which nothing is left to do; these parts plan, or all if none is named.
    pub(super) fn build(nodes: usize, parts: &[PartName]) -> Result<Self> {
        let claims =
            ClaimsPart { namespace: NAMESPACE.to_owned(), pods_are_known: true, ..Default::default() };
        let all: [(PartName, Arc<dyn Part>); 3] = [
            (PartName::Coil, Arc::new(Coil::default())),
            (PartName::Claims, Arc::new(claims)),
            (PartName::Whereabouts, Arc::new(Whereabouts::default())),
        ];
        let planning = all.into_iter().filter(|(name, _)| parts.is_empty() || parts.contains(name));
        let planning: Vec<Arc<dyn Part>> = planning.map(|(_, part)| part).collect();
        let mut cluster = Self {
            world: World::of_cluster_network(Some(CLUSTER_NETWORK.to_owned())),
            planner: Planner::of(&planning),
            now: Timestamp::from_millis(1_800_000_000_000),
            nodes,
            version: 0,
            turn: 0,
        };
        cluster.list_everything();
        for number in 0..nodes {
            cluster.node(&node(number))?;
        }
        for number in 0..TEN {
            cluster.pool(&format!("p{number}"), &format!("10.{}.0.0/12", number * 16))?;
            cluster.namespace(number, 0)?;
            cluster.attachment(number, 0, &[])?;
        }
        for range in 0..nodes.div_ceil(SHARERS) {
            let ipam = json!({"type": "whereabouts", "range": format!("12.{range}.0.0/23")});
            cluster.definition(&format!("shared{range}"), 0, &ipam)?;
        }
        cluster.settle()?;
        cluster.pods()?;
        cluster.blocks()?;
        cluster.ledgers()?;
        cluster.shared()?;
        cluster.settle()?;
        Ok(cluster)
    }

    /// A list of each kind has come in, and was empty.
    fn list_everything(&mut self) {
        fn list<K: Kind>(world: &mut World) {
            K::observe(world, Event::Init);
            K::observe(world, Event::InitDone);
        }
        let world = &mut self.world;
        list::<AddressPool>(world);
        list::<AddressBlock>(world);
        list::<BlockRequest>(world);
        list::<Node>(world);
        list::<NetworkAttachmentDefinition>(world);
        list::<NodeSlicePool>(world);
        list::<IPPool>(world);
        list::<OverlappingRangeIPReservation>(world);
        list::<PodBrief>(world);
        list::<IPAMClaim>(world);
        list::<PartialObjectMeta<Namespace>>(world);
        list::<VirtualMachine>(world);
        list::<VirtualMachineInstance>(world);
        list::<StatefulSet>(world);
        list::<MutatingWebhookConfiguration>(world);
    }

    /// Time passes, and whatever is due by then is planned.
    pub(super) fn rest(&mut self) -> Result<()> {
        self.now = self.now.plus(BETWEEN);
        self.settle()
    }

    /// Plans and does what is planned, until nothing is left to do.
    pub(super) fn settle(&mut self) -> Result<()> {
        for _ in 0..PLANS {
            let writes = self.planner.plan(&self.world, self.now);
            if writes.is_empty() {
                return Ok(());
            }
            writes.iter().try_for_each(|write| self.write(write))?;
        }
        bail!("there is always something to do: {:?}", self.planner.plan(&self.world, self.now).first());
    }

    /// An object as it is from now on: it gets a version, and a UID if it has none.
    pub(super) fn put<K: Kind + Resource<DynamicType = ()>>(&mut self, mut object: K) {
        self.version += 1;
        let meta = object.meta_mut();
        meta.uid.get_or_insert_with(|| format!("uid-{}", self.version));
        meta.resource_version = Some(self.version.to_string());
        let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(self.now.to_jiff());
        meta.creation_timestamp.get_or_insert(now);
        Observation::is(object).tell(&mut self.world);
    }

    /// The same of its JSON.
    pub(super) fn put_json<K>(&mut self, object: Value) -> Result<()>
    where
        K: Kind + Resource<DynamicType = ()> + serde::de::DeserializeOwned + Debug,
    {
        self.put::<K>(serde_json::from_value(object).context("cannot build an object")?);
        Ok(())
    }

    pub(super) fn node(&mut self, name: &str) -> Result<()> {
        let status = json!({"allocatable": {"pods": "110"}});
        self.put_json::<Node>(json!({"metadata": {"name": name}, "status": status}))
    }

    pub(super) fn pool(&mut self, name: &str, subnet: &str) -> Result<()> {
        let spec = json!({"blockSizeBits": 5, "subnets": [{"ipv4": subnet}]});
        self.put_json::<AddressPool>(json!({"metadata": {"name": name}, "spec": spec}))
    }

    /// A namespace and its pool; what else its annotations say changes nothing.
    pub(super) fn namespace(&mut self, number: usize, edit: usize) -> Result<()> {
        let annotations = json!({"coil.cybozu.com/pool": format!("p{number}"), "edit": edit.to_string()});
        let metadata =
            json!({"name": format!("ns{number}"), "uid": format!("ns{number}"), "annotations": annotations});
        self.put_json::<PartialObjectMeta<Namespace>>(
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}),
        )
    }

    /// The definition of a sliced network; every second one has a `network_name`.
    pub(super) fn attachment(&mut self, number: usize, edit: usize, exclude: &[&str]) -> Result<()> {
        let slices = (self.nodes + self.nodes / 4).next_power_of_two().trailing_zeros();
        let range = format!("11.{}.0.0/{}", number * 4, 28 - slices);
        let mut ipam =
            json!({"type": "whereabouts", "range": range, "node_slice_size": "/28", "exclude": exclude});
        let network = network(number);
        if !network.is_empty() {
            ipam["network_name"] = json!(network);
        }
        self.definition(&format!("net{number}"), edit, &ipam)
    }

    fn definition(&mut self, name: &str, edit: usize, ipam: &Value) -> Result<()> {
        let config =
            json!({"cniVersion": "1.0.0", "name": name, "type": "macvlan", "mtu": 1400 + edit, "ipam": ipam});
        let metadata = json!({"namespace": "ns0", "name": name, "uid": name, "generation": edit + 1});
        let spec = json!({"config": config.to_string()});
        self.put_json::<NetworkAttachmentDefinition>(json!({"metadata": metadata, "spec": spec}))
    }

    fn pods(&mut self) -> Result<()> {
        for number in 0..self.nodes {
            for pod in 0..PODS {
                self.pod(number, pod)?;
            }
            for claim in 0..CLAIMS {
                self.claim(number, &claim_of(number, claim))?;
            }
        }
        Ok(())
    }

    /// A pod of a node; the first ones refer to claims.
    pub(super) fn pod(&mut self, number: usize, pod: usize) -> Result<()> {
        let claim = (pod < CLAIMS).then(|| claim_of(number, pod));
        self.some_pod(number, &pod_of(number, pod), claim.as_deref(), &node(number))
    }

    /// A pod of the namespace of a node's pods.
    pub(super) fn some_pod(&mut self, of: usize, name: &str, claim: Option<&str>, node: &str) -> Result<()> {
        let annotations = claim.map_or(json!({}), |claim| json!({"tenure/claim": claim}));
        let metadata = json!({"namespace": namespace_of(of), "name": name, "uid": uid_of(name), "annotations": annotations});
        self.put_json::<PodBrief>(json!({"metadata": metadata, "spec": {"nodeName": node}}))
    }

    /// A claim in the namespace of a node's pods.
    pub(super) fn claim(&mut self, of: usize, name: &str) -> Result<()> {
        let spec = json!({"network": CLUSTER_NETWORK, "interface": "eth0"});
        let metadata = json!({"namespace": namespace_of(of), "name": name, "generation": 1});
        self.put_json::<IPAMClaim>(json!({"metadata": metadata, "spec": spec}))
    }

    /// Blocks of nodes, beginning at a number behind those that claims get.
    fn blocks(&mut self) -> Result<()> {
        for number in 0..self.nodes {
            for half in 0..HALF {
                let pool = (number + half * 2) % TEN;
                self.block(pool, (number * HALF + half) as u128 / 2, &node(number))?;
            }
        }
        Ok(())
    }

    /// A block of a pool for a node.
    pub(super) fn block(&mut self, pool: usize, index: u128, node: &str) -> Result<()> {
        let pool = self.world.coil().pools.get(&format!("p{pool}")).context("there is no such pool")?;
        let block = AddressBlock::carve(pool, index, node, None)?;
        self.put(block);
        Ok(())
    }

    /// Ledgers of nodes' slices, with a few records each.
    fn ledgers(&mut self) -> Result<()> {
        for of_network in 0..TEN {
            let pool = self.world.ledgers().slices.get(&format!("net{of_network}"));
            // Where nobody plans slices there are none.
            let Some(status) = pool.and_then(|pool| pool.status.clone()) else { continue };
            for slice in status.allocations.iter().filter(|slice| !slice.node_name.is_empty()) {
                let number: usize = slice.node_name.trim_start_matches('n').parse()?;
                if (number + of_network) % TEN < HALF {
                    self.ledger(of_network, number, &slice.slice_range, 4)?;
                }
            }
        }
        Ok(())
    }

    /// A node's slice of a network.
    pub(super) fn slice(&self, of_network: usize, number: usize) -> Option<String> {
        let pool = self.world.ledgers().slices.get(&format!("net{of_network}"))?;
        pool.slice_of(&node(number)).map(str::to_owned)
    }

    /// A node's ledger of its slice, with so many records; its name.
    pub(super) fn ledger(
        &mut self,
        of_network: usize,
        number: usize,
        slice: &str,
        records: usize,
    ) -> Result<String> {
        let network = network(of_network);
        let record = |offset: usize| {
            let pod = pod_of(number, CLAIMS + offset);
            let record =
                json!({"id": pod, "podref": podref(number, &pod), "ifname": "net1", "poduid": uid_of(&pod)});
            (offset.to_string(), record)
        };
        let allocations: serde_json::Map<String, Value> = (1..=records).map(record).collect();
        let mut labels = json!({label::NODE: node(number)});
        if !network.is_empty() {
            labels[label::NETWORK] = json!(network);
        }
        let name = pool_name(&network, &node(number), slice)?;
        let known = self.world.ledgers().pools.get(&name).map(|known| known.pool.metadata.clone());
        let (uid, annotations) = known.map(|known| (known.uid, known.annotations)).unwrap_or_default();
        // What the node was told stays.
        let mut annotations = annotations.unwrap_or_default();
        annotations.insert(STATE.to_owned(), "owned".to_owned());
        let metadata = json!({"name": name, "uid": uid, "labels": labels, "annotations": annotations});
        self.put_json::<IPPool>(
            json!({"metadata": metadata, "spec": {"range": slice, "allocations": allocations}}),
        )?;
        Ok(name)
    }

    fn shared(&mut self) -> Result<()> {
        (0..self.nodes.div_ceil(SHARERS)).try_for_each(|range| {
            (0..SHARERS.div_ceil(IN_AN_OBJECT)).try_for_each(|object| self.shared_ledger(range, object, 0))
        })
    }

    /// An object of a range that all nodes share. `without` of its records are not there.
    pub(super) fn shared_ledger(&mut self, range: usize, object: usize, without: usize) -> Result<()> {
        let cidr = format!("12.{range}.0.0/23");
        let mut name = pool_name("", "", &cidr)?;
        if object > 0 {
            name = format!("{name}.{object}");
        }
        let nodes = (object * IN_AN_OBJECT..((object + 1) * IN_AN_OBJECT).min(SHARERS)).skip(without);
        let record = |at: usize| {
            let number = range * SHARERS + at;
            let pod = pod_of(number, CLAIMS);
            let record =
                json!({"id": pod, "podref": podref(number, &pod), "ifname": "net2", "poduid": uid_of(&pod)});
            (number < self.nodes).then(|| (at.to_string(), record))
        };
        let allocations: serde_json::Map<String, Value> = nodes.filter_map(record).collect();
        let metadata = json!({"name": name, "uid": name, "annotations": {STATE: "unique"}});
        self.put_json::<IPPool>(
            json!({"metadata": metadata, "spec": {"range": cidr, "allocations": allocations}}),
        )
    }
}

/// The name of a node.
pub(super) fn node(number: usize) -> String {
    format!("n{number:05}")
}

/// The `network_name` of a sliced network.
pub(super) fn network(number: usize) -> String {
    if number.is_multiple_of(2) { format!("net{number}") } else { String::new() }
}

/// The name of a node's pod.
pub(super) fn pod_of(number: usize, pod: usize) -> String {
    format!("pod-{number:05}-{pod:02}")
}

/// The UID of a pod.
fn uid_of(pod: &str) -> String {
    format!("uid-{pod}")
}

/// The name of a node's claim.
pub(super) fn claim_of(number: usize, claim: usize) -> String {
    format!("claim-{number:05}-{claim}")
}

/// The namespace of a node's pods and claims.
pub(super) fn namespace_of(number: usize) -> String {
    format!("ns{}", number % TEN)
}

/// A pod as records name it.
pub(super) fn podref(number: usize, pod: &str) -> String {
    format!("{}/{pod}", namespace_of(number))
}
