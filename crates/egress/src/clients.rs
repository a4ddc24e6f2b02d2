//! Who is a client when: objects in, addresses to serve out. No I/O, and no clock.
//!
//! ```text
//!              an object lists it
//!   unknown ─────────────────────────▶ listed ◀─────────────┐
//!      ▲                                 │ no object lists  │ an object lists it
//!      │  GRACE is over                  ▼ it any more      │
//!      └────────────────────────────── leaving ─────────────┘
//!                        served: listed and leaving
//! ```
//!
//! An address is served while *any* object lists it, for whichever pod. So an address that one pod leaves to another, on the
//! same node or on another, keeps its tunnel in every order of events, and the end of one pod takes it from no other.
//!
//! It is served for [`GRACE`] longer. When an address moves to another node, two agents write two objects, and between the
//! two writes nobody lists it. Without grace the gateway would cut a connection that is alive. What it costs: for these
//! seconds a pod that gets the address right after another one could have itself served if it knew how; addresses cool down
//! longer than that before they are given again.
//!
//! What objects say is read suspiciously: nodes write them, and one of them may be broken or worse. An address that cannot
//! be a client's is left out and counted, and there are limits to everything.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use tenure_api::coil::egress::EgressClientsSpec;

/// How long an address is served that no object lists any more.
pub const GRACE: Duration = Duration::from_secs(2);
/// The most pods of one object, as its schema says.
const MOST_PODS: usize = 1024;
/// The most addresses of one pod, as the schema says.
const MOST_ADDRESSES: usize = 4;
/// The most addresses that one gateway serves: as many as it has ports.
pub const MOST_CLIENTS: usize = 65_536;

/// A pod that is a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its namespace.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its addresses that can be served.
    pub addresses: Box<[IpAddr]>,
}

/// Who is a client now.
#[derive(Debug)]
pub struct Clients {
    /// The gateway's own addresses, which are nobody else's.
    own: Vec<IpAddr>,
    objects: BTreeMap<String, Object>,
    addresses: BTreeMap<IpAddr, Presence>,
    /// During a list: the objects that it has not mentioned yet.
    unseen: Option<BTreeSet<String>>,
    complete: bool,
}

#[derive(Debug, Default)]
struct Object {
    pods: Vec<Pod>,
    unusable: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    /// So many pods of objects have it.
    Listed(usize),
    /// None has, and it is served until then.
    Leaving(Duration),
}

impl Clients {
    /// Nobody yet, for a gateway with these addresses.
    pub fn new(own: Vec<IpAddr>) -> Self {
        let (objects, addresses) = (BTreeMap::new(), BTreeMap::new());
        Self { own, objects, addresses, unseen: None, complete: false }
    }

    /// A list of all objects begins. What it does not mention is gone when it ends, and not before.
    pub fn begin(&mut self) {
        self.unseen = Some(self.objects.keys().cloned().collect());
    }

    /// An object is there and says this.
    pub fn apply(&mut self, name: &str, spec: &EgressClientsSpec, now: Duration) {
        self.mention(name);
        let object = self.read(spec);
        // First those who come, then those who go: who does both is never gone.
        for address in object.pods.iter().flat_map(|pod| &pod.addresses) {
            match self.addresses.entry(*address).or_insert(Presence::Listed(0)) {
                Presence::Listed(pods) => *pods += 1,
                leaving @ Presence::Leaving(_) => *leaving = Presence::Listed(1),
            }
        }
        let before = self.objects.insert(name.to_owned(), object);
        self.release(before.as_ref(), now);
    }

    /// An object is there and cannot be read: what it said before holds.
    pub fn keep(&mut self, name: &str) {
        self.mention(name);
    }

    /// An object is gone.
    pub fn remove(&mut self, name: &str, now: Duration) {
        self.mention(name);
        let before = self.objects.remove(name);
        self.release(before.as_ref(), now);
    }

    /// The list is complete.
    pub fn finish(&mut self, now: Duration) {
        for name in self.unseen.take().unwrap_or_default() {
            let before = self.objects.remove(&name);
            self.release(before.as_ref(), now);
        }
        self.complete = true;
    }

    /// Lets those go whose time is over. Says when the next one's is.
    pub fn expire(&mut self, now: Duration) -> Option<Duration> {
        self.addresses.retain(|_, presence| !matches!(presence, Presence::Leaving(until) if *until <= now));
        let leaving = self.addresses.values().filter_map(|presence| match presence {
            Presence::Leaving(until) => Some(*until),
            Presence::Listed(_) => None,
        });
        leaving.min()
    }

    /// Whether a first list is complete: before, nobody knows who is missing.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Who is to be served.
    pub fn served(&self) -> BTreeSet<IpAddr> {
        self.addresses.keys().copied().collect()
    }

    /// The pods that are clients.
    pub fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.objects.values().flat_map(|object| &object.pods)
    }

    /// How many addresses were left out because they cannot be a client's, or are too many.
    pub fn unusable(&self) -> usize {
        self.objects.values().map(|object| object.unusable).sum()
    }

    fn mention(&mut self, name: &str) {
        if let Some(unseen) = &mut self.unseen {
            unseen.remove(name);
        }
    }

    fn read(&self, spec: &EgressClientsSpec) -> Object {
        let mut object =
            Object { unusable: spec.clients.len().saturating_sub(MOST_PODS), ..Object::default() };
        let mut new = BTreeSet::new();
        for pod in spec.clients.iter().take(MOST_PODS) {
            let mut addresses = Vec::new();
            for text in pod.addresses.iter().take(MOST_ADDRESSES) {
                let address = text.parse().ok().filter(|address| self.can_be_a_client(*address));
                let address = address.filter(|address| {
                    let known = self.addresses.contains_key(address) || new.contains(address);
                    known || self.addresses.len() + new.len() < MOST_CLIENTS && new.insert(*address)
                });
                match address {
                    Some(address) => addresses.push(address),
                    None => object.unusable += 1,
                }
            }
            object.unusable += pod.addresses.len().saturating_sub(MOST_ADDRESSES);
            let (namespace, name) = (pod.namespace.as_str().into(), pod.pod.as_str().into());
            object.pods.push(Pod { namespace, name, addresses: addresses.into() });
        }
        object
    }

    /// Whether one host somewhere else can have the address.
    fn can_be_a_client(&self, address: IpAddr) -> bool {
        let of_one_host = match address {
            IpAddr::V4(v4) => {
                !v4.is_broadcast() && !v4.is_link_local() && v4.octets()[0] != 0 && v4.octets()[0] < 240
            }
            IpAddr::V6(v6) => v6.to_ipv4_mapped().is_none() && !v6.is_unicast_link_local(),
        };
        let of_nobody = address.is_unspecified() || address.is_loopback() || address.is_multicast();
        of_one_host && !of_nobody && !self.own.contains(&address)
    }

    /// An object does not list these any more.
    fn release(&mut self, object: Option<&Object>, now: Duration) {
        for address in object.into_iter().flat_map(|object| &object.pods).flat_map(|pod| &pod.addresses) {
            if let Some(Presence::Listed(pods)) = self.addresses.get_mut(address) {
                *pods -= 1;
                if *pods == 0 {
                    self.addresses.insert(*address, Presence::Leaving(now + GRACE));
                }
            }
        }
    }
}

#[cfg(test)]
mod proptests;
#[cfg(test)]
mod tests;
