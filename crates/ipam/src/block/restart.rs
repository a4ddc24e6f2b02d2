//! A block after a restart, rebuilt as the agent does it from its journal: cooling addresses first, then the
//! holds.
//!
//! The journal also keeps the youngest hold after its end, so that its number is not used again.

use std::hash::Hash;

use tenure_handles::Timestamp;

use crate::block::{Block, Sequence};

/// The block that replay makes of this one. `youngest` is the hold with the highest number, if it may have
/// ended.
pub(super) fn restarted<K: Clone + Eq + Hash>(
    block: &Block<K>,
    youngest: Option<(K, u128, Sequence)>,
    now: Timestamp,
) -> Block<K> {
    let mut next = Block::new(block.space().clone(), block.rest());
    let address = |offset| block.space().primary().cidr().nth(offset).unwrap();
    let over = youngest.map(|(key, offset, sequence)| (key, offset, sequence, Timestamp::default()));
    let freed = block.cooling().map(|cooling| {
        let freed_at = Timestamp::from_millis(
            cooling.until.as_millis() - u64::try_from(block.rest().as_millis()).unwrap(),
        );
        (cooling.last.key.clone(), cooling.offset, cooling.last.sequence, freed_at)
    });
    for (key, offset, sequence, freed_at) in over.into_iter().chain(freed) {
        next.replay(key.clone(), address(offset), Some(sequence)).unwrap();
        next.release(&key, sequence, freed_at);
    }
    for hold in block.holds() {
        next.replay(hold.active.key.clone(), address(hold.offset), Some(hold.active.sequence)).unwrap();
    }
    for run in block.reserved().iter() {
        next.reserve(address(*run.start()), address(*run.end())).unwrap();
    }
    next.advance(now);
    next
}
