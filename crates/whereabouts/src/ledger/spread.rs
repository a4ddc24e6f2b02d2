//! Where to begin looking for a free address.
//!
//! A lone caller takes the lowest, as Whereabouts does. When several nodes take the lowest at once, one of them has it
//! and the others try again: so for a while after such a conflict each node begins at a place of its own, and the pool's
//! records spread over its objects, too.
//!
//! What the node freed a moment ago rests: it is taken last, the one first that has rested longest.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tenure_handles::Timestamp;
use tenure_ipam::{Address, Cidr, Range};

use super::ADDRESSES_IN_AN_OBJECT;

/// How long a conflict is remembered.
const MEMORY: Duration = Duration::from_secs(10);
/// Over how many objects' addresses nodes spread. A large IPv6 range must not get an object for every node.
const OBJECTS: u128 = 64;

/// Where one node begins.
#[derive(Clone, Debug)]
pub struct Spread {
    place: u64,
    until: Option<Timestamp>,
    /// Until when each address rests.
    rests: BTreeMap<Address, Timestamp>,
    /// The same in the order of time; what was freed again since is in it twice.
    order: VecDeque<(Timestamp, Address)>,
}

impl Spread {
    /// For the node of this name.
    pub fn of(node: &str) -> Self {
        // FNV-1a, finished so that neighbouring names lie far apart. The same in every process.
        let mixed = node.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { place: mixed ^ (mixed >> 29), until: None, rests: BTreeMap::new(), order: VecDeque::new() }
    }

    /// Somebody else was quicker.
    pub fn conflicted(&mut self, now: Timestamp) {
        self.until = Some(now.plus(MEMORY));
    }

    /// An address was freed, and is to rest until then. What has rested long enough by `now` is forgotten.
    pub fn rest(&mut self, address: Address, now: Timestamp, until: Timestamp) {
        while let Some((due, rested)) = self.order.front().copied().filter(|(due, _)| *due <= now) {
            self.order.pop_front();
            if self.rests.get(&rested) == Some(&due) {
                self.rests.remove(&rested);
            }
        }
        if until > now {
            self.rests.insert(address, until);
            self.order.push_back((until, address));
        }
    }

    /// The addresses of this network that rest.
    pub(super) fn resting(&self, network: Cidr, now: Timestamp) -> impl Iterator<Item = Address> {
        let inside = self.rests.range(network.first()..=network.last());
        inside.filter(move |(_, until)| **until > now).map(|(address, _)| *address)
    }

    /// What rests, what has rested longest first.
    pub(super) fn rested_longest(&self, now: Timestamp) -> impl Iterator<Item = Address> {
        let current = self
            .order
            .iter()
            .filter(move |(until, address)| *until > now && self.rests.get(address) == Some(until));
        current.map(|(_, address)| *address)
    }

    /// The address of this range to begin at.
    pub fn start(&self, range: &Range, now: Timestamp) -> Address {
        let spread = self.until.is_some_and(|until| now < until);
        let width = range.count().clamp(1, OBJECTS * ADDRESSES_IN_AN_OBJECT);
        let rank = if spread { u128::from(self.place) % width } else { 0 };
        range.nth(rank).unwrap_or(range.first())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_lone_node_begins_at_the_lowest_and_many_begin_apart() {
        let range = Range::every("10.0.0.0/16".parse().unwrap());
        let now = Timestamp::from_millis(1_000_000);
        let starts: BTreeSet<Address> = (0..50)
            .map(|node| {
                let mut spread = Spread::of(&format!("node-{node}"));
                assert_eq!(spread.start(&range, now), range.first());
                spread.conflicted(now);
                assert_eq!(spread.start(&range, now.plus(MEMORY)), range.first());
                spread.start(&range, now)
            })
            .collect();
        assert!(starts.len() >= 49, "{starts:?}");
        let objects: BTreeSet<u128> = starts.iter().map(|at| at.bits() / ADDRESSES_IN_AN_OBJECT).collect();
        assert!(objects.len() > 15, "{objects:?}");
    }
}
