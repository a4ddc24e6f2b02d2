//! Behind Multus: it passes the network's name and an interface, from a configuration that may be a copy of before, and it numbers
//! interfaces by all that it attaches. (Its call: `CNI_IFNAME` is the element's interface, else `net` and a number; `CNI_ARGS` name the
//! pod; nothing names the claim.)

use serde_json::{Value, json};
use tenure_api::claims::annotation;
use tenure_testbed::faults::{Calls, Verb};

use super::bed::*;

const IPS: [&str; 2] = ["10.1.200.5/32", "fd01::c805/128"];
const MORE: [&str; 2] = ["10.1.200.6/32", "fd01::c806/128"];

/// A configuration as it was before it opted in.
fn before(mut network: Value) -> Value {
    network.as_object_mut().unwrap().remove("allowPersistentIPs");
    if let Some(ipam) = network.get_mut("ipam").and_then(Value::as_object_mut) {
        ipam.remove("allowPersistentIPs");
    }
    network
}

fn on(pod: &At, interface: &str) -> At {
    At { interface: interface.to_owned(), ..pod.clone() }
}

#[tokio::test(start_paused = true)]
async fn who_refers_to_a_claim_is_refused_on_a_network_that_does_not_opt_in_and_others_are_served() {
    for (bed, network, _) in every_kind().await {
        let network = before(network);
        let pod = bed.refers("db-0", "db").await;
        let plain = bed.pod("plain", json!({annotation::NETWORKS: "any"})).await;
        let claim = bed.claim("db").await;
        let agent = bed.agent().await;
        let failure = agent.add(&network, &pod).await.unwrap_err();
        let said = failure.to_string();
        assert_eq!(failure.code, 11, "{said}");
        let namespace = bed.namespace;
        for part in [
            format!("interface net1 of pod {namespace}/db-0 on network {:?}", bed.net),
            format!("IPAMClaim {namespace}/db"),
            "allowPersistentIPs".to_owned(),
            format!("NetworkAttachmentDefinition {namespace}/any"),
            "restart Multus".to_owned(),
        ] {
            assert!(said.contains(&part), "{part} in {said}");
        }
        assert!(!agent.add(&network, &plain).await.unwrap().is_empty());
        assert_eq!(bed.claims(namespace).get("db").await.unwrap().status, claim.status);
        let writes = bed.calls(&Calls::writes().to("ipamclaims"));
        assert_eq!((bed.calls(&Calls::all().to("ipamclaims")), writes), (0, 0));
        agent.del(&network, &pod).await.unwrap();
        agent.del(&network, &plain).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_clusters_network_opts_in_by_how_it_was_set_up_whatever_copy_multus_passes() {
    let bed = Bed::new().await;
    let pod = bed.pod("db-0", json!({annotation::CLAIM: "db"})).await;
    bed.claim_for("db", &IPS, &pod).await;
    let set_up = bed.agent_of_network("net").await;
    assert_eq!(set_up.add(&before(routed()), &on(&pod, "eth0")).await.unwrap(), IPS);
    drop(set_up);
    let not = bed.agent().await;
    let said = not.add(&before(routed()), &on(&pod, "eth0")).await.unwrap_err().to_string();
    for part in
        ["pod shop/db-0", "IPAMClaim shop/db", "--persistent-ips", "--cluster-network=net", "restart Multus"]
    {
        assert!(said.contains(part), "{part} in {said}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_machines_or_replicas_claim_is_not_passed_over_either() {
    let bed = Bed::new().await;
    let owner = |kind: &str, group: &str, name: &str| json!([{"apiVersion": format!("{group}/v1"), "kind": kind, "name": name, "uid": name}]);
    let vm = owner("VirtualMachineInstance", "kubevirt.io", "vm");
    let launcher = bed.pod_of("launcher", json!({"ownerReferences": vm})).await;
    let keep = json!({"tenure/keep-addresses": "true"});
    let web = owner("StatefulSet", "apps", "web");
    let replica = bed.pod_of("web-0", json!({"annotations": keep, "ownerReferences": web})).await;
    let agent = bed.agent().await;
    let plain = before(routed());
    for pod in [&launcher, &replica] {
        // Nobody has made a claim for it: there is none to pass over.
        agent.add(&plain, &on(pod, "eth0")).await.unwrap();
        agent.del(&plain, &on(pod, "eth0")).await.unwrap();
    }
    let labels = json!({"name": "vm.default", "labels": {"kubevirt.io/vm": "vm"}});
    bed.claim_with(bed.namespace, labels, "net", "eth0").await;
    bed.claim_with(bed.namespace, json!({"name": "web-0.net.eth0"}), "net", "eth0").await;
    for pod in [&launcher, &replica] {
        let at = At { container: format!("{}-2", pod.container), ..on(pod, "eth0") };
        until("the claim to be heard of", async || {
            let added = agent.add(&plain, &at).await;
            agent.del(&plain, &at).await.unwrap();
            added.err().filter(|failure| failure.to_string().contains("does not let addresses outlive pods"))
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn default_networks_shift_the_numbers_and_every_element_has_its_own_claim() {
    for shift in 0..3 {
        let bed = Bed::new().await;
        bed.network("nad", &routed()).await;
        let other = json!({"cniVersion": "1.1.0", "name": "other", "type": "tenure"});
        bed.network("other", &other).await;
        let networks = json!([
            {"name": "nad", "ipam-claim-reference": "first"}, {"name": "other"}, {"name": "nad", "ipam-claim-reference": "second"},
        ]);
        let pod = bed.pod("db-0", json!({annotation::NETWORKS: networks.to_string()})).await;
        bed.claim_for("first", &IPS, &pod).await;
        bed.claim_for("second", &MORE, &pod).await;
        let agent = bed.agent().await;
        let net = |place: usize| on(&pod, &format!("net{}", shift + place));
        for place in 1..=shift {
            // The cluster's default networks are another.
            agent.add(&other, &on(&pod, &format!("net{place}"))).await.unwrap();
        }
        assert_eq!(agent.add(&routed(), &net(1)).await.unwrap(), IPS, "{shift}");
        assert_ne!(agent.add(&other, &net(2)).await.unwrap(), MORE, "{shift}");
        assert_eq!(agent.add(&routed(), &net(3)).await.unwrap(), MORE, "{shift}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_certain_is_refused_on_every_kind_of_network() {
    for (bed, network, ips) in every_kind().await {
        bed.network("any", &network).await;
        let pod = bed.refers("db-0", "db").await;
        bed.claim_for("db", &ips, &pod).await;
        let agent = bed.agent().await;
        // A default network on the same network comes first, and is taken for the element.
        let given = agent.add(&network, &pod).await.unwrap();
        assert_eq!(given, ips);
        let said = agent.add(&network, &on(&pod, "net2")).await.unwrap_err().to_string();
        assert!(said.contains("which element") && said.contains("\"interface\""), "{said}");
        agent.del(&network, &on(&pod, "net2")).await.unwrap();
        agent.del(&network, &pod).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_network_that_does_not_opt_in_is_served_without_a_call_and_without_an_api_server() {
    let bed = Bed::new().await;
    let agent = bed.agent().await;
    let network = before(routed());
    let pods: Vec<At> = {
        let mut pods = Vec::new();
        for number in 0..4 {
            pods.push(bed.pod(&format!("plain-{number}"), json!({annotation::NETWORKS: "any"})).await);
        }
        pods
    };
    agent.add(&network, &pods[0]).await.unwrap();
    let reads = || bed.calls(&Calls::of(Verb::Get).to("pods"));
    let mut known = reads();
    until("the watch of pods", async || {
        agent.del(&network, &pods[0]).await.unwrap();
        agent.add(&network, &pods[0]).await.unwrap();
        let before = std::mem::replace(&mut known, reads());
        (before == known).then_some(())
    })
    .await;
    agent.add(&network, &pods[1]).await.unwrap();
    assert_eq!(reads(), known, "the watch knows it");
    bed.away();
    agent.add(&network, &pods[2]).await.unwrap();
    let unknown =
        At { pod: "never-seen".into(), uid: "7".into(), container: "c-7".into(), ..pods[3].clone() };
    agent.add(&network, &unknown).await.unwrap();
}
