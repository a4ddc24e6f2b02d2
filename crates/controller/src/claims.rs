//! Claims: addresses that outlive pods. This part owns the records in blocks and ledgers, which pods use each claim,
//! and the claims that it creates for machines and StatefulSets.

mod events;
mod index;
mod known;
mod metrics;
mod owners;
mod perform;
mod persistence;
mod plan;
mod planner;
mod records;
mod sets;
mod users;
mod write;

use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Namespace;
use kube::core::{PartialObjectMeta, PartialObjectMetaExt};
use kube::{Api, Client};
use prometheus_client::registry::Registry;
use tenure_api::claims::IPAMClaim;
use tenure_api::read::Unreadable;

use crate::kind::{cached_in, cached_kind};
use crate::part::{Count, Part, Perform, Plan};
use crate::release::MissingNodeRest;
use crate::watch::{Watch, Watches};
use crate::world::World;
#[cfg(test)]
pub(crate) use known::namespace_seen;
pub use known::{Claim, Claims, NamespaceFacts, NamespaceSeen};
pub(crate) use owners::CLAIM;
pub use owners::{
    MachineSeen, Owners, StatefulSeen, VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceSpec,
    VirtualMachineSpec, WebhookFacts, WebhookSeen,
};
pub(crate) use persistence::Persistence;
pub use plan::ClaimSettings;
pub(crate) use plan::speaks_for_cluster;
pub(crate) use planner::ClaimsPlanner;
#[cfg(test)]
pub(crate) use records::Planted;
pub use write::{ClaimId, ClaimWrite, Gone, MoveWrite, Owner, OwnerWrite, PodId, Renamed};

/// Claims, as a part of the controller.
#[derive(Clone, Debug, Default)]
pub struct ClaimsPart {
    /// How to manage claims.
    pub settings: ClaimSettings,
    /// The namespace of Whereabouts' objects, which may have records of claims.
    pub namespace: String,
    /// Whether this API has pods. Without pods, nothing can use a claim.
    pub pods_are_known: bool,
    /// The name of the cluster's default network, if its addresses may outlive pods.
    pub cluster_network: Option<String>,
    /// How long a pod and its Node object must be gone before the pod counts as ended.
    pub missing_node_rest: MissingNodeRest,
}

impl Part for ClaimsPart {
    fn watch(&self, watches: &mut Watches<'_>) {
        let client = watches.client();
        let optional = || Watch { may_be_missing: true, ..Watch::default() };
        watches.add::<IPAMClaim>(Api::all(client.clone()), optional());
        let needed = |world: &World| world.claims().needs_namespaces();
        let namespaces = Watch { needed: Some(Box::new(needed)), ..optional() };
        watches.add::<PartialObjectMeta<Namespace>>(Api::all(client.clone()), namespaces);
        // KubeVirt's kinds may be missing.
        let of_owners = || Watch { needed: Some(Box::new(World::needs_owners)), ..optional() };
        watches.add::<VirtualMachine>(Api::all(client.clone()), of_owners());
        watches.add::<VirtualMachineInstance>(Api::all(client.clone()), of_owners());
        watches.add::<StatefulSet>(Api::all(client.clone()), of_owners());
        watches.add::<MutatingWebhookConfiguration>(Api::all(client), of_owners());
    }

    fn prepare(&self, world: &mut World) {
        let claims = world.claims_mut();
        claims.cluster_network.clone_from(&self.cluster_network);
        claims.missing_node_rest = self.missing_node_rest;
    }

    fn planner(&self) -> Box<dyn Plan> {
        Box::new(ClaimsPlanner::new(&self.settings, self.pods_are_known))
    }

    fn performer(&self, client: &Client) -> (&'static str, Arc<dyn Perform>) {
        (write::PART, Arc::new(perform::ClaimsPerformer::new(client.clone(), &self.namespace)))
    }

    fn metrics(&self, registry: &mut Registry) -> Box<dyn Count> {
        Box::new(metrics::ClaimMetrics::registered(registry))
    }
}

cached_in!(PartialObjectMeta<Namespace>, NamespaceSeen, claims_mut.namespaces, |seen| known::namespace_seen(
    &seen
));
cached_in!(VirtualMachine, MachineSeen, owners_mut.machines, |seen| owners::machine_seen(&seen));
cached_in!(VirtualMachineInstance, MachineSeen, owners_mut.instances, |seen| owners::instance_seen(&seen));
cached_in!(StatefulSet, StatefulSeen, owners_mut.stateful_sets, |seen| owners::stateful_seen(&seen));
cached_in!(MutatingWebhookConfiguration, WebhookSeen, owners_mut.webhooks, |seen| owners::webhook_seen(
    &seen
));
cached_in!(IPAMClaim, Claim, claims_mut.all, Claim::of);

cached_kind!(
    IPAMClaim,
    "IPAMClaim",
    fn stand_in(it: &Unreadable) -> Option<Self> {
        let bare = || Self { metadata: it.metadata.clone(), ..Self::default() };
        Some(it.without(&["status"]).unwrap_or_else(bare))
    }
);
cached_kind!(
    PartialObjectMeta<Namespace>,
    "Namespace",
    fn stand_in(it: &Unreadable) -> Option<Self> {
        Some(it.metadata.clone().into_response_partial())
    }
);
cached_kind!(
    VirtualMachine,
    "VirtualMachine",
    fn observe_lack(world: &mut World) {
        Self::forget(world);
    }
);
cached_kind!(
    VirtualMachineInstance,
    "VirtualMachineInstance",
    fn observe_lack(world: &mut World) {
        Self::forget(world);
    }
);
cached_kind!(
    StatefulSet,
    "StatefulSet",
    fn observe_lack(world: &mut World) {
        Self::forget(world);
    }
);
cached_kind!(
    MutatingWebhookConfiguration,
    "MutatingWebhookConfiguration",
    fn observe_lack(world: &mut World) {
        Self::forget(world);
    }
);
