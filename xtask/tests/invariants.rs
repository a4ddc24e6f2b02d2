//! The tests that documents name exist: for each invariant in `ARCHITECTURE.md`, for each defect of others in
//! `docs/coil-differences.md`, for each promise in `docs/security.md`. And none of our programs runs another
//! one.

#![allow(clippy::expect_used, clippy::panic, reason = "a test says what is wrong by failing")]

use std::fs;
use std::path::Path;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the repository's root")
}

/// All Rust sources below a directory, in one text.
fn sources(directory: &Path, text: &mut String) {
    for entry in fs::read_dir(directory).expect("a directory of the repository") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            text.push_str(&fs::read_to_string(&path).expect("a source"));
        }
    }
}

/// The tests that a document names after a heading.
fn named(document: &str, heading: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(document)).expect(document);
    names(text.split(heading).nth(1).expect(heading))
}

/// The names of tests among the names in backticks.
fn names(text: &str) -> Vec<String> {
    let is_name = |name: &&str| {
        let plain =
            name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        plain && name.contains('_')
    };
    text.split('`').skip(1).step_by(2).filter(is_name).map(str::to_owned).collect()
}

/// Fails for a test that is named and does not exist.
fn assert_exist(document: &str, named: &[String], least: usize) {
    let mut code = String::new();
    for directory in ["crates", "tests", "xtask"] {
        sources(&root().join(directory), &mut code);
    }
    assert!(named.len() >= least, "{document} names too few tests: {named:?}");
    let missing: Vec<&String> = named.iter().filter(|test| !code.contains(&format!("fn {test}("))).collect();
    assert!(missing.is_empty(), "{document} names tests that do not exist: {missing:#?}");
}

#[test]
fn every_test_that_is_named_for_an_invariant_exists() {
    assert_exist("ARCHITECTURE.md", &named("ARCHITECTURE.md", "## Invariants"), 10);
}

#[test]
fn every_test_that_is_named_for_a_defect_of_others_exists() {
    let document = "docs/coil-differences.md";
    assert_exist(document, &named(document, "## Defects that Tenure does not have"), 40);
}

#[test]
fn every_promise_names_a_test_and_every_test_that_is_named_for_a_promise_exists() {
    let document = "docs/security.md";
    let text = fs::read_to_string(root().join(document)).expect(document);
    let promises = text.split("## Promises").nth(1).expect("promises");
    let promises = promises.split("\n## ").next().expect("a section");
    // After the table's header.
    let rows: Vec<&str> = promises.lines().filter(|line| line.starts_with('|')).skip(2).collect();
    let mut tests = Vec::new();
    for row in rows {
        let held_by = row.trim_end_matches('|').rsplit('|').next().expect("a column");
        let named = names(held_by);
        assert!(!named.is_empty(), "{document}: no test holds this promise: {row}");
        tests.extend(named);
    }
    assert_exist(document, &tests, 5);
}

/// The one file that starts a program: the agent's helper for `NetworkManager`, which is ours.
const STARTS_THE_HELPER: &str = "crates/agent/src/node_addresses/manager.rs";

/// Programs installed on a node or in a cluster run neither `ip` nor `nft` nor any other program that is not ours.
#[test]
fn no_program_of_ours_runs_another() {
    for part in
        ["cni", "linux", "agent", "tenured", "controller", "egress", "daemon", "api", "ipam", "handles"]
    {
        let mut code = String::new();
        sources(&root().join("crates").join(part).join("src"), &mut code);
        if STARTS_THE_HELPER.split('/').nth(1) == Some(part) {
            let starts = fs::read_to_string(root().join(STARTS_THE_HELPER)).expect("the helper's file");
            assert_eq!(starts.matches("Command::new(&self.program)").count(), 1, "{STARTS_THE_HELPER}");
            code = code.replace(&starts, &starts.replace("Command::new(&self.program)", "helper"));
        }
        for way in ["process::Command", "Command::new", "nix::unistd::exec", "fork("] {
            assert!(!code.contains(way), "crates/{part} has {way}");
        }
    }
}
