//! From ADD to DEL, on every kind of network.

use serde_json::{Value, json};
use tenure_testbed::faults::Calls;

use super::bed::*;
use crate::node::Action;
use crate::objects::watched;

const IPS: [&str; 2] = ["10.1.200.5/32", "fd01::c805/128"];

#[tokio::test(start_paused = true)]
async fn every_verb_knows_claims_and_a_del_keeps_the_address() {
    for (bed, network, ips) in every_kind().await {
        let pod = bed.refers("db-0", "db").await;
        // In whatever order a status has them.
        let reversed: Vec<&str> = ips.iter().copied().rev().collect();
        let claim = bed.claim_for("db", &reversed, &pod).await;
        let agent = bed.agent().await;
        let before = bed.everything().await;
        let given = agent.add(&network, &pod).await.unwrap();
        assert_eq!(given, ips, "{network}");
        assert_eq!(agent.add(&network, &pod).await.unwrap(), ips, "the same again");
        agent.check(&network, &pod, &given).await.unwrap();
        let other = given[0].replace("200.5", "200.6").replace("0.200", "0.201").replace(":c8", ":c9");
        let wrong = agent.check(&network, &pod, &[other]).await.unwrap_err();
        assert!(wrong.message.contains("and not"), "{wrong}");
        agent.gc(&network, &[&pod]).await.unwrap();
        assert_eq!(agent.holds().await, [bed.claim_use("c-db-0", "db", true)]);
        agent.del(&network, &pod).await.unwrap();
        agent.del(&network, &pod).await.unwrap();
        assert_eq!(agent.holds().await, [""; 0]);
        // Another container of the pod, of which nobody says that it is alive.
        let next = At { container: "c-next".into(), ..pod.clone() };
        assert_eq!(agent.add(&network, &next).await.unwrap(), ips);
        agent.gc(&network, &[]).await.unwrap();
        assert_eq!(agent.holds().await, [""; 0]);
        // The next pod, wherever the claim is by then.
        let later = bed.refers("db-1", "db").await;
        bed.let_in(&claim, &[&later]).await;
        assert_eq!(agent.add(&network, &later).await.unwrap(), ips);
        bed.let_in(&claim, &[&pod]).await;
        let writes = bed.calls(&Calls::writes().to("ipamclaims")) + bed.calls(&Calls::writes().to("pods"));
        assert_eq!(writes, 0);
        let shared = bed.everything().await;
        assert_eq!(shared.len(), before.len());
        let ledgers =
            |all: &[String]| all.iter().filter(|it| !it.contains("IPAMClaim")).cloned().collect::<Vec<_>>();
        assert_eq!(ledgers(&shared), ledgers(&before), "no ledger has anything to do with it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_del_of_the_old_pod_does_not_touch_the_newer_one() {
    for (bed, network, ips) in every_kind().await {
        let old = bed.refers("db-0", "db").await;
        let claim = bed.claim_for("db", &ips, &old).await;
        let agent = bed.agent().await;
        agent.add(&network, &old).await.unwrap();
        bed.delete_pod(&old).await;
        let new = At { container: "c-new".into(), ..bed.refers("db-0", "db").await };
        bed.let_in(&claim, &[&new]).await;
        assert_eq!(agent.add(&network, &new).await.unwrap(), ips);
        agent.del(&network, &old).await.unwrap();
        agent.gc(&network, &[&new]).await.unwrap();
        assert_eq!(agent.holds().await, [bed.claim_use("c-new", "db", true)]);
        agent
            .check(&network, &new, &ips.iter().map(|ip| (*ip).to_owned()).collect::<Vec<_>>())
            .await
            .unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_api_server_claim_users_are_added_again_checked_and_deleted() {
    for (bed, network, ips) in every_kind().await {
        let pod = bed.refers("db-0", "db").await;
        bed.claim_for("db", &ips, &pod).await;
        let agent = bed.agent().await;
        let given = agent.add(&network, &pod).await.unwrap();
        let listed = || agent.claims.health().watches.get(watched::OWN_PODS).is_some_and(|it| it.listed);
        until("the watch of pods", async || listed().then_some(())).await;
        bed.away();
        assert_eq!(agent.add(&network, &pod).await.unwrap(), ips);
        agent.check(&network, &pod, &given).await.unwrap();
        let next = At { container: "c-next".into(), ..pod.clone() };
        assert_eq!(
            agent.add(&network, &next).await.unwrap(),
            ips,
            "another container of a pod that is known"
        );
        let began = std::time::Duration::from_secs(2);
        for at in [&pod, &next] {
            tokio::time::timeout(began, agent.del(&network, at)).await.expect("nobody is asked").unwrap();
        }
        assert_eq!((agent.holds().await.len(), agent.left()), (0, 0), "it is done");
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_a_claim_user_is_what_it_was_and_its_claim_is_watched_again() {
    for (bed, network, ips) in every_kind().await {
        let (one, two) = (bed.refers("one", "vm").await, bed.refers("two", "vm").await);
        let claim = bed.claim_for("vm", &ips, &one).await;
        let agent = bed.agent().await;
        agent.add(&network, &one).await.unwrap();
        let journal = agent.journal();
        drop(agent);
        let agent = bed.agent_after(journal).await;
        assert_eq!(agent.holds().await, [bed.claim_use("c-one", "vm", true)]);
        assert_eq!(agent.add(&network, &one).await.unwrap(), ips);
        // The claim moves to a pod of another node.
        bed.let_in_on(&claim, &[(&two, "node-2"), (&one, "node-1")]).await;
        until("the move", async || {
            (agent.holds().await == [bed.claim_use("c-one", "vm", false)]).then_some(())
        })
        .await;
        agent.del(&network, &one).await.unwrap();
        assert_eq!(agent.holds().await, [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_move_commits_when_the_claim_says_so_and_not_before() {
    for (bed, network, ips) in every_kind().await {
        let (source, target) = (bed.refers("source", "vm").await, bed.refers("target", "vm").await);
        let claim = bed.claim("vm").await;
        bed.give(&claim, &ips).await;
        bed.let_in_on(&claim, &[(&source, "node-2"), (&target, "node-1")]).await;
        let agent = bed.agent().await;
        assert_eq!(agent.add(&network, &target).await.unwrap(), ips);
        assert_eq!(agent.holds().await, [bed.claim_use("c-target", "vm", false)], "packets go to the source");
        bed.let_in_on(&claim, &[(&target, "node-1"), (&source, "node-2")]).await;
        until("the commit", async || {
            (agent.holds().await == [bed.claim_use("c-target", "vm", true)]).then_some(())
        })
        .await;
        // The claim goes while it is in use: nothing changes for its pod.
        bed.claims(bed.namespace).delete("vm", &kube::api::DeleteParams::default()).await.unwrap();
        a_moment().await;
        assert_eq!(agent.holds().await, [bed.claim_use("c-target", "vm", true)]);
        agent.del(&network, &target).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_ethernet_address_follows_the_claim_unless_somebody_says_otherwise() {
    let bed = Bed::new().await;
    let agent = bed.agent().await;
    let mac = |result: &Value| result["interfaces"][0]["mac"].as_str().unwrap().to_owned();
    let with = |field: &str, value: Value| {
        let mut network = routed();
        network[field] = value;
        network
    };
    let mut number = 0;
    for (network, expected) in [
        (routed(), "0a:58:0a:01:c8:05"),
        (with("claimMac", json!("address")), "0a:58:0a:01:c8:05"),
        (with("claimMac", json!("own")), "02:00:00:00:00:07"),
        (with("runtimeConfig", json!({"mac": "0a:00:00:00:00:01"})), "0a:00:00:00:00:01"),
        (with("args", json!({"cni": {"mac": "0a:00:00:00:00:02"}})), "0a:00:00:00:00:02"),
    ] {
        number += 1;
        let (pod, name) = (format!("pod-{number}"), format!("claim-{number}"));
        let pod = bed.refers(&pod, &name).await;
        bed.claim_for(&name, &IPS, &pod).await;
        let result = agent.ask(tenure_cni::Verb::Add, &network, &pod).await.unwrap();
        assert_eq!(mac(&result), expected, "{network}");
        let again = agent.ask(tenure_cni::Verb::Add, &network, &pod).await.unwrap();
        assert_eq!(mac(&again), expected);
        agent.del(&network, &pod).await.unwrap();
    }
    let pod = bed.refers("pod-x", "claim-x").await;
    bed.claim_for("claim-x", &IPS, &pod).await;
    for (field, value, part) in [
        ("claimMac", json!("mine"), r#"claimMac is "mine""#),
        ("runtimeConfig", json!({"mac": 7}), "runtimeConfig.mac is 7"),
        ("args", json!({"cni": {"mac": []}}), "args.cni.mac is []"),
    ] {
        let failure = agent.add(&with(field, value), &pod).await.unwrap_err();
        assert!(failure.code == 7 && failure.message.contains(part), "{part} in {failure}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_network_that_another_plugin_makes_has_the_pools_length_and_no_interface_of_ours() {
    let bed = Bed::new().await;
    let ipam = json!({"type": "tenure", "allowPersistentIPs": true});
    let network = json!({"cniVersion": "1.1.0", "name": "net", "type": "ptp", "ipam": ipam, "gateway": null});
    let pod = bed.refers("db-0", "db").await;
    bed.claim_for("db", &IPS, &pod).await;
    let agent = bed.agent().await;
    let given = agent.add(&network, &pod).await;
    // Its gateway is an address of the pool, which is not excluded here.
    let failure = given.unwrap_err();
    assert!(failure.code == 7 && failure.message.contains("could give a pod 10.1.0.1"), "{failure}");
    let mut network = network;
    network["ipam"]["gateway"] = json!(["192.0.2.1", "2001:db8::1"]);
    assert_eq!(agent.add(&network, &pod).await.unwrap(), ["10.1.200.5/16", "fd01::c805/112"]);
    let wired = agent.asked.lock().unwrap().iter().any(|action| matches!(action, Action::Wire(_)));
    assert!(!wired, "another plugin makes it");
    agent.del(&network, &pod).await.unwrap();
    assert_eq!(agent.holds().await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_a_container_has_it_keeps_when_its_network_opts_in() {
    for (bed, network, ips) in every_kind().await {
        let mut before = network.clone();
        before["allowPersistentIPs"] = json!(false);
        if let Some(ipam) = before.get_mut("ipam").and_then(serde_json::Value::as_object_mut) {
            ipam.remove("allowPersistentIPs");
        }
        let pod = bed.pod("db-0", json!({})).await;
        bed.claim_for("db", &ips, &pod).await;
        let agent = bed.agent().await;
        let given = agent.add(&before, &pod).await.unwrap();
        assert_ne!(given, ips);
        let networks = json!([{"name": "any", "ipam-claim-reference": "db"}]).to_string();
        bed.annotate(&pod, json!({tenure_api::claims::annotation::NETWORKS: networks})).await;
        assert_eq!(agent.add(&before, &pod).await.unwrap(), given);
        assert_eq!(agent.add(&network, &pod).await.unwrap(), given);
        agent.del(&network, &pod).await.unwrap();
        assert_eq!(agent.add(&network, &pod).await.unwrap(), ips);
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_of_a_range_of_one_address_is_not_taken_for_a_routed_one() {
    let bed = Bed::new().await;
    let mut network = shared();
    network["ipam"]["range"] = json!("10.0.0.7/32");
    let pod = bed.refers("db-0", "db").await;
    bed.claim_for("db", &["10.0.0.7/32"], &pod).await;
    let agent = bed.agent().await;
    assert_eq!(agent.add(&network, &pod).await.unwrap(), ["10.0.0.7/32"]);
    a_moment().await;
    let asked = agent.asked.lock().unwrap().clone();
    let exported = asked.iter().filter_map(|action| match action {
        Action::Export(networks) => Some(networks.iter().map(ToString::to_string)),
        _ => None,
    });
    let exported: Vec<String> = exported.flatten().collect();
    assert!(!exported.contains(&"10.0.0.7/32".to_owned()), "{exported:?}");
}
