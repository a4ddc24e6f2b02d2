//! Claims on networks of routed pools.

use serde_json::Value;
use tenure_claims::mac_of;
use tenure_cni::{Code, Failure};
use tenure_ipam::{Address, Family, Subnet};

use super::request::Request;
use crate::claims::{Claimed, Claims, addresses_of, lacks, not_of};
use crate::key::Pod;
use crate::node::{Attach, ClaimUse, PoolFacts};
use crate::serve::PodName;

/// The request to the node for a pod that may refer to a claim.
pub(super) async fn attach(
    claims: &Claims,
    request: &Request<'_>,
    name: &PodName,
    (pool, pod): (String, Pod),
) -> Result<Attach, Failure> {
    let (call, nowhere) = (request.call, |_: &str| false);
    let claimed = claims.claimed(call, (&call.key()?, name), &nowhere).await?;
    let mut attach = request.attach(pool, pod)?;
    let addresses: Vec<Address> = match claimed {
        Claimed::Nothing => return Ok(attach),
        Claimed::Again(addresses) => addresses,
        Claimed::New { mut claim_use, pod_uid } => {
            // On these networks each address is a single host, whatever a claim's status says.
            for (address, prefix) in &mut claim_use.addresses {
                *prefix = address.family().bits();
            }
            let pool = attach.pool.clone();
            let facts = call.node.look(move |node| node.pool_facts(&pool).cloned()).await?;
            fits_pool(&claim_use, &attach.pool, facts.as_ref())?;
            attach.pod.uid = pod_uid;
            let addresses = addresses_of(&claim_use).collect();
            attach.claim_use = Some(claim_use);
            addresses
        }
    };
    let mac = mac_for(&addresses, request.field("claimMac"))?;
    if let Some(wiring) = attach.wiring.as_mut().filter(|wiring| wiring.mac.is_none()) {
        wiring.mac = mac;
    }
    Ok(attach)
}

/// Refuses addresses outside the pool, and a claim without an address of each of the pool's families.
fn fits_pool(claim_use: &ClaimUse, pool: &str, facts: Option<&PoolFacts>) -> Result<(), Failure> {
    let Some(facts) = facts else {
        let message =
            format!("there is no AddressPool {pool:?}, which IPAMClaim {} is for", claim_use.claim_name);
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
    if let Some(other) = addresses_of(claim_use).find(|address| !has(*address)) {
        return Err(not_of(claim_use, other, &format!("AddressPool {pool:?}")));
    }
    for family in [Family::V4, Family::V6] {
        let wanted = facts.subnets.iter().any(|subnet| of_family(subnet, family).is_some());
        if wanted && !addresses_of(claim_use).any(|address| address.family() == family) {
            return Err(lacks(claim_use, &format!("AddressPool {pool:?}, which has {family} addresses")));
        }
    }
    Ok(())
}

/// The MAC address that goes with a claim's addresses, unless the network says otherwise.
fn mac_for(addresses: &[Address], said: Option<&Value>) -> Result<Option<String>, Failure> {
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
