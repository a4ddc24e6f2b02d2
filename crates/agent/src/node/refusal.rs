//! What those are told who do not get what they asked for: what is wrong, with its value, and what to do.

use std::time::Duration;

use tenure_cni::{Code, Failure};
use tenure_ipam::{Address, Addresses};

use super::event::{Guest, Wish};
use crate::key::{HoldKey, Pod};

pub(super) fn not_replayed(missing: &str) -> Failure {
    Failure::new(Code::TryAgainLater, format!("tenured has just started and has not yet read {missing}"))
        .detail("nothing is handed out before every existing hold is known; this usually takes less than a second")
}

pub(super) fn no_pool(pool: &str, pod: &Pod) -> Failure {
    let user = match pod.namespace.as_str() {
        "" => String::new(),
        namespace => format!(", which namespace {namespace:?} uses"),
    };
    Failure::new(Code::TryAgainLater, format!("there is no AddressPool {pool:?}{user}"))
        .detail("create the pool, or name another in the namespace's annotation coil.cybozu.com/pool")
}

pub(super) fn pool_deleting(pool: &str) -> Failure {
    Failure::new(
        Code::TryAgainLater,
        format!("AddressPool {pool:?} is being deleted and gives no new addresses"),
    )
    .detail("name another pool in the namespace's annotation coil.cybozu.com/pool")
}

pub(super) fn pool_gone(pool: &str) -> Failure {
    Failure::new(Code::TryAgainLater, format!("AddressPool {pool:?} is gone"))
        .detail("create the pool, or name another in the namespace's annotation coil.cybozu.com/pool")
}

pub(super) fn exhausted(pool: &str, message: &str) -> Failure {
    Failure::new(
        Code::TryAgainLater,
        format!("AddressPool {pool:?} has no address left for this node: {message}"),
    )
    .detail("append a subnet to the pool, delete pods that use it, or name another pool in the namespace's annotation coil.cybozu.com/pool")
}

pub(super) fn withheld(slice: &str) -> Failure {
    let message =
        format!("addresses of slice {slice:?} may be in use by containers that no journal knows of");
    Failure::new(Code::TryAgainLater, message)
        .detail("they are handed out when namespaces, pods and the runtime were asked twice who uses them, which takes about a minute")
}

pub(super) fn slice_full(pool: &str, slices: &[String], wish: &Wish, pod: &Pod) -> Failure {
    let pool = pool.rsplit_once('/').map_or(pool, |(_, name)| name);
    let which = match (&wish.within, wish.only.as_slice()) {
        (_, [_, ..]) => {
            let list: Vec<String> = wish.only.iter().map(ToString::to_string).collect();
            format!("none of {} is free", list.join(", "))
        }
        (Some(range), []) => {
            let (count, first, last) = (range.count(), range.first(), range.last());
            format!("none of the {count} addresses {first} to {last} is free")
        }
        (None, []) => "none of its addresses is free".to_owned(),
    };
    if slices.is_empty() {
        let message = format!(
            "could not allocate IP in range: this node has no slice of NodeSlicePool {pool:?} any more for pod {pod}"
        );
        let detail = "the conditions and events of the NodeSlicePool say why: kubectl describe nodeslicepool";
        return Failure::new(Code::TryAgainLater, message).detail(detail);
    }
    let slice = which;
    Failure::new(
        Code::TryAgainLater,
        format!("could not allocate IP in range: this node's slice of NodeSlicePool {pool:?} {} for pod {pod}: {slice}",
            slices.first().map(|name| format!("({name})")).unwrap_or_default()),
    )
    .detail("make node_slice_size or the range larger, exclude fewer addresses, or delete pods of this node that use the network")
}

pub(super) fn unusable(pool: &str, message: &str) -> Failure {
    Failure::new(Code::TryAgainLater, format!("AddressPool {pool:?} cannot be carved into blocks: {message}"))
        .detail("kubectl describe addresspool says what is wrong with it")
}

pub(super) fn timed_out(pool: &str, waited: Duration, trouble: Option<&str>) -> Failure {
    let waited = waited.as_secs_f32();
    let reason = trouble.map(|message| format!(": {message}")).unwrap_or_default();
    Failure::new(
        Code::TryAgainLater,
        format!("no block of AddressPool {pool:?} came for this node within {waited} s{reason}"),
    )
    .detail("is tenure-controller running, and can this node reach the API server?")
}

pub(super) fn deleted_meanwhile() -> Failure {
    Failure::new(Code::TryAgainLater, "the attachment was deleted while it was being made")
}

pub(super) fn block_taken_away(block: &str) -> Failure {
    Failure::new(
        Code::TryAgainLater,
        format!("block {block:?} was taken away from this node while the pod was given an address of it"),
    )
    .detail("the next attempt gets an address of another block")
}

pub(super) fn journal(message: &str) -> Failure {
    Failure::new(Code::Io, message)
        .detail("what was asked for is done when the journal can be written again; is /run full?")
}

pub(super) fn journal_broken() -> Failure {
    Failure::new(Code::TryAgainLater, "tenured cannot write its journal and hands out nothing until it can")
        .detail("is /run full?")
}

pub(super) fn same_id(asked: &HoldKey, other: &HoldKey) -> Failure {
    let message = format!("the keys {asked} and {other} have the same 128-bit id");
    Failure::new(Code::Internal, message)
        .detail("another container id will do; this happens by chance once in 10^30 pods")
}

pub(super) fn nothing_held(key: &HoldKey) -> Failure {
    Failure::new(Code::UnknownContainer, format!("nothing is held for {key}"))
}

pub(super) fn other_claim(key: &HoldKey, held: Addresses, claim: Option<&str>, guest: &Guest) -> Failure {
    let whose = claim.map(|claim| format!(" of IPAMClaim {claim:?}")).unwrap_or_default();
    Failure::new(
        Code::TryAgainLater,
        format!("{key} holds {held}{whose}, and cannot have {} as well", described(guest)),
    )
    .detail("what an attachment holds stays the same until it is deleted; delete the pod")
}

pub(super) fn unusable_claim(guest: &Guest) -> Failure {
    Failure::new(Code::TryAgainLater, format!("{} cannot be used", described(guest)))
        .detail("accepted is a claim with a UID and at least one address, each with a prefix of its family")
}

pub(super) fn crowded_claim(guest: &Guest) -> Failure {
    Failure::new(Code::TryAgainLater, format!("{} has several addresses of a family", described(guest)))
        .detail("an interface that Tenure makes takes one of each")
}

pub(super) fn claim_in_the_way(guest: &Guest, problem: &str) -> Failure {
    Failure::new(Code::TryAgainLater, format!("{} cannot be used on this node: {problem}", described(guest)))
        .detail("an address of a claim is nobody else's; tenure who ADDRESS says who has it")
}

fn described(guest: &Guest) -> String {
    let addresses = guest.addresses.iter().map(|(address, prefix)| format!("{address}/{prefix}"));
    let addresses: Vec<String> = addresses.collect();
    format!("IPAMClaim {:?} (UID {:?}, addresses [{}])", guest.claim_name, guest.claim, addresses.join(", "))
}

pub(super) fn other_address(key: &HoldKey, expected: Address, held: Addresses) -> Failure {
    Failure::new(Code::Internal, format!("{key} holds {held}, and not {expected} as its result says"))
}
