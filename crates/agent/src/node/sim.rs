//! Simulates two nodes of one cluster against an adversary. Events arrive in any possible order, and things break at any
//! moment: agents crash, journals are lost while containers run, clocks are set back, pods of the same name come and go. After
//! every step the invariants of `ARCHITECTURE.md` are checked. At the end all faults are removed, and everything must be
//! consistent.
//!
//! A seed determines a whole run. A failed run prints its seed; `TENURE_SEED=n cargo test -p tenure-agent sim` repeats it with
//! a log. `TENURE_RUNS=n` changes the number of runs.

mod agent;
mod api;
mod checks;
mod claim;
mod counts;
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
use world::{Log, World};

/// The number of runs without a given seed.
const RUNS: u64 = 50;
/// Steps of all nodes together.
const STEPS: usize = 1_200;
/// A planted bug must be found within this many runs.
const RUNS_FOR_A_BUG: u64 = 40;

fn run(seed: u64, log: Log, planted: Option<Planted>) -> Vec<World> {
    let (cluster, dice) = (Cluster::default(), Dice::new(!seed));
    let world = |node: &&'static str| {
        let seed = seed.wrapping_mul(31).wrapping_add(node.bytes().map(u64::from).sum());
        World::new(seed, log, Api::new(node, Cluster::clone(&cluster)), planted)
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

/// Invariant 1 across nodes: containers of different nodes have different addresses, unless somebody took a block away from a
/// node that used it.
fn check_apart(worlds: &[World], cluster: &Cluster) {
    let tainted = |address: Address| {
        let networks = |it: &tenure_ipam::Subnet| it.ipv4.is_some_and(|network| network.contains(address));
        cluster.borrow().tainted.iter().any(networks)
    };
    let mut holders: BTreeMap<Address, (usize, String)> = BTreeMap::new();
    for (node, world) in worlds.iter().enumerate() {
        for (key, container) in &world.runtime.containers {
            // Slices and claims of different nodes are unrelated here.
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
        let log = if number("TENURE_SEED").is_some() { Log::Printed } else { Log::Off };
        let outcome = std::panic::catch_unwind(|| drop(run(seed, log, None)));
        assert!(outcome.is_ok(), "to see this again: TENURE_SEED={seed} cargo test -p tenure-agent sim");
    }
}

/// Proves that the checks can find bugs.
#[test]
fn every_planted_bug_is_found_within_a_bounded_number_of_steps() {
    let finds = |bug: &Planted| {
        let found = |seed: u64| std::panic::catch_unwind(|| drop(run(seed, Log::Off, Some(*bug)))).is_err();
        (0..RUNS_FOR_A_BUG).any(found)
    };
    let missed: Vec<Planted> = Planted::ALL.into_iter().filter(|bug| !finds(bug)).collect();
    assert_eq!(missed, [], "no check found these in {RUNS_FOR_A_BUG} runs of {STEPS} steps");
}

#[test]
fn a_run_replays_from_its_seed() {
    let told = |seed| run(seed, Log::Kept, None).into_iter().flat_map(|world| world.told).collect::<Vec<_>>();
    assert_eq!(told(7), told(7));
    assert_ne!(told(7), told(8));
}

/// Proves that the adversary acts.
#[test]
fn the_adversary_does_all_that_it_can() {
    let mut seen = counts::EventCounts::default();
    for world in (0..40).flat_map(|seed| run(seed, Log::Off, None)) {
        seen.add(&world.counts);
    }
    for (event, times) in seen.all() {
        assert!(times > 0, "this never happened: {event}");
    }
}
