//! What matters of an `IPAMClaim`, and nothing else of it: every node keeps these of all claims.

use tenure_api::claims::{IPAMClaim, annotation, condition, label};
use tenure_handles::Timestamp;
use tenure_ipam::{Address, Notation};

use crate::slots::Slots;
use crate::status::{self, RecordLocation};

/// What matters of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimFacts {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID: a claim of the same name with another is another.
    pub uid: String,
    /// When it was made.
    pub created: Timestamp,
    /// The network, by the name in its configuration.
    pub network: String,
    /// The interface in the pod; KubeVirt's ipam-extensions leaves it empty.
    pub interface: String,
    /// The virtual machine that it is for.
    pub vm: Option<String>,
    /// The addresses of its status with their prefix lengths; those that cannot be read are left out. Without [`Self::held`]
    /// they are no more than a wish.
    pub addresses: Vec<(Address, u8)>,
    /// Whether the status says that our controller has the addresses on record for the claim of this UID. Only the record
    /// proves it.
    pub held: bool,
    /// Where the status says that they are on record.
    pub places: Vec<RecordLocation>,
    /// Why it has no addresses, in the words of its status.
    pub problem: Option<String>,
    /// Which pods have it now.
    pub slots: Slots,
    /// Whether it is being deleted.
    pub deleting: bool,
}

impl ClaimFacts {
    /// What matters of a claim. Never fails: slots that cannot be read are empty, as the controller will find them, too.
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

/// An address with its prefix length; one without stands for itself alone.
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
