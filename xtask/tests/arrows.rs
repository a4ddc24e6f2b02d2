//! Who may know whom: the table in `ARCHITECTURE.md` is the rule, cargo's own graph is the fact.
//! A crate that uses one its row does not name, or that has no row, fails here.

#![allow(clippy::expect_used, clippy::panic, reason = "a test says what is wrong by failing")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cargo_metadata::{DependencyKind, MetadataCommand};

/// Crates that exist for tests and measurements only: no program may be built on them.
const FOR_TESTS: [&str; 6] = ["testbed", "sim", "conformance", "bench", "tests", "xtask"];

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

/// What each crate of ours uses, as cargo sees it: (for building, for its tests).
fn used() -> BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)> {
    let metadata = MetadataCommand::new()
        .manifest_path(Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo metadata");
    let short = |name: &str| name.strip_prefix("tenure-").unwrap_or(name).to_owned();
    let ours: BTreeSet<&str> = metadata.packages.iter().map(|package| package.name.as_str()).collect();
    metadata
        .packages
        .iter()
        .map(|package| {
            let of_ours = package.dependencies.iter().filter(|used| ours.contains(used.name.as_str()));
            let (tests, build): (Vec<_>, Vec<_>) =
                of_ours.partition(|used| used.kind == DependencyKind::Development);
            let names =
                |list: Vec<&cargo_metadata::Dependency>| list.iter().map(|used| short(&used.name)).collect();
            (short(package.name.as_str()), (names(build), names(tests)))
        })
        .collect()
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
    let metadata = MetadataCommand::new()
        .manifest_path(Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/ipam/Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo metadata");
    let ipam = metadata.packages.iter().find(|package| package.name.as_str() == "tenure-ipam").expect("ipam");
    for used in &ipam.dependencies {
        let name = used.name.as_str();
        let banned = ["kube", "k8s-openapi", "tokio", "futures", "hyper", "nix", "tracing"].contains(&name);
        assert!(!banned, "the engine must stay pure, but depends on {name}");
    }
}
