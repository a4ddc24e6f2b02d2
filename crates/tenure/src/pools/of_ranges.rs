//! Whereabouts' ranges as rows: a range that all nodes share, and a range with slices, which count as its
//! blocks.

use std::collections::BTreeMap;

use kube::ResourceExt;
use tenure_api::coil::PoolUsage;
use tenure_api::whereabouts::{IPPool, NodeSlicePool};
use tenure_ipam::Cidr;
use tenure_whereabouts::ledger::State;
use tenure_whereabouts::slices::{network_of, network_of_ledger};

use super::{Row, Use};
use crate::conditions::Condition;
use crate::ranges::{Ranges, used};

pub(super) fn rows(ranges: &Ranges) -> Vec<Row> {
    let shared = ranges.shared();
    let shared = shared.iter().filter(|(_, (cidr, ledgers))| !is_only_a_guard(ranges, cidr, ledgers));
    let shared = shared.map(|(name, (cidr, ledgers))| shared_row(name, cidr, ledgers));
    shared.chain(ranges.slices.iter().map(|pool| sliced_row(ranges, pool))).collect()
}

/// Whether the object of a range only says that the range is divided, which the row of the slices shows.
fn is_only_a_guard(ranges: &Ranges, cidr: &Cidr, ledgers: &[&IPPool]) -> bool {
    let guards = ledgers.iter().all(|it| State::of(it) == State::Sliced && it.spec.allocations.is_empty());
    guards && ranges.slices.iter().any(|pool| pool.spec.range.parse() == Ok(*cidr))
}

fn shared_row(name: &str, cidr: &Cidr, ledgers: &[&IPPool]) -> Row {
    let state = ledgers.first().map_or(State::Unmarked, |ledger| State::of(ledger));
    let cut = (state == State::Sliced).then(|| Condition {
        type_: "Sliced".to_owned(),
        status: "True".to_owned(),
        reason: "Sliced".to_owned(),
        message: "the range is cut into slices: records are released, none is added".to_owned(),
    });
    Row {
        kind: "IPPool",
        name: name.to_owned(),
        subnets: vec![cidr.to_string()],
        addresses: usage(cidr, used(ledgers.iter().copied())),
        blocks: None,
        blocks_per_node: BTreeMap::new(),
        problem: None,
        conditions: cut.into_iter().collect(),
    }
}

fn sliced_row(ranges: &Ranges, pool: &NodeSlicePool) -> Row {
    let name = pool.name_any();
    let all = pool.status.as_ref().map(|status| status.allocations.as_slice()).unwrap_or_default();
    let given: Vec<_> = ranges.slices().filter(|slice| slice.pool == name).collect();
    let cidr: Option<Cidr> = pool.spec.range.parse().ok();
    let network = network_of(pool);
    // What nodes hold, including nodes that no longer have the slice.
    let held = ranges.ledgers.iter().filter(|ledger| {
        let inside = ledger.spec.cidr().ok().zip(cidr).is_some_and(|(own, whole)| own.overlaps(&whole));
        inside && ranges.node_of(ledger).is_some() && network == network_of_ledger(ledger)
    });
    let mut blocks_per_node = BTreeMap::new();
    for slice in &given {
        *blocks_per_node.entry(slice.node.to_owned()).or_default() += 1;
    }
    Row {
        kind: "NodeSlicePool",
        name,
        subnets: vec![pool.spec.range.clone()],
        addresses: cidr.map(|cidr| usage(&cidr, used(held))).unwrap_or_default(),
        blocks: Some(PoolUsage {
            capacity: all.len().to_string(),
            allocated: given.len().to_string(),
            free: (all.len() - given.len()).to_string(),
        }),
        blocks_per_node,
        problem: cidr.is_none().then(|| format!("spec.range {:?} is no network", pool.spec.range)),
        conditions: pool.status.iter().flat_map(|status| &status.conditions).map(Condition::from).collect(),
    }
}

fn usage(cidr: &Cidr, used: u128) -> Use {
    Use {
        size: cidr.size().to_string(),
        used: used.to_string(),
        cooling: "0".to_owned(),
        free: cidr.size().saturating_sub(used).to_string(),
        unknown_nodes: Vec::new(),
    }
}
