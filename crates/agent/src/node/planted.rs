//! Bugs that tests plant to prove that the simulator's checks find them. There are none outside of tests.

#[cfg(not(test))]
use super::Node;

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Planted {
    /// A pod of the same name is taken for the same pod.
    SameNameSamePod,
    /// The node assigns from a block whose object is gone.
    GoneBlockServes,
    /// The node does not wait for the kernel's links at a start.
    KernelUnread,
    /// A lost journal is treated as an empty one.
    LostJournalTrusted,
    /// A DEL of something not held ends another holder's hold.
    LateReleaseFrees,
    /// A repeated ADD gets another address.
    AddAgainAnew,
    /// A DEL is answered before the journal has it.
    DelBeforeCommit,
    /// Freed addresses do not cool.
    NoCooling,
    /// An ADD waits for the API server although an address is free.
    ServeNeedsApi,
    /// A leak is repaired after one observation.
    OneObservation,
    /// A link that the journal does not know is removed at a start.
    RemovedAtFirstSight,
    /// Packets still arrive at a pod that is gone.
    GonePodReached,
    /// A block that is kept for a pod serves any.
    KeptForAnyone,
    /// The node assigns from a block that an operator drains.
    DrainingServes,
    /// An unexpected input ends the program.
    PanicsAtSurprise,
}

impl Planted {
    /// All of them.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 15] = [
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
        Self::KeptForAnyone,
        Self::DrainingServes,
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
