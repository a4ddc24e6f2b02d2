//! `Egress`: gateways through which chosen pods reach chosen networks, under the gateways' own addresses.
//!
//! ```text
//!  Egress ──owns──▶ Deployment, Service, budget, account      (the controller)
//!     ▲    ──owns──▶ EgressClients, one for each node          (the node's agent) ──▶ read by the gateways
//!     └──names── Pod, by the annotation `egress.coil.cybozu.com/NAMESPACE: name[,name]`
//! ```

mod annotation;
mod clients;
mod destinations;
mod id;
mod names;
pub(crate) mod rules;
mod schema;

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::DeploymentStrategy;
use k8s_openapi::api::core::v1::SessionAffinityConfig;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::pool::set_condition;

pub use annotation::{ANNOTATION_PREFIX, AnnotationError, egresses_of};
pub use clients::{EgressClient, EgressClients, EgressClientsSpec};
pub use destinations::{Conflict, Destinations, OfFamily, conflicts};
pub use id::EgressId;
pub(crate) use names::{DIGITS, shortened};
pub use names::{
    GATEWAYS, account_name, clients_name, gateway_labels, gateway_selector, is_gateway, node_label,
};

/// The UDP port on which gateways and clients receive.
pub const PORT: u16 = 5555;
/// The container of a gateway's pod that Tenure runs; others in the template are its author's.
pub const CONTAINER: &str = "egress";
/// How long packets of a client go to the same gateway where no time is given.
pub const AFFINITY_SECONDS: i32 = 10_800;

/// Labels of what belongs to an Egress.
pub mod label {
    /// On gateways and what runs them: `coil`, as Coil has it, because the selector of a Deployment cannot be changed.
    pub const APP: &str = "app.kubernetes.io/name";
    /// On the same: the Egress.
    pub const INSTANCE: &str = "app.kubernetes.io/instance";
    /// On the same: `egress`.
    pub const COMPONENT: &str = "app.kubernetes.io/component";
    /// On the clients of one node: the Egress.
    pub const EGRESS: &str = "coil.cybozu.com/egress";
}

/// Types and reasons of an Egress's conditions.
pub mod condition {
    /// All gateways that are asked for serve. The message says how many do, and why not more.
    pub const READY: &str = "Ready";
    /// The gateways' namespace names a pool that is not there.
    pub const POOL_MISSING: &str = "PoolMissing";
    /// Another Egress of a client has one of the destinations, too.
    pub const CONFLICTING: &str = "Conflicting";

    /// Why a condition is as it is.
    pub mod reason {
        /// All gateways serve.
        pub const SERVING: &str = "Serving";
        /// Some gateways do not serve yet, or not any more.
        pub const GATEWAYS_MISSING: &str = "GatewaysMissing";
        /// Pods of gateways cannot be made.
        pub const PODS_REFUSED: &str = "PodsRefused";
        /// The API server refuses what the template asks for.
        pub const TEMPLATE_REFUSED: &str = "TemplateRefused";
        /// An object of the name is there that is not the Egress's.
        pub const NAME_TAKEN: &str = "NameTaken";
        /// The pool is there, or nobody needs one.
        pub const POOL_FOUND: &str = "PoolFound";
        /// There is no such pool.
        pub const POOL_NOT_FOUND: &str = "PoolNotFound";
        /// No client is known to have the same destination twice.
        pub const DISTINCT: &str = "Distinct";
        /// A client has the same destination twice.
        pub const SAME_DESTINATION: &str = "SameDestination";
    }
}

/// Which destinations, through how many gateways, and how these run.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "coil.cybozu.com",
    version = "v2",
    kind = "Egress",
    plural = "egresses",
    namespaced,
    status = "EgressStatus",
    derive = "PartialEq",
    doc = "Gateways through which pods reach the destinations, under the gateways' own addresses. A pod uses it that has the \
           annotation `egress.coil.cybozu.com/NAMESPACE: NAME`, with the namespace and the name of the Egress.",
    validation = rules::name_fits_a_service(),
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas", description = "Gateways that are asked for"),
    printcolumn(name = "Serving", type_ = "integer", json_path = ".status.replicas", description = "Gateways that serve"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status", description = "Whether all of them serve"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct EgressSpec {
    /// The networks that clients reach through the gateways, from 1 to 1024, such as `0.0.0.0/0` or `fd02::/120`. Host bits are
    /// allowed and ignored. Changes reach running clients.
    #[schemars(length(min = 1, max = 1024), inner(length(max = 49)))]
    #[x_kube(validation = rules::destinations_are_networks())]
    pub destinations: Vec<String>,

    /// How many gateways there are, at least 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub replicas: i32,

    /// How gateways are replaced by others, as in a Deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::strategy")]
    pub strategy: Option<DeploymentStrategy>,

    /// The pods of gateways. Tenure runs the container named `egress` and fills in what it lacks; all else is as it is here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<EgressPodTemplate>,

    /// `ClientIP`: packets of one client go to the same gateway, so that its connections stay whole; or `None`.
    #[serde(default = "client_ip")]
    #[schemars(extend("enum" = ["ClientIP", "None"]))]
    pub session_affinity: String,

    /// How long packets of a client go to the same gateway, as in a Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::session_affinity_config")]
    pub session_affinity_config: Option<SessionAffinityConfig>,

    /// Whether the kernel chooses the source port of encapsulated packets by the flow inside, so that flows of one client
    /// spread over gateways and queues. Needed by load balancers that know no session affinity for UDP.
    #[serde(default, skip_serializing_if = "is_false")]
    pub fou_source_port_auto: bool,

    /// How many gateways may be away at once while people drain nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_disruption_budget: Option<EgressBudget>,

    /// Whether only connections that clients open go through the gateways. Replies to connections that others have opened leave by the
    /// interface that has the address to which those were opened. (Tenure; Coil has this for whole nodes.)
    #[serde(default, skip_serializing_if = "is_false")]
    pub originating_only: bool,
}

fn one() -> i32 {
    1
}

fn client_ip() -> String {
    "ClientIP".to_owned()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_false(value: &bool) -> bool {
    !value
}

/// The pods of gateways.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EgressPodTemplate {
    /// Labels and annotations of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<EgressPodMetadata>,

    /// A pod's spec. The API server checks it with the Deployment that it becomes part of, and the condition `Ready` says if that is
    /// refused.
    #[serde(default)]
    #[schemars(schema_with = "schema::pod_spec")]
    pub spec: Map<String, Value>,
}

/// Labels and annotations of a gateway's pods.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressPodMetadata {
    /// Annotations, up to 64.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(validation = rules::keys_are_qualified_names("annotation"))]
    pub annotations: BTreeMap<String, String>,

    /// Labels, up to 64. Those by which the gateways are found are added.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::labels")]
    #[x_kube(validation = rules::keys_are_qualified_names("label"), validation = rules::values_are_label_values())]
    pub labels: BTreeMap<String, String>,
}

/// How many gateways may be away at once while people drain nodes: one of the two.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::budget_is_one_of_two())]
pub struct EgressBudget {
    /// So many stay: a number, or a percentage such as `50%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::number_or_percentage")]
    #[x_kube(validation = rules::is_a_number_or_a_percentage())]
    pub min_available: Option<IntOrString>,

    /// So many may be away: a number, or a percentage such as `50%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::number_or_percentage")]
    #[x_kube(validation = rules::is_a_number_or_a_percentage())]
    pub max_unavailable: Option<IntOrString>,
}

/// What was observed of the gateways.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EgressStatus {
    /// How many gateways serve.
    #[serde(default)]
    pub replicas: i32,

    /// The labels by which gateways are found, as autoscalers read it.
    #[serde(default)]
    pub selector: String,

    /// The addresses of the gateways that run, in order: as these their clients appear outside, up to 2048. (Tenure.)
    #[serde(default)]
    #[schemars(length(max = 2048))]
    pub addresses: Vec<String>,

    /// The `metadata.generation` that this status describes. (Tenure.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// `Ready` (all gateways serve), `PoolMissing` (their namespace's pool is not there) and `Conflicting` (a client has another
    /// Egress with the same destination). (Tenure.)
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_owned()]))]
    pub conditions: Vec<Condition>,
}

impl EgressStatus {
    /// So many addresses are said at most.
    pub const MAX_ADDRESSES: usize = 2048;

    /// Puts a condition in. Its transition time stays what it was while its status does.
    pub fn set_condition(&mut self, condition: Condition) {
        set_condition(&mut self.conditions, condition);
    }

    /// The condition of a type.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == type_)
    }
}

impl Egress {
    /// Which one it is.
    pub fn id(&self) -> EgressId {
        let metadata = &self.metadata;
        EgressId {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
        }
    }
}
