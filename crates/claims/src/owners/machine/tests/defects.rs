//! Defects of KubeVirt's ipam-extensions, which must be impossible here.

use super::*;

#[test]
fn a_definition_that_cannot_be_read_is_said_and_asked_for_again() {
    let mut world = World {
        machine: Some(machine_of("vm-1", &[("net1", "blue"), ("net2", "gone")])),
        ..World::default()
    };
    let said = world.settle();
    assert_eq!(
        said,
        [
            "virtual machine ns/vm: network \"net2\": NetworkAttachmentDefinition ns/gone cannot be read: it is gone"
        ]
    );
    assert_eq!(world.names(), ["vm.net1"]);
    // One that is there already does not go because its network cannot be read for a while.
    let steps = world.steps_with(&|_, _| Err("the API server is away".into()));
    assert!(steps.iter().all(|step| matches!(step, Step::Problem { .. })), "{steps:?}");
}

#[test]
fn two_interfaces_on_one_network_are_two_claims() {
    let mut world = World::running(&[("net1", "blue"), ("net2", "blue"), ("net3", "shared/blue")]);
    assert!(world.settle().is_empty());
    assert_eq!(world.names(), ["vm.net1", "vm.net2", "vm.net3"]);
    let mut interfaces: Vec<_> = world.claims.iter().map(|claim| claim.spec.interface.as_str()).collect();
    interfaces.dedup();
    assert_eq!(interfaces.len(), 3);
    for claim in &world.claims {
        let matching = |interface: &&&str| {
            let reference =
                crate::Reference::Launcher { vmi: "vm".into(), interface: (**interface).to_owned() };
            reference.is(&ClaimFacts::of(claim), "blue-net")
        };
        assert_eq!(interfaces.iter().filter(matching).count(), 1, "each interface finds one");
    }
}

#[test]
fn the_claim_does_not_wait_for_an_instance_or_a_pod() {
    let world = World { machine: Some(machine_of("vm-1", ONE)), ..World::default() };
    assert!(matches!(&world.steps()[..], [Step::Create(_)]));
}
