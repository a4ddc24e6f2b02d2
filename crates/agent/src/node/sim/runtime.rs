//! The container runtime: it adds, repeats, deletes, and retries failed deletions.

use std::collections::{BTreeMap, BTreeSet};

use tenure_ipam::Addresses;

use super::api::POOL;
use super::dice::Dice;
use super::{claim, slice};
use crate::key::{HoldKey, Pod};
use crate::node::{Attach, Event, Ticket, Wiring, Wish};

const CONTAINERS: usize = 24;

#[derive(Debug, Default)]
pub(super) struct Runtime {
    pub(super) containers: BTreeMap<HoldKey, Container>,
    pub(super) calls: BTreeMap<Ticket, Call>,
    tickets: u64,
    /// Running containers that the agent may have forgotten. If another plugin created the interface and the journal was lost,
    /// the key of an address is unknown until others were asked. A runtime does not repeat the ADD of a running container, so
    /// the simulation does not either; it does for containers with a link of ours.
    pub(super) forgotten: BTreeSet<HoldKey>,
    /// Those of them whose pods were deleted by force: the API does not know them any more.
    pub(super) deleted: BTreeSet<HoldKey>,
    /// Whether it starts nothing new.
    pub(super) winding_up: bool,
}

/// A container, as the runtime sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Container {
    /// An ADD is in flight.
    Starting,
    /// Its ADD succeeded.
    Running(Addresses),
    /// It must be deleted: it ended, or its ADD failed.
    Ending,
    /// It should have been deleted, but the runtime forgot it.
    Lost,
    /// Its namespace is gone with everything in it, and nobody deletes it.
    Vanished,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Add(HoldKey),
    Del(HoldKey),
    Gc,
    Check(HoldKey),
}

impl Runtime {
    /// An action of the runtime.
    pub(super) fn act(&mut self, dice: &Dice) -> Option<Event> {
        let number = dice.below(CONTAINERS + slice::CONTAINERS + claim::CONTAINERS);
        let key = if number < slice::FIRST {
            HoldKey::new("net", format!("c{number}"), "eth0").unwrap()
        } else if number < CONTAINERS + slice::CONTAINERS {
            slice::key(number)
        } else {
            claim::key(number - CONTAINERS - slice::CONTAINERS)
        };
        let forgotten = self.forgotten.contains(&key) && !has_interface(&key);
        let busy = self.calls.values().any(|call| matches!(call, Call::Del(other) if *other == key));
        match self.containers.get(&key) {
            None if !self.winding_up => {
                self.containers.insert(key.clone(), Container::Starting);
                Some(self.add(key))
            }
            // DEL of a container that was never added.
            None => Some(self.del(key)),
            Some(Container::Starting | Container::Running(_))
                if dice.percent(25) && !self.winding_up && !forgotten =>
            {
                self.deleted.remove(&key);
                Some(self.add(key))
            }
            Some(Container::Running(_)) if dice.percent(10) => Some(self.check(key)),
            // Containers run for a while.
            Some(Container::Starting | Container::Running(_)) if dice.percent(60) && !self.winding_up => None,
            Some(Container::Starting | Container::Running(_)) => {
                self.containers.insert(key.clone(), Container::Ending);
                Some(self.del(key))
            }
            // A runtime that lost its state; only a GC helps.
            Some(Container::Ending) if !busy && dice.percent(4) => {
                self.containers.insert(key, Container::Lost);
                None
            }
            // A second DEL before the first is answered is rare.
            Some(Container::Ending) if !busy || dice.percent(10) => Some(self.del(key)),
            // A late DEL.
            Some(Container::Vanished) if !self.winding_up && dice.percent(10) => {
                self.containers.insert(key.clone(), Container::Ending);
                Some(self.del(key))
            }
            Some(Container::Ending | Container::Lost | Container::Vanished) => None,
        }
    }

    pub(super) fn gc(&mut self) -> Event {
        let alive = self.containers.iter().filter(|(_, state)| **state != Container::Lost);
        let alive = alive.map(|(key, _)| (key.container().to_owned(), key.interface().to_owned()));
        let alive: BTreeSet<_> = alive.collect();
        let ticket = self.ticket(Call::Gc);
        Event::Gc { ticket, network: "net".into(), alive }
    }

    /// The agent crashes: all calls in flight fail.
    pub(super) fn orphan(&mut self) {
        for call in std::mem::take(&mut self.calls).into_values() {
            if let Call::Add(key) = call
                && self.containers.get(&key) == Some(&Container::Starting)
            {
                self.containers.insert(key, Container::Ending);
            }
        }
    }

    /// Containers without a call in flight.
    pub(super) fn unattended(&self) -> Vec<HoldKey> {
        let spoken_of = |key: &HoldKey| {
            self.calls.values().any(|call| match call {
                Call::Add(other) | Call::Del(other) | Call::Check(other) => other == key,
                Call::Gc => true,
            })
        };
        let alone = self.containers.iter().filter(|(key, state)| {
            matches!(state, Container::Running(_) | Container::Lost) && !spoken_of(key)
        });
        alone.map(|(key, _)| key.clone()).collect()
    }

    fn add(&mut self, key: HoldKey) -> Event {
        let ticket = self.ticket(Call::Add(key.clone()));
        Event::Add { ticket, attach: attach(key) }
    }

    fn del(&mut self, key: HoldKey) -> Event {
        let ticket = self.ticket(Call::Del(key.clone()));
        let interface = has_interface(&key);
        if slice::is_of_slice(&key) {
            return Event::Detach { ticket, key: key.part(0) };
        }
        Event::Del { ticket, key, interface }
    }

    /// This container is no longer needed.
    pub(super) fn forget(&mut self, key: HoldKey) -> Event {
        let ticket = self.ticket(Call::Del(key.clone()));
        Event::Del { ticket, key, interface: false }
    }

    fn check(&mut self, key: HoldKey) -> Event {
        let ticket = self.ticket(Call::Check(key.clone()));
        Event::Check { ticket, attach: attach(key), expected: Vec::new() }
    }

    fn ticket(&mut self, call: Call) -> Ticket {
        self.tickets += 1;
        self.calls.insert(Ticket(self.tickets), call);
        Ticket(self.tickets)
    }
}

/// Every third container gets its interface from another plugin.
pub(super) fn has_interface(key: &HoldKey) -> bool {
    let number: usize = key.container()[1..].parse().unwrap();
    !number.is_multiple_of(3) && !slice::is_of_slice(key)
}

fn attach(key: HoldKey) -> Attach {
    let wiring = has_interface(&key).then(Wiring::default);
    let netns = netns(&key);
    if slice::is_of_slice(&key) {
        let pod = pod(&key);
        let wish = slice::wish(&key);
        return Attach { key, pool: slice::POOL.to_owned(), pod, netns, wiring, wish, claim_use: None };
    }
    let pod = if claim::is_claim_user(&key) { claim::pod(&key) } else { pod(&key) };
    let (pool, wish) = (POOL.to_owned(), Wish::default());
    Attach { key, pool, pod, netns, wiring, wish, claim_use: None }
}

/// Several pods have the same name, one after the other or at the same time; their UIDs differ.
pub(super) fn pod(key: &HoldKey) -> Pod {
    let number: usize = key.container()[1..].parse().unwrap();
    Pod { namespace: "shop".into(), name: format!("web-{}", number % 4), uid: key.container().to_owned() }
}

/// The path of a container's namespace.
pub(super) fn netns(key: &HoldKey) -> String {
    format!("/run/netns/{}", key.container())
}
