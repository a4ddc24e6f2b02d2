//! The only thread that writes: takes all waiting changes, writes them with one fsync, and publishes them.

use std::sync::{Arc, PoisonError};

use super::disk::{Batch, Disk};
use super::object::Event;
use super::{CollectionName, CommitError, Phase, Shared, Waiting, lock};

/// Commits until the store is closed or the disk fails.
pub(super) fn run(shared: &Shared, mut disk: Disk) {
    let _warden = FailOnPanic(shared);
    let mut batch = Batch::default();
    while let Some(waiting) = next(shared) {
        batch.events = waiting.iter().map(|one| (one.collection.clone(), one.event.clone())).collect();
        if let Err(error) = disk.write(&batch) {
            tracing::error!(%error, "the local API's file cannot be written any more");
            fail(shared, waiting, &CommitError::Disk(error.to_string()));
            return;
        }
        let next = shared.publish(&batch.events);
        settle(shared, &batch.events);
        for one in waiting {
            // A writer that is gone needs no answer.
            let _ = one.done.send(Ok(()));
        }
        batch = next;
    }
    batch.events.clear();
    let nothing = batch.forget.is_empty() && batch.compacted.is_empty();
    let tidied = if nothing { Ok(()) } else { disk.write(&batch) };
    if let Err(error) = tidied.and_then(|()| disk.flush()) {
        tracing::error!(%error, "closing the local API's file failed");
    }
}

/// Fails all waiting writers if the committer panics.
struct FailOnPanic<'s>(&'s Shared);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            fail(self.0, Vec::new(), &CommitError::Disk("the committer panicked".to_owned()));
        }
    }
}

/// All waiting changes; `None` once the store is closed and everything is written.
fn next(shared: &Shared) -> Option<Vec<Waiting>> {
    let mut pending = lock(&shared.pending);
    loop {
        if !pending.queue.is_empty() {
            return Some(std::mem::take(&mut pending.queue));
        }
        if matches!(pending.phase, Phase::Ended(_)) {
            return None;
        }
        pending = shared.work.wait(pending).unwrap_or_else(PoisonError::into_inner);
    }
}

/// From now on readers find the events among the committed ones.
fn settle(shared: &Shared, events: &[(CollectionName, Arc<Event>)]) {
    let mut pending = lock(&shared.pending);
    for (collection, event) in events {
        let Some(newest) = pending.newest.get_mut(collection) else { continue };
        if newest.get(&event.object.key).is_some_and(|newest| newest.version() == event.version()) {
            newest.remove(&event.object.key);
        }
    }
}

/// Nothing after the failed batch can be right: all of it is refused.
fn fail(shared: &Shared, waiting: Vec<Waiting>, error: &CommitError) {
    let rest = {
        let mut pending = lock(&shared.pending);
        pending.phase = Phase::Ended(error.clone());
        pending.newest.clear();
        std::mem::take(&mut pending.queue)
    };
    for one in waiting.into_iter().chain(rest) {
        let _ = one.done.send(Err(error.clone()));
    }
    // Wakes those who wait for a version that will not come.
    shared.settled.send_modify(|_| {});
}
