//! The kinds in the embedded API: those of this release, whichever release wrote the database.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};

use super::Error;

/// Installs all kinds.
pub(super) async fn install(client: &Client) -> Result<(), Error> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let post = PostParams::default();
    for mut definition in tenure_api::crds() {
        let name = definition.name_any();
        let failed = |source: kube::Error| Error::Api {
            act: format!("install the definition {name}"),
            source: Box::new(source),
        };
        match definitions.get_opt(&name).await.map_err(failed)? {
            None => definitions.create(&post, &definition).await.map_err(failed)?,
            Some(known) => {
                definition.metadata.resource_version = known.metadata.resource_version;
                // A definition without changes is not written.
                definitions.replace(&name, &post, &definition).await.map_err(failed)?
            }
        };
    }
    Ok(())
}
