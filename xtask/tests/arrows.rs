//! Who may know whom: compares the table in `ARCHITECTURE.md` with cargo's dependency graph. A crate that
//! uses one that its row does not name, or that has no row, fails here.

#![allow(clippy::expect_used, clippy::panic, reason = "a test says what is wrong by failing")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Crates that exist for tests and measurements only: no program may be built on them.
const FOR_TESTS: [&str; 8] =
    ["testbed", "controller-testbed", "sim", "conformance", "bench", "sdk", "tests", "xtask"];

fn architecture() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ARCHITECTURE.md");
    std::fs::read_to_string(path).expect("ARCHITECTURE.md is in the repository's root")
}

/// The rows `| crate | may use | ... |` of the table under "Who may know whom", bottom up.
fn allowed() -> Vec<(String, BTreeSet<String>)> {
    let text = architecture();
    let section = text.split("## Who may know whom").nth(1).expect("the section is there");
    let section = section.split("\n## ").next().unwrap_or(section);
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let mut cells = row.split('|').skip(1).map(str::trim);
        let name = cells.next().unwrap_or_default().trim_matches('`').to_owned();
        let uses = cells.next().unwrap_or_default().split('`').skip(1).step_by(2);
        (name, uses.map(str::to_owned).collect())
    })
    .collect()
}

/// The dependencies of each of our crates according to cargo: (for building, for its tests).
fn used() -> BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)> {
    let packages = packages();
    let short = |of: &Value| {
        let name = text(of, "name");
        name.strip_prefix("tenure-").unwrap_or(name).to_owned()
    };
    let ours: BTreeSet<&str> = packages.iter().map(|package| text(package, "name")).collect();
    packages
        .iter()
        .map(|package| {
            let of_ours = dependencies(package).filter(|used| ours.contains(text(used, "name")));
            let (tests, build): (Vec<_>, Vec<_>) = of_ours.partition(|used| used["kind"] == "dev");
            let names = |list: Vec<&Value>| list.into_iter().map(short).collect();
            (short(package), (names(build), names(tests)))
        })
        .collect()
}

/// The crates of the workspace, and those that are workspaces of their own.
fn packages() -> Vec<Value> {
    ["../Cargo.toml", "../crates/nmstate/Cargo.toml", "../crates/sdk/Cargo.toml"]
        .into_iter()
        .flat_map(packages_of)
        .collect()
}

fn packages_of(manifest: &str) -> Vec<Value> {
    let said = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--manifest-path", manifest])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo starts");
    let mut metadata: Value = serde_json::from_slice(&said.stdout).expect("cargo's metadata is JSON");
    match metadata["packages"].take() {
        Value::Array(packages) => packages,
        other => panic!("cargo has no list of packages: {other}"),
    }
}

fn dependencies(package: &Value) -> impl Iterator<Item = &Value> {
    package["dependencies"].as_array().into_iter().flatten()
}

fn text<'v>(of: &'v Value, key: &str) -> &'v str {
    of[key].as_str().expect("cargo's metadata has names")
}

#[test]
fn every_crate_uses_only_what_the_arrows_allow() {
    let allowed: BTreeMap<_, _> = allowed().into_iter().collect();
    for (name, (build, _)) in used() {
        let may = allowed.get(&name).unwrap_or_else(|| {
            panic!("crate `{name}` has no row under \"Who may know whom\" in ARCHITECTURE.md")
        });
        for used in build {
            assert!(
                may.contains(&used),
                "crate `{name}` uses `{used}`, but ARCHITECTURE.md allows it only {may:?}"
            );
        }
    }
}

#[test]
fn every_row_names_a_crate_that_exists() {
    let used = used();
    for (name, _) in allowed() {
        assert!(
            used.contains_key(&name),
            "ARCHITECTURE.md has a row for `{name}`, which is no crate of the workspace"
        );
    }
}

#[test]
fn arrows_only_point_down() {
    let mut below: BTreeSet<String> = BTreeSet::new();
    for (name, may) in allowed() {
        for used in may {
            assert!(
                below.contains(&used),
                "`{name}` may use `{used}`, whose row comes later: an arrow points up"
            );
        }
        below.insert(name);
    }
}

#[test]
fn nothing_that_ships_is_built_on_test_crates() {
    for (name, (build, _)) in used() {
        if !FOR_TESTS.contains(&name.as_str()) {
            let test_only: Vec<_> = build.iter().filter(|used| FOR_TESTS.contains(&used.as_str())).collect();
            assert!(test_only.is_empty(), "crate `{name}` ships, but is built on {test_only:?}");
        }
    }
}

#[test]
fn the_engine_knows_no_kubernetes_no_async_and_no_io() {
    let packages = packages();
    let ipam = packages.iter().find(|package| text(package, "name") == "tenure-ipam").expect("ipam");
    for used in dependencies(ipam) {
        let name = text(used, "name");
        let banned = ["kube", "k8s-openapi", "tokio", "futures", "hyper", "nix", "tracing"].contains(&name);
        assert!(!banned, "the engine must stay pure, but depends on {name}");
    }
}
