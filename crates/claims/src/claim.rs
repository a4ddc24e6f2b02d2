//! The facts about an `IPAMClaim` that decisions need: every node caches them for all claims.

use tenure_api::claims::{IPAMClaim, annotation, condition, label};
use tenure_handles::Timestamp;
use tenure_ipam::{Address, Notation};

use crate::slots::Slots;
use crate::status::{self, RecordLocation};

/// The facts about a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimFacts {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID: a claim of the same name with another UID is another claim.
    pub uid: String,
    /// When it was created.
    pub created: Timestamp,
    /// The network, by the name in its configuration.
    pub network: String,
    /// The interface in the pod; KubeVirt's ipam-extensions leaves it empty.
    pub interface: String,
    /// The virtual machine that it is for.
    pub vm: Option<String>,
    /// The addresses of its status with their prefix lengths, without unreadable ones. Without [`Self::held`]
    /// they are only a request.
    pub addresses: Vec<(Address, u8)>,
    /// Whether the status says that our controller has the addresses on record for the claim of this UID.
    /// Only the record proves it.
    pub held: bool,
    /// The objects that have the record, according to the status.
    pub places: Vec<RecordLocation>,
    /// Why it has no addresses, as its status says.
    pub problem: Option<String>,
    /// Which pods have it now.
    pub slots: Slots,
    /// Whether it is being deleted.
    pub deleting: bool,
}

impl ClaimFacts {
    /// The facts about a claim. Never fails: unreadable slots count as empty, as they do for the controller.
    pub fn of(claim: &IPAMClaim) -> Self {
        let meta = &claim.metadata;
        let label = |name: &str| meta.labels.as_ref().and_then(|labels| labels.get(name)).cloned();
        let holders = meta.annotations.as_ref().and_then(|all| all.get(annotation::HOLDERS));
        let failed = claim.status.as_ref().and_then(|it| it.condition(condition::IPS_ALLOCATED));
        let problem =
            failed.filter(|it| it.status == "False").map(|it| format!("{}: {}", it.reason, it.message));
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            created: meta
                .creation_timestamp
                .as_ref()
                .map(|time| Timestamp::from_jiff(time.0))
                .unwrap_or_default(),
            network: claim.spec.network.clone(),
            interface: claim.spec.interface.clone(),
            vm: label(label::VIRTUAL_MACHINE),
            addresses: addresses_of(claim),
            held: status::is_held(claim),
            places: status::places_of(claim).unwrap_or_default(),
            problem,
            slots: holders.and_then(|text| Slots::from_annotation(text).ok()).unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
        }
    }
}

fn addresses_of(claim: &IPAMClaim) -> Vec<(Address, u8)> {
    let ips = claim.status.iter().flat_map(|status| &status.ips);
    ips.filter_map(|text| address_of(text)).collect()
}

/// An address with its prefix length; without one it stands for itself alone.
pub(crate) fn address_of(text: &str) -> Option<(Address, u8)> {
    if text.contains('/') {
        let (address, network) = Notation::Strict.address_and_cidr(text).ok()?;
        return Some((address, network.prefix()));
    }
    let address = Notation::Strict.address(text).ok()?;
    Some((address, address.family().bits()))
}

#[cfg(test)]
mod tests;
