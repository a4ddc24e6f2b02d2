//! Where to begin looking for a free address.
//!
//! Everybody takes the lowest, as Whereabouts does, and so the first object of a pool fills before the next one is made. When several
//! nodes take the lowest at once, one of them has it and the others look again and take the next: a few nodes with a few pods
//! are served in as many rounds. A node that loses again and again is one of a crowd. Then it begins at a place of its own, first among
//! few addresses and with each further loss among more, at last among those of many objects; and nearer to the lowest again
//! with each write that succeeds. That is so for each pool by itself: a crowd on one says nothing about another.
//!
//! What the node freed a moment ago rests: it is taken last, the one first that has rested longest.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tenure_handles::Timestamp;
use tenure_ipam::{Address, Cidr, Range};

use super::{ADDRESSES_IN_AN_OBJECT, PoolId};

/// How long a conflict is remembered.
const MEMORY: Duration = Duration::from_secs(10);
/// So often in a row a node loses the lowest before it begins elsewhere.
const PATIENT: u32 = 3;
/// Among how many addresses a node begins that has lost once more than that, twice more, and so on: the last are those of many objects.
/// A large IPv6 range must not get an object for every node.
const WIDTHS: [u128; 4] = [16, 64, ADDRESSES_IN_AN_OBJECT, 64 * ADDRESSES_IN_AN_OBJECT];
/// Beyond this a loss changes nothing.
const MOST_LOST: u32 = PATIENT + 4;

/// Where one node begins.
#[derive(Clone, Debug)]
pub struct Spread {
    place: u64,
    /// By pool, how often the node has lost, less how often it was served since, and when it lost last.
    lost: BTreeMap<PoolId, (u32, Timestamp)>,
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
        let place = mixed ^ (mixed >> 29);
        Self { place, lost: BTreeMap::new(), rests: BTreeMap::new(), order: VecDeque::new() }
    }

    /// Somebody else was quicker.
    pub fn lost(&mut self, pool: &PoolId, now: Timestamp) {
        let before = self.losses(pool, now);
        self.lost.insert(pool.clone(), ((before + 1).min(MOST_LOST), now));
    }

    /// What this node chose, it has.
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
    pub(super) fn rested_longest(&self, now: Timestamp) -> impl Iterator<Item = (Timestamp, Address)> {
        let current = self
            .order
            .iter()
            .filter(move |(until, address)| *until > now && self.rests.get(address) == Some(until));
        current.copied()
    }

    /// The address of this range of a pool to begin at.
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
