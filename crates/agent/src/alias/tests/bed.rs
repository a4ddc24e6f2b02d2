//! An embedded API server with faults before it, machines with metadata servers, a stand-in for the controller, and agents without a
//! kernel whose service is called as the plugin calls it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod as KubePod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tenure_api::cloud::{AliasPool, GROUP, NodeAlias, NodeAliases, NodeAliasesStatus};
use tenure_cni::{Failure, Verb, rpc};
use tenure_handles::SeededEntropy;
use tenure_localapi::{LocalApi, Options as ServerOptions};
use tenure_testbed::clock::RuntimeClock;
use tenure_testbed::compute::{FakeCloud, Settings as CloudSettings};
use tenure_testbed::faults::{Calls, Faults, Rule};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::alias::marks::Marks;
use crate::alias::{AliasOptions, Aliases, GcpIpam};
use crate::drive::{Executor, Handle, NodeChannel};
use crate::journal::{Image, Record};
use crate::node::{Action, Event, Node, Settings};
use crate::pods::{KnownPod, Pods};
use crate::serve::Service;
use crate::sources::BlockSource;
pub(super) use crate::testing::until;

pub(super) const NAMESPACE: &str = "shop";
const ZONE: &str = "europe-west4-a";
pub(super) const POOL: &str = "live";

/// What the controller and the cloud would do.
#[derive(Debug, Default)]
pub(super) struct Granter {
    next: u32,
    grants: u64,
    pub(super) aliases: BTreeMap<String, BTreeMap<String, NodeAlias>>,
    /// Whether it gives what nodes want.
    pub(super) gives: bool,
    /// Whether what is attached arrives at the machine.
    pub(super) arrives: bool,
    /// What it says instead.
    pub(super) problem: Option<String>,
}

pub(super) struct Bed {
    server: LocalApi,
    /// Without faults.
    pub(super) client: Client,
    pub(super) faults: Faults,
    pub(super) granter: Arc<Mutex<Granter>>,
    cloud: Arc<FakeCloud>,
    _life: DropGuard,
}

/// A node's agent. It ends when this is dropped.
pub(super) struct Agent {
    pub(super) node: Handle,
    pods: Pods<Marks>,
    service: Service<RuntimeClock>,
    journal: Arc<Mutex<Image>>,
    _life: DropGuard,
}

/// Commits everything at once.
struct Prompt {
    node: Handle,
    aliases: Aliases,
    journal: Arc<Mutex<Image>>,
    position: u64,
}

impl Executor for Prompt {
    fn record(&mut self, records: Vec<Record>) {
        self.position += records.len() as u64;
        for record in records {
            self.journal.lock().unwrap().apply(record);
        }
        self.node.tell(Event::Committed { up_to: self.position });
    }

    fn carry_out(&mut self, action: Action) {
        if action.pool().is_some_and(|pool| self.aliases.has(pool)) {
            self.aliases.carry_out(action);
        }
    }
}

impl Bed {
    /// A cluster with a pool of which so many addresses are kept ready on each node.
    pub(super) async fn new(warm: i32) -> Self {
        let server = ServerOptions::default().temporary(RuntimeClock, SeededEntropy::new(11));
        let client = server.client();
        let namespaces: Api<Namespace> = Api::all(client.clone());
        for name in [NAMESPACE, "elsewhere"] {
            let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        }
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for crd in tenure_api::crds().into_iter().filter(|crd| crd.spec.group == GROUP) {
            definitions.create(&PostParams::default(), &crd).await.unwrap();
        }
        let pool = json!({
            "apiVersion": "ipam.gcp-cni.cast.ai/v1alpha1", "kind": "IPPool", "metadata": {"name": POOL},
            "spec": {
                "cidr": "10.111.0.0/16", "subnet": "projects/p/regions/europe-west4/subnetworks/default", "warm": warm,
            },
        });
        let pools: Api<AliasPool> = Api::all(client.clone());
        pools.create(&PostParams::default(), &serde_json::from_value(pool).unwrap()).await.unwrap();
        let cloud = Arc::new(FakeCloud::start(CloudSettings::default()).await.unwrap());
        for node in ["node-1", "node-2"] {
            cloud.add_instance(ZONE, node, "default");
        }
        let stop = CancellationToken::new();
        let granter = Granter { gives: true, arrives: true, ..Granter::default() };
        let granter = Arc::new(Mutex::new(granter));
        let granting = grant(client.clone(), Arc::clone(&granter), Arc::clone(&cloud));
        tokio::spawn(stop.clone().run_until_cancelled_owned(granting));
        let faults = Faults::seeded(11);
        Self { server, client, faults, granter, cloud, _life: stop.drop_guard() }
    }

    pub(super) fn set(&self, change: impl FnOnce(&mut Granter)) {
        change(&mut self.granter.lock().unwrap());
    }

    /// Moves an address to a node, for a pod.
    pub(super) fn move_to(&self, address: &str, node: &str, pod: &str) {
        let cidr = format!("{address}/32");
        self.set(|granter| {
            granter.aliases.values_mut().for_each(|aliases| drop(aliases.remove(&cidr)));
            granter.grants += 1;
            let alias = NodeAlias {
                grant: format!("grant-{}", granter.grants),
                attached: true,
                pod: Some(pod.to_owned()),
                ..NodeAlias::default()
            };
            granter.aliases.entry(node.to_owned()).or_default().insert(cidr, alias);
        });
    }

    pub(super) fn objects(&self) -> Api<NodeAliases> {
        Api::all(self.client.clone())
    }

    pub(super) async fn object(&self, node: &str) -> NodeAliases {
        self.objects().get(node).await.unwrap()
    }

    fn kube_pods(&self, namespace: &str) -> Api<KubePod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Makes a pod. Returns its UID.
    pub(super) async fn pod(&self, node: &str, name: &str, annotations: Value) -> String {
        let pod = json!({
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
        });
        let pod = serde_json::from_value(pod).unwrap();
        self.kube_pods(NAMESPACE).create(&PostParams::default(), &pod).await.unwrap().uid().unwrap()
    }

    pub(super) async fn annotate(&self, name: &str, annotations: Value) {
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        self.kube_pods(NAMESPACE).patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(super) async fn delete_pod(&self, name: &str) {
        self.kube_pods(NAMESPACE).delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
    }

    /// Nothing reaches the server any more, and open watches end.
    pub(super) fn away(&self) {
        self.faults.add(Rule::lose_request());
        self.faults.cut_watches(&Calls::all());
    }

    /// How many writes of `NodeAliases` agents made.
    pub(super) fn writes(&self) -> u64 {
        self.faults.tally(&Calls::writes().to("nodealiases")).asked
    }

    pub(super) async fn agent(&self, name: &str) -> Agent {
        self.agent_after(name, Image::default(), Duration::from_secs(10)).await
    }

    /// An agent that has read everything, and lets pods wait for so long.
    pub(super) async fn agent_after(&self, name: &str, journal: Image, patience: Duration) -> Agent {
        let (channel, stop) = (NodeChannel::new(), CancellationToken::new());
        let node = channel.handle();
        for event in [Event::Journal(journal.clone()), Event::Kernel(Vec::new()), Event::ApiRead] {
            node.tell(event);
        }
        let client = self.faults.client(self.server.clone(), NAMESPACE);
        let pods = Pods::new(client.clone(), name, RuntimeClock, stop.clone());
        let metadata = self.cloud.metadata(ZONE, name).await.unwrap();
        let wanted =
            AliasOptions { metadata, patience: Duration::from_millis(500), ..AliasOptions::default() };
        let around = (node.clone(), pods.clone());
        let aliases = Aliases::start(client, name, wanted, RuntimeClock, around, stop.clone());
        let journal = Arc::new(Mutex::new(journal));
        let executor = Prompt {
            node: node.clone(),
            aliases: aliases.clone(),
            journal: Arc::clone(&journal),
            position: 0,
        };
        let settings = Settings { sources: vec![crate::alias::SOURCE], patience, ..Settings::new(name) };
        let driver = channel.driver(Node::new(settings), RuntimeClock, executor);
        tokio::spawn(driver.run(stop.clone().cancelled_owned()));
        let dialect = GcpIpam::new(aliases, pods.clone());
        let service = Service::new(node.clone(), RuntimeClock, vec![Arc::new(dialect)], None);
        let pods = pods.keep();
        let agent = Agent { node, pods, service, journal, _life: stop.drop_guard() };
        until("the node", async || agent.node.look(Node::is_ready).await.unwrap().then_some(())).await;
        agent
    }
}

impl Agent {
    /// What a crash leaves.
    pub(super) fn journal(&self) -> Image {
        self.journal.lock().unwrap().clone()
    }

    /// How many addresses any pod can have now.
    pub(super) async fn free(&self) -> u128 {
        self.node.look(|node| node.pools().iter().map(|pool| pool.counts.free).sum()).await.unwrap()
    }

    pub(super) async fn until_free(&self, count: u128) {
        until(&format!("{count} free addresses"), async || (self.free().await == count).then_some(())).await;
    }

    /// Waits until the watch has heard of a pod.
    pub(super) async fn until_known(&self, pod: &str) {
        until("the pod", async || self.known(pod)).await;
    }

    /// Waits until the watch has heard of a mark.
    pub(super) async fn until_marked(&self, pod: &str) {
        until("the mark", async || self.known(pod).filter(|pod| pod.facet.leaving)).await;
    }

    fn known(&self, pod: &str) -> Option<KnownPod<Marks>> {
        self.pods.all()?.remove(&(NAMESPACE.to_owned(), pod.to_owned()))
    }

    pub(super) async fn ask(&self, verb: Verb, network: &Value, pod: &str) -> Result<Value, Failure> {
        self.ask_at(&format!("/run/netns/{pod}"), verb, network, pod).await
    }

    /// A call for a pod with this network namespace.
    pub(super) async fn ask_at(
        &self,
        netns: &str,
        verb: Verb,
        network: &Value,
        pod: &str,
    ) -> Result<Value, Failure> {
        let named = [("IgnoreUnknown", "1"), ("K8S_POD_NAMESPACE", NAMESPACE), ("K8S_POD_NAME", pod)];
        let call = rpc::Call {
            protocol: rpc::PROTOCOL,
            container_id: format!("c-{pod}"),
            netns: netns.to_owned(),
            ifname: "eth0".to_owned(),
            args: named.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            config: network.to_string().into_bytes(),
            plugin: "gcp-ipam".to_owned(),
            ..rpc::Call::default()
        };
        let reply = self.service.answer(verb, call).await;
        match reply.failure {
            Some(failure) => Err(failure.into()),
            None if reply.result.is_empty() => Ok(Value::Null),
            None => Ok(serde_json::from_slice(&reply.result).unwrap()),
        }
    }

    /// The address that an ADD answers, without its length.
    pub(super) async fn add(&self, pod: &str) -> Result<String, Failure> {
        let result = self.ask(Verb::Add, &network(), pod).await?;
        let text = result["ips"][0]["address"].as_str().unwrap();
        Ok(text.split('/').next().unwrap().to_owned())
    }

    pub(super) async fn del(&self, pod: &str) {
        self.ask(Verb::Del, &network(), pod).await.unwrap();
    }
}

/// A network as the cloud's own agents configure it, with our plugin in the place of theirs.
pub(super) fn network() -> Value {
    json!({
        "cniVersion": "0.3.1", "name": "gke-pod-network", "type": "ptp", "mtu": 1460, "ipam": {"type": "gcp-ipam"},
    })
}

/// Gives nodes what they want, and takes what they return.
async fn grant(client: Client, granter: Arc<Mutex<Granter>>, cloud: Arc<FakeCloud>) {
    let objects: Api<NodeAliases> = Api::all(client);
    loop {
        for mut object in
            objects.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default()
        {
            let name = object.name_any();
            let (status, arrives) = granter.lock().unwrap().status_of(&name, &object);
            if arrives {
                let ranges: Vec<(&str, &str)> =
                    status.aliases.keys().map(|cidr| (cidr.as_str(), "live")).collect();
                cloud.set_aliases(ZONE, &name, &ranges).unwrap();
            }
            if object.status.as_ref() != Some(&status) {
                object.status = Some(status);
                // Somebody else wrote it meanwhile.
                drop(objects.replace_status(&name, &PostParams::default(), &object).await);
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

impl Granter {
    fn status_of(&mut self, node: &str, object: &NodeAliases) -> (NodeAliasesStatus, bool) {
        let aliases = self.aliases.entry(node.to_owned()).or_default();
        aliases.retain(|cidr, alias| object.spec.returned.get(cidr) != Some(&alias.grant));
        let wanted = usize::try_from(object.spec.wanted).unwrap();
        // What is granted together has one grant.
        self.grants += 1;
        while self.gives && self.problem.is_none() && aliases.len() < wanted {
            self.next += 1;
            let alias =
                NodeAlias { grant: format!("grant-{}", self.grants), attached: true, ..NodeAlias::default() };
            aliases.insert(format!("10.111.{}.{}/32", self.next / 256, self.next % 256), alias);
        }
        for (address, pod) in &object.spec.leaving {
            if let Some(alias) = aliases.get_mut(&format!("{address}/32")) {
                alias.pod.get_or_insert_with(|| pod.uid.clone());
            }
        }
        let attached = i32::try_from(aliases.values().filter(|alias| alias.attached).count()).unwrap();
        let mut status = object.status.clone().unwrap_or_default();
        status.problem = self.problem.clone().filter(|_| aliases.len() < wanted);
        (status.aliases, status.attached) = (aliases.clone(), attached);
        (status, self.arrives)
    }
}
