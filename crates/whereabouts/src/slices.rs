//! Slices of nodes: which `NodeSlicePool`s should exist, and who has their slices.
//!
//! [`plan`] is a function of the current state: attachment definitions, nodes, pools, and held addresses. It
//! remembers nothing; what must survive (who has which slice) is in the pools themselves, and in the records of held
//! addresses.
//!
//! Ranges affect each other if they belong to one network and overlap, are requested by one definition, or belong to
//! one pool. So a caller that knows which have changed plans only their [`Group`]s, from what it has parsed once
//! ([`Definition`], [`PoolFacts`]); all groups together give the result of [`plan`].
//!
//! What it promises:
//!
//! - A node keeps its slice while it lives, also when the range grows, also when the pool is deleted and made again
//!   while something is held in the slice.
//! - A slice in which somebody holds an address is given to nobody else, whether its node is dead or its slice was cut
//!   differently before.
//! - A slice without an address to hand out (`exclude`, `range_start`, `range_end`) is given to nobody.
//! - However many nodes come and go, a pool is written once; and not at all when nothing changes.
//! - Nobody takes an address of the whole range beside the slices: its object says so, and is made where there is none.
//! - Slices for claims, which no node owns, are given beside: those that are asked for by name, and as many more as are asked
//!   for, but only what nodes have left over. They are given back when nobody asks for them and nothing is held in them.
//! - A range is cut only where nobody else uses addresses of it, or asked for them before: a definition costs nobody but its author.
//!   Its pool says why not.
//! - What cannot be read keeps its own pools, and nobody else's from anything.
//! - A pool is made with its nodes' slices in it.
//! - A pool gives slices away only after nobody can take an address from the whole range any more, nor from any other range
//!   of the network that overlaps it; those are opened when nothing that is cut, and no node's slice, overlaps them.
//!
//! To Whereabouts' own programs a slice for claims is the slice of a node called
//! [`SLICE_OWNER`](tenure_api::claims::SLICE_OWNER), which does not exist: its plugin assigns nothing from it on any
//! node. But its controller gives slices of unknown nodes to others, and its reconciler releases records whose pod
//! does not exist, which a claim's never does. Neither may run beside claims.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Debug;

use serde_json::Value;
use tenure_api::whereabouts::{IPPool, NodeSlicePool};
use tenure_handles::Timestamp;
use tenure_ipam::{Address, Cidr};

use crate::ledger::{PoolId, State};

mod assign;
mod change;
mod desired;
mod find;
mod given;
mod seal;
mod see;
mod standing;
mod table;
mod write;

pub use change::{SliceChange, SliceEdit};
pub use desired::{Conflict, Definition, is_asked_for, networks, slice_pools};
pub use find::{NETWORK, SliceRefusal, network_of, slice_of};
pub use given::{CONFIRMED, GIVEN, Given, TAKEN, Told, retell, retold};
pub use seal::{is_sliced, open_beside};
pub use see::{Seen, identify, network_of_ledger, nodes_meant, see, see_one};
pub use table::{Difference, Table};
pub use write::{PoolFacts, SlicePool};

/// The current state.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The namespace of pools.
    pub namespace: &'a str,
    /// NetworkAttachmentDefinitions of all namespaces.
    pub attachments: &'a [AttachmentDefinition],
    /// The cluster's flat file, if there is one.
    pub flat: Option<&'a Value>,
    /// The living nodes.
    pub nodes: &'a BTreeSet<String>,
    /// The existing pools.
    pub pools: &'a [NodeSlicePool],
    /// What nodes hold.
    pub held: &'a [HeldSpan],
    /// Objects of shared ranges.
    pub shared: &'a [SharedPool],
    /// Slices that nodes' ledgers mark as in use ([`State::Owned`]).
    pub owned: &'a [PoolId],
    /// What claims need, by the name of the pool.
    pub floating: &'a BTreeMap<String, Floating>,
    /// The current time.
    pub now: Timestamp,
}

/// The state of ranges that affect each other, and of no others.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// The namespace of pools.
    pub namespace: &'a str,
    /// Definitions that request the ranges, or that cannot be read and may mean their pools.
    pub definitions: &'a [&'a Definition],
    /// The living nodes.
    pub nodes: &'a HashSet<String>,
    /// The existing pools.
    pub pools: &'a [SlicePool<'a>],
    /// Who holds something in the ranges.
    pub holders: &'a dyn Holders,
    /// Objects of shared ranges.
    pub shared: &'a [&'a SharedPool],
    /// What claims need, by the name of the pool.
    pub floating: &'a BTreeMap<String, Floating>,
    /// The current time.
    pub now: Timestamp,
}

/// Knows who holds something. It is asked only where a [`Table`] does not know, because there may be a ledger for
/// each node.
pub trait Holders: Debug {
    /// Everything that is held.
    fn holdings(&self) -> Holdings<'_>;
}

/// What nodes hold, and the slices that their ledgers mark as in use ([`State::Owned`]).
#[derive(Clone, Debug, Default)]
pub struct Holdings<'a> {
    /// Held addresses.
    pub held: Vec<&'a HeldSpan>,
    /// Slices in use.
    pub owned: Vec<&'a PoolId>,
}

impl Holders for Inputs<'_> {
    fn holdings(&self) -> Holdings<'_> {
        Holdings { held: self.held.iter().collect(), owned: self.owned.iter().collect() }
    }
}

/// Slices of a pool that claims need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Floating {
    /// These slices: claims have addresses of them, or ask for one by name.
    pub slices: BTreeSet<Cidr>,
    /// This many further ones.
    pub more: usize,
}

/// A NetworkAttachmentDefinition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachmentDefinition {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Since when it exists.
    pub created: Timestamp,
    /// Whether it was edited.
    pub edited: bool,
    /// `spec.config`.
    pub config: String,
}

/// Addresses of which a node holds at least one, from an `IPPool` of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldSpan {
    /// `network_name`.
    pub network: String,
    /// The node.
    pub node: String,
    /// The lowest address.
    pub first: Address,
    /// The highest address.
    pub last: Address,
}

/// An object of a shared range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedPool {
    /// Its range.
    pub id: PoolId,
    /// The object's name.
    pub name: String,
    /// What its writers have agreed on.
    pub state: State,
    /// How many records it has.
    pub used: usize,
}

/// The planned writes.
#[derive(Clone, Debug, Default)]
pub struct SlicePlan {
    /// Objects of whole ranges to create before any of `writes`: empty, and [`State::Sliced`]. Whoever asks for an
    /// address of the whole range finds them, even if nobody ever did before.
    pub guards: Vec<IPPool>,
    /// At most one for each pool.
    pub writes: Vec<SliceWrite>,
    /// Pools of which only some slices change, instead of `writes`; only if the pool has a [`Table`].
    pub changes: Vec<SliceChange>,
    /// Events, when something changed.
    pub events: Vec<Event>,
    /// Attachment definitions that contradict another one of their network.
    pub conflicts: Vec<Conflict>,
    /// Attachment definitions that cannot be read, as `namespace/name`, and why. Their pools stay as they are.
    pub refused: BTreeMap<String, String>,
}

/// A write.
#[derive(Clone, Debug, PartialEq)]
pub enum SliceWrite {
    /// Create a pool.
    Create(Box<NodeSlicePool>),
    /// Change a pool, if it still has this version.
    Replace(Box<NodeSlicePool>),
    /// Delete a pool that nobody requests any more.
    Delete {
        /// Its name.
        name: String,
        /// Exactly this one.
        uid: Option<String>,
    },
    /// Close the whole range: its object gets [`State::Sliced`], so nobody takes an address from it.
    Seal {
        /// The object.
        name: String,
    },
    /// The range is no longer divided: its object gets [`State::Unique`].
    Unseal {
        /// The object.
        name: String,
    },
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The `NodeSlicePool` whose write it belongs to.
    pub pool: String,
    /// Its subject.
    pub about: About,
    /// Its reason.
    pub reason: &'static str,
    /// Its message.
    pub message: String,
}

/// The subject of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// A `NodeSlicePool`.
    Pool(String),
    /// A node.
    Node(String),
    /// An attachment definition, by namespace and name.
    Attachment(String, String),
}

/// Plans the slices of all networks.
pub fn plan(inputs: &Inputs<'_>) -> SlicePlan {
    let read = |attachment: &AttachmentDefinition| Definition::read(attachment.clone(), inputs.flat);
    let definitions: Vec<Definition> = inputs.attachments.iter().map(read).collect();
    let pools: Vec<SlicePool<'_>> = inputs.pools.iter().map(SlicePool::read).collect();
    plan_group(&Group {
        namespace: inputs.namespace,
        definitions: &definitions.iter().collect::<Vec<_>>(),
        nodes: &inputs.nodes.iter().cloned().collect(),
        pools: &pools,
        holders: inputs,
        shared: &inputs.shared.iter().collect::<Vec<_>>(),
        floating: inputs.floating,
        now: inputs.now,
    })
}

/// Plans ranges that affect each other.
pub fn plan_group(inputs: &Group<'_>) -> SlicePlan {
    let mut plan = SlicePlan::default();
    let desired = desired::read(inputs, &mut plan);
    let present: BTreeMap<&str, SlicePool<'_>> =
        inputs.pools.iter().filter_map(|pool| Some((pool.object.metadata.name.as_deref()?, *pool))).collect();
    let mut cut: Vec<(&str, Cidr)> = Vec::new();
    let mut pools: Vec<_> =
        desired.pools.values().map(|pool| (present.get(pool.name).copied(), pool)).collect();
    pools.sort_by_key(|(known, pool)| {
        let since = known.map(|known| known.object.metadata.creation_timestamp.as_ref().map(|time| time.0));
        (since.is_none(), since, pool.owners.first().map(|owner| owner.created), pool.name)
    });
    for (known, pool) in pools {
        // Two pools of one network must not divide one range twice: the older one has it.
        let rival =
            cut.iter().find(|(network, cidr)| *network == pool.network && cidr.overlaps(&pool.cut.whole()));
        let objection = rival
            .map(|(_, cidr)| write::rivalry(pool, *cidr))
            .or_else(|| standing::objection(inputs, &desired, known, pool));
        let Some(objection) = objection else {
            seal::guard(inputs, pool, &mut plan);
            let sealed = seal::seal(inputs, pool, &mut plan);
            cut.push((pool.network, pool.cut.whole()));
            // Whoever waits for the pool expects the nodes in it.
            if sealed || known.is_some() {
                let assigned = assign::assign(inputs, pool, known, assign::Give::given(sealed));
                write::pool(inputs, pool, known, &assigned, None, &mut plan);
            }
            continue;
        };
        // What it assigned while it had another range stays as it was divided.
        let mut pool = pool.clone();
        let gives = known.filter(|known| standing::gives(known.object));
        if let Some(before) = gives.and_then(|known| known.facts.cut) {
            pool.cut = before;
            cut.push((pool.network, before.whole()));
        }
        let assigned = assign::assign(inputs, &pool, known, assign::Give::Nothing);
        write::pool(inputs, &pool, known, &assigned, Some(objection), &mut plan);
    }
    for (name, known) in present {
        if !desired.pools.contains_key(name) && !desired.keeps(known.object) {
            let uid = known.object.metadata.uid.clone();
            plan.writes.push(SliceWrite::Delete { name: name.to_owned(), uid });
        }
    }
    seal::unseal(inputs, &cut, &mut plan);
    plan
}

#[cfg(test)]
mod joint;
#[cfg(test)]
mod proptests;
#[cfg(test)]
mod tests;
