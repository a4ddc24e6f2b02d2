//! The controller's half of a dialect of its own: each `FixedAddress` holds the one address that it names. Of several that name
//! the same, the oldest holds it, and the others say why they do not.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher::Event;
use kube::{Api, Client, CustomResource, Resource, ResourceExt};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tenure_controller::{
    Answer, At, Board, Cache, Count, Kind, Note, Observation, Operation, Outcome, Part, Perform, Plan, Rank,
    State, Stub, Watch, Watches, World, Write, of, settle,
};
use tenure_handles::Timestamp;

const NAME: &str = "fixed";

/// An address that somebody holds by name.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(group = "fixed.example", version = "v1", kind = "FixedAddress", status = "FixedAddressStatus")]
#[kube(namespaced, schema = "disabled", derive = "PartialEq")]
pub struct FixedAddressSpec {
    pub address: String,
}

/// Whether it holds the address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FixedAddressStatus {
    pub held: bool,
    pub message: String,
}

/// What the part keeps in the world.
#[derive(Debug, Default)]
struct Known(Cache<FixedAddress>);

impl State for Known {
    fn changes(&self) -> u64 {
        self.0.changes()
    }
}

impl Kind for FixedAddress {
    const NAME: &'static str = "FixedAddress";

    fn observe(world: &mut World, event: Event<Self>) {
        let Known(cache) = world.state_mut();
        match event {
            Event::Init => cache.begin(),
            Event::InitApply(object) => cache.list(object),
            Event::Apply(object) => cache.apply(object),
            Event::InitDone => cache.finish(),
            Event::Delete(object) => cache.remove(&object.name_any(), &object.uid().unwrap_or_default()),
        }
    }

    fn observe_gone(world: &mut World, _: &str, name: &str, uid: &str) {
        world.state_mut::<Known>().0.remove(name, uid);
    }

    fn observe_unreadable(world: &mut World, stub: &Stub, gone: bool) {
        let Known(cache) = world.state_mut();
        if gone { cache.remove(&stub.name, &stub.uid) } else { cache.keep(&stub.name, &stub.uid) }
    }
}

/// The dialect.
#[derive(Debug)]
pub struct Fixed {
    pub namespace: &'static str,
}

impl Part for Fixed {
    fn watch(&self, watches: &mut Watches<'_>) {
        let api = Api::namespaced(watches.client(), self.namespace);
        watches.add::<FixedAddress>(api, Watch { may_be_missing: true, ..Watch::default() });
    }

    fn planner(&self) -> Box<dyn Plan> {
        Box::new(Planner)
    }

    fn performer(&self, client: &Client) -> (&'static str, Arc<dyn Perform>) {
        (NAME, Arc::new(Performer(Api::namespaced(client.clone(), self.namespace))))
    }

    fn metrics(&self, registry: &mut Registry) -> Box<dyn Count> {
        let refused = Gauge::default();
        registry.register(
            "fixed_addresses_refused",
            "Objects whose address another one holds",
            refused.clone(),
        );
        Box::new(Metrics { refused })
    }
}

#[derive(Debug)]
struct Planner;

impl Plan for Planner {
    fn plan(&mut self, world: &World, _: &mut Board, _: Timestamp) -> Vec<Write> {
        let Known(cache) = world.state();
        if !cache.is_complete() {
            return Vec::new();
        }
        let mut oldest: BTreeMap<&str, &FixedAddress> = BTreeMap::new();
        let age = |it: &FixedAddress| (it.creation_timestamp(), it.name_any());
        for object in cache.iter() {
            let known = oldest.entry(&object.spec.address).or_insert(object);
            if age(object) < age(known) {
                *known = object;
            }
        }
        let write = |object: &FixedAddress| {
            let (address, holder) = (&object.spec.address, oldest[object.spec.address.as_str()].name_any());
            let held = holder == object.name_any();
            let message = if held {
                format!("{address} is held")
            } else {
                format!(
                    "{address} belongs to FixedAddress \"{holder}\": name another address, or delete that one"
                )
            };
            let status = FixedAddressStatus { held, message };
            (object.status.as_ref() != Some(&status))
                .then(|| SetStatus { object: At::of(object), status }.into())
        };
        cache.iter().filter_map(write).collect()
    }
}

/// The one write of this dialect.
#[derive(Clone, Debug)]
struct SetStatus {
    object: At,
    status: FixedAddressStatus,
}

impl Operation for SetStatus {
    fn part(&self) -> &'static str {
        NAME
    }

    fn verb(&self) -> &'static str {
        "fixed_status"
    }

    fn subject(&self) -> &str {
        &self.object.uid
    }

    fn rank(&self) -> Rank {
        Rank::Status
    }

    fn notes(&self, world: &World) -> Vec<Note> {
        let known = world.state::<Known>().0.get(&self.object.name);
        let refused = known.filter(|_| !self.status.held);
        let note =
            |it: &FixedAddress| Note::warning(it.object_ref(&()), "AddressTaken", &self.status.message);
        refused.map(note).into_iter().collect()
    }
}

struct Performer(Api<FixedAddress>);

impl Perform for Performer {
    fn perform<'a>(&'a self, operation: &'a dyn Operation) -> BoxFuture<'a, Answer> {
        async move {
            let Some(SetStatus { object, status }) = of(operation) else {
                return Ok((Outcome::Failed(format!("not of this dialect: {operation:?}")), None));
            };
            let patch = json!({"metadata": {"resourceVersion": object.version}, "status": status});
            let written =
                self.0.patch_status(&object.name, &PatchParams::default(), &Patch::Merge(patch)).await;
            settle(&self.0, object, written, Observation::gone::<FixedAddress>).await
        }
        .boxed()
    }
}

#[derive(Debug)]
struct Metrics {
    refused: Gauge,
}

impl Count for Metrics {
    fn count(&self, world: &World, leads: bool, _: usize, _: Timestamp) {
        let all = world.state::<Known>().0.iter().filter(|_| leads);
        let refused = all.filter(|it| it.status.as_ref().is_some_and(|status| !status.held)).count();
        self.refused.set(i64::try_from(refused).unwrap_or(i64::MAX));
    }
}
