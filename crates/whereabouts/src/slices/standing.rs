//! Which range takes precedence where divided and undivided ranges overlap.
//!
//! A definition must affect only its author. So a range is not divided where others use its addresses, or requested
//! them earlier:
//!
//! 1. What is given stays: a pool that has given slices of this very range goes on.
//! 2. What is held decides next: records of another range that overlaps.
//! 3. Then who asked first. A definition may have said something else until a moment ago, so one that was edited counts from when
//!    its pool was made.
//!
//! The range's own object does not count: its author may divide it with pods running, unless somebody else's
//! definition still wants it undivided.

use tenure_api::whereabouts::NodeSlicePool;
use tenure_handles::Timestamp;

use super::desired::{AllDesired, Desired};
use super::seal::overlaps;
use super::{Group, SharedPool, SlicePool};
use crate::ledger::{PoolId, State};

/// Why the range of a pool must not be divided, if so.
pub(super) fn objection(
    inputs: &Group<'_>,
    desired: &AllDesired<'_>,
    known: Option<SlicePool<'_>>,
    pool: &Desired<'_>,
) -> Option<String> {
    #[cfg(test)]
    if crate::planted::is(crate::planted::Bug::SealsWhatIsInUse) {
        return None;
    }
    let id = PoolId::shared(pool.network, pool.cut.whole());
    let given = known.filter(|known| gives(known.object)).and_then(|known| known.facts.cut);
    let given = given.map(|cut| cut.whole());
    if given == Some(id.range) {
        return None;
    }
    let (whole, network) = (id.range, &id.network);
    let is_used = |shared: &&&SharedPool| {
        let counts = matches!(shared.state, State::Unique | State::Overlapping | State::Sliced);
        let own = shared.id.range == whole || Some(shared.id.range) == given;
        shared.used > 0 && counts && !own && overlaps(&shared.id, &id)
    };
    if let Some(used) = inputs.shared.iter().find(is_used) {
        return Some(format!(
            "{whole} overlaps {}, of which addresses are held (IPPool {}); cut a range that overlaps nothing in use, or give \
             this one a network_name of its own",
            used.id.range, used.name
        ));
    }
    let since = since(inputs, known, pool);
    let first = desired.whole.iter().find(|other| {
        let mine =
            pool.owners.iter().any(|owner| owner.uid == other.owner.uid && owner.name == other.owner.name);
        let meets = overlaps(other.id, &id) && (other.heeds || other.id.range == whole);
        !mine && meets && other.owner.created <= since
    });
    first.map(|first| {
        format!(
            "{whole} overlaps {}, which NetworkAttachmentDefinition {}/{} uses without node_slice_size{}; give both the same \
             range and node_slice_size, or this one a network_name of its own",
            first.id.range,
            first.owner.namespace,
            first.owner.name,
            if network.is_empty() { "" } else { " in the same network" },
        )
    })
}

/// Since when a pool is requested.
fn since(inputs: &Group<'_>, known: Option<SlicePool<'_>>, pool: &Desired<'_>) -> Timestamp {
    let made = known.and_then(|known| known.object.metadata.creation_timestamp.as_ref());
    let made = made.and_then(|made| u64::try_from(made.0.as_millisecond()).ok()).map(Timestamp::from_millis);
    let oldest = pool.owners.first().filter(|owner| !owner.edited).map(|owner| owner.created);
    made.or(oldest).unwrap_or(inputs.now)
}

/// Whether a pool has assigned slices.
pub(super) fn gives(pool: &NodeSlicePool) -> bool {
    let mut slices = pool.status.iter().flat_map(|status| &status.allocations);
    slices.any(|slice| !slice.node_name.is_empty())
}
