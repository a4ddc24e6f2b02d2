//! What may happen in a run.

use proptest::prelude::*;

pub(super) const NODES: usize = 3;
/// Shared ranges: inside, around and equal to those that may be divided.
pub(super) const RANGES: [&str; 4] = ["10.0.0.0/28", "10.0.0.0/29", "10.0.0.8/30", "10.0.0.0/27"];
/// Ranges that may be divided, each by its own definition.
pub(super) const CUTS: [(&str, &str); 3] =
    [("10.0.0.0/28", "/30"), ("10.0.0.0/29", "/30"), ("10.0.0.0/26", "/30")];

#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// A node wants an address of a shared range.
    Ask(usize, usize),
    /// It serves what waits, by what it knows.
    Work(usize),
    /// It hears what is new.
    Hear(usize),
    /// It is told of its slice, or that it has none.
    Tell(usize, usize),
    /// It takes or loses one that it was told of, step by step, as it reads and writes.
    Slice(usize, usize),
    /// It assigns from its slice.
    Hand(usize, usize),
    /// Pods of shared ranges or of slices end.
    Go(usize),
    /// Somebody requests a division, or stops.
    Cut(usize, bool),
    /// An unreadable definition is created or deleted.
    Garble(bool),
    /// The controller plans, and performs the first writes of its plan, this many.
    Look,
    Write,
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let node = || 0..NODES;
    prop_oneof![
        5 => (node(), 0..RANGES.len()).prop_map(|(node, range)| Step::Ask(node, range)),
        8 => node().prop_map(Step::Work),
        2 => node().prop_map(Step::Hear),
        4 => (node(), 0..CUTS.len()).prop_map(|(node, cut)| Step::Tell(node, cut)),
        7 => (node(), 0..CUTS.len()).prop_map(|(node, cut)| Step::Slice(node, cut)),
        5 => (node(), 0..CUTS.len()).prop_map(|(node, cut)| Step::Hand(node, cut)),
        2 => (0_usize..40).prop_map(Step::Go),
        3 => (0..CUTS.len(), any::<bool>()).prop_map(|(cut, wanted)| Step::Cut(cut, wanted)),
        1 => any::<bool>().prop_map(Step::Garble),
        6 => Just(Step::Look),
        6 => Just(Step::Write),
    ]
}
