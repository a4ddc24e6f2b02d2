//! Egress gateways: the objects that run them, their status, and the clients of nodes that are gone.
//!
//! ```text
//!  Egress ──▶ ServiceAccount, Role, RoleBinding ──▶ Deployment ──▶ gateways' pods ──▶ status
//!        └──▶ Service, PodDisruptionBudget                               EgressClients ──▶ condition
//! ```
//!
//! All children are owned by their Egress, so the API server deletes them with it. A missing or changed child is
//! repaired; what others add to it stays.

mod children;
mod deployment;
mod events;
mod image;
mod known;
mod metrics;
mod missing_nodes;
mod perform;
mod planner;
#[cfg(test)]
mod proptests;
mod status;
mod template;
#[cfg(test)]
mod tests;
mod wanted;
mod write;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use prometheus_client::registry::Registry;
use tenure_api::coil::egress::GATEWAYS;
use tenure_api::coil::{Egress, EgressClients};

use crate::kind::kept_kind;
use crate::part::{Count, Part, Perform, Plan};
use crate::release::MISSING_NODE_REST;
use crate::watch::{Watch, Watches};
use crate::world::World;
pub use image::{ImageError, image_of_pod};
pub use known::{
    Child, ClientsFacts, DeploymentFacts, EgressFacts, Egresses, GatewayFacts, GatewayPod, Refusal,
};
pub use write::{ChildKind, EgressWrite, Of};

/// Egress gateways, as a part of the controller.
#[derive(Clone, Debug)]
pub struct EgressPart {
    /// The image of gateways whose template names none.
    pub image: String,
    /// How long a node has to be missing, without a pod bound to it, before its clients are forgotten.
    pub missing_node_rest: Duration,
}

impl EgressPart {
    /// Gateways use this image.
    pub fn new(image: &str) -> Self {
        Self { image: image.to_owned(), missing_node_rest: MISSING_NODE_REST }
    }
}

impl Part for EgressPart {
    fn watch(&self, watches: &mut Watches<'_>) {
        let client = watches.client();
        let optional = || Watch { may_be_missing: true, ..Watch::default() };
        // Without an Egress, nothing else is watched.
        let while_needed =
            || Watch { needed: Some(Box::new(|world| world.egress().is_used())), ..optional() };
        let children = || Watch { labels: Some(GATEWAYS), ..while_needed() };
        watches.add::<Egress>(Api::all(client.clone()), optional());
        watches.add::<EgressClients>(Api::all(client.clone()), while_needed());
        watches.add::<Deployment>(Api::all(client.clone()), children());
        watches.add::<Service>(Api::all(client.clone()), children());
        watches.add::<PodDisruptionBudget>(Api::all(client.clone()), children());
        watches.add::<ServiceAccount>(Api::all(client.clone()), children());
        watches.add::<Role>(Api::all(client.clone()), children());
        watches.add::<RoleBinding>(Api::all(client.clone()), children());
        watches.add::<GatewayPod>(Api::all(client.clone()), children());
        // Claims need them, too; the first of both that needs them decides.
        let needed = |world: &World| world.egress().is_used() || world.claims().needs_namespaces();
        let namespaces = Watch { needed: Some(Box::new(needed)), ..optional() };
        watches.add::<PartialObjectMeta<Namespace>>(Api::all(client), namespaces);
    }

    fn planner(&self) -> Box<dyn Plan> {
        Box::new(planner::EgressPlanner::new(self))
    }

    fn performer(&self, client: &Client) -> (&'static str, Arc<dyn Perform>) {
        (write::PART, Arc::new(perform::EgressPerformer::new(client.clone())))
    }

    fn metrics(&self, registry: &mut Registry) -> Box<dyn Count> {
        Box::new(metrics::EgressMetrics::registered(registry))
    }
}

kept_kind!(Egress, "Egress", known::Seen<EgressFacts>, egress_mut.egresses, EgressFacts::seen);
kept_kind!(EgressClients, "EgressClients", known::Seen<ClientsFacts>, egress_mut.clients, ClientsFacts::seen);
kept_kind!(
    Deployment,
    "Deployment",
    known::Seen<DeploymentFacts>,
    egress_mut.deployments,
    DeploymentFacts::seen
);
kept_kind!(Service, "Service", known::Seen<Child>, egress_mut.services, Child::of_service);
kept_kind!(
    PodDisruptionBudget,
    "PodDisruptionBudget",
    known::Seen<Child>,
    egress_mut.budgets,
    Child::of_budget
);
kept_kind!(ServiceAccount, "ServiceAccount", known::Seen<Child>, egress_mut.accounts, Child::of_account);
kept_kind!(Role, "Role", known::Seen<Child>, egress_mut.roles, Child::of_role);
kept_kind!(RoleBinding, "RoleBinding", known::Seen<Child>, egress_mut.bindings, Child::of_binding);
kept_kind!(GatewayPod, "Pod of an Egress", known::Seen<GatewayFacts>, egress_mut.pods, GatewayFacts::seen);
