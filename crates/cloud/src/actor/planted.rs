//! Bugs that tests plant, to see that the checks find them. Outside tests nobody has any.

use super::Actor;

/// Bugs that tests plant, to see that the checks find them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planted {
    /// Additions and removals in one update.
    MixedUpdate,
    /// Ranges of others are removed.
    ForgetsOthers,
    /// The version of the update before is used again.
    OldVersion,
    /// A repeated request has another ID.
    NewRequest,
    /// What was sent counts as attached.
    TrustsSent,
    /// A removal under way is not counted.
    ForgetsRemoval,
    /// A refused range stays in the next update.
    SameAgain,
    /// More ranges than the interface takes.
    NoLimit,
    /// A range is added while another interface has it.
    NoOrder,
}

impl Actor {
    /// Whether the bug is planted.
    #[cfg(test)]
    pub(super) fn has(&self, bug: Planted) -> bool {
        self.planted == Some(bug)
    }

    /// Whether the bug is planted: never.
    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "tests have another one")]
    pub(super) const fn has(&self, _: Planted) -> bool {
        false
    }
}

#[cfg(test)]
impl Actor {
    /// The actor with a bug.
    pub(crate) fn with(mut self, bug: Option<Planted>) -> Self {
        self.planted = bug;
        self
    }
}
