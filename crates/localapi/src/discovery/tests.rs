use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::table::tests::registry;

#[test]
fn a_definition_is_discovered_with_its_versions_and_subresources() {
    let registry = registry(&json!([]));
    assert_eq!(
        group(&registry, "example.com").unwrap(),
        json!({"kind": "APIGroup", "apiVersion": "v1", "name": "example.com",
            "versions": [{"groupVersion": "example.com/v1", "version": "v1"}, {"groupVersion": "example.com/v1beta1", "version": "v1beta1"}],
            "preferredVersion": {"groupVersion": "example.com/v1", "version": "v1"}})
    );
    let verbs = json!(["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]);
    assert_eq!(
        resources(&registry, "example.com", "v1").unwrap(),
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "example.com/v1", "resources": [
            {"name": "widgets", "singularName": "widget", "namespaced": true, "kind": "Widget", "verbs": verbs,
             "shortNames": ["wd"], "categories": ["all"], "storageVersionHash": "gIwvi5rymmg="},
            {"name": "widgets/status", "singularName": "", "namespaced": true, "kind": "Widget", "verbs": ["get", "patch", "update"]},
            {"name": "widgets/scale", "singularName": "", "namespaced": true, "group": "autoscaling", "version": "v1", "kind": "Scale",
             "verbs": ["get", "patch", "update"]},
        ]})
    );
    assert!(group(&registry, "nothing").is_none());
    assert!(resources(&registry, "example.com", "v2").is_none());
}

#[test]
fn the_core_group_has_its_own_ways() {
    let registry = registry(&json!([]));
    let core = resources(&registry, "", "v1").unwrap();
    assert_eq!((core.get("apiVersion"), &core["groupVersion"]), (None, &json!("v1")));
    let listed = core["resources"].as_array().unwrap();
    let namespace = listed.iter().find(|r| r["name"] == "namespaces").unwrap();
    assert_eq!(namespace["verbs"], json!(["create", "delete", "get", "list", "patch", "update", "watch"]));
    assert!(listed.iter().any(|r| r["name"] == "namespaces/finalize" && r["verbs"] == json!(["update"])));
    assert_eq!(legacy("x:1")["versions"], json!(["v1"]));
    let hash = |name: &str| listed.iter().find(|r| r["name"] == name).unwrap()["storageVersionHash"].clone();
    assert_eq!((hash("pods"), hash("events")), (json!("xPOwRZ+Yhw8="), json!("r2yiGXH7wu8=")));
    let names: Vec<&Value> = listed.iter().map(|r| &r["name"]).collect();
    assert!(names.contains(&&json!("pods/status")));
}

#[test]
fn groups_are_listed_built_in_ones_first() {
    let registry = registry(&json!([]));
    let all = groups(&registry);
    let names: Vec<&str> =
        all["groups"].as_array().unwrap().iter().map(|g| g["name"].as_str().unwrap()).collect();
    assert_eq!(names.last(), Some(&"example.com"));
    assert!(names.contains(&"apps") && names.contains(&"coordination.k8s.io") && !names.contains(&""));
}

#[test]
fn aggregated_discovery_says_everything_at_once() {
    let registry = registry(&json!([]));
    let all = aggregated(&registry, false, "v2");
    assert_eq!(
        (&all["kind"], &all["apiVersion"]),
        (&json!("APIGroupDiscoveryList"), &json!("apidiscovery.k8s.io/v2"))
    );
    let ours =
        all["items"].as_array().unwrap().iter().find(|g| g["metadata"]["name"] == "example.com").unwrap();
    let widget = &ours["versions"][0]["resources"][0];
    assert_eq!(widget["responseKind"], json!({"group": "example.com", "version": "v1", "kind": "Widget"}));
    assert_eq!((&widget["scope"], &widget["singularResource"]), (&json!("Namespaced"), &json!("widget")));
    assert_eq!(
        widget["subresources"][1]["responseKind"],
        json!({"group": "autoscaling", "version": "v1", "kind": "Scale"})
    );
    assert_eq!(ours["versions"][1]["freshness"], "Current");
    let core = aggregated(&registry, true, "v2");
    assert_eq!(core["items"][0]["metadata"], json!({}));
}

#[test]
fn the_version_is_the_one_we_answer_like() {
    let version = version();
    assert_eq!((&version["major"], &version["minor"]), (&json!("1"), &json!("35")));
    assert!(version["gitVersion"].as_str().unwrap().starts_with("v1.35."));
}

#[test]
fn stable_versions_come_before_beta_and_alpha() {
    let mut versions = vec![
        "v1alpha1",
        "foo10",
        "v10",
        "v11beta2",
        "v2",
        "v1",
        "v3beta1",
        "v12alpha1",
        "v11alpha2",
        "foo1",
        "v10beta3",
        "v11beta1",
    ];
    versions.sort_by(|a, b| compare_versions(b, a));
    assert_eq!(
        versions,
        [
            "v10",
            "v2",
            "v1",
            "v11beta2",
            "v11beta1",
            "v10beta3",
            "v3beta1",
            "v12alpha1",
            "v11alpha2",
            "v1alpha1",
            "foo1",
            "foo10"
        ]
    );
}

proptest! {
    #[test]
    fn versions_are_ordered_totally(a in "v?[0-9]{0,2}(alpha|beta)?[0-9]{0,2}", b in "v?[0-9]{0,2}(alpha|beta)?[0-9]{0,2}") {
        prop_assert_eq!(compare_versions(&a, &b), compare_versions(&b, &a).reverse());
    }
}
