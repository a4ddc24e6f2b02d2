//! Moves: passing a hold from one holder to another, in two steps.
//!
//! ```text
//!                     begin(A → B, id)
//!      held(A, n) ───────────────────────▶ moving(A, n → B, m)
//!          ▲                                 │             │
//!          │  abort(B, id) or release(B, m)  │             │
//!          └─────────────────────────────────┘             │
//!                                                          │
//!      held(B, m) ◀────────────────────────────────────────┘
//!                     commit(B, id) or release(A, n)
//! ```
//!
//! While a move is under way the address still has one active holder; the incoming one has its own sequence
//! number, found under its own key. Commit swaps the two in one step. A release of the active holder during
//! a move is a commit: its address was promised, and the promise is kept. A release of the incoming one is
//! an abort. `A`'s release with `n` after the commit finds nothing, as every late release does.
//!
//! Each step takes effect once however often it arrives. The caller numbers the moves of a hold upwards
//! ([`MoveId`]), and the block remembers the number of the last one that is over for as long as the address
//! is held, so that a `begin` that arrives again after its own `abort` begins nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hash;

use hashbrown::HashTable;

use crate::block::chunks::Spot;
use crate::block::{Block, Granted, MoveError, Sequence, Slot};
use crate::hash::hash_of;
use crate::intervals::tree_memory;

/// The caller's number of a move, larger than that of every earlier move of the same hold: a generation, or
/// the time when it was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MoveId(pub u64);

/// Whether a step took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// By this call.
    Now,
    /// Before; nothing changed.
    Before,
}

impl<K: Eq + Hash> Block<K> {
    /// Begins to move what `from` holds under `sequence` to `to`; answers the incoming hold, or the active
    /// one if the move is committed already.
    pub fn begin_move(
        &mut self,
        from: &K,
        sequence: Sequence,
        to: K,
        id: MoveId,
    ) -> Result<Granted, MoveError> {
        let hash = hash_of(&to);
        if let Some(spot) = self.holders.find(hash, &to, &self.chunks)
            && self.moves.committed(spot) == Some(id)
        {
            let sequence = self.chunks.get(spot).sequence(spot.position());
            return Ok(Granted::Existing(self.hold_at(spot, sequence, Slot::Active)));
        }
        let spot = self.holders.find(hash_of(from), from, &self.chunks);
        let spot = spot.filter(|spot| self.chunks.get(*spot).sequence(spot.position()) == sequence.0);
        let spot = spot.ok_or(MoveError::NoHold { id, sequence })?;
        let addresses = self.addresses(self.chunks.offset(spot));
        if let Some(incoming) = self.moves.incoming(spot) {
            return if incoming.id == id && incoming.key == to {
                Ok(Granted::Existing(self.hold_at(spot, incoming.sequence, Slot::Incoming)))
            } else {
                Err(MoveError::UnderWay { id, addresses, other: incoming.id })
            };
        }
        if let Some(settled) = self.moves.last(spot).filter(|last| id <= *last) {
            return Err(MoveError::Over { id, addresses, settled });
        }
        if let Some(hold) = self.find_hashed(&to, hash) {
            return Err(MoveError::HoldsAnother { id, held: hold.addresses });
        }
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.moves.begin(spot, hash, Incoming { key: to, sequence, id });
        Ok(Granted::New(self.hold_at(spot, sequence, Slot::Incoming)))
    }

    /// Makes `to`, the incoming holder of move `id`, the holder.
    pub fn commit_move(&mut self, to: &K, id: MoveId) -> Result<Settled, MoveError> {
        let hash = hash_of(to);
        match self.moves.find(hash, to) {
            Some((spot, incoming)) if incoming.id == id => {
                self.hand_over(spot);
                Ok(Settled::Now)
            }
            _ if self.was_committed(hash, to, id).is_some() => Ok(Settled::Before),
            _ => Err(MoveError::NoMove { id }),
        }
    }

    /// Ends move `id` to `to`; the holder keeps its hold.
    pub fn abort_move(&mut self, to: &K, id: MoveId) -> Result<Settled, MoveError> {
        let hash = hash_of(to);
        if let Some(spot) = self.was_committed(hash, to, id) {
            return Err(MoveError::Committed { id, addresses: self.addresses(self.chunks.offset(spot)) });
        }
        match self.moves.find(hash, to) {
            Some((spot, incoming)) if incoming.id == id => {
                self.moves.abort(spot);
                Ok(Settled::Now)
            }
            _ => Ok(Settled::Before),
        }
    }

    /// Swaps the holder of a spot for the incoming one; says whether there was one.
    pub(super) fn hand_over(&mut self, spot: Spot) -> bool {
        let Some(incoming) = self.moves.commit(spot) else { return false };
        self.holders.remove(hash_of(self.chunks.key(spot)), spot, &self.chunks);
        let hash = hash_of(&incoming.key);
        self.chunks.get_mut(spot).hold(spot.position(), incoming.key, incoming.sequence);
        self.holders.insert(hash, spot, &self.chunks);
        true
    }

    fn was_committed(&self, hash: u64, to: &K, id: MoveId) -> Option<Spot> {
        let spot = self.holders.find(hash, to, &self.chunks)?;
        (self.moves.committed(spot) == Some(id)).then_some(spot)
    }
}

/// The second slot of a hold.
#[derive(Debug)]
pub(super) struct Incoming<K> {
    pub(super) key: K,
    pub(super) sequence: u64,
    pub(super) id: MoveId,
}

/// The moves that are over, of a hold that ever moved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Past {
    /// The last one, committed or not.
    pub(super) last: MoveId,
    /// The last one that was committed: it brought the present holder.
    pub(super) committed: Option<MoveId>,
}

/// The moves under way, and what is over of each hold that ever moved. Few at a time.
#[derive(Debug)]
pub(super) struct Moves<K> {
    under_way: BTreeMap<Spot, Incoming<K>>,
    by_key: HashTable<Spot>,
    past: BTreeMap<Spot, Past>,
}

impl<K> Default for Moves<K> {
    fn default() -> Self {
        Self { under_way: BTreeMap::new(), by_key: HashTable::new(), past: BTreeMap::new() }
    }
}

impl<K> Moves<K> {
    pub(super) fn incoming(&self, spot: Spot) -> Option<&Incoming<K>> {
        self.under_way.get(&spot)
    }

    /// Whether no hold moves or ever moved.
    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty() && self.past.is_empty()
    }

    /// What is over of a hold.
    pub(super) fn past(&self, spot: Spot) -> Option<Past> {
        self.past.get(&spot).copied()
    }

    /// Notes what is over of a hold.
    pub(super) fn set_past(&mut self, spot: Spot, past: Past) {
        self.past.insert(spot, past);
    }

    /// Forgets what is over of a hold: it is released.
    pub(super) fn forget(&mut self, spot: Spot) {
        if !self.past.is_empty() {
            self.past.remove(&spot);
        }
    }

    /// Bytes that it takes.
    pub(super) fn memory(&self) -> usize {
        tree_memory::<Spot, Incoming<K>>(self.under_way.len())
            + tree_memory::<Spot, Past>(self.past.len())
            + self.by_key.allocation_size()
    }

    fn last(&self, spot: Spot) -> Option<MoveId> {
        self.past(spot).map(|past| past.last)
    }

    fn committed(&self, spot: Spot) -> Option<MoveId> {
        self.past(spot)?.committed
    }
}

impl<K: Eq + Hash> Moves<K> {
    /// The move to `key`, which has this hash.
    pub(super) fn find(&self, hash: u64, key: &K) -> Option<(Spot, &Incoming<K>)> {
        let is_it = |spot: &Spot| self.under_way.get(spot).is_some_and(|incoming| incoming.key == *key);
        let spot = *self.by_key.find(hash, is_it)?;
        Some((spot, self.under_way.get(&spot)?))
    }

    /// Notes a move to a key that has this hash.
    pub(super) fn begin(&mut self, spot: Spot, hash: u64, incoming: Incoming<K>) {
        self.under_way.insert(spot, incoming);
        let under_way = &self.under_way;
        self.by_key.insert_unique(hash, spot, |spot| {
            under_way.get(spot).map_or(0, |incoming| hash_of(&incoming.key))
        });
    }

    /// Ends the move of a hold without effect.
    pub(super) fn abort(&mut self, spot: Spot) {
        if let Some(incoming) = self.take(spot) {
            let committed = self.committed(spot);
            self.past.insert(spot, Past { last: incoming.id, committed });
        }
    }

    /// Ends the move of a hold with effect.
    fn commit(&mut self, spot: Spot) -> Option<Incoming<K>> {
        let incoming = self.take(spot)?;
        self.past.insert(spot, Past { last: incoming.id, committed: Some(incoming.id) });
        Some(incoming)
    }

    fn take(&mut self, spot: Spot) -> Option<Incoming<K>> {
        if self.under_way.is_empty() {
            return None;
        }
        let incoming = self.under_way.remove(&spot)?;
        if let Ok(entry) = self.by_key.find_entry(hash_of(&incoming.key), |other| *other == spot) {
            entry.remove();
        }
        Some(incoming)
    }
}

impl fmt::Display for MoveId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
