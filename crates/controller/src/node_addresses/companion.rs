//! Companion mode next to kubernetes-nmstate, whose CRDs have no room for our record: a policy with literal addresses
//! is generated for each node. kubernetes-nmstate applies it like any other, and its enactments are read back.
//!
//! ```text
//!  policy with captures ──▶ generated policy (record in annotations, literal addresses) ──▶ kubernetes-nmstate ──▶ its enactment
//! ```
//!
//! A generated policy replaces the enactment that we would have alone: [`view`] presents it as one to the same plans,
//! and [`translate`] turns their writes into writes of generated policies. Our policies have the selector key
//! `tenure/node-addresses`: no node has such a label, so kubernetes-nmstate itself ignores them. Each plan looks at
//! everything.

mod state;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use serde_json::{Value, json};
use tenure_api::nmstate::annotation::LEAVING;
use tenure_api::nmstate::mode;
use tenure_api::nmstate::{
    Applied, AppliedAddress, FINALIZER, NodeNetworkConfigurationPolicy, NodeNetworkConfigurationPolicySpec,
    annotation, condition, enactment_name, generated_name, label, node_label,
};
use tenure_api::release::{RELEASING, mark_of};

use super::known::{EnactmentFacts, NodeAddresses, PolicyFacts};
use super::write::NodeAddressWrite;
use crate::cache::{Cache, Known, Seen};
use crate::write::At;

/// On a generated policy: the values of captures, `{"<capture>": ["<address>", <prefix length>]}`.
const CAPTURED: &str = "tenure/captured";
/// The generation of the policy with captures that it was generated from.
const GENERATION: &str = "tenure/policy-generation";
/// Interface entries that remove what earlier specs may have put there.
const EARLIER: &str = "tenure/earlier-interfaces";
/// Its node is permanently gone.
const ABANDONED: &str = "tenure/abandoned";
/// The label by which a generated policy selects its node.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// The view for plans: policies with captures, and generated policies as their enactments.
pub(super) fn view(known: &NodeAddresses) -> NodeAddresses {
    let mut view = NodeAddresses::default();
    fill(&mut view.pools, known.pools.iter().cloned());
    let parents = known.policies.iter().filter(|it| is_parent(&it.facts));
    fill(&mut view.policies, parents.cloned());
    let generated = known.policies.iter().filter(|it| parent_of(&it.facts.object).is_some());
    fill(&mut view.enactments, generated.map(|it| carrier(known, &it.facts.object)));
    // A policy that cannot be read may have any address.
    for key in known.policies.unreadable() {
        view.enactments.keep(key, "");
    }
    for key in known.pools.unreadable() {
        view.pools.keep(key, "");
    }
    view
}

fn fill<K: Known>(cache: &mut Cache<K>, all: impl Iterator<Item = K>) {
    cache.begin();
    all.for_each(|it| cache.list(it));
    cache.finish();
}

/// Whether we generate from this policy.
fn is_parent(facts: &PolicyFacts) -> bool {
    let marked = facts.object.spec.node_selector.contains_key(label::NODE_ADDRESSES);
    marked && !facts.pools.is_empty() && parent_of(&facts.object).is_none()
}

fn parent_of(policy: &NodeNetworkConfigurationPolicy) -> Option<&str> {
    policy.labels().get(label::PARENT).map(String::as_str)
}

/// A generated policy as the enactment that it replaces.
fn carrier(known: &NodeAddresses, policy: &NodeNetworkConfigurationPolicy) -> Seen<EnactmentFacts> {
    let owner = policy.owner_references().iter().find(|owner| owner.kind == "Node");
    let node = owner.map(|owner| owner.name.clone()).unwrap_or_default();
    let annotations = policy.annotations();
    let generation = annotations.get(GENERATION).and_then(|text| text.parse().ok());
    let leaving = annotations.contains_key(LEAVING) || policy.metadata.deletion_timestamp.is_some();
    let name = policy.name_any();
    let current = enactment_of(known, &node, &name, policy.metadata.generation);
    let available = current.is_some_and(|it| it.is(condition::AVAILABLE).is_some());
    let finished = available || current.is_some_and(|it| it.is(condition::FAILING).is_some());
    let abandoned = annotations.contains_key(ABANDONED);
    // A policy whose turn never came was never on an interface. The removal has to succeed, not only to end.
    let withdrawn = annotations.contains_key(LEAVING) && available;
    let released = leaving && (abandoned || withdrawn || generation.is_none());
    let addresses: BTreeMap<String, Vec<String>> = read(annotations.get(annotation::ADDRESSES));
    let on = if available && !leaving { state::interfaces(policy) } else { Vec::new() };
    let found = on.into_iter().filter(|(_, address)| addresses.values().flatten().any(|it| it == address));
    let found = found.map(|(interface, address)| AppliedAddress { interface, address });
    let applied = Applied {
        policy_generation: generation.filter(|_| finished && !leaving),
        mode: Some(mode::KUBERNETES_NMSTATE.to_owned()),
        addresses: found.collect(),
        released,
    };
    let facts = EnactmentFacts {
        at: At::of(policy),
        policy: parent_of(policy).map(str::to_owned),
        node_uid: owner.map(|owner| owner.uid.clone()).unwrap_or_default(),
        node,
        created: policy.creation_timestamp().map(|time| time.0.as_second()),
        deleting: leaving,
        withdrawing: annotations.contains_key(LEAVING),
        finalizers: policy.finalizers().to_vec(),
        mark: mark_of(policy).map(str::to_owned),
        reset: annotations.get(annotation::RESET).cloned(),
        addresses,
        generation,
        applied: Some(applied),
        conditions: current.map(|it| it.conditions.clone()).unwrap_or_default(),
    };
    Seen::of(policy, facts)
}

/// What kubernetes-nmstate reports of this generation of a generated policy on its node.
fn enactment_of<'a>(
    known: &'a NodeAddresses,
    node: &str,
    policy: &str,
    generation: Option<i64>,
) -> Option<&'a EnactmentFacts> {
    let plain = format!("{node}.{policy}");
    let named = enactment_name(node, policy).unwrap_or_default();
    let found = known.enactments.get(&plain).or_else(|| known.enactments.get(&named));
    found.map(|it| &it.facts).filter(|it| it.generation.is_some() && it.generation == generation)
}

fn read<T: serde::de::DeserializeOwned + Default>(text: Option<&String>) -> T {
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// The name of the generated policy of a policy and a node.
pub(super) fn name(node: &str, policy: &str) -> Option<String> {
    generated_name(node, policy).ok()
}

/// Translates a plan's write.
pub(super) fn translate(
    known: &NodeAddresses,
    nodes: &Cache<Node>,
    write: NodeAddressWrite,
) -> Option<NodeAddressWrite> {
    let object = |at: &At| known.policies.get(&at.name).map(|it| &it.facts.object);
    let annotate = |at: &At, name: &str, value: Option<String>, gone: Option<String>| {
        let object = object(at)?;
        let annotations = changed(object, [(name, value)]);
        Some(NodeAddressWrite::Carry {
            policy: at.clone(),
            annotations,
            spec: None,
            promises: Vec::new(),
            gone,
        })
    };
    match write {
        NodeAddressWrite::Create { enactment } => {
            let parent = &known.policies.get(enactment.policy()?)?.facts;
            let policy = generate(enactment.node()?, &parent.object, &enactment.metadata)?;
            Some(NodeAddressWrite::Generate { policy: Box::new(policy) })
        }
        NodeAddressWrite::Record { enactment: at, promises, captured, generation, .. } => {
            let object = object(&at)?;
            let parent = &known.policies.get(parent_of(object)?)?.facts;
            let addresses: BTreeMap<&str, &Vec<String>> =
                promises.iter().map(|it| (it.pool.as_str(), &it.addresses)).collect();
            // Nothing of it was on an interface before, because it had no address.
            let annotations = changed(
                object,
                [
                    (annotation::ADDRESSES, Some(json!(addresses).to_string())),
                    (CAPTURED, Some(json!(captured).to_string())),
                    (GENERATION, generation.map(|it| it.to_string())),
                ],
            );
            let spec = generation.map(|_| spec(parent, nodes, object, &captured, &[]));
            Some(NodeAddressWrite::Carry { policy: at, annotations, spec, promises, gone: None })
        }
        NodeAddressWrite::Turn { enactment: at, generation: Some(generation), .. } => {
            let object = object(&at)?;
            let parent = &known.policies.get(parent_of(object)?)?.facts;
            let captured = read(object.annotations().get(CAPTURED));
            let earlier = placed(known, object);
            let annotations =
                changed(object, [(GENERATION, Some(generation.to_string())), (EARLIER, text(&earlier))]);
            let spec = Some(spec(parent, nodes, object, &captured, &earlier));
            Some(NodeAddressWrite::Carry { policy: at, annotations, spec, promises: Vec::new(), gone: None })
        }
        // It has none of our conditions, and kubernetes-nmstate owns the status of a policy.
        NodeAddressWrite::Turn { .. } | NodeAddressWrite::Policy { .. } => None,
        NodeAddressWrite::Delete { enactment: at, .. } => {
            let object = object(&at)?;
            let earlier = placed(known, object);
            let annotations =
                changed(object, [(LEAVING, Some("true".to_owned())), (EARLIER, text(&earlier))]);
            let was = object.annotations().contains_key(GENERATION);
            let spec = was.then(|| withdrawn(object, &earlier));
            Some(NodeAddressWrite::Carry { policy: at, annotations, spec, promises: Vec::new(), gone: None })
        }
        NodeAddressWrite::AskForReset { enactment: at, pool } => annotate(&at, annotation::RESET, pool, None),
        NodeAddressWrite::Mark { enactment: at, node, mark } => {
            annotate(&at, RELEASING, Some(mark), Some(node))
        }
        NodeAddressWrite::Unmark { enactment: at } => annotate(&at, RELEASING, None, None),
        NodeAddressWrite::Abandon { enactment: at, node } => {
            annotate(&at, ABANDONED, Some("true".to_owned()), Some(node))
        }
        NodeAddressWrite::Finish { enactment: at, .. } => Some(NodeAddressWrite::Drop { policy: at }),
        other => Some(other),
    }
}

/// A policy's annotations with changes.
fn changed<const N: usize>(
    policy: &NodeNetworkConfigurationPolicy,
    changes: [(&str, Option<String>); N],
) -> BTreeMap<String, String> {
    let mut annotations = policy.annotations().clone();
    for (name, value) in changes {
        match value {
            Some(value) => _ = annotations.insert(name.to_owned(), value),
            None => _ = annotations.remove(name),
        }
    }
    annotations
}

/// A policy for one node that selects nobody yet. It has its captures from the beginning, because kubernetes-nmstate
/// does not allow changing them.
fn generate(
    node: &str,
    parent: &NodeNetworkConfigurationPolicy,
    metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
) -> Option<NodeNetworkConfigurationPolicy> {
    let parent_name = parent.name_any();
    let mut policy = NodeNetworkConfigurationPolicy::new(
        &name(node, &parent_name)?,
        NodeNetworkConfigurationPolicySpec::default(),
    );
    policy.metadata.owner_references.clone_from(&metadata.owner_references);
    policy.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
    policy.metadata.annotations =
        Some([(annotation::MODE.to_owned(), mode::KUBERNETES_NMSTATE.to_owned())].into());
    let labels = [(label::PARENT, parent_name), (label::NODE, node_label(node))];
    policy.metadata.labels = Some(labels.map(|(key, value)| (key.to_owned(), value)).into());
    policy.spec.node_selector = [(label::NODE_ADDRESSES.to_owned(), "true".to_owned())].into();
    let of_pools: Vec<&str> = parent.spec.pools().map(|(capture, _)| capture).collect();
    let others = parent.spec.capture.iter().filter(|(name, _)| !of_pools.contains(&name.as_str()));
    policy.spec.capture = others.map(|(name, text)| (name.clone(), text.clone())).collect();
    Some(policy)
}

/// The spec of a generated policy: the desired state with literal addresses, and its captures.
fn spec(
    parent: &PolicyFacts,
    nodes: &Cache<Node>,
    policy: &NodeNetworkConfigurationPolicy,
    captured: &BTreeMap<String, (String, u8)>,
    earlier: &[Value],
) -> Value {
    let desired = parent.object.spec.desired_state.clone().unwrap_or_else(|| json!({}));
    let desired = state::with_removals(&state::filled(&desired, captured), earlier);
    with_captures(policy, json!({"nodeSelector": selector(nodes, policy), "desiredState": desired}))
}

/// Entries that remove the literal addresses wherever they may be: where the current spec has them, and where earlier
/// specs had them unless kubernetes-nmstate has applied the current one, which removes them there.
fn placed(known: &NodeAddresses, policy: &NodeNetworkConfigurationPolicy) -> Vec<Value> {
    let owner = policy.owner_references().iter().find(|owner| owner.kind == "Node");
    let node = owner.map(|owner| owner.name.as_str()).unwrap_or_default();
    let current = enactment_of(known, node, &policy.name_any(), policy.metadata.generation);
    let applied = current.is_some_and(|it| it.is(condition::AVAILABLE).is_some());
    let earlier: Vec<Value> = if applied { Vec::new() } else { read(policy.annotations().get(EARLIER)) };
    let addresses: BTreeMap<String, Vec<String>> = read(policy.annotations().get(annotation::ADDRESSES));
    let own: Vec<String> = addresses.into_values().flatten().collect();
    let desired = policy.spec.desired_state.clone().unwrap_or_default();
    state::removals(&earlier, &desired, &own)
}

fn text(entries: &[Value]) -> Option<String> {
    (!entries.is_empty()).then(|| json!(entries).to_string())
}

/// The spec that removes the literal addresses.
fn withdrawn(policy: &NodeNetworkConfigurationPolicy, placed: &[Value]) -> Value {
    let desired = json!({"interfaces": placed});
    with_captures(policy, json!({"nodeSelector": policy.spec.node_selector, "desiredState": desired}))
}

fn with_captures(policy: &NodeNetworkConfigurationPolicy, mut spec: Value) -> Value {
    if !policy.spec.capture.is_empty() {
        spec["capture"] = json!(policy.spec.capture);
    }
    spec
}

fn selector(nodes: &Cache<Node>, policy: &NodeNetworkConfigurationPolicy) -> BTreeMap<String, String> {
    let owner = policy.owner_references().iter().find(|owner| owner.kind == "Node");
    let name = owner.map(|owner| owner.name.clone()).unwrap_or_default();
    let hostname = nodes.get(&name).and_then(|node| node.labels().get(HOSTNAME).cloned());
    [(HOSTNAME.to_owned(), hostname.unwrap_or(name))].into()
}
