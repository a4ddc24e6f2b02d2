//! Who may use a claim's addresses is what the record says, on the embedded API server: whatever pods say in their annotations,
//! and whoever writes over a claim's status or makes a definition of somebody else's name.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by failing")]
#![allow(clippy::wildcard_imports, reason = "the bed is made for these tests")]

use std::time::Duration;

use bed::claims::*;
use bed::*;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tenure_api::coil::{AddressBlock, ClaimRecord};
use tenure_controller_testbed as bed;
use tenure_handles::Clock;
use tenure_testbed::clock::RuntimeClock;

/// The usual pool, and a controller that has the lead.
async fn started(seed: u64) -> (Client, Running) {
    let client = server(seed).await.client();
    pool(&client, "default", 2, "10.2.0.0/24").await;
    let controller = start_with(client.clone(), claiming("a"));
    (client, controller)
}

/// Waits until a pod has a claim, by the claim's annotation; its UID.
async fn has(client: &Client, claim: &str, pod: &str) -> String {
    let uid = bed::ranges::pods(client).get(pod).await.unwrap().uid().unwrap();
    until(&format!("{pod} to have {claim}"), async || {
        let claim = claims(client).get(claim).await.ok()?;
        let slots = tenure_claims::ClaimFacts::of(&claim).slots;
        slots.is_active(&uid).then_some(())
    })
    .await;
    uid
}

/// The pods that the record of an address names.
async fn named(client: &Client, address: &str) -> Vec<String> {
    let all = blocks(client).list(&ListParams::default()).await.unwrap();
    let address = address.parse().unwrap();
    let mut records = all.iter().flat_map(tenure_claims::in_block);
    let record = records.find(|(_, addresses)| addresses.contains(&address));
    record.into_iter().flat_map(|(record, _)| &record.pods).map(|pod| pod.uid.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_hides_its_use_keeps_the_address_from_others_until_it_ends() {
    let (client, controller) = started(120).await;
    let old = claim(&client, "c", CLUSTER).await;
    assert_eq!(given(&client, "c").await, ["10.2.0.0/32"]);
    use_claim(&client, "pod", "c", None).await;
    let pod = has(&client, "c", "pod").await;
    assert_eq!(named(&client, "10.2.0.0").await, [pod], "the record was written first");
    // The tenant's own pod says that it has nothing and refers to nothing; then the claim goes, and the controller with it.
    let lies = json!({"metadata": {"annotations": {
        "tenure/claim": null, "k8s.v1.cni.cncf.io/network-status": "[]",
    }}});
    let pods = bed::ranges::pods(&client);
    pods.patch("pod", &PatchParams::default(), &Patch::Merge(lies)).await.unwrap();
    controller.kill().await;
    delete_claim(&client, "c").await;
    let controller = start_with(client.clone(), claiming("b"));
    claim(&client, "thirsty", CLUSTER).await;
    assert_eq!(given(&client, "thirsty").await, ["10.2.0.1/32"]);
    tokio::time::sleep(Duration::from_millis(2_600)).await;
    assert_eq!(on_record(&client).await.get("10.2.0.0"), old.uid().as_ref(), "a pod uses it");
    bed::ranges::delete_pod(&client, "pod").await;
    until("the address to return", async || {
        (!on_record(&client).await.contains_key("10.2.0.0")).then_some(())
    })
    .await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_never_given_a_claims_address_does_not_keep_it_by_the_claims_name() {
    let (client, controller) = started(122).await;
    claim(&client, "c", CLUSTER).await;
    assert_eq!(given(&client, "c").await, ["10.2.0.0/32"]);
    controller.kill().await;
    delete_claim(&client, "c").await;
    // It waits for a claim of that name.
    use_claim(&client, "pod", "c", None).await;
    let controller = start_with(client.clone(), claiming("b"));
    until("the address to return", async || {
        (!on_record(&client).await.contains_key("10.2.0.0")).then_some(())
    })
    .await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_made_again_has_its_own_address_and_does_not_inherit_the_old_ones_pod() {
    let (client, controller) = started(121).await;
    let old = claim(&client, "c", CLUSTER).await;
    given(&client, "c").await;
    use_claim(&client, "pod", "c", None).await;
    let pod = has(&client, "c", "pod").await;
    delete_claim(&client, "c").await;
    let new = claim(&client, "c", CLUSTER).await;
    assert_eq!(given(&client, "c").await, ["10.2.0.1/32"]);
    use_claim(&client, "successor", "c", None).await;
    let successor = has(&client, "c", "successor").await;
    assert_eq!(named(&client, "10.2.0.0").await, [pod], "the old pod has what it had");
    assert_eq!(named(&client, "10.2.0.1").await, [successor]);
    let on_record = on_record(&client).await;
    assert_eq!(
        (on_record.get("10.2.0.0"), on_record.get("10.2.0.1")),
        (old.uid().as_ref(), new.uid().as_ref())
    );
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_status_or_holders_that_somebody_made_up_change_nothing_of_what_is_on_record() {
    let (client, controller) = started(122).await;
    claim(&client, "victim", CLUSTER).await;
    assert_eq!(given(&client, "victim").await, ["10.2.0.0/32"]);
    let forger = claim(&client, "forger", CLUSTER).await;
    assert_eq!(given(&client, "forger").await, ["10.2.0.1/32"]);
    use_claim(&client, "pod", "forger", None).await;
    let pod = has(&client, "forger", "pod").await;
    // Somebody else's address, with all that looks like the proof, and without; and nobody has it.
    let block = blocks(&client).list(&ListParams::default()).await.unwrap().items.remove(0).name_any();
    let places = [tenure_claims::status::RecordLocation::Block(block)];
    let stolen = [("10.2.0.0".parse().unwrap(), 32)];
    let mut status = tenure_claims::status::allocated(&forger, &stolen, &places, RuntimeClock.now());
    for _ in 0..2 {
        let patch = Patch::Merge(json!({"status": {"ips": status.ips, "conditions": status.conditions}}));
        claims(&client).patch_status("forger", &PatchParams::default(), &patch).await.unwrap();
        let nobody = Patch::Merge(json!({"metadata": {"annotations": {"tenure/holders": "{}"}}}));
        claims(&client).patch("forger", &PatchParams::default(), &nobody).await.unwrap();
        until("what is on record to be said again", async || {
            let claim = claims(&client).get("forger").await.unwrap();
            (claim.status.clone().unwrap().ips == ["10.2.0.1/32"] && tenure_claims::status::is_held(&claim))
                .then_some(())
        })
        .await;
        assert_eq!(has(&client, "forger", "pod").await, pod);
        assert_eq!(named(&client, "10.2.0.1").await, std::slice::from_ref(&pod));
        assert_eq!(named(&client, "10.2.0.0").await, [""; 0]);
        status.conditions.clear();
    }
    assert_eq!(check_claims(&client).await, 2);
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_definition_with_the_cluster_networks_name_is_refused_and_changes_nothing_for_others() {
    let (client, controller) = started(123).await;
    bed::ranges::define_attachments(&client).await;
    let elsewhere = |name: &str, network: &str, pool: &str| {
        let config = json!({
            "cniVersion": "1.0.0", "name": network, "type": "tenure", "pool": pool, "allowPersistentIPs": true,
        });
        (name.to_owned(), config.to_string())
    };
    let attach = async |namespace: &str, (name, config): (String, String)| {
        let definition = json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": name, "namespace": namespace}, "spec": {"config": config},
        });
        let all: Api<tenure_api::networks::NetworkAttachmentDefinition> =
            Api::namespaced(client.clone(), namespace);
        all.create(&PostParams::default(), &serde_json::from_value(definition).unwrap()).await.unwrap();
    };
    attach("apps", elsewhere("mine", CLUSTER, "stolen")).await;
    // The same between tenants: a network of one's own namespace is what its own definitions say.
    attach("apps", elsewhere("theirs", "blue", "stolen")).await;
    attach("default", elsewhere("blue", "blue", "default")).await;
    until("the refusal to be told", async || {
        let events: Api<k8s_openapi::api::core::v1::Event> = Api::namespaced(client.clone(), "apps");
        let all = events.list(&ListParams::default()).await.unwrap();
        let about = |it: &&k8s_openapi::api::core::v1::Event| {
            it.reason.as_deref() == Some("NetworkNameRefused")
                && it.involved_object.name.as_deref() == Some("mine")
        };
        all.iter().find(about).map(|_| ())
    })
    .await;
    claim(&client, "c", CLUSTER).await;
    assert_eq!(given(&client, "c").await, ["10.2.0.0/32"]);
    claim(&client, "d", "blue").await;
    assert_eq!(given(&client, "d").await, ["10.2.0.1/32"]);
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_second_record_that_a_late_write_makes_goes_while_a_pod_uses_the_claim() {
    let (client, controller) = started(126).await;
    let made = claim(&client, "c", CLUSTER).await;
    assert_eq!(given(&client, "c").await, ["10.2.0.0/32"]);
    use_claim(&client, "pod", "c", None).await;
    let pod = has(&client, "c", "pod").await;
    // What a controller of before has sent arrives.
    let of = pools(&client).get("default").await.unwrap();
    let mut late = AddressBlock::carve_floating(&of, 7).unwrap();
    let (namespace, uid) = (made.namespace().unwrap(), made.uid().unwrap());
    let record = ClaimRecord { namespace, name: "c".to_owned(), uid, ..ClaimRecord::default() };
    late.spec.claims.insert("1".to_owned(), record);
    blocks(&client).create(&PostParams::default(), &late).await.unwrap();
    until("the second record to be freed", async || {
        let late = blocks(&client).get(&late.name_any()).await.unwrap();
        late.spec.claims.get("1").is_none_or(|record| record.freed.is_some()).then_some(())
    })
    .await;
    assert_eq!(given(&client, "c").await, ["10.2.0.0/32"]);
    assert_eq!(named(&client, "10.2.0.0").await, [pod]);
    assert_eq!(named(&client, "10.2.0.29").await, [""; 0], "nobody was given it");
    controller.stop().await;
}
