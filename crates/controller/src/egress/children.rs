//! Plans the children of an Egress.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use tenure_api::coil::Egress;
use tenure_api::coil::egress::gateway_labels;

use super::deployment;
use super::known::{Child, Egresses};
use super::wanted::{Wanted, children_of, put};
use super::write::{ChildKind, EgressWrite, Of};
use crate::world::World;
use crate::write::At;

/// The owner of an object with the name of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// The Egress.
    Ours,
    /// Nobody, and it looks like a child of the Egress: it is adopted.
    Nobodys,
    /// An earlier Egress of the same name. It is deleted with that one.
    Predecessors,
    /// Somebody else. It stays, and the Egress does without.
    Others,
}

/// The planned children of an Egress, and obstacles.
#[derive(Debug, Default)]
pub(super) struct Planned {
    pub(super) writes: Vec<EgressWrite>,
    /// Objects of others with the names of children.
    pub(super) taken: Vec<String>,
}

/// What an Egress's children need.
pub(super) fn plan(world: &World, egress: &Egress, image: &str) -> Planned {
    let mut planned = Planned::default();
    let known = world.egress();
    let namespace = egress.namespace().unwrap_or_default();
    let of = of(egress);
    let mut may_run = true;
    for wanted in children_of(egress).into_iter().filter(|wanted| !world.lacks(wanted.kind.name())) {
        let live = find(known, wanted.kind, &format!("{namespace}/{}", wanted.name));
        // Pods need the account, and a gateway that may not read its clients serves nobody.
        may_run &= live.is_some() || matches!(wanted.kind, ChildKind::Service | ChildKind::Budget);
        match live.map(|live| (live, whose(egress, &live.metadata))) {
            None => planned.writes.push(create(egress, &of, &wanted)),
            Some((live, Whose::Ours | Whose::Nobodys)) => {
                planned.writes.extend(change(egress, &of, &wanted, live));
            }
            Some((_, Whose::Predecessors)) => {}
            // Asking again shows when it is gone.
            Some((_, Whose::Others)) => planned.take(create(egress, &of, &wanted), wanted.kind, &wanted.name),
        }
    }
    planned.writes.extend(unwanted_budget(known, egress));
    if may_run {
        deployment::plan(known, egress, &of, image, &mut planned);
    }
    planned
}

impl Planned {
    /// Somebody else's object has the name.
    pub(super) fn take(&mut self, create: EgressWrite, kind: ChildKind, name: &str) {
        self.taken.push(format!("{} \"{name}\"", kind.name()));
        self.writes.push(create);
    }
}

/// The Egress as the writes of its children name it.
pub(super) fn of(egress: &Egress) -> Of {
    Of {
        namespace: egress.namespace().unwrap_or_default(),
        name: egress.name_any(),
        uid: egress.uid().unwrap_or_default(),
        generation: egress.metadata.generation,
    }
}

/// The owner of an object, by owner references and labels.
pub(super) fn whose(egress: &Egress, metadata: &ObjectMeta) -> Whose {
    let owner = metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
    let labels = metadata.labels.clone().unwrap_or_default();
    let is_named =
        gateway_labels(&egress.name_any()).iter().all(|(name, value)| labels.get(name) == Some(value));
    match owner {
        Some(owner) if Some(&owner.uid) == egress.metadata.uid.as_ref() => Whose::Ours,
        Some(owner) if owner.kind == Egress::kind(&()) && owner.name == egress.name_any() => {
            Whose::Predecessors
        }
        None if is_named => Whose::Nobodys,
        _ => Whose::Others,
    }
}

fn find<'a>(known: &'a Egresses, kind: ChildKind, key: &str) -> Option<&'a Child> {
    let children = match kind {
        ChildKind::Account => &known.accounts,
        ChildKind::Role => &known.roles,
        ChildKind::Binding => &known.bindings,
        ChildKind::Service => &known.services,
        ChildKind::Budget => &known.budgets,
        // It has a file of its own.
        ChildKind::Deployment => return None,
    };
    children.get(key).map(|child| &child.facts)
}

/// The metadata of a new child.
pub(super) fn metadata(egress: &Egress, name: &str) -> Value {
    let owner = egress.controller_owner_ref(&()).map(|mut owner| {
        owner.block_owner_deletion = Some(true);
        owner
    });
    json!({
        "name": name,
        "namespace": egress.namespace(),
        "labels": gateway_labels(&egress.name_any()),
        "ownerReferences": owner.into_iter().collect::<Vec<_>>(),
    })
}

pub(super) fn subject(egress: &Egress, kind: ChildKind, name: &str) -> String {
    format!("{} {}/{name}", kind.name(), egress.namespace().unwrap_or_default())
}

fn create(egress: &Egress, of: &Of, wanted: &Wanted) -> EgressWrite {
    let mut object = json!({"metadata": metadata(egress, &wanted.name)});
    for (pointer, value) in wanted.fields.iter().chain(&wanted.fixed).filter(|(_, value)| !value.is_null()) {
        put(&mut object, pointer, value.clone());
    }
    let (kind, subject) = (wanted.kind, subject(egress, wanted.kind, &wanted.name));
    EgressWrite::Create { of: of.clone(), kind, subject, object: Box::new(object) }
}

/// The changes that a child needs, if any.
fn change(egress: &Egress, of: &Of, wanted: &Wanted, live: &Child) -> Option<EgressWrite> {
    let mut operations = belonging(egress, &live.metadata);
    for (pointer, value) in &wanted.fields {
        let is = live.fields.get(pointer).unwrap_or(&Value::Null);
        match (is.is_null(), value.is_null()) {
            _ if is == value => {}
            (false, true) => operations.push(json!({"op": "remove", "path": pointer})),
            _ => operations.push(json!({"op": "add", "path": pointer, "value": value})),
        }
    }
    if operations.is_empty() {
        return None;
    }
    let (child, operations) = (at(&live.metadata), Box::new(tested(&live.metadata, operations)));
    Some(EgressWrite::Change { of: of.clone(), kind: wanted.kind, child, operations, applied: None })
}

/// What makes an object a child of the Egress: owner reference and labels. Entries of others stay.
pub(super) fn belonging(egress: &Egress, live: &ObjectMeta) -> Vec<Value> {
    let wanted = metadata(egress, "");
    let mut operations = Vec::new();
    let mut labels = live.labels.clone().unwrap_or_default();
    let before = labels.len();
    let ours = gateway_labels(&egress.name_any());
    let differs = ours.iter().any(|(name, value)| labels.get(name) != Some(value));
    labels.extend(ours);
    if differs || labels.len() != before {
        operations.push(json!({"op": "add", "path": "/metadata/labels", "value": labels}));
    }
    if whose(egress, live) != Whose::Ours {
        let mut owners = json!(live.owner_references.clone().unwrap_or_default());
        if let (Value::Array(owners), Value::Array(ours)) = (&mut owners, &wanted["ownerReferences"]) {
            owners.extend(ours.iter().cloned());
        }
        operations.push(json!({"op": "add", "path": "/metadata/ownerReferences", "value": owners}));
    }
    operations
}

/// Operations that are applied at the version that was read, or not at all.
pub(super) fn tested(live: &ObjectMeta, operations: Vec<Value>) -> Value {
    let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": live.resource_version});
    Value::Array([vec![test], operations].concat())
}

pub(super) fn at(metadata: &ObjectMeta) -> At {
    At {
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        version: metadata.resource_version.clone().unwrap_or_default(),
    }
}

/// The Egress's budget, if it asks for none any more. A budget of others stays.
fn unwanted_budget(known: &Egresses, egress: &Egress) -> Option<EgressWrite> {
    if egress.spec.pod_disruption_budget.is_some() {
        return None;
    }
    let namespace = egress.namespace().unwrap_or_default();
    let live = &known.budgets.get(&format!("{namespace}/{}", egress.name_any()))?.facts;
    let ours = whose(egress, &live.metadata) == Whose::Ours && live.metadata.deletion_timestamp.is_none();
    ours.then(|| EgressWrite::DeleteBudget { namespace, budget: at(&live.metadata) })
}
