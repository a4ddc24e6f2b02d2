//! The corpus, and as many changes to it as fit into a few seconds, through every target. The seed is printed; give it
//! again as `TENURE_SEED` to replay a run.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_macros,
    reason = "a test fails, and says its seed"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use tenure_fuzz_harness::{Changes, Target};
use tenure_handles::{Entropy as _, SystemEntropy};

/// How many changed inputs go through each target.
fn changes(target: Target) -> usize {
    match target {
        // Each is a file that is written, synced and read twice.
        Target::Journal => 200,
        Target::Plugin | Target::Agent | Target::Message => 1_000,
        Target::Connection
        | Target::Answer
        | Target::Records
        | Target::Objects
        | Target::Whereabouts
        | Target::Claims
        | Target::Egress
        | Target::NodeAddresses => 3_000,
    }
}

fn seed() -> u64 {
    let given = std::env::var("TENURE_SEED").ok();
    given.map_or_else(|| SystemEntropy::new().unwrap().next_u64(), |seed| seed.parse().unwrap())
}

/// A target's corpus: its files, by name. The agent is told what the plugin is told.
fn corpus(target: Target) -> Vec<(PathBuf, Vec<u8>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let names = match target {
        Target::Agent => vec!["plugin", "agent"],
        target => vec![target.name()],
    };
    let directories = names.into_iter().map(|name| root.join(name)).filter(|path| path.is_dir());
    let mut files: Vec<PathBuf> = directories
        .flat_map(|directory| std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()))
        .collect();
    files.sort();
    files.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

/// Runs a target; says what went wrong, also if it was a panic.
fn run(target: Target, input: &[u8]) -> Result<(), String> {
    match catch_unwind(AssertUnwindSafe(|| target.run(input))) {
        Ok(outcome) => outcome,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(format!("panicked: {}", text.unwrap_or_default()))
        }
    }
}

fn replay(target: Target) {
    let corpus = corpus(target);
    assert!(corpus.len() >= 5, "{target:?} has a corpus of {}", corpus.len());
    for (path, input) in &corpus {
        if let Err(problem) = run(target, input) {
            panic!("{}: {problem}", path.display());
        }
    }
    let seed = seed();
    println!("TENURE_SEED={seed}");
    let changes = self::changes(target);
    let chance = Changes::new(seed);
    for number in 0..changes {
        let [(path, input), (_, other)] =
            [chance.below(corpus.len()), chance.below(corpus.len())].map(|at| &corpus[at]);
        let changed = chance.apply(input, other);
        if let Err(problem) = run(target, &changed) {
            panic!(
                "TENURE_SEED={seed}, change {number} of {}: {problem}\n{}\n{changed:?}",
                path.display(),
                String::from_utf8_lossy(&changed)
            );
        }
    }
}

#[test]
fn invariant_10_no_environment_and_no_standard_input_make_the_plugin_panic() {
    replay(Target::Plugin);
}

#[test]
fn invariant_10_no_call_of_a_runtime_makes_the_agent_panic() {
    replay(Target::Agent);
}

#[test]
fn invariant_10_no_bytes_on_its_socket_make_the_agent_panic() {
    replay(Target::Message);
}

#[test]
fn invariant_10_no_connection_makes_the_agent_panic_hoard_or_hear_something_else() {
    replay(Target::Connection);
}

#[test]
fn invariant_10_no_answer_makes_the_plugin_panic() {
    replay(Target::Answer);
}

#[test]
fn invariant_10_no_file_in_the_place_of_the_journal_stops_an_agent() {
    replay(Target::Journal);
}

#[test]
fn invariant_10_no_record_makes_a_node_panic_or_hand_out_what_is_held() {
    replay(Target::Records);
}

#[test]
fn invariant_10_no_object_and_no_annotation_makes_a_node_panic() {
    replay(Target::Objects);
}

#[test]
fn invariant_10_no_configuration_of_whereabouts_makes_a_program_panic_or_is_refused_without_words() {
    replay(Target::Whereabouts);
}

#[test]
fn invariant_10_nothing_that_people_write_about_claims_makes_a_program_panic_or_is_refused_without_words() {
    replay(Target::Claims);
}

#[test]
fn invariant_10_nothing_that_people_write_about_egress_makes_a_program_panic_or_is_refused_without_words() {
    replay(Target::Egress);
}

#[test]
fn every_door_has_a_fuzz_target() {
    let targets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/fuzz_targets");
    for target in Target::ALL {
        assert!(targets.join(format!("{}.rs", target.name())).is_file(), "{target:?}");
    }
}

#[test]
fn invariant_10_no_policy_for_node_addresses_makes_a_program_panic_or_is_refused_without_words() {
    replay(Target::NodeAddresses);
}
