//! A pod that names an address which no marked pod of its own namespace has gets none, and nothing moves.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_api::cloud::annotation;
use tenure_testbed::hosts::Segment;
use tenure_testbed::wait::{PATIENCE, until};
use tenure_tests::agent::Calling;
use tenure_tests::cloud::refusals;
use tenure_tests::moves::{NAMESPACE, Placed};

use crate::stage::{Stage, takes_over};

/// A namespace of somebody else.
const ELSEWHERE: &str = "elsewhere";
/// CNI's "try again later".
const LATER: u64 = 11;

#[test]
fn a_pod_that_names_what_no_marked_pod_of_its_namespace_has_is_refused_and_nothing_moves() {
    let stage = Stage::new(&json!({"warm": 0}));
    let wire = Arc::new(Segment::new("wire").unwrap());
    let machines = stage.machines(&wire);
    stage.cluster.namespace(ELSEWHERE, None);
    let plain = stage.pod(&machines[0], "plain", &json!({}));
    let marked = stage.pod(&machines[0], "marked", &json!({}));
    let addresses = [plain.add()[0], marked.add()[0]];
    stage.mark(&[&marked], &addresses[1..]);
    let before = (stage.cloud.updates(), stage.cloud.fake.changes());

    let source = machines[0].name.as_str();
    let free = "10.111.200.1".parse().unwrap();
    // Who, of which namespace, what it names, and what it is told.
    let forgeries: [(&str, &str, Value, &str); 5] = [
        ("of-a-plain-pod", NAMESPACE, takes_over(addresses[0], source), "that is marked with"),
        ("of-nobody", NAMESPACE, takes_over(free, source), "that is marked with"),
        ("of-others", ELSEWHERE, takes_over(addresses[1], source), "that is marked with"),
        ("from-elsewhere", NAMESPACE, takes_over(addresses[1], &machines[2].name), "it is attached to"),
        (
            "no-address",
            NAMESPACE,
            json!({"annotations": {annotation::ADDRESS: "10.111.0.300"}}),
            "accepted is an IPv4 address",
        ),
    ];
    let pods: Vec<Placed<'_>> = forgeries
        .iter()
        .map(|(name, namespace, metadata, _)| stage.pod_in(namespace, &machines[1], name, metadata))
        .collect();
    let calls: Vec<Calling> = pods.iter().map(|pod| pod.call("ADD")).collect();
    for (call, pod) in calls.into_iter().zip(&pods) {
        let refused = call.join();
        assert_eq!(refused.refused(), LATER, "{}: {refused:?}", pod.name);
    }
    for (name, namespace, _, words) in &forgeries {
        until("an event", || {
            let refused = refusals(&stage.cluster, namespace);
            refused.iter().any(|(pod, said)| pod == name && said.contains(words)).then_some(())
        });
    }
    let after = (stage.cloud.updates(), stage.cloud.fake.changes());
    assert_eq!(before, after, "nothing moves");
    stage.assert_only_on(0, machines.each_ref(), &addresses);
    for address in addresses {
        machines[2].host.ping(address, PATIENCE).unwrap();
    }
}
