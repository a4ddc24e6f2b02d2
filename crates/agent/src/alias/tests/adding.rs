//! Addresses for pods that stay where they are.

use std::time::Duration;

use kube::api::DeleteParams;
use serde_json::json;
use tenure_cni::Verb;

use super::bed::{Bed, network, until};
use crate::journal::Image;
use crate::node::Node;

#[tokio::test]
async fn with_a_warm_set_an_add_makes_no_call() {
    let bed = Bed::new(4).await;
    let agent = bed.agent("node-1").await;
    agent.until_free(4).await;
    bed.pod("node-1", "web", json!({})).await;
    agent.until_known("web").await;
    bed.away();
    let result = agent.ask(Verb::Add, &network(), "web").await.unwrap();
    assert_eq!(
        result,
        json!({
            "cniVersion": "0.3.1",
            "ips": [{"version": "4", "address": "10.111.0.1/16", "gateway": "10.111.0.0"}],
            "routes": [{"dst": "0.0.0.0/0"}],
        })
    );
    assert_eq!(agent.add("web").await.unwrap(), "10.111.0.1", "a repeated one has the same answer");
    agent.del("web").await;
    agent.del("web").await;
}

#[tokio::test]
async fn a_del_without_pod_and_namespace_gives_the_address_back() {
    let bed = Bed::new(1).await;
    let agent = bed.agent("node-1").await;
    bed.pod("node-1", "web", json!({})).await;
    agent.add("web").await.unwrap();
    assert_eq!(agent.node.look(Node::holds).await.unwrap().len(), 1);
    bed.delete_pod("web").await;
    agent.ask_at("", Verb::Del, &network(), "web").await.unwrap();
    assert!(agent.node.look(Node::holds).await.unwrap().is_empty());
}

#[tokio::test]
async fn without_a_warm_set_a_hundred_pods_share_few_writes() {
    let bed = Bed::new(0).await;
    let agent = bed.agent("node-1").await;
    let wanted = async || Some(bed.objects().get_opt("node-1").await.unwrap()?.spec.wanted);
    assert_eq!(
        until("the object", wanted).await,
        0,
        "also a node that needs nothing says so, for moves to it"
    );
    for n in 0..100 {
        bed.pod("node-1", &format!("web-{n}"), json!({})).await;
    }
    agent.until_known("web-99").await;
    // Their addresses are asked for while they come, one by one here.
    let before = bed.writes();
    let adds = (0..100).map(|n| {
        let agent = &agent;
        async move { agent.add(&format!("web-{n}")).await.unwrap() }
    });
    let mut given = futures::future::join_all(adds).await;
    given.sort();
    given.dedup();
    assert_eq!(given.len(), 100);
    let writes = bed.writes() - before;
    assert!(writes <= 10, "{writes} writes");
    assert_eq!(bed.object("node-1").await.spec.wanted, 100);
}

#[tokio::test]
async fn what_the_machine_does_not_have_is_not_given_to_a_pod() {
    let bed = Bed::new(1).await;
    bed.set(|granter| granter.arrives = false);
    let agent = bed.agent_after("node-1", Image::default(), Duration::from_millis(300)).await;
    bed.pod("node-1", "web", json!({})).await;
    until("an alias", async || bed.objects().get("node-1").await.ok()?.status).await;
    let refused = agent.add("web").await.unwrap_err();
    assert_eq!(refused.code, 11);
    let text = refused.to_string();
    assert!(text.contains("is attached, but not yet in the machine's metadata"), "{text}");
    assert_eq!(agent.free().await, 0);
    bed.set(|granter| granter.arrives = true);
    agent.until_free(2).await;
    agent.add("web").await.unwrap();
}

#[tokio::test]
async fn a_pod_fails_with_the_words_of_the_controller() {
    let bed = Bed::new(0).await;
    bed.set(|granter| {
        granter.problem = Some("the machine has 150 alias ranges, and takes no more".to_owned());
    });
    let agent = bed.agent_after("node-1", Image::default(), Duration::from_millis(500)).await;
    bed.pod("node-1", "web", json!({})).await;
    let refused = agent.add("web").await.unwrap_err();
    assert_eq!(refused.code, 11);
    assert!(refused.to_string().contains("the machine has 150 alias ranges, and takes no more"), "{refused}");
    let mut status = network();
    status["cniVersion"] = json!("1.1.0");
    let unavailable = agent.ask(Verb::Status, &status, "").await.unwrap_err();
    assert_eq!(unavailable.code, 50, "no more pods can come: {unavailable}");
    bed.set(|granter| granter.problem = None);
    agent.until_free(1).await;
    agent.ask(Verb::Status, &status, "").await.unwrap();
    agent.add("web").await.unwrap();
}

#[tokio::test]
async fn a_restart_keeps_holds_and_what_is_ready() {
    let bed = Bed::new(2).await;
    let agent = bed.agent("node-1").await;
    bed.pod("node-1", "web", json!({})).await;
    let given = agent.add("web").await.unwrap();
    agent.until_free(2).await;
    let journal = agent.journal();
    drop(agent);
    let agent = bed.agent_after("node-1", journal, Duration::from_secs(10)).await;
    assert_eq!(agent.free().await, 2);
    assert_eq!(agent.add("web").await.unwrap(), given);
    bed.pod("node-1", "other", json!({})).await;
    assert_ne!(agent.add("other").await.unwrap(), given);
    let mut checked = network();
    checked["cniVersion"] = json!("1.1.0");
    checked["prevResult"] = json!({"cniVersion": "1.1.0", "ips": [{"address": format!("{given}/16")}]});
    agent.ask(Verb::Check, &checked, "web").await.unwrap();
    agent.ask(Verb::Status, &checked, "").await.unwrap();
    checked["cni.dev/valid-attachments"] = json!([{"containerID": "c-other", "ifname": "eth0"}]);
    agent.ask(Verb::Gc, &checked, "").await.unwrap();
    assert_eq!(agent.ask(Verb::Check, &checked, "web").await.unwrap_err().code, 3);
}

/// What the prototype did not do: CHECK that compares, and GC.
#[tokio::test]
async fn check_compares_and_gc_keeps_whoever_lives() {
    let bed = Bed::new(2).await;
    let agent = bed.agent("node-1").await;
    let holds = async || agent.node.look(Node::holds).await.unwrap().len();
    let mut given = Vec::new();
    for pod in ["web", "other"] {
        bed.pod("node-1", pod, json!({})).await;
        given.push(agent.add(pod).await.unwrap());
    }
    let mut call = network();
    call["cniVersion"] = json!("1.1.0");
    let has = |address: &str| json!({"cniVersion": "1.1.0", "ips": [{"address": format!("{address}/16")}]});
    call["prevResult"] = has(&given[0]);
    agent.ask(Verb::Check, &call, "web").await.unwrap();
    agent.ask(Verb::Check, &call, "other").await.unwrap_err();
    call["prevResult"] = has("10.111.0.99");
    agent.ask(Verb::Check, &call, "web").await.unwrap_err();
    // A missing list does not mean that nobody lives.
    assert_eq!(agent.ask(Verb::Gc, &call, "").await.unwrap_err().code, 7);
    assert_eq!(holds().await, 2);
    call["cni.dev/valid-attachments"] = json!([{"containerID": "c-web", "ifname": "eth0"}]);
    agent.ask(Verb::Gc, &call, "").await.unwrap();
    assert_eq!(holds().await, 1);
    assert_eq!(agent.add("web").await.unwrap(), given[0], "it has what it had");
    call["cni.dev/valid-attachments"] = json!([]);
    agent.ask(Verb::Gc, &call, "").await.unwrap();
    assert_eq!(holds().await, 0);
}

#[tokio::test]
async fn what_a_configuration_says_of_routes_and_pools_counts() {
    let bed = Bed::new(1).await;
    let agent = bed.agent("node-1").await;
    bed.pod("node-1", "web", json!({})).await;
    let mut other = network();
    other["ipam"]["pool"] = json!("other");
    let refused = agent.ask(Verb::Add, &other, "web").await.unwrap_err();
    assert_eq!(refused.code, 7);
    assert!(refused.to_string().contains("\"live\""), "{refused}");
    let mut own = network();
    own["ipam"]["pool"] = json!("live");
    own["ipam"]["routes"] = json!([{"dst": "10.0.0.0/8"}]);
    let result = agent.ask(Verb::Add, &own, "web").await.unwrap();
    assert_eq!(result["routes"], json!([{"dst": "10.0.0.0/8"}]));
}

#[tokio::test]
async fn an_object_that_somebody_deletes_is_written_again_and_nothing_is_lost() {
    let bed = Bed::new(2).await;
    let agent = bed.agent("node-1").await;
    bed.pod("node-1", "web", json!({})).await;
    let given = agent.add("web").await.unwrap();
    agent.until_free(2).await;
    let before = bed.object("node-1").await;
    bed.objects().delete("node-1", &DeleteParams::default()).await.unwrap();
    let again = async || {
        let object = bed.objects().get_opt("node-1").await.unwrap()?;
        (object.metadata.uid != before.metadata.uid && object.status == before.status).then_some(object)
    };
    let object = until("the object", again).await;
    assert_eq!(object.spec, before.spec);
    assert_eq!(agent.add("web").await.unwrap(), given);
    assert_eq!(agent.free().await, 2);
}
