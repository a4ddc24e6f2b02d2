//! Versioned objects in memory, one leader, an obedient cloud, and no I/O.

mod server;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use tenure_api::claims::IPAMClaim;
use tenure_api::claims::label::FLOATING;
use tenure_api::cloud::{AliasPool, AliasPoolSpec, AliasRecord, IPLedger, NodeAliases, NodeAliasesStatus};
use tenure_api::coil::AddressBlock;
use tenure_cloud::{AliasRange, Options, Quota};
use tenure_handles::{Clock, ManualClock, SeededEntropy, Timestamp};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::sync::watch;

use super::super::context::Planted;
use super::super::driver::{CloudSettings, Driver};
use super::super::planner::CloudPlanner;
use super::naive::{NaiveCloud, One};
use crate::election::{Role, Term};
use crate::events::Note;
use crate::kind::{Kind, Observation};
use crate::part::{Board, Plan};
use crate::pods::PodBrief;
use crate::watch::Lead;
use crate::world::World;
use crate::write::Write;

pub(super) const POOL: &str = "live";
const START: u64 = 1_794_000_000_000;
const REST: Duration = Duration::from_mins(2);

/// Everything.
pub(super) struct Rig {
    pub(super) clock: Arc<ManualClock>,
    pub(super) cloud: Arc<NaiveCloud>,
    pub(super) pools: BTreeMap<String, AliasPool>,
    pub(super) ledgers: BTreeMap<String, IPLedger>,
    pub(super) aliases: BTreeMap<String, NodeAliases>,
    pub(super) nodes: BTreeMap<String, Node>,
    pub(super) pods: BTreeMap<String, Value>,
    pub(super) blocks: BTreeMap<String, AddressBlock>,
    pub(super) claims: BTreeMap<String, IPAMClaim>,
    pub(super) notes: Vec<Note>,
    version: u64,
    pub(super) world: World,
    planner: CloudPlanner,
    full: CloudPlanner,
    driver: Driver,
    role: watch::Sender<Role>,
    observed: UnboundedReceiver<Observation>,
    /// What the watches have not reported yet.
    unseen: VecDeque<Observation>,
    terms: i32,
    seed: u64,
    planted: Option<Planted>,
    /// A write in flight.
    pub(super) held: Option<Write>,
}

impl Rig {
    pub(super) fn new(seed: u64) -> Self {
        let cloud = Arc::new(NaiveCloud {
            machines: Mutex::default(),
            entropy: SeededEntropy::new(seed),
            trouble: Mutex::new(0),
            updates: Mutex::new(0),
            refuses: Mutex::default(),
            refuses_reads: Mutex::default(),
        });
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(START)));
        let (driver, role, observed) = driver(&cloud, &clock, seed);
        let mut rig = Self {
            clock,
            cloud,
            pools: BTreeMap::new(),
            ledgers: BTreeMap::new(),
            aliases: BTreeMap::new(),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            blocks: BTreeMap::new(),
            claims: BTreeMap::new(),
            notes: Vec::new(),
            version: 1,
            world: World::default(),
            planner: CloudPlanner::new(REST, 150),
            full: CloudPlanner::new(REST, 150),
            driver,
            role,
            observed,
            unseen: VecDeque::new(),
            terms: 0,
            seed,
            planted: None,
            held: None,
        };
        rig.restart();
        rig
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Another process leads, and reads everything again.
    pub(super) fn restart(&mut self) {
        self.terms += 1;
        let seed = self.seed.wrapping_add(u64::try_from(self.terms).unwrap());
        (self.driver, self.role, self.observed) = driver(&self.cloud, &self.clock, seed);
        self.unseen.clear();
        self.held = None;
        self.world = World::default();
        self.planner = CloudPlanner::new(REST, 150);
        self.full = CloudPlanner::new(REST, 150);
        self.plant(self.planted);
        let until = Timestamp::from_millis(u64::MAX / 2);
        self.role.send_replace(Role::Leader(Term { number: self.terms, until }));
        let world = &mut self.world;
        list(world, self.pools.values());
        list(world, self.ledgers.values());
        list(world, self.aliases.values());
        list(world, self.nodes.values());
        let pods: Vec<PodBrief> =
            self.pods.values().map(|pod| serde_json::from_value(pod.clone()).unwrap()).collect();
        list(world, pods.iter());
        list(world, self.blocks.values());
        list(world, self.claims.values());
    }

    /// Plants a bug in all planners from now on.
    pub(super) fn plant(&mut self, planted: Option<Planted>) {
        self.planted = planted;
        (self.planner.planted, self.full.planted) = (planted, planted);
    }

    fn stamp<K: Resource>(&mut self, object: &mut K) {
        self.version += 1;
        let meta = object.meta_mut();
        meta.resource_version = Some(self.version.to_string());
        meta.uid.get_or_insert_with(|| format!("uid-{}", self.version));
        meta.generation = Some(1);
    }

    fn hear<K: Kind>(&mut self, object: K) {
        self.unseen.push_back(Observation::new(move |world| world.observe(Event::Apply(object))));
    }

    pub(super) fn pool(&mut self, spec: Value) {
        self.pool_named(POOL, spec);
    }

    /// Creates or changes a pool.
    pub(super) fn pool_named(&mut self, name: &str, spec: Value) {
        let mut all = json!({"cidr": "10.111.0.0/24", "subnet": "projects/p/regions/z/subnetworks/s"});
        if let (Some(all), Value::Object(more)) = (all.as_object_mut(), spec) {
            all.extend(more);
        }
        let spec = serde_json::from_value(all).unwrap();
        let mut pool =
            self.pools.remove(name).unwrap_or_else(|| AliasPool::new(name, AliasPoolSpec::default()));
        pool.spec = spec;
        pool.metadata.creation_timestamp.get_or_insert(crate::plan::time(self.clock.now()));
        self.stamp(&mut pool);
        self.pools.insert(name.to_owned(), pool.clone());
        self.hear(pool);
    }

    /// A pool is gone, whatever finalizers it had.
    pub(super) fn pool_gone(&mut self, name: &str) {
        if let Some(pool) = self.pools.remove(name) {
            // The garbage collector deletes what it owns.
            let owned = |ledger: &IPLedger| {
                ledger.owner_references().iter().any(|owner| Some(&owner.uid) == pool.metadata.uid.as_ref())
            };
            let owned: Vec<String> =
                self.ledgers.iter().filter(|(_, it)| owned(it)).map(|(name, _)| name.clone()).collect();
            self.unseen.push_back(Observation::new(move |world| world.observe(Event::Delete(pool))));
            for ledger in &owned {
                self.delete_ledger(ledger);
            }
        }
    }

    /// Somebody deletes a pool: it is gone once it has no finalizers.
    pub(super) fn delete_pool(&mut self, name: &str) {
        let mut pool = self.pools[name].clone();
        if pool.finalizers().is_empty() {
            return self.pool_gone(name);
        }
        pool.metadata.deletion_timestamp = Some(crate::plan::time(self.clock.now()));
        self.stamp(&mut pool);
        self.pools.insert(name.to_owned(), pool.clone());
        self.hear(pool);
    }

    /// Somebody deletes a ledger: it is gone once it has no finalizers.
    pub(super) fn delete_ledger(&mut self, name: &str) {
        let mut ledger = self.ledgers[name].clone();
        if ledger.finalizers().is_empty() {
            self.ledgers.remove(name);
            self.unseen.push_back(Observation::new(move |world| world.observe(Event::Delete(ledger))));
            return;
        }
        ledger.metadata.deletion_timestamp = Some(crate::plan::time(self.clock.now()));
        self.stamp(&mut ledger);
        self.ledgers.insert(name.to_owned(), ledger.clone());
        self.hear(ledger);
    }

    /// Status, reason and message of a pool's condition.
    pub(super) fn condition(&self, pool: &str, type_: &str) -> (String, String, String) {
        let status = self.pools[pool].status.clone().unwrap_or_default();
        let it = status.conditions.into_iter().find(|it| it.type_ == type_).unwrap();
        (it.status, it.reason, it.message)
    }

    /// A machine and its node.
    pub(super) fn machine(&mut self, name: &str) {
        self.cloud.machines.lock().unwrap().entry(name.to_owned()).or_default();
        self.join(name);
    }

    pub(super) fn join(&mut self, name: &str) {
        let node = json!({"metadata": {"name": name}, "spec": {"providerID": format!("gce://p/z-a/{name}")}});
        let mut node: Node = serde_json::from_value(node).unwrap();
        self.stamp(&mut node);
        self.nodes.insert(name.to_owned(), node.clone());
        self.hear(node);
    }

    /// The kubelet of a node reports the boot ID of its machine.
    pub(super) fn boot(&mut self, name: &str, id: &str) {
        let mut node = serde_json::to_value(&self.nodes[name]).unwrap();
        let names = ["architecture", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion"];
        let names = names.into_iter().chain([
            "kubeletVersion",
            "machineID",
            "operatingSystem",
            "osImage",
            "systemUUID",
        ]);
        let mut info: serde_json::Map<String, Value> =
            names.map(|name| (name.to_owned(), json!(""))).collect();
        info.insert("bootID".to_owned(), json!(id));
        node["status"]["nodeInfo"] = Value::Object(info);
        let mut node: Node = serde_json::from_value(node).unwrap();
        self.stamp(&mut node);
        self.nodes.insert(name.to_owned(), node.clone());
        self.hear(node);
    }

    pub(super) fn leave(&mut self, name: &str) {
        if let Some(node) = self.nodes.remove(name) {
            self.unseen.push_back(Observation::new(move |world| world.observe(Event::Delete(node))));
        }
    }

    /// The agent of a node reports.
    pub(super) fn say(&mut self, node: &str, change: impl FnOnce(&mut NodeAliases)) {
        let spec = serde_json::from_value(json!({"pool": POOL, "wanted": 0})).unwrap();
        let mut aliases = self.aliases.remove(node).unwrap_or_else(|| NodeAliases::new(node, spec));
        change(&mut aliases);
        self.stamp(&mut aliases);
        self.aliases.insert(node.to_owned(), aliases.clone());
        self.hear(aliases);
    }

    pub(super) fn want(&mut self, node: &str, wanted: i32) {
        self.say(node, |it| it.spec.wanted = wanted);
    }

    #[expect(clippy::needless_pass_by_value, reason = "tests say it in one line")]
    pub(super) fn pod(&mut self, name: &str, namespace: &str, node: &str, annotations: Value) -> String {
        self.version += 1;
        let uid = format!("uid-{}", self.version);
        let created = self.now().to_jiff().to_string();
        let metadata = json!({
            "name": name, "namespace": namespace, "uid": uid, "annotations": annotations,
            "creationTimestamp": created, "resourceVersion": self.version.to_string(),
        });
        let pod = json!({"metadata": metadata, "spec": {"nodeName": node}});
        self.pods.insert(format!("{namespace}/{name}"), pod.clone());
        let pod: PodBrief = serde_json::from_value(pod).unwrap();
        self.hear(pod);
        uid
    }

    /// The same pod with other annotations.
    pub(super) fn pod_as(&mut self, mut pod: Value, annotations: Value) {
        self.version += 1;
        pod["metadata"]["annotations"] = annotations;
        pod["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let brief: PodBrief = serde_json::from_value(pod.clone()).unwrap();
        self.pods.insert(format!("{}/{}", brief.namespace().unwrap(), brief.name_any()), pod);
        self.hear(brief);
    }

    /// The kubelet reports that a pod has an address.
    pub(super) fn report(&mut self, podref: &str, address: &str) {
        let mut pod = self.pods[podref].clone();
        pod["status"] = json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]});
        self.say_pod(podref, pod);
    }

    /// The current pod.
    pub(super) fn say_pod(&mut self, podref: &str, mut pod: Value) {
        self.version += 1;
        pod["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let brief: PodBrief = serde_json::from_value(pod.clone()).unwrap();
        self.pods.insert(podref.to_owned(), pod);
        self.hear(brief);
    }

    /// Somebody attaches a range to a machine.
    pub(super) fn attach(&mut self, machine: &str, range: &str) {
        let alias = AliasRange { cidr: range.parse().unwrap(), range: "live".to_owned() };
        self.cloud.machines.lock().unwrap().entry(machine.to_owned()).or_default().aliases.insert(alias);
    }

    /// A claim with an address, recorded in its own block. `pods` are those that its record names, each with its
    /// node; the first of them uses it.
    pub(super) fn claim(&mut self, name: &str, address: &str, pods: &[(&str, &str)]) {
        self.claim_of(name, address, pods, pods.first().copied());
    }

    /// The same, with this pod in its slots.
    pub(super) fn claim_of(
        &mut self,
        name: &str,
        address: &str,
        pods: &[(&str, &str)],
        active: Option<(&str, &str)>,
    ) {
        let slot = active.map(|(pod, node)| json!({"pod": pod, "uid": pod, "node": node}));
        let holders = json!({"active": slot, "number": 1}).to_string();
        let claim = json!({
            "metadata": {"name": name, "namespace": "ns", "uid": name, "annotations": {"tenure/holders": holders}},
            "spec": {"network": "live", "interface": "eth0"},
        });
        let mut claim: IPAMClaim = serde_json::from_value(claim).unwrap();
        self.stamp(&mut claim);
        self.claims.insert(name.to_owned(), claim.clone());
        self.hear(claim);
        let pods: Vec<Value> =
            pods.iter().map(|(pod, node)| json!({"name": pod, "uid": pod, "node": node})).collect();
        let record = json!({"namespace": "ns", "name": name, "uid": name, "pods": pods});
        let block = json!({
            "metadata": {"name": format!("claims-{name}"), "labels": {"coil.cybozu.com/pool": "claims", FLOATING: "true"}},
            "index": 0, "ipv4": format!("{address}/32"), "claims": {"0": record},
        });
        let mut block: AddressBlock = serde_json::from_value(block).unwrap();
        self.stamp(&mut block);
        self.blocks.insert(name.to_owned(), block.clone());
        self.hear(block);
    }

    pub(super) fn pod_gone(&mut self, podref: &str) {
        if let Some(pod) = self.pods.remove(podref) {
            let pod: PodBrief = serde_json::from_value(pod).unwrap();
            self.unseen.push_back(Observation::new(move |world| world.observe(Event::Delete(pod))));
        }
    }

    /// The watches report what they know, or the first part of it.
    pub(super) fn deliver(&mut self, most: usize) {
        for _ in 0..most.min(self.unseen.len()) {
            if let Some(observation) = self.unseen.pop_front() {
                observation.tell(&mut self.world);
            }
        }
    }

    /// The writes of a plan, compared with those of a planner that looks at everything.
    pub(super) fn plan(&mut self) -> Vec<Write> {
        let now = self.now();
        self.world.in_flight = self.held.iter().cloned().collect();
        let writes = self.planner.plan(&self.world, &mut Board::default(), now);
        self.notes.extend(self.planner.take_notes(&self.world));
        self.full.look_at_all();
        let full = self.full.plan(&self.world, &mut Board::default(), now);
        let names = |writes: &[Write]| -> BTreeSet<(String, String)> {
            writes.iter().map(|it| (it.verb().to_owned(), it.subject().to_owned())).collect()
        };
        assert_eq!(names(&writes), names(&full), "a plan of what has changed is one of everything");
        let held = self.held.as_ref().map(|held| held.subject().to_owned());
        writes.into_iter().filter(|write| Some(write.subject()) != held.as_deref()).collect()
    }

    /// Performs a write as the API server would. Returns whether it was done.
    pub(super) fn perform(&mut self, write: &Write) -> bool {
        let notes = write.notes(&self.world);
        let done = self.write(write.of().unwrap());
        if done {
            self.notes.extend(notes);
        }
        done
    }

    /// The driver does what is due.
    pub(super) fn drive(&mut self) {
        self.driver.look_at_term();
        for _ in 0..2 {
            self.driver.act(self.clock.now());
            self.driver.take_answers();
        }
        self.driver.act(self.clock.now());
        while let Ok(observation) = self.observed.try_recv() {
            observation.tell(&mut self.world);
        }
    }

    /// Lets everything happen until nothing does, for a while.
    pub(super) fn settle(&mut self) {
        self.settle_for(60);
    }

    pub(super) fn settle_for(&mut self, rounds: usize) {
        for _ in 0..rounds {
            self.round(Duration::from_millis(250));
        }
    }

    /// Lets everything happen once, then lets this time pass.
    pub(super) fn round(&mut self, time: Duration) {
        self.deliver(usize::MAX);
        self.drive();
        for write in self.plan() {
            self.perform(&write);
        }
        self.clock.advance(time);
    }

    pub(super) fn status(&self, node: &str) -> NodeAliasesStatus {
        self.aliases.get(node).and_then(|it| it.status.clone()).unwrap_or_default()
    }

    pub(super) fn on_machine(&self, name: &str) -> BTreeSet<String> {
        let machines = self.cloud.machines.lock().unwrap();
        machines.get(name).into_iter().flat_map(|it| &it.aliases).map(ToString::to_string).collect()
    }

    /// All records by range.
    pub(super) fn records(&self) -> BTreeMap<String, AliasRecord> {
        let mut all = BTreeMap::new();
        for ledger in self.ledgers.values() {
            let cidr = tenure_ipam::Notation::Strict.cidr(&ledger.spec.cidr).unwrap();
            for (offset, record) in super::super::index::records(ledger) {
                let range = super::super::index::cidr_of(cidr, offset, record).unwrap();
                let twice = all.insert(range.to_string(), record.clone());
                assert!(twice.is_none(), "{range} has two records");
            }
        }
        all
    }

    /// The agent of a node returns a range.
    pub(super) fn give_back(&mut self, node: &str, range: &str) {
        let grant = self.status(node).aliases[range].grant.clone();
        self.say(node, |it| _ = it.spec.returned.insert(range.to_owned(), grant));
    }

    pub(super) fn told(&self, reason: &str) -> Vec<String> {
        let reason = format!("reason: \"{reason}\"");
        self.notes.iter().map(|it| format!("{it:?}")).filter(|it| it.contains(&reason)).collect()
    }
}

fn driver(
    cloud: &Arc<NaiveCloud>,
    clock: &Arc<ManualClock>,
    seed: u64,
) -> (Driver, watch::Sender<Role>, UnboundedReceiver<Observation>) {
    let (role, heard) = watch::channel(Role::Standby);
    let (sender, observed) = mpsc::unbounded_channel();
    let lead = Lead::of_a_test(heard, clock.clone(), Arc::new(SeededEntropy::new(seed)), sender);
    let quota = Quota { per_minute: 1_000_000, burst: 100_000 };
    let options = Options {
        gather: Duration::ZERO,
        poll: Duration::from_millis(100),
        rest: Duration::from_millis(100),
        longest_rest: Duration::from_secs(2),
        ..Options::default()
    };
    let settings =
        CloudSettings { clouds: Arc::new(One(cloud.clone())), options, reads: quota, writes: quota };
    (Driver::new(settings, lead, Arc::default()), role, observed)
}

fn list<'a, K: Kind>(world: &mut World, objects: impl Iterator<Item = &'a K>) {
    world.observe::<K>(Event::Init);
    for object in objects {
        world.observe(Event::InitApply(object.clone()));
    }
    world.observe::<K>(Event::InitDone);
}
