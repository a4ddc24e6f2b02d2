//! Interfaces that get the addresses of a claim, on networks of every dialect.

use std::collections::BTreeSet;

use serde_json::Value;
use tenure_claims::{elder_interfaces, mac_of};
use tenure_cni::{Code, Failure, NetworkConfig, rpc};
use tenure_ipam::{Address, Family, Subnet};
use tenure_whereabouts::Config;
use tenure_whereabouts::config::RangeConfig;

use super::request::PodName;
use crate::claims::{Claims, Interface};
use crate::drive::Handle;
use crate::key::HoldKey;
use crate::node::{Guest, Had, Node, PoolFacts};

/// A claim's addresses for a pod.
#[derive(Debug)]
pub(super) struct Lodger {
    pub(super) guest: Guest,
    /// The UID of the pod, which not every runtime says.
    pub(super) pod_uid: String,
}

/// What an interface on a network that opts in is to have.
#[derive(Debug)]
pub(super) enum Due {
    /// What it has already: these addresses of a claim.
    Again(Vec<Address>),
    /// A claim's addresses.
    New(Lodger),
    /// What it would have anyway.
    Ordinary,
}

/// What the interface of a call is to have. What it has already it keeps, and nobody is asked about it. `elsewhere` says which
/// interfaces of the container have addresses of the network that the node does not know of.
pub(super) async fn due(
    claims: &Claims,
    node: &Handle,
    (key, pod): (&HoldKey, &PodName),
    network: &NetworkConfig,
    call: &rpc::Call,
    elsewhere: &(dyn Fn(&str) -> bool + Sync),
) -> Result<Due, Failure> {
    let opt_in = claims.opt_in(network)?;
    let refers = match opt_in {
        Some(_) => None,
        // Most pods have nothing to do with claims, and are not held up.
        None => match claims.referring(pod, &network.name).await {
            Some(refers) => Some(refers),
            None => return Ok(Due::Ordinary),
        },
    };
    let held = key.clone();
    let elder: Vec<String> = elder_interfaces(&call.ifname).collect();
    let keys: Vec<(String, HoldKey)> = elder
        .into_iter()
        .filter_map(|name| {
            let key = HoldKey::new(network.name.clone(), call.container_id.clone(), name.clone()).ok()?;
            Some((name, key))
        })
        .collect();
    let look = move |node: &Node| {
        let had = node.had(&held);
        let elder = keys.into_iter().map(|(name, key)| (name, node.had(&key).is_some())).collect::<Vec<_>>();
        (had, elder)
    };
    let (had, elder) = node.look(look).await?;
    match had {
        Some(Had::Claim(addresses)) => return Ok(Due::Again(addresses)),
        Some(Had::Ordinary) => return Ok(Due::Ordinary),
        None => {}
    }
    let before: BTreeSet<String> =
        elder.into_iter().filter(|(name, had)| *had || elsewhere(name)).map(|(name, _)| name).collect();
    let interface = Interface { pod, network: &network.name, name: &call.ifname, before: &before };
    if let Some(refers) = refers {
        claims.refuse_unlet(interface, &refers).await?;
    }
    let Some(opt_in) = opt_in else { return Ok(Due::Ordinary) };
    let found = claims.guest(interface, opt_in).await?;
    Ok(found.map_or(Due::Ordinary, |(guest, pod_uid)| Due::New(Lodger { guest, pod_uid })))
}

/// Refuses addresses that are not a pool's, and a claim that lacks one of a family that the pool has.
pub(super) fn fits_pool(guest: &Guest, pool: &str, facts: Option<&PoolFacts>) -> Result<(), Failure> {
    let Some(facts) = facts else {
        let message =
            format!("there is no AddressPool {pool:?}, which IPAMClaim {} is for", guest.claim_name);
        return Err(Failure::new(Code::TryAgainLater, message)
            .detail("create the pool, or name another in the namespace's annotation coil.cybozu.com/pool"));
    };
    let of_family = |subnet: &Subnet, family: Family| match family {
        Family::V4 => subnet.ipv4,
        Family::V6 => subnet.ipv6,
    };
    let has = |address: Address| {
        facts.subnets.iter().filter_map(|it| of_family(it, address.family())).any(|it| it.contains(address))
    };
    if let Some(other) = addresses_of(guest).find(|address| !has(*address)) {
        return Err(not_of(guest, other, &format!("AddressPool {pool:?}")));
    }
    for family in [Family::V4, Family::V6] {
        let wanted = facts.subnets.iter().any(|subnet| of_family(subnet, family).is_some());
        if wanted && !addresses_of(guest).any(|address| address.family() == family) {
            return Err(lacks(guest, &format!("AddressPool {pool:?}, which has {family} addresses")));
        }
    }
    Ok(())
}

/// A claim's addresses in the order of a network's ranges; refuses those that are in none, and a claim without one of each.
pub(super) fn by_range(guest: &Guest, config: &Config) -> Result<Vec<Address>, Failure> {
    let mut left: Vec<Address> = addresses_of(guest).collect();
    let mut ordered = Vec::new();
    for range in &config.ranges {
        let Some(place) = left.iter().position(|address| range.cidr().contains(*address)) else {
            // One that is in no range at all says more than that there is none of this one.
            if let Some(other) = left.iter().find(|address| !in_any(&config.ranges, **address)) {
                return Err(not_of(guest, *other, &ranges_of(config)));
            }
            return Err(lacks(guest, &format!("range {} of network {:?}", range.range_text(), config.name)));
        };
        ordered.push(left.remove(place));
    }
    match left.first() {
        Some(other) => Err(not_of(guest, *other, &ranges_of(config))),
        None => Ok(ordered),
    }
}

/// What a claim's addresses are in the order of a network's ranges, whatever became of these since.
pub(super) fn in_order(addresses: &[Address], config: &Config) -> Vec<Address> {
    let mut left = addresses.to_vec();
    let mut of_range = |range: &RangeConfig| {
        let place = left.iter().position(|address| range.cidr().contains(*address))?;
        Some(left.remove(place))
    };
    let ordered: Option<Vec<Address>> = config.ranges.iter().map(&mut of_range).collect();
    ordered.unwrap_or_else(|| addresses.to_vec())
}

/// The Ethernet address that goes with a claim's addresses, unless the network says otherwise.
pub(super) fn mac_for(addresses: &[Address], said: Option<&Value>) -> Result<Option<String>, Failure> {
    match said {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) if text == "address" => {}
        Some(Value::String(text)) if text == "own" => return Ok(None),
        Some(other) => {
            return Err(Failure::new(Code::InvalidConfig, format!("claimMac is {other}")).detail(
                "accepted is \"address\" (the Ethernet address follows the claim's addresses) or \"own\" (each pod its own)",
            ));
        }
    }
    let bytes = mac_of(addresses.iter().copied());
    Ok(bytes.map(|bytes| bytes.map(|byte| format!("{byte:02x}")).join(":")))
}

fn addresses_of(guest: &Guest) -> impl Iterator<Item = Address> {
    guest.addresses.iter().map(|(address, _)| *address)
}

fn in_any(ranges: &[RangeConfig], address: Address) -> bool {
    ranges.iter().any(|range| range.cidr().contains(address))
}

fn ranges_of(config: &Config) -> String {
    let texts: Vec<String> = config.ranges.iter().map(RangeConfig::range_text).collect();
    format!("network {:?} ({})", config.name, texts.join(", "))
}

fn not_of(guest: &Guest, address: Address, place: &str) -> Failure {
    let message = format!("IPAMClaim {} has {address}, which is not of {place}", guest.claim_name);
    Failure::new(Code::TryAgainLater, message).detail(
        "accepted is a claim whose addresses are of the network as it is now: delete the claim for new ones, or put the network back",
    )
}

fn lacks(guest: &Guest, place: &str) -> Failure {
    let message = format!("IPAMClaim {} has no address of {place}", guest.claim_name);
    Failure::new(Code::TryAgainLater, message).detail(
        "accepted is a claim with an address of each: delete the claim for new ones, or put the network back",
    )
}
