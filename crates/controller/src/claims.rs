//! Claims: addresses that outlive pods. Records in blocks and ledgers, the pods that have each claim, and the owners for which
//! claims are made.

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

use crate::cache::Cache;
use crate::kind::{Cached, cached_kind};
use crate::part::{Count, Part, Perform, Plan};
use crate::watch::{Watch, Watches};
use crate::world::World;
#[cfg(test)]
pub(crate) use known::namespace_seen;
pub use known::{Claim, Claims, NamespaceFacts, NamespaceSeen};
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
    /// How claims are looked after.
    pub settings: ClaimSettings,
    /// The namespace of Whereabouts' objects, in which records may be.
    pub namespace: String,
    /// Whether pods are in this API. Where they are not, none can use a claim.
    pub pods_are_known: bool,
}

impl Part for ClaimsPart {
    fn watch(&self, watches: &mut Watches<'_>) {
        let client = watches.client();
        let optional = || Watch { may_be_missing: true, ..Watch::default() };
        watches.add::<IPAMClaim>(Api::all(client.clone()), optional());
        let needed = |world: &World| world.claims.needs_namespaces();
        let namespaces = Watch { needed: Some(Box::new(needed)), ..optional() };
        watches.add::<PartialObjectMeta<Namespace>>(Api::all(client.clone()), namespaces);
        // KubeVirt's kinds may be missing.
        let of_owners = || Watch { needed: Some(Box::new(World::needs_owners)), ..optional() };
        watches.add::<VirtualMachine>(Api::all(client.clone()), of_owners());
        watches.add::<VirtualMachineInstance>(Api::all(client.clone()), of_owners());
        watches.add::<StatefulSet>(Api::all(client.clone()), of_owners());
        watches.add::<MutatingWebhookConfiguration>(Api::all(client), of_owners());
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

/// Implements [`Cached`] for a kind of which one function says what is kept.
macro_rules! cached_as {
    ($kind:ty, $kept:ty, $($field:ident).+, $seen:path) => {
        impl Cached for $kind {
            type Kept = $kept;

            fn cache(world: &mut World) -> &mut Cache<Self::Kept> {
                &mut world.$($field).+
            }

            fn kept(self) -> Self::Kept {
                $seen(&self)
            }
        }
    };
}

cached_as!(PartialObjectMeta<Namespace>, NamespaceSeen, claims.namespaces, known::namespace_seen);
cached_as!(VirtualMachine, MachineSeen, owners.machines, owners::machine_seen);
cached_as!(VirtualMachineInstance, MachineSeen, owners.instances, owners::instance_seen);
cached_as!(StatefulSet, StatefulSeen, owners.stateful_sets, owners::stateful_seen);
cached_as!(MutatingWebhookConfiguration, WebhookSeen, owners.webhooks, owners::webhook_seen);

impl Cached for IPAMClaim {
    type Kept = Claim;

    fn cache(world: &mut World) -> &mut Cache<Claim> {
        &mut world.claims.all
    }

    fn kept(self) -> Claim {
        Claim::of(self)
    }
}

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
