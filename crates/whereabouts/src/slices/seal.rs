//! Whole ranges beside slices: nobody takes an address of a divided range through the object of another range.
//!
//! ```text
//!    guard: the cut range's object is there, sealed ─▶ every object that overlaps it is sealed ─▶ slices are given
//!    open:  no pool and no node's ledger says any more that something of it is cut
//! ```
//!
//! Whoever creates an object of a range creates it empty, and lists the network's objects before taking anything from
//! it. If it was created after the guard, its creator finds the guard in that list; if before, whoever assigns slices
//! finds the object.

use tenure_api::whereabouts::NodeSlicePool;
use tenure_ipam::Cidr;

use super::desired::Desired;
use super::find::network_of;
use super::standing::gives;
use super::{Group, SharedPool, SlicePlan, SliceWrite};
use crate::ledger::{PoolId, State};

/// The objects of shared ranges through which somebody can take an address of a divided range.
///
/// An unmarked object belongs to a network whose ranges do not respect each other; or it is Whereabouts' own, and
/// whoever marks it checks for divided ranges before taking from it.
pub fn open_beside<'s>(
    cut: &PoolId,
    shared: impl IntoIterator<Item = &'s SharedPool>,
) -> impl Iterator<Item = &'s SharedPool> {
    let heeds = |shared: &SharedPool| matches!(shared.state, State::Unique | State::Overlapping);
    shared
        .into_iter()
        .filter(|shared| shared.state != State::Sliced && overlaps(&shared.id, cut))
        .filter(move |shared| shared.id == *cut || heeds(shared))
}

/// Whether addresses of a shared range may be assigned from slices: a pool has assigned some of it, or a node's
/// ledger says so. A pool that has assigned nothing checks first that everything is sealed.
pub fn is_sliced<'p>(
    id: &PoolId,
    pools: impl IntoIterator<Item = &'p NodeSlicePool>,
    owned: impl IntoIterator<Item = &'p PoolId>,
) -> bool {
    let cuts = |pool: &NodeSlicePool| {
        let range: Option<Cidr> = pool.spec.range.parse().ok();
        range.is_some_and(|range| overlaps(id, &PoolId::shared(&network_of(pool), range)))
    };
    pools.into_iter().filter(|pool| gives(pool)).any(cuts)
        || owned.into_iter().any(|slice| overlaps(id, slice))
}

/// Creates the whole range's object if there is none, so that an ADD with another configuration finds it.
pub(super) fn guard(inputs: &Group<'_>, pool: &Desired<'_>, plan: &mut SlicePlan) {
    let id = PoolId::shared(pool.network, pool.cut.whole());
    // If the name is refused, nobody else can create the object either.
    let Ok(guard) = id.empty_object(0, State::Sliced) else { return };
    let there = inputs.shared.iter().any(|shared| Some(&shared.name) == guard.metadata.name.as_ref());
    if !there && plan.guards.iter().all(|other| other.metadata.name != guard.metadata.name) {
        plan.guards.push(guard);
    }
}

/// Seals the objects of the whole range and of every range that overlaps it. Returns whether all are sealed.
pub(super) fn seal(inputs: &Group<'_>, pool: &Desired<'_>, plan: &mut SlicePlan) -> bool {
    let id = PoolId::shared(pool.network, pool.cut.whole());
    let mut sealed = true;
    for object in open_beside(&id, inputs.shared.iter().copied()) {
        sealed = false;
        let seal = SliceWrite::Seal { name: object.name.clone() };
        if !plan.writes.contains(&seal) {
            plan.writes.push(seal);
        }
    }
    sealed
}

/// Opens objects of ranges that do not overlap a divided range any more.
pub(super) fn unseal(inputs: &Group<'_>, cut: &[(&str, Cidr)], plan: &mut SlicePlan) {
    for object in inputs.shared.iter().filter(|shared| shared.state == State::Sliced) {
        let wanted =
            cut.iter().any(|(network, range)| overlaps(&object.id, &PoolId::shared(network, *range)));
        let pools = inputs.pools.iter().map(|pool| pool.object);
        if !wanted && !is_sliced(&object.id, pools, inputs.holders.holdings().owned) {
            plan.writes.push(SliceWrite::Unseal { name: object.name.clone() });
        }
    }
}

/// Whether two ranges belong to one network and overlap.
pub(super) fn overlaps(one: &PoolId, other: &PoolId) -> bool {
    one.network == other.network && one.range.overlaps(&other.range)
}
