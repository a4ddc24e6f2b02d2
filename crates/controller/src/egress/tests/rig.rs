//! An embedded API server, and a planner whose every plan is compared with a full one, and performed.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};
use tenure_api::coil::{AddressPool, Egress, EgressClients};
use tenure_handles::{Clock, SystemClock, Timestamp};

use super::super::perform::EgressPerformer;
use super::super::planner::EgressPlanner;
use super::super::{EgressPart, GatewayPod};
use crate::events::Note;
use crate::executor::Outcome;
use crate::part::{Board, Perform, Plan};
use crate::testing::{self, Object, ROUNDS, assert_agree, list};
use crate::world::World;
use crate::write::Write;

/// The namespace of all Egresses here.
pub(in super::super) const NAMESPACE: &str = "internet";

/// A world in sync with the server.
pub(in super::super) struct Rig {
    pub(in super::super) client: Client,
    pub(in super::super) world: World,
    pub(in super::super) now: Timestamp,
    /// Published events.
    pub(in super::super) notes: Vec<Note>,
    pub(in super::super) planner: EgressPlanner,
    full: EgressPlanner,
    performer: EgressPerformer,
}

impl Rig {
    pub(in super::super) async fn new() -> Self {
        let client = testing::server_with([
            tenure_api::crd_of::<Egress>(),
            tenure_api::crd_of::<EgressClients>(),
            tenure_api::crd_of::<AddressPool>(),
        ])
        .await;
        let part = EgressPart::new("tenure:test");
        let mut world = World::default();
        // The embedded server has no RBAC.
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
        K: Object + Resource<Scope = NamespaceResourceScope>,
    {
        testing::create(self.api(), object).await
    }

    pub(in super::super) async fn make_cluster<K>(&self, object: Value) -> K
    where
        K: Object + Resource<Scope = ClusterResourceScope>,
    {
        testing::create(Api::all(self.client.clone()), object).await
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
        K: Object + Resource<Scope = NamespaceResourceScope>,
    {
        testing::patch::<K>(self.api(), name, patch).await;
    }

    pub(in super::super) async fn get<K>(&self, name: &str) -> Option<K>
    where
        K: Object + Resource<Scope = NamespaceResourceScope>,
    {
        self.api::<K>().get_opt(name).await.unwrap()
    }

    pub(in super::super) async fn delete<K>(&self, name: &str)
    where
        K: Object + Resource<Scope = NamespaceResourceScope>,
    {
        testing::delete::<K>(self.api(), name).await;
    }

    /// Reports like the Deployment's controller.
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
        list::<Egress>(&mut self.world, &self.client).await;
        list::<EgressClients>(&mut self.world, &self.client).await;
        list::<Deployment>(&mut self.world, &self.client).await;
        list::<Service>(&mut self.world, &self.client).await;
        list::<PodDisruptionBudget>(&mut self.world, &self.client).await;
        list::<ServiceAccount>(&mut self.world, &self.client).await;
        list::<GatewayPod>(&mut self.world, &self.client).await;
        list::<PartialObjectMeta<Namespace>>(&mut self.world, &self.client).await;
        list::<AddressPool>(&mut self.world, &self.client).await;
        list::<Node>(&mut self.world, &self.client).await;
    }

    /// An incremental plan, compared with a full one.
    pub(in super::super) fn plan(&mut self) -> Vec<Write> {
        let plan = |planner: &mut EgressPlanner| planner.plan(&self.world, &mut Board::default(), self.now);
        let writes = plan(&mut self.planner);
        self.full.look_at_all();
        let all = plan(&mut self.full);
        assert_agree(&writes, &all);
        writes
    }

    /// Observes, plans and performs once. Returns the plan.
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

    /// Continues until nothing is planned and nothing of earlier Egresses is left.
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

    /// The reasons of published events.
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
