//! Turns decisions into objects, conditions and events: only what differs from the current state.

use std::collections::HashSet;
use std::fmt::Write as _;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, OwnerReference, Time};
use tenure_api::whereabouts::{NodeSliceAllocation, NodeSlicePool, NodeSlicePoolSpec, NodeSlicePoolStatus};
use tenure_handles::Timestamp;
use tenure_ipam::{Cidr, Slices};

use super::assign::{Assigned, Given};
use super::change::{SliceChange, SliceEdit};
use super::desired::{Conflict, Desired, definitions};
use super::find::NETWORK;
use super::given::{TAKEN, taken_after};
use super::table::Table;
use super::{About, Event, Group, SlicePlan, SliceWrite};

/// How many nodes a message names; the others are counted.
const NAMED: usize = 5;

/// An existing pool, and what was read of it.
#[derive(Clone, Copy, Debug)]
pub struct SlicePool<'a> {
    /// The pool.
    pub object: &'a NodeSlicePool,
    /// What was read of it.
    pub facts: PoolFacts,
    /// What is remembered of its slices, if anything. Then only changes are written.
    pub table: Option<&'a Table>,
}

/// What only a walk over all slices of a pool tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolFacts {
    /// How it is divided, if that can be read.
    pub cut: Option<Slices>,
    /// Whether its status has every slice, in order, as we write them.
    pub in_order: bool,
}

impl<'a> SlicePool<'a> {
    /// Reads a pool.
    pub fn read(object: &'a NodeSlicePool) -> Self {
        Self { object, facts: PoolFacts::of(object), table: None }
    }
}

impl PoolFacts {
    /// Reads a pool.
    pub fn of(object: &NodeSlicePool) -> Self {
        let cut = Slices::parse(&object.spec.range, &object.spec.slice_size).ok();
        let status = object.status.as_ref();
        let in_order = cut.zip(status).is_some_and(|(cut, NodeSlicePoolStatus { allocations, .. })| {
            let mut text = String::new();
            let in_place = |(slice, cidr): (&NodeSliceAllocation, Cidr)| {
                text.clear();
                write!(text, "{cidr}").is_ok() && slice.slice_range == text
            };
            cut.count() == allocations.len() as u128 && allocations.iter().zip(cut.iter()).all(in_place)
        });
        Self { cut, in_order }
    }
}

/// The desired pool, if it differs. All slices are written out only then.
pub(super) fn pool(
    inputs: &Group<'_>,
    desired: &Desired<'_>,
    known: Option<SlicePool<'_>>,
    assigned: &Assigned<'_>,
    objection: Option<String>,
    plan: &mut SlicePlan,
) {
    let before = known.and_then(|known| known.object.status.as_ref());
    let had = before.map(|status| status.conditions.as_slice()).unwrap_or_default();
    let mut has = had.to_vec();
    for condition in conditions(inputs, desired, assigned, objection) {
        set(&mut has, condition);
    }
    events(desired, assigned, had, &has, plan);
    let mut metadata = metadata(inputs, desired, known);
    let as_before = known.is_some_and(|known| known.object.metadata == metadata) && had == has;
    let nodes = match &assigned.given {
        Given::All(nodes) => nodes,
        Given::Changes(changes) if changes.is_empty() && as_before => return,
        Given::Changes(changes) => {
            let slices = before.map(|status| status.allocations.as_slice()).unwrap_or_default();
            let edit = |(place, node): (&usize, &&str)| {
                let NodeSliceAllocation { node_name, slice_range } = slices.get(*place)?.clone();
                Some(SliceEdit {
                    place: *place,
                    slice: slice_range,
                    before: node_name,
                    after: (*node).to_owned(),
                })
            };
            let slices: Vec<SliceEdit> = changes.iter().filter_map(edit).collect();
            let takes = slices.iter().any(|edit| !edit.before.is_empty());
            note_taken(&mut metadata, known, takes, inputs.now);
            plan.changes.extend(known.map(|known| SliceChange::new(known.object, metadata, slices, has)));
            return;
        }
    };
    let cut_so = known.filter(|known| known.facts.cut == Some(desired.cut));
    let written = before.filter(|_| cut_so.is_some_and(|known| known.facts.in_order));
    let written = written.map(|status| status.allocations.as_slice());
    let is_node = |(slice, node): (&NodeSliceAllocation, &&str)| slice.node_name == **node;
    if as_before && written.is_some_and(|slices| slices.iter().zip(nodes).all(is_node)) {
        return;
    }
    let slice = |(node, slice_range): (&&str, String)| {
        let node_name = (*node).to_owned();
        NodeSliceAllocation { node_name, slice_range }
    };
    let nodes = nodes.iter();
    let allocations = match written {
        Some(slices) => nodes.zip(slices.iter().map(|slice| slice.slice_range.clone())).map(slice).collect(),
        None => nodes.zip(desired.cut.iter().map(|cidr| cidr.to_string())).map(slice).collect(),
    };
    let spec = cut_so.map_or_else(
        || NodeSlicePoolSpec { range: desired.cut.whole().to_string(), slice_size: desired.size.to_owned() },
        |known| known.object.spec.clone(),
    );
    let status = Some(NodeSlicePoolStatus { allocations, conditions: has });
    note_taken(&mut metadata, known, takes(before, status.as_ref()), inputs.now);
    let object = Box::new(NodeSlicePool { metadata, spec, status });
    plan.writes.push(if known.is_some() { SliceWrite::Replace(object) } else { SliceWrite::Create(object) });
}

/// The metadata of the desired pool.
fn metadata(inputs: &Group<'_>, desired: &Desired<'_>, known: Option<SlicePool<'_>>) -> ObjectMeta {
    let mut metadata = known.map_or_else(
        || ObjectMeta {
            name: Some(desired.name.to_owned()),
            namespace: Some(inputs.namespace.to_owned()),
            ..ObjectMeta::default()
        },
        |known| known.object.metadata.clone(),
    );
    metadata.owner_references = owners(inputs, desired);
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(NETWORK.to_owned(), desired.network.to_owned());
    annotations.extend([definitions(&desired.owners)]);
    metadata
}

/// Notes whether the write takes a slice from somebody.
fn note_taken(metadata: &mut ObjectMeta, known: Option<SlicePool<'_>>, takes: bool, now: Timestamp) {
    let taken = taken_after(known.map(|known| &known.object.metadata), takes, now);
    metadata.annotations.get_or_insert_default().insert(TAKEN.to_owned(), taken);
}

/// Whether somebody who had a slice has another one afterwards, or none.
fn takes(before: Option<&NodeSlicePoolStatus>, after: Option<&NodeSlicePoolStatus>) -> bool {
    let given = |status: Option<&NodeSlicePoolStatus>| -> HashSet<(String, String)> {
        let all = status.into_iter().flat_map(|status| &status.allocations);
        let given = all.filter(|slice| !slice.node_name.is_empty());
        given.map(|slice| (slice.node_name.clone(), slice.slice_range.clone())).collect()
    };
    let after = given(after);
    given(before).iter().any(|slice| !after.contains(slice))
}

/// Why a pool assigns nothing where an older one divides the same addresses.
pub(super) fn rivalry(desired: &Desired<'_>, other: Cidr) -> String {
    format!(
        "{} overlaps {other}, which another pool of the same network cuts; give both attachment definitions one network_name and \
         one range, or this one a network_name of its own",
        desired.cut.whole()
    )
}

/// Owners with which Kubernetes deletes the pool, if all are in the pool's namespace: an owner elsewhere counts as
/// missing, and the pool would be deleted at once. Without them we delete it ourselves.
fn owners(inputs: &Group<'_>, desired: &Desired<'_>) -> Option<Vec<OwnerReference>> {
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
    inputs: &Group<'_>,
    desired: &Desired<'_>,
    assigned: &Assigned<'_>,
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
    let Assigned { count, taken, floating, .. } = assigned;
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
        let message = format!("{taken} of {count} slices have a node{claims}{waiting}");
        condition("Ready", true, "Sliced", message)
    };
    let without = match assigned.without.len() {
        0 => condition("NodesWithoutSlice", false, "EveryNodeServed", "every node has a slice".to_owned()),
        count => {
            let named = assigned.without.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
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

/// Like other pools' conditions: the transition time stays while the status does.
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

/// Events for what got worse.
fn events(
    desired: &Desired<'_>,
    assigned: &Assigned<'_>,
    before: &[Condition],
    after: &[Condition],
    plan: &mut SlicePlan,
) {
    let message = |conditions: &[Condition], type_: &str, bad: &str| {
        let found = conditions.iter().find(|known| known.type_ == type_ && known.status == bad);
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
        let pool = || desired.name.to_owned();
        plan.events.push(Event { pool: pool(), about: About::Pool(pool()), reason, message: text });
        match type_ {
            "NodesWithoutSlice" => {
                let about = |node: &&str| Event {
                    pool: pool(),
                    about: About::Node((*node).to_owned()),
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
