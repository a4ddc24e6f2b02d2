//! Names and indexes of tunnel devices: finds the existing device of a tunnel, or chooses a name and an index.
//!
//! A device is identified by the ends in its alias, never by its name: names of IPv6 tunnels are parts of a hash, and
//! somebody who may choose addresses can find a collision. Then the second one gets another name.

use std::collections::{BTreeMap, BTreeSet};

use super::devices::{FIRST_TUNNEL, Tunnel, ends_of};
use crate::link::Link;

/// The names and indexes of a namespace's tunnels.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Devices with an alias, by their ends.
    known: BTreeMap<String, (u32, String)>,
    /// Devices without an alias, by name: of interrupted attempts.
    unfinished: BTreeMap<String, u32>,
    numbers: BTreeSet<u32>,
    names: BTreeSet<String>,
}

impl Places {
    /// Of a namespace with these devices.
    pub(super) fn of(links: &[Link]) -> Self {
        let mut places = Self::default();
        for link in links {
            places.numbers.insert(link.index);
            places.names.insert(link.name.clone());
            match link.alias.as_deref() {
                Some(alias) => {
                    if let Some(ends) = ends_of(alias) {
                        places.known.insert(ends.to_owned(), (link.index, link.name.clone()));
                    }
                }
                None => drop(places.unfinished.insert(link.name.clone(), link.index)),
            }
        }
        places
    }

    /// The index and name of a tunnel's device, existing or not.
    pub(super) fn find(&mut self, tunnel: &Tunnel) -> (u32, String) {
        let ends = tunnel.ends();
        if let Some(place) = self.known.get(&ends) {
            return place.clone();
        }
        let mut attempt = 0;
        let (index, name) = loop {
            let name = tunnel.name(attempt);
            if let Some(index) = self.unfinished.remove(&name) {
                break (index, name);
            }
            if self.names.insert(name.clone()) {
                // Above all others, because searching for a gap takes longer the more clients there are.
                break (self.numbers.last().map_or(FIRST_TUNNEL, |last| FIRST_TUNNEL.max(*last + 1)), name);
            }
            attempt += 1;
        };
        self.numbers.insert(index);
        self.known.insert(ends, (index, name.clone()));
        (index, name)
    }

    /// A tunnel's device is gone.
    pub(super) fn forget(&mut self, tunnel: &Tunnel) {
        if let Some((index, name)) = self.known.remove(&tunnel.ends()) {
            self.numbers.remove(&index);
            self.names.remove(&name);
        }
    }
}
