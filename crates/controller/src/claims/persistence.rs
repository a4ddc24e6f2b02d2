//! Whether anything lets addresses outlive pods. Asked after every event, so nothing is walked over for it but what has changed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::sets::Names;
use crate::cache::{Cache, Known};
use crate::changes::{Changed, Cursor};
use crate::world::World;

/// What lets addresses outlive pods, as far as somebody has looked.
#[derive(Debug, Default)]
pub(crate) struct Persistence(Mutex<Found>);

/// Attachment definitions that opt in, and floating blocks.
#[derive(Debug, Default)]
pub(crate) struct Found {
    networks: Matching,
    blocks: Matching,
}

/// Those objects of a cache that match, up to where somebody has read.
#[derive(Debug, Default)]
struct Matching {
    cursor: Cursor,
    keys: Names,
}

impl Persistence {
    /// Looks at what has changed.
    pub(crate) fn look(&self, world: &World) -> MutexGuard<'_, Found> {
        // One who panicked meanwhile has left a cursor that is at most too far behind.
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
