//! Cooling addresses of a ledger, in an annotation of its object: so every agent and the next controller know
//! them.
//!
//! Only the controller writes it, together with the write that frees, and guarded by a test of the previous
//! value. Addresses that a node frees by a DEL are not in it: they cool on the node itself.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tenure_api::whereabouts::IPPool;
use tenure_handles::Timestamp;
use tenure_ipam::ledger::Offsets;
use tenure_ipam::{Address, Cidr};

/// The annotation of an `IPPool` with its cooling addresses: `offset:milliseconds` of the epoch, separated by
/// blanks, the earliest end first.
pub const COOLING: &str = "whereabouts.cni.cncf.io/cooling";

/// How many addresses cool in one object; beyond that, those that have cooled longest are dropped.
const MOST: usize = 256;

/// A change of the cooling addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) before: Option<String>,
    pub(super) after: String,
}

/// The cooling addresses of an object, and until when they cool.
pub fn cooling_of(pool: &IPPool) -> Vec<(Timestamp, Address)> {
    pool.spec.cidr().map(|range| read(&range, said(&pool.metadata).as_deref())).unwrap_or_default()
}

/// The annotation after these addresses are freed now and cool for so long.
pub fn cooling_after(
    pool: &IPPool,
    freed: impl IntoIterator<Item = Address>,
    rest: Duration,
    now: Timestamp,
) -> Option<String> {
    let range = pool.spec.cidr().ok()?;
    Some(write(&range, &cooling_of(pool), freed, now.plus(rest), now))
}

/// The annotation's text.
pub(super) fn said(metadata: &ObjectMeta) -> Option<String> {
    metadata.annotations.as_ref().and_then(|all| all.get(COOLING)).cloned()
}

/// The cooling addresses and their times. Unreadable entries do not cool.
pub(super) fn read(range: &Cidr, said: Option<&str>) -> Vec<(Timestamp, Address)> {
    let offsets = Offsets::of(range);
    let entry = |text: &str| {
        let (offset, until) = text.split_once(':')?;
        let address = offsets.address(offset.parse().ok()?).ok()?;
        Some((Timestamp::from_millis(until.parse().ok()?), address))
    };
    said.unwrap_or_default().split_whitespace().take(MOST).filter_map(entry).collect()
}

/// The annotation with these addresses added.
pub(super) fn write(
    range: &Cidr,
    known: &[(Timestamp, Address)],
    freed: impl IntoIterator<Item = Address>,
    until: Timestamp,
    now: Timestamp,
) -> String {
    let freed: Vec<Address> = freed.into_iter().collect();
    let still = known.iter().filter(|(until, address)| *until > now && !freed.contains(address)).copied();
    let mut all: Vec<(Timestamp, Address)> =
        still.chain(freed.iter().map(|address| (until, *address))).collect();
    all.sort_unstable();
    let offsets = Offsets::of(range);
    let texts = all.iter().skip(all.len().saturating_sub(MOST)).filter_map(|(until, address)| {
        Some(format!("{}:{}", offsets.offset(*address).ok()?, until.as_millis()))
    });
    texts.collect::<Vec<_>>().join(" ")
}
