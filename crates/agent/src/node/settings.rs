//! The settings of a node.

use std::time::Duration;

/// The settings of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The node's name, as in the label of its blocks.
    pub node: String,
    /// What to wait for at a start, beside journal, kernel and the API's own blocks: each completes the sentence "tenured has
    /// not yet read …", and is read when [`Event::SourceRead`](super::Event::SourceRead) names it.
    pub sources: Vec<&'static str>,
    /// How long a freed address cools, unless its pool says otherwise.
    pub cooling: Duration,
    /// How long an ADD waits for an address before it fails.
    pub patience: Duration,
    /// How long an ADD waits for a new block before it gets a cooling address.
    pub cooling_gives_way_after: Duration,
    /// The node requests the next block when fewer than one in this many of a block's addresses are free, not
    /// counting those that calls wait for.
    pub low_water_divisor: u32,
    /// The most free addresses to keep ready: no node starts more pods in the time that a block takes to
    /// come.
    pub low_water_most: u32,
    /// How many blocks of a pool are requested at a time.
    pub asks_at_once: u32,
    /// How long a block must be empty before it is returned.
    pub rest: Duration,
    /// How many empty blocks of a pool stay.
    pub keep: usize,
    /// The delay after the first refusal before a block is requested again; it doubles with every refusal.
    pub retry_first: Duration,
    /// The longest such delay.
    pub retry_last: Duration,
    /// How long it may take until a granted block is seen.
    pub grant_patience: Duration,
    /// How long returning a block may take before it is tried again.
    pub return_patience: Duration,
    /// How often the kernel is observed for leaks.
    pub look_every: Duration,
    /// The least time between the two observations of a leak.
    pub look_apart: Duration,
    /// How long a route leads to the interface of a claim user whose claim moved away. Packets in flight are
    /// delivered, and the new node has time to start.
    pub route_lingers: Duration,
    /// How long the addresses of a claim user stay exported after its claim moved away: until routers know
    /// the new route.
    pub export_lingers: Duration,
    /// A bug that a test wants found.
    #[cfg(test)]
    pub(crate) planted: Option<super::Planted>,
}

impl Settings {
    /// The defaults for the node of this name.
    pub fn new(node: impl Into<String>) -> Self {
        Self {
            node: node.into(),
            sources: Vec::new(),
            cooling: Duration::from_secs(30),
            patience: Duration::from_secs(10),
            cooling_gives_way_after: Duration::from_secs(2),
            low_water_divisor: 4,
            low_water_most: 64,
            asks_at_once: 64,
            rest: Duration::from_mins(5),
            keep: 1,
            retry_first: Duration::from_secs(1),
            retry_last: Duration::from_mins(1),
            grant_patience: Duration::from_secs(10),
            return_patience: Duration::from_secs(30),
            look_every: Duration::from_secs(30),
            look_apart: Duration::from_secs(20),
            route_lingers: Duration::from_millis(20),
            export_lingers: Duration::from_secs(1),
            #[cfg(test)]
            planted: None,
        }
    }
}
