//! What the record says: a claim's addresses, the pods that received them, and whether one of these may still
//! use them.
//!
//! The record is the `claims` of a floating `AddressBlock`, or the entries of an `IPPool` whose `id` names
//! the claim. Tenants can write neither, so only the record decides: a claim's status and its annotation are
//! hints where to look.

use std::ops::RangeInclusive;
use std::time::Duration;

use tenure_api::claims::{PodRecord, RECORD_PREFIX};
use tenure_api::coil::{AddressBlock, ClaimRecord};
use tenure_api::whereabouts::IPPool;
use tenure_handles::Timestamp;
use tenure_ipam::Address;
use tenure_ipam::ledger::Offsets;

/// What one object has on record for a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OnRecord {
    /// The addresses, each with its possible prefix lengths: a slice is a part of the network of its
    /// addresses.
    pub addresses: Vec<(Address, RangeInclusive<u8>)>,
    /// The pods that received all of them, by UID.
    pub pods: Vec<String>,
}

impl OnRecord {
    /// What a block has on record for the claim of this UID. Only floating blocks have anything.
    pub fn in_block(block: &AddressBlock, uid: &str) -> Self {
        let mut found = Found::default();
        for (record, addresses) in in_block(block).filter(|(record, _)| record.uid == uid) {
            let bits = |it: &Address| it.family().bits();
            found.add(addresses.into_iter().map(|it| (it, bits(&it)..=bits(&it))), &record.pods);
        }
        found.0.unwrap_or_default()
    }

    /// What a ledger has on record for the claim of this UID.
    pub fn in_ledger(ledger: &IPPool, uid: &str) -> Self {
        let mut found = Found::default();
        let Ok(cidr) = ledger.spec.cidr() else { return Self::default() };
        let offsets = Offsets::of(&cidr);
        let held = ledger.spec.allocations.iter();
        for (key, record) in held.filter(|(_, it)| it.id.strip_prefix(RECORD_PREFIX) == Some(uid)) {
            let address = key.parse().ok().and_then(|offset| offsets.address(offset).ok());
            found.add(address.map(|it| (it, 0..=cidr.prefix())), &record.pods);
        }
        found.0.unwrap_or_default()
    }

    /// What several objects have together: only pods that all of them name received all addresses.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let mut found = Found(Some(self));
        found.join(other);
        found.0.unwrap_or_default()
    }

    /// Whether all of these addresses are on record with a possible prefix length, and there is at least one.
    pub fn covers(&self, addresses: &[(Address, u8)]) -> bool {
        let has = |(address, prefix): &(Address, u8)| {
            self.addresses.iter().any(|(it, prefixes)| it == address && prefixes.contains(prefix))
        };
        !addresses.is_empty() && addresses.iter().all(has)
    }
}

/// The claims that have addresses of a floating block on record, and which.
pub fn in_block(block: &AddressBlock) -> impl Iterator<Item = (&ClaimRecord, Vec<Address>)> {
    let subnet = block.spec.to_subnet().ok().filter(|_| block.is_floating());
    let held = block.spec.claims.iter().filter(|(_, record)| record.freed.is_none());
    held.filter_map(move |(offset, record)| {
        let (subnet, offset) = (subnet.as_ref()?, offset.parse::<u128>().ok()?);
        let cidrs = [subnet.ipv4, subnet.ipv6].into_iter().flatten();
        Some((record, cidrs.filter_map(|cidr| cidr.nth(offset).ok()).collect()))
    })
}

/// What was found so far, if anything.
#[derive(Default)]
struct Found(Option<OnRecord>);

impl Found {
    fn add(
        &mut self,
        addresses: impl IntoIterator<Item = (Address, RangeInclusive<u8>)>,
        pods: &[PodRecord],
    ) {
        let pods = pods.iter().map(|pod| pod.uid.clone()).collect();
        self.join(OnRecord { addresses: addresses.into_iter().collect(), pods });
    }

    fn join(&mut self, other: OnRecord) {
        match &mut self.0 {
            None => self.0 = Some(other),
            Some(known) => {
                known.addresses.extend(other.addresses);
                known.pods.retain(|pod| other.pods.contains(pod));
            }
        }
    }
}

/// The state of a pod that received an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// It exists.
    Alive,
    /// Its object is gone, and so is its node's: nobody can say whether its containers run.
    Lost,
    /// It has ended.
    Ended,
}

impl Trace {
    /// Whether it may still use the address.
    pub fn may_use(self) -> bool {
        self != Self::Ended
    }
}

/// The state of a pod: `alive` says whether a pod of its UID exists and has not ended, `node` whether its
/// node has a Node object. A pod that is gone together with its node counts as ended after two observations,
/// the second at least `rest` after the first. The record stores the first.
pub fn trace(pod: &PodRecord, alive: bool, node: bool, rest: Duration, now: Timestamp) -> Trace {
    if alive {
        return Trace::Alive;
    }
    let missing = pod.missing.as_ref().map(|since| Timestamp::from_jiff(since.0));
    let rested = missing.is_some_and(|since| since <= now && now.since(since) >= rest);
    if node || rested { Trace::Ended } else { Trace::Lost }
}

#[cfg(test)]
mod tests;
