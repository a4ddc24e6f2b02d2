//! Beside KubeVirt's ipam-extensions.

use super::*;
use crate::owners::extensions_at_work;

#[test]
fn ipam_extensions_is_found_at_work_by_its_webhook_else_by_its_claims() {
    let mut world = World::running(ONE);
    world.settle();
    let ours = existing(&world.claims[0]);
    let theirs = Existing { interface: String::new(), ..ours.clone() };
    let users = Existing { owners: Vec::new(), ..theirs.clone() };
    for (webhook, claims, expected) in [
        (Some(true), vec![&ours], true),
        (Some(false), vec![&theirs], false),
        (None, vec![&ours, &theirs], true),
        (None, vec![&ours, &users], false),
        (None, vec![], false),
    ] {
        assert_eq!(extensions_at_work(webhook, claims.iter().copied()), expected, "{webhook:?} {claims:?}");
    }
}

#[test]
fn beside_ipam_extensions_exactly_those_claims_are_made_that_it_does_not_make() {
    let all = json!([
        {"name": "default", "pod": {}},
        {"name": "extra", "multus": {"networkName": "blue"}},
    ]);
    let in_place = json!([{"name": "main", "multus": {"networkName": "green", "default": true}}]);
    let network_of = |namespace: &str, name: &str| match (namespace, name) {
        ("", "") => Ok(Some("cluster-net".to_owned())),
        _ => network_of(namespace, name),
    };
    let created = |networks: &Value, beside: Beside| -> Vec<String> {
        let mut machine = machine_of("vm-1", &[]);
        machine["spec"]["template"]["spec"]["networks"] = networks.clone();
        let world = World { machine: Some(machine), ..World::default() };
        let steps = world.steps_beside(&network_of, beside);
        steps
            .iter()
            .map(|step| match step {
                Step::Create(claim) => format!("{} {}", claim.spec.network, claim.spec.interface),
                other => format!("{other:?}"),
            })
            .collect()
    };
    let extra = format!("blue-net {}", names::machine_interface("extra"));
    let extensions = |primary| Beside::Extensions { primary };
    assert_eq!(created(&all, Beside::Nobody), ["cluster-net eth0", &extra]);
    assert_eq!(created(&all, extensions(false)), ["cluster-net eth0"]);
    assert_eq!(created(&all, extensions(true)), [""; 0], "it makes that of a primary network");
    assert_eq!(created(&in_place, extensions(true)), ["green-net eth0"]);
}

#[test]
fn claims_of_before_ipam_extensions_came_stay_and_go_with_their_interfaces() {
    let mut world = World::running(ONE);
    world.settle();
    let beside = Beside::Extensions { primary: false };
    assert_eq!(world.steps_beside(&network_of, beside), [], "it would not make another of that name");
    world.machine = Some(machine_of("vm-1", &[]));
    world.instance = None;
    let steps = world.steps_beside(&network_of, beside);
    assert!(matches!(&steps[..], [Step::Delete { .. }]), "{steps:?}");
}
