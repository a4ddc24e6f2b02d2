//! A dialect that is added from outside: `agent.rs` is all of it, and no file of the agent knows it. Needs root.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_testbed::wait::eventually;
use tokio::sync::Notify;

use crate::agent::SOURCE;
use crate::bed::{self, ADDRESS, Bed, alive, network};

/// Whether a network's address is free, by giving it to a container and taking it back.
async fn is_free(agent: &bed::Running, network: &Value) -> bool {
    let added = agent.call("ADD", "probe", network).await;
    agent.call("DEL", "probe", network).await.unwrap();
    added.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_container_at_a_time_has_the_address_that_the_configuration_names() {
    let (bed, lab) = (Bed::new().await, network(ADDRESS));
    let agent = bed.start().await;
    agent.call("STATUS", "", &lab).await.unwrap();

    let added = agent.call("ADD", "one", &lab).await.unwrap();
    assert_eq!(added["ips"], json!([{"address": ADDRESS}]), "{added}");
    assert_eq!(agent.call("ADD", "one", &lab).await.unwrap(), added, "an ADD can be repeated");

    let metrics = agent.metrics().await;
    assert!(metrics.contains("fixed_adds_total 2"), "a part brings its own metrics: {metrics}");

    let refused = agent.call("ADD", "two", &lab).await.unwrap_err();
    assert_eq!(refused["code"], 11, "{refused}");
    assert_eq!(refused["msg"], "192.0.2.7 is in use: lab/one/eth0 has it");
    agent.call("DEL", "two", &lab).await.unwrap();

    let mut checked = lab.clone();
    checked["prevResult"] = added;
    agent.call("CHECK", "one", &checked).await.unwrap();
    let unknown = agent.call("CHECK", "two", &checked).await.unwrap_err();
    assert!(unknown["msg"].as_str().unwrap().contains("lab/two/eth0"), "{unknown}");

    agent.call("DEL", "one", &lab).await.unwrap();
    agent.call("DEL", "one", &lab).await.unwrap();
    agent.call("ADD", "two", &lab).await.unwrap();
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_answered_before_the_parts_blocks_are_read() {
    let (bed, read) = (Bed::new().await, Arc::new(Notify::new()));
    let agent = bed.begin(Arc::clone(&read)).await;
    let waits = format!("tenured has just started and has not yet read {SOURCE}\n");
    eventually("the source to be all that is missing", async || {
        let (ready, text) = agent.ready().await;
        assert!(!ready, "{text}");
        Ok(text.contains(&waits).then_some(()))
    })
    .await
    .unwrap();
    read.notify_one();
    agent.serving().await;
    agent.call("ADD", "one", &network(ADDRESS)).await.unwrap();
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_keeps_what_it_wants_of_pods() {
    let (bed, lab) = (Bed::new().await, network(ADDRESS));
    let agent = bed.start().await;
    let pod = bed.pod_with("web-0", "192.0.2.9/32").await;
    let added = agent.call_for(&pod, "ADD", "one", &lab).await.unwrap();
    assert_eq!(added["ips"], json!([{"address": "192.0.2.9/32"}]), "{added}");
    let other = bed.pod_with("web-1", "somewhere").await;
    let refused = agent.call_for(&other, "ADD", "two", &lab).await.unwrap_err();
    assert_eq!(refused["msg"], "annotation fixed.example.com/address is somewhere");
    assert!(is_free(&agent, &lab).await, "the network's own address is free");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gc_frees_the_address_of_a_container_that_is_gone_and_of_no_other() {
    let (bed, lab) = (Bed::new().await, network(ADDRESS));
    let agent = bed.start().await;
    agent.call("ADD", "one", &lab).await.unwrap();
    agent.call("GC", "", &alive(&["one"])).await.unwrap();
    assert!(!is_free(&agent, &lab).await);
    agent.call("GC", "", &alive(&["another"])).await.unwrap();
    assert!(is_free(&agent, &lab).await);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_it_is_known_after_a_restart() {
    let (bed, lab) = (Bed::new().await, network(ADDRESS));
    let agent = bed.start().await;
    let added = agent.call("ADD", "one", &lab).await.unwrap();
    agent.stop().await;
    let agent = bed.start().await;
    assert!(!is_free(&agent, &lab).await);
    assert_eq!(agent.call("ADD", "one", &lab).await.unwrap(), added);
    agent.call("DEL", "one", &lab).await.unwrap();
    assert!(is_free(&agent, &lab).await);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_or_is_nobodys_is_refused_with_what_is_accepted() {
    let bed = Bed::new().await;
    let agent = bed.start().await;
    for (address, said) in [("192.0.2.7", "\"192.0.2.7\""), ("192.0.2.7/33", "\"192.0.2.7/33\"")] {
        let refused = agent.call("ADD", "one", &network(address)).await.unwrap_err();
        assert_eq!(refused["msg"], format!("ipam.address is {said}"));
    }
    let mut other = network(ADDRESS);
    other["ipam"]["type"] = json!("host-local");
    let refused = agent.call("ADD", "one", &other).await.unwrap_err();
    let accepted = "accepted is \"tenure\" or \"coil\" as one of them, or \"whereabouts\" as ipam.type, or \
                    \"tenure-fixed\" as ipam.type";
    assert_eq!(refused["details"], accepted, "{refused}");
    agent.stop().await;
}
