//! A claim's status, and the location of the record that proves it.
//!
//! `IPsAllocated` is the condition that OVN-Kubernetes writes, with its reasons. `Held` is ours: its message
//! names the UID of the claim whose addresses our controller has on record, and the objects with the record.
//! A status that was imported or restored from a backup names another UID or none, so its addresses are only
//! a request. A status proves nothing either way, because others may write it: code that relies on an address
//! reads the record ([`crate::OnRecord`]).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use tenure_api::claims::condition::{self, reason};
use tenure_api::claims::{IPAMClaim, IPAMClaimStatus, OwnerPod};
use tenure_handles::Timestamp;
use tenure_ipam::Address;

/// Why a claim has no addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The network has no free address.
    SubnetExhausted,
    /// A requested address belongs to somebody else.
    IpAddressConflict,
    /// A hardware address belongs to somebody else.
    MacAddressConflict,
    /// The network does not opt in.
    PersistentIpsNotAllowed,
    /// There is no such network.
    NetworkNotFound,
    /// The network's configuration cannot be used.
    InvalidConfiguration,
    /// The claim's request cannot be read, or the network cannot serve it.
    Invalid,
    /// Something else went wrong.
    InternalError,
}

impl Reason {
    /// The text in conditions.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SubnetExhausted => reason::SUBNET_EXHAUSTED,
            Self::IpAddressConflict => reason::IP_ADDRESS_CONFLICT,
            Self::MacAddressConflict => reason::MAC_ADDRESS_CONFLICT,
            Self::PersistentIpsNotAllowed => reason::PERSISTENT_IPS_NOT_ALLOWED,
            Self::NetworkNotFound => reason::NETWORK_NOT_FOUND,
            Self::InvalidConfiguration => reason::INVALID_CONFIGURATION,
            Self::Invalid => reason::INVALID,
            Self::InternalError => reason::INTERNAL_ERROR,
        }
    }
}

/// Where a claim's addresses are on record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordLocation {
    /// In a floating `AddressBlock`, by name.
    Block(String),
    /// In an `IPPool` of Whereabouts' namespace, by name.
    Ledger(String),
}

const BLOCK: &str = "AddressBlock ";
const LEDGER: &str = "IPPool ";

impl std::fmt::Display for RecordLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Block(name) => write!(f, "{BLOCK}{name}"),
            Self::Ledger(name) => write!(f, "{LEDGER}{name}"),
        }
    }
}

impl RecordLocation {
    fn parse(text: &str) -> Option<Self> {
        let named = |name: &str| tenure_api::names::is_object_name(name).then(|| name.to_owned());
        if let Some(name) = text.strip_prefix(BLOCK) {
            return named(name).map(Self::Block);
        }
        text.strip_prefix(LEDGER).and_then(named).map(Self::Ledger)
    }
}

/// The message of the condition `Held` of the claim with this UID. It names the location of the record; only
/// the record proves anything.
pub fn held_message(uid: &str, places: &[RecordLocation]) -> String {
    let base = format!("the addresses are on record for the claim with UID {uid}");
    if places.is_empty() {
        return base;
    }
    let places: Vec<String> = places.iter().map(ToString::to_string).collect();
    format!("{base} in {}", places.join(" and "))
}

/// Whether the status says that the addresses of this very claim are on record.
pub fn is_held(claim: &IPAMClaim) -> bool {
    places_of(claim).is_some()
}

/// The locations of the record of this very claim, according to the status; `None` if it does not say that they are on record. Statuses
/// of earlier versions have an empty list.
pub fn places_of(claim: &IPAMClaim) -> Option<Vec<RecordLocation>> {
    let uid = claim.metadata.uid.as_deref().filter(|uid| !uid.is_empty())?;
    let held = claim.status.as_ref()?.condition(condition::HELD)?;
    if held.status != "True" || held.reason != reason::RECORDED {
        return None;
    }
    let rest = held.message.strip_prefix(&held_message(uid, &[]))?;
    if rest.is_empty() {
        return Some(Vec::new());
    }
    rest.strip_prefix(" in ")?.split(" and ").map(RecordLocation::parse).collect()
}

/// The status of a claim whose addresses are on record. What others wrote into it stays, and so do transition
/// times without a change, so that writing it again changes nothing.
pub fn allocated(
    claim: &IPAMClaim,
    addresses: &[(Address, u8)],
    places: &[RecordLocation],
    now: Timestamp,
) -> IPAMClaimStatus {
    let mut status = claim.status.clone().unwrap_or_default();
    status.ips = addresses.iter().map(|(address, prefix)| format!("{address}/{prefix}")).collect();
    let uid = claim.metadata.uid.as_deref().unwrap_or_default();
    let words = "IP addresses successfully allocated";
    set(&mut status, claim, condition::IPS_ALLOCATED, "True", reason::SUCCESSFUL_ALLOCATION, words, now);
    set(&mut status, claim, condition::HELD, "True", reason::RECORDED, &held_message(uid, places), now);
    status
}

/// The status of a claim without addresses. Addresses that it requests by its status stay; those that were on
/// record are removed.
pub fn failed(claim: &IPAMClaim, why: Reason, words: &str, now: Timestamp) -> IPAMClaimStatus {
    let mut status = claim.status.clone().unwrap_or_default();
    if is_held(claim) {
        status.ips = Vec::new();
    }
    status.owner_pod = None;
    status.conditions.retain(|known| known.type_ != condition::HELD);
    set(&mut status, claim, condition::IPS_ALLOCATED, "False", why.as_str(), words, now);
    status
}

/// The same status with another pod that has the claim now; `None` for nobody.
#[must_use]
pub fn set_owner(mut status: IPAMClaimStatus, pod: Option<&str>) -> IPAMClaimStatus {
    status.owner_pod = pod.map(|name| OwnerPod { name: Some(name.to_owned()) });
    status
}

fn set(
    status: &mut IPAMClaimStatus,
    claim: &IPAMClaim,
    type_: &str,
    to: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    // The longest message of a condition; the definition refuses more.
    const LONGEST: usize = 32768;
    let known = status.conditions.iter_mut().find(|known| known.type_ == type_);
    let since =
        known.as_ref().filter(|known| known.status == to).map(|known| known.last_transition_time.clone());
    let condition = Condition {
        type_: type_.to_owned(),
        status: to.to_owned(),
        reason: reason.to_owned(),
        message: message.chars().take(LONGEST).collect(),
        observed_generation: claim.metadata.generation,
        last_transition_time: since.unwrap_or_else(|| Time(now.to_jiff())),
    };
    match known {
        Some(known) => *known = condition,
        None => status.conditions.push(condition),
    }
}

#[cfg(test)]
mod tests;
