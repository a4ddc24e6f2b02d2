//! Records by owner: by pod and interface, and by container.

use std::collections::{BTreeMap, BTreeSet};

use tenure_api::whereabouts::Allocation;

/// The location of a record: the object's name and the key in it.
pub(super) type RecordKey = (String, String);

/// Locations of records by owner, in all objects of a network.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    by_interface: BTreeMap<(String, String), BTreeSet<RecordKey>>,
    by_container: BTreeMap<(String, String), BTreeSet<RecordKey>>,
}

impl Index {
    pub(super) fn insert(&mut self, object: &str, key: &str, record: &Allocation) {
        let place = || (object.to_owned(), key.to_owned());
        let ifname = record.ifname.clone().unwrap_or_default();
        self.by_interface.entry((record.podref.clone(), ifname.clone())).or_default().insert(place());
        self.by_container.entry((record.id.clone(), ifname)).or_default().insert(place());
    }

    pub(super) fn remove(&mut self, object: &str, key: &str, record: &Allocation) {
        let place = (object.to_owned(), key.to_owned());
        let ifname = record.ifname.clone().unwrap_or_default();
        for (index, owner) in [(&mut self.by_interface, &record.podref), (&mut self.by_container, &record.id)]
        {
            let owner = (owner.clone(), ifname.clone());
            if let Some(places) = index.get_mut(&owner) {
                places.remove(&place);
                if places.is_empty() {
                    index.remove(&owner);
                }
            }
        }
    }

    /// The records of a pod's interface; with an empty `ifname`, old records of the pod without an interface.
    pub(super) fn of_interface(&self, podref: &str, ifname: &str) -> impl Iterator<Item = &RecordKey> {
        self.by_interface.get(&(podref.to_owned(), ifname.to_owned())).into_iter().flatten()
    }

    /// The records of a container's interface.
    pub(super) fn of_container(&self, id: &str, ifname: &str) -> impl Iterator<Item = &RecordKey> {
        self.by_container.get(&(id.to_owned(), ifname.to_owned())).into_iter().flatten()
    }
}
