//! What may happen in a run.

use proptest::prelude::*;

pub(super) const NODES: usize = 3;
/// Of shared ranges: inside, around and equal to what may be cut.
pub(super) const RANGES: [&str; 4] = ["10.0.0.0/28", "10.0.0.0/29", "10.0.0.8/30", "10.0.0.0/27"];
/// What may be cut, each by a definition of its own.
pub(super) const CUTS: [(&str, &str); 3] =
    [("10.0.0.0/28", "/30"), ("10.0.0.0/29", "/30"), ("10.0.0.0/26", "/30")];

#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// A node wants an address of a shared range.
    Ask(usize, usize),
    /// It does what waits by what it knows.
    Work(usize),
    /// It hears what is new.
    Hear(usize),
    /// It hears of slices, and takes or loses one; step by step, as it reads and writes.
    Slice(usize, usize),
    /// It hands out of its slice.
    Hand(usize, usize),
    /// Pods go, of shared ranges or of slices.
    Go(usize),
    /// Somebody asks for a cut, or does not any more.
    Cut(usize, bool),
    /// There is a definition that cannot be read, or is none any more.
    Garble(bool),
    /// The controller looks, and does the first so many writes of what it plans.
    Look,
    Write,
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let node = || 0..NODES;
    prop_oneof![
        5 => (node(), 0..RANGES.len()).prop_map(|(node, range)| Step::Ask(node, range)),
        8 => node().prop_map(Step::Work),
        2 => node().prop_map(Step::Hear),
        5 => (node(), 0..CUTS.len()).prop_map(|(node, cut)| Step::Slice(node, cut)),
        5 => (node(), 0..CUTS.len()).prop_map(|(node, cut)| Step::Hand(node, cut)),
        2 => (0_usize..40).prop_map(Step::Go),
        3 => (0..CUTS.len(), any::<bool>()).prop_map(|(cut, wanted)| Step::Cut(cut, wanted)),
        1 => any::<bool>().prop_map(Step::Garble),
        6 => Just(Step::Look),
        6 => Just(Step::Write),
    ]
}
