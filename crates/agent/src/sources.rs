//! The seam between the node's pools and where their blocks come from.
//!
//! A [`BlockSource`] performs what the node asks for its own pools, and reports blocks as events. The node knows no source: it names a
//! pool, and the first source that has the pool is meant.

use std::sync::Arc;

use crate::journal::Record;
use crate::node::Action;

/// Where the blocks of some pools come from.
pub trait BlockSource: Send + Sync + 'static {
    /// Whether the pool is one of its own.
    fn has(&self, pool: &str) -> bool;

    /// Performs an action that concerns a pool ([`Action::pool`]). Returns at once; the result follows as an event.
    fn carry_out(&self, action: Action);

    /// What the node must have read of it before it assigns anything, as the rest of "tenured has not yet read …". The source tells the node
    /// of the blocks that are there, and then once [`Event::SourceRead`](crate::node::Event::SourceRead) with this text.
    fn read_at_start(&self) -> Option<&'static str> {
        None
    }

    /// The journal got a record of a block, of whatever source: who writes holds elsewhere, too, has something to write.
    fn recorded(&self, _block_uid: &str) {}
}

/// All sources. The last one has every pool that no other has.
pub(crate) struct Sources {
    pub(crate) some: Vec<Arc<dyn BlockSource>>,
    pub(crate) rest: Arc<dyn BlockSource>,
}

impl Sources {
    /// What the node waits for at a start.
    pub(crate) fn read_at_start(&self) -> Vec<&'static str> {
        self.some.iter().filter_map(|source| source.read_at_start()).collect()
    }

    /// Tells all sources of a record.
    pub(crate) fn recorded(&self, record: &Record) {
        for source in &self.some {
            source.recorded(record.block());
        }
    }

    /// Performs an action.
    pub(crate) fn carry_out(&self, action: Action) {
        let pool = action.pool().unwrap_or_default();
        let source = self.some.iter().find(|source| source.has(pool)).unwrap_or(&self.rest);
        source.carry_out(action);
    }
}
