//! Two nodes of one cluster against an adversary: everything around them happens in any order that it can happen in, and things break
//! at any moment: agents die, journals are lost while containers run, clocks are set back, pods of the same name come and go. After every step the invariants of `ARCHITECTURE.md` are checked, and at the end everything is put right and
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

use std::collections::BTreeMap;

use tenure_ipam::Address;

use super::Planted;
use api::{Api, Cluster, NODES};
use dice::Dice;
use runtime::Container;
use world::{Story, World};

/// How many runs there are when no seed is given.
const RUNS: u64 = 50;
/// Of all nodes together.
const STEPS: usize = 1_200;
/// So many runs must be enough to find a bug that was planted.
const RUNS_FOR_A_BUG: u64 = 40;

fn run(seed: u64, story: Story, planted: Option<Planted>) -> Vec<World> {
    let (cluster, dice) = (Cluster::default(), Dice::new(!seed));
    let world = |node: &&'static str| {
        let seed = seed.wrapping_mul(31).wrapping_add(node.bytes().map(u64::from).sum());
        World::new(seed, story, Api::new(node, Cluster::clone(&cluster)), planted)
    };
    let mut worlds: Vec<World> = NODES.iter().map(world).collect();
    for _ in 0..STEPS {
        let node = dice.below(worlds.len());
        worlds[node].step();
        check_apart(&worlds, &cluster);
    }
    for node in 0..worlds.len() {
        worlds[node].put_right();
        check_apart(&worlds, &cluster);
    }
    worlds
}

/// Invariant 1 across nodes: containers of different nodes have different addresses, but where somebody took a block away from a
/// node that used it.
fn check_apart(worlds: &[World], cluster: &Cluster) {
    let tainted = |address: Address| {
        let networks = |it: &tenure_ipam::Subnet| it.ipv4.is_some_and(|network| network.contains(address));
        cluster.borrow().tainted.iter().any(networks)
    };
    let mut holders: BTreeMap<Address, (usize, String)> = BTreeMap::new();
    for (node, world) in worlds.iter().enumerate() {
        for (key, container) in &world.runtime.containers {
            // Slices and claims of different nodes have nothing to do with each other here.
            let own = !slice::is_of_slice(key) && !claim::is_claim_user(key);
            let Container::Running(addresses) = container else { continue };
            for address in addresses.iter().filter(|address| own && !tainted(*address)) {
                let other = holders.insert(address, (node, key.to_string()));
                let apart = other.as_ref().is_none_or(|(other, _)| *other == node);
                assert!(apart, "{address} is used by {key} of {} and by {other:?}", NODES[node]);
            }
        }
    }
}

#[test]
fn no_adversary_breaks_an_invariant() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let (seed, runs) = (number("TENURE_SEED"), number("TENURE_RUNS").unwrap_or(RUNS));
    for seed in seed.map_or(0..runs, |seed| seed..seed + 1) {
        let story = if number("TENURE_SEED").is_some() { Story::Aloud } else { Story::Untold };
        let outcome = std::panic::catch_unwind(|| drop(run(seed, story, None)));
        assert!(outcome.is_ok(), "to see this again: TENURE_SEED={seed} cargo test -p tenure-agent sim");
    }
}

/// A check that finds nothing would find nothing when there is something.
#[test]
fn every_planted_bug_is_found_within_a_bounded_number_of_steps() {
    let finds = |bug: &Planted| {
        let found =
            |seed: u64| std::panic::catch_unwind(|| drop(run(seed, Story::Untold, Some(*bug)))).is_err();
        (0..RUNS_FOR_A_BUG).any(found)
    };
    let missed: Vec<Planted> = Planted::ALL.into_iter().filter(|bug| !finds(bug)).collect();
    assert_eq!(missed, [], "no check found these in {RUNS_FOR_A_BUG} runs of {STEPS} steps");
}

#[test]
fn a_run_replays_from_its_seed() {
    let told =
        |seed| run(seed, Story::Kept, None).into_iter().flat_map(|world| world.told).collect::<Vec<_>>();
    assert_eq!(told(7), told(7));
    assert_ne!(told(7), told(8));
}

/// An adversary that does nothing would break nothing.
#[test]
fn the_adversary_does_all_that_it_can() {
    let mut seen = world::Deeds::default();
    for world in (0..20).flat_map(|seed| run(seed, Story::Untold, None)) {
        seen.add(&world.deeds);
    }
    for (deed, times) in seen.all() {
        assert!(times > 0, "it never came to: {deed}");
    }
}
