//! Names as locks across pools.
//!
//! A block's name is the lock on it, and two pools that share addresses have different names for them. So whoever carves a
//! block of the older pool first occupies the names of all blocks of younger pools that share an address with it, by objects
//! that are nobody's ([`AddressBlock::is_withheld`]). Whoever carves of a younger pool does not carve what an older one has.
//!
//! That is safe whatever anybody knows late. Let the addresses be in pool `a` since `ta` and in pool `b` since `tb`, and `a` be
//! the older pool. One who carves of `b` and has read the pools after `ta` knows that it must not. One who has read them before
//! `ta` creates `b-0`. One who carves of `a` has read after `ta`. If that was after `tb`, it has to occupy `b-0` first, and only
//! one of the two gets the name. If it was before `tb`, then `ta` was before `tb`, and everybody who carves of `b` knows of `a`.
//! So all that a carver needs is one consistent list of pools that has its own pool's network in it, however old, and no
//! other leader, clock or rest matters.
//!
//! An object that occupies a name names the pools for which it does. It goes when a live list shows none of them any more, on
//! the version that was read: whoever wants to rely on it meanwhile adds its own pool's UID and makes that version an old one.

use kube::ResourceExt;
use tenure_api::coil::{AddressBlock, AddressPool, EnginePool};
use tenure_api::overlap::is_older;
use tenure_ipam::Cidr;

use super::index::Index;
use super::write::BlockWrite;
use crate::world::World;
use crate::write::At;

/// As many names of younger pools are occupied for a block at most. What would need more is not carved.
pub(super) const MOST_LOCKS: u128 = 256;

/// Why a block must not be carved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoLock {
    /// The list of pools does not have the block's pool with these addresses: it is too old, or the pool is another one.
    Unknown,
    /// This older pool has them.
    Older(String),
    /// This younger pool has too many blocks there.
    TooMany(String),
}

/// The objects that occupy the names of younger pools' blocks, in the order in which to create them, so that `block` may be
/// carved. `pools` is one list of all pools.
pub(crate) fn locks(pools: &[AddressPool], block: &AddressBlock) -> Result<Vec<AddressBlock>, NoLock> {
    let owner =
        pools.iter().find(|pool| Some(pool.name_any().as_str()) == block.pool()).ok_or(NoLock::Unknown)?;
    let uid = owner.uid().ok_or(NoLock::Unknown)?;
    let networks = block.spec.to_subnet().map_err(|_| NoLock::Unknown)?;
    let index = EnginePool::try_from(&owner.spec).ok().and_then(|engine| engine.pool().index_of(&networks));
    let known = index.is_some_and(|index| u128::try_from(block.spec.index) == Ok(index));
    if !known || !super::carved::belongs_to(block, owner) {
        return Err(NoLock::Unknown);
    }
    let networks: Vec<Cidr> = [networks.ipv4, networks.ipv6].into_iter().flatten().collect();
    let mut locks = Vec::new();
    let mut others: Vec<&AddressPool> =
        pools.iter().filter(|pool| pool.name_any() != owner.name_any()).collect();
    others.sort_by_key(|pool| pool.name_any());
    for other in others {
        // Nothing is ever carved of a pool that cannot be understood.
        let Ok(engine) = EnginePool::try_from(&other.spec) else { continue };
        let name = other.name_any();
        let shared = networks.iter().flat_map(|cidr| engine.pool().indexes_overlapping(cidr));
        let shared: tenure_ipam::IntervalSet = shared.collect();
        if shared.is_empty() {
            continue;
        }
        if is_older(other, owner) {
            return Err(NoLock::Older(name));
        }
        if shared.len() > MOST_LOCKS {
            return Err(NoLock::TooMany(name));
        }
        for index in shared.iter().flatten() {
            // One that has no such number is not carved by anybody either.
            locks.extend(AddressBlock::withhold(other, index, &uid));
        }
    }
    Ok(locks)
}

/// Gives a name back that is occupied for pools which are gone.
pub(super) fn unlock(world: &World, index: &Index, name: &str) -> Option<BlockWrite> {
    let block = world.coil().blocks.get(name).filter(|block| block.is_withheld())?;
    let own = block.owner_references().first().map(|pool| pool.uid.clone());
    let pools = match own.filter(|own| !index.has_pool(own)) {
        Some(own) => vec![own],
        None if block.withheld_for().any(|uid| index.has_pool(uid)) => return None,
        None => block.withheld_for().map(str::to_owned).collect(),
    };
    Some(BlockWrite::Unlock { block: At::of(block), pools })
}

#[cfg(test)]
mod tests;
