//! Addresses that move with a pod: the [`Slots`] of the record decide, and the record's node follows the active pod.
//!
//! ```text
//!  no move ──the source's node says that a marked pod leaves──▶ active: S ──a pod D names the address──▶ active: D, incoming: S
//!     ▲                                                            │                                        │
//!     ├──── over: no pod came in time ◀── vacant since … ◀─────────┴──── both are gone, the last was marked ◀┤
//!     └──────────────────────────────────────────────────────────────── both are gone, the last was not ◀───┘
//! ```
//!
//! The same code keeps what the prototype allocated for its pods, and what pods have without a record
//! ([`super::reports`]): such a pod is the active one, and none follows it unless it is marked.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use tenure_api::cloud::{AliasMove, AliasRecord, Allocation, LeavingPod};
use tenure_claims::{PodFacts, Slot, Slots};
use tenure_handles::Timestamp;
use tenure_ipam::Address;

use super::context::{Context, Planted};
use super::index::{PoolView, prefix_of};
use super::known::Machine;
use super::reports::Kept;
use super::write::Change;

/// Nobody's UID: an address that waits for a pod is not for others.
const NOBODY: &str = "-";

/// The outcome for a record.
pub(super) struct Step {
    pub(super) record: AliasRecord,
    pub(super) change: Option<Change>,
    /// When to look again.
    pub(super) due: Option<Timestamp>,
}

/// The pods in a record's slots, as `namespace/name`.
pub(super) fn pods_of(record: &AliasRecord) -> Vec<String> {
    let Some(moving) = &record.moving else { return Vec::new() };
    slots_of(moving).both().map(|slot| format!("{}/{}", moving.namespace, slot.pod)).collect()
}

/// Unreadable slots count as empty: then no pod has the address, and it waits.
pub(super) fn slots_of(moving: &AliasMove) -> Slots {
    Slots::from_annotation(&moving.holders).unwrap_or_default()
}

/// Whether a pod moves with the address, or may still come for it.
pub(super) fn is_pending(record: &AliasRecord, pool: &PoolView, now: Timestamp) -> bool {
    record.moving.is_some() && !is_over(record, pool, now)
}

/// Whether nobody came in time: it is an ordinary alias of its node again.
pub(super) fn is_over(record: &AliasRecord, pool: &PoolView, now: Timestamp) -> bool {
    ends(record, pool).is_some_and(|end| end <= now)
}

fn ends(record: &AliasRecord, pool: &PoolView) -> Option<Timestamp> {
    let vacant = record.moving.as_ref()?.vacant.as_ref()?;
    Some(Timestamp::from_jiff(vacant.0).plus(pool.move_timeout))
}

/// The UID of the only pod that may have the address.
pub(super) fn reserved_for(record: &AliasRecord, pool: &PoolView, now: Timestamp) -> Option<String> {
    let moving = record.moving.as_ref().filter(|_| is_pending(record, pool, now))?;
    Some(slots_of(moving).active.map_or_else(|| NOBODY.to_owned(), |slot| slot.uid))
}

/// What the prototype allocated, while its pod lives.
pub(super) fn imported(context: Context<'_>, it: &Allocation, grant: &str) -> Option<AliasRecord> {
    let pod = context.pods.get(&format!("{}/{}", it.pod_namespace, it.pod_name))?;
    if it.node_name.is_empty() || !it.pod_uid.is_empty() && it.pod_uid != pod.uid {
        return None;
    }
    Some(of_pod(context, (&it.pod_namespace, &it.pod_name), &pod.uid, &it.node_name, grant))
}

/// What a pod has without a record: its own, or its node's if it is a block.
pub(super) fn reported(context: Context<'_>, kept: &Kept, grant: &str) -> AliasRecord {
    let prefix = kept.range.prefix();
    if prefix < 32 {
        let prefix = Some(i32::from(prefix));
        return AliasRecord {
            node: kept.node.clone(),
            grant: grant.to_owned(),
            prefix,
            ..AliasRecord::default()
        };
    }
    let (podref, uid) = &kept.pod;
    of_pod(context, podref.split_once('/').unwrap_or_default(), uid, &kept.node, grant)
}

fn of_pod(
    context: Context<'_>,
    (namespace, name): (&str, &str),
    uid: &str,
    node: &str,
    grant: &str,
) -> AliasRecord {
    let facts = context.pods.claim_user(&format!("{namespace}/{name}")).filter(|pod| pod.uid == uid);
    let stamp = facts.and_then(|pod| pod.mover_stamp);
    let slot = Slot { pod: name.to_owned(), uid: uid.to_owned(), node: node.to_owned(), stamp };
    AliasRecord {
        node: node.to_owned(),
        grant: grant.to_owned(),
        moving: Some(begun(namespace, slot, facts.is_some_and(|pod| pod.moves_out))),
        ..AliasRecord::default()
    }
}

fn begun(namespace: &str, slot: Slot, marked: bool) -> AliasMove {
    let slots = Slots { active: Some(slot), number: 1, ..Slots::default() };
    let (namespace, holders) = (namespace.to_owned(), slots.to_annotation());
    AliasMove { namespace, holders, marked: Some(marked), vacant: None }
}

/// The next step of the move of a held record.
pub(super) fn step(
    context: Context<'_>,
    pool: &PoolView,
    address: Address,
    record: &AliasRecord,
    grant: &str,
) -> Step {
    let mut next = record.clone();
    let now = context.now;
    let stays = |record: AliasRecord| Step {
        due: ends(&record, pool).filter(|end| *end > now),
        record,
        change: None,
    };
    // A block serves many pods, and cannot be split.
    if prefix_of(record) < 32 {
        return stays(next);
    }
    if !is_pending(record, pool, now) {
        match leaving(context, address, record) {
            Some(it) if record.moving.is_none() || lives(context, it) => {
                let podref = format!("{}/{}", it.namespace, it.pod);
                let stamp = context.pods.claim_user(&podref).filter(|pod| pod.uid == it.uid);
                let slot = Slot {
                    pod: it.pod.clone(),
                    uid: it.uid.clone(),
                    node: record.node.clone(),
                    stamp: stamp.and_then(|pod| pod.mover_stamp),
                };
                next.moving = Some(begun(&it.namespace, slot, true));
            }
            // The node still reports a move that was abandoned.
            Some(_) => return stays(next),
            None => next.moving = None,
        }
    }
    let Some(mut moving) = next.moving.take() else {
        let change = record.moving.is_some().then_some(Change::Quiet);
        return Step { change, ..stays(next) };
    };
    let slots = slots_of(&moving);
    let users = users(context, pool, address, &moving.namespace, &slots, &record.node);
    let after = slots.next(&users.iter().collect::<Vec<_>>()).unwrap_or_else(|| slots.clone());
    moving.holders = after.to_annotation();
    if let Some(active) = &after.active {
        moving.marked = is_marked(context, address, record, &moving.namespace, active).or(moving.marked);
    } else if moving.marked == Some(false) {
        // Nobody may follow a pod that is not marked: it is an ordinary alias of its node.
        return Step { change: Some(Change::Quiet), due: None, record: next };
    }
    moving.vacant = match after.active {
        Some(_) => None,
        None => moving.vacant.clone().or(Some(MicroTime(now.to_jiff()))),
    };
    let mut change = (record.moving.as_ref() != Some(&moving)).then_some(Change::Quiet);
    let before = slots.active.as_ref().map(|slot| slot.uid.as_str());
    if let Some(active) = after.active.as_ref().filter(|it| before != Some(&it.uid) || it.node != record.node)
    {
        change = Some(Change::Moved {
            address: address.to_string(),
            pod: (format!("{}/{}", moving.namespace, active.pod), active.uid.clone()),
            node: active.node.clone(),
            from: record.node.clone(),
        });
        (next.node, next.grant) = (active.node.clone(), grant.to_owned());
    }
    next.moving = Some(moving);
    Step { due: ends(&next, pool).filter(|end| *end > now), record: next, change }
}

fn leaving<'a>(context: Context<'a>, address: Address, record: &AliasRecord) -> Option<&'a LeavingPod> {
    context.known.nodes.get(&record.node)?.spec.leaving.get(&address.to_string())
}

/// Whether the pod of an address is marked as moving out, if known: by its annotation, or by its node's report.
fn is_marked(
    context: Context<'_>,
    address: Address,
    record: &AliasRecord,
    namespace: &str,
    active: &Slot,
) -> Option<bool> {
    if leaving(context, address, record).is_some_and(|pod| pod.uid == active.uid) {
        return Some(true);
    }
    let pod = context.pods.claim_user(&format!("{namespace}/{}", active.pod));
    pod.filter(|pod| pod.uid == active.uid).map(|pod| pod.moves_out)
}

fn lives(context: Context<'_>, pod: &LeavingPod) -> bool {
    context.pods.lives(&format!("{}/{}", pod.namespace, pod.pod), &pod.uid)
}

/// The living pods of the slots, and those that may take over the address.
fn users(
    context: Context<'_>,
    pool: &PoolView,
    address: Address,
    namespace: &str,
    slots: &Slots,
    at: &str,
) -> Vec<PodFacts> {
    let mut users: Vec<PodFacts> =
        slots.both().filter_map(|slot| facts_of(context, namespace, slot)).collect();
    for pod in context.index.naming(address).filter_map(|podref| context.pods.claim_user(podref)) {
        if !slots.has(&pod.uid) && refusal(context, pool, namespace, slots, at, pod).is_none() {
            users.push(pod.clone());
        }
    }
    users
}

/// What is known of a living pod in a slot.
fn facts_of(context: Context<'_>, namespace: &str, slot: &Slot) -> Option<PodFacts> {
    let podref = format!("{namespace}/{}", slot.pod);
    if let Some(pod) = context.pods.claim_user(&podref).filter(|pod| pod.uid == slot.uid) {
        return Some(PodFacts { node: pod.node.clone().or_else(|| Some(slot.node.clone())), ..pod.clone() });
    }
    context.pods.lives(&podref, &slot.uid).then(|| PodFacts {
        namespace: namespace.to_owned(),
        name: slot.pod.clone(),
        uid: slot.uid.clone(),
        node: Some(slot.node.clone()),
        ..PodFacts::default()
    })
}

/// Why a pod does not get the address that it names while another pod moves with its record.
fn refusal(
    context: Context<'_>,
    pool: &PoolView,
    namespace: &str,
    slots: &Slots,
    at: &str,
    pod: &PodFacts,
) -> Option<String> {
    if pool.deleting {
        return Some(format!(
            "IPPool \"{}\" is being deleted, and no other pod gets an address of it",
            pool.name
        ));
    }
    if pod.namespace != namespace && !context.has(Planted::AnyNamespace) {
        return Some(
            "it is held by a pod of another namespace; accepted is an address of the pod's own".to_owned(),
        );
    }
    if let Some(active) = &slots.active
        && let Some(facts) = facts_of(context, namespace, active)
        && !facts.moves_out
    {
        return Some(format!(
            "pod \"{}\" has it and is not marked with {}; mark that pod first",
            active.pod,
            tenure_api::cloud::annotation::MOVE_OUT
        ));
    }
    if let Some(problem) = no_target(context, pod) {
        return Some(problem);
    }
    let node = slots.active.as_ref().map_or(at, |slot| &slot.node);
    let machine = context.machine_of(node).map(|machine| machine.interface.instance);
    let is_there = |name: &String| name == node || Some(name) == machine.as_ref();
    let named = pod.original_instance.as_ref().filter(|name| !is_there(name))?;
    Some(format!(
        "it is attached to \"{node}\", and {} says \"{named}\"",
        tenure_api::cloud::annotation::ORIGINAL_INSTANCE
    ))
}

/// Why no address can follow a pod to its node: the alias would leave the pod that has it, and arrive nowhere.
fn no_target(context: Context<'_>, pod: &PodFacts) -> Option<String> {
    if pod.host_network {
        return Some(
            "the pod is on its node's own network (hostNetwork); accepted is a pod with a network of its own"
                .to_owned(),
        );
    }
    let node = pod.node.as_ref()?;
    if context.known.nodes.get(node).is_none() {
        return Some(format!(
            "no agent serves alias addresses at node \"{node}\" (there is no NodeAliases \"{node}\"); accepted is a node at which tenured runs \
             with --alias-pool"
        ));
    }
    match context.world.nodes().get(node).map(Machine::of) {
        _ if !context.world.lives(node) => {
            Some(format!("node \"{node}\" of the pod does not exist, or is out of service"))
        }
        Some(Err(error)) => Some(format!("node \"{node}\" of the pod is no machine of the cloud: {error}")),
        _ => None,
    }
}

/// Why a pod does not get the address that it names, if it does not. `record` is what the ledger has, or will have,
/// for the address.
pub(super) fn problem_of(
    context: Context<'_>,
    pod: &PodFacts,
    address: Address,
    record: Option<&AliasRecord>,
) -> Option<String> {
    let Some((pool, _)) = context.index.pool_of(address) else {
        return Some("no IPPool has it".to_owned());
    };
    let nobody = || {
        format!(
            "no pod of namespace \"{}\" that is marked with {} has it",
            pod.namespace,
            tenure_api::cloud::annotation::MOVE_OUT
        )
    };
    let record = record.filter(|record| record.freed.is_none() && is_pending(record, pool, context.now));
    let Some((record, moving)) = record.and_then(|record| Some((record, record.moving.as_ref()?))) else {
        return Some(nobody());
    };
    let slots = slots_of(moving);
    // The message must not reveal users in other namespaces.
    if moving.namespace != pod.namespace {
        return Some(nobody());
    }
    if slots.has(&pod.uid) {
        return None;
    }
    refusal(context, pool, &moving.namespace, &slots, &record.node, pod)
}
