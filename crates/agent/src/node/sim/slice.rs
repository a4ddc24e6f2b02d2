//! A slice that the node is given, and that is withdrawn and given again. Its records are exact when an agent ends: writing
//! them is not the node's task.

use tenure_ipam::{Address, Range, Subnet, Usable};

use super::dice::Dice;
use super::world::World;
use crate::key::HoldKey;
use crate::node::view::Who;
use crate::node::{Event, PoolFacts, Recorded, SeenBlock, SeenSlice, Wish};

pub(super) const POOL: &str = "slices-of-net";
/// What the node waits for at a start.
pub(super) const SOURCE: &str = "its slices";
const RANGE: &str = "10.1.0.0/29";
/// Containers from this number on get addresses from the slice.
pub(super) const FIRST: usize = 24;
pub(super) const CONTAINERS: usize = 10;

#[derive(Debug, Default)]
pub(super) struct SliceGiven {
    node: &'static str,
    /// How often it was given.
    times: usize,
    given: bool,
    /// The records.
    records: Vec<Recorded>,
    /// The addresses that are held in the whole range.
    kept_back: Vec<Address>,
}

impl SliceGiven {
    pub(super) fn given(node: &'static str) -> Self {
        Self { node, times: 1, given: true, ..Self::default() }
    }

    pub(super) fn block(&self) -> SeenBlock {
        SeenBlock {
            name: "net-node-1-10.1.0.0-29".to_owned(),
            uid: format!("net.{}/{RANGE}", self.times),
            node: self.node.to_owned(),
            pool: POOL.to_owned(),
            subnet: Subnet::single(RANGE.parse().unwrap()),
            reserved: false,
            deleting: false,
            releasing: false,
            draining: false,
            pod: None,
        }
    }

    fn pool(&self) -> Event {
        let exclusions = self.kept_back.iter().map(|address| (*address).into()).collect();
        let facts = PoolFacts { block_bits: 3, sliced: true, exclusions, ..PoolFacts::default() };
        Event::PoolChanged { name: POOL.to_owned(), facts }
    }

    fn seen(&self, records: Vec<Recorded>) -> Event {
        Event::SliceSeen(SeenSlice { block: self.block(), realm: POOL.to_owned(), records })
    }

    /// All facts for a start.
    pub(super) fn list(&self) -> Vec<Event> {
        if self.given {
            return vec![self.pool(), self.seen(self.records.clone())];
        }
        // The node's former slice is reported as long as it has records.
        let block = SeenBlock { node: String::new(), ..self.block() };
        let left = SeenSlice { block, realm: POOL.to_owned(), records: self.records.clone() };
        if self.records.is_empty() { Vec::new() } else { vec![Event::SliceSeen(left)] }
    }

    /// The slice is withdrawn or given again, or the addresses held in the whole range change.
    pub(super) fn change(&mut self, dice: &Dice) -> Vec<Event> {
        if self.given && dice.percent(60) {
            let address = format!("10.1.0.{}", 1 + dice.below(6)).parse().unwrap();
            if dice.percent(50) {
                self.kept_back.push(address);
            } else {
                self.kept_back.clear();
            }
            vec![self.pool()]
        } else if self.given {
            self.given = false;
            let SeenBlock { name, uid, .. } = self.block();
            vec![Event::BlockGone { name, uid }, Event::PoolGone { name: POOL.to_owned() }]
        } else {
            (self.given, self.times) = (true, self.times + 1);
            vec![self.pool(), self.seen(Vec::new())]
        }
    }

    /// Interference ends.
    pub(super) fn put_right(&mut self) -> Vec<Event> {
        self.kept_back.clear();
        if self.given { vec![self.pool()] } else { Vec::new() }
    }

    pub(super) fn is_on_record(&self, key: &HoldKey, address: Address) -> bool {
        self.records.iter().any(|it| it.address == address && it.container == key.container())
    }

    pub(super) fn is_given(&self) -> bool {
        self.given
    }
}

/// Every second container gets a part; each has another request.
pub(super) fn key(number: usize) -> HoldKey {
    let key = HoldKey::new("net", format!("c{number}"), "net1").unwrap();
    key.part(u32::try_from(number % 2).unwrap())
}

pub(super) fn is_of_slice(key: &HoldKey) -> bool {
    key.interface() == "net1"
}

pub(super) fn wish(key: &HoldKey) -> Wish {
    let within = Some(Range::new(RANGE.parse().unwrap(), Usable::WithoutEdges).unwrap());
    let number: usize = key.container()[1..].parse().unwrap();
    let address = |last: usize| format!("10.1.0.{last}").parse().unwrap();
    match number % 5 {
        0 => Wish { within, only: vec![address(5), address(3)], ..Wish::default() },
        1 => Wish { within, preferred: Some(address(4)), lowest: true, ..Wish::default() },
        _ => Wish { within, lowest: true, ..Wish::default() },
    }
}

impl World {
    /// An agent ends: its records are the addresses that it held.
    pub(super) fn write_records(&mut self) {
        if !self.agent.node.is_ready() {
            return;
        }
        let holds = self.agent.node.slices().into_iter().flat_map(|slice| slice.holds);
        let record = |hold: crate::node::SliceHold| Recorded {
            address: hold.address,
            container: hold.container().to_owned(),
            interface: hold.interface().to_owned(),
            pod: hold.pod.clone(),
        };
        self.api.slice.records = holds.map(record).collect();
    }

    /// Releases adopted addresses of containers that are gone.
    pub(super) fn look_at_pods(&mut self) {
        let unseen: Vec<HoldKey> = self.agent.node.unseen().into_iter().map(|hold| hold.key).collect();
        for key in unseen {
            if self.runtime.containers.keys().all(|known| known.container() != key.container()) {
                self.counts.count("adopted and released");
                let event = self.runtime.forget(key);
                self.event(event);
            }
        }
    }

    /// A cooling address is used only if no other suitable one is free.
    pub(super) fn check_nothing_else(&self, key: &HoldKey, given: Address) {
        let wish = wish(key);
        let range = wish.within.unwrap();
        let will_do = addresses(&range).filter(|it| wish.only.is_empty() || wish.only.contains(it));
        // The pod that had it may get its preferred address again.
        if wish.preferred == Some(given) {
            return;
        }
        for other in will_do {
            let free = matches!(self.agent.node.who(other), Who::Free { .. });
            assert!(!free, "{given} cooled and was given to {key}, and {other} was free");
        }
    }

    /// An address from a slice matches the request.
    pub(super) fn check_wish(&mut self, key: &HoldKey, address: Address) {
        let wish = wish(key);
        assert!(wish.within.as_ref().is_some_and(|range| range.contains(address)), "{key} got {address}");
        assert!(wish.only.is_empty() || wish.only.contains(&address), "{key} got {address}");
        if wish.lowest && wish.preferred != Some(address) {
            let range = wish.within.unwrap();
            let lower = addresses(&range).take_while(|lower| *lower < address);
            for lower in lower {
                let free = matches!(self.agent.node.who(lower), Who::Free { .. });
                assert!(!free, "{key} got {address}, and {lower} was free");
            }
        }
        self.counts.count("of a slice");
    }
}

/// The addresses that may be assigned, lowest first.
fn addresses(range: &Range) -> impl Iterator<Item = Address> {
    (0..range.count()).filter_map(|rank| range.nth(rank))
}
