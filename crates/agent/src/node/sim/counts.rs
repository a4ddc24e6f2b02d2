//! Counts what happened in runs, to see that the adversary reaches everything.

use std::collections::BTreeMap;

/// Counts of events.
#[derive(Debug, Default)]
pub(super) struct EventCounts(BTreeMap<&'static str, usize>);

impl EventCounts {
    pub(super) fn count(&mut self, event: &'static str) {
        *self.0.entry(event).or_default() += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (event, times) in &other.0 {
            *self.0.entry(event).or_default() += times;
        }
    }

    /// How often each kind of event happened that must be possible.
    pub(super) fn all(&self) -> impl Iterator<Item = (&'static str, usize)> {
        const ALL: [&str; 42] = [
            "crash",
            "reboot",
            "outage",
            "controller away",
            "taken by force",
            "wiring failed",
            "unwiring failed",
            "journal failed",
            "exhausted",
            "unreachable",
            "timed out",
            "given back",
            "cooling gave way",
            "swept",
            "an add waited",
            "lost its namespace",
            "a route was cut",
            "a link of nobody",
            "a hold without an interface was released",
            "a hold without a namespace was released",
            "a link without a hold was put away",
            "routes were put right",
            "of a slice",
            "a slice was full",
            "adopted",
            "adopted and released",
            "a claim moved",
            "a claim use was added",
            "a claim use was refused",
            "a claim use was reached",
            "a claim use was not reached any more",
            "a claim use came back with a restart",
            "the clock was set back",
            "the clock was set ahead",
            "a journal was lost",
            "others were asked",
            "others could not all be asked",
            "a pod was deleted by force",
            "a pod was silenced",
            "a block was withheld",
            "a block was trusted again",
            "a pod got what was kept for it",
        ];
        ALL.into_iter().map(|event| (event, self.0.get(event).copied().unwrap_or_default()))
    }
}
