//! Pools of node addresses as rows.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt;
use tenure_api::nmstate::{NodeIPPool, NodeRange};

use super::{Row, Use};
use crate::conditions::Condition;
use crate::node_pools::NodePools;

pub(super) fn rows(known: &NodePools, now: Timestamp) -> Vec<Row> {
    known.pools.iter().map(|pool| row(pool, now)).collect()
}

fn row(pool: &NodeIPPool, now: Timestamp) -> Row {
    let status = pool.status.clone().unwrap_or_default();
    let range = NodeRange::of(&pool.spec.range);
    let addresses = range.as_ref().map(|range| {
        let used = range.decode(&status).offsets.len() as u128;
        let cooling = status.cooling.iter().filter(|it| it.until.0 > now).map(|it| it.offsets.len());
        let cooling = cooling.sum::<usize>() as u128;
        let size = range.capacity();
        Use {
            size: size.to_string(),
            used: used.to_string(),
            cooling: cooling.to_string(),
            free: size.saturating_sub(used).saturating_sub(cooling).to_string(),
            unknown_nodes: Vec::new(),
        }
    });
    Row {
        kind: "NodeIPPool",
        name: pool.name_any(),
        subnets: vec![pool.spec.range.cidr.clone()],
        problem: range.as_ref().err().map(ToString::to_string),
        addresses: addresses.unwrap_or_default(),
        blocks: None,
        blocks_per_node: BTreeMap::new(),
        conditions: status.conditions.iter().map(Condition::from).collect(),
    }
}
