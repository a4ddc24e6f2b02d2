//! What `deny.toml` allows of dependencies: licences, sources, versions. The file is that of cargo-deny, whose own check also knows advisories
//! and yanked versions, and needs the network; this one needs nothing, so every CI run has it.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use toml_edit::{DocumentMut, Item};

use crate::graph::{Graph, Key, Package};
use crate::licence;

/// The registry whose packages are accepted, in the words of lock files.
const REGISTRY: &str = "crates.io-index";

/// The rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    targets: Vec<String>,
    licences: Vec<String>,
    /// Versions that may be there beside another: name and beginning of the version.
    skipped: Vec<Key>,
}

impl Policy {
    /// Reads `deny.toml`. It must deny what this check denies: a rule that is relaxed there would not be here.
    pub fn parse(text: &str) -> Result<Self> {
        let document: DocumentMut = text.parse().context("deny.toml is no TOML")?;
        for (section, field) in [
            ("sources", "unknown-registry"),
            ("sources", "unknown-git"),
            ("bans", "multiple-versions"),
            ("bans", "wildcards"),
        ] {
            let value = document.get(section).and_then(|it| it.get(field)).and_then(Item::as_str);
            anyhow::ensure!(
                value == Some("deny"),
                "deny.toml: {section}.{field} is {value:?}; accepted is \"deny\""
            );
        }
        let texts = |section: &str, field: &str| -> Result<Vec<String>> {
            let value = document.get(section).and_then(|it| it.get(field)).and_then(Item::as_array);
            let value = value.with_context(|| format!("deny.toml has no list {section}.{field}"))?;
            Ok(value.iter().filter_map(|it| it.as_str()).map(str::to_owned).collect())
        };
        let skip = document.get("bans").and_then(|it| it.get("skip")).and_then(Item::as_array);
        let skipped = skip.into_iter().flatten().enumerate().map(|(at, entry)| {
            let found = entry.as_inline_table().and_then(|it| it.get("crate")?.as_str()?.split_once('@'));
            let (name, version) = found.with_context(|| {
                format!("deny.toml: bans.skip[{at}] is not {{ crate = \"NAME@VERSION\", reason = … }}")
            })?;
            Ok((name.to_owned(), version.to_owned()))
        });
        Ok(Self {
            targets: texts("graph", "targets")?,
            licences: texts("licenses", "allow")?,
            skipped: skipped.collect::<Result<_>>()?,
        })
    }

    /// The targets that count.
    pub fn targets(&self) -> &[String] {
        &self.targets
    }

    /// What is wrong with these workspaces, a sentence each, if they are to be compiled with the compiler of this version.
    pub fn objections(&self, graphs: &[Graph], oldest: &str) -> Result<Vec<String>> {
        let mut objections = Vec::new();
        let mut used = vec![false; self.skipped.len()];
        for graph in graphs {
            for (key, package) in &graph.packages {
                let of_package = self.of_package(package, oldest)?;
                objections.extend(of_package.into_iter().map(|what| format!("{} {}: {what}", key.0, key.1)));
            }
            objections.extend(self.duplicates(graph, &mut used));
        }
        let unused = self.skipped.iter().zip(used).filter(|(_, used)| !used);
        objections.extend(unused.map(|((name, version), _)| {
            format!(
                "deny.toml: bans.skip has {name}@{version}, beside which there is no other version; remove it"
            )
        }));
        objections.sort();
        objections.dedup();
        Ok(objections)
    }

    fn of_package(&self, package: &Package, oldest: &str) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        match &package.licence {
            None => wrong.push("it names no licence".to_owned()),
            Some(text) if !licence::allows(text, &self.licences)? => {
                wrong.push(format!("its licence is {text}, which licenses.allow of deny.toml does not have"));
            }
            Some(_) => {}
        }
        if let Some(source) = &package.source {
            if !(source.starts_with("registry+") && source.ends_with(REGISTRY)) {
                wrong.push(format!("it comes from {source}; accepted is crates.io"));
            } else if package.checksum.is_none() {
                wrong.push("the lock file has no checksum of it".to_owned());
            }
        }
        if let Some(version) = package.rust_version.as_deref().filter(|it| numbers(it) > numbers(oldest)) {
            wrong.push(format!("it needs Rust {version}, and rust-version of Cargo.toml promises {oldest}"));
        }
        let wildcards = package.wildcards.iter().filter(|_| package.source.is_none());
        wrong.extend(wildcards.map(|name| format!("it accepts every version of {name}; name one")));
        Ok(wrong)
    }

    /// Packages of which a workspace has two versions, without those that are skipped.
    fn duplicates(&self, graph: &Graph, used: &mut [bool]) -> Vec<String> {
        let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, version) in graph.packages.keys() {
            versions.entry(name).or_default().push(version);
        }
        versions.retain(|_, all| all.len() > 1);
        for (at, (name, prefix)) in self.skipped.iter().enumerate() {
            let Some(all) = versions.get_mut(name.as_str()) else { continue };
            let before = all.len();
            all.retain(|version| !has_prefix(version, prefix));
            used[at] |= all.len() < before;
        }
        let several = versions.into_iter().filter(|(_, all)| all.len() > 1);
        several
            .map(|(name, all)| {
                format!("{name}: it is there in the versions {}; agree on one", all.join(", "))
            })
            .collect()
    }
}

/// Whether `1.2.3` is a version of `1.2`.
fn has_prefix(version: &str, prefix: &str) -> bool {
    version.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-', '+']))
}

/// The numbers of a version of Rust, for comparison; what is missing is zero.
fn numbers(version: &str) -> [u32; 3] {
    let mut parts = version.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    std::array::from_fn(|_| parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests;
