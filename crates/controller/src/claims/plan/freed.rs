//! The life of records: they name the pods that get their addresses, and are removed when their claim is gone and no
//! pod uses them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::records::{In, Record, RecordKey, is_said};
use super::super::sets::Names;
use super::moves::Naming;
use super::ranges::{self, RangeRecord};
use super::recorded::{is_used, next_pods};
use super::{RecordPlanner, Round};
use crate::whereabouts::Rest;

impl RecordPlanner {
    /// Frees what belongs to claims that are gone and unused.
    pub(super) fn free(&mut self, round: &mut Round<'_>, names: &Names, places: &[RecordKey]) {
        let inputs = round.inputs;
        if self.pods_are_known && !inputs.world.knows_users() {
            return;
        }
        let (records, claims) = (&inputs.index.records, &inputs.index.claims);
        let gone =
            |place: &&RecordKey| records.get(place).is_some_and(|it| claims.of_uid(it.uid()).is_none());
        if !inputs.look.all {
            for name in names {
                let mut keys = self.suspected.remove(name).unwrap_or_default();
                keys.extend(
                    records
                        .of_name(name)
                        .filter(gone)
                        .filter_map(|place| Some(key(place, records.get(place)?))),
                );
                for key in keys {
                    self.gone.look_again_at(&key);
                }
            }
        }
        let (mut forget, mut doubtful) = (Vec::new(), BTreeSet::new());
        for place in places.iter().filter(gone) {
            let Some(record) = records.get(place) else { continue };
            match place.kind {
                In::Block => self.free_in_block(round, place, record),
                In::Ledger => {
                    let Some(of_range) = ranges::record_at(inputs.world, place) else { continue };
                    if self.free_in_ledger(round, place, record, &of_range) {
                        if !inputs.world.claims().all.is_gone(record.uid()) {
                            doubtful.insert(of_range.uid());
                        }
                        forget.push(of_range);
                    }
                }
            }
        }
        let rest = Rest { from: inputs.now, lasts: self.settings.cooling };
        round.writes.extend(ranges::forget(&forget, &doubtful, rest));
    }

    /// Frees a record of a block. A freed record that a pod still uses is held again.
    fn free_in_block(&mut self, round: &mut Round<'_>, place: &RecordKey, record: &Record) {
        let inputs = round.inputs;
        let used = self.pods_are_known && is_used(inputs, record, &round.blocks.addresses(place));
        if record.is_freed() {
            if used {
                round.blocks.keep(place);
                round.is_pending(&record.name());
            }
        } else if !used && self.is_gone(round, place, record) {
            round.blocks.free(place, !inputs.world.claims().all.is_gone(record.uid()));
        }
    }

    /// Frees a record of a ledger. Returns whether others write that ledger, too.
    fn free_in_ledger(
        &mut self,
        round: &mut Round<'_>,
        place: &RecordKey,
        record: &Record,
        of_range: &RangeRecord<'_>,
    ) -> bool {
        let inputs = round.inputs;
        if self.pods_are_known && is_used(inputs, record, &[of_range.address]) {
            return false;
        }
        if !self.is_gone(round, place, record) {
            return false;
        }
        self.resting.freed(&ranges::network_of(of_range), of_range.address, inputs.now);
        !round.cut.free(of_range, !inputs.world.claims().all.is_gone(record.uid()))
    }

    /// Whether the claim of a record has been gone long enough.
    fn is_gone(&mut self, round: &mut Round<'_>, place: &RecordKey, record: &Record) -> bool {
        let key = key(place, record);
        let name: Arc<str> = record.name().into();
        self.suspected.entry(name.clone()).or_default().insert(key.clone());
        let gone = self.gone.suspect(key.to_string(), round.inputs.now);
        if gone {
            round.pending.insert(name);
        }
        gone
    }

    /// Records which pods are to get addresses, and which are gone together with their node.
    pub(super) fn name(&self, round: &mut Round<'_>, naming: &Naming, places: &[RecordKey]) {
        let inputs = round.inputs;
        if !self.pods_are_known || !inputs.world.knows_users() {
            return;
        }
        let mut renamed = Vec::new();
        for place in places {
            let Some(record) = inputs.index.records.get(place) else { continue };
            let uid = record.uid();
            let claim = inputs.index.claims.of_uid(uid).and_then(|name| inputs.world.claims().all.get(name));
            // Nobody gets what the status does not name, and a record without pods can be removed.
            let said = claim.is_some_and(|claim| is_said(inputs.world, place, &claim.facts));
            let more = naming.get(uid).filter(|_| said).map(Vec::as_slice).unwrap_or_default();
            let matters = |pod: &str| claim.is_none_or(|claim| claim.facts.slots.has(pod));
            let next = next_pods(inputs, (record.namespace(), record.pods()), more, matters);
            let Some(pods) = next.filter(|_| place.kind == In::Ledger || round.blocks.is_held(place)) else {
                continue;
            };
            round.is_pending(&record.name());
            if place.kind == In::Block {
                round.blocks.rename(place, pods);
            } else if let Some(of_range) = ranges::record_at(inputs.world, place)
                && !round.cut.rename(&of_range, &pods)
            {
                renamed.push((of_range, pods));
            }
        }
        round.writes.extend(ranges::rename(renamed));
    }
}

/// The key under which to remember since when the claim of a record is gone.
fn key(place: &RecordKey, record: &Record) -> Arc<str> {
    let RecordKey { kind, object, key } = place;
    format!("{}\0{kind:?}/{object}/{key}/{}", record.name(), record.uid()).into()
}
