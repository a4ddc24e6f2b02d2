//! Floating blocks without holders, and when each goes back to its pool.

use std::collections::HashMap;
use std::sync::Arc;

use tenure_handles::Timestamp;

use super::super::super::sets::{Names, Sets};
use crate::sightings::Sightings;

/// The empty blocks.
#[derive(Debug, Default)]
pub(super) struct EmptyBlocks {
    /// When each goes back.
    due: Sightings<()>,
    /// By pool, because the pool says how long addresses cool, and may be in deletion.
    by_pool: Sets<Arc<str>>,
    pools: HashMap<Arc<str>, String>,
}

impl EmptyBlocks {
    /// When the next one goes back.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.due.next()
    }

    /// Adds blocks whose time has come, or whose pools have changed.
    pub(super) fn add_due(&mut self, pools: &Names, names: &mut Names, all: bool, now: Timestamp) {
        if all {
            self.due.look_again();
        }
        names.extend(self.due.due(now).map(Into::into));
        names.extend(pools.iter().flat_map(|pool| self.by_pool.of(pool)).cloned());
    }

    /// Begins to look at a block.
    pub(super) fn look_again_at(&mut self, name: &Arc<str>, all: bool) {
        if let Some(pool) = self.pools.remove(name) {
            self.by_pool.remove(&pool, name);
        }
        if !all {
            self.due.look_again_at(name);
        }
    }

    /// It is empty, and goes back at this time.
    pub(super) fn note(&mut self, name: &Arc<str>, pool: Option<&str>, until: Timestamp, now: Timestamp) {
        if let Some(pool) = pool {
            self.by_pool.add(pool, name.clone());
            self.pools.insert(name.clone(), pool.to_owned());
        }
        self.due.note(name.to_string(), (), until, now);
    }
}
