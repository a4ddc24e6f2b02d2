//! Bugs that a test plants, to see that the simulator's checks find them. Outside of tests there are none.

#[cfg(not(test))]
use super::Node;

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Planted {
    /// A pod of the same name is taken for the same pod.
    SameNameSamePod,
    /// A block is assigned from although its object is gone.
    GoneBlockServes,
    /// Nobody waits for the kernel's links at a start.
    KernelUnread,
    /// A journal that was lost is taken for one that says that there is nothing.
    LostJournalTrusted,
    /// A DEL of what is not held ends the hold of somebody else.
    LateReleaseFrees,
    /// A repeated ADD is a new one.
    AddAgainAnew,
    /// A DEL is answered before the journal knows.
    DelBeforeCommit,
    /// What was freed does not cool.
    NoCooling,
    /// An ADD waits for the API server although there is an address.
    ServeNeedsApi,
    /// What was left over is put away when it was seen once.
    OneObservation,
    /// A link that the journal does not know is removed at a start.
    RemovedAtFirstSight,
    /// Packets go on to arrive at a pod that is gone.
    GonePodReached,
    /// Something unexpected ends the program.
    PanicsAtSurprise,
}

impl Planted {
    /// All of them.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 13] = [
        Self::SameNameSamePod,
        Self::GoneBlockServes,
        Self::KernelUnread,
        Self::LostJournalTrusted,
        Self::LateReleaseFrees,
        Self::AddAgainAnew,
        Self::DelBeforeCommit,
        Self::NoCooling,
        Self::ServeNeedsApi,
        Self::OneObservation,
        Self::RemovedAtFirstSight,
        Self::GonePodReached,
        Self::PanicsAtSurprise,
    ];
}

#[cfg(not(test))]
impl Node {
    /// Whether a test planted this bug.
    #[expect(clippy::unused_self, reason = "a test's node has them")]
    pub(super) const fn has_planted(&self, _: Planted) -> bool {
        false
    }
}

#[cfg(test)]
impl super::Node {
    /// Whether a test planted this bug.
    pub(super) fn has_planted(&self, bug: Planted) -> bool {
        self.settings.planted == Some(bug)
    }
}
