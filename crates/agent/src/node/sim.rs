//! A node against an adversary: everything around it happens in any order that it can happen in, and things break at any
//! moment. After every step the invariants of `ARCHITECTURE.md` are checked, and at the end everything is put right and
//! must be right.
//!
//! One number decides a whole run. A run that fails prints it; `TENURE_SEED=n cargo test -p tenure-agent sim` is that run
//! again, with its story. `TENURE_RUNS=n` makes more of them than usual.

mod agent;
mod api;
mod checks;
mod claim;
mod dice;
mod kernel;
mod runtime;
mod slice;
mod world;

use world::{Story, World};

/// How many runs there are when no seed is given.
const RUNS: u64 = 60;
const STEPS: usize = 800;

fn run(seed: u64, story: Story) -> World {
    let mut world = World::new(seed, story);
    for _ in 0..STEPS {
        world.step();
    }
    world.put_right();
    world
}

#[test]
fn no_adversary_breaks_an_invariant() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let (seed, runs) = (number("TENURE_SEED"), number("TENURE_RUNS").unwrap_or(RUNS));
    for seed in seed.map_or(0..runs, |seed| seed..seed + 1) {
        let story = if number("TENURE_SEED").is_some() { Story::Aloud } else { Story::Untold };
        let outcome = std::panic::catch_unwind(|| drop(run(seed, story)));
        assert!(outcome.is_ok(), "to see this again: TENURE_SEED={seed} cargo test -p tenure-agent sim");
    }
}

#[test]
fn a_run_replays_from_its_seed() {
    let (one, two, other) = (run(7, Story::Kept), run(7, Story::Kept), run(8, Story::Kept));
    assert_eq!(one.told, two.told);
    assert_ne!(one.told, other.told);
}

/// An adversary that does nothing would break nothing.
#[test]
fn the_adversary_does_all_that_it_can() {
    let mut seen = world::Deeds::default();
    for seed in 0..20 {
        seen.add(&run(seed, Story::Untold).deeds);
    }
    for (deed, times) in seen.all() {
        assert!(times > 0, "it never came to: {deed}");
    }
}
