//! One test for each scenario of KubeVirt's own suite.

use serde_json::{Value, json};

use super::*;
use crate::ClaimFacts;

mod defects;
mod deletion;
mod extensions;

fn existing(claim: &IPAMClaim) -> Existing {
    Existing::of(claim, &ClaimFacts::of(claim))
}

/// What there is: a machine, its instance, claims. Steps are carried out as an API server would.
#[derive(Default)]
struct World {
    machine: Option<Value>,
    instance: Option<Value>,
    claims: Vec<IPAMClaim>,
    made: u32,
}

fn network_of(namespace: &str, name: &str) -> Result<Option<String>, String> {
    match (namespace, name) {
        ("ns" | "shared", "blue") => Ok(Some("blue-net".into())),
        ("ns", "green") => Ok(Some("green-net".into())),
        ("", "") | ("ns", "plain") => Ok(None),
        (namespace, name) => {
            Err(format!("NetworkAttachmentDefinition {namespace}/{name} cannot be read: it is gone"))
        }
    }
}

fn networks(of: &[(&str, &str)]) -> Value {
    of.iter().map(|(name, nad)| json!({"name": name, "multus": {"networkName": nad}})).collect()
}

fn machine_of(uid: &str, of: &[(&str, &str)]) -> Value {
    json!({
        "metadata": {"namespace": "ns", "name": "vm", "uid": uid},
        "spec": {"template": {"spec": {"networks": networks(of), "domain": {"devices": {"interfaces": []}}}}},
    })
}

fn instance_of(owner: Option<&str>, of: &[(&str, &str)]) -> Value {
    let owners: Vec<_> =
        owner.iter().map(|uid| json!({"kind": "VirtualMachine", "name": "vm", "uid": uid})).collect();
    json!({
        "metadata": {"namespace": "ns", "name": "vm", "uid": "vmi-1", "ownerReferences": owners},
        "spec": {"networks": networks(of), "domain": {"devices": {"interfaces": []}}},
        "status": {"activePods": {"pod-uid": "node-a"}},
    })
}

fn being_deleted(mut object: Value) -> Value {
    object["metadata"]["deletionTimestamp"] = json!("2026-11-16T05:31:00Z");
    object
}

fn without_pods(mut object: Value) -> Value {
    object["status"]["activePods"] = json!({});
    object
}

impl World {
    fn running(of: &[(&str, &str)]) -> Self {
        let machine = Some(machine_of("vm-1", of));
        Self { machine, instance: Some(instance_of(Some("vm-1"), of)), ..Self::default() }
    }

    fn steps_with(&self, network_of: NetworkOf<'_>) -> Vec<Step> {
        self.steps_beside(network_of, Beside::Nobody)
    }

    fn steps_beside(&self, network_of: NetworkOf<'_>, beside: Beside) -> Vec<Step> {
        let (machine, instance) = (
            self.machine.as_ref().map(MachineFacts::of_machine),
            self.instance.as_ref().map(MachineFacts::of_instance),
        );
        let all: Vec<Existing> = self.claims.iter().map(existing).collect();
        let labelled: Vec<&Existing> = all.iter().filter(|it| it.machine.as_deref() == Some("vm")).collect();
        let named = |name: &str| all.iter().find(|it| it.name == name);
        let of =
            Machine { namespace: "ns", name: "vm", machine: machine.as_ref(), instance: instance.as_ref() };
        super::machine(of, &labelled, &named, network_of, beside)
    }

    fn steps(&self) -> Vec<Step> {
        self.steps_with(&network_of)
    }

    /// Carries out what is to be done until nothing more is, and answers what was said meanwhile.
    fn settle(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        for _ in 0..5 {
            let steps = self.steps();
            for step in &steps {
                self.carry_out(step, &mut said);
            }
            self.collect_garbage();
            said.dedup();
        }
        said.sort();
        said.dedup();
        said
    }

    fn carry_out(&mut self, step: &Step, said: &mut Vec<String>) {
        let find = |claims: &mut Vec<IPAMClaim>, uid: &str| {
            claims.iter().position(|it| it.metadata.uid.as_deref() == Some(uid))
        };
        match step {
            Step::Create(claim) => {
                assert!(
                    self.claims.iter().all(|it| it.metadata.name != claim.metadata.name),
                    "the API refuses a second"
                );
                self.made += 1;
                let mut claim = (**claim).clone();
                claim.metadata.uid = Some(format!("claim-{}", self.made));
                self.claims.push(claim);
            }
            Step::Delete { uid, .. } => {
                let at = find(&mut self.claims, uid).expect("it is there");
                self.delete(at);
            }
            Step::RemoveFinalizer { uid, stay, .. } => {
                let at = find(&mut self.claims, uid).expect("it is there");
                self.claims[at].metadata.finalizers = Some(stay.clone());
            }
            Step::Own { uid, owners, .. } => {
                let at = find(&mut self.claims, uid).expect("it is there");
                self.claims[at].metadata.owner_references = Some(owners.clone());
            }
            Step::Wait { words, .. } | Step::Problem { words } => said.push(words.clone()),
        }
        self.claims.retain(|it| {
            it.metadata.deletion_timestamp.is_none()
                || it.metadata.finalizers.iter().flatten().next().is_some()
        });
    }

    fn delete(&mut self, at: usize) {
        self.claims[at].metadata.deletion_timestamp = Some(
            k8s_openapi::apimachinery::pkg::apis::meta::v1::Time("2026-11-16T05:31:00Z".parse().unwrap()),
        );
    }

    /// Kubernetes' collector: what an owner leaves behind is deleted, and goes once it has no finalizer.
    fn collect_garbage(&mut self) {
        let uid = |object: &Option<Value>| {
            object.as_ref().map(|it| it["metadata"]["uid"].as_str().unwrap().to_owned())
        };
        let alive = [uid(&self.machine), uid(&self.instance)];
        for at in 0..self.claims.len() {
            let owners = self.claims[at].metadata.owner_references.clone().unwrap_or_default();
            if !owners.is_empty() && owners.iter().all(|owner| !alive.contains(&Some(owner.uid.clone()))) {
                self.delete(at);
            }
        }
        self.claims.retain(|it| {
            it.metadata.deletion_timestamp.is_none()
                || it.metadata.finalizers.iter().flatten().next().is_some()
        });
    }

    fn names(&self) -> Vec<&str> {
        self.claims.iter().map(|claim| claim.metadata.name.as_deref().unwrap()).collect()
    }

    /// The foreground: dependents first. The machine stays until claims are gone, because they block its deletion.
    fn delete_foreground(&mut self) {
        self.machine = self.machine.take().map(being_deleted);
        self.instance = self.instance.take().map(being_deleted);
        for at in 0..self.claims.len() {
            self.delete(at);
        }
    }
}

const ONE: &[(&str, &str)] = &[("net1", "blue")];

#[test]
fn a_claim_is_made_when_the_machine_is_created_and_looks_as_kubevirts_do() {
    let mut world = World { machine: Some(machine_of("vm-1", ONE)), ..World::default() };
    assert!(world.settle().is_empty());
    assert_eq!(
        serde_json::to_value(&world.claims[0]).unwrap(),
        json!({
            "apiVersion": "k8s.cni.cncf.io/v1alpha1",
            "kind": "IPAMClaim",
            "metadata": {
                "namespace": "ns", "name": "vm.net1", "uid": "claim-1",
                "labels": {"kubevirt.io/vm": "vm"},
                "finalizers": ["kubevirt.io/persistent-ipam"],
                "ownerReferences": [{
                    "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm", "uid": "vm-1",
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": {"network": "blue-net", "interface": names::machine_interface("net1")},
        })
    );
    let facts = ClaimFacts::of(&world.claims[0]);
    let reference =
        crate::Reference::Launcher { vmi: "vm".into(), interface: names::machine_interface("net1") };
    assert!(reference.is(&facts, "blue-net"), "its launcher pod finds it");
    assert!(world.steps().is_empty(), "and it is made once");
}

#[test]
fn keep_addresses_after_live_migration_of_a_machine_and_of_a_bare_instance() {
    for machine in [Some(machine_of("vm-1", ONE)), None] {
        let owner = machine.is_some().then_some("vm-1");
        let mut world = World { machine, instance: Some(instance_of(owner, ONE)), ..World::default() };
        assert!(world.settle().is_empty());
        let before = world.claims.clone();
        world.instance.as_mut().unwrap()["status"]["activePods"] =
            json!({"pod-uid": "node-a", "target": "node-b"});
        assert!(world.settle().is_empty());
        assert_eq!(world.claims, before);
    }
}

#[test]
fn a_bare_instance_owns_its_claims() {
    let mut world = World { instance: Some(instance_of(None, ONE)), ..World::default() };
    world.settle();
    assert_eq!(world.claims[0].metadata.owner_references.as_ref().unwrap()[0].kind, "VirtualMachineInstance");
    assert_eq!(world.claims[0].metadata.owner_references.as_ref().unwrap()[0].uid, "vmi-1");
}

#[test]
fn an_instance_that_is_seen_before_its_machine_says_whose_it_is() {
    let mut world = World { instance: Some(instance_of(Some("vm-1"), ONE)), ..World::default() };
    world.carry_out(&world.steps()[0].clone(), &mut Vec::new());
    assert_eq!(world.claims[0].metadata.owner_references.as_ref().unwrap()[0].uid, "vm-1");
    world.machine = Some(machine_of("vm-1", ONE));
    assert!(world.settle().is_empty());
    assert_eq!(world.names(), ["vm.net1"]);
}

#[test]
fn keep_addresses_after_stop_and_restart() {
    let mut world = World::running(ONE);
    world.settle();
    let before = world.claims.clone();
    world.instance = world.instance.map(being_deleted);
    assert!(world.settle().is_empty());
    world.instance = None;
    assert!(world.settle().is_empty());
    assert_eq!(world.claims, before, "stopped");
    world.instance = Some(instance_of(Some("vm-1"), ONE));
    assert!(world.settle().is_empty());
    assert_eq!(world.claims, before, "started");
}

#[test]
fn a_machine_whose_instance_has_another_finalizer_keeps_its_claims_until_the_instance_is_gone() {
    let mut world = World::running(ONE);
    world.settle();
    world.delete_foreground();
    world.instance = world.instance.map(without_pods);
    world.settle();
    assert_eq!(world.names(), ["vm.net1"], "the instance is there, if only for somebody's finalizer");
    world.instance = None;
    world.settle();
    assert!(world.names().is_empty());
}

#[test]
fn the_truth_table_of_the_finalizer() {
    let vm = || Some(machine_of("vm-1", ONE));
    let vmi = || Some(instance_of(Some("vm-1"), ONE));
    let gone = |object: Option<Value>| object.map(being_deleted);
    for (machine, instance, goes) in [
        (vm(), vmi(), false),
        (vm(), None, false),
        (vm(), gone(vmi()), false),
        (vm(), gone(vmi()).map(without_pods), false),
        (gone(vm()), vmi(), false),
        (gone(vm()), gone(vmi()), false),
        (gone(vm()), gone(vmi()).map(without_pods), false),
        (gone(vm()), None, true),
        (None, vmi(), false),
        (None, vmi().map(without_pods), false),
        (None, gone(vmi()), false),
        (None, gone(vmi()).map(without_pods), true),
        (None, None, true),
    ] {
        let mut world = World::running(ONE);
        world.settle();
        let said = format!("{machine:?} {instance:?}");
        (world.machine, world.instance) = (machine, instance);
        let removed = world.steps().iter().any(|step| matches!(step, Step::RemoveFinalizer { .. }));
        assert_eq!(removed, goes, "{said}");
    }
}

#[test]
fn a_machine_that_was_made_again_waits_for_the_claims_of_the_first_and_does_not_inherit_them() {
    let mut world = World::running(ONE);
    world.settle();
    // The machine is deleted in the background, and another is made while the first instance still runs.
    world.machine = Some(machine_of("vm-2", ONE));
    world.collect_garbage();
    let said = world.settle();
    assert_eq!(world.names(), ["vm.net1"]);
    assert_eq!(
        said,
        [
            "an IPAMClaim \"vm.net1\" is there already and belongs to VirtualMachine \"vm\" (UID vm-1), not to VirtualMachine \
          \"vm\" (UID vm-2); waiting until it is gone"
        ]
    );
    world.instance = None;
    assert!(world.settle().iter().all(|words| words.contains("waiting")));
    assert_eq!(
        world.claims[0].metadata.owner_references.as_ref().unwrap()[0].uid,
        "vm-2",
        "and then has its own"
    );
    assert_eq!(world.made, 2);
}

#[test]
fn a_claim_of_that_name_that_somebody_made_is_not_taken() {
    let mut world = World { machine: Some(machine_of("vm-1", ONE)), ..World::default() };
    let theirs =
        IPAMClaim::new("vm.net1", IPAMClaimSpec { network: "blue-net".into(), interface: "x".into() });
    world.claims.push(theirs.clone());
    let said = world.settle();
    assert!(said[0].contains("belongs to nobody"), "{said:?}");
    assert_eq!(world.claims, [theirs]);
}

#[test]
fn hot_plug_makes_a_claim_and_hot_unplug_deletes_it() {
    let mut world = World::running(ONE);
    world.settle();
    let two = &[("net1", "blue"), ("net2", "green")];
    world.machine = Some(machine_of("vm-1", two));
    assert!(world.settle().is_empty());
    assert_eq!(world.names(), ["vm.net1", "vm.net2"]);
    world.instance = Some(instance_of(Some("vm-1"), two));
    assert!(world.settle().is_empty());
    // Defect (c): the claim of an unplugged interface stayed until the machine was deleted.
    let absent = json!([{"name": "net2", "state": "absent"}]);
    world.machine.as_mut().unwrap()["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"] =
        absent.clone();
    world.settle();
    assert_eq!(world.names(), ["vm.net1", "vm.net2"], "the instance still has it");
    world.instance.as_mut().unwrap()["spec"]["domain"]["devices"]["interfaces"] = absent;
    world.settle();
    assert_eq!(world.names(), ["vm.net1"]);
    // And KubeVirt takes the network out of both in the end.
    (world.machine, world.instance) = (Some(machine_of("vm-1", ONE)), Some(instance_of(Some("vm-1"), ONE)));
    assert!(world.steps().is_empty());
}

#[test]
fn a_network_that_is_taken_out_of_a_stopped_machine_gives_its_claim_back() {
    let mut world = World {
        machine: Some(machine_of("vm-1", &[("net1", "blue"), ("net2", "green")])),
        ..World::default()
    };
    world.settle();
    world.machine = Some(machine_of("vm-1", ONE));
    world.settle();
    assert_eq!(world.names(), ["vm.net1"]);
}

#[test]
fn networks_that_do_not_opt_in_get_none_and_those_that_stop_to_keep_theirs() {
    let mut world = World::running(&[("default", "plain"), ("net1", "blue")]);
    world.machine.as_mut().unwrap()["spec"]["template"]["spec"]["networks"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "pod", "pod": {}}));
    assert!(world.settle().is_empty());
    assert_eq!(world.names(), ["vm.net1"]);
    assert_eq!(world.steps_with(&|_, _| Ok(None)), []);
}

#[test]
fn the_pod_network_and_a_default_network_of_multus_are_eth0() {
    let mut machine = machine_of("vm-1", &[]);
    machine["spec"]["template"]["spec"]["networks"] = json!([{"name": "default", "pod": {}}]);
    let mut world = World { machine: Some(machine), ..World::default() };
    let steps = world.steps_with(&|namespace, name| {
        Ok((namespace.is_empty() && name.is_empty()).then(|| "cluster".to_owned()))
    });
    let [Step::Create(claim)] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!((claim.spec.network.as_str(), claim.spec.interface.as_str()), ("cluster", "eth0"));
    assert_eq!(claim.metadata.name.as_deref(), Some("vm.default"));
    let networks = json!([{"name": "default", "multus": {"networkName": "shared/blue", "default": true}}]);
    world.machine.as_mut().unwrap()["spec"]["template"]["spec"]["networks"] = networks;
    world.settle();
    assert_eq!(
        (world.claims[0].spec.network.as_str(), world.claims[0].spec.interface.as_str()),
        ("blue-net", "eth0")
    );
}

#[test]
fn wished_addresses_become_the_claims_wish() {
    let mut world = World::running(ONE);
    let wish = |world: &mut World, text: &str| {
        world.instance.as_mut().unwrap()["metadata"]["annotations"] =
            json!({"network.kubevirt.io/addresses": text});
    };
    wish(&mut world, r#"{"net1": ["10.0.0.9", "fd00::9/64"], "other": ["10.0.0.1"]}"#);
    world.settle();
    assert_eq!(world.claims[0].metadata.annotations.as_ref().unwrap()["tenure/ips"], "10.0.0.9,fd00::9");
    for bad in ["[]", "{", r#"{"net1": "10.0.0.9"}"#, r#"{"net1": ["10.0.0.900"]}"#] {
        world.claims.clear();
        wish(&mut world, bad);
        let said = world.settle();
        assert!(
            said.iter().any(|words| words.contains("annotation network.kubevirt.io/addresses")),
            "{said:?}"
        );
        assert!(world.claims.is_empty(), "a wish that cannot be read is not replaced in silence");
    }
}

#[test]
fn a_machine_that_is_gone_without_what_it_owned_leaves_claims_that_its_instance_takes_over() {
    let mut world = World::running(ONE);
    world.settle();
    world.machine = None;
    world.instance = Some(instance_of(None, ONE));
    world.claims[0].metadata.owner_references = None;
    assert!(world.settle().is_empty());
    assert_eq!(world.claims[0].metadata.owner_references.as_ref().unwrap()[0].uid, "vmi-1");
    // With nobody left, it is a reservation that people can delete.
    world.instance = None;
    world.claims[0].metadata.owner_references = None;
    assert!(world.settle().is_empty());
    assert_eq!(world.names(), ["vm.net1"]);
    world.delete(0);
    world.settle();
    assert!(world.names().is_empty());
}

#[test]
fn a_claim_that_somebody_deletes_while_the_machine_has_it_waits() {
    let mut world = World::running(ONE);
    world.settle();
    world.delete(0);
    assert!(world.settle().is_empty());
    assert_eq!(world.names(), ["vm.net1"], "it is kept by its finalizer");
}

#[test]
fn a_name_that_no_label_takes_is_said() {
    let long = "v".repeat(64);
    let facts = MachineFacts {
        name: long.clone(),
        namespace: "ns".into(),
        ..MachineFacts::of_machine(&machine_of("vm-1", ONE))
    };
    let of = Machine { namespace: "ns", name: &long, machine: Some(&facts), instance: None };
    let steps = super::machine(of, &[], &|_| None, &network_of, Beside::Nobody);
    assert!(matches!(&steps[..], [Step::Problem { words }] if words.contains("64 characters")), "{steps:?}");
}

#[test]
fn no_object_makes_the_facts_panic() {
    for object in [
        json!(null),
        json!([]),
        json!({"metadata": 7, "spec": []}),
        json!({"spec": {"template": {"spec": {"networks": {"a": 1}}}}}),
        json!({"spec": {"networks": [1, {}, {"name": 7, "multus": []}, {"multus": {"networkName": 7}}, {"multus": {"networkName": "a/b/c"}}]}}),
        json!({"spec": {"domain": {"devices": {"interfaces": [null, {"state": "absent"}]}}}, "status": {"activePods": []}}),
    ] {
        let (machine, instance) = (MachineFacts::of_machine(&object), MachineFacts::of_instance(&object));
        let of = Machine { namespace: "ns", name: "vm", machine: Some(&machine), instance: Some(&instance) };
        let _ = super::machine(of, &[], &|_| None, &network_of, Beside::Nobody);
    }
}
