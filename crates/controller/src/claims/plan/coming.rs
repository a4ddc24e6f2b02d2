//! Claims that a write in flight assigns something. They wait for its answer: if planned again, they might get a
//! second address in a block that was created or got room meanwhile.

use std::collections::BTreeSet;
use std::sync::Arc;

use tenure_api::claims::RECORD_PREFIX;
use tenure_whereabouts::ledger::Act;

use super::super::index::Index;
use super::super::sets::Names;
use super::super::write::ClaimWrite;
use crate::coil::BlockWrite;
use crate::world::World;
use crate::write::Write;

/// Their UIDs.
#[derive(Debug, Default)]
pub(super) struct Coming(BTreeSet<Arc<str>>);

impl Coming {
    /// Reads what is in flight. Adds the names of claims for which that changed.
    pub(super) fn refresh(&mut self, world: &World, index: &Index, names: &mut Names) {
        let now: BTreeSet<Arc<str>> = world.in_flight.iter().flat_map(|write| given(world, write)).collect();
        let changed = self.0.symmetric_difference(&now);
        names.extend(changed.filter_map(|uid| index.claims.of_uid(uid)).cloned());
        self.0 = now;
    }

    /// Whether a write for the claim of this UID is in flight.
    pub(super) fn has(&self, uid: &str) -> bool {
        self.0.contains(uid)
    }
}

/// The UIDs of claims that a write assigns something not yet recorded.
fn given(world: &World, write: &Write) -> Vec<Arc<str>> {
    if let Some(BlockWrite::Create { block }) = write.of() {
        return block.spec.claims.values().map(|record| record.uid.as_str().into()).collect();
    }
    match write.of() {
        Some(ClaimWrite::Records { block, records, .. }) => {
            let known = world.coil().blocks.get(&block.name).map(|block| &block.spec.claims);
            let known = |key: &str| known?.get(key).filter(|it| it.freed.is_none()).map(|it| it.uid.as_str());
            let held = records.iter().filter(|(_, record)| record.freed.is_none());
            let new = held.filter(|(key, record)| known(key) != Some(&record.uid));
            new.map(|(_, record)| record.uid.as_str().into()).collect()
        }
        Some(ClaimWrite::Slice { ledger, records, .. }) => {
            let known = world.ledgers().pools.get(&ledger.name).map(|ledger| &ledger.pool.spec.allocations);
            let known = |key: &str| known?.get(key).map(|it| it.id.as_str());
            let new = records.iter().filter(|(key, record)| known(key) != Some(&record.id));
            new.filter_map(|(_, record)| record.id.strip_prefix(RECORD_PREFIX)).map(Into::into).collect()
        }
        Some(ClaimWrite::Hold { requests, .. }) => {
            let held = requests.iter().filter(|request| matches!(request.act, Act::Hold { .. }));
            held.filter_map(|request| request.who.id.strip_prefix(RECORD_PREFIX)).map(Into::into).collect()
        }
        _ => Vec::new(),
    }
}
