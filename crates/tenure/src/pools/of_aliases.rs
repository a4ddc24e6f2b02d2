//! Pools of alias addresses as rows.

use std::collections::BTreeMap;

use kube::ResourceExt;
use tenure_api::cloud::{AliasPool, Ranges};

use super::{Row, Use};
use crate::aliases::Aliases;
use crate::conditions::Condition;

pub(super) fn rows(known: &Aliases) -> Vec<Row> {
    known.pools.iter().map(|pool| row(known, pool)).collect()
}

fn row(known: &Aliases, pool: &AliasPool) -> Row {
    let (name, ranges) = (pool.name_any(), Ranges::of(&pool.spec));
    let (mut used, mut cooling, mut per_node) = (0_u128, 0_u128, BTreeMap::new());
    for it in known.records().filter(|it| it.ledger.spec.pool == name) {
        if it.cools() {
            cooling += it.range.size();
        } else {
            used += it.range.size();
            *per_node.entry(it.record.node.clone()).or_default() += 1;
        }
    }
    let addresses = ranges.as_ref().map(|ranges| {
        let size = ranges.capacity();
        Use {
            size: size.to_string(),
            used: used.to_string(),
            cooling: cooling.to_string(),
            free: size.saturating_sub(used).saturating_sub(cooling).to_string(),
            unknown_nodes: Vec::new(),
        }
    });
    let more = pool.spec.ranges.iter().map(|range| range.cidr.clone());
    Row {
        kind: "IPPool.ipam.gcp-cni.cast.ai",
        subnets: std::iter::once(pool.spec.cidr.clone()).chain(more).collect(),
        problem: ranges.as_ref().err().map(ToString::to_string),
        addresses: addresses.unwrap_or_default(),
        blocks: None,
        blocks_per_node: per_node,
        conditions: pool.status.iter().flat_map(|status| &status.conditions).map(Condition::from).collect(),
        name,
    }
}
