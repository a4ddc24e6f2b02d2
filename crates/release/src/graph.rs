//! The packages that a workspace's programs and tests are made of, as cargo tells, with the checksums of its lock file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use toml_edit::DocumentMut;

/// Name and version: there is one registry, so no two packages share them.
pub type Key = (String, String);

/// A package.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Package {
    /// Its licence, as an expression of SPDX.
    pub licence: Option<String>,
    /// Where it is from; nothing if it is in this repository.
    pub source: Option<String>,
    /// The oldest compiler that it promises to work with.
    pub rust_version: Option<String>,
    /// Its description.
    pub description: Option<String>,
    /// Where its sources are developed.
    pub repository: Option<String>,
    /// SHA-256 of what the registry has.
    pub checksum: Option<String>,
    /// What it depends on, for building and tests too.
    pub dependencies: BTreeSet<Key>,
    /// Its dependencies of which it accepts every version.
    pub wildcards: Vec<String>,
}

/// The packages of a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    /// All of them.
    pub packages: BTreeMap<Key, Package>,
}

impl Graph {
    /// Asks cargo for what a workspace needs on these targets, with all features.
    pub fn read(manifest: &Path, targets: &[String]) -> Result<Self> {
        let mut arguments =
            ["metadata", "--format-version", "1", "--locked", "--all-features"].map(str::to_owned).to_vec();
        arguments.extend(["--manifest-path".to_owned(), manifest.display().to_string()]);
        arguments.extend(targets.iter().flat_map(|target| ["--filter-platform".to_owned(), target.clone()]));
        let metadata = serde_json::from_str(&cargo(&arguments)?).context("cargo's metadata is no JSON")?;
        let lock = manifest.with_file_name("Cargo.lock");
        let text =
            std::fs::read_to_string(&lock).with_context(|| format!("cannot read {}", lock.display()))?;
        let mut graph = Self::parse(&metadata, &text)
            .with_context(|| format!("cannot read the packages of {}", manifest.display()))?;
        // Cargo also describes packages that only a feature which is not on would bring.
        let mut all = vec!["--workspace", "--all-features", "--edges", "normal,build,dev"];
        all.extend(targets.iter().flat_map(|target| ["--target", target.as_str()]));
        let used = listed(&manifest.display().to_string(), &all)?;
        graph.packages.retain(|key, _| used.contains(key));
        Ok(graph)
    }

    /// Reads what cargo said, and the text of the lock file.
    pub fn parse(metadata: &Value, lock: &str) -> Result<Self> {
        let checksums = checksums(lock)?;
        let all = array(&metadata["packages"]).map(|package| Ok((text(package, "id")?, package)));
        let all: BTreeMap<&str, &Value> = all.collect::<Result<_>>()?;
        let key = |id: &str| -> Result<Key> {
            let package = all
                .get(id)
                .with_context(|| format!("cargo names a package {id} that it does not describe"))?;
            Ok((text(package, "name")?.to_owned(), text(package, "version")?.to_owned()))
        };
        let mut graph = Self::default();
        for node in array(&metadata["resolve"]["nodes"]) {
            let id = text(node, "id")?;
            let dependencies = array(&node["deps"]).map(|it| key(text(it, "pkg")?)).collect::<Result<_>>()?;
            let (key, found) = (key(id)?, all[id]);
            let optional = |name: &str| found[name].as_str().map(str::to_owned);
            let wildcards = array(&found["dependencies"])
                .filter(|it| it["req"] == "*" && it["path"].is_null())
                .map(|it| Ok(text(it, "name")?.to_owned()))
                .collect::<Result<_>>()?;
            let package = Package {
                licence: optional("license"),
                source: optional("source"),
                rust_version: optional("rust_version"),
                description: optional("description"),
                repository: optional("repository"),
                checksum: checksums.get(&key).cloned(),
                dependencies,
                wildcards,
            };
            graph.packages.insert(key, package);
        }
        ensure!(!graph.packages.is_empty(), "cargo describes no package");
        Ok(graph)
    }
}

/// The packages that `cargo tree` lists, with these arguments.
pub fn listed(manifest: &str, arguments: &[&str]) -> Result<BTreeSet<Key>> {
    let mut all =
        vec!["tree", "--locked", "--manifest-path", manifest, "--prefix", "none", "--format", "{p}"];
    all.extend(arguments);
    let said = cargo(&all.into_iter().map(str::to_owned).collect::<Vec<_>>())?;
    // `name v1.0.0`, and then a path or a remark. An empty line is between programs.
    let keys = said.lines().filter(|line| !line.is_empty()).map(|line| {
        let mut words = line.split(' ');
        let (name, version) = (words.next(), words.next().and_then(|it| it.strip_prefix('v')));
        let (name, version) = name.zip(version).with_context(|| format!("cargo tree says {line:?}"))?;
        Ok((name.to_owned(), version.to_owned()))
    });
    keys.collect()
}

/// What cargo says.
fn cargo(arguments: &[String]) -> Result<String> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let said = Command::new(program).args(arguments).output().context("cannot start cargo")?;
    let shown =
        || format!("`cargo {}` failed: {}", arguments.join(" "), String::from_utf8_lossy(&said.stderr));
    ensure!(said.status.success(), shown());
    String::from_utf8(said.stdout).context("cargo says something that is no text")
}

fn checksums(lock: &str) -> Result<BTreeMap<Key, String>> {
    let document: DocumentMut = lock.parse().context("the lock file is no TOML")?;
    let packages = document.get("package").and_then(|it| it.as_array_of_tables());
    let packages = packages.context("the lock file has no packages")?;
    let entries = packages.iter().filter_map(|package| {
        let text = |name: &str| Some(package.get(name)?.as_str()?.to_owned());
        Some(((text("name")?, text("version")?), text("checksum")?))
    });
    Ok(entries.collect())
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text<'v>(of: &'v Value, name: &str) -> Result<&'v str> {
    of[name].as_str().with_context(|| format!("cargo's metadata has an object without {name}"))
}
