//! An embedded API server, and a planner whose every plan is compared with one that looks at everything, and is performed.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tenure_api::coil::{AddressPool, Egress, EgressClients};
use tenure_handles::{Clock, SeededEntropy, SystemClock, Timestamp};
use tenure_localapi::LocalApi;

use super::super::perform::EgressPerformer;
use super::super::planner::EgressPlanner;
use super::super::{EgressPart, GatewayPod};
use crate::events::Note;
use crate::executor::Outcome;
use crate::kind::Kind;
use crate::part::{Board, Perform, Plan};
use crate::world::World;
use crate::write::Write;

/// The namespace of all Egresses here.
pub(in super::super) const NAMESPACE: &str = "internet";
/// So many plans are enough for anything.
const ROUNDS: usize = 400;

/// A world that is what the server says.
pub(in super::super) struct Rig {
    pub(in super::super) client: Client,
    pub(in super::super) world: World,
    pub(in super::super) now: Timestamp,
    /// What people were told.
    pub(in super::super) notes: Vec<Note>,
    pub(in super::super) planner: EgressPlanner,
    full: EgressPlanner,
    performer: EgressPerformer,
}

impl Rig {
    pub(in super::super) async fn new() -> Self {
        let client = LocalApi::temporary(SystemClock, SeededEntropy::new(5)).client();
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for crd in [
            tenure_api::crd_of::<Egress>(),
            tenure_api::crd_of::<EgressClients>(),
            tenure_api::crd_of::<AddressPool>(),
        ] {
            definitions.create(&PostParams::default(), &crd).await.unwrap();
        }
        let part = EgressPart::new("tenure:test");
        let mut world = World::default();
        // The embedded server has no rights to give.
        world.note_lack("Role", true);
        world.note_lack("RoleBinding", true);
        let rig = Self {
            performer: EgressPerformer::new(client.clone()),
            planner: EgressPlanner::new(&part),
            full: EgressPlanner::new(&part),
            client,
            world,
            now: SystemClock.now(),
            notes: Vec::new(),
        };
        rig.make_cluster::<Namespace>(json!({"metadata": {"name": NAMESPACE}})).await;
        rig
    }

    pub(in super::super) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub(in super::super) async fn make<K>(&self, object: Value) -> K
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + Serialize,
    {
        let object = serde_json::from_value(object).unwrap();
        self.api().create(&PostParams::default(), &object).await.unwrap()
    }

    pub(in super::super) async fn make_cluster<K>(&self, object: Value) -> K
    where
        K: Resource<Scope = ClusterResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + Serialize,
    {
        let object = serde_json::from_value(object).unwrap();
        Api::all(self.client.clone()).create(&PostParams::default(), &object).await.unwrap()
    }

    /// An Egress with this spec; destinations are filled in.
    pub(in super::super) async fn egress(&self, name: &str, mut spec: Value) -> Egress {
        if spec.get("destinations").is_none() {
            spec["destinations"] = json!(["0.0.0.0/0"]);
        }
        let types = json!({"apiVersion": "coil.cybozu.com/v2", "kind": "Egress"});
        let mut object = types;
        object["metadata"] = json!({"name": name});
        object["spec"] = spec;
        self.make(object).await
    }

    pub(in super::super) async fn patch<K>(&self, name: &str, patch: Value)
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        self.api::<K>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub(in super::super) async fn get<K>(&self, name: &str) -> Option<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        self.api::<K>().get_opt(name).await.unwrap()
    }

    pub(in super::super) async fn delete<K>(&self, name: &str)
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        _ = self.api::<K>().delete(name, &DeleteParams::default()).await;
    }

    /// As the Deployment's controller would say.
    pub(in super::super) async fn serve(&self, name: &str, status: Value) {
        let patch = Patch::Merge(json!({"status": status}));
        _ = self.api::<Deployment>().patch_status(name, &PatchParams::default(), &patch).await;
    }

    pub(in super::super) fn clients_object(egress: &Egress, node: &str, uids: &[String]) -> EgressClients {
        let client =
            |uid: &String| json!({"namespace": "default", "pod": uid, "uid": uid, "addresses": ["10.0.0.1"]});
        let clients = uids.iter().map(|uid| serde_json::from_value(client(uid)).unwrap()).collect();
        EgressClients::of(egress, node, clients).unwrap()
    }

    /// Reads everything as a watch would.
    pub(in super::super) async fn observe(&mut self) {
        let client = self.client.clone();
        list::<Egress>(&mut self.world, Api::all(client.clone())).await;
        list::<EgressClients>(&mut self.world, Api::all(client.clone())).await;
        list::<Deployment>(&mut self.world, Api::all(client.clone())).await;
        list::<Service>(&mut self.world, Api::all(client.clone())).await;
        list::<PodDisruptionBudget>(&mut self.world, Api::all(client.clone())).await;
        list::<ServiceAccount>(&mut self.world, Api::all(client.clone())).await;
        list::<GatewayPod>(&mut self.world, Api::all(client.clone())).await;
        list::<PartialObjectMeta<Namespace>>(&mut self.world, Api::all(client.clone())).await;
        list::<AddressPool>(&mut self.world, Api::all(client.clone())).await;
        list::<Node>(&mut self.world, Api::all(client)).await;
    }

    /// A plan of what changed, which is one of everything.
    pub(in super::super) fn plan(&mut self) -> Vec<Write> {
        let plan = |planner: &mut EgressPlanner| planner.plan(&self.world, &mut Board::default(), self.now);
        let writes = plan(&mut self.planner);
        self.full.look_at_all();
        let all = plan(&mut self.full);
        let sorted = |writes: &[Write]| {
            let mut texts: Vec<String> = writes.iter().map(|write| format!("{write:?}")).collect();
            texts.sort();
            texts
        };
        assert_eq!(sorted(&writes), sorted(&all), "what changed, and everything");
        writes
    }

    /// Observes, plans and performs once. Says what was planned.
    pub(in super::super) async fn step(&mut self) -> Vec<Write> {
        self.observe().await;
        let writes = self.plan();
        for write in &writes {
            let notes = write.notes(&self.world);
            let (outcome, observed) = self.performer.perform(&**write).await.unwrap();
            if matches!(outcome, Outcome::Done) {
                self.notes.extend(notes);
            }
            if let Some(observed) = observed {
                observed.tell(&mut self.world);
            }
        }
        self.now = self.now.plus(Duration::from_millis(10));
        writes
    }

    /// Goes on until nothing is planned and nothing of earlier Egresses is left.
    pub(in super::super) async fn settle(&mut self) {
        for _ in 0..ROUNDS {
            if self.step().await.is_empty() && !self.waits_for_collection().await {
                assert!(self.step().await.is_empty(), "it had settled");
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("still planned: {:#?}", self.plan());
    }

    /// Whether an object is left whose owner is gone.
    async fn waits_for_collection(&self) -> bool {
        let egresses = self.api::<Egress>().list(&ListParams::default()).await.unwrap();
        let uids: Vec<_> = egresses.iter().filter_map(ResourceExt::uid).collect();
        let orphan = |owners: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference]| {
            owners.iter().any(|owner| !uids.contains(&owner.uid))
        };
        let deployments = self.api::<Deployment>().list(&ListParams::default()).await.unwrap();
        let services = self.api::<Service>().list(&ListParams::default()).await.unwrap();
        let budgets = self.api::<PodDisruptionBudget>().list(&ListParams::default()).await.unwrap();
        let accounts = self.api::<ServiceAccount>().list(&ListParams::default()).await.unwrap();
        let clients = self.api::<EgressClients>().list(&ListParams::default()).await.unwrap();
        deployments.iter().any(|it| orphan(it.owner_references()))
            || services.iter().any(|it| orphan(it.owner_references()))
            || budgets.iter().any(|it| orphan(it.owner_references()))
            || accounts.iter().any(|it| orphan(it.owner_references()))
            || clients.iter().any(|it| orphan(it.owner_references()))
    }

    /// The reasons of what people were told.
    pub(in super::super) fn told(&self) -> Vec<String> {
        let texts = self.notes.iter().map(|note| format!("{note:?}"));
        texts
            .filter_map(|text| Some(text.split("reason: \"").nth(1)?.split('"').next()?.to_owned()))
            .collect()
    }

    pub(in super::super) async fn pod(&self, name: &str, egress: &str, phase: &str, addresses: &[&str]) {
        let labels = tenure_api::coil::egress::gateway_labels(egress);
        let pod = json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {"containers": [{"name": "egress", "image": "x"}]},
        });
        if self.get::<Pod>(name).await.is_none() {
            self.make::<Pod>(pod).await;
        }
        let ips: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
        let patch = Patch::Merge(json!({"status": {"phase": phase, "podIPs": ips}}));
        self.api::<Pod>().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }
}

async fn list<K>(world: &mut World, api: Api<K>)
where
    K: Kind,
{
    K::observe(world, Event::Init);
    // Metadata alone is asked for in another way, and the embedded server gives whole objects for it as well.
    for object in api.list(&ListParams::default()).await.unwrap() {
        K::observe(world, Event::InitApply(object));
    }
    K::observe(world, Event::InitDone);
}
