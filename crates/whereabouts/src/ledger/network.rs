//! The known state of one network: its objects, and the holders of their addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tenure_api::whereabouts::{Allocation, IPPool, OverlappingRangeIPReservation, label, reservation_name};
use tenure_handles::Timestamp;
use tenure_ipam::{Address, Cidr, IntervalSet};

use super::index::Index;
use super::object::{Object, bytes, is_older};
use super::plan::{Plan, Planner};
use super::{PoolId, PoolWrite, Request, Spread, State, Who};

/// The ledgers of one `network_name`.
#[derive(Clone, Debug)]
pub struct Network {
    name: String,
    pub(super) objects: BTreeMap<String, Object>,
    /// A pool's objects, by number.
    pub(super) pools: BTreeMap<PoolId, BTreeMap<u128, String>>,
    held: BTreeMap<PoolId, Held>,
    pub(super) index: Index,
    pub(super) reservations: BTreeMap<Address, Reserved>,
    reserved_by: BTreeMap<(String, String), BTreeSet<Address>>,
    pub(super) always_reserve: bool,
    /// The node whose agent plans.
    pub(super) node: Option<String>,
    /// Whether something was seen that may be a sign of unseen changes.
    moved: bool,
}

/// The addresses in a pool's records, as numbers.
#[derive(Clone, Debug, Default)]
struct Held {
    set: IntervalSet,
    /// How many records beyond the first name an address: only records of others do.
    again: BTreeMap<u128, u32>,
}

/// The holder of an address in all ranges of the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reserved {
    pub(super) name: String,
    pub(super) uid: Option<String>,
    pub(super) podref: String,
    pub(super) ifname: String,
    /// The container, to distinguish pods of the same name.
    pub(super) container: String,
}

/// How many addresses of a pool are held, and how many are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Records.
    pub used: u128,
    /// Addresses of the range, including the first and last, without a record.
    pub free: u128,
}

impl Network {
    /// A network of which nothing is known yet.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            objects: BTreeMap::new(),
            pools: BTreeMap::new(),
            held: BTreeMap::new(),
            index: Index::default(),
            reservations: BTreeMap::new(),
            reserved_by: BTreeMap::new(),
            always_reserve: false,
            node: None,
            moved: false,
        }
    }

    /// Whether every address of a range that may overlap others gets a reservation, even if none does: needed
    /// while Whereabouts writes to the same objects, which knows our addresses only by their reservations.
    #[must_use]
    pub fn reserving_always(mut self, always: bool) -> Self {
        self.always_reserve = always;
        self
    }

    /// Plans for the agent of this node, and its records say so.
    #[must_use]
    pub fn written_by(mut self, node: &str) -> Self {
        self.node = Some(node.to_owned()).filter(|node| !node.is_empty());
        self
    }

    /// Like [`Network::plan`], but the objects say that freed addresses cool for so long. Only the controller
    /// writes that: there is one controller, and agents respect what it wrote.
    pub fn plan_with_rest(
        &self,
        requests: Vec<Request>,
        rest: Duration,
        spread: &Spread,
        now: Timestamp,
    ) -> Plan {
        Planner::new(self, spread, now).letting_rest(rest).plan(requests)
    }

    /// The writes for these requests. `spread` says where to start the search for free addresses.
    pub fn plan(&self, requests: Vec<Request>, spread: &Spread, now: Timestamp) -> Plan {
        Planner::new(self, spread, now).plan(requests)
    }

    /// An `IPPool` was read or written. One that is older than what is known says that the database was restored from a backup: all
    /// are to be read then ([`Network::take_moved`]). Other networks' pools are left aside; `is_node` says which names are nodes'.
    pub fn see_pool(&mut self, pool: &IPPool, is_node: impl Fn(&str) -> bool) -> Option<PoolId> {
        let (id, number) = PoolId::of_object(&self.name, pool, is_node)?;
        let name = pool.metadata.name.clone()?;
        let known = self.objects.remove(&name);
        if let Some(known) = known {
            let is_older = is_older(pool.metadata.resource_version.as_ref(), known.version.as_ref());
            self.moved |= is_older || known.is_otherwise(&pool.metadata);
            let gone =
                known.records.iter().filter(|(key, record)| pool.spec.allocations.get(*key) != Some(record));
            for (key, record) in gone {
                self.drop_record(&name, &known, key, record);
            }
            let object = Object::new(id.clone(), number, pool);
            let new = object.records.iter().filter(|(key, record)| known.records.get(*key) != Some(record));
            for (key, record) in new {
                self.add_record(&name, &object, key, record);
            }
            self.objects.insert(name, object);
        } else {
            self.moved = true;
            let object = Object::new(id.clone(), number, pool);
            for (key, record) in &object.records {
                self.add_record(&name, &object, key, record);
            }
            self.pools.entry(id.clone()).or_default().insert(number, name.clone());
            self.objects.insert(name, object);
        }
        Some(id)
    }

    /// Updates the state after our own write, with the object's new metadata. Returns whether nobody else
    /// changed its records since they were seen: then they are known, otherwise they must be read.
    pub fn wrote(&mut self, write: &PoolWrite, metadata: &ObjectMeta) -> bool {
        let Some(mut object) = self.objects.remove(&write.name) else { return false };
        let next = object.generation.map(|generation| generation + 1);
        let only_ours = next.is_some() && metadata.generation == next;
        if only_ours {
            for (key, before, after) in write.edits() {
                if let Some(before) = before {
                    self.drop_record(&write.name, &object, key, before);
                    object.bytes = object.bytes.saturating_sub(bytes(key, before));
                    object.records.remove(key);
                }
                if let Some(after) = after {
                    self.add_record(&write.name, &object, key, after);
                    object.bytes += bytes(key, after);
                    object.records.insert(key.to_owned(), after.clone());
                }
            }
            self.moved |= object.is_otherwise(metadata);
            object.see_metadata(metadata);
        }
        self.objects.insert(write.name.clone(), object);
        only_ours
    }

    /// The addresses that a write frees.
    pub fn freed_by(&self, write: &PoolWrite) -> Vec<Address> {
        let Some(object) = self.objects.get(&write.name) else { return Vec::new() };
        let removed = write.edits().filter(|(_, before, after)| before.is_some() && after.is_none());
        removed.filter_map(|(key, ..)| object.address(key)).collect()
    }

    /// Updates the state from an object's metadata. Returns whether its cached records are current.
    pub fn confirms(&mut self, name: &str, metadata: &ObjectMeta) -> bool {
        let Some(object) = self.objects.get_mut(name) else { return false };
        let same = object.generation.is_some() && object.generation == metadata.generation;
        if same {
            self.moved |= object.is_otherwise(metadata);
            object.see_metadata(metadata);
        }
        same
    }

    /// Whether an object was seen for the first time, or its state changed, since the last call. Then the
    /// cached state of the others may be older than what that object's writers rely on: all must be read, and
    /// then nothing has moved.
    pub fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// The objects of a pool, by number.
    pub fn objects_of(&self, id: &PoolId) -> impl Iterator<Item = (u128, &str)> {
        self.pools.get(id).into_iter().flatten().map(|(number, name)| (*number, name.as_str()))
    }

    /// Which pool an object is of.
    pub fn pool_of(&self, name: &str) -> Option<&PoolId> {
        self.objects.get(name).map(|object| &object.id)
    }

    /// The state in an object's annotation.
    pub fn state_of(&self, name: &str) -> Option<State> {
        self.objects.get(name).map(|object| object.state)
    }

    /// An `IPPool` is gone.
    pub fn forget_pool(&mut self, name: &str) {
        let Some(object) = self.objects.remove(name) else { return };
        for (key, record) in &object.records {
            self.drop_record(name, &object, key, record);
        }
        if let Some(objects) = self.pools.get_mut(&object.id) {
            objects.remove(&object.number);
            if objects.is_empty() {
                self.pools.remove(&object.id);
                self.held.remove(&object.id);
            }
        }
    }

    /// Updates the state from a reservation that was made or reported.
    pub fn see_reservation(&mut self, reservation: &OverlappingRangeIPReservation) -> Option<Address> {
        let address = reserved_address(&self.name, reservation)?;
        self.forget_address(address);
        let spec = &reservation.spec;
        let reserved = Reserved {
            name: reservation.metadata.name.clone()?,
            uid: reservation.metadata.uid.clone(),
            podref: spec.podref.clone(),
            ifname: spec.ifname.clone().unwrap_or_default(),
            container: spec.containerid.clone().unwrap_or_default(),
        };
        let owner = (reserved.podref.clone(), reserved.ifname.clone());
        self.reserved_by.entry(owner).or_default().insert(address);
        self.reservations.insert(address, reserved);
        Some(address)
    }

    /// A reservation is gone.
    pub fn forget_reservation(&mut self, name: &str) {
        if let Some(address) = address_of_name(&self.name, name)
            && self.reservations.get(&address).is_some_and(|reserved| reserved.name == name)
        {
            self.forget_address(address);
        }
    }

    /// Forgets all reservations: all of them will be reported again.
    pub fn forget_reservations(&mut self) {
        self.reservations.clear();
        self.reserved_by.clear();
    }

    /// Whether the object is still what a write to it was planned for, as far as known.
    pub fn is_as_planned(&self, write: &PoolWrite) -> bool {
        self.objects.get(&write.name).is_some_and(|object| {
            let same = |(key, before, _): (&str, Option<&Allocation>, _)| object.records.get(key) == before;
            let cools = write.cooling.as_ref().is_none_or(|change| change.before == object.said_cooling);
            (!write.adds() || write.agrees(object)) && cools && write.edits().all(same)
        })
    }

    /// The addresses of a pod's interface in all pools, without those of another pod of the same name.
    pub fn held_by(&self, who: &Who) -> Vec<(PoolId, Address)> {
        let places = self.index.of_interface(&who.podref, &who.ifname);
        let held = places.filter_map(|(name, key)| {
            let object = self.objects.get(name)?;
            object.records.get(key).filter(|record| who.owns(record))?;
            Some((object.id.clone(), object.address(key)?))
        });
        held.collect()
    }

    /// Used and free addresses of a pool, over all of its objects.
    pub fn usage(&self, id: &PoolId) -> Usage {
        let used = self.held.get(id).map_or(0, |held| held.set.len());
        Usage { used, free: id.range.size().saturating_sub(used) }
    }

    /// The known pools.
    pub fn pools(&self) -> impl Iterator<Item = &PoolId> {
        self.pools.keys()
    }

    /// The records of a pool: object, key, address and holder.
    pub fn records(&self, id: &PoolId) -> impl Iterator<Item = (&str, &str, Address, &Allocation)> {
        let names = self.pools.get(id).into_iter().flat_map(BTreeMap::values);
        names.filter_map(|name| Some((name.as_str(), self.objects.get(name)?))).flat_map(|(name, object)| {
            let of_key = move |(key, record)| Some((name, key, object.address(key)?, record));
            object
                .records
                .iter()
                .filter_map(move |(key, record): (&String, _)| of_key((key.as_str(), record)))
        })
    }

    /// The addresses in a pool's records, as numbers.
    pub(super) fn taken(&self, id: &PoolId) -> Option<&IntervalSet> {
        self.held.get(id).map(|held| &held.set)
    }

    /// The cooling addresses of this range according to the objects of all pools, and until when.
    pub fn cooling(&self, range: &Cidr, now: Timestamp) -> Vec<(Timestamp, Address)> {
        let objects = self.objects.values().filter(|object| object.id.range.overlaps(range));
        let cooling = objects.flat_map(|object| object.cooling.iter());
        cooling.filter(|(until, address)| *until > now && range.contains(*address)).copied().collect()
    }

    /// Whether a record of any pool names the address.
    pub(super) fn is_recorded(&self, address: Address) -> bool {
        let mut held = self.held.iter().filter(|(id, _)| id.range.contains(address));
        held.any(|(_, held)| held.set.contains(address.bits()))
    }

    /// The reservations of a container's interface.
    pub(super) fn reserved_for(&self, who: &Who) -> impl Iterator<Item = Address> {
        let owner = (who.podref.clone(), who.ifname.clone());
        let of_name = self.reserved_by.get(&owner).into_iter().flatten().copied();
        let is_its = |reserved: &Reserved| reserved.container == who.id;
        of_name.filter(move |address| self.reservations.get(address).is_some_and(is_its))
    }

    /// The state of a pool's first object.
    pub(super) fn state(&self, id: &PoolId) -> Option<State> {
        let name = self.pools.get(id)?.get(&0)?;
        self.objects.get(name).map(|object| object.state)
    }

    /// Whether all addresses of a pool are for slices, or are one, according to any of its objects. Only
    /// whoever sealed it removes the seal.
    pub(super) fn is_sealed(&self, id: &PoolId) -> bool {
        let mut objects = self.pools.get(id).into_iter().flat_map(BTreeMap::values);
        let state = |name: &String| self.objects.get(name).map(|object| object.state);
        objects.any(|name| matches!(state(name), Some(State::Sliced | State::Owned)))
    }

    /// The pools that share addresses with a range.
    pub(super) fn overlapping<'a>(&'a self, range: &'a Cidr) -> impl Iterator<Item = &'a PoolId> {
        self.pools.keys().filter(|id| id.range.overlaps(range))
    }

    fn add_record(&mut self, name: &str, object: &Object, key: &str, record: &Allocation) {
        self.index.insert(name, key, record);
        if let Some(address) = object.address(key) {
            let held = self.held.entry(object.id.clone()).or_default();
            if held.set.contains(address.bits()) {
                *held.again.entry(address.bits()).or_default() += 1;
            } else {
                held.set.insert(address.bits(), address.bits());
            }
        }
    }

    fn drop_record(&mut self, name: &str, object: &Object, key: &str, record: &Allocation) {
        self.index.remove(name, key, record);
        let Some(address) = object.address(key) else { return };
        let Some(held) = self.held.get_mut(&object.id) else { return };
        match held.again.get_mut(&address.bits()) {
            Some(again) if *again > 1 => *again -= 1,
            Some(_) => {
                held.again.remove(&address.bits());
            }
            None => held.set.remove(address.bits(), address.bits()),
        }
    }

    fn forget_address(&mut self, address: Address) {
        if let Some(old) = self.reservations.remove(&address) {
            let owner = (old.podref, old.ifname);
            if let Some(addresses) = self.reserved_by.get_mut(&owner) {
                addresses.remove(&address);
                if addresses.is_empty() {
                    self.reserved_by.remove(&owner);
                }
            }
        }
    }
}

/// The address in a reservation's name, for this network. Ours have a label with their network; the names of
/// others may be ambiguous, and then count in each network.
pub(crate) fn reserved_address(
    network: &str,
    reservation: &OverlappingRangeIPReservation,
) -> Option<Address> {
    let labels = reservation.metadata.labels.as_ref();
    if labels.and_then(|labels| labels.get(label::NETWORK)).is_some_and(|other| other != network) {
        return None;
    }
    address_of_name(network, reservation.metadata.name.as_deref()?)
}

fn address_of_name(network: &str, name: &str) -> Option<Address> {
    let rest = if network.is_empty() { name } else { name.strip_prefix(network)?.strip_prefix('-')? };
    let text = if rest.contains('-') { rest.replace('-', ":") } else { rest.to_owned() };
    let address = text.parse().ok()?;
    (reservation_name(network, address).ok()? == name).then(|| Address::from(address))
}
