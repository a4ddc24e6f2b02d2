//! What was measured of one of them.

use std::collections::BTreeMap;

use crate::host::sampled::Sampled;

/// Which ranges addresses are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// All nodes share them.
    Shared,
    /// Each node has a slice.
    Sliced,
}

impl Kind {
    /// As the tables have it.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Shared => "unsliced",
            Self::Sliced => "sliced",
        }
    }
}

/// All of it; times in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Figures {
    /// By kind and by how many calls were under way.
    pub(super) paces: BTreeMap<(Kind, usize), AtPace>,
    /// By how many addresses were held already.
    pub(super) held: BTreeMap<usize, Beside>,
}

/// Rounds at one pace.
#[derive(Debug, Default)]
pub(super) struct AtPace {
    pub(super) add: Sampled,
    pub(super) del: Sampled,
    /// As many ADDs as callers, and no more.
    pub(super) burst: Sampled,
    /// Calls to the API server while there were ADDs, an ADD, in each round.
    pub(super) api_calls: Vec<f64>,
    /// How much processor time an ADD took of each of the parts.
    pub(super) processor: [f64; 4],
    /// How long ADDs took inside the agent.
    pub(super) inside: Vec<f64>,
}

/// Rounds beside addresses that are held.
#[derive(Debug, Default)]
pub(super) struct Beside {
    /// The first ADD that this node ever made in the network.
    pub(super) first: Option<f64>,
    pub(super) add: Sampled,
    pub(super) del: Sampled,
    pub(super) add_at_once: Sampled,
    pub(super) del_at_once: Sampled,
    pub(super) api_calls: Vec<f64>,
}

impl Figures {
    /// Those of one pace.
    pub(super) fn pace(&mut self, kind: Kind, callers: usize) -> &mut AtPace {
        self.paces.entry((kind, callers)).or_default()
    }
}
