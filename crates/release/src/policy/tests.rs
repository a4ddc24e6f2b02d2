//! Each rule, broken once.

use super::*;

const RULES: &str = r#"
[graph]
targets = ["x86_64-unknown-linux-musl"]
[licenses]
allow = ["MIT", "Apache-2.0"]
[sources]
unknown-registry = "deny"
unknown-git = "deny"
[bans]
multiple-versions = "deny"
wildcards = "deny"
skip = [{ crate = "old@0.8", reason = "another dependency is behind" }]
"#;

fn good() -> Package {
    Package {
        licence: Some("MIT OR GPL-3.0".to_owned()),
        source: Some("registry+https://example.org/crates.io-index".to_owned()),
        rust_version: Some("1.80".to_owned()),
        checksum: Some("00".to_owned()),
        ..Package::default()
    }
}

/// What is objected to a package `it` beside one that uses the exception.
fn objections(change: impl FnOnce(&mut Package)) -> Vec<String> {
    let mut package = good();
    change(&mut package);
    let packages = [("it", "1.0.0", package), ("old", "0.8.2", good()), ("old", "0.9.0", good())];
    let packages = packages.map(|(name, version, it)| ((name.to_owned(), version.to_owned()), it)).into();
    Policy::parse(RULES).unwrap().objections(&[Graph { packages }], "1.95").unwrap()
}

#[test]
fn what_is_allowed_passes() {
    assert_eq!(objections(|_| ()), Vec::<String>::new());
    assert_eq!(objections(|it| it.rust_version = Some("1.95.0".to_owned())), Vec::<String>::new());
    let ours = |it: &mut Package| (it.source, it.checksum) = (None, None);
    assert_eq!(objections(ours), Vec::<String>::new(), "a package of this repository");
}

#[test]
fn each_rule_objects_by_name() {
    let one = |change: fn(&mut Package)| {
        let found = objections(change);
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].strip_prefix("it 1.0.0: ").unwrap().to_owned()
    };
    assert_eq!(
        one(|it| it.licence = Some("GPL-3.0".to_owned())),
        "its licence is GPL-3.0, which licenses.allow of deny.toml does not have"
    );
    assert_eq!(one(|it| it.licence = None), "it names no licence");
    assert_eq!(
        one(|it| it.source = Some("git+https://example.org/it".to_owned())),
        "it comes from git+https://example.org/it; accepted is crates.io"
    );
    assert!(
        one(|it| it.source = Some("registry+https://example.org/other".to_owned()))
            .contains("accepted is crates.io")
    );
    assert_eq!(one(|it| it.checksum = None), "the lock file has no checksum of it");
    assert_eq!(
        one(|it| it.rust_version = Some("1.96".to_owned())),
        "it needs Rust 1.96, and rust-version of Cargo.toml promises 1.95"
    );
    assert_eq!(
        one(|it| (it.source, it.wildcards) = (None, vec!["serde".to_owned()])),
        "it accepts every version of serde; name one"
    );
}

#[test]
fn two_versions_and_useless_exceptions_are_named() {
    let graph = |keys: &[(&str, &str)]| Graph {
        packages: keys
            .iter()
            .map(|(name, version)| (((*name).to_owned(), (*version).to_owned()), good()))
            .collect(),
    };
    let objections =
        |keys: &[(&str, &str)]| Policy::parse(RULES).unwrap().objections(&[graph(keys)], "1.95").unwrap();
    assert_eq!(
        objections(&[("it", "1.0.0"), ("it", "2.0.0"), ("old", "0.8.2"), ("old", "0.9.0")]),
        ["it: it is there in the versions 1.0.0, 2.0.0; agree on one"]
    );
    assert_eq!(
        objections(&[("it", "1.0.0"), ("old", "0.8.2")]),
        ["deny.toml: bans.skip has old@0.8, beside which there is no other version; remove it"]
    );
    assert_eq!(
        objections(&[("old", "0.7.0"), ("old", "0.8.2"), ("old", "0.9.0")]).len(),
        1,
        "three are too many"
    );
    assert!(!has_prefix("0.80.0", "0.8"));
}

#[test]
fn a_relaxed_rule_is_refused() {
    let relaxed = RULES.replace("wildcards = \"deny\"", "wildcards = \"warn\"");
    let error = Policy::parse(&relaxed).unwrap_err().to_string();
    assert_eq!(error, "deny.toml: bans.wildcards is Some(\"warn\"); accepted is \"deny\"");
    let error = Policy::parse(&RULES.replace("old@0.8", "old")).unwrap_err().to_string();
    assert!(error.starts_with("deny.toml: bans.skip[0] is not { crate = "), "{error}");
}
