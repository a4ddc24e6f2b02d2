use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn pod(networks: &Value) -> PodFacts {
    let annotations = [(annotation::NETWORKS.to_owned(), networks.to_string())].into();
    PodFacts::of(&ObjectMeta {
        namespace: Some("ns".into()),
        name: Some("p".into()),
        annotations: Some(annotations),
        ..ObjectMeta::default()
    })
}

/// Definitions are called after their networks, but one that nobody knows.
fn network_of(_: &str, name: &str) -> Option<String> {
    (name != "unknown").then(|| format!("{name}-net"))
}

/// The claim that each of these interfaces has on a network, attached in this order.
fn play(pod: &PodFacts, calls: &[(&str, &str)]) -> Vec<String> {
    let mut had: Vec<(String, String)> = Vec::new();
    calls
        .iter()
        .map(|(network, interface)| {
            let before: BTreeSet<String> =
                had.iter().filter(|(of, _)| of == network).map(|(_, it)| it.clone()).collect();
            let attached = Attached { network, interface, before: &before };
            let said = match selection_of(pod, attached, network_of) {
                Ok(None) => "-".to_owned(),
                Ok(Some(selection)) => selection.claim.clone().unwrap_or_else(|| "none".to_owned()),
                Err(refusal) => return format!("refused: {refusal}"),
            };
            had.push(((*network).to_owned(), (*interface).to_owned()));
            said
        })
        .collect()
}

fn element(name: &str, claim: &str) -> Value {
    json!({"name": name, "ipam-claim-reference": claim})
}

#[test]
fn an_element_is_found_by_its_network_however_many_default_networks_come_before() {
    let one = pod(&json!([element("blue", "c")]));
    for interface in ["net1", "net2", "net7"] {
        assert_eq!(play(&one, &[("cluster", "eth0"), ("blue-net", interface)]), ["-", "c"], "{interface}");
    }
    assert_eq!(play(&one, &[("other-net", "net1"), ("blue-net", "net2")]), ["-", "c"]);
    let two = pod(&json!([element("blue", "c"), element("green", "d")]));
    for shift in 0..3 {
        let calls = [("blue-net", format!("net{}", shift + 1)), ("green-net", format!("net{}", shift + 2))];
        let calls: Vec<(&str, &str)> =
            calls.iter().map(|(network, interface)| (*network, interface.as_str())).collect();
        assert_eq!(play(&two, &calls), ["c", "d"], "{shift}");
    }
    assert_eq!(
        play(&two, &[("green-net", "net1")]),
        ["-"],
        "that is a default network: its element is second"
    );
}

#[test]
fn several_on_one_network_are_told_apart_by_their_order() {
    let twice = pod(&json!([element("blue", "c"), {"name": "green"}, element("blue", "d")]));
    for shift in 0..3 {
        let name = |place: usize| format!("net{}", shift + place);
        let (one, three) = (name(1), name(3));
        assert_eq!(play(&twice, &[("blue-net", &one), ("blue-net", &three)]), ["c", "d"], "{shift}");
    }
    let mixed = pod(&json!([{"name": "blue"}, element("blue", "d")]));
    assert_eq!(play(&mixed, &[("blue-net", "net2"), ("blue-net", "net3")]), ["none", "d"]);
}

#[test]
fn what_does_not_fit_is_refused_and_says_what_to_write() {
    let one = pod(&json!([element("blue", "c")]));
    let said = play(&one, &[("blue-net", "net1"), ("blue-net", "net2")]);
    assert_eq!(said[0], "c");
    for part in ["pod ns/p", "\"blue-net\"", "\"net2\"", "\"interface\"", annotation::NETWORKS] {
        assert!(said[1].starts_with("refused") && said[1].contains(part), "{part} in {said:?}");
    }
    let twice = pod(&json!([element("blue", "c"), element("blue", "d")]));
    let said = play(&twice, &[("blue-net", "net1"), ("blue-net", "net3")]);
    assert!(said[1].starts_with("refused"), "something is between them: {said:?}");
    let said = play(&one, &[("blue-net", "vlan7")]);
    assert!(said[0].starts_with("refused"), "nobody says whose that is: {said:?}");
    let unknown = pod(&json!([{"name": "unknown"}, element("blue", "c")]));
    assert!(play(&unknown, &[("blue-net", "net2")])[0].starts_with("refused"));
    let broken = pod(&json!([{"name": 7}]));
    assert!(play(&broken, &[("blue-net", "net1")])[0].contains("annotation"));
    assert_eq!(play(&broken, &[("blue-net", "eth0")]), ["-"]);
}

#[test]
fn an_interface_that_is_named_is_certain_and_elements_without_claims_hinder_nobody() {
    let named = json!({"name": "blue", "interface": "blue0", "ipam-claim-reference": "c"});
    let both = pod(&json!([named, element("blue", "d")]));
    assert_eq!(play(&both, &[("blue-net", "blue0"), ("blue-net", "net2")]), ["c", "d"]);
    assert_eq!(play(&both, &[("blue-net", "blue0"), ("blue-net", "net5")]), ["c", "d"]);
    assert_eq!(play(&pod(&json!([named])), &[("blue-net", "net1"), ("blue-net", "blue0")]), ["-", "c"]);
    let plain = pod(&json!([{"name": "blue"}, {"name": "blue"}]));
    assert_eq!(
        play(&plain, &[("blue-net", "net4"), ("blue-net", "odd"), ("blue-net", "net1")]),
        ["-", "-", "-"]
    );
    let alone = pod(&json!([element("unknown", "c")]));
    assert_eq!(play(&alone, &[("any-net", "net3")]), ["c"], "it is the only one that it can be");
}

proptest! {
    /// Whatever a pod lists and however many default networks of other names come before: as Multus attaches, each has its own.
    #[test]
    fn as_multus_attaches_every_element_has_its_own_claim(
        elements in prop::collection::vec((0_usize..3, any::<bool>(), any::<bool>()), 1..6), shift in 0_usize..4
    ) {
        let list: Vec<Value> = elements.iter().enumerate().map(|(index, (network, claim, named))| {
            let mut element = json!({"name": format!("n{network}")});
            if *claim {
                element["ipam-claim-reference"] = json!(format!("claim-{index}"));
            }
            if *named {
                element["interface"] = json!(format!("if{index}"));
            }
            element
        }).collect();
        let pod = pod(&json!(list));
        let mut calls: Vec<(String, String)> =
            (0..shift).map(|place| ("default-net".to_owned(), format!("net{}", place + 1))).collect();
        calls.extend(elements.iter().enumerate().map(|(index, (network, _, named))| {
            let interface = if *named { format!("if{index}") } else { format!("net{}", shift + index + 1) };
            (format!("n{network}-net"), interface)
        }));
        let calls: Vec<(&str, &str)> = calls.iter().map(|(network, it)| (network.as_str(), it.as_str())).collect();
        let said = play(&pod, &calls);
        for (index, (_, claim, _)) in elements.iter().enumerate() {
            let said = &said[shift + index];
            if *claim {
                prop_assert_eq!(said, &format!("claim-{index}"));
            } else {
                prop_assert!(said == "-" || said == "none", "{}", said);
            }
        }
    }

    /// Whatever is called in whatever order, no claim is given to two interfaces.
    #[test]
    fn no_claim_is_had_twice_whatever_is_attached(
        networks in prop::collection::vec(0_usize..2, 1..5), calls in prop::collection::vec((0_usize..2, 1_usize..7), 1..8)
    ) {
        let list: Vec<Value> = networks.iter().enumerate()
            .map(|(index, network)| element(&format!("n{network}"), &format!("claim-{index}"))).collect();
        let calls: BTreeSet<(String, String)> =
            calls.iter().map(|(network, place)| (format!("n{network}-net"), format!("net{place}"))).collect();
        let mut calls: Vec<(&str, &str)> = calls.iter().map(|(network, it)| (network.as_str(), it.as_str())).collect();
        calls.sort_by_key(|(_, interface)| interface.to_owned());
        let mut given: Vec<String> = play(&pod(&json!(list)), &calls);
        given.retain(|it| it.starts_with("claim-"));
        let count = given.len();
        given.sort();
        given.dedup();
        prop_assert_eq!(given.len(), count);
    }
}
