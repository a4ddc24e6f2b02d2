//! Discovery: how clients find out which kinds exist.

use serde_json::{Value, json};

use super::super::recorder::Call;
use super::super::{Outcome, Recorder};
use super::scenarios;

scenarios![discovery:
    the_groups_that_are_served_are_listed,
    the_resources_of_a_version_are_listed,
    custom_resources_are_listed_with_subresources,
    health_and_version_are_answered,
    unknown_paths_are_not_found,
];

const GROUPS: [&str; 3] = ["apps", "coordination.k8s.io", "apiextensions.k8s.io"];

/// The kinds that both servers have; the real one has many more.
const KINDS: [(&str, &[&str]); 5] = [
    (
        "/api/v1",
        &[
            "namespaces",
            "nodes",
            "pods",
            "services",
            "events",
            "configmaps",
            "secrets",
            "serviceaccounts",
            "namespaces/status",
            "nodes/status",
            "pods/status",
        ],
    ),
    (
        "/apis/apps/v1",
        &[
            "deployments",
            "deployments/status",
            "deployments/scale",
            "replicasets",
            "daemonsets",
            "statefulsets",
        ],
    ),
    ("/apis/policy/v1", &["poddisruptionbudgets"]),
    ("/apis/coordination.k8s.io/v1", &["leases"]),
    ("/apis/apiextensions.k8s.io/v1", &["customresourcedefinitions", "customresourcedefinitions/status"]),
];

async fn the_groups_that_are_served_are_listed(r: &mut Recorder) -> Outcome {
    let answer = r.peek(Call::new("GET", "/apis")).await?;
    let groups = answer.body["groups"].as_array().cloned().unwrap_or_default();
    r.note("kind", json!([answer.status(), answer.body["kind"], answer.body["apiVersion"]]));
    for name in GROUPS {
        let group = groups.iter().find(|group| group["name"] == name).map(|group| {
            json!({"v1": group["versions"].as_array().is_some_and(|versions| versions.iter().any(|one| one["version"] == "v1")), "preferred": group["preferredVersion"]})
        });
        r.note(name, json!(group));
    }
    let answer = r.peek(Call::new("GET", "/api")).await?;
    r.note("/api", json!([answer.status(), answer.body["kind"], answer.body["versions"]]));
    r.get("/apis/apps").await?;
    Ok(())
}

async fn the_resources_of_a_version_are_listed(r: &mut Recorder) -> Outcome {
    for (path, names) in KINDS {
        let answer = r.peek(Call::new("GET", path)).await?;
        r.note(
            path,
            json!([
                answer.status(),
                answer.body["kind"],
                answer.body["apiVersion"],
                answer.body["groupVersion"]
            ]),
        );
        let resources = answer.body["resources"].as_array().cloned().unwrap_or_default();
        for name in names {
            let mut resource = resources.iter().find(|one| one["name"] == *name).cloned().unwrap_or_default();
            if let Some(resource) = resource.as_object_mut() {
                // The storage version hash, which only the storage migrator uses.
                resource.remove("storageVersionHash");
            }
            r.note(&format!("{path} {name}"), resource);
        }
    }
    Ok(())
}

async fn custom_resources_are_listed_with_subresources(r: &mut Recorder) -> Outcome {
    let (group, _) = r.own_widgets().await?;
    let answer = r.peek(Call::new("GET", &format!("/apis/{group}/v1"))).await?;
    let mut body = answer.body.clone();
    for resource in body["resources"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        resource.remove("storageVersionHash");
    }
    r.note("resources", body);
    r.get(&format!("/apis/{group}")).await?;
    let listed = |answer: &super::super::Answer| {
        answer.body["groups"].as_array().into_iter().flatten().any(|one| one["name"] == group.as_str())
    };
    r.wait("/apis", "the group in the list of groups", listed).await?;
    Ok(())
}

async fn health_and_version_are_answered(r: &mut Recorder) -> Outcome {
    for path in ["/healthz", "/livez", "/readyz"] {
        let answer = r.peek(Call::new("GET", path)).await?;
        r.note(path, json!([answer.status(), answer.content_type, answer.body]));
    }
    let version = r.peek(Call::new("GET", "/version")).await?;
    let mut keys: Vec<_> =
        version.body.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect();
    keys.retain(|key| ["major", "minor", "gitVersion", "platform"].contains(&key.as_str()));
    r.note("/version", json!([version.status(), keys, version.body["major"], version.body["minor"]]));
    Ok(())
}

async fn unknown_paths_are_not_found(r: &mut Recorder) -> Outcome {
    for path in [
        "/apis/none.example.com",
        "/apis/none.example.com/v1",
        "/apis/none.example.com/v1/things",
        "/apis/apps/v9",
        "/apis/apps/v9/deployments",
        "/api/v9",
        "/api/v1/things",
        "/api/v1/namespaces/default/things",
        "/api/v1/namespaces/default/things/x",
        "/apis/apps/v1/things",
        "/api/v1/namespaces/default/pods/x/things",
        "/nothing",
        "/apis/coordination.k8s.io/v1/namespaces/default/leases/x/y/z",
    ] {
        r.get(path).await?;
    }
    Ok(())
}
