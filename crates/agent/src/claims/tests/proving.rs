//! What counts is on record, whatever a claim's status and its annotation say.

use kube::ResourceExt as _;
use serde_json::json;
use tenure_claims::status::RecordLocation;
use tenure_testbed::faults::{Calls, Verb};

use super::bed::*;

#[tokio::test(start_paused = true)]
async fn an_address_counts_only_if_the_record_says_that_this_very_claim_has_it() {
    for (bed, network, ips) in every_kind().await {
        let (own, victim) = (bed.refers("forger", "forged").await, bed.refers("victim", "real").await);
        let real = bed.claim_for("real", &ips, &victim).await;
        let forged = bed.claim("forged").await;
        let agent = bed.hasty_agent().await;
        // All that a claim's status and annotation can say: its own UID, the victim's addresses, and where those are on record.
        let places: Vec<RecordLocation> = if ips[0].ends_with("/32") {
            vec![RecordLocation::Block(format!("proof-{}-0", real.uid().unwrap()))]
        } else {
            let place = |number| RecordLocation::Ledger(format!("proof-{}-{number}", real.uid().unwrap()));
            (0..ips.len()).map(place).collect()
        };
        for places in [&places[..], &[], &[RecordLocation::Block("none-0".into())]] {
            bed.say(&forged, &ips, places).await;
            bed.hold(&forged, &[(&own, "node-1")]).await;
            let failure = agent.refused(&network, &own, "no record says that the claim of UID").await;
            assert!(failure.code == 11 && failure.message.contains("/forged"), "{failure}");
        }
        assert_eq!(agent.holds().await, [""; 0]);
        // A record of its own, but not for this pod.
        let others: Vec<String> = ips
            .iter()
            .map(|ip| {
                ip.replace(".200.5", ".200.9")
                    .replace(".200/", ".201/")
                    .replace("c805", "c809")
                    .replace("::c8/", "::c9/")
            })
            .collect();
        let others: Vec<&str> = others.iter().map(String::as_str).collect();
        bed.give(&forged, &others).await;
        bed.hold(&forged, &[(&own, "node-1")]).await;
        agent.refused(&network, &own, "was given them").await;
        bed.let_in(&forged, &[&own]).await;
        assert_eq!(until("its own", async || agent.add(&network, &own).await.ok()).await, others);
        assert_eq!(until("the victim's", async || agent.add(&network, &victim).await.ok()).await, ips);
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_is_read_when_the_pod_is_let_in_and_not_by_its_add() {
    let bed = Bed::new().await;
    let agent = bed.hasty_agent().await;
    let pod = bed.refers("db-0", "db").await;
    bed.claim_for("db", &["10.1.200.5/32", "fd01::c805/128"], &pod).await;
    let reads = || bed.calls(&Calls::of(Verb::Get).to("addressblocks"));
    until("the record to be read", async || (reads() > 0).then_some(())).await;
    a_moment().await;
    let before = reads();
    agent.add(&routed(), &pod).await.unwrap();
    assert_eq!(reads(), before);
}

#[tokio::test(start_paused = true)]
async fn a_definition_with_the_cluster_networks_name_costs_no_add_of_that_network_anything() {
    let bed = Bed::new().await;
    let list = json!({
        "cniVersion": "1.1.0", "name": "tenure", "allowPersistentIPs": true, "plugins": [{"type": "macvlan"}],
    });
    bed.network("mine", &list).await;
    let pod = bed.pod("plain", json!({})).await;
    let agent = bed.agent().await;
    let network = json!({"cniVersion": "1.1.0", "name": "tenure", "type": "tenure"});
    let at = At { interface: "eth0".into(), ..pod };
    agent.add(&network, &at).await.unwrap();
    let pods = || bed.calls(&Calls::of(Verb::Get).to("pods"));
    until("the watch of pods", async || {
        let listed =
            agent.claims.health().watches.get(crate::objects::watched::OWN_PODS).is_some_and(|it| it.listed);
        listed.then_some(())
    })
    .await;
    // Pods that nobody has heard of cost what they cost on a network whose name no definition has.
    let cost = async |name: &str| {
        let (before, network) = (pods(), json!({"cniVersion": "1.1.0", "name": name, "type": "tenure"}));
        let (pod, container) = (format!("ghost-{name}"), format!("c-{name}"));
        let ghost = At { pod, uid: name.into(), container, ..at.clone() };
        agent.add(&network, &ghost).await.unwrap();
        pods() - before
    };
    assert_eq!(cost("tenure").await, cost("of-nobody").await);
}
