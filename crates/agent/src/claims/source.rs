//! Claims as a source of addresses, for networks of every dialect.

use std::collections::BTreeSet;

use tenure_claims::elder_interfaces;
use tenure_cni::{Code, Failure};
use tenure_ipam::Address;

use super::{Claims, Interface};
use crate::key::HoldKey;
use crate::node::{ClaimUse, Holding, Node};
use crate::serve::{Call, PodName};

/// What an interface gets from a claim.
#[derive(Debug)]
pub(crate) enum Claimed {
    /// The addresses that it already has.
    Again(Vec<Address>),
    /// A claim's addresses.
    New {
        /// The claim.
        claim_use: ClaimUse,
        /// The UID of the pod, which not every runtime passes.
        pod_uid: String,
    },
    /// Nothing: it gets an ordinary address.
    Nothing,
}

impl Claims {
    /// What the interface of a call gets. It keeps what it already has, without asking anybody. `elsewhere`
    /// names the interfaces of the container with addresses of the network that the node does not know.
    pub(crate) async fn claimed(
        &self,
        call: &Call<'_>,
        (key, pod): (&HoldKey, &PodName),
        elsewhere: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<Claimed, Failure> {
        let (network, message) = (call.network, call.message);
        let opt_in = self.opt_in(network)?;
        let refers = match opt_in {
            Some(_) => None,
            // Most pods have nothing to do with claims, and are not delayed.
            None => match self.referring(pod, &network.name).await {
                Some(refers) => Some(refers),
                None => return Ok(Claimed::Nothing),
            },
        };
        let held = key.clone();
        let elder: Vec<String> = elder_interfaces(&message.ifname).collect();
        let keys: Vec<(String, HoldKey)> = elder
            .into_iter()
            .filter_map(|name| {
                let key =
                    HoldKey::new(network.name.clone(), message.container_id.clone(), name.clone()).ok()?;
                Some((name, key))
            })
            .collect();
        let look = move |node: &Node| {
            let holding = node.holding(&held);
            let elder =
                keys.into_iter().map(|(name, key)| (name, node.holding(&key).is_some())).collect::<Vec<_>>();
            (holding, elder)
        };
        let (holding, elder) = call.node.look(look).await?;
        match holding {
            Some(Holding::Claim(addresses)) => return Ok(Claimed::Again(addresses)),
            Some(Holding::Ordinary) => return Ok(Claimed::Nothing),
            None => {}
        }
        let before: BTreeSet<String> = elder
            .into_iter()
            .filter(|(name, holding)| *holding || elsewhere(name))
            .map(|(name, _)| name)
            .collect();
        let interface = Interface { pod, network: &network.name, name: &message.ifname, before: &before };
        if let Some(refers) = refers {
            self.refuse_unlet(interface, &refers).await?;
        }
        let Some(opt_in) = opt_in else { return Ok(Claimed::Nothing) };
        let found = self.claim_use(interface, opt_in).await?;
        Ok(found.map_or(Claimed::Nothing, |(claim_use, pod_uid)| Claimed::New { claim_use, pod_uid }))
    }
}

/// The addresses of a claim.
pub(crate) fn addresses_of(claim_use: &ClaimUse) -> impl Iterator<Item = Address> {
    claim_use.addresses.iter().map(|(address, _)| *address)
}

/// The error for a claim with an address outside its network.
pub(crate) fn not_of(claim_use: &ClaimUse, address: Address, place: &str) -> Failure {
    let message = format!("IPAMClaim {} has {address}, which is not of {place}", claim_use.claim_name);
    Failure::new(Code::TryAgainLater, message).detail(
        "accepted is a claim whose addresses are of the network as it is now: delete the claim for new ones, or put the network back",
    )
}

/// The error for a claim that lacks an address that its network gives each pod.
pub(crate) fn lacks(claim_use: &ClaimUse, place: &str) -> Failure {
    let message = format!("IPAMClaim {} has no address of {place}", claim_use.claim_name);
    Failure::new(Code::TryAgainLater, message).detail(
        "accepted is a claim with an address of each: delete the claim for new ones, or put the network back",
    )
}
