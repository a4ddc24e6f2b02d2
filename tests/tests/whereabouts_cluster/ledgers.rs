//! What the API server says about who has which address, and what it should say.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use anyhow::{Context as _, Result, ensure};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use tenure_api::whereabouts::{IPPool, NodeSlicePool, OverlappingRangeIPReservation, names};
use tenure_testbed::cluster::Cluster;

use tenure_tests::caller::Attached;
use tenure_tests::networks::Network;

const NAMESPACE: &str = "kube-system";

/// So many addresses of a range belong into an object of it; a slice is one.
const ADDRESSES_IN_AN_OBJECT: u128 = 256;

/// A record: address, pod, interface and container.
pub type Record = (IpAddr, String, String, String);
/// The records of each object that has any.
pub type Ledgers = BTreeMap<String, BTreeSet<Record>>;

/// The `NodeSlicePool`s of all networks, when each gives slices to all nodes.
pub async fn slice_pools(cluster: &Cluster, networks: &[Network]) -> Result<BTreeMap<String, NodeSlicePool>> {
    let api: Api<NodeSlicePool> = Api::namespaced(cluster.client()?, NAMESPACE);
    let listed = api.list(&ListParams::default()).await?;
    let pools: BTreeMap<String, NodeSlicePool> =
        listed.items.into_iter().map(|pool| (pool.name_any(), pool)).collect();
    let wanted: BTreeMap<String, ipnet::IpNet> = networks.iter().flat_map(Network::slice_pools).collect();
    ensure!(wanted.keys().eq(pools.keys()), "{:?} and not {wanted:?}", pools.keys());
    for (name, range) in wanted {
        let pool = &pools[&name];
        ensure!(pool.spec.range == range.to_string(), "{pool:?} is of {range}");
        let slices = cluster.nodes().map(|node| pool.slice_of(node.name()).map(str::to_owned));
        let slices: Option<BTreeSet<String>> = slices.collect();
        let count = slices.with_context(|| format!("slices of {pool:?}"))?.len();
        ensure!(count == cluster.nodes().count(), "{pool:?} gives a slice to two nodes");
    }
    Ok(pools)
}

/// All records there are, of all networks.
pub async fn records(client: &Client) -> Result<Ledgers> {
    let pools: Api<IPPool> = Api::namespaced(client.clone(), NAMESPACE);
    let (mut ledgers, mut holders) = (Ledgers::new(), BTreeMap::new());
    for pool in pools.list(&ListParams::default()).await?.items {
        let decoded = pool.spec.reservations()?;
        ensure!(decoded.refused.is_empty(), "{pool:?}");
        for (address, held) in decoded.entries {
            let address = IpAddr::from(address);
            let before = holders.insert(address, (pool.name_any(), held.podref.clone()));
            ensure!(before.is_none(), "{address} is of {before:?} and of {held:?} in {}", pool.name_any());
            let record = (address, held.podref, held.ifname, held.id);
            ledgers.entry(pool.name_any()).or_default().insert(record);
        }
    }
    Ok(ledgers)
}

/// The records that there should be: each in the object of its range, or of its node's slice.
pub fn expected<'a, 'c: 'a>(
    attached: impl IntoIterator<Item = &'a Attached<'c>>,
    networks: &[Network],
    slices: &BTreeMap<String, NodeSlicePool>,
) -> Result<Ledgers> {
    let mut ledgers = Ledgers::new();
    for pod in attached {
        for (delegate, network) in pod.delegates.iter().zip(networks) {
            for ip in delegate.addresses()? {
                let range = network.range_of(ip.addr())?;
                ensure!(
                    !range.excluded.iter().any(|it| it.contains(&ip.addr())),
                    "{ip} is excluded: {delegate:?}"
                );
                let mut parts = (String::new(), range.cidr.to_string());
                if network.sliced {
                    let pools = network.slice_pools();
                    let (name, _) = pools.iter().find(|(_, cidr)| **cidr == range.cidr).context("a pool")?;
                    let slice = slices[name].slice_of(pod.node.name()).context("a slice")?;
                    let cidr: ipnet::IpNet = slice.parse()?;
                    ensure!(
                        cidr.contains(&ip.addr()),
                        "{ip} is not of {slice}, the slice of {}",
                        pod.node.name()
                    );
                    parts = (pod.node.name().to_owned(), slice.to_owned());
                }
                let mut object = names::pool_name(network.named, &parts.0, &parts.1)?;
                let place = (number(ip.addr()) - number(range.cidr.network())) / ADDRESSES_IN_AN_OBJECT;
                if !network.sliced && place > 0 {
                    object = format!("{object}.{place}");
                }
                let record = (ip.addr(), pod.podref(), delegate.ifname.clone(), pod.container.clone());
                let new = ledgers.entry(object).or_default().insert(record);
                ensure!(new, "{ip} was given twice to {}", pod.name);
            }
        }
    }
    Ok(ledgers)
}

/// An address as a number of its family.
fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The reservations: names, with pods.
pub async fn reservations(client: &Client) -> Result<BTreeMap<String, String>> {
    let api: Api<OverlappingRangeIPReservation> = Api::namespaced(client.clone(), NAMESPACE);
    let listed = api.list(&ListParams::default()).await?;
    Ok(listed.items.into_iter().map(|it| (it.name_any(), it.spec.podref)).collect())
}

/// The reservations that there should be: of every address that is not of a slice.
pub fn reserved<'a, 'c: 'a>(
    attached: impl IntoIterator<Item = &'a Attached<'c>>,
    networks: &[Network],
) -> Result<BTreeMap<String, String>> {
    let mut reserved = BTreeMap::new();
    for pod in attached {
        for (delegate, network) in pod.delegates.iter().zip(networks).filter(|(_, network)| !network.sliced) {
            for ip in delegate.addresses()? {
                reserved.insert(names::reservation_name(network.named, ip.addr())?, pod.podref());
            }
        }
    }
    Ok(reserved)
}
