//! Whether anything lets addresses outlive pods. It is asked after every event, so it reads only what changed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::sets::Names;
use crate::cache::{Cache, Known};
use crate::changes::{Changed, Cursor};
use crate::world::World;

/// What lets addresses outlive pods, as of the last look.
#[derive(Debug, Default)]
pub(crate) struct Persistence(Mutex<Found>);

/// Attachment definitions that opt in, and floating blocks.
#[derive(Debug, Default)]
pub(crate) struct Found {
    networks: Matching,
    blocks: Matching,
}

/// The objects of a cache that match, up to the reader's cursor.
#[derive(Debug, Default)]
struct Matching {
    cursor: Cursor,
    keys: Names,
}

impl Persistence {
    /// Reads what changed.
    pub(crate) fn look(&self, world: &World) -> MutexGuard<'_, Found> {
        // A reader that panicked leaves a cursor that is too old at worst.
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        found.networks.look(&world.ledgers().attachments, |it| matches!(it.opted_in, Ok(Some(_))));
        found.blocks.look(&world.coil().blocks, tenure_api::coil::AddressBlock::is_floating);
        found
    }
}

impl Found {
    /// Whether an attachment definition opts in.
    pub(crate) fn has_networks(&self) -> bool {
        !self.networks.keys.is_empty()
    }

    /// Whether there is a floating block.
    pub(crate) fn has_blocks(&self) -> bool {
        !self.blocks.keys.is_empty()
    }
}

impl Matching {
    fn look<K: Known>(&mut self, cache: &Cache<K>, matches: impl Fn(&K) -> bool) {
        match cache.changed(&mut self.cursor) {
            Changed::All => {
                self.keys = cache.iter().filter(|it| matches(it)).map(|it| it.key().into()).collect();
            }
            Changed::Keys(keys) => {
                for key in keys {
                    if cache.get(&key).is_some_and(&matches) {
                        self.keys.insert(key);
                    } else {
                        self.keys.remove(&key);
                    }
                }
            }
        }
    }
}
