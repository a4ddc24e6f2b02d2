//! The software bill of materials: every package that the programs are made of, in the format CycloneDX 1.6, as JSON.
//!
//! Packages that only take part in building (macros, build scripts) have the scope `excluded`, those whose code is in the programs
//! `required`. There is no serial number, which would differ each time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::graph::{Graph, Key, Package, listed};
use crate::licence::modern;
use crate::pack::instant;

/// The programs of each workspace.
const PROGRAMS: [(&str, &[&str]); 2] = [
    ("Cargo.toml", &["tenure", "tenured", "tenure-controller", "tenure-egress", "tenure-cni"]),
    ("crates/nmstate/Cargo.toml", &["tenure-nmstate"]),
];
/// Where they may be built: what only takes part in building is for these.
const HOSTS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];
/// For what they are built.
const TARGETS: [&str; 2] = ["x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl"];

/// A part of the programs.
struct Part {
    package: Package,
    /// Whether its code is in a program.
    linked: bool,
}

/// The bill of the sources in this directory, with this date in seconds since 1970.
pub fn of_release(seconds: u64) -> Result<String> {
    let targets = [TARGETS, HOSTS].concat().into_iter().map(str::to_owned).collect::<Vec<_>>();
    let mut parts: BTreeMap<Key, Part> = BTreeMap::new();
    for (manifest, programs) in PROGRAMS {
        let graph = Graph::read(Path::new(manifest), &targets)?;
        let chosen = programs.iter().flat_map(|program| ["--package", *program]);
        let chosen: Vec<&str> =
            chosen.chain(TARGETS.iter().flat_map(|target| ["--target", *target])).collect();
        let list = |edges| listed(manifest, &[&["--edges", edges], &chosen[..]].concat());
        let linked = list("normal,no-proc-macro")?;
        for key in list("normal,build")? {
            let package = graph.packages.get(&key);
            let package =
                package.with_context(|| format!("cargo does not describe {} {}", key.0, key.1))?.clone();
            let linked = linked.contains(&key);
            let part = parts.entry(key).or_insert(Part { package: package.clone(), linked });
            part.linked |= linked;
            part.package.dependencies.extend(package.dependencies);
        }
    }
    let compiler =
        Command::new("rustc").arg("--version").output().context("cannot ask rustc for its version")?;
    let compiler = String::from_utf8_lossy(&compiler.stdout);
    let compiler = compiler.split(' ').nth(1).context("rustc does not say its version")?;
    Ok(serde_json::to_string_pretty(&document(&parts, compiler, &instant(seconds)?))? + "\n")
}

fn document(parts: &BTreeMap<Key, Part>, compiler: &str, time: &str) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    let release = format!("tenure-release@{version}");
    let programs: BTreeSet<&str> = PROGRAMS.iter().flat_map(|(_, programs)| *programs).copied().collect();
    let dependencies = parts.iter().map(|(key, part)| {
        // What is only for tests is not among the parts.
        let on =
            part.package.dependencies.iter().filter_map(|key| Some(reference(key, &parts.get(key)?.package)));
        json!({"ref": reference(key, &part.package), "dependsOn": on.collect::<Vec<_>>()})
    });
    let own = parts.iter().filter(|(key, _)| programs.contains(key.0.as_str()));
    let own: Vec<String> = own.map(|(key, part)| reference(key, &part.package)).collect();
    json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": time,
            "component": {
                "type": "application",
                "bom-ref": release,
                "name": "tenure",
                "version": version,
                "licenses": [{"expression": env!("CARGO_PKG_LICENSE")}],
            },
        },
        "components": parts.iter().map(|(key, part)| component(key, part)).chain(of_compiler(compiler)).collect::<Vec<_>>(),
        "dependencies": std::iter::once(json!({"ref": release, "dependsOn": own})).chain(dependencies).collect::<Vec<_>>(),
    })
}

/// What every program has besides: Rust's library, and the C library that is linked with it.
fn of_compiler(version: &str) -> [Value; 2] {
    [
        json!({
            "type": "library", "bom-ref": format!("rust-std@{version}"), "name": "rust-std", "version": version, "scope": "required",
            "description": "Rust's standard library", "licenses": [{"expression": "MIT OR Apache-2.0"}],
            "purl": format!("pkg:generic/rust-std@{version}"),
        }),
        json!({
            "type": "library", "bom-ref": "musl", "name": "musl", "scope": "required",
            "description": format!("The C library, as Rust {version} has it for static programs"),
            "licenses": [{"expression": "MIT"}],
        }),
    ]
}

fn component((name, version): &Key, part: &Part) -> Value {
    let package = &part.package;
    let key = (name.clone(), version.clone());
    let mut component = json!({
        "type": "library",
        "bom-ref": reference(&key, package),
        "name": name,
        "version": version,
        "scope": if part.linked { "required" } else { "excluded" },
    });
    if let Some(text) = &package.description {
        component["description"] = json!(text.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    if let Some(licence) = &package.licence {
        component["licenses"] = json!([{"expression": modern(licence)}]);
    }
    if let Some(checksum) = &package.checksum {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    if package.source.is_some() {
        component["purl"] = json!(purl(&key));
        if let Some(address) = &package.repository {
            component["externalReferences"] = json!([{"type": "vcs", "url": address}]);
        }
    }
    component
}

/// By what the bill names a package: the address that all tools know, if it is from the registry.
fn reference(key: &Key, package: &Package) -> String {
    if package.source.is_some() { purl(key) } else { format!("{}@{}", key.0, key.1) }
}

fn purl((name, version): &Key) -> String {
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}
