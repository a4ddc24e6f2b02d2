//! Addresses that move with their pods.

use std::time::Duration;

use serde_json::json;
use tenure_api::cloud::{LeavingPod, annotation};

use super::bed::{Bed, NAMESPACE, until};
use crate::journal::Image;
use crate::node::Node;
use crate::testing::a_moment;

#[tokio::test]
async fn the_address_of_a_marked_pod_is_kept_after_its_end() {
    let bed = Bed::new(0).await;
    let agent = bed.agent_after("node-1", Image::default(), Duration::from_millis(500)).await;
    let uid = bed.pod("node-1", "web", json!({})).await;
    let given = agent.add("web").await.unwrap();
    bed.annotate("web", json!({annotation::MOVE_OUT: "true"})).await;
    agent.until_marked("web").await;
    agent.del("web").await;
    bed.delete_pod("web").await;
    let noted = async || {
        let status = bed.object("node-1").await.status?;
        status.aliases.get(&format!("{given}/32"))?.pod.clone()
    };
    assert_eq!(until("the controller", noted).await, uid);
    bed.set(|granter| granter.gives = false);
    bed.pod("node-1", "other", json!({})).await;
    assert_eq!(agent.add("other").await.unwrap_err().code, 11, "nobody else gets it");
    let dropped = async || bed.object("node-1").await.spec.leaving.is_empty().then_some(());
    until("nothing to say any more", dropped).await;
    let journal = agent.journal();
    drop(agent);
    let agent = bed.agent_after("node-1", journal, Duration::from_millis(500)).await;
    assert_eq!(agent.add("other").await.unwrap_err().code, 11, "nor after a restart");
    assert!(bed.object("node-1").await.spec.returned.is_empty());
}

#[tokio::test]
async fn a_pod_that_is_marked_before_it_has_an_address_is_noted_too() {
    let bed = Bed::new(1).await;
    let agent = bed.agent("node-1").await;
    let uid = bed.pod("node-1", "web", json!({annotation::MOVE_OUT: ""})).await;
    let given = agent.add("web").await.unwrap();
    let leaving = async || bed.object("node-1").await.spec.leaving.get(&given).cloned();
    let expected = LeavingPod { namespace: NAMESPACE.into(), pod: "web".into(), uid };
    assert_eq!(until("the mark", leaving).await, expected);
    bed.annotate("web", json!({annotation::MOVE_OUT: null})).await;
    let taken_back = async || bed.object("node-1").await.spec.leaving.is_empty().then_some(());
    until("the mark is taken back", taken_back).await;
}

#[tokio::test]
async fn a_mark_that_was_made_while_the_agent_was_away_is_noted() {
    let bed = Bed::new(1).await;
    let agent = bed.agent("node-1").await;
    bed.pod("node-1", "web", json!({})).await;
    let given = agent.add("web").await.unwrap();
    let journal = agent.journal();
    drop(agent);
    bed.annotate("web", json!({annotation::MOVE_OUT: "true"})).await;
    let _agent = bed.agent_after("node-1", journal, Duration::from_secs(10)).await;
    let noted = async || bed.object("node-1").await.spec.leaving.contains_key(&given).then_some(());
    until("the mark", noted).await;
}

#[tokio::test]
async fn a_pod_that_moves_in_gets_its_own_address_and_nobody_else_does() {
    let bed = Bed::new(1).await;
    let (source, target) = (bed.agent("node-1").await, bed.agent("node-2").await);
    bed.pod("node-1", "source", json!({annotation::MOVE_OUT: ""})).await;
    let address = source.add("source").await.unwrap();
    let uid = bed.pod("node-2", "target", json!({annotation::ADDRESS: address})).await;
    bed.pod("node-2", "other", json!({})).await;
    let moved = target.add("target");
    let mut moved = std::pin::pin!(moved);
    assert!(futures::poll!(&mut moved).is_pending());
    a_moment().await;
    assert!(futures::poll!(&mut moved).is_pending(), "it waits, although another address is free");
    bed.move_to(&address, "node-2", &uid);
    assert_eq!(moved.await.unwrap(), address);
    assert_ne!(target.add("other").await.unwrap(), address);
    // The source pod still runs, and ends as if nothing had happened.
    let fenced = async || {
        let blocks = source.node.look(Node::blocks).await.unwrap();
        blocks.iter().any(|block| block.fence.is_some()).then_some(())
    };
    until("the source knows", fenced).await;
    assert_eq!(source.add("source").await.unwrap(), address);
    source.del("source").await;
    let nothing = async || {
        let spec = bed.object("node-1").await.spec;
        (spec.leaving.is_empty() && spec.returned.is_empty()).then_some(())
    };
    until("nothing is left to say", nothing).await;
    target.del("target").await;
    assert_eq!(target.add("target").await.unwrap(), address, "its sandbox was made again");
}

#[tokio::test]
async fn a_pod_that_names_an_address_which_is_not_moved_for_it_gets_none() {
    let bed = Bed::new(3).await;
    let agent = bed.agent_after("node-1", Image::default(), Duration::from_millis(300)).await;
    agent.until_free(3).await;
    bed.pod("node-1", "web", json!({})).await;
    let held = agent.add("web").await.unwrap();
    let free = if held == "10.111.0.1" { "10.111.0.2" } else { "10.111.0.1" };
    let forged = [
        (free, "is on this machine, but was not moved here for a pod"),
        (held.as_str(), "is on this machine, but was not moved here for a pod"),
        ("10.111.9.9", "it was not moved to this node"),
        ("10.8.0.1", "is not of IPPool \"live\""),
        ("me", "accepted is an address"),
    ];
    for (n, (address, said)) in forged.into_iter().enumerate() {
        let name = format!("forged-{n}");
        bed.pod("node-1", &name, json!({annotation::ADDRESS: address})).await;
        let refused = agent.add(&name).await.unwrap_err();
        assert_eq!(refused.code, 11, "{refused}");
        let text = refused.to_string();
        assert!(text.contains(address) && text.contains(said), "{text}");
    }
    assert_eq!(agent.add("web").await.unwrap(), held);
}
