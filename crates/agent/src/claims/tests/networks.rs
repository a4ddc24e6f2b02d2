//! Networks that opt in by their list, and values that say neither yes nor no.

use serde_json::json;

use super::bed::*;

const IPS: [&str; 2] = ["10.1.200.5/32", "fd01::c805/128"];

/// A plugin of a list sees its own part only.
fn part() -> serde_json::Value {
    let mut network = routed();
    network.as_object_mut().unwrap().remove("allowPersistentIPs");
    network
}

#[tokio::test(start_paused = true)]
async fn a_network_may_opt_in_where_its_plugin_does_not_see_it() {
    let bed = Bed::new().await;
    let list = json!({"cniVersion": "1.1.0", "name": "net", "allowPersistentIPs": true, "plugins": [{"type": "tenure"}]});
    bed.network("any", &list).await;
    let pod = bed.refers("db-0", "db").await;
    bed.claim_for("db", &IPS, &pod).await;
    let agent = bed.agent().await;
    assert_eq!(agent.add(&part(), &pod).await.unwrap(), IPS);
    // One that comes later, under the definition's own name.
    let other = json!({"cniVersion": "1.1.0", "name": "late", "type": "tenure"});
    let networks = json!([{"name": "late", "ipam-claim-reference": "late"}]).to_string();
    let late = bed.pod("late-0", json!({tenure_api::claims::annotation::NETWORKS: networks})).await;
    let claim = bed.claim_with(bed.namespace, json!({"name": "late"}), "late", "").await;
    bed.give(&claim, &["10.1.200.6/32", "fd01::c806/128"]).await;
    bed.let_in(&claim, &[&late]).await;
    let unnamed = json!({"cniVersion": "1.1.0", "allowPersistentIPs": true, "plugins": [{"type": "tenure"}]});
    bed.network("late", &unnamed).await;
    until("the network", async || {
        // Until it is heard of, the pod is refused: never an ordinary address in place of the claim's.
        let given = agent.add(&other, &late).await.ok()?;
        assert_eq!(given, ["10.1.200.6/32", "fd01::c806/128"]);
        Some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn nobody_opts_in_a_network_of_others_by_a_definition_of_its_name() {
    let bed = Bed::new().await;
    let list = json!({"cniVersion": "1.1.0", "name": "net", "allowPersistentIPs": true, "plugins": [{"type": "tenure"}]});
    bed.network("mine", &list).await;
    let owner =
        json!([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "vm", "uid": "7"}]);
    let networks = json!({tenure_api::claims::annotation::NETWORKS: "theirs"});
    let launcher = bed.pod_of("launcher", json!({"annotations": networks, "ownerReferences": owner})).await;
    let agent = bed.hasty_agent().await;
    for interface in ["net1", "eth0"] {
        let at = At { interface: interface.into(), ..launcher.clone() };
        agent.add(&part(), &at).await.unwrap();
    }
    let networks = json!({tenure_api::claims::annotation::NETWORKS: "mine"});
    let launcher = bed.pod_of("own", json!({"annotations": networks, "ownerReferences": owner})).await;
    let failure = agent.add(&part(), &launcher).await.unwrap_err();
    assert!(failure.code == 11 && failure.message.contains("IPAMClaim of virtual machine"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn a_value_that_is_neither_true_nor_false_is_refused_by_name() {
    let bed = Bed::new().await;
    let pod = bed.refers("db-0", "db").await;
    let agent = bed.agent().await;
    let mut network = routed();
    network["allowPersistentIPs"] = json!("yes");
    let failure = agent.add(&network, &pod).await.unwrap_err();
    assert!(failure.code == 7 && failure.message.contains(r#"allowPersistentIPs is "yes""#), "{failure}");
    let mut network = shared();
    network["ipam"]["allowPersistentIPs"] = json!(1);
    let failure = agent.add(&network, &pod).await.unwrap_err();
    assert!(failure.code == 7 && failure.message.contains("ipam.allowPersistentIPs is 1"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn watches_are_shown_when_there_are_any() {
    let bed = Bed::new().await;
    let pod = bed.refers("db-0", "db").await;
    bed.claim_for("db", &IPS, &pod).await;
    let agent = bed.agent().await;
    let watched = || agent.claims.health().watches.keys().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(watched(), ["NetworkAttachmentDefinitions"]);
    let plain = bed.pod("plain", json!({})).await;
    agent.add(&part(), &plain).await.unwrap();
    assert_eq!(watched(), ["NetworkAttachmentDefinitions", "Pods of this node"], "it does not opt in");
    agent.add(&routed(), &pod).await.unwrap();
    assert_eq!(watched(), ["IPAMClaims", "NetworkAttachmentDefinitions", "Pods of this node"]);
}
