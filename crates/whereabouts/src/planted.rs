//! Bugs that tests plant, to prove that the checkers find them.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

/// A former bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A pod is mistaken for an earlier one of the same name.
    SameNameIsSamePod,
    /// A range is sealed for slices although its addresses are in use.
    SealsWhatIsInUse,
}

thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Whether this bug is planted in this thread.
pub(crate) fn is(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// How many runs a checker gets to find a bug.
const RUNS: usize = 256;

/// Plants a bug and runs what must fail because of it, always with the same inputs.
pub(crate) fn must_be_found<S: Strategy>(bug: Bug, inputs: &S, run: impl Fn(S::Value)) {
    let mut runner = TestRunner::deterministic();
    PLANTED.set(Some(bug));
    let found = (0..RUNS).any(|_| {
        let input = inputs.new_tree(&mut runner).unwrap().current();
        catch_unwind(AssertUnwindSafe(|| run(input))).is_err()
    });
    PLANTED.set(None);
    assert!(found, "{bug:?} was not found in {RUNS} runs");
}
