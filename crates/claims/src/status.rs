//! What a claim's status says, and the proof that it is ours.
//!
//! `IPsAllocated` is the condition that OVN-Kubernetes writes, with its reasons. `Held` is ours: its message names the UID of the
//! claim whose addresses our controller has on record. A status that was imported, restored from a backup or written by
//! somebody else names another UID or none, so its addresses are a wish and nothing more.

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
    /// A wished address belongs to somebody else.
    IpAddressConflict,
    /// A hardware address belongs to somebody else.
    MacAddressConflict,
    /// The network does not opt in.
    PersistentIpsNotAllowed,
    /// There is no such network.
    NetworkNotFound,
    /// The network's configuration cannot be used as it is.
    InvalidConfiguration,
    /// What the claim wishes cannot be read, or the network cannot have it.
    Invalid,
    /// Something else went wrong.
    InternalError,
}

impl Reason {
    /// As conditions have it.
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

/// The message of the condition `Held` of the claim with this UID: nothing else is proof.
pub fn held_message(uid: &str) -> String {
    format!("the addresses are on record for the claim with UID {uid}")
}

/// Whether our controller has the addresses of this very claim on record.
pub fn is_held(claim: &IPAMClaim) -> bool {
    let Some(uid) = claim.metadata.uid.as_deref().filter(|uid| !uid.is_empty()) else { return false };
    let held = claim.status.as_ref().and_then(|status| status.condition(condition::HELD));
    held.is_some_and(|held| {
        held.status == "True" && held.reason == reason::RECORDED && held.message == held_message(uid)
    })
}

/// The status of a claim whose addresses are on record. What others wrote into it stays; transition times stay where nothing
/// changed, so that saying the same again changes nothing.
pub fn allocated(claim: &IPAMClaim, addresses: &[(Address, u8)], now: Timestamp) -> IPAMClaimStatus {
    let mut status = claim.status.clone().unwrap_or_default();
    status.ips = addresses.iter().map(|(address, prefix)| format!("{address}/{prefix}")).collect();
    let uid = claim.metadata.uid.as_deref().unwrap_or_default();
    let words = "IP addresses successfully allocated";
    set(&mut status, claim, condition::IPS_ALLOCATED, "True", reason::SUCCESSFUL_ALLOCATION, words, now);
    set(&mut status, claim, condition::HELD, "True", reason::RECORDED, &held_message(uid), now);
    status
}

/// The status of a claim that has no addresses. Those that it wishes by its status stay there, because they are the wish; those
/// that were on record are gone from it.
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

/// The same status with another pod that has the claim now; `None` is nobody.
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
    // What a condition's message may have; the definition refuses more.
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
