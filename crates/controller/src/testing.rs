//! Shared by the rigs of parts' tests: an embedded API server and its objects, and the comparison of an incremental plan with a
//! full one.

use std::fmt::Debug;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher::Event;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tenure_handles::{SeededEntropy, SystemClock};
use tenure_localapi::LocalApi;

use crate::kind::Kind;
use crate::world::World;
use crate::write::Write;

/// So many plans are enough for anything.
pub(crate) const ROUNDS: usize = 400;

/// An object that tests create.
pub(crate) trait Object:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize
{
}

impl<K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize> Object for K {}

/// A client of an embedded API server with these definitions.
pub(crate) async fn server_with(definitions: impl IntoIterator<Item = CustomResourceDefinition>) -> Client {
    let client = LocalApi::temporary(SystemClock, SeededEntropy::new(5)).client();
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in definitions {
        api.create(&PostParams::default(), &definition).await.unwrap();
    }
    client
}

pub(crate) async fn create<K: Object>(api: Api<K>, object: Value) -> K {
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap()
}

pub(crate) async fn patch<K: Object>(api: Api<K>, name: &str, patch: Value) {
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Deletes an object, if it is there.
pub(crate) async fn delete<K: Object>(api: Api<K>, name: &str) {
    _ = api.delete(name, &DeleteParams::default()).await;
}

/// Lists a kind, as a watch does. The embedded server returns whole objects also for metadata.
pub(crate) async fn list<K: Kind>(world: &mut World, client: &Client) {
    let api: Api<K> = Api::all(client.clone());
    K::observe(world, Event::Init);
    for object in api.list(&ListParams::default()).await.unwrap() {
        K::observe(world, Event::InitApply(object));
    }
    K::observe(world, Event::InitDone);
}

/// Fails unless the plan of what changed has the same writes as the plan of everything.
#[track_caller]
pub(crate) fn assert_agree(incremental: &[Write], full: &[Write]) {
    let sorted = |writes: &[Write]| {
        let mut texts: Vec<String> = writes.iter().map(|write| format!("{write:?}")).collect();
        texts.sort();
        texts
    };
    assert_eq!(sorted(incremental), sorted(full), "what changed, and everything");
}
