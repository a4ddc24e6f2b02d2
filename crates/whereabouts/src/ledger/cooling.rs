//! What was freed in a ledger and rests, in an annotation of its object: so it is known to every agent and to the next controller.
//!
//! The controller alone writes it, with the write that frees, and guarded by a test of what it said before. What a node frees by
//! a DEL is not in it: that rests on the node itself.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tenure_api::whereabouts::IPPool;
use tenure_handles::Timestamp;
use tenure_ipam::ledger::Offsets;
use tenure_ipam::{Address, Cidr};

/// The annotation of an `IPPool` that says what was freed and until when it rests: `offset:milliseconds` of the epoch, with blanks
/// between, what rests shortest first.
pub const COOLING: &str = "whereabouts.cni.cncf.io/cooling";

/// So many addresses rest in one object; beyond them those give way that have rested longest.
const MOST: usize = 256;

/// A change of what rests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) before: Option<String>,
    pub(super) after: String,
}

/// What an object says that rests, and until when.
pub fn cooling_of(pool: &IPPool) -> Vec<(Timestamp, Address)> {
    pool.spec.cidr().map(|range| read(&range, said(&pool.metadata).as_deref())).unwrap_or_default()
}

/// What an object is to say when these addresses of it are freed now, and rest for so long.
pub fn cooling_after(
    pool: &IPPool,
    freed: impl IntoIterator<Item = Address>,
    rest: Duration,
    now: Timestamp,
) -> Option<String> {
    let range = pool.spec.cidr().ok()?;
    Some(write(&range, &cooling_of(pool), freed, now.plus(rest), now))
}

/// What an object says.
pub(super) fn said(metadata: &ObjectMeta) -> Option<String> {
    metadata.annotations.as_ref().and_then(|all| all.get(COOLING)).cloned()
}

/// What rests, and until when. What cannot be read does not rest.
pub(super) fn read(range: &Cidr, said: Option<&str>) -> Vec<(Timestamp, Address)> {
    let offsets = Offsets::of(range);
    let entry = |text: &str| {
        let (offset, until) = text.split_once(':')?;
        let address = offsets.address(offset.parse().ok()?).ok()?;
        Some((Timestamp::from_millis(until.parse().ok()?), address))
    };
    said.unwrap_or_default().split_whitespace().take(MOST).filter_map(entry).collect()
}

/// What is said when these rest, too.
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
