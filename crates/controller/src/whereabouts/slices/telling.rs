//! Tells each node of its slices, in the slices' own `IPPool`s ([`Given`]), so that no node has to read those of all.
//!
//! What a node is told is a hint; the `NodeSlicePool` decides. So these writes need no live read, and one that is late does no harm.
//! The object of a slice that a node has no more is deleted if nobody has said anything in it. Otherwise it says that the slice is
//! withdrawn, and the node's agent removes it when it has let go.

use std::collections::BTreeSet;

use tenure_api::whereabouts::NodeSlicePool;
use tenure_whereabouts::ledger::{PoolId, State};
use tenure_whereabouts::slices::{Given, Told};

use super::super::write::LedgerWrite;
use super::groups::Groups;
use crate::world::World;
use crate::write::At;

/// Slices of nodes of which something has changed, or which have not been told yet.
#[derive(Debug, Default)]
pub(super) struct Telling {
    due: BTreeSet<PoolId>,
}

impl Telling {
    /// Something about these has changed: who has them, their objects, or whether their nodes live.
    pub(super) fn note(&mut self, slices: impl IntoIterator<Item = PoolId>) {
        self.due.extend(slices.into_iter().filter(|id| !id.is_floating()));
    }

    /// What nodes have to be told.
    pub(super) fn plan(&mut self, world: &World, groups: &Groups) -> Vec<LedgerWrite> {
        let mut writes = Vec::new();
        self.due.retain(|id| {
            let write = tell(world, groups, id);
            let is_due = write.is_some();
            writes.extend(write);
            is_due
        });
        writes
    }
}

/// What a node has to be told of a slice.
fn tell(world: &World, groups: &Groups, id: &PoolId) -> Option<LedgerWrite> {
    let (ledgers, name) = (world.ledgers(), id.name().ok()?);
    let pool: Option<&NodeSlicePool> = groups.giver(id).and_then(|pool| ledgers.slices.get(pool));
    let known = ledgers.pools.get(&name);
    let Some(given) = pool.map(Given::of) else {
        // Without a label, an object is only known to be of a slice while the part of its name before the range is a node's.
        let known = known.filter(|_| groups.is_of(&name, id))?;
        let owned = known.state() == State::Owned;
        // What says nothing and is the node's own is of an earlier version.
        let says = match Told::by(&known.pool) {
            Told::Given(_) => true,
            Told::Nothing => owned,
            Told::Withdrawn => false,
        };
        let pool = At::of(&known.pool);
        return says.then(|| {
            if !owned && known.is_empty {
                LedgerWrite::Untell { pool }
            } else {
                LedgerWrite::Retell { pool, id: id.clone(), given: None }
            }
        });
    };
    if !world.lives(&id.node) {
        return None;
    }
    match known {
        None if ledgers.pools.is_unreadable(&name) => None,
        None => Some(LedgerWrite::Tell { ledger: Box::new(given.object(id).ok()?) }),
        Some(known) => {
            let says = matches!(Told::by(&known.pool), Told::Given(said) if said.says_like(&given));
            let is_found = known.node().is_some() || id.node.len() > 63;
            let pool = At::of(&known.pool);
            (!says || !is_found).then(|| LedgerWrite::Retell { pool, id: id.clone(), given: Some(given) })
        }
    }
}
