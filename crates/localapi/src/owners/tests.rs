//! The planner, case by case.

use serde_json::json;

use super::*;
use crate::store::Draft;

fn collection(name: &str) -> CollectionName {
    name.into()
}

/// Kinds `Thing` in namespaces, `Whole` outside, nothing else.
fn kinds(_: &str, kind: &str) -> Option<KindPlace> {
    match kind {
        "Thing" => Some(KindPlace { collection: collection("things"), namespaced: true }),
        "Whole" => Some(KindPlace { collection: collection("wholes"), namespaced: false }),
        _ => None,
    }
}

struct Spec {
    key: Key,
    metadata: Value,
}

fn thing(name: &str) -> Spec {
    Spec { key: Key::new("ns", name), metadata: json!({"name": name, "namespace": "ns", "uid": name}) }
}

impl Spec {
    fn owned_by(mut self, kind: &str, name: &str, blocks: bool) -> Self {
        let reference = json!({
            "apiVersion": "v1", "kind": kind, "name": name, "uid": name, "blockOwnerDeletion": blocks,
        });
        match self.metadata["ownerReferences"].as_array_mut() {
            Some(owners) => owners.push(reference),
            None => self.metadata["ownerReferences"] = json!([reference]),
        }
        self
    }

    fn leaving(mut self, finalizers: &[&str]) -> Self {
        self.metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        self.metadata["finalizers"] = json!(finalizers);
        self
    }

    fn at(mut self, namespace: &str) -> Self {
        self.key = Key::new(namespace, self.key.name());
        self
    }
}

fn graph(specs: impl IntoIterator<Item = Spec>) -> Graph {
    let mut graph = Graph::default();
    for spec in specs {
        put(&mut graph, spec);
    }
    graph
}

fn put(graph: &mut Graph, spec: Spec) {
    let kind = if spec.key.namespace().is_empty() { "wholes" } else { "things" };
    let object = Draft::new(json!({"metadata": spec.metadata})).finish(spec.key, 1);
    graph.put(&collection(kind), &object);
}

fn operations(graph: &mut Graph) -> Vec<(String, Operation)> {
    graph.plan(kinds).into_iter().map(|task| (task.uid, task.operation)).collect()
}

fn delete(uid: &str, propagation: Propagation) -> (String, Operation) {
    (uid.to_owned(), Operation::Delete(propagation))
}

#[test]
fn a_dependent_of_a_living_owner_stays() {
    let mut graph = graph([thing("owner"), thing("child").owned_by("Thing", "owner", false)]);
    assert_eq!(operations(&mut graph), []);
}

#[test]
fn a_dependent_whose_only_owner_is_gone_is_deleted() {
    let mut graph = graph([thing("owner"), thing("child").owned_by("Thing", "owner", false)]);
    graph.plan(kinds);
    graph.remove("owner");
    assert_eq!(operations(&mut graph), [delete("child", Propagation::Background)]);
}

#[test]
fn a_dependent_that_never_had_its_owner_is_deleted() {
    let mut graph = graph([thing("child").owned_by("Thing", "nobody", false)]);
    assert_eq!(operations(&mut graph), [delete("child", Propagation::Background)]);
}

#[test]
fn a_dependent_with_another_owner_only_loses_the_reference() {
    let child = thing("child").owned_by("Thing", "gone", false).owned_by("Thing", "stays", false);
    let mut graph = graph([thing("stays"), child]);
    let lost = BTreeSet::from(["gone".to_owned()]);
    assert_eq!(operations(&mut graph), [("child".to_owned(), Operation::Disown(lost))]);
}

#[test]
fn an_owner_of_an_unknown_kind_is_given_the_benefit_of_the_doubt() {
    let mut graph = graph([thing("child").owned_by("Mystery", "owner", false)]);
    assert_eq!(operations(&mut graph), []);
}

#[test]
fn an_owner_in_another_namespace_is_no_owner() {
    let mut graph = graph([thing("owner").at("elsewhere"), thing("child").owned_by("Thing", "owner", false)]);
    assert_eq!(operations(&mut graph), [delete("child", Propagation::Background)]);
}

#[test]
fn a_cluster_scoped_owner_owns_across_namespaces_but_not_the_other_way_round() {
    let mut down = graph([thing("owner").at(""), thing("child").owned_by("Whole", "owner", false)]);
    assert_eq!(operations(&mut down), []);
    let mut up = graph([thing("child").at("").owned_by("Thing", "owner", false)]);
    assert_eq!(operations(&mut up), [], "nobody can say which namespace is meant");
}

#[test]
fn an_owner_that_waits_in_the_foreground_lets_its_dependents_go_first() {
    let mut graph = graph([
        thing("owner").leaving(&[FOREGROUND]),
        thing("blocking").owned_by("Thing", "owner", true),
        thing("free").owned_by("Thing", "owner", false),
    ]);
    assert_eq!(
        operations(&mut graph),
        [delete("blocking", Propagation::Background), delete("free", Propagation::Background)]
    );
    graph.remove("blocking");
    assert_eq!(operations(&mut graph), [("owner".to_owned(), Operation::Release(FOREGROUND))]);
}

#[test]
fn a_foreground_deletion_goes_down_the_tree() {
    let mut graph = graph([
        thing("owner").leaving(&[FOREGROUND]),
        thing("child").owned_by("Thing", "owner", true),
        thing("grandchild").owned_by("Thing", "child", true),
    ]);
    assert_eq!(operations(&mut graph), [delete("child", Propagation::Foreground)]);
    put(&mut graph, thing("child").owned_by("Thing", "owner", true).leaving(&[FOREGROUND]));
    assert_eq!(operations(&mut graph), [delete("grandchild", Propagation::Background)]);
    graph.remove("grandchild");
    assert_eq!(operations(&mut graph), [("child".to_owned(), Operation::Release(FOREGROUND))]);
    graph.remove("child");
    assert_eq!(operations(&mut graph), [("owner".to_owned(), Operation::Release(FOREGROUND))]);
}

#[test]
fn orphaning_disowns_every_dependent_and_then_lets_the_owner_go() {
    let mut graph =
        graph([thing("owner").leaving(&[ORPHAN]), thing("child").owned_by("Thing", "owner", true)]);
    let owner = BTreeSet::from(["owner".to_owned()]);
    assert_eq!(operations(&mut graph), [("child".to_owned(), Operation::Disown(owner))]);
    put(&mut graph, thing("child"));
    assert_eq!(operations(&mut graph), [("owner".to_owned(), Operation::Release(ORPHAN))]);
}

#[test]
fn a_successor_under_the_same_name_is_not_the_owner() {
    let mut graph = graph([thing("owner"), thing("child").owned_by("Thing", "owner", false)]);
    graph.plan(kinds);
    let mut successor = thing("owner");
    successor.metadata["uid"] = json!("another");
    put(&mut graph, successor);
    assert_eq!(operations(&mut graph), [delete("child", Propagation::Background)]);
}

#[test]
fn two_that_own_each_other_do_not_wait_for_ever() {
    let mut graph = graph([
        thing("a").owned_by("Thing", "b", true).leaving(&[FOREGROUND]),
        thing("b").owned_by("Thing", "a", true),
    ]);
    let mut found = operations(&mut graph);
    found.sort_by_key(|(uid, _)| uid.clone());
    assert_eq!(found, [("b".to_owned(), Operation::Unblock), delete("b", Propagation::Foreground)]);
}
