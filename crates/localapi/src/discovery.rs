//! Discovery: the groups, versions and resources. Clients that prefer the aggregated form get this one, which
//! they also understand.
//!
//! Everything is computed from the registry; nothing here knows a kind by name.

use std::cmp::Reverse;

use kube::core::Version;
use serde_json::{Map, Value, json};

use crate::registry::{Registry, Resource};

/// The Kubernetes version whose behaviour this server has.
const MAJOR: &str = "1";
const MINOR: &str = "35";
const GIT_VERSION: &str = "v1.35.4+tenure";

/// The answer to `/version`.
pub(crate) fn version() -> Value {
    json!({
        "major": MAJOR,
        "minor": MINOR,
        "emulationMajor": MAJOR,
        "emulationMinor": MINOR,
        "minCompatibilityMajor": MAJOR,
        "minCompatibilityMinor": "34",
        "gitVersion": GIT_VERSION,
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": concat_platform(),
    })
}

fn concat_platform() -> String {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{}/{arch}", std::env::consts::OS)
}

/// The answer to `/api`.
pub(crate) fn legacy() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

/// The answer to `/apis`.
pub(crate) fn groups(registry: &Registry) -> Value {
    let groups: Vec<Value> = names(registry).iter().filter_map(|name| group_body(registry, name)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// The answer to `/apis/GROUP`; `None` if there is no such group.
pub(crate) fn group(registry: &Registry, name: &str) -> Option<Value> {
    let body = group_body(registry, name)?;
    let mut out = json!({"kind": "APIGroup", "apiVersion": "v1"});
    if let (Value::Object(out), Value::Object(body)) = (&mut out, body) {
        out.extend(body);
    }
    Some(out)
}

fn group_body(registry: &Registry, name: &str) -> Option<Value> {
    let versions: Vec<Value> = versions(registry, name)
        .iter()
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    let preferred = versions.first()?.clone();
    Some(json!({"name": name, "versions": versions, "preferredVersion": preferred}))
}

/// The answer to `/api/v1` and `/apis/GROUP/VERSION`; `None` if there is no such version.
pub(crate) fn resources(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let mut listed = Vec::new();
    for resource in of(registry, group, version) {
        listed.push(resource_entry(resource));
        for sub in subresources(resource) {
            let mut entry = json!({
                "name": format!("{}/{}", resource.plural, sub.name),
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": sub.kind,
                "verbs": sub.verbs,
            });
            if !sub.group.is_empty() {
                entry["group"] = json!(sub.group);
                entry["version"] = json!("v1");
            }
            listed.push(entry);
        }
    }
    if listed.is_empty() {
        return None;
    }
    let mut out = Map::new();
    out.insert("kind".to_owned(), json!("APIResourceList"));
    if !group.is_empty() {
        out.insert("apiVersion".to_owned(), json!("v1"));
    }
    out.insert("groupVersion".to_owned(), json!(crate::registry::api_version(group, version)));
    out.insert("resources".to_owned(), Value::Array(listed));
    Some(Value::Object(out))
}

fn resource_entry(resource: &Resource) -> Value {
    let mut out = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": verbs(resource),
    });
    if !resource.short_names.is_empty() {
        out["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        out["categories"] = json!(resource.categories);
    }
    out
}

fn verbs(resource: &Resource) -> &'static [&'static str] {
    match resource.builtin() {
        // The real server lists the verbs of definitions in another order.
        None => &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"],
        Some(builtin) if builtin.traits.no_delete_collection => {
            &["create", "delete", "get", "list", "patch", "update", "watch"]
        }
        Some(_) => &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
    }
}

struct Subresource<'a> {
    name: &'static str,
    /// Group of its kind, if it is not the resource's.
    group: &'static str,
    kind: std::borrow::Cow<'a, str>,
    verbs: &'static [&'static str],
}

fn subresources(resource: &Resource) -> Vec<Subresource<'_>> {
    const CHANGE: &[&str] = &["get", "patch", "update"];
    let mut subs = Vec::new();
    let own = |name, verbs| Subresource { name, group: "", kind: resource.kind.as_str().into(), verbs };
    if resource.status {
        subs.push(own("status", CHANGE));
    }
    if resource.scale.is_some() {
        let scale = Subresource { name: "scale", group: "autoscaling", kind: "Scale".into(), verbs: CHANGE };
        if resource.builtin().is_some() { subs.insert(0, scale) } else { subs.push(scale) }
    }
    subs
}

fn of<'r>(registry: &'r Registry, group: &'r str, version: &'r str) -> impl Iterator<Item = &'r Resource> {
    registry.all().map(AsRef::as_ref).filter(move |r: &&Resource| r.group == group && r.version == version)
}

/// All groups except the core group.
fn names(registry: &Registry) -> Vec<String> {
    let mut names: Vec<String> = registry.all().map(|resource| resource.group.clone()).collect();
    names.retain(|name| !name.is_empty());
    names.sort();
    names.dedup();
    names
}

/// The versions of a group, the preferred one first.
fn versions(registry: &Registry, group: &str) -> Vec<String> {
    let mut versions: Vec<&str> =
        registry.all().filter(|r| r.group == group).map(|r| r.version.as_str()).collect();
    versions.sort_unstable();
    versions.dedup();
    versions.sort_by_key(|version| Reverse(Version::parse(version).priority()));
    versions.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::store::{Draft, Key};

    /// A registry with one definition, `widgets.example.com`, in three versions.
    fn registry() -> Registry {
        let version = |name: &str| {
            json!({"name": name, "served": true, "storage": name == "v1",
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
        };
        let definition = json!({
            "metadata": {"name": "widgets.example.com", "uid": "1"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
                "versions": [version("v1alpha1"), version("v1"), version("v2beta1")],
            },
            "status": {"conditions": [{"type": "Established", "status": "True"}]},
        });
        let object = Draft::new(definition).finish(Key::new("", "widgets.example.com"), 7);
        Registry::build(&[Arc::new(object)], None)
    }

    #[test]
    fn a_definition_is_discovered_with_its_versions_and_subresources() {
        let registry = registry();
        let found = group(&registry, "example.com").unwrap();
        let versions: Vec<&str> = found["versions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["version"].as_str().unwrap())
            .collect();
        assert_eq!(versions, ["v1", "v2beta1", "v1alpha1"]);
        assert_eq!(found["preferredVersion"]["version"], "v1");
        let found = resources(&registry, "example.com", "v1").unwrap();
        let names: Vec<&str> =
            found["resources"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["widgets", "widgets/status", "widgets/scale"]);
        assert_eq!(found["resources"][0]["shortNames"], json!(["wd"]));
        assert!(group(&registry, "nothing").is_none() && resources(&registry, "example.com", "v2").is_none());
    }

    #[test]
    fn the_core_group_has_its_own_ways() {
        let core = resources(&registry(), "", "v1").unwrap();
        assert_eq!((core.get("apiVersion"), &core["groupVersion"]), (None, &json!("v1")));
        let listed = core["resources"].as_array().unwrap();
        let namespace = listed.iter().find(|one| one["name"] == "namespaces").unwrap();
        assert_eq!(
            namespace["verbs"],
            json!(["create", "delete", "get", "list", "patch", "update", "watch"])
        );
        let groups = groups(&registry());
        assert!(groups["groups"].as_array().unwrap().iter().all(|one| one["name"] != ""));
    }
}
