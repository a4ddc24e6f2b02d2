//! Waiting requests as writes.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use tenure_api::whereabouts::{
    Allocation, IPPool, OverlappingRangeIPReservation, OverlappingRangeIPReservationSpec, label,
};
use tenure_ipam::Address;

use super::object::opened;
use super::{Answer, COOLING, OPENED, Request, STATE, State, cooling};

mod hold;
mod planner;
mod release;

pub(super) use planner::Planner;

/// The writes for a batch of requests, and the answers after them.
///
/// The order matters: `create` and `mark`, and after either a consistent list of the namespace's pools and a
/// new plan for the same requests; then `reserve`, then `write`, then [`Plan::unreserve`]. Reservations that
/// others have are passed to [`Plan::leave_out`] before anything is written.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Objects to create. They are empty: nothing is assigned from an object that its overlapping neighbours
    /// may not know yet.
    pub create: Vec<IPPool>,
    /// Objects whose state must change before anything is assigned.
    pub mark: Vec<Mark>,
    /// Reservations to make before the records that need them are written.
    pub reserve: Vec<Reserve>,
    /// One per object.
    pub write: Vec<PoolWrite>,
    unreserve: Vec<Unreserve>,
    /// One per request, in their order.
    pub answers: Vec<Answer>,
    requests: Vec<Request>,
    /// For each request, the objects and reservations that must be written before its answer is true.
    needs: Vec<BTreeSet<String>>,
}

/// A change of an object's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The object.
    pub name: String,
    /// The version that was seen.
    pub version: Option<String>,
    /// The new state.
    pub state: State,
    /// Whether it was sealed until now.
    opens: bool,
    has_annotations: bool,
}

/// A reservation to make.
#[derive(Clone, Debug, PartialEq)]
pub struct Reserve {
    /// Its name, which is the lock on the address.
    pub name: String,
    /// The object.
    pub object: OverlappingRangeIPReservation,
}

/// A reservation to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreserve {
    /// Its name.
    pub name: String,
    /// The UID that was seen: only that object is deleted.
    pub uid: Option<String>,
    /// The number of its request.
    request: usize,
}

/// All changes of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolWrite {
    /// The object.
    pub name: String,
    /// The version that was seen.
    pub version: Option<String>,
    state: State,
    opened: Option<String>,
    /// The change of its cooling addresses, if any.
    pub(super) cooling: Option<cooling::Change>,
    has_annotations: bool,
    is_managed: bool,
    edits: BTreeMap<String, Edit>,
}

/// The change of one record, and the requests that it is for.
#[derive(Clone, Debug, PartialEq)]
struct Edit {
    before: Option<Allocation>,
    after: Option<Allocation>,
    requests: BTreeSet<usize>,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Written,
    /// Another writer was faster, or nobody answered: read again.
    Conflict,
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Settled {
    /// This is its answer.
    Done(Answer),
    /// It must be planned again, with what was seen meanwhile.
    Again(Request),
}

impl Plan {
    /// The result of each request, in their order. `outcome` returns the result of the write of an object or
    /// reservation of this name.
    pub fn settle(&self, outcome: impl Fn(&str) -> Outcome) -> Vec<Settled> {
        let settled = self.requests.iter().zip(&self.answers).zip(&self.needs).enumerate();
        settled
            .map(|(number, ((request, answer), needs))| {
                let written = needs.iter().all(|name| outcome(name) == Outcome::Written);
                if written && *answer != Answer::Wait {
                    return Settled::Done(answer.clone());
                }
                Settled::Again(self.again(number, request, &outcome))
            })
            .collect()
    }

    /// Reservations to delete: those whose records are gone now.
    pub fn unreserve(&self, outcome: impl Fn(&str) -> Outcome) -> impl Iterator<Item = &Unreserve> {
        self.unreserve.iter().filter(move |unreserve| {
            let needs = self.needs.get(unreserve.request);
            needs.is_some_and(|needs| needs.iter().all(|name| outcome(name) == Outcome::Written))
        })
    }

    /// Leaves out what depends on these reservations, which others have. Must be called between `reserve` and
    /// `write`.
    pub fn leave_out(&mut self, taken: &BTreeSet<String>) {
        let mut out: BTreeSet<usize> = BTreeSet::new();
        for (number, needs) in self.needs.iter().enumerate() {
            if !needs.is_disjoint(taken) {
                out.insert(number);
            }
        }
        // Requests that share a record with one that is left out are left out as well.
        loop {
            let before = out.len();
            let edits = self.write.iter().flat_map(|write| write.edits.values());
            let shared: BTreeSet<usize> = edits
                .filter(|edit| !edit.requests.is_disjoint(&out))
                .flat_map(|edit| edit.requests.clone())
                .collect();
            out.extend(shared);
            if out.len() == before {
                break;
            }
        }
        for write in &mut self.write {
            write.edits.retain(|_, edit| edit.requests.is_disjoint(&out));
        }
        self.write.retain(|write| !write.edits.is_empty());
        for number in out {
            if let Some(answer) = self.answers.get_mut(number) {
                *answer = Answer::Wait;
            }
        }
    }

    /// The request, together with what was written of it.
    fn again(&self, number: usize, request: &Request, outcome: &impl Fn(&str) -> Outcome) -> Request {
        let mut request = request.clone();
        if let super::Act::Hold { made, .. } = &mut request.act {
            let needed =
                |write: &&PoolWrite| self.needs.get(number).is_some_and(|needs| needs.contains(&write.name));
            let written = |write: &&PoolWrite| outcome(&write.name) == Outcome::Written;
            for write in self.write.iter().filter(needed).filter(written) {
                let mine = write.edits.iter().filter(|(_, edit)| edit.requests.contains(&number));
                made.extend(
                    mine.filter(|(_, edit)| edit.before.is_none())
                        .map(|(key, _)| (write.name.clone(), key.clone())),
                );
            }
        }
        request
    }
}

impl PoolWrite {
    /// The changes as a JSON patch: each key guarded by a test of its old value, and additions also by a test
    /// of the object's state. Writers of different keys do not conflict.
    pub fn patch(&self) -> Value {
        let mut operations = Vec::new();
        if self.edits.values().any(|edit| edit.before.is_none()) {
            operations.extend(state_tests(self.state, self.opened.as_ref(), self.has_annotations));
        }
        if let Some(cooling) = &self.cooling {
            if !self.has_annotations {
                operations.push(json!({"op": "test", "path": "/metadata/annotations", "value": null}));
                operations.push(json!({"op": "add", "path": "/metadata/annotations", "value": {}}));
            }
            operations.push(json!({"op": "test", "path": path(COOLING), "value": cooling.before}));
            operations.push(json!({"op": "add", "path": path(COOLING), "value": cooling.after}));
        }
        if self.is_managed {
            // An entry without a name tells a server to keep no such notes; one that keeps none does not
            // start to.
            operations.push(json!({"op": "add", "path": "/metadata/managedFields", "value": [{}]}));
        }
        for (key, edit) in &self.edits {
            let path = format!("/spec/allocations/{key}");
            operations.push(json!({"op": "test", "path": path, "value": edit.before}));
            operations.push(match &edit.after {
                Some(after) => json!({"op": "add", "path": path, "value": after}),
                None => json!({"op": "remove", "path": path}),
            });
        }
        Value::Array(operations)
    }

    /// The object after the changes, for a whole write guarded by its version; `None` if the object changed.
    pub fn apply(&self, pool: &IPPool) -> Option<IPPool> {
        let adds = self.edits.values().any(|edit| edit.before.is_none());
        if adds && (State::of(pool) != self.state || opened(&pool.metadata) != self.opened) {
            return None;
        }
        let mut pool = pool.clone();
        if let Some(cooling) = &self.cooling {
            if cooling::said(&pool.metadata) != cooling.before {
                return None;
            }
            let annotations = pool.metadata.annotations.get_or_insert_default();
            annotations.insert(COOLING.to_owned(), cooling.after.clone());
        }
        for (key, edit) in &self.edits {
            if pool.spec.allocations.get(key) != edit.before.as_ref() {
                return None;
            }
            match &edit.after {
                Some(after) => pool.spec.allocations.insert(key.clone(), after.clone()),
                None => pool.spec.allocations.remove(key),
            };
        }
        Some(pool)
    }

    /// Each key with its record before and after.
    pub(super) fn edits(&self) -> impl Iterator<Item = (&str, Option<&Allocation>, Option<&Allocation>)> {
        self.edits.iter().map(|(key, edit)| (key.as_str(), edit.before.as_ref(), edit.after.as_ref()))
    }

    /// Whether the object has the state that the write needs.
    pub(super) fn agrees(&self, object: &super::object::Object) -> bool {
        object.state == self.state && object.opened == self.opened
    }

    /// Whether it adds a record.
    pub fn adds(&self) -> bool {
        self.edits.values().any(|edit| edit.before.is_none())
    }

    /// How many records change.
    pub fn len(&self) -> usize {
        self.edits.len()
    }

    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }
}

impl Mark {
    /// Changes the state of an object as it was seen.
    pub fn on(pool: &IPPool, state: State) -> Self {
        Self {
            name: pool.metadata.name.clone().unwrap_or_default(),
            version: pool.metadata.resource_version.clone(),
            state,
            opens: State::of(pool) == State::Sliced && state != State::Sliced,
            has_annotations: pool.metadata.annotations.is_some(),
        }
    }

    /// The change as a JSON patch, guarded by the object's version: whoever marks an object knows every
    /// record made before.
    pub fn patch(&self) -> Value {
        let mut operations =
            vec![json!({"op": "test", "path": "/metadata/resourceVersion", "value": self.version})];
        if !self.has_annotations {
            operations.push(json!({"op": "add", "path": "/metadata/annotations", "value": {}}));
        }
        operations.push(json!({"op": "add", "path": path(STATE), "value": self.state.as_str()}));
        if self.opens {
            operations.push(json!({"op": "add", "path": path(OPENED), "value": self.version}));
        }
        Value::Array(operations)
    }

    /// The object after the change; `None` if the object changed.
    pub fn apply(&self, pool: &IPPool) -> Option<IPPool> {
        if pool.metadata.resource_version != self.version {
            return None;
        }
        let mut pool = pool.clone();
        let annotations = pool.metadata.annotations.get_or_insert_default();
        annotations.insert(STATE.to_owned(), self.state.as_str().to_owned());
        if self.opens {
            annotations.insert(OPENED.to_owned(), self.version.clone().unwrap_or_default());
        }
        Some(pool)
    }

    pub(super) fn of(name: &str, object: &super::object::Object, state: State) -> Self {
        let version = object.version.clone();
        let has_annotations = object.has_annotations;
        Self { name: name.to_owned(), version, state, opens: false, has_annotations }
    }
}

impl Reserve {
    /// Whether an existing reservation is the one to make: for the same container's interface.
    pub fn is(&self, there: &OverlappingRangeIPReservation) -> bool {
        let (wanted, found) = (&self.object.spec, &there.spec);
        wanted.podref == found.podref
            && wanted.ifname == found.ifname
            && wanted.containerid == found.containerid
    }

    fn of(network: &str, name: String, record: &Allocation) -> Self {
        let labels = (!network.is_empty() && network.len() <= 63)
            .then(|| BTreeMap::from([(label::NETWORK.to_owned(), network.to_owned())]));
        let object = OverlappingRangeIPReservation {
            metadata: ObjectMeta { name: Some(name.clone()), labels, ..ObjectMeta::default() },
            spec: OverlappingRangeIPReservationSpec {
                containerid: Some(record.id.clone()).filter(|id| !id.is_empty()),
                podref: record.podref.clone(),
                ifname: record.ifname.clone(),
            },
        };
        Self { name, object }
    }
}

fn path(annotation: &str) -> String {
    format!("/metadata/annotations/{}", annotation.replace('/', "~1"))
}

/// Tests of the agreement of an object's writers.
fn state_tests(state: State, opened: Option<&String>, has_annotations: bool) -> Vec<Value> {
    if !has_annotations {
        return vec![json!({"op": "test", "path": "/metadata/annotations", "value": null})];
    }
    let said = (state != State::Unmarked).then(|| state.as_str());
    vec![
        json!({"op": "test", "path": path(STATE), "value": said}),
        json!({"op": "test", "path": path(OPENED), "value": opened}),
    ]
}

/// Adds a change of a record to the changes of its object.
fn edit(
    edits: &mut BTreeMap<String, Edit>,
    key: &str,
    before: Option<Allocation>,
    after: Option<Allocation>,
    request: usize,
) {
    match edits.get_mut(key) {
        Some(known) => {
            known.after = after;
            known.requests.insert(request);
        }
        None => {
            edits.insert(key.to_owned(), Edit { before, after, requests: BTreeSet::from([request]) });
        }
    }
}

/// The addresses that are free after a release.
pub(crate) fn sorted(addresses: impl IntoIterator<Item = Address>) -> Vec<Address> {
    let mut addresses: Vec<Address> = addresses.into_iter().collect();
    addresses.sort_unstable();
    addresses
}
