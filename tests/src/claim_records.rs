//! What is on record for claims and pods, of all pools and ranges.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Result, ensure};
use ipnet::IpNet;
use kube::api::ListParams;
use kube::{Api, Client};
use tenure_api::claims::PodRecord;
use tenure_api::coil::AddressBlock;
use tenure_api::whereabouts::IPPool;
use tenure_ipam::ledger::Offsets;

/// Which claim has which address on record, of all pools and ranges, in words that have the claim's UID in them. What cools is
/// free.
pub async fn records(client: &Client) -> Result<BTreeMap<IpAddr, String>> {
    let mut all = BTreeMap::new();
    let mut note = |address: IpAddr, holder: String| {
        let before = all.insert(address, holder.clone());
        ensure!(before.is_none(), "{address} is on record for {before:?} and {holder}");
        Ok(())
    };
    let blocks: Api<AddressBlock> = Api::all(client.clone());
    for block in blocks.list(&ListParams::default()).await?.items {
        for (offset, record) in block.spec.claims.iter().filter(|(_, record)| record.freed.is_none()) {
            let offset: u128 = offset.parse()?;
            for cidr in [&block.spec.ipv4, &block.spec.ipv6].into_iter().flatten() {
                let holder =
                    format!("{}/{} {}{}", record.namespace, record.name, record.uid, given(&record.pods));
                note(nth(cidr.parse()?, offset)?, holder)?;
            }
        }
    }
    let pools: Api<IPPool> = Api::namespaced(client.clone(), "kube-system");
    for pool in pools.list(&ListParams::default()).await?.items {
        let range = pool.spec.cidr()?;
        for (address, held) in pool.spec.reservations()?.entries {
            let offset = Offsets::of(&range).offset(address)?.to_string();
            let pods = pool.spec.allocations.get(&offset).map(|record| record.pods.as_slice());
            let given = given(pods.unwrap_or_default());
            note(IpAddr::from(address), format!("{} {}{given}", held.podref, held.id))?;
        }
    }
    Ok(all)
}

/// The pods that were given an address.
fn given(pods: &[PodRecord]) -> String {
    let each = pods.iter().map(|pod| format!(" given to {} {} on {}", pod.name, pod.uid, pod.node));
    each.collect::<Vec<_>>().concat()
}

fn nth(cidr: IpNet, offset: u128) -> Result<IpAddr> {
    Ok(match cidr.network() {
        IpAddr::V4(first) => IpAddr::V4((first.to_bits() + u32::try_from(offset)?).into()),
        IpAddr::V6(first) => IpAddr::V6((first.to_bits() + offset).into()),
    })
}
