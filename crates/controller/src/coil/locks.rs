//! Object names as locks across pools.
//!
//! A block's name is its lock, but two pools that share addresses have different names for them. So before a block of
//! the older pool is carved, the names of all blocks of younger pools that share an address with it are occupied, by
//! objects that belong to nobody ([`AddressBlock::is_withheld`]). And no block of a younger pool is carved where an
//! older pool has addresses.
//!
//! This is safe however late anybody learns anything. Let the addresses be in pool `a` since `ta` and in pool `b`
//! since `tb`, and let `a` be the older pool. Whoever carves from `b` and has read the pools after `ta` knows that it
//! must not. Whoever has read them before `ta` creates `b-0`. Whoever carves from `a` has read after `ta`. If that
//! was after `tb`, it has to occupy `b-0` first, and only one of the two gets the name. If it was before `tb`, then
//! `ta` was before `tb`, and everybody who carves from `b` knows `a`. So a carver needs only one consistent list of
//! pools that contains its own pool's network, however old; other leaders, clocks and waiting times do not matter.
//!
//! An object that occupies a name lists the pools for which it does. It is deleted when a live list shows none of
//! them, at the version that was read. Whoever wants to rely on it meanwhile adds its own pool's UID, which outdates
//! that version.

use kube::ResourceExt;
use tenure_api::coil::{AddressBlock, AddressPool, EnginePool};
use tenure_api::overlap::is_older;
use tenure_ipam::Cidr;

use super::index::Index;
use super::write::BlockWrite;
use crate::world::World;
use crate::write::At;

/// How many names of younger pools are occupied for a block at most. A block that would need more is not carved.
pub(super) const MOST_LOCKS: u128 = 256;

/// Why a block must not be carved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoLock {
    /// The list of pools does not have the block's pool with these addresses: it is too old, or the pool is another
    /// one.
    Unknown,
    /// This older pool has them.
    Older(String),
    /// This younger pool has too many blocks there.
    TooMany(String),
}

/// The objects that occupy the names of younger pools' blocks, in the order in which to create them, before `block`
/// may be carved. `pools` is one list of all pools.
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
        // Nothing is ever carved from a pool that cannot be understood.
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
            // Nobody carves from a pool without this number, either.
            locks.extend(AddressBlock::withhold(other, index, &uid));
        }
    }
    Ok(locks)
}

/// Returns a name that is occupied for pools that are gone.
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
