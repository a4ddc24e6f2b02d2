//! What is known of Egresses: the needed parts of each object, by `namespace/name`.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition};
use k8s_openapi::api::core::v1::{Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure_api::coil::egress::{Destinations, label};
use tenure_api::coil::{Egress, EgressClients, EgressId};
use tenure_api::release::mark_of;

use super::write::ChildKind;
pub(super) use crate::cache::Seen;
use crate::cache::{Cache, Known};
use crate::pods::view_of_pods;
use crate::world::{State, World};
use crate::write::At;

/// When there are more refusals than this plus twice the Egresses, all are forgotten.
const MANY: usize = 64;

/// Egresses and what belongs to them.
#[derive(Debug, Default)]
pub struct Egresses {
    /// Egresses.
    pub egresses: Cache<Seen<EgressFacts>>,
    /// The clients of each on each node.
    pub clients: Cache<Seen<ClientsFacts>>,
    /// Deployments of gateways.
    pub deployments: Cache<Seen<DeploymentFacts>>,
    /// Services in front of gateways.
    pub services: Cache<Seen<Child>>,
    /// Budgets of gateways.
    pub budgets: Cache<Seen<Child>>,
    /// Accounts of gateways.
    pub accounts: Cache<Seen<Child>>,
    /// The Roles of gateways.
    pub roles: Cache<Seen<Child>>,
    /// The RoleBindings of their accounts.
    pub bindings: Cache<Seen<Child>>,
    /// Gateways.
    pub pods: Cache<Seen<GatewayFacts>>,
    /// What the API server refused, by Egress.
    pub refusals: Cache<Refusal>,
}

/// What is needed of an Egress.
#[derive(Clone, Debug, PartialEq)]
pub struct EgressFacts {
    /// The whole object.
    pub object: Egress,
    /// Its destinations; `None` if the stored ones cannot be read.
    pub destinations: Option<Destinations>,
}

/// What is needed of the clients of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientsFacts {
    /// Which object.
    pub at: At,
    /// Since when its node is missing, if that is recorded.
    pub mark: Option<String>,
    /// The Egress, if a label names it.
    pub egress: Option<EgressId>,
    /// The node.
    pub node: String,
    /// The UIDs of the pods.
    pub uids: BTreeSet<String>,
}

/// What is needed of a Deployment.
#[derive(Clone, Debug, PartialEq)]
pub struct DeploymentFacts {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// The labels by which it finds its pods.
    pub selector: BTreeMap<String, String>,
    /// Labels and annotations of its pods.
    pub template: ObjectMeta,
    /// How many pods serve.
    pub available: i32,
    /// Why pods cannot be created.
    pub refused: Option<String>,
    /// Why it makes no progress.
    pub stuck: Option<String>,
}

/// What is needed of any other child: its metadata, and the values of our fields by JSON pointer.
#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// Our fields.
    pub fields: Fields,
}

/// Values by JSON pointer; null if missing.
pub(super) type Fields = BTreeMap<&'static str, Value>;

/// A gateway pod.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct GatewayPod {
    metadata: ObjectMeta,
    #[serde(default)]
    status: Option<GatewayStatus>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GatewayStatus {
    #[serde(default)]
    phase: Option<String>,
    #[serde(default, rename = "podIPs")]
    pod_ips: Vec<GatewayAddress>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct GatewayAddress {
    #[serde(default)]
    ip: String,
}

/// What is needed of a gateway pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayFacts {
    /// Its Egress.
    pub egress: Option<EgressId>,
    /// Its addresses while it runs.
    pub addresses: Vec<String>,
}

/// What the API server refused of an Egress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The Egress.
    pub egress: String,
    /// Its UID and generation at that time: a changed Egress may be accepted.
    pub of: (String, Option<i64>),
    /// Which child was refused.
    pub kind: ChildKind,
    /// The server's message; `None` if the child has been accepted since.
    pub message: Option<String>,
}

impl Known for Refusal {
    fn key(&self) -> String {
        self.egress.clone()
    }

    fn known_uid(&self) -> Option<String> {
        None
    }

    fn known_version(&self) -> u128 {
        0
    }
}

impl Egresses {
    /// Whether anybody uses egress.
    pub fn is_used(&self) -> bool {
        !self.egresses.is_empty()
    }

    /// Records the API server's answer about a child. Refusals of Egresses that come and go under new names are
    /// dropped in time.
    pub(super) fn note(&mut self, refusal: Refusal) {
        if self.refusals.len() > 2 * self.egresses.len() + MANY {
            self.refusals.forget();
        }
        self.refusals.apply(refusal);
    }
}

impl State for Egresses {
    fn changes(&self) -> u64 {
        let children = [&self.services, &self.budgets, &self.accounts, &self.roles, &self.bindings];
        let of_children: u64 = children.into_iter().map(Cache::changes).sum();
        let of_use = self.pods.changes() + self.clients.changes() + self.refusals.changes();
        self.egresses.changes() + self.deployments.changes() + of_children + of_use
    }
}

impl World {
    /// Egresses.
    pub fn egress(&self) -> &Egresses {
        self.state()
    }

    /// The same, mutable.
    pub(crate) fn egress_mut(&mut self) -> &mut Egresses {
        self.state_mut()
    }
}

impl EgressFacts {
    pub(super) fn seen(mut object: Egress) -> Seen<Self> {
        object.metadata.managed_fields = None;
        let destinations = Destinations::of(&object.spec.destinations).ok();
        Seen::of(&object.clone(), Self { object, destinations })
    }
}

impl ClientsFacts {
    #[expect(clippy::needless_pass_by_value, reason = "as caches take objects")]
    pub(super) fn seen(object: EgressClients) -> Seen<Self> {
        let namespace = object.namespace().unwrap_or_default();
        let facts = Self {
            at: At::of(&object),
            mark: mark_of(&object).map(str::to_owned),
            egress: object.egress().map(|name| EgressId::new(&namespace, name)),
            node: object.spec.node_name.clone(),
            uids: object.spec.clients.iter().map(|client| client.uid.clone()).collect(),
        };
        Seen::of(&object, facts)
    }
}

impl DeploymentFacts {
    pub(super) fn seen(mut object: Deployment) -> Seen<Self> {
        let mut facts = Self {
            metadata: bare(&mut object.metadata),
            selector: BTreeMap::new(),
            template: ObjectMeta::default(),
            available: 0,
            refused: None,
            stuck: None,
        };
        if let Some(spec) = object.spec.take() {
            facts.selector = spec.selector.match_labels.unwrap_or_default();
            facts.template = spec.template.metadata.unwrap_or_default();
        }
        if let Some(status) = object.status.take() {
            facts.available = status.available_replicas.unwrap_or_default();
            let says = |type_: &str, is: &str| {
                let found = |it: &&DeploymentCondition| it.type_ == type_ && it.status == is;
                let condition = status.conditions.iter().flatten().find(found)?;
                condition.message.clone().filter(|message| !message.is_empty())
            };
            facts.refused = says("ReplicaFailure", "True");
            facts.stuck = says("Progressing", "False");
        }
        object.metadata.clone_from(&facts.metadata);
        Seen::of(&object, facts)
    }
}

impl Child {
    fn seen<K>(object: K, fields: &[(&'static str, Value)]) -> Seen<Self>
    where
        K: Resource<DynamicType = ()>,
    {
        let mut object = object;
        let metadata = bare(object.meta_mut());
        let fields = fields.iter().cloned().collect();
        Seen::of(&object, Self { metadata, fields })
    }

    pub(super) fn of_service(object: Service) -> Seen<Self> {
        let spec = json(&object.spec);
        let mut ports = spec["ports"].clone();
        // A Service of another type has node ports; ours has none.
        for port in ports.as_array_mut().into_iter().flatten() {
            port.as_object_mut().map(|port| port.remove("nodePort"));
        }
        let fields = [
            ("/spec/type", spec["type"].clone()),
            ("/spec/selector", spec["selector"].clone()),
            ("/spec/ports", ports),
            ("/spec/ipFamilyPolicy", spec["ipFamilyPolicy"].clone()),
            ("/spec/sessionAffinity", spec["sessionAffinity"].clone()),
            ("/spec/sessionAffinityConfig", spec["sessionAffinityConfig"].clone()),
        ];
        Self::seen(object, &fields)
    }

    pub(super) fn of_budget(object: PodDisruptionBudget) -> Seen<Self> {
        let spec = json(&object.spec);
        let fields = [
            ("/spec/minAvailable", spec["minAvailable"].clone()),
            ("/spec/maxUnavailable", spec["maxUnavailable"].clone()),
            ("/spec/selector", spec["selector"].clone()),
        ];
        Self::seen(object, &fields)
    }

    pub(super) fn of_account(object: ServiceAccount) -> Seen<Self> {
        Self::seen(object, &[])
    }

    pub(super) fn of_role(object: Role) -> Seen<Self> {
        let rules = json(&object.rules);
        Self::seen(object, &[("/rules", rules)])
    }

    pub(super) fn of_binding(object: RoleBinding) -> Seen<Self> {
        let subjects = json(&object.subjects);
        Self::seen(object, &[("/subjects", subjects)])
    }
}

impl GatewayFacts {
    #[expect(clippy::needless_pass_by_value, reason = "as caches take objects")]
    pub(super) fn seen(pod: GatewayPod) -> Seen<Self> {
        let namespace = pod.namespace().unwrap_or_default();
        let egress = pod.labels().get(label::INSTANCE).map(|name| EgressId::new(&namespace, name));
        let status = pod.status.as_ref().filter(|status| status.phase.as_deref() == Some("Running"));
        let addresses =
            status.into_iter().flat_map(|status| &status.pod_ips).map(|address| address.ip.clone());
        let facts = Self { egress, addresses: addresses.filter(|ip| !ip.is_empty()).collect() };
        Seen::of(&pod, facts)
    }
}

/// The metadata without large fields that nobody reads.
fn bare(metadata: &mut ObjectMeta) -> ObjectMeta {
    metadata.managed_fields = None;
    metadata.clone()
}

/// It was parsed from JSON, so it serializes.
fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

view_of_pods!(GatewayPod);
