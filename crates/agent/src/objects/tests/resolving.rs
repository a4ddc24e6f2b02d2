//! Which pool a pod gets.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event as KubeEvent, Namespace};
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use tenure_cni::{Code, Failure};
use tenure_testbed::faults::{Calls, Rule, Verb};

use super::bed::{Agent, Bed, NODE, until};
use crate::coil::{Asked, Resolve};
use crate::key::Pod;
use crate::node::{Action, Fence, Report};
use crate::objects::{KnownPool, ObjectsOptions};
use crate::serve::PodName;

async fn resolve(agent: &Agent, namespace: &str, pool: Option<&str>) -> Result<String, Failure> {
    let pod = PodName { namespace: namespace.into(), name: "pod".into(), uid: "uid".into() };
    let asked = Asked { pod: Some(pod), pool: pool.map(str::to_owned) };
    let (pool, pod) = agent.objects.resolver().resolve(asked).await?;
    assert_eq!(pod, Pod { namespace: namespace.into(), name: "pod".into(), uid: "uid".into() });
    Ok(pool)
}

#[tokio::test(start_paused = true)]
async fn the_namespaces_annotation_says_which_pool_and_the_administrators_word_comes_first() {
    let bed = Bed::new(51).await;
    bed.namespace("plain", None).await;
    bed.namespace("public", Some("global")).await;
    let agent = bed.ready().await;
    assert_eq!(resolve(&agent, "plain", None).await.unwrap(), "default");
    assert_eq!(resolve(&agent, "public", None).await.unwrap(), "global");
    assert_eq!(resolve(&agent, "public", Some("chosen")).await.unwrap(), "chosen");
    assert_eq!(bed.faults.tally(&Calls::of(Verb::Get)).asked, 0, "without a call on the way");
}

#[tokio::test(start_paused = true)]
async fn an_annotation_that_changes_counts_for_the_next_pod() {
    let bed = Bed::new(52).await;
    bed.namespace("team", Some("first")).await;
    let agent = bed.ready().await;
    for (pool, expected) in [(json!("second"), "second"), (json!(null), "default"), (json!("third"), "third")]
    {
        let change = json!({"metadata": {"annotations": {"coil.cybozu.com/pool": pool}}});
        bed.merge::<Namespace>("team", change).await;
        until(expected, async || (resolve(&agent, "team", None).await.unwrap() == expected).then_some(()))
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_the_watch_has_not_shown_is_read_once() {
    let bed = Bed::new(53).await;
    let agent = bed.ready().await;
    let _held = bed.faults.hold_watches(Calls::all().to("namespaces"));
    bed.namespace("new", Some("global")).await;
    assert_eq!(resolve(&agent, "new", None).await.unwrap(), "global");
    assert_eq!(bed.faults.tally(&Calls::of(Verb::Get).to("namespaces")).asked, 1);
    let missing = resolve(&agent, "missing", None).await.unwrap_err();
    assert_eq!(missing.code, Code::TryAgainLater.number());
    assert!(missing.message.contains("there is no namespace \"missing\""), "{missing:?}");
}

#[tokio::test(start_paused = true)]
async fn with_the_api_server_away_known_namespaces_work_and_others_fail_soon() {
    let bed = Bed::new(54).await;
    bed.namespace("public", Some("global")).await;
    let agent = bed.ready().await;
    bed.away();
    assert_eq!(resolve(&agent, "public", None).await.unwrap(), "global");
    let refused = resolve(&agent, "unknown", None).await.unwrap_err();
    assert_eq!(refused.code, Code::TryAgainLater.number());
    assert!(refused.message.contains("namespace \"unknown\""), "{refused:?}");
    bed.faults.clear();
    // Nor does it wait for a server that does not answer.
    bed.faults.add(Rule::delay(Duration::from_mins(1)..=Duration::from_mins(1)).on(Calls::of(Verb::Get)));
    let refused = resolve(&agent, "unknown", None).await.unwrap_err();
    assert!(refused.message.contains("no answer within 1.5 s"), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn an_annotation_that_names_no_pool_is_refused_with_what_would_be_accepted() {
    let bed = Bed::new(55).await;
    for (namespace, pool) in [("a", ""), ("b", "No_Pool"), ("c", "../etc"), ("d", &"x".repeat(64))] {
        bed.namespace(namespace, Some(pool)).await;
    }
    let agent = bed.ready().await;
    for (namespace, pool) in [("a", ""), ("b", "No_Pool"), ("c", "../etc"), ("d", &"x".repeat(64))] {
        let refused = resolve(&agent, namespace, None).await.unwrap_err();
        assert_eq!(refused.code, Code::TryAgainLater.number());
        for part in ["coil.cybozu.com/pool", &format!("{namespace:?}"), &format!("{pool:?}")] {
            assert!(refused.message.contains(part), "{part}: {refused:?}");
        }
        assert!(refused.details.contains("accepted"), "{refused:?}");
    }
    let refused = resolve(&agent, "a", Some("No_Pool")).await.unwrap_err();
    assert_eq!(refused.code, Code::InvalidConfig.number());
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_cannot_be_used_says_why() {
    let bed = Bed::new(56).await;
    bed.namespace("team", Some("old")).await;
    bed.pool("old", 2, "10.1.0.0/24").await;
    let agent = bed.ready().await;
    assert!(resolve(&agent, "team", None).await.is_ok());
    // The schema refuses such a pool; this one is older than the rule.
    let heard = {
        let pool: tenure_api::coil::AddressPool = bed.api().get("old").await.unwrap();
        let why = "spec.exclude[0]: what is this?".to_owned();
        let identity = tenure_watch::Identity::named(&pool.metadata);
        tenure_watch::Heard::Applied(identity, Some(KnownPool::Invalid(why)))
    };
    agent.objects.shared.hear_pool(heard);
    let refused = resolve(&agent, "team", None).await.unwrap_err();
    for part in ["AddressPool \"old\"", "spec.exclude[0]", "coil.cybozu.com/pool"] {
        assert!(refused.message.contains(part), "{part}: {refused:?}");
    }
    let gone = crate::node::Event::PoolGone { name: "old".into() };
    assert!(agent.told().contains(&gone), "and the node hands out nothing of it");
}

#[tokio::test(start_paused = true)]
async fn an_add_without_a_pod_fails_in_a_cluster_and_works_without_one() {
    let bed = Bed::new(57).await;
    let agent = bed.ready().await;
    let nobody = || Asked { pod: None, pool: None };
    let refused = agent.objects.resolver().resolve(nobody()).await.unwrap_err();
    assert_eq!(refused.code, Code::InvalidEnvironment.number());
    assert!(refused.message.contains("K8S_POD_NAMESPACE"), "{refused:?}");
    let alone = bed.agent_with(ObjectsOptions { outside_kubernetes: true, ..ObjectsOptions::new(NODE) });
    let resolver = alone.objects.resolver();
    assert_eq!(resolver.resolve(nobody()).await.unwrap(), ("default".into(), Pod::default()));
    let chosen = Asked { pod: None, pool: Some("chosen".into()) };
    assert_eq!(resolver.resolve(chosen).await.unwrap().0, "chosen");
    assert_eq!(resolve(&alone, "of-the-runtime", None).await.unwrap(), "default");
}

#[tokio::test(start_paused = true)]
async fn what_people_should_know_becomes_events_on_what_they_look_at_and_not_twice() {
    let bed = Bed::new(58).await;
    bed.pool("default", 2, "10.1.0.0/24").await;
    let agent = bed.ready().await;
    let message = "append a subnet".to_owned();
    for _ in 0..50 {
        let refused = Report::PoolRefused { pool: "default".into(), message: message.clone() };
        agent.objects.carry_out(Action::Report(refused));
    }
    // The definition of a sliced network is deleted, and every node returns its slices.
    for slice in ["10.9.0.0/26", "10.9.1.0/26"] {
        let (block, uid) = (format!("net {slice}"), format!("net/{slice}"));
        let realm = "net".to_owned();
        let report =
            Report::Fenced { pool: String::new(), block, uid, realm, fence: Fence::Gone, holds: Vec::new() };
        agent.objects.carry_out(Action::Report(report));
    }
    let (block, uid) = ("default-0".to_owned(), "some-uid".to_owned());
    let fence = Fence::OtherNode("node-2".into());
    let fenced =
        Report::Fenced { pool: String::new(), block, uid, realm: String::new(), fence, holds: Vec::new() };
    agent.objects.carry_out(Action::Report(fenced));
    let events: Api<KubeEvent> = Api::namespaced(bed.client.clone(), "default");
    let events = until("four events", async || {
        let list = events.list(&ListParams::default()).await.unwrap().items;
        (list.len() >= 4).then_some(list)
    })
    .await;
    let mut about: Vec<String> = events
        .iter()
        .map(|event| {
            let (object, reason) = (&event.involved_object, event.reason.as_deref().unwrap());
            format!("{} {} {reason}", object.kind.as_deref().unwrap(), object.name.as_deref().unwrap())
        })
        .collect();
    about.sort();
    let expected = [
        "AddressBlock default-0 BlockFenced",
        "AddressPool default NoBlock",
        "Node node-1 BlockFenced",
        "Node node-1 NoBlock",
    ];
    assert_eq!(about, expected);
    assert!(events.iter().any(|event| event.message.as_deref().unwrap().contains("append a subnet")));
}
