//! How a node behaves, where there is a choice.

use std::time::Duration;

/// How a node behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The node's name, as it stands in the label of its blocks.
    pub node: String,
    /// Whether there are slices to wait for at a start.
    pub slices: bool,
    /// How long a freed address cools, where its pool does not say.
    pub cooling: Duration,
    /// How long an ADD waits for an address before it fails.
    pub patience: Duration,
    /// How long an ADD waits for a new block before a cooling address gives way.
    pub cooling_gives_way_after: Duration,
    /// The next block is asked for when fewer than one in so many of a block's addresses are free, beyond those that
    /// are waited for.
    pub low_water_divisor: u32,
    /// But never for more free addresses than this: no node starts more pods in the time that a block takes to come.
    pub low_water_most: u32,
    /// How many blocks of a pool are asked for at a time.
    pub asks_at_once: u32,
    /// How long an empty block rests before it is given back.
    pub rest: Duration,
    /// How many blocks of a pool stay although they are empty.
    pub keep: usize,
    /// How long after a refusal a block is asked for again, at first; it doubles with every refusal.
    pub retry_first: Duration,
    /// And at last.
    pub retry_last: Duration,
    /// How long a block that was granted may take to be seen.
    pub grant_patience: Duration,
    /// How long a block may take to be given back before it is tried again.
    pub return_patience: Duration,
    /// How often the kernel is looked at for what was left over.
    pub look_every: Duration,
    /// What was left over is put away when it is seen again after this time or later.
    pub look_apart: Duration,
    /// How long a route leads to the interface of a claim user whose claim is elsewhere now. Packets that are under way are
    /// delivered, and the other end had the time to begin.
    pub route_lingers: Duration,
    /// How long the addresses of a claim user are exported whose claim is elsewhere now: until routers have heard of the other.
    pub export_lingers: Duration,
    /// A bug that a test wants found.
    #[cfg(test)]
    pub(crate) planted: Option<super::Planted>,
}

impl Settings {
    /// The usual behaviour of the node of this name.
    pub fn new(node: impl Into<String>) -> Self {
        Self {
            node: node.into(),
            slices: false,
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
