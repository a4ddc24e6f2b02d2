//! Whereabouts' way of asking: a list of reservations, and requests on it.
//!
//! A [`Block`] decides the addresses; what is here is only whose they are. A reservation belongs to a pod's
//! interface (`podref`, `ifname`), so that a pod that is added again gets its address again, and is released
//! by its container (`id`, `ifname`), so that the late DEL of an old container does not release what its
//! successor was given.
//!
//! Records of old versions have no `ifname`. They belong to whichever interface of the pod asks first, which
//! then becomes theirs, and are released by their container alone.
//!
//! Records are written by others, too: several may name one pod interface, or one address, or an address
//! outside the range. All of them stay in the list until they are released, and no address that any of them
//! names is handed out.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_handles::Timestamp;

use crate::address::Address;
use crate::block::{Block, Choice, HoldError, ReplayError, Sequence};
use crate::space::Space;

/// An address and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The container.
    pub id: String,
    /// The pod, as `namespace/name`.
    pub podref: String,
    /// The pod's UID; empty where it is not known.
    pub uid: String,
    /// The interface; empty in old records.
    pub ifname: String,
    /// The address.
    pub address: Address,
}

/// A pod's interface asking for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The container.
    pub id: &'a str,
    /// The pod, as `namespace/name`.
    pub podref: &'a str,
    /// The interface.
    pub ifname: &'a str,
}

/// The reservations of one range.
#[derive(Debug)]
pub struct Reservations {
    /// Who has which address: a holder is the number of its reservation.
    block: Block<u64>,
    /// In the order in which they were made or read.
    list: BTreeMap<u64, Reservation>,
    next: u64,
    /// Pod and interface → reservations, first one first. Several only in records of others.
    by_interface: BTreeMap<(String, String), Vec<u64>>,
    /// Container and interface → reservations, first one first.
    by_container: BTreeMap<(String, String), Vec<u64>>,
    /// Reservations that are in the list and not in the block: their address is not in the space, or another
    /// reservation names it, too.
    beside: usize,
}

impl Reservations {
    /// The reservations that a record has.
    pub fn new(space: impl Into<Space>, list: impl IntoIterator<Item = Reservation>) -> Self {
        let mut reservations = Self {
            block: Block::new(space, Duration::ZERO),
            list: BTreeMap::new(),
            next: 0,
            by_interface: BTreeMap::new(),
            by_container: BTreeMap::new(),
            beside: 0,
        };
        for reservation in list {
            let number = reservations.next;
            if reservations.replay(number, reservation.address).is_err() {
                reservations.beside += 1;
            }
            reservations.add(reservation);
        }
        reservations
    }

    /// Gives the pod's interface its address: the one it has, or the lowest free one.
    pub fn assign(&mut self, request: Request<'_>) -> Result<Address, HoldError> {
        let has = |ifname: &str| {
            let key = (request.podref.to_owned(), ifname.to_owned());
            self.by_interface.get(&key).and_then(|numbers| numbers.first().copied())
        };
        if let Some(number) = has(request.ifname).or_else(|| has(""))
            && let Some(known) = self.take(number)
        {
            let Reservation { podref, uid, address, .. } = known;
            let (id, ifname) = (request.id.to_owned(), request.ifname.to_owned());
            self.put(number, Reservation { id, podref, uid, ifname, address });
            return Ok(address);
        }
        let hold = self.block.hold(self.next, Choice::LowestFree, Timestamp::default())?.hold();
        let family = self.block.space().primary().family();
        let address =
            Address::masked(family, self.block.space().primary().cidr().first().bits() + hold.offset);
        let (id, podref, ifname) = (request.id.into(), request.podref.into(), request.ifname.into());
        self.add(Reservation { id, podref, uid: String::new(), ifname, address });
        Ok(address)
    }

    /// Releases the address of a container's interface; `None` if it has none. Of several, the first.
    pub fn release(&mut self, id: &str, ifname: &str) -> Option<Address> {
        let has = |ifname: &str| {
            let key = (id.to_owned(), ifname.to_owned());
            self.by_container.get(&key).and_then(|numbers| numbers.first().copied())
        };
        let number = has(ifname).or_else(|| has(""))?;
        let address = self.take(number)?.address;
        match self.block.find(&number).map(|hold| hold.sequence) {
            None => self.beside -= 1,
            Some(sequence) => self.vacate(number, sequence, address),
        }
        Some(address)
    }

    /// The reservations, in the order in which they were made or read.
    pub fn list(&self) -> impl Iterator<Item = &Reservation> {
        self.list.values()
    }

    /// The block that decides.
    pub fn block(&self) -> &Block<u64> {
        &self.block
    }

    fn replay(&mut self, number: u64, address: Address) -> Result<(), ReplayError> {
        self.block.replay(number, address, None).map(|_| ())
    }

    /// Frees an address, unless another reservation names it, too.
    fn vacate(&mut self, number: u64, sequence: Sequence, address: Address) {
        self.block.release(&number, sequence, Timestamp::default());
        if self.beside > 0
            && let Some((&heir, _)) = self.list.iter().find(|(_, other)| other.address == address)
            && self.replay(heir, address).is_ok()
        {
            self.beside -= 1;
        }
    }

    fn add(&mut self, reservation: Reservation) {
        let number = self.next;
        self.next += 1;
        self.put(number, reservation);
    }

    fn put(&mut self, number: u64, reservation: Reservation) {
        let Reservation { id, podref, ifname, .. } = &reservation;
        for (index, owner) in [(&mut self.by_interface, podref), (&mut self.by_container, id)] {
            let numbers = index.entry((owner.clone(), ifname.clone())).or_default();
            numbers.insert(numbers.partition_point(|other| *other < number), number);
        }
        self.list.insert(number, reservation);
    }

    fn take(&mut self, number: u64) -> Option<Reservation> {
        let reservation = self.list.remove(&number)?;
        let Reservation { id, podref, ifname, .. } = &reservation;
        for (index, owner) in [(&mut self.by_interface, podref), (&mut self.by_container, id)] {
            let key = (owner.clone(), ifname.clone());
            if let Some(numbers) = index.get_mut(&key) {
                numbers.retain(|other| *other != number);
                if numbers.is_empty() {
                    index.remove(&key);
                }
            }
        }
        Some(reservation)
    }
}

#[cfg(test)]
mod proptests;
#[cfg(test)]
mod tests;
