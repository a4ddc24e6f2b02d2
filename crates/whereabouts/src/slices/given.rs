//! What a node is told of its slice, in the slice's own `IPPool`: so no node reads what concerns others.
//!
//! ```text
//!   NodeSlicePool (who has which slice: the record) ──controller──▶ IPPool of the node and its slice: `given`
//!        ▲                                                                        │ watched by that node alone
//!        └───────── live: nothing was taken from anybody since ◀── claims ── node ◀┘
//! ```
//!
//! The annotation is a hint: it may be late, or wrong. The `NodeSlicePool` decides, and the node looks there after it has claimed the
//! slice's object and before it assigns anything. That look reads only metadata, whose size does not depend on the number of nodes, as
//! long as no node has lost a slice since the hint was written ([`TAKEN`]).

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tenure_api::whereabouts::{IPPool, NodeSlicePool, WhereaboutsNameError};
use tenure_handles::Timestamp;
use tenure_ipam::Cidr;

use super::network_of;
use crate::ledger::{PoolId, State};

/// The annotation of a slice's `IPPool` that tells the node that the slice is its own, as [`Given`]; empty if it is not any more. An
/// object of an earlier version has none.
pub const GIVEN: &str = "whereabouts.cni.cncf.io/given";

/// The annotation of a `NodeSlicePool` with `TAKEN.GENERATION`: a number that grows with each write that takes a slice from somebody,
/// and the generation that the write has led to. A program that does not know it changes the generation alone, and then the number says
/// nothing.
pub const TAKEN: &str = "whereabouts.cni.cncf.io/taken";

/// The annotation of a slice's `IPPool` with the UID of the `NodeSlicePool` of which its node has seen, after it had claimed the object,
/// that it gives the slice. From then on nobody else gets the slice before the node lets go of it.
pub const CONFIRMED: &str = "whereabouts.cni.cncf.io/confirmed";

/// What a node is told of a slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// The name of the `NodeSlicePool`.
    pub pool: String,
    /// Its UID.
    pub uid: String,
    /// `network_name`; empty for the network without one.
    pub network: String,
    /// What is cut.
    pub range: String,
    /// How often the pool had taken slices from somebody, as its annotation [`TAKEN`] says; 0 if it says nothing.
    #[serde(default)]
    pub taken: u64,
}

/// What an object says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Nothing, or nothing that can be read.
    Nothing,
    /// The slice is not the node's any more.
    Withdrawn,
    /// The slice is the node's.
    Given(Given),
}

impl Told {
    /// What an object says.
    pub fn by(object: &IPPool) -> Self {
        match object.metadata.annotations.as_ref().and_then(|all| all.get(GIVEN)).map(String::as_str) {
            None => Self::Nothing,
            Some("") => Self::Withdrawn,
            Some(text) => serde_json::from_str(text).map_or(Self::Nothing, Self::Given),
        }
    }
}

impl Given {
    /// What nodes with slices of a pool are told.
    pub fn of(pool: &NodeSlicePool) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Self {
            pool: text(&pool.metadata.name),
            uid: text(&pool.metadata.uid),
            network: network_of(pool),
            range: pool.spec.range.clone(),
            taken: said(&pool.metadata).map_or(0, |(taken, _)| taken),
        }
    }

    /// The annotation's text.
    pub fn text(&self) -> String {
        // A structure of texts and a number is always JSON.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether it says the same, whenever it was written.
    pub fn says_like(&self, other: &Self) -> bool {
        (&self.pool, &self.uid, &self.network, &self.range)
            == (&other.pool, &other.uid, &other.network, &other.range)
    }

    /// The object of a slice that nobody has said anything in, and that tells its node that it has the slice.
    pub fn object(&self, slice: &PoolId) -> Result<IPPool, WhereaboutsNameError> {
        let mut object = slice.empty_object(0, State::Unique)?;
        object.metadata.annotations.get_or_insert_default().insert(GIVEN.to_owned(), self.text());
        Ok(object)
    }

    /// What is cut.
    pub fn whole(&self) -> Option<Cidr> {
        self.range.parse().ok()
    }

    /// The slice that an object of this name is of, if the object is the node's.
    pub fn slice_of(&self, object: &IPPool, node: &str) -> Option<Cidr> {
        let slice = object.spec.cidr().ok()?;
        let name = PoolId::of_node(&self.network, node, slice).name().ok()?;
        (object.metadata.name.as_ref() == Some(&name)).then_some(slice)
    }

    /// Whether the metadata of the pool, read now, prove that it has taken no slice from anybody since this was written.
    pub fn stands(&self, pool: &ObjectMeta) -> bool {
        let now = said(pool).filter(|(_, generation)| Some(*generation) == pool.generation);
        pool.uid.as_ref() == Some(&self.uid) && now.is_some_and(|(taken, _)| taken == self.taken && taken > 0)
    }
}

/// The metadata of the object of a slice, as a merge patch, that tell its node that it has the slice, or that it has it no more.
pub fn retold(slice: &PoolId, given: Option<&Given>) -> Result<Value, WhereaboutsNameError> {
    Ok(json!({"labels": labels(slice, given)?, "annotations": {GIVEN: text(given)}}))
}

/// An object after that patch.
pub fn retell(
    object: &IPPool,
    slice: &PoolId,
    given: Option<&Given>,
) -> Result<IPPool, WhereaboutsNameError> {
    let mut object = object.clone();
    object.metadata.labels.get_or_insert_default().extend(labels(slice, given)?);
    object.metadata.annotations.get_or_insert_default().insert(GIVEN.to_owned(), text(given));
    Ok(object)
}

/// Whereabouts' own objects have no labels, and a node finds its objects by theirs.
fn labels(slice: &PoolId, given: Option<&Given>) -> Result<BTreeMap<String, String>, WhereaboutsNameError> {
    let labels = slice.empty_object(0, State::Unique)?.metadata.labels;
    Ok(labels.filter(|_| given.is_some()).unwrap_or_default())
}

fn text(given: Option<&Given>) -> String {
    given.map(Given::text).unwrap_or_default()
}

/// What the annotation of a pool should say after the next write.
pub(super) fn taken_after(before: Option<&ObjectMeta>, takes: bool, now: Timestamp) -> String {
    let generation = before.and_then(|before| before.generation).unwrap_or(0) + 1;
    let taken = before.and_then(said).map(|(taken, _)| taken);
    let taken = match taken {
        Some(taken) if takes => now.as_millis().max(taken + 1),
        Some(taken) => taken,
        None => now.as_millis().max(1),
    };
    format!("{taken}.{generation}")
}

fn said(pool: &ObjectMeta) -> Option<(u64, i64)> {
    let (taken, generation) = pool.annotations.as_ref()?.get(TAKEN)?.split_once('.')?;
    Some((taken.parse().ok()?, generation.parse().ok()?))
}

#[cfg(test)]
mod tests;
