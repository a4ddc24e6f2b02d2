//! What is prepared on an API server, whatever is measured.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::machine::{Machine, SOON};

/// Defines our kinds and these, and waits until they are served.
pub(crate) async fn install(
    client: &Client,
    more: impl IntoIterator<Item = CustomResourceDefinition>,
) -> Result<()> {
    let all: Vec<_> = tenure_api::crds().into_iter().chain(more).collect();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in &all {
        definitions.create(&PostParams::default(), definition).await?;
    }
    for name in all.iter().map(kube::ResourceExt::name_any) {
        let established = await_condition(definitions.clone(), &name, conditions::is_crd_established());
        let waited = tokio::time::timeout(SOON, established).await;
        waited.with_context(|| format!("the API server does not serve {name}"))??;
    }
    Ok(())
}

/// Makes the object of a node with the address that every host has.
pub(crate) async fn node(client: &Client, name: &str) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    create(&nodes, json!({"metadata": {"name": name}})).await?;
    let addresses = json!([{"type": "InternalIP", "address": Machine::ADDRESS}]);
    let status = Patch::Merge(json!({"status": {"addresses": addresses}}));
    nodes.patch_status(name, &PatchParams::default(), &status).await?;
    Ok(())
}

/// Makes an object out of JSON.
pub(crate) async fn create<K>(objects: &Api<K>, mut object: Value) -> Result<()>
where
    K: kube::Resource<DynamicType = ()> + Clone + serde::Serialize + DeserializeOwned + std::fmt::Debug,
{
    object["apiVersion"] = json!(K::api_version(&()));
    object["kind"] = json!(K::kind(&()));
    let object: K = serde_json::from_value(object)?;
    let made = made(objects.create(&PostParams::default(), &object).await);
    made.with_context(|| format!("cannot create {} {}", K::kind(&()), object.name_any()))
}

/// What became of a creation. No two objects here have the same name, so one that exists is ours: the client repeats a request that
/// a busy server gave up, and the server may have carried it out all the same.
pub(crate) fn made<K>(created: Result<K, kube::Error>) -> Result<(), kube::Error> {
    match created {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        created => created.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::made;

    #[test]
    fn an_object_that_exists_was_made_and_a_refusal_is_an_error() {
        let refused = |reason: &str| Err::<(), _>(kube::Error::Api(Status::failure("no", reason).boxed()));
        assert!(made(Ok(())).is_ok());
        assert!(made(refused("AlreadyExists")).is_ok());
        assert!(made(refused("Forbidden")).is_err());
    }
}
