//! Floating blocks that no claim has an address of, and when each goes back to its pool.

use std::collections::HashMap;
use std::sync::Arc;

use tenure_handles::Timestamp;

use super::super::super::sets::{Names, Sets};
use crate::sightings::Sightings;

/// Those that are empty.
#[derive(Debug, Default)]
pub(super) struct EmptyBlocks {
    /// When each goes.
    due: Sightings<()>,
    /// By the pools that say how long their addresses rest, and whether they are being deleted.
    by_pool: Sets<Arc<str>>,
    pools: HashMap<Arc<str>, String>,
}

impl EmptyBlocks {
    /// When the next one goes.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.due.next()
    }

    /// Adds those that are to be looked at because it is time, or because these pools have changed.
    pub(super) fn add_due(&mut self, pools: &Names, names: &mut Names, all: bool, now: Timestamp) {
        if all {
            self.due.look_again();
        }
        names.extend(self.due.due(now).map(Into::into));
        names.extend(pools.iter().flat_map(|pool| self.by_pool.of(pool)).cloned());
    }

    /// A look at one begins.
    pub(super) fn look_again_at(&mut self, name: &Arc<str>, all: bool) {
        if let Some(pool) = self.pools.remove(name) {
            self.by_pool.remove(&pool, name);
        }
        if !all {
            self.due.look_again_at(name);
        }
    }

    /// It is empty, and goes then.
    pub(super) fn note(&mut self, name: &Arc<str>, pool: Option<&str>, until: Timestamp, now: Timestamp) {
        if let Some(pool) = pool {
            self.by_pool.add(pool, name.clone());
            self.pools.insert(name.clone(), pool.to_owned());
        }
        self.due.note(name.to_string(), (), until, now);
    }
}
