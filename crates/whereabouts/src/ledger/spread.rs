//! Where to start the search for a free address.
//!
//! All nodes take the lowest, as Whereabouts does, so the first object of a pool fills before the next one is
//! created. When several nodes take the lowest at once, one of them gets it, and the others read again and
//! take the next: a few nodes with a few pods need as many rounds. A node that loses repeatedly is one of
//! many. Then it starts at a position of its own, first among few addresses and with each further loss among
//! more, finally among those of many objects; with each successful write it moves closer to the lowest again.
//! This applies to each pool separately: many writers on one pool say nothing about another.
//!
//! Addresses that the node freed recently cool: they are the last choice, the longest cooled first.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tenure_handles::Timestamp;
use tenure_ipam::{Address, Cidr, Range};

use super::{ADDRESSES_IN_AN_OBJECT, PoolId};

/// How long a conflict is remembered.
const MEMORY: Duration = Duration::from_secs(10);
/// How often in a row a node loses the lowest before it starts elsewhere.
const PATIENT: u32 = 3;
/// Among how many addresses a node starts after one more loss than that, two more, and so on: the last are
/// those of many objects. A large IPv6 range must not get an object for every node.
const WIDTHS: [u128; 4] = [16, 64, ADDRESSES_IN_AN_OBJECT, 64 * ADDRESSES_IN_AN_OBJECT];
/// More losses change nothing.
const MOST_LOST: u32 = PATIENT + 4;

/// Where one node starts.
#[derive(Clone, Debug)]
pub struct Spread {
    place: u64,
    /// By pool, how often the node lost, less how often it succeeded since, and when it last lost.
    lost: BTreeMap<PoolId, (u32, Timestamp)>,
    /// Until when each address cools.
    rests: BTreeMap<Address, Timestamp>,
    /// The same in the order of time; addresses that were freed again are in it twice.
    order: VecDeque<(Timestamp, Address)>,
}

impl Spread {
    /// For the node of this name.
    pub fn of(node: &str) -> Self {
        // FNV-1a, finished so that similar names lie far apart. The same in every process.
        let mixed = node.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = mixed ^ (mixed >> 29);
        Self { place, lost: BTreeMap::new(), rests: BTreeMap::new(), order: VecDeque::new() }
    }

    /// Another node was faster.
    pub fn lost(&mut self, pool: &PoolId, now: Timestamp) {
        let before = self.losses(pool, now);
        self.lost.insert(pool.clone(), ((before + 1).min(MOST_LOST), now));
    }

    /// This node got its choice.
    pub fn won(&mut self, pool: &PoolId) {
        if let Some((lost, _)) = self.lost.get_mut(pool) {
            *lost -= 1;
            if *lost == 0 {
                self.lost.remove(pool);
            }
        }
    }

    fn losses(&self, pool: &PoolId, now: Timestamp) -> u32 {
        self.lost.get(pool).filter(|(_, at)| now < at.plus(MEMORY)).map_or(0, |(lost, _)| *lost)
    }

    /// Records that an address was freed and cools until then. Forgets addresses that have cooled by `now`.
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

    /// The cooling addresses of this network.
    pub(super) fn resting(&self, network: Cidr, now: Timestamp) -> impl Iterator<Item = Address> {
        let inside = self.rests.range(network.first()..=network.last());
        inside.filter(move |(_, until)| **until > now).map(|(address, _)| *address)
    }

    /// Cooling addresses, the longest cooled first.
    pub(super) fn rested_longest(&self, now: Timestamp) -> impl Iterator<Item = (Timestamp, Address)> {
        let current = self
            .order
            .iter()
            .filter(move |(until, address)| *until > now && self.rests.get(address) == Some(until));
        current.copied()
    }

    /// The address of this range of a pool to start from.
    pub fn start(&self, pool: &PoolId, range: &Range, now: Timestamp) -> Address {
        let beyond =
            self.losses(pool, now).checked_sub(PATIENT + 1).and_then(|beyond| usize::try_from(beyond).ok());
        let width = beyond.map_or(1, |beyond| WIDTHS[beyond.min(WIDTHS.len() - 1)]);
        let rank = u128::from(self.place) % range.count().clamp(1, width);
        range.nth(rank).unwrap_or(range.first())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_node_begins_at_the_lowest_and_of_a_crowd_each_further_away_with_every_loss() {
        let range = Range::every("10.0.0.0/16".parse().unwrap());
        let pool = PoolId::shared("", range.cidr());
        let other = PoolId::shared("blue", range.cidr());
        let now = Timestamp::from_millis(1_000_000);
        let mut nodes: Vec<Spread> = (0..50).map(|node| Spread::of(&format!("node-{node}"))).collect();
        let mut widest = Vec::new();
        for losses in 0..=MOST_LOST {
            let starts: BTreeSet<Address> = nodes.iter().map(|node| node.start(&pool, &range, now)).collect();
            let last = starts.last().unwrap().distance_from(range.first()).unwrap();
            assert!(losses > PATIENT || last == 0, "{losses} losses are no crowd");
            assert!(
                losses > PATIENT + 3 || last < ADDRESSES_IN_AN_OBJECT,
                "{losses}: the first object comes first"
            );
            widest.push((starts.len(), last));
            for node in &mut nodes {
                node.lost(&pool, now);
            }
        }
        assert!(widest.is_sorted() && widest.last().is_some_and(|(apart, _)| *apart >= 49), "{widest:?}");
        for node in &mut nodes {
            assert_eq!(node.start(&other, &range, now), range.first(), "another pool");
            assert_eq!(node.start(&pool, &range, now.plus(MEMORY)), range.first());
            (0..MOST_LOST - PATIENT).for_each(|_| node.won(&pool));
            assert_eq!(node.start(&pool, &range, now), range.first(), "the crowd is gone");
        }
    }
}
