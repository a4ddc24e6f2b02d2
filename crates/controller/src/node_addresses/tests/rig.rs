//! An embedded API server, leaders whose every plan is compared with a full one, and nodes with interfaces.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::ClusterResourceScope;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};
use tenure_api::coil::AddressPool;
use tenure_api::nmstate::{NodeIPPool, NodeNetworkConfigurationEnactment, NodeNetworkConfigurationPolicy};
use tenure_handles::{Clock, SystemClock, Timestamp};

use super::super::NodeAddressesPart;
use super::super::perform::NodePerformer;
use super::super::planner::NodePlanner;
use crate::part::{Board, Perform, Plan};
use crate::testing::{self, Object, ROUNDS, assert_agree, list};
use crate::world::World;
use crate::write::Write;

pub(in super::super) type Enactment = NodeNetworkConfigurationEnactment;
pub(in super::super) type Policy = NodeNetworkConfigurationPolicy;

/// A process that leads, or believes so.
pub(in super::super) struct Leader {
    pub(in super::super) world: World,
    pub(in super::super) planner: NodePlanner,
    full: NodePlanner,
}

impl Leader {
    pub(in super::super) fn new() -> Self {
        let part =
            NodeAddressesPart { cooling: Duration::from_secs(30), missing_node_rest: Duration::from_mins(2) };
        Self { world: World::default(), planner: NodePlanner::new(&part), full: NodePlanner::new(&part) }
    }
}

impl Leader {
    /// Plants a bug in the full planner as well.
    pub(in super::super) fn plant_full(&mut self, planted: super::super::proptests::Planted) {
        self.full.planted = Some(planted);
    }
}

/// A cluster.
pub(in super::super) struct Rig {
    pub(in super::super) client: Client,
    pub(in super::super) leaders: Vec<Leader>,
    pub(in super::super) now: Timestamp,
    /// What is on the interfaces of each node.
    pub(in super::super) interfaces: BTreeMap<String, BTreeSet<String>>,
    /// Nodes whose agents do nothing.
    pub(in super::super) dead: BTreeSet<String>,
    /// Verb and subject of every write.
    pub(in super::super) writes: Vec<(String, String)>,
    performer: NodePerformer,
}

impl Rig {
    pub(in super::super) async fn new() -> Self {
        Self::with(Vec::new()).await
    }

    /// On a server with these CRDs.
    pub(in super::super) async fn with(theirs: Vec<CustomResourceDefinition>) -> Self {
        let ours = [tenure_api::crd_of::<NodeIPPool>(), tenure_api::crd_of::<AddressPool>()];
        let client = testing::server_with(ours.into_iter().chain(theirs)).await;
        let mut rig = Self {
            performer: NodePerformer::new(client.clone()),
            client,
            leaders: vec![Leader::new()],
            now: SystemClock.now(),
            interfaces: BTreeMap::new(),
            dead: BTreeSet::new(),
            writes: Vec::new(),
        };
        // The first plan creates the two other CRDs.
        list::<NodeIPPool>(&mut rig.leaders[0].world, &rig.client).await;
        rig.perform_plan(0).await;
        rig
    }

    pub(in super::super) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = ClusterResourceScope, DynamicType = ()>,
    {
        Api::all(self.client.clone())
    }

    pub(in super::super) async fn make<K>(&self, object: Value) -> K
    where
        K: Object + Resource<Scope = ClusterResourceScope>,
    {
        testing::create(self.api(), object).await
    }

    pub(in super::super) async fn get<K>(&self, name: &str) -> Option<K>
    where
        K: Object + Resource<Scope = ClusterResourceScope>,
    {
        self.api().get_opt(name).await.unwrap()
    }

    pub(in super::super) async fn patch<K>(&self, name: &str, patch: Value)
    where
        K: Object + Resource<Scope = ClusterResourceScope>,
    {
        testing::patch::<K>(self.api(), name, patch).await;
    }

    pub(in super::super) async fn delete<K>(&self, name: &str)
    where
        K: Object + Resource<Scope = ClusterResourceScope>,
    {
        testing::delete::<K>(self.api(), name).await;
    }

    pub(in super::super) async fn node(&self, name: &str, labels: Value) {
        self.make::<Node>(json!({"metadata": {"name": name, "labels": labels}})).await;
    }

    pub(in super::super) async fn pool(&self, name: &str, range: Value) -> NodeIPPool {
        self.make(json!({"apiVersion": "nmstate.io/v1", "kind": "NodeIPPool", "metadata": {"name": name}, "spec": {"range": range}}))
            .await
    }

    /// A policy that takes an address of each pool.
    pub(in super::super) async fn policy(&self, name: &str, pools: &[&str], mut spec: Value) -> Policy {
        let captures: BTreeMap<String, String> =
            pools.iter().map(|pool| (format!("from-{pool}"), format!("ippool.{pool}.allocate"))).collect();
        spec["capture"] = json!(captures);
        self.make(json!({
            "apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy",
            "metadata": {"name": name}, "spec": spec,
        }))
        .await
    }

    /// Reads everything as a watch would.
    pub(in super::super) async fn observe(&mut self, leader: usize) {
        let world = &mut self.leaders[leader].world;
        list::<NodeIPPool>(world, &self.client).await;
        list::<Policy>(world, &self.client).await;
        list::<Enactment>(world, &self.client).await;
        list::<AddressPool>(world, &self.client).await;
        list::<Node>(world, &self.client).await;
    }

    /// An incremental plan, compared with a full one.
    pub(in super::super) fn plan(&mut self, leader: usize) -> Vec<Write> {
        let now = self.now;
        let leader = &mut self.leaders[leader];
        let world = &leader.world;
        let writes = leader.planner.plan(world, &mut Board::default(), now);
        leader.full.look_at_all();
        let all = leader.full.plan(world, &mut Board::default(), now);
        assert_agree(&writes, &all);
        writes
    }

    /// Plans and performs without an observation.
    pub(in super::super) async fn perform_plan(&mut self, leader: usize) -> Vec<Write> {
        let writes = self.plan(leader);
        self.perform(leader, &writes).await;
        writes
    }

    /// Performs writes: at most one for each object, like the control loop.
    pub(in super::super) async fn perform(&mut self, leader: usize, writes: &[Write]) {
        let mut subjects = BTreeSet::new();
        let mut ordered: Vec<&Write> = writes.iter().collect();
        ordered.sort_by_key(|write| write.rank());
        for write in ordered.into_iter().filter(|write| subjects.insert(write.subject().to_owned())) {
            let (_, observed) = self.performer.perform(&**write).await.unwrap();
            self.writes.push((write.verb().to_owned(), write.subject().to_owned()));
            if let Some(observed) = observed {
                observed.tell(&mut self.leaders[leader].world);
            }
        }
        self.now = self.now.plus(Duration::from_millis(10));
    }

    /// Observes, plans and performs once. Returns the plan.
    pub(in super::super) async fn step(&mut self) -> Vec<Write> {
        self.observe(0).await;
        self.perform_plan(0).await
    }

    /// Continues until nothing is planned and no agent has anything to do.
    pub(in super::super) async fn settle(&mut self) {
        for _ in 0..ROUNDS {
            let planned = !self.step().await.is_empty();
            let did = self.agents().await;
            self.check().await;
            if !planned && !did {
                return;
            }
        }
        panic!("still planned: {:#?}", self.plan(0));
    }

    /// Lets time pass.
    pub(in super::super) fn wait(&mut self, seconds: u64) {
        self.now = self.now.plus(Duration::from_secs(seconds));
    }

    pub(in super::super) async fn enactments(&self) -> Vec<Enactment> {
        self.api::<Enactment>().list(&ListParams::default()).await.unwrap().items
    }

    /// Lets every agent do what its enactments ask for. Returns whether one did something.
    pub(in super::super) async fn agents(&mut self) -> bool {
        let mut did = false;
        for enactment in self.enactments().await {
            let node = enactment.node().unwrap().to_owned();
            if !self.dead.contains(&node) {
                did |= self.agent(&enactment, &node).await;
            }
        }
        did
    }

    async fn agent(&mut self, enactment: &Enactment, node: &str) -> bool {
        let status = enactment.status.clone().unwrap_or_default();
        let own: Vec<String> = status.ippool.values().flat_map(|it| it.allocated.clone()).collect();
        let applied = status.applied.clone().unwrap_or_default();
        let interface = self.interfaces.entry(node.to_owned()).or_default();
        let report = if enactment.metadata.deletion_timestamp.is_some() {
            if applied.released {
                return false;
            }
            for address in &own {
                interface.remove(address);
            }
            json!({"applied": {"addresses": [], "released": true}})
        } else {
            if status.policy_generation.is_none() || applied.policy_generation == status.policy_generation {
                return false;
            }
            interface.extend(own.iter().cloned());
            let found: Vec<Value> =
                own.iter().map(|it| json!({"interface": "eth1", "address": format!("{it}/24")})).collect();
            json!({
                "applied": {"policyGeneration": status.policy_generation, "mode": "kernel", "addresses": found},
                "conditions": [{"type": "Available", "status": "True", "reason": "SuccessfullyConfigured"}],
            })
        };
        let patch = json!({"metadata": {"resourceVersion": enactment.resource_version()}, "status": report});
        let patch = Patch::Merge(patch);
        let name = enactment.name_any();
        self.api::<Enactment>().patch_status(&name, &PatchParams::default(), &patch).await.is_ok()
    }

    /// Always holds: an address is on one node's interfaces, and one unreleased enactment names it.
    pub(in super::super) async fn check(&self) {
        let mut on: BTreeMap<&str, &str> = BTreeMap::new();
        for (node, addresses) in &self.interfaces {
            for address in addresses {
                let other = on.insert(address, node);
                assert_eq!(other, None, "{address} is on {node} and another node");
            }
        }
        let mut named: BTreeMap<String, String> = BTreeMap::new();
        for enactment in self.enactments().await {
            let status = enactment.status.clone().unwrap_or_default();
            if enactment.metadata.deletion_timestamp.is_some() && status.applied.is_some_and(|it| it.released)
            {
                continue;
            }
            for (pool, held) in status.ippool {
                for address in held.allocated {
                    let other = named.insert(format!("{pool} {address}"), enactment.name_any());
                    assert_eq!(
                        other,
                        None,
                        "{address} of {pool} is named by {} and another",
                        enactment.name_any()
                    );
                }
            }
        }
    }

    /// The addresses that each node has of a pool, according to its enactments.
    pub(in super::super) async fn held(&self, pool: &str) -> BTreeMap<String, String> {
        let enactments = self.enactments().await;
        let held = enactments.iter().filter_map(|it| {
            let all = &it.status.as_ref()?.ippool.get(pool)?.allocated;
            Some((it.node()?.to_owned(), all.join(",")))
        });
        held.collect()
    }

    pub(in super::super) async fn offsets(&self, pool: &str) -> Vec<i64> {
        self.get::<NodeIPPool>(pool).await.unwrap().status.unwrap().allocated_offsets.unwrap()
    }

    /// Reason and message of a pool's condition.
    pub(in super::super) async fn said(&self, pool: &str) -> (String, String) {
        let status = self.get::<NodeIPPool>(pool).await.unwrap().status.unwrap();
        let condition = status.condition("Available").unwrap();
        (condition.reason.clone(), condition.message.clone())
    }

    /// The true condition of a policy, and its message.
    pub(in super::super) async fn policy_said(&self, policy: &str) -> (String, String) {
        let status = self.get::<Policy>(policy).await.unwrap().status.unwrap();
        let so: Vec<_> = status.conditions.iter().filter(|it| it.is_true()).collect();
        assert_eq!(so.len(), 1, "{so:?}");
        (so[0].type_.clone(), so[0].message.clone().unwrap_or_default())
    }

    /// How often a pool was written.
    pub(in super::super) async fn pool_writes(&self, pool: &str) -> usize {
        let uid = self.get::<NodeIPPool>(pool).await.unwrap().uid().unwrap();
        self.writes.iter().filter(|(_, subject)| *subject == uid).count()
    }
}
