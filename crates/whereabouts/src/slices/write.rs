//! What is decided, as objects, conditions and events: only what differs from what there is.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, OwnerReference, Time};
use tenure_api::claims::SLICE_OWNER;
use tenure_api::whereabouts::{NodeSliceAllocation, NodeSlicePool, NodeSlicePoolSpec, NodeSlicePoolStatus};
use tenure_ipam::{Cidr, Slices};

use super::assign::Assigned;
use super::desired::{Conflict, Desired, definitions};
use super::find::NETWORK;
use super::{About, Event, Inputs, SlicePlan, SliceWrite};

/// So many nodes are named in a message; the others are counted.
const NAMED: usize = 5;

/// The pool as it should be, if that is not how it is.
pub(super) fn pool(
    inputs: &Inputs<'_>,
    desired: &Desired<'_>,
    known: Option<&NodeSlicePool>,
    assigned: &Assigned,
    objection: Option<String>,
    plan: &mut SlicePlan,
) {
    let slice = |(node_name, cidr): (&String, Cidr)| NodeSliceAllocation {
        node_name: node_name.clone(),
        slice_range: cidr.to_string(),
    };
    let before = known.and_then(|known| known.status.clone()).unwrap_or_default();
    let mut status = NodeSlicePoolStatus {
        allocations: assigned.nodes.iter().zip(desired.cut.iter()).map(slice).collect(),
        conditions: before.conditions.clone(),
    };
    for condition in conditions(inputs, desired, assigned, objection) {
        set(&mut status.conditions, condition);
    }
    events(desired, assigned, &before, &status, plan);
    let mut object = known.cloned().unwrap_or_else(|| {
        let metadata = ObjectMeta {
            name: Some(desired.name.clone()),
            namespace: Some(inputs.namespace.to_owned()),
            ..ObjectMeta::default()
        };
        NodeSlicePool { metadata, spec: NodeSlicePoolSpec::default(), status: None }
    });
    let same = Slices::parse(&object.spec.range, &object.spec.slice_size).is_ok_and(|cut| cut == desired.cut);
    if !same {
        let range = desired.cut.whole().to_string();
        object.spec = NodeSlicePoolSpec { range, slice_size: desired.size.clone() };
    }
    object.status = Some(status);
    object.metadata.owner_references = owners(inputs, desired);
    let annotations = object.metadata.annotations.get_or_insert_default();
    annotations.insert(NETWORK.to_owned(), desired.network.clone());
    annotations.extend([definitions(&desired.owners)]);
    match known {
        None => plan.writes.push(SliceWrite::Create(Box::new(object))),
        Some(known) if *known != object => plan.writes.push(SliceWrite::Replace(Box::new(object))),
        Some(_) => {}
    }
}

/// Why a pool gives nothing where an older one cuts the same addresses.
pub(super) fn rivalry(desired: &Desired<'_>, other: Cidr) -> String {
    format!(
        "{} overlaps {other}, which another pool of the same network cuts; give both attachment definitions one network_name and \
         one range, or this one a network_name of its own",
        desired.cut.whole()
    )
}

/// Owners that Kubernetes takes the pool away with, when they are all of the pool's namespace: an owner elsewhere counts
/// as missing there, and the pool would be deleted at once. Without them we delete it ourselves.
fn owners(inputs: &Inputs<'_>, desired: &Desired<'_>) -> Option<Vec<OwnerReference>> {
    let near =
        desired.owners.iter().all(|owner| owner.namespace == inputs.namespace && !owner.uid.is_empty());
    let reference = |owner: &&super::AttachmentDefinition| OwnerReference {
        api_version: "k8s.cni.cncf.io/v1".to_owned(),
        kind: "NetworkAttachmentDefinition".to_owned(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
        ..OwnerReference::default()
    };
    near.then(|| desired.owners.iter().map(reference).collect())
}

fn conditions(
    inputs: &Inputs<'_>,
    desired: &Desired<'_>,
    assigned: &Assigned,
    objection: Option<String>,
) -> Vec<Condition> {
    let condition = |type_: &str, status: bool, reason: &str, message: String| Condition {
        type_: type_.to_owned(),
        status: if status { "True" } else { "False" }.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: None,
        last_transition_time: Time(inputs.now.to_jiff()),
    };
    let floating = assigned.nodes.iter().filter(|node| *node == SLICE_OWNER).count();
    let taken = assigned.nodes.iter().filter(|node| !node.is_empty()).count() - floating;
    let ready = if let Some(message) = objection {
        condition("Ready", false, "Overlapping", message)
    } else {
        let waiting = match assigned.waiting {
            0 => String::new(),
            count => format!(", {count} wait for what is held in them"),
        };
        let claims = match floating {
            0 => String::new(),
            count => format!(", {count} are for claims"),
        };
        let message = format!("{taken} of {} slices have a node{claims}{waiting}", assigned.nodes.len());
        condition("Ready", true, "Sliced", message)
    };
    let without = match assigned.without.len() {
        0 => condition("NodesWithoutSlice", false, "EveryNodeServed", "every node has a slice".to_owned()),
        count => {
            let named =
                assigned.without.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
            let message = format!(
                "{count} nodes have no slice ({named}{}): make the range larger or the slices smaller",
                if count > NAMED { ", …" } else { "" }
            );
            condition("NodesWithoutSlice", true, "NoSliceFree", message)
        }
    };
    let conflict = match desired.conflicts.first() {
        None => condition("Conflict", false, "Agreed", "all attachment definitions agree".to_owned()),
        Some(first) => condition("Conflict", true, "Disagree", first.message.clone()),
    };
    vec![ready, without, conflict]
}

/// As the other pools' conditions: the transition time stays what it was while the status does.
fn set(conditions: &mut Vec<Condition>, mut condition: Condition) {
    match conditions.iter_mut().find(|known| known.type_ == condition.type_) {
        Some(known) => {
            if known.status == condition.status {
                condition.last_transition_time = known.last_transition_time.clone();
            }
            *known = condition;
        }
        None => conditions.push(condition),
    }
}

/// Events for what has become worse.
fn events(
    desired: &Desired<'_>,
    assigned: &Assigned,
    before: &NodeSlicePoolStatus,
    after: &NodeSlicePoolStatus,
    plan: &mut SlicePlan,
) {
    let message = |status: &NodeSlicePoolStatus, type_: &str, bad: &str| {
        let found = status.conditions.iter().find(|known| known.type_ == type_ && known.status == bad);
        found.map(|known| known.message.clone())
    };
    for (type_, bad, reason) in [
        ("Ready", "False", "Overlapping"),
        ("NodesWithoutSlice", "True", "NoSliceFree"),
        ("Conflict", "True", "Conflict"),
    ] {
        let now = message(after, type_, bad);
        if now == message(before, type_, bad) {
            continue;
        }
        let Some(text) = now else { continue };
        let pool = || desired.name.clone();
        plan.events.push(Event { pool: pool(), about: About::Pool(pool()), reason, message: text });
        match type_ {
            "NodesWithoutSlice" => {
                let about = |node: &String| Event {
                    pool: pool(),
                    about: About::Node(node.clone()),
                    reason,
                    message: format!("{} has no slice left for this node", desired.name),
                };
                plan.events.extend(assigned.without.iter().take(NAMED).map(about));
            }
            "Ready" => {
                let (reason, message) = ("Overlapping", message(after, type_, bad).unwrap_or_default());
                let about = |owner: &&super::AttachmentDefinition| Event {
                    pool: pool(),
                    about: About::Attachment(owner.namespace.clone(), owner.name.clone()),
                    reason,
                    message: format!("NodeSlicePool {} gives nothing away: {message}", desired.name),
                };
                plan.events.extend(desired.owners.iter().take(NAMED).map(about));
            }
            "Conflict" => {
                let about = |conflict: &Conflict| Event {
                    pool: pool(),
                    about: About::Attachment(conflict.other.0.clone(), conflict.other.1.clone()),
                    reason,
                    message: conflict.message.clone(),
                };
                plan.events.extend(desired.conflicts.iter().map(about));
            }
            _ => {}
        }
    }
}
