//! Afterwards: what policies select, what enactments say, what the pool has on record and what is on interfaces are the same.

use std::collections::BTreeSet;
use std::net::IpAddr;

use kube::ResourceExt;
use tenure_api::nmstate::{
    NodeCondition, NodeIPPool, NodeNetworkConfigurationEnactment as Enactment,
    NodeNetworkConfigurationPolicy as Policy, NodeRange,
};
use tenure_tests::chaos::programs::Programs;

use crate::bed::{ChaosBed, INTERFACES, NAMES};
use crate::plan::{NODES, POLICIES};

/// Everything that differs from: every node has every policy.
pub fn different(programs: &Programs<'_>, bed: &ChaosBed<'_>) -> Vec<String> {
    let mut found = programs.ended();
    let enactments = bed.list::<Enactment>();
    if enactments.len() != NODES * POLICIES {
        found.push(format!("there are {} enactments", enactments.len()));
    }
    let mut held: BTreeSet<IpAddr> = BTreeSet::new();
    for enactment in &enactments {
        let status = enactment.status.clone().unwrap_or_default();
        let named: Vec<IpAddr> = status
            .ippool
            .values()
            .flat_map(|it| &it.allocated)
            .filter_map(|address| address.parse().ok())
            .collect();
        held.extend(&named);
        let (Some(node), Some(policy)) = (bed.number(enactment), ChaosBed::policy_of(enactment)) else {
            found.push(format!("{} is of no node or policy", enactment.name_any()));
            continue;
        };
        let is = bed.addresses(node, INTERFACES[policy]);
        if named.len() != 1 || is != named {
            found.push(format!("{} names {named:?}, and there is {is:?}", enactment.name_any()));
        }
        if !enactment.condition("Available").is_some_and(NodeCondition::is_true) {
            found.push(format!("{} is not available: {:?}", enactment.name_any(), status.conditions));
        }
        let mtu = mtu_of(bed, policy);
        if mtu != Some(u64::from(bed.mtu(node, INTERFACES[policy]))) {
            found.push(format!("{} has not the MTU {mtu:?}", enactment.name_any()));
        }
    }
    if held.len() != NODES * POLICIES {
        found.push(format!("{} addresses are held", held.len()));
    }
    found.extend(record(bed, &held));
    found
}

/// Everything that is left when there is no policy.
pub fn left(programs: &Programs<'_>, bed: &ChaosBed<'_>) -> Vec<String> {
    let mut found = programs.ended();
    found.extend(bed.left());
    for node in 0..NODES {
        for interface in INTERFACES {
            let is = bed.addresses(node, interface);
            if !is.is_empty() {
                found.push(format!("{} has {is:?} on {interface}", bed.machines[node].name));
            }
        }
    }
    found.extend(record(bed, &BTreeSet::new()));
    found
}

/// What differs between the pool's record and the addresses that are held.
fn record(bed: &ChaosBed<'_>, held: &BTreeSet<IpAddr>) -> Vec<String> {
    let pools = bed.list::<NodeIPPool>();
    let [pool] = &pools[..] else { return vec![format!("there are {} pools", pools.len())] };
    let status = pool.status.clone().unwrap_or_default();
    let range = NodeRange::of(&pool.spec.range).unwrap();
    let taken = range.decode(&status).offsets;
    let recorded: BTreeSet<IpAddr> =
        taken.iter().map(|offset| range.address(*offset).unwrap().to_string().parse().unwrap()).collect();
    let mut found = Vec::new();
    if recorded != *held {
        found.push(format!("the pool has {recorded:?} on record, and enactments have {held:?}"));
    }
    if !status.promised.is_empty() {
        found.push(format!("the pool has promised {:?}", status.promised));
    }
    let condition = status.condition("Available").map(|it| it.reason.as_str());
    if condition != Some("ReconciledPool") || !pool.annotations().is_empty() {
        found.push(format!("the pool says {condition:?}, annotated {:?}", pool.annotations()));
    }
    found
}

fn mtu_of(bed: &ChaosBed<'_>, policy: usize) -> Option<u64> {
    let policies = bed.list::<Policy>();
    let policy = policies.iter().find(|it| it.name_any() == NAMES[policy])?;
    policy.spec.desired_state.as_ref()?["interfaces"][0]["mtu"].as_u64()
}
