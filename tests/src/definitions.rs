//! Our objects on a real API server: definitions, created and waited for, and a controller with the rights of its account.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt};
use tenure_controller::{ClaimSettings, Controller, RunError, Settings};
use tenure_handles::SystemClock;
use tenure_testbed::control_plane::ControlPlane;
use tenure_testbed::wait::PATIENCE;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy");

/// Creates definitions, and waits until the server serves them.
pub async fn define(client: &Client, crds: impl IntoIterator<Item = CustomResourceDefinition>) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in crds {
        let name = crd.name_any();
        definitions.create(&PostParams::default(), &crd).await.with_context(|| format!("creating {name}"))?;
        established(client, &name).await?;
    }
    Ok(())
}

/// Waits until the server serves the definition of this name.
pub async fn established(client: &Client, name: &str) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let established = await_condition(definitions, name, conditions::is_crd_established());
    tokio::time::timeout(PATIENCE, established).await.with_context(|| format!("waiting for {name}"))??;
    Ok(())
}

/// Applies everything of `deploy/`, and starts a controller that has the rights of its account. It gives up missing nodes
/// after a second.
pub async fn deploy_with_controller(
    plane: &ControlPlane,
    stop: CancellationToken,
) -> Result<JoinHandle<Result<(), RunError>>> {
    plane.kubectl(&["apply", "-k", DEPLOY]).await?;
    plane.kubectl(&["wait", "crd", "--all", "--for=condition=Established", "--timeout=300s"]).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(plane.client()?, "kube-system");
    let request = TokenRequest::default();
    let granted =
        accounts.create_token_request("tenure-controller", &PostParams::default(), &request).await?;
    let client = plane.client_with_token(&granted.status.context("a token")?.token)?;
    let usual = Settings::new("test");
    let settings = Settings {
        missing_node_rest: Duration::from_secs(1),
        claims: ClaimSettings { cooling: Duration::from_mins(5), ..usual.claims.clone() },
        ..usual
    };
    Ok(tokio::spawn(Controller::new(client, SystemClock, settings).run(stop)))
}
