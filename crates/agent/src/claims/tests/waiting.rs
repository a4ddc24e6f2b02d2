//! What is not there yet, and what never will do.

use kube::ResourceExt as _;
use serde_json::json;
use tenure_api::claims::annotation;
use tenure_claims::status;
use tenure_handles::Clock as _;
use tenure_testbed::clock::RuntimeClock;

use super::bed::*;

const IPS: [&str; 2] = ["10.1.200.5/32", "fd01::c805/128"];

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_not_there_yet_is_waited_for_and_found() {
    let kinds = every_kind().await;
    let all = kinds.iter().map(|(bed, network, ips)| async move {
        let pod = bed.refers("db-0", "db").await;
        let agent = bed.agent().await;
        let (adding, building) = (agent.add(network, &pod), async {
            a_moment().await;
            let claim = bed.claim("db").await;
            a_moment().await;
            bed.give(&claim, ips).await;
            a_moment().await;
            bed.let_in(&claim, &[&pod]).await;
        });
        let (added, ()) = tokio::join!(adding, building);
        assert_eq!(added.unwrap(), *ips);
        assert_eq!(agent.holds().await, [bed.claim_use("c-db-0", "db", true)]);
    });
    futures::future::join_all(all).await;
}

#[tokio::test(start_paused = true)]
async fn addresses_that_nothing_proves_are_not_used_and_never_a_fresh_one_instead() {
    for (bed, network, ips) in every_kind().await {
        let pod = bed.refers("db-0", "db").await;
        let claim = bed.claim("db").await;
        bed.let_in(&claim, &[&pod]).await;
        let agent = bed.hasty_agent().await;
        let refused = async |words: &str| {
            let failure = agent.refused(&network, &pod, words).await;
            let named = format!("IPAMClaim {}/db", bed.namespace);
            assert!(failure.code == 11 && failure.message.contains(&named), "{failure}");
            assert_eq!(agent.holds().await, [""; 0]);
        };
        refused("has no addresses yet").await;
        // As a backup has it, or another cluster: the proof is that of another claim.
        let mut imported = claim.clone();
        imported.metadata.uid = Some("of-before".into());
        let addresses: Vec<_> = ips.iter().map(|text| parsed(text)).collect();
        let status = status::allocated(&imported, &addresses, &[], RuntimeClock.now());
        bed.set_status(&claim, json!(status)).await;
        refused(&format!(
            "nothing proves that these are on record for the claim of UID {}",
            claim.uid().unwrap()
        ))
        .await;
        let failed =
            status::failed(&claim, status::Reason::SubnetExhausted, "no address is free", RuntimeClock.now());
        bed.set_status(&claim, json!({"ips": [], "conditions": failed.conditions})).await;
        refused("SubnetExhausted: no address is free").await;
        bed.give(&claim, &ips).await;
        bed.let_in(&claim, &[&pod]).await;
        let given = until("the addresses", async || agent.add(&network, &pod).await.ok()).await;
        assert_eq!(given, ips);
    }
}

#[tokio::test(start_paused = true)]
async fn a_third_pod_is_refused_until_one_of_the_two_is_gone() {
    let bed = Bed::new().await;
    let (one, two, three) =
        (bed.refers("one", "vm").await, bed.refers("two", "vm").await, bed.refers("three", "vm").await);
    let claim = bed.claim_for("vm", &IPS, &one).await;
    let agent = bed.hasty_agent().await;
    assert_eq!(agent.add(&routed(), &one).await.unwrap(), IPS);
    let early = agent.refused(&routed(), &two, "has not been let use IPAMClaim shop/vm").await;
    assert_eq!(early.code, 11);
    bed.let_in(&claim, &[&one, &two]).await;
    let given = until("leave", async || agent.add(&routed(), &two).await.ok()).await;
    assert_eq!(given, IPS);
    let third = agent.refused(&routed(), &three, "the third").await;
    for part in ["IPAMClaim shop/vm", "shop/one", "shop/two", "pod shop/three"] {
        assert!(third.code == 11 && third.message.contains(part), "{part} in {third}");
    }
    assert_eq!(agent.holds().await, ["c-one shop/vm true", "c-two shop/vm false"]);
    agent.del(&routed(), &one).await.unwrap();
    bed.let_in(&claim, &[&two, &three]).await;
    until("leave", async || agent.add(&routed(), &three).await.ok()).await;
    assert_eq!(agent.holds().await, ["c-three shop/vm false", "c-two shop/vm true"]);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_is_refused_by_name() {
    for (bed, network, ips) in every_kind().await {
        let agent = bed.hasty_agent().await;
        let refused = async |claim: &str, pod: &At, parts: &[&str]| {
            let failure = agent.refused(&network, pod, parts[0]).await;
            let said = failure.to_string();
            let named = format!("IPAMClaim {}/{claim}", bed.namespace);
            for part in parts.iter().copied().chain([named.as_str()]) {
                assert!(said.contains(part), "{part} in {said}");
            }
            assert_eq!(agent.holds().await, [""; 0]);
        };
        let pod = bed.refers("a", "elsewhere").await;
        bed.claim_for("elsewhere", &["203.0.113.7/32"], &pod).await;
        refused("elsewhere", &pod, &["which is not of", "203.0.113.7"]).await;
        if ips.len() == 2 {
            let pod = bed.refers("b", "half").await;
            bed.claim_for("half", &ips[..1], &pod).await;
            refused("half", &pod, &["has no address of"]).await;
        }
        let pod = bed.refers("c", "another").await;
        let claim = bed.claim_with(bed.namespace, json!({"name": "another"}), "blue", "").await;
        bed.give(&claim, &ips).await;
        bed.let_in(&claim, &[&pod]).await;
        let accepted = format!("spec.network is {:?}", bed.net);
        refused("another", &pod, &[r#"is for network "blue""#, &accepted]).await;

        let networks = json!([{"name": "any", "ips": ["192.0.2.9"], "ipam-claim-reference": "wished"}]);
        let pod = bed.pod("d", json!({annotation::NETWORKS: networks.to_string()})).await;
        bed.claim_for("wished", &ips, &pod).await;
        refused("wished", &pod, &["asks for 192.0.2.9 by ips"]).await;

        let networks = json!([{"name": "any", "ips": [ips[0]], "ipam-claim-reference": "granted"}]);
        let pod = bed.pod("e", json!({annotation::NETWORKS: networks.to_string()})).await;
        bed.claim_for("granted", &ips, &pod).await;
        assert_eq!(until("the claim", async || agent.add(&network, &pod).await.ok()).await, ips);
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_kind_nobody_is_hindered_but_those_who_refer_to_a_claim() {
    let bed = Bed::without_claims().await;
    let (plain, refers) = (bed.pod("plain", json!({})).await, bed.refers("db-0", "db").await);
    let agent = bed.hasty_agent().await;
    assert_eq!(agent.add(&routed(), &plain).await.unwrap(), ["10.1.0.0/32", "fd01::/128"]);
    let failure = agent.add(&routed(), &refers).await.unwrap_err();
    assert!(failure.code == 11 && failure.message.contains("IPAMClaim shop/db"), "{failure}");
    assert_eq!(agent.holds().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_annotation_that_cannot_be_read_is_refused_by_name() {
    let bed = Bed::new().await;
    let pod = bed.pod("db-0", json!({annotation::NETWORKS: "[{]"})).await;
    let agent = bed.agent().await;
    let failure = agent.add(&routed(), &pod).await.unwrap_err();
    assert!(failure.code == 7 && failure.message.contains(annotation::NETWORKS), "{failure}");
    assert_eq!(agent.holds().await, [""; 0]);
}
