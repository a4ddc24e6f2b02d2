//! A cluster that ran Whereabouts: its pools, reservations and slices, as its own programs write them, are taken over. What
//! they hold is handed to nobody else, pods that ask again keep what they have, their DELs release it, and everything drains.
//! Needs root, etcd and kube-apiserver.
//!
//! The objects are written while definitions like Whereabouts' own, without rules, are there; ours come after them, as in an
//! upgrade.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenure_api::whereabouts::{
    Allocation, NodeSliceAllocation, NodeSlicePool, NodeSlicePoolSpec, NodeSlicePoolStatus,
};
use tenure_testbed::wait::until;
use tenure_tests::whereabouts::node::{Interface, Node};
use tenure_tests::whereabouts::{Bed, network, now, record, say};

/// Records in the first object of a /16.
const MANY: usize = 3000;

/// A cluster with everything that Whereabouts has left there.
fn upgraded() -> Arc<Bed> {
    static SHARED: Mutex<Weak<Bed>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(bed) = shared.upgrade() {
        return bed;
    }
    let bed = Arc::new(Bed::new());
    let strict = relax(&bed);
    for pod in ["kept", "again", "nameless", "planted", "many", "sane", "sliced-a", "sliced-b"] {
        bed.make_pods(&[(pod.to_owned(), "up-1".to_owned())]);
    }
    plain(&bed);
    large(&bed);
    senseless(&bed);
    sliced(&bed);
    tighten(&bed, &strict);
    bed.control("shared");
    *shared = Arc::downgrade(&bed);
    bed
}

const GROUP: &str = "whereabouts.cni.cncf.io";

/// Makes Whereabouts' definitions like its own: types and nothing else. Returns ours.
fn relax(bed: &Bed) -> Vec<CustomResourceDefinition> {
    let definitions: Api<CustomResourceDefinition> = Api::all(bed.client.clone());
    let ours = tenure_api::crds().into_iter().filter(|crd| crd.spec.group == GROUP).collect::<Vec<_>>();
    for crd in &ours {
        let mut value = serde_json::to_value(crd).unwrap();
        drop_rules(&mut value);
        put(bed, &definitions, &serde_json::from_value(value).unwrap());
    }
    until("definitions without rules", || {
        // Refused by a rule, as long as there is one.
        let name = "probe-10.255.0.0-30";
        let pool = tenure_api::whereabouts::IPPool::new(
            name,
            tenure_api::whereabouts::IPPoolSpec {
                range: "10.255.0.0/30".to_owned(),
                allocations: BTreeMap::from([("one".to_owned(), record("c", "a/b", None))]),
            },
        );
        bed.wait(bed.ledgers().create(&PostParams::default(), &pool)).ok()?;
        bed.wait(bed.ledgers().delete(name, &kube::api::DeleteParams::default())).ok().map(drop)
    });
    ours
}

fn drop_rules(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("x-kubernetes-validations");
            fields.remove("maxProperties");
            fields.remove("maxLength");
            fields.values_mut().for_each(drop_rules);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_rules),
        _ => {}
    }
}

/// Ours, again.
fn tighten(bed: &Bed, ours: &[CustomResourceDefinition]) {
    let definitions: Api<CustomResourceDefinition> = Api::all(bed.client.clone());
    for crd in ours {
        put(bed, &definitions, crd);
    }
}

fn put(bed: &Bed, definitions: &Api<CustomResourceDefinition>, crd: &CustomResourceDefinition) {
    let there = bed.wait(definitions.get(&crd.name_any())).unwrap();
    let mut crd = crd.clone();
    crd.metadata.resource_version = there.metadata.resource_version;
    bed.wait(definitions.replace(&crd.name_any(), &PostParams::default(), &crd)).unwrap();
}

type Records = BTreeMap<String, Allocation>;

fn records(of: &[(&str, &str, &str, Option<&str>)]) -> Records {
    of.iter()
        .map(|(key, id, pod, ifname)| ((*key).to_owned(), record(id, &format!("default/{pod}"), *ifname)))
        .collect()
}

/// A range without a name.
fn plain(bed: &Bed) {
    let held = records(&[
        ("1", "old-kept", "kept", Some("net1")),
        ("2", "old-again", "again", Some("net1")),
        // Written before 0.5, which named no interface.
        ("3", "old-nameless", "nameless", None),
        ("7", "old-planted", "planted", Some("net1")),
    ]);
    for (key, record) in &held {
        let ifname = record.ifname.as_deref().unwrap_or_default();
        bed.make_reservation(&format!("10.20.0.{key}"), &record.podref, ifname);
    }
    bed.make_ledger("10.20.0.0-24", "10.20.0.0/24", held);
}

/// A large range, all of whose records are in one object.
fn large(bed: &Bed) {
    let held = (1..=MANY).map(|offset| {
        (offset.to_string(), record(&format!("old-{offset}"), "default/many", Some(&format!("if{offset}"))))
    });
    bed.make_ledger("large-10.21.0.0-16", "10.21.0.0/16", held.collect());
}

/// What was seen in pools (and once brought one to a halt): keys that are no address of the range.
fn senseless(bed: &Bed) {
    let mut held = records(&[
        ("2", "old-sane", "sane", Some("net1")),
        // Whereabouts reads this as the fourth, and so do we.
        ("04", "old-zero", "sane", Some("net4")),
    ]);
    for key in SENSELESS {
        held.insert(key.to_owned(), record("nobody", "default/nobody", Some("net1")));
    }
    bed.make_ledger("senseless-10.22.0.0-24", "10.22.0.0/24", held);
}

const SENSELESS: [&str; 4] = ["-1", "one", "300", "18446463705355360228"];

/// A range that is cut, with what two nodes hold of it.
fn sliced(bed: &Bed) {
    let slice = |node: &str, number: usize| NodeSliceAllocation {
        node_name: node.to_owned(),
        slice_range: format!("10.23.0.{}/26", number * 64),
    };
    let spec = NodeSlicePoolSpec { range: "10.23.0.0/24".to_owned(), slice_size: "/26".to_owned() };
    let mut pool = NodeSlicePool::new("cut", spec);
    // Not in the order in which anybody would give them now.
    let allocations = vec![slice("", 0), slice("up-2", 1), slice("", 2), slice("up-1", 3)];
    pool.status = Some(NodeSlicePoolStatus { allocations, conditions: Vec::new() });
    bed.wait(bed.slice_pools().create(&PostParams::default(), &pool)).unwrap();
    bed.make_ledger(
        "cut-up-1-10.23.0.192-26",
        "10.23.0.192/26",
        records(&[("1", "old-a", "sliced-a", Some("net1")), ("3", "old-b", "sliced-b", Some("net1"))]),
    );
    bed.make_ledger(
        "cut-up-2-10.23.0.64-26",
        "10.23.0.64/26",
        records(&[("1", "old-many", "many", Some("net1"))]),
    );
    bed.attach("cut-network", &cut());
}

fn cut() -> Value {
    let ipam = json!({"range": "10.23.0.0/24", "node_slice_size": "/26", "network_name": "cut"});
    network("cut-network", ipam)
}

fn ip(text: &str) -> Vec<IpAddr> {
    vec![text.parse().unwrap()]
}

fn pods(bed: &Bed, node: &str, names: &[&str]) {
    let pods: Vec<(String, String)> =
        names.iter().map(|name| ((*name).to_owned(), node.to_owned())).collect();
    bed.make_pods(&pods);
}

#[test]
fn what_whereabouts_holds_is_handed_to_nobody_kept_by_its_pods_and_released_by_their_dels() {
    let bed = upgraded();
    let node = Node::running(&bed, "plain-1");
    let config = network("plain", json!({"range": "10.20.0.0/24"}));
    pods(&bed, "plain-1", &["plain-new-1", "plain-new-2", "plain-new-3", "plain-new-4"]);
    let new = |number: usize| Interface::of(&format!("plain-new-{number}"));

    assert_eq!(node.add(&new(1), &config), ip("10.20.0.4"));
    assert_eq!(node.add(&new(2), &config), ip("10.20.0.5"));
    let kept = Interface::in_container("kept", "old-kept");
    assert_eq!(node.add(&kept, &config), ip("10.20.0.1"), "the same container asks again");
    // Nobody knows whether the containers of before are gone: a pod may have been made anew under their name.
    let again = Interface::in_container("again", "new-again");
    assert_eq!(node.add(&again, &config), ip("10.20.0.6"), "d8: another container has the second");
    let nameless = Interface::in_container("nameless", "new-nameless");
    assert_eq!(node.add(&nameless, &config), ip("10.20.0.8"), "d8: another container has the third");
    assert_eq!(node.add(&new(3), &config), ip("10.20.0.9"));
    assert_eq!(node.add(&new(4), &config), ip("10.20.0.10"));
    let held = bed.records("10.20.0.0-24");
    assert_eq!(held["2"], record("old-again", "default/again", Some("net1")));
    assert_eq!(held["3"], record("old-nameless", "default/nameless", None));
    assert_eq!(held["7"], record("old-planted", "default/planted", Some("net1")));

    // The DELs of containers that Whereabouts' plugin has added.
    node.del(&Interface::in_container("planted", "old-planted"), &config);
    node.del(&Interface::in_container("again", "old-again"), &config);
    node.del(&Interface::in_container("nameless", "old-nameless"), &config);
    let held: Vec<String> = bed.records("10.20.0.0-24").into_keys().collect();
    assert_eq!(held, ["1", "10", "4", "5", "6", "8", "9"]);
    for interface in [kept, again, nameless, new(1), new(2), new(3), new(4)] {
        node.del(&interface, &config);
    }
    assert_eq!(bed.records("10.20.0.0-24"), Records::new());
    until("reservations to go", || bed.reservations_of("10.20.0.").is_empty().then_some(()));
}

#[test]
fn a_record_that_names_no_interface_is_released_by_its_containers_del() {
    let bed = upgraded();
    let node = Node::running(&bed, "nameless-1");
    let held = records(&[("1", "old-one", "many", None), ("2", "old-two", "many", None)]);
    bed.make_ledger("nameless-10.24.0.0-24", "10.24.0.0/24", held);
    let config = network("nameless", json!({"range": "10.24.0.0/24", "network_name": "nameless"}));
    node.del(&Interface::in_container("many", "old-one"), &config);
    let left: Vec<String> = bed.records("nameless-10.24.0.0-24").into_keys().collect();
    assert_eq!(left, ["2"]);
    node.del(&Interface::in_container("many", "old-two"), &config);
    assert!(bed.records("nameless-10.24.0.0-24").is_empty());
}

#[test]
fn a_large_range_with_thousands_of_records_in_one_object_is_filled_on_and_drained() {
    let bed = upgraded();
    let (one, other) = (Node::running(&bed, "large-1"), Node::running(&bed, "large-2"));
    let config = network("large", json!({"range": "10.21.0.0/16", "network_name": "large"}));
    pods(&bed, "large-1", &["large-new-1", "large-new-2", "large-new-3"]);
    let new = |number: usize| Interface::of(&format!("large-new-{number}"));
    let old = |offset: usize| {
        Interface::in_container("many", &format!("old-{offset}")).named(&format!("if{offset}"))
    };
    // 3001 is 10.21.11.185: beyond the 256 addresses that belong into the first object.
    assert_eq!(one.add(&new(1), &config), ip("10.21.11.185"));
    assert_eq!(bed.records("large-10.21.0.0-16").len(), MANY);
    let further: Vec<String> = bed
        .all_ledgers()
        .iter()
        .filter(|pool| pool.spec.range == "10.21.0.0/16" && pool.spec.allocations.contains_key("3001"))
        .map(ResourceExt::name_any)
        .collect();
    assert_eq!(further, ["large-10.21.0.0-16.11"]);
    // What one node frees comes last there; another takes the lowest.
    one.del(&old(2), &config);
    assert_eq!(one.add(&new(2), &config), ip("10.21.11.186"));
    assert_eq!(other.add(&new(3), &config), ip("10.21.0.2"));
    // A pod of before asks again.
    assert_eq!(other.add(&old(77), &config), ip("10.21.0.77"));

    let began = now();
    let offsets: Vec<usize> = (1..=MANY).filter(|offset| *offset != 2).collect();
    thread::scope(|scope| {
        for part in offsets.chunks(15) {
            let (one, config) = (&one, &config);
            scope.spawn(move || part.iter().for_each(|offset| one.del(&old(*offset), config)));
        }
    });
    say(&format!("{} records drained in {:?}", offsets.len(), now().saturating_sub(began)));
    for (node, number) in [(&one, 1), (&one, 2), (&other, 3)] {
        node.del(&new(number), &config);
    }
    let left = bed.all_ledgers().into_iter().filter(|pool| pool.spec.range == "10.21.0.0/16");
    assert_eq!(left.flat_map(|pool| pool.spec.allocations).collect::<Records>(), Records::new());
}

#[test]
fn records_that_make_no_sense_stay_and_keep_nobody_out() {
    let bed = upgraded();
    let node = Node::running(&bed, "senseless-1");
    let config = network("senseless", json!({"range": "10.22.0.0/24", "network_name": "senseless"}));
    pods(&bed, "senseless-1", &["senseless-1", "senseless-2", "senseless-3"]);
    let [first, second, third] = ["senseless-1", "senseless-2", "senseless-3"].map(Interface::of);
    assert_eq!(node.add(&first, &config), ip("10.22.0.1"));
    assert_eq!(node.add(&second, &config), ip("10.22.0.3"));
    assert_eq!(node.add(&third, &config), ip("10.22.0.5"), "the fourth is held");
    let sane = Interface::in_container("sane", "old-sane");
    assert_eq!(node.add(&sane, &config), ip("10.22.0.2"));
    let zero = Interface::in_container("sane", "old-zero").named("net4");
    for interface in [first, second, third, sane, zero] {
        node.del(&interface, &config);
    }
    let mut left: Vec<String> = bed.records("senseless-10.22.0.0-24").into_keys().collect();
    let mut senseless = SENSELESS.map(str::to_owned).to_vec();
    left.sort();
    senseless.sort();
    assert_eq!(left, senseless);
}

#[test]
fn slices_that_whereabouts_has_given_stay_with_their_nodes_and_what_is_held_in_them_with_its_pods() {
    let bed = upgraded();
    let (one, two) = (Node::running(&bed, "up-1"), Node::running(&bed, "up-2"));
    let slices = bed.sliced("cut", &["up-1".to_owned(), "up-2".to_owned()]);
    assert_eq!((slices["up-1"].as_str(), slices["up-2"].as_str()), ("10.23.0.192/26", "10.23.0.64/26"));
    let config = cut();
    pods(&bed, "up-1", &["sliced-new-1", "sliced-new-2", "sliced-new-3"]);
    let new = |number: usize| Interface::of(&format!("sliced-new-{number}"));
    // Containers run here that no journal knows of: the agent asks who uses what first, and the kubelet asks again.
    until("the slice to be handed out of", || {
        let called = one.call("ADD", &new(1), &config);
        (called.code == 0).then_some(()).or_else(|| {
            let (code, words) = called.refused();
            assert!(code == 11 && words.contains("that no journal knows of"), "{words}");
            None
        })
    });
    // As with Whereabouts, a slice's first and last address are for nobody.
    let mut got: Vec<IpAddr> = (1..=3).flat_map(|number| one.add(&new(number), &config)).collect();
    got.sort();
    let expected: Vec<IpAddr> =
        ["10.23.0.194", "10.23.0.196", "10.23.0.197"].iter().map(|it| it.parse().unwrap()).collect();
    assert_eq!(got, expected, "193 and 195 are held");
    let again = Interface::in_container("sliced-a", "old-a");
    assert_eq!(one.add(&again, &config), ip("10.23.0.193"), "the same container asks again");
    let kept = Interface::in_container("sliced-b", "old-b");
    assert_eq!(one.add(&kept, &config), ip("10.23.0.195"), "the same container asks again");
    let name = "cut-up-1-10.23.0.192-26";
    until("the slice's object to be exact", || {
        let held = bed.records(name);
        let ids: Vec<&str> = held.values().map(|it| it.id.as_str()).collect();
        (held.len() == 5 && ids.contains(&"old-a") && ids.contains(&"old-b")).then_some(())
    });
    for interface in [new(1), new(2), new(3), again, kept] {
        one.del(&interface, &config);
    }
    // The runtime of the other node says the end of something that our plugin has never seen.
    two.del(&Interface::in_container("many", "old-many"), &config);
    for name in [name, "cut-up-2-10.23.0.64-26"] {
        until(&format!("{name} to drain"), || bed.records(name).is_empty().then_some(()));
    }
}
