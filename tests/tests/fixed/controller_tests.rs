//! A further dialect on the controller's side, added through the seam alone (`controller.rs`).

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::{Event, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tenure_controller::{Controller, Settings};
use tenure_handles::{SeededEntropy, SystemClock};
use tenure_localapi::LocalApi;
use tenure_testbed::wait::eventually;
use tokio_util::sync::CancellationToken;

use crate::controller::{Fixed, FixedAddress, FixedAddressSpec};

const NAMESPACE: &str = "lab";

async fn define(client: &Client) -> Result<()> {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "metadata": {"name": "fixedaddresses.fixed.example"},
        "spec": {
            "group": "fixed.example", "scope": "Namespaced",
            "names": {"kind": "FixedAddress", "plural": "fixedaddresses", "singular": "fixedaddress"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    });
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &serde_json::from_value(definition)?).await?;
    for crd in tenure_api::crds() {
        definitions.create(&PostParams::default(), &crd).await?;
    }
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))?;
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    Ok(())
}

#[tokio::test]
async fn a_further_dialect_watches_plans_writes_tells_and_counts_through_the_seam_alone() -> Result<()> {
    let client = LocalApi::temporary(SystemClock, SeededEntropy::new(7)).client();
    define(&client).await?;
    let mut settings = Settings::new("fixed");
    settings.tick = Duration::from_millis(200);
    settings.parts.push(Arc::new(Fixed { namespace: NAMESPACE }));
    let controller = Controller::new(client.clone(), SystemClock, settings);
    let (metrics, stop) = (controller.metrics(), CancellationToken::new());
    let running = tokio::spawn(controller.run(stop.clone()));

    let addresses: Api<FixedAddress> = Api::namespaced(client.clone(), NAMESPACE);
    let fixed = |name: &str| FixedAddress::new(name, FixedAddressSpec { address: "192.0.2.7".to_owned() });
    let message = async |name: &str| {
        let status = addresses.get(name).await?.status;
        anyhow::Ok(status.map(|status| (status.held, status.message)))
    };
    addresses.create(&PostParams::default(), &fixed("a")).await?;
    let first = eventually("the first to hold the address", async || message("a").await).await?;
    assert_eq!(first, (true, "192.0.2.7 is held".to_owned()));
    addresses.create(&PostParams::default(), &fixed("b")).await?;
    let (held, words) = eventually("the second to be refused", async || message("b").await).await?;
    assert!(!held && words.contains("belongs to FixedAddress \"a\""), "{words}");
    let events: Api<Event> = Api::namespaced(client.clone(), NAMESPACE);
    eventually("an event on it", async || {
        let all = events.list(&ListParams::default()).await?;
        Ok(all.items.into_iter().find(|it| it.reason.as_deref() == Some("AddressTaken")))
    })
    .await?;
    eventually("its metric", async || {
        Ok(metrics.text()?.contains("fixed_addresses_refused 1").then_some(()))
    })
    .await?;

    addresses.delete("a", &DeleteParams::default()).await?;
    eventually("the second to hold it", async || Ok(message("b").await?.filter(|(held, _)| *held))).await?;
    stop.cancel();
    Ok(running.await??)
}
