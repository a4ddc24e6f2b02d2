//! What anybody who may edit a pod, a claim or an attachment definition writes: the annotations by which pods refer to claims,
//! the slots of a claim, its status, a network's configuration, and a virtual machine.

use tenure_api::claims::{IPAMClaim, annotation};
use tenure_claims::opt_in::network_of_definition;
use tenure_claims::owners::{Beside, Existing, Machine, MachineFacts, Step, machine};
use tenure_claims::{
    Attached, ClaimFacts, PodFacts, Slots, mac_of, reference, references, selection_of, status,
};
use tenure_handles::Timestamp;

use crate::{Violation, hold};

const ANNOTATIONS: [&str; 6] = [
    annotation::NETWORKS,
    annotation::DEFAULT_NETWORK,
    annotation::CLAIM,
    annotation::ACTIVE,
    annotation::KUBEVIRT_READY,
    annotation::KEEP_ADDRESSES,
];

pub(crate) fn run(input: &[u8]) -> Result<(), Violation> {
    let text = String::from_utf8_lossy(input);
    for name in ANNOTATIONS {
        for owner in [serde_json::json!([]), launcher(), set()] {
            pod(&[(name, &text)], &owner)?;
        }
    }
    // Or all of them at once, if the input is a map of them.
    if let Ok(all) = serde_json::from_slice::<std::collections::BTreeMap<String, String>>(input) {
        let all: Vec<(&str, &str)> =
            all.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        pod(&all, &launcher())?;
    }
    slots(&text)?;
    if let Err(error) = network_of_definition(&text, "blue") {
        words(&error.to_string())?;
    }
    if let Ok(found) = serde_json::from_slice::<IPAMClaim>(input) {
        claim(&found)?;
    }
    if let Ok(object) = serde_json::from_slice::<serde_json::Value>(input) {
        virtual_machine(&object)?;
    }
    Ok(())
}

fn launcher() -> serde_json::Value {
    serde_json::json!([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "vm", "uid": "u"}])
}

fn set() -> serde_json::Value {
    serde_json::json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "u"}])
}

/// What cannot be read is said; what can, agent and controller read alike.
fn pod(annotations: &[(&str, &str)], owners: &serde_json::Value) -> Result<(), Violation> {
    let annotations: std::collections::BTreeMap<_, _> = annotations.iter().copied().collect();
    let meta = serde_json::json!({
        "namespace": "ns", "name": "web-0", "uid": "pod-uid", "annotations": annotations, "ownerReferences": owners,
    });
    let meta = serde_json::from_value(meta).map_err(|error| error.to_string())?;
    let facts = PodFacts { node: Some("node-1".to_owned()), ..PodFacts::of(&meta) };
    facts.problems.values().try_for_each(|problem| words(problem))?;
    for interface in ["eth0", "net1", "net2", "pod1"] {
        if let Err(refusal) = reference(&facts, "blue", interface) {
            words(&refusal.to_string())?;
        }
        for before in [&[][..], &["net1"], &["net1", "net2"]] {
            let before = before.iter().map(|name| (*name).to_owned()).collect();
            let attached = Attached { network: "blue", interface, before: &before };
            for known in [None, Some("blue"), Some("green")] {
                if let Err(refusal) = selection_of(&facts, attached, |_, _| known.map(str::to_owned)) {
                    words(&refusal.to_string())?;
                }
            }
        }
    }
    let all = references(&facts, |_, _| Some("blue".to_owned()));
    for (network, interface, wanted) in &all {
        hold(reference(&facts, network, interface) == Ok(Some(wanted.clone())), || {
            format!("agent and controller differ on {interface:?} of {facts:?}")
        })?;
    }
    Ok(())
}

/// Slots that are read are written as they were read, and settle.
fn slots(text: &str) -> Result<(), Violation> {
    let slots = match Slots::from_annotation(text) {
        Err(error) => return hold(error.to_string().contains("taken for empty"), || error.to_string()),
        Ok(slots) => slots,
    };
    hold(Slots::from_annotation(&slots.to_annotation()).as_ref() == Ok(&slots), || format!("{slots:?}"))?;
    let pods = ["a", "b"].map(|name| PodFacts {
        name: name.to_owned(),
        uid: name.to_owned(),
        node: Some("node-1".to_owned()),
        ..PodFacts::default()
    });
    let users: Vec<&PodFacts> = pods.iter().collect();
    let next = slots.next(&users).unwrap_or(slots);
    hold(next.next(&users).is_none(), || format!("{next:?} does not settle"))
}

fn claim(claim: &IPAMClaim) -> Result<(), Violation> {
    let facts = ClaimFacts::of(claim);
    let _ = (mac_of(facts.addresses.iter().map(|(address, _)| *address)), Existing::of(claim, &facts));
    let now = Timestamp::from_millis(1);
    let mut given = claim.clone();
    given.status = Some(status::allocated(claim, &facts.addresses, &facts.places, now));
    hold(status::is_held(&given) != facts.uid.is_empty(), || format!("{given:?} has no proof"))?;
    given.status = Some(status::failed(&given, status::Reason::Invalid, "words", now));
    hold(!status::is_held(&given), || format!("{given:?} has a proof"))
}

fn virtual_machine(object: &serde_json::Value) -> Result<(), Violation> {
    let (vm, vmi) = (MachineFacts::of_machine(object), MachineFacts::of_instance(object));
    for (vm, vmi) in [(Some(&vm), None), (None, Some(&vmi)), (Some(&vm), Some(&vmi))] {
        let of = Machine { namespace: "ns", name: "vm", machine: vm, instance: vmi };
        for step in machine(of, &[], &|_| None, &|_, _| Ok(Some("blue".to_owned())), Beside::Nobody) {
            if let Step::Create(claim) = step {
                let name = claim.metadata.name.unwrap_or_default();
                hold(tenure_api::names::is_object_name(&name), || {
                    format!("{name:?} is no name of an object")
                })?;
            }
        }
    }
    Ok(())
}

fn words(refusal: &str) -> Result<(), Violation> {
    hold(refusal.contains("accepted "), || format!("{refusal:?} does not say what is accepted"))
}
