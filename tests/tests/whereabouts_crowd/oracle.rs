//! What was promised to whom: the one who notices when an address is told to two.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_tests::whereabouts::now;

/// A pod's interface that was told its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Living {
    pub node: usize,
    pub network: usize,
    /// Among which an address is held once.
    pub domain: &'static str,
    pub podref: String,
    pub ifname: String,
    pub container: String,
    pub addresses: Vec<IpAddr>,
}

impl Living {
    /// Who it is, whatever container it runs in.
    fn owner(&self) -> (&str, &str) {
        (&self.podref, &self.ifname)
    }
}

/// Knows every promise, and compares each new one with it.
#[derive(Default)]
pub struct Oracle {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// By container and interface.
    living: BTreeMap<(String, String), Living>,
    holders: BTreeMap<(&'static str, IpAddr), (String, String)>,
    count: Count,
    wrong: Vec<String>,
    /// By verb and network.
    took: BTreeMap<(String, &'static str), Vec<Duration>>,
}

/// How much happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    pub adds: usize,
    /// ADDs that got none because there was none.
    pub exhausted: usize,
    /// Calls that were told to try again.
    pub later: usize,
    pub repeated: usize,
    pub checks: usize,
    pub dels: usize,
    pub collections: usize,
    pub foreign: usize,
}

impl Oracle {
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

    /// Counts.
    pub fn counting(&self, count: impl FnOnce(&mut Count)) {
        count(&mut self.known().count);
    }

    /// A call was answered.
    pub fn took(&self, verb: &str, network: &'static str, time: Duration) {
        self.known().took.entry((verb.to_owned(), network)).or_default().push(time);
    }

    /// How long calls took: how many, the middle one and the longest, in milliseconds.
    pub fn times(&self) -> String {
        let mut known = self.known();
        let each = known.took.iter_mut().map(|((verb, network), times)| {
            times.sort_unstable();
            let (count, middle, longest) = (times.len(), times[times.len() / 2], times[times.len() - 1]);
            format!("{verb} {network}: {count}, {}, {}", middle.as_millis(), longest.as_millis())
        });
        each.collect::<Vec<_>>().join("\n")
    }

    /// Who lives, by container and interface.
    pub fn living(&self) -> Vec<Living> {
        self.known().living.values().cloned().collect()
    }

    /// An ADD was answered with addresses. A new container of a pod may have what the one before had.
    pub fn added(&self, living: &Living) {
        let mut known = self.known();
        let place = (living.container.clone(), living.ifname.clone());
        for address in &living.addresses {
            let Some(holder) = known.holders.insert((living.domain, *address), place.clone()) else {
                continue;
            };
            if holder == place {
                known.blame(format!("{address} was told twice in one answer, or again, to {living:?}"));
                continue;
            }
            let other = known.living.get_mut(&holder).map(|other| {
                other.addresses.retain(|it| it != address);
                other.clone()
            });
            if other.as_ref().is_none_or(|other| other.owner() != living.owner()) {
                known.blame(format!("{address} was told to {living:?} while {other:?} has it"));
            }
        }
        if known.living.insert(place, living.clone()).is_some() {
            known.blame(format!("{living:?} lived already"));
        }
    }

    /// From now on a container's addresses may be free.
    pub fn ending(&self, container: &str, ifname: &str) {
        let mut known = self.known();
        let place = (container.to_owned(), ifname.to_owned());
        let Some(living) = known.living.remove(&place) else { return };
        for address in living.addresses {
            known.holders.remove(&(living.domain, address));
        }
    }
}

impl Known {
    fn blame(&mut self, what: impl Display) {
        self.wrong.push(format!("{:.3} s: {what}", now().as_secs_f64()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn living(pod: &str, container: &str, domain: &'static str, address: &str) -> Living {
        Living {
            node: 0,
            network: 0,
            domain,
            podref: format!("default/{pod}"),
            ifname: "net1".to_owned(),
            container: container.to_owned(),
            addresses: vec![address.parse().unwrap()],
        }
    }

    #[test]
    fn an_address_that_is_told_to_two_is_noticed_and_what_is_no_mistake_is_not() {
        let oracle = Oracle::default();
        oracle.added(&living("a", "a1", "", "10.0.0.1"));
        oracle.added(&living("b", "b1", "blue", "10.0.0.1"));
        oracle.added(&living("a", "a2", "", "10.0.0.1"));
        oracle.ending("a1", "net1");
        assert_eq!(oracle.wrong(), Vec::<String>::new());
        assert_eq!(oracle.living().len(), 2);
        oracle.added(&living("c", "c1", "", "10.0.0.1"));
        assert_eq!(oracle.wrong().len(), 1, "a2 has it");
        oracle.ending("b1", "net1");
        oracle.added(&living("d", "d1", "blue", "10.0.0.1"));
        assert_eq!(oracle.wrong().len(), 1);
        oracle.added(&living("d", "d1", "blue", "10.0.0.1"));
        assert_eq!(oracle.wrong().len(), 3, "it lived already, and has it");
    }
}
