//! What was promised to whom: the one who notices when an address is told to two, or too early to the next.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ipnet::IpNet;

use crate::plan::{NODES, Pool};
use tenure_tests::chaos::course::{Moment, now};

/// A container that was told its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Living {
    /// The number of its node.
    pub node: usize,
    pub container: String,
    /// Of its pod.
    pub namespace: String,
    pub pod: String,
    pub addresses: Vec<IpAddr>,
}

/// How long ago a try may have failed whose address still cools: its DEL may have waited for the agent to come back.
const LONG_AGO: Duration = Duration::from_secs(30);

/// Knows every promise, and compares each new one with it.
pub struct Oracle {
    cooling: Duration,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    living: BTreeMap<String, Living>,
    holders: BTreeMap<IpAddr, String>,
    freed: BTreeMap<IpAddr, Freed>,
    /// When tries failed, by node: addresses may cool that nobody was told.
    failed: [Vec<Moment>; NODES],
    /// How many tries are under way, by node.
    under_way: [usize; NODES],
    count: Count,
    wrong: Vec<String>,
}

struct Freed {
    node: usize,
    container: String,
    at: Moment,
}

/// How much happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    pub adds: usize,
    pub refused: usize,
    pub dels: usize,
    pub reused: usize,
    /// Of these, how many before they had cooled.
    pub gave_way: usize,
    /// How many addresses were of what a pool has grown by.
    pub grown: usize,
}

impl Oracle {
    pub fn new(cooling: Duration) -> Self {
        Self { cooling, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that something happened that must not.
    pub fn blame(&self, what: impl Display) {
        self.known().blame(what);
    }

    /// What happened that must not.
    pub fn wrong(&self) -> Vec<String> {
        self.known().wrong.clone()
    }

    pub fn count(&self) -> Count {
        self.known().count
    }

    /// Who lives, by container.
    pub fn living(&self) -> Vec<Living> {
        self.known().living.values().cloned().collect()
    }

    /// An ADD begins.
    pub fn begin(&self, node: usize) {
        self.known().under_way[node] += 1;
    }

    /// An ADD came to nothing.
    pub fn failed(&self, node: usize) {
        let mut known = self.known();
        known.under_way[node] -= 1;
        known.count.refused += 1;
        known.failed[node].push(now());
    }

    /// An ADD was answered with addresses.
    pub fn added(&self, living: Living, pool: Pool) {
        let mut known = self.known();
        known.under_way[living.node] -= 1;
        known.count.adds += 1;
        for address in &living.addresses {
            if let Some(other) = known.holders.get(address).cloned() {
                known.blame(format!("{address} was told to {living:?} while {other} has it"));
            }
            self.reuse(&mut known, *address, &living, pool);
            known.count.grown += usize::from(is_grown(*address, pool));
            known.holders.insert(*address, living.container.clone());
        }
        known.living.insert(living.container.clone(), living);
    }

    /// A DEL begins: from now on the container's addresses may be free.
    pub fn ending(&self, container: &str) {
        let mut known = self.known();
        known.count.dels += 1;
        let Some(living) = known.living.remove(container) else { return };
        for address in living.addresses {
            known.holders.remove(&address);
            let freed = Freed { node: living.node, container: container.to_owned(), at: now() };
            known.freed.insert(address, freed);
        }
    }

    /// That an address had cooled, or gave way because there was no other.
    fn reuse(&self, known: &mut Known, address: IpAddr, to: &Living, pool: Pool) {
        let Some(freed) = known.freed.remove(&address) else { return };
        known.count.reused += 1;
        let after = now().saturating_sub(freed.at);
        if after >= self.cooling {
            return;
        }
        known.count.gave_way += 1;
        let of = freed.container;
        if freed.node != to.node {
            known.blame(format!(
                "{address} of {of} on node {} was told to {to:?} after {after:?}",
                freed.node
            ));
        } else if let IpAddr::V4(address) = address
            && let Some(idle) = known.idle(address, to.node, pool, self.cooling)
        {
            known.blame(format!("{address} of {of} was told to {to:?} after {after:?}, and {idle} was free"));
        }
    }
}

/// Whether a pool has an address only because it has grown.
fn is_grown(address: IpAddr, pool: Pool) -> bool {
    let first = pool.first();
    let mut first = first.as_object().unwrap().values().map(|it| it.as_str().unwrap());
    !first.any(|network| network.parse::<IpNet>().unwrap().contains(&address))
}

impl Known {
    fn blame(&mut self, what: impl Display) {
        self.wrong.push(format!("{:.3} s: {what}", now().as_secs_f64()));
    }

    /// An address of the same block that nobody had and that did not cool, as far as one can know from outside: there may
    /// be one for each try that failed or is under way.
    fn idle(&self, address: Ipv4Addr, node: usize, pool: Pool, cooling: Duration) -> Option<Ipv4Addr> {
        let size: u32 = match pool {
            Pool::Default => 8,
            Pool::Small => 2,
        };
        let first = address.to_bits() & !(size - 1);
        let others = (first..first + size).map(Ipv4Addr::from_bits).filter(|other| *other != address);
        let recently = |at: Moment, limit| now().saturating_sub(at) < limit;
        let idle: Vec<Ipv4Addr> = others
            .filter(|other| {
                let other = IpAddr::V4(*other);
                let freed = self.freed.get(&other).is_some_and(|it| recently(it.at, cooling + LONG_AGO));
                !freed && !self.holders.contains_key(&other)
            })
            .collect();
        let failed = self.failed[node].iter().filter(|at| recently(**at, cooling + LONG_AGO)).count();
        idle.get(failed + self.under_way[node]).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tell(oracle: &Oracle, node: usize, container: &str, address: &str) {
        let addresses = vec![address.parse().unwrap()];
        let (namespace, pod) = ("default".to_owned(), container.to_owned());
        oracle.begin(node);
        let living = Living { node, container: container.to_owned(), namespace, pod, addresses };
        oracle.added(living, Pool::Small);
    }

    #[test]
    fn an_address_that_is_told_to_two_is_noticed() {
        let oracle = Oracle::new(Duration::ZERO);
        tell(&oracle, 0, "one", "10.0.0.0");
        tell(&oracle, 0, "other", "10.0.0.1");
        assert_eq!(oracle.wrong(), Vec::<String>::new());
        tell(&oracle, 1, "third", "10.0.0.0");
        assert!(oracle.wrong()[0].contains("while one has it"), "{:?}", oracle.wrong());
        // What has cooled may be told to anybody.
        oracle.ending("other");
        tell(&oracle, 2, "fourth", "10.0.0.1");
        assert_eq!((oracle.wrong().len(), oracle.living().len()), (1, 3));
    }

    #[test]
    fn an_address_that_is_told_too_early_is_noticed_unless_there_was_no_other() {
        let oracle = Oracle::new(Duration::from_hours(1));
        tell(&oracle, 0, "one", "10.0.0.0");
        oracle.ending("one");
        tell(&oracle, 0, "other", "10.0.0.0");
        assert!(oracle.wrong()[0].contains("10.0.0.1 was free"), "{:?}", oracle.wrong());
        tell(&oracle, 0, "third", "10.0.0.1");
        oracle.ending("other");
        tell(&oracle, 0, "fourth", "10.0.0.0");
        assert_eq!(oracle.wrong().len(), 1, "it gave way");
        oracle.ending("fourth");
        tell(&oracle, 1, "fifth", "10.0.0.0");
        assert_eq!(oracle.wrong().len(), 2, "another node knows nothing of what cools");
    }
}
