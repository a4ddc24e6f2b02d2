//! Releasing: everything of a container's interface, or one unused record.

use std::collections::BTreeSet;

use tenure_api::whereabouts::Allocation;

use super::planner::{Planner, Staged};
use super::sorted;
use crate::ledger::index::RecordKey;
use crate::ledger::{Answer, PoolId, State, Who};

impl Planner<'_> {
    pub(super) fn release(&mut self, who: &Who, pools: &[PoolId]) -> (Answer, Staged) {
        if who.id.is_empty() {
            return (Answer::Released(Vec::new()), Staged::default());
        }
        let network = self.network;
        let named = network.index.of_container(&who.id, &who.ifname).cloned();
        // Records of old versions name no interface: they count only in pools of the configuration.
        let nameless = network
            .index
            .of_container(&who.id, "")
            .filter(|place| network.objects.get(&place.0).is_some_and(|object| pools.contains(&object.id)))
            .cloned();
        let places: BTreeSet<RecordKey> =
            named.chain(nameless).filter(|place| !self.is_owned(place)).collect();
        // This batch may have assigned the container something that is not written yet.
        let unwritten = self.added.values().flatten().any(|place| {
            self.record(place).is_some_and(|record| {
                record.id == who.id && record.ifname.as_deref().unwrap_or_default() == who.ifname
            })
        });
        if unwritten {
            return Self::wait();
        }
        let mut staged = Staged::default();
        let mut released = Vec::new();
        for place in places {
            // Did a successor take it over in this very batch?
            let Some(record) = self.record(&place).filter(|record| record.id == who.id).cloned() else {
                continue;
            };
            released.extend(self.remove(place, &record, &mut staged));
        }
        (Answer::Released(sorted(released)), staged)
    }

    pub(super) fn abandon(&mut self, who: &Who) -> (Answer, Staged) {
        let (answer, mut staged) = self.release(who, &[]);
        if answer != Answer::Wait {
            staged.unreserve.extend(self.reserved_without_record(who));
        }
        (answer, staged)
    }

    pub(super) fn forget(&mut self, object: &str, key: &str, record: &Allocation) -> (Answer, Staged) {
        let place = (object.to_owned(), key.to_owned());
        let mut staged = Staged::default();
        let same = self.record(&place) == Some(record);
        let released = if same { self.remove(place, record, &mut staged) } else { None };
        (Answer::Released(released.into_iter().collect()), staged)
    }

    /// Removes a record, and its reservation after it.
    fn remove(
        &self,
        place: RecordKey,
        record: &Allocation,
        staged: &mut Staged,
    ) -> Option<tenure_ipam::Address> {
        let before = self.before(&place);
        let address = self.address(&place);
        if let Some(object) = self.network.objects.get(&place.0) {
            staged.freed.push(object.id.clone());
        }
        if let Some(address) = address {
            staged.unreserve.extend(self.unreservation(address, record));
        }
        staged.edits.push((place, before, None));
        address
    }

    /// The reservations of an interface without a record.
    pub(super) fn reserved_without_record(&self, who: &Who) -> Vec<(String, Option<String>)> {
        let network = self.network;
        let unrecorded = network.reserved_for(who).filter(|address| !network.is_recorded(*address));
        let reserved = unrecorded.filter_map(|address| network.reservations.get(&address));
        reserved.map(|reserved| (reserved.name.clone(), reserved.uid.clone())).collect()
    }

    /// Only the node itself writes its slice.
    fn is_owned(&self, place: &RecordKey) -> bool {
        self.network.objects.get(&place.0).is_some_and(|object| object.state == State::Owned)
    }
}
