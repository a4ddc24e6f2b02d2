//! What each source (an object of the API, or an agent's answer) says about addresses, as pieces of the map.
//!
//! A source's pieces follow from the source and the objects that it refers to, and from nothing else. So a change costs the pieces of
//! its source.

use std::sync::Arc;

use kube::ResourceExt;
use tenure_api::claims::RECORD_PREFIX;
use tenure_api::cloud::{AliasPool, IPLedger, Ranges as AliasRanges};
use tenure_api::coil::{AddressBlock, AddressPool, EnginePool};
use tenure_api::nmstate::{
    NodeIPPool, NodeNetworkConfigurationEnactment, NodeNetworkConfigurationPolicy, NodeRange,
};
use tenure_api::whereabouts::{IPPool, NodeSlicePool};
use tenure_ipam::{Address, Cidr, Exclusion};
use tenure_view::Node;
use tenure_whereabouts::slices::{network_of, network_of_ledger};

use crate::aliases::Aliases;
use crate::node_pools::NodePools;
use crate::ranges::{records_of, shared_name};
use crate::snapshot::{Snapshot, networks, subnet};

/// A name that many pieces share.
pub(super) type Name = Arc<str>;

/// What is said about one address, the least important first: of several, the last counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    Cooling,
    Reserved,
    Held,
    Claimed,
    Moving,
}

/// What is said about many addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A node assigns from them: a block, a slice, an alias range.
    Owned,
    /// They are for claims, and no node owns them.
    Floating,
    /// Nobody assigns from them.
    Reserved,
    /// Their pool excludes them.
    Excluded,
    /// The node's agent knows them, and says who has what.
    Told,
    /// The same, and it does not assign from them any more.
    Fenced,
}

/// A part of the map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Piece {
    Area { pool: Name, first: Address, last: Address, kind: Kind, node: Option<Name>, name: Name },
    Mark { pool: Name, address: Address, state: State, node: Option<Name> },
}

fn name(text: &str) -> Name {
    Arc::from(text)
}

fn area(pool: &Name, cidr: Cidr, kind: Kind, node: Option<&Name>, label: &Name) -> Piece {
    let (pool, node, name) = (pool.clone(), node.cloned(), label.clone());
    Piece::Area { pool, first: cidr.first(), last: cidr.last(), kind, node, name }
}

fn exclusions<'a>(pool: &'a str, all: impl IntoIterator<Item = Exclusion> + 'a) -> Vec<Piece> {
    let pool = name(pool);
    let area = |it: Exclusion| {
        let (first, last) = (it.first(), it.last());
        Piece::Area {
            pool: pool.clone(),
            first,
            last,
            kind: Kind::Excluded,
            node: None,
            name: Arc::default(),
        }
    };
    all.into_iter().map(area).collect()
}

/// What a pool excludes.
pub(super) fn of_pool(pool: &AddressPool) -> Vec<Piece> {
    let engine = EnginePool::try_from(&pool.spec);
    engine.map(|engine| exclusions(&pool.name_any(), engine.exclusions().iter().copied())).unwrap_or_default()
}

/// The same for a pool of node addresses, and what its record says.
pub(super) fn of_node_pool(pool: &NodeIPPool, now: jiff::Timestamp) -> Vec<Piece> {
    let Ok(range) = NodeRange::of(&pool.spec.range) else { return Vec::new() };
    let label = pool.name_any();
    let mut pieces = exclusions(&label, range.exclusions());
    let (label, status) = (name(&label), pool.status.clone().unwrap_or_default());
    let offset = |offset: i64| u128::try_from(offset).ok();
    let taken = range.decode(&status).offsets.into_iter().map(|it| (it, State::Held));
    let promised = status.promised.iter().map(|it| it.offset).chain(status.kept.iter().map(|it| it.offset));
    let promised = promised.filter_map(offset).map(|it| (it, State::Reserved));
    let cooling = status.cooling.iter().filter(|it| it.until.0 > now).flat_map(|it| &it.offsets);
    let cooling = cooling.filter_map(|it| offset(*it)).map(|it| (it, State::Cooling));
    pieces.extend(taken.chain(promised).chain(cooling).filter_map(|(offset, state)| {
        Some(Piece::Mark { pool: label.clone(), address: range.address(offset).ok()?, state, node: None })
    }));
    pieces
}

fn of_held(known: &NodePools) -> Vec<Piece> {
    let held = known.held().filter(|held| !held.released);
    let mark = |held: crate::node_pools::Held<'_>| Piece::Mark {
        pool: name(&held.pool),
        address: held.address,
        state: State::Held,
        node: Some(name(held.node)),
    };
    held.map(mark).collect()
}

/// The addresses that an enactment names.
pub(super) fn of_enactment(enactment: &NodeNetworkConfigurationEnactment) -> Vec<Piece> {
    of_held(&NodePools { enactments: vec![enactment.clone()], ..NodePools::default() })
}

/// The addresses that a generated policy names.
pub(super) fn of_policy(policy: &NodeNetworkConfigurationPolicy) -> Vec<Piece> {
    of_held(&NodePools { generated: vec![policy.clone()], ..NodePools::default() })
}

/// Whose a block is, and for claims who has its addresses.
pub(super) fn of_block(block: &AddressBlock, snapshot: &Snapshot) -> Vec<Piece> {
    let pool = name(block.pool().unwrap_or_default());
    if block.is_withheld() {
        return Vec::new();
    }
    let kind = match (block.is_reserved(), block.is_floating()) {
        (true, _) => Kind::Reserved,
        (_, true) => Kind::Floating,
        _ => Kind::Owned,
    };
    let (node, label) = (block.node().map(name), name(&block.name_any()));
    let mut pieces: Vec<Piece> =
        networks(block).map(|cidr| area(&pool, cidr, kind, node.as_ref(), &label)).collect();
    let Some(subnet) = subnet(block) else { return pieces };
    for (offset, record) in &block.spec.claims {
        let Ok(offset) = offset.parse::<u128>() else { continue };
        let claim = format!("{}/{}", record.namespace, record.name);
        let state = match record.freed {
            Some(_) => State::Cooling,
            None if moves(snapshot, &claim) => State::Moving,
            None => State::Claimed,
        };
        let addresses = [subnet.ipv4, subnet.ipv6].into_iter().flatten();
        let addresses = addresses.filter_map(|cidr| cidr.nth(offset).ok());
        pieces.extend(addresses.map(|address| Piece::Mark {
            pool: pool.clone(),
            address,
            state,
            node: None,
        }));
    }
    pieces
}

/// Whether a claim has two pods at present.
fn moves(snapshot: &Snapshot, claim: &str) -> bool {
    snapshot.claims.get(claim).is_some_and(|slots| slots.incoming.is_some())
}

/// The slices of a range.
pub(super) fn of_slices(pool: &NodeSlicePool) -> Vec<Piece> {
    let label = name(&pool.name_any());
    let given = pool.status.iter().flat_map(|status| &status.allocations);
    let slice = |slice: &tenure_api::whereabouts::NodeSliceAllocation| {
        let cidr: Cidr = slice.slice_range.parse().ok().filter(|_| !slice.node_name.is_empty())?;
        let node = name(&slice.node_name);
        let title = name(&slice.slice_range);
        // Ledgers say who has what, and they are known.
        Some([Kind::Owned, Kind::Told].map(|kind| area(&label, cidr, kind, Some(&node), &title)))
    };
    given.filter_map(slice).flatten().collect()
}

/// The records of a ledger. Its pool is the one that has a row of `tenure pools` for it.
pub(super) fn of_ledger(ledger: &IPPool, snapshot: &Snapshot) -> Vec<Piece> {
    let node = snapshot.ranges.node_of(ledger).map(name);
    let pool = match (&node, ledger.spec.cidr()) {
        (Some(_), Ok(cidr)) => {
            let network = network_of_ledger(ledger);
            let whole = snapshot.ranges.slices.iter().find(|pool| {
                pool.spec.range.parse::<Cidr>().is_ok_and(|range| range.covers(&cidr))
                    && network_of(pool) == network
            });
            whole.map(ResourceExt::name_any).unwrap_or_default()
        }
        (None, Ok(cidr)) => shared_name(ledger, &cidr),
        (_, Err(_)) => return Vec::new(),
    };
    let pool = name(&pool);
    let mark = |(address, record): (Address, &tenure_api::whereabouts::Allocation)| {
        let claimed = record.id.starts_with(RECORD_PREFIX);
        let state = match claimed {
            true if moves(snapshot, &record.podref) => State::Moving,
            true => State::Claimed,
            false => State::Held,
        };
        Piece::Mark { pool: pool.clone(), address, state, node: node.clone() }
    };
    records_of(ledger).map(mark).collect()
}

/// What a pool of alias addresses excludes.
pub(super) fn of_alias_pool(pool: &AliasPool) -> Vec<Piece> {
    let ranges = AliasRanges::of(&pool.spec);
    ranges.map(|ranges| exclusions(&pool.name_any(), ranges.exclusions())).unwrap_or_default()
}

/// The alias ranges that a ledger has on record.
pub(super) fn of_alias_ledger(ledger: &IPLedger) -> Vec<Piece> {
    let pool = name(&ledger.spec.pool);
    let known = Aliases { ledgers: vec![ledger.clone()], ..Aliases::default() };
    let mut pieces = Vec::new();
    for it in known.records() {
        let node = name(&it.record.node);
        let mark = |state| Piece::Mark {
            pool: pool.clone(),
            address: it.range.first(),
            state,
            node: Some(node.clone()),
        };
        if it.cools() {
            pieces.push(mark(State::Cooling));
            continue;
        }
        let label = name(&it.range.to_string());
        // The record says whose they are; only the agent knows which pod has them.
        pieces.extend([Kind::Owned, Kind::Told].map(|kind| area(&pool, it.range, kind, Some(&node), &label)));
        match it.pods().as_deref() {
            None => {}
            Some([]) => pieces.push(mark(State::Reserved)),
            Some([_]) => pieces.push(mark(State::Held)),
            Some(_) => pieces.push(mark(State::Moving)),
        }
    }
    pieces
}

/// What the agent of a node says: its blocks, who has what, and what cools. An agent speaks for its own node, whatever it calls itself.
pub(super) fn of_agent(node: &str, told: &Node) -> Vec<Piece> {
    let node = name(node);
    let mut pieces = Vec::new();
    for block in &told.blocks {
        let (pool, label) = (name(&block.pool), name(&block.name));
        let kind = if block.fenced.is_some() { Kind::Fenced } else { Kind::Told };
        let cidrs = block.networks.iter().filter_map(|net| Cidr::new(net.addr().into(), net.prefix_len()));
        pieces.extend(cidrs.map(|cidr| area(&pool, cidr, kind, Some(&node), &label)));
    }
    for hold in &told.holds {
        let state = if hold.claim.is_some() { State::Claimed } else { State::Held };
        // Of the two holders of a claim that moves, packets arrive at one.
        let here = hold.claim.as_ref().is_none_or(|claim| claim.reached).then(|| node.clone());
        let pool = name(&hold.pool);
        pieces.extend(hold.addresses.iter().map(|ip| Piece::Mark {
            pool: pool.clone(),
            address: (*ip).into(),
            state,
            node: here.clone(),
        }));
    }
    for cooling in &told.cooling {
        let block = told.blocks.iter().find(|block| block.name == cooling.block);
        let pool = name(block.map(|block| block.pool.as_str()).unwrap_or_default());
        pieces.extend(cooling.addresses.iter().map(|ip| Piece::Mark {
            pool: pool.clone(),
            address: (*ip).into(),
            state: State::Cooling,
            node: Some(node.clone()),
        }));
    }
    pieces
}

#[cfg(test)]
mod tests;
