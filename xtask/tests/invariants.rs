//! The tests that `ARCHITECTURE.md` names for each invariant exist.

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

/// The names in backticks of the section on invariants that are names of tests.
fn named() -> Vec<String> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let section = text.split("## Invariants").nth(1).expect("the section on invariants");
    let names =
        section.split('`').skip(1).step_by(2).filter(|name| name.contains('_') && !name.contains('/'));
    names.map(str::to_owned).collect()
}

#[test]
fn every_test_that_is_named_for_an_invariant_exists() {
    let mut code = String::new();
    sources(&root().join("crates"), &mut code);
    sources(&root().join("tests"), &mut code);
    let named = named();
    assert!(named.len() >= 10, "the section names too few tests: {named:?}");
    for test in named {
        assert!(
            code.contains(&format!("fn {test}(")),
            "ARCHITECTURE.md names the test `{test}`, which does not exist"
        );
    }
}
