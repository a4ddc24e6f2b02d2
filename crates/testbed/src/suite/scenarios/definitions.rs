//! Custom resource definitions: installed, established, changed, refused, removed.

use serde_json::{Value, json};

use super::super::objects::{DEFINITIONS, definition, widget, widget_definition, widgets};
use super::super::recorder::Call;
use super::super::{Outcome, Recorder};
use super::scenarios;

scenarios![definitions:
    a_definition_is_established_and_served,
    a_removed_definition_takes_its_objects_along,
    an_object_with_a_finalizer_holds_its_definition,
    a_definition_that_makes_no_sense_is_refused,
    a_schema_that_cannot_be_used_is_refused,
    a_changed_schema_counts_from_then_on,
    two_versions_show_the_same_object,
    a_cluster_scoped_kind_has_no_namespace,
    names_that_are_taken_are_not_accepted,
    a_definition_without_defaults_gets_them,
    an_unserved_version_is_not_found,
];

async fn a_definition_is_established_and_served(r: &mut Recorder) -> Outcome {
    let group = r.own_group();
    let mut definition = widget_definition(&group);
    let created = r.peek(Call::new("POST", DEFINITIONS).json(&definition)).await?;
    definition["metadata"] = created.body["metadata"].clone();
    r.note("created", json!({"status": created.status(), "spec": created.body["spec"], "generation": created.body["metadata"]["generation"]}));
    r.served(&definition).await?;
    let one = format!("{DEFINITIONS}/widgets.{group}");
    let established = r.get(&one).await?;
    r.note("uid and generation stay", json!(established.uid()? == created.uid()?));
    r.get(&format!("/apis/{group}/v1")).await?;
    r.get(&format!("/apis/{group}")).await?;
    r.get(&widgets(&group, "default")).await?;
    Ok(())
}

async fn a_removed_definition_takes_its_objects_along(r: &mut Recorder) -> Outcome {
    let (group, all) = r.own_widgets().await?;
    let one = format!("{DEFINITIONS}/widgets.{group}");
    r.post(&all, &widget(&group, "a", &json!({}))).await?;
    let deleted = r.peek(Call::new("DELETE", &one)).await?;
    r.note("deleted", json!({"status": deleted.status(), "kind": deleted.body["kind"]}));
    r.until_gone(&one).await?;
    r.until(&all, "the collection to be gone", |answer| answer.status() == 404).await?;
    r.until(&format!("/apis/{group}"), "the group to be gone", |answer| answer.status() == 404).await?;
    // The name is free again, and the old objects are gone.
    r.install(&widget_definition(&group)).await?;
    r.get(&all).await?;
    Ok(())
}

async fn an_object_with_a_finalizer_holds_its_definition(r: &mut Recorder) -> Outcome {
    let (group, all) = r.own_widgets().await?;
    let one = format!("{DEFINITIONS}/widgets.{group}");
    let mut object = widget(&group, "a", &json!({}));
    object["metadata"]["finalizers"] = json!(["tenure.test/x"]);
    r.post(&all, &object).await?;
    r.peek(Call::new("DELETE", &one)).await?;
    let leaving = |answer: &super::super::Answer| answer.body["metadata"]["deletionTimestamp"].is_string();
    r.until(&format!("{all}/a"), "the object to be deleting", leaving).await?;
    r.post(&all, &widget(&group, "b", &json!({}))).await?;
    let held = r.peek(Call::new("GET", &one)).await?;
    r.note("the definition is still there", json!(held.body["metadata"]["finalizers"]));
    r.merge(&format!("{all}/a"), &json!({"metadata": {"finalizers": null}})).await?;
    r.until_gone(&one).await?;
    Ok(())
}

/// Records that a definition is refused, and the reason: servers word the location differently.
async fn refused(r: &mut Recorder, what: &str, definition: &Value) -> Outcome {
    let answer = r.peek(Call::new("POST", &format!("{DEFINITIONS}?dryRun=All")).json(definition)).await?;
    r.note(what, json!([answer.status(), answer.body["reason"], answer.body["details"]["name"]]));
    Ok(())
}

async fn a_definition_that_makes_no_sense_is_refused(r: &mut Recorder) -> Outcome {
    let group = r.own_group();
    let base = widget_definition(&group);
    for (what, pointer, value) in [
        ("another name", "/metadata/name", json!("gadgets.example.com")),
        ("no group", "/spec/group", json!("")),
        ("a bad group", "/spec/group", json!("Bad_Group")),
        ("no plural", "/spec/names/plural", json!("")),
        ("no kind", "/spec/names/kind", json!("")),
        ("a bad scope", "/spec/scope", json!("Everywhere")),
        ("no versions", "/spec/versions", json!([])),
        ("no storage version", "/spec/versions/0/storage", json!(false)),
        ("a bad version", "/spec/versions/0/name", json!("V1_")),
        ("no schema", "/spec/versions/0/schema", json!(null)),
    ] {
        let mut definition = base.clone();
        super::super::document::put(&mut definition, pointer, value);
        refused(r, what, &definition).await?;
    }
    Ok(())
}

async fn a_schema_that_cannot_be_used_is_refused(r: &mut Recorder) -> Outcome {
    let group = r.own_group();
    let spec = |field: Value| json!({"type": "object", "properties": {"a": field}});
    let rule = |rule: Value| json!({"type": "object", "x-kubernetes-validations": [rule], "properties": {"a": {"type": "integer"}}});
    for (what, spec) in [
        ("an unknown type", spec(json!({"type": "text"}))),
        ("a bad pattern", spec(json!({"type": "string", "pattern": "("}))),
        ("$ref", spec(json!({"$ref": "#/x"}))),
        ("uniqueItems", spec(json!({"type": "array", "uniqueItems": true, "items": {"type": "string"}}))),
        ("a rule with a syntax error", rule(json!({"rule": "self.a ==", "message": "m"}))),
        ("an empty rule", rule(json!({"rule": ""}))),
        ("a bad reason", rule(json!({"rule": "self.a > 1", "reason": "Odd"}))),
    ] {
        refused(r, what, &definition(&group, &spec)).await?;
    }
    Ok(())
}

async fn a_changed_schema_counts_from_then_on(r: &mut Recorder) -> Outcome {
    let (group, all) = r.own_widgets().await?;
    r.post(&all, &widget(&group, "old", &json!({"size": 50}))).await?;
    let one = format!("{DEFINITIONS}/widgets.{group}");
    let pointer = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size";
    let present = r.peek(Call::new("GET", &one)).await?;
    let smaller = present.with(pointer, json!({"type": "integer", "maximum": 10, "default": 4}));
    let changed = r.peek(Call::new("PUT", &one).json(&smaller)).await?;
    r.note("changed", json!([changed.status(), changed.body["metadata"]["generation"]]));
    // The new schema takes effect a moment later.
    let probe = format!("{all}?dryRun=All");
    let mut tries = 0;
    while tries < 200
        && r.peek(Call::new("POST", &probe).json(&widget(&group, "p", &json!({"size": 20})))).await?.status()
            == 201
    {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        tries += 1;
    }
    r.post(&all, &widget(&group, "big", &json!({"size": 20}))).await?;
    r.post(&all, &widget(&group, "new", &json!({}))).await?;
    r.get(&format!("{all}/old")).await?;
    // Stored invalid values may stay, even if other fields change.
    r.merge(&format!("{all}/old"), &json!({"spec": {"color": "red"}})).await?;
    r.merge(&format!("{all}/old"), &json!({"spec": {"size": 49}})).await?;
    Ok(())
}

async fn two_versions_show_the_same_object(r: &mut Recorder) -> Outcome {
    let group = r.own_group();
    let mut definition = widget_definition(&group);
    let mut second = definition["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    if let Some(versions) = definition["spec"]["versions"].as_array_mut() {
        versions.push(second);
    }
    r.install(&definition).await?;
    let namespace = r.namespace().await?;
    r.post(&widgets(&group, &namespace), &widget(&group, "a", &json!({}))).await?;
    r.get(&format!("/apis/{group}/v2/namespaces/{namespace}/widgets/a")).await?;
    r.get(&format!("/apis/{group}/v2/namespaces/{namespace}/widgets")).await?;
    r.get(&format!("/apis/{group}")).await?;
    Ok(())
}

async fn a_cluster_scoped_kind_has_no_namespace(r: &mut Recorder) -> Outcome {
    let group = r.own_group();
    let mut definition = widget_definition(&group);
    definition["spec"]["scope"] = json!("Cluster");
    r.install(&definition).await?;
    let all = format!("/apis/{group}/v1/widgets");
    r.post(&all, &widget(&group, "a", &json!({}))).await?;
    r.get(&format!("{all}/a")).await?;
    r.get(&widgets(&group, "default")).await?;
    r.post(&widgets(&group, "default"), &widget(&group, "b", &json!({}))).await?;
    let mut placed = widget(&group, "b", &json!({}));
    placed["metadata"]["namespace"] = json!("default");
    r.post(&all, &placed).await?;
    r.delete(&format!("{all}/a")).await?;
    Ok(())
}

async fn names_that_are_taken_are_not_accepted(r: &mut Recorder) -> Outcome {
    let (group, _) = r.own_widgets().await?;
    let mut other = widget_definition(&group);
    other["metadata"]["name"] = json!(format!("gadgets.{group}"));
    other["spec"]["names"] =
        json!({"plural": "gadgets", "singular": "gadget", "kind": "Widget", "listKind": "GadgetList"});
    r.prepare(DEFINITIONS, &other).await?;
    let decided =
        |answer: &super::super::Answer| answer.body.pointer("/status/conditions/0/status").is_some();
    let answer =
        r.wait(&format!("{DEFINITIONS}/gadgets.{group}"), "a decision on the names", decided).await?;
    let conditions: Vec<_> = answer.body["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| json!([one["type"], one["status"], one["reason"], one["message"]]))
        .collect();
    r.note("conditions", json!(conditions));
    Ok(())
}

async fn a_definition_without_defaults_gets_them(r: &mut Recorder) -> Outcome {
    let group = r.own_group();
    let mut definition = widget_definition(&group);
    definition["spec"]["names"] = json!({"plural": "widgets", "kind": "Widget"});
    let created = r.peek(Call::new("POST", &format!("{DEFINITIONS}?dryRun=All")).json(&definition)).await?;
    r.note("names", created.body["spec"]["names"].clone());
    r.note("conversion", created.body["spec"]["conversion"].clone());
    Ok(())
}

async fn an_unserved_version_is_not_found(r: &mut Recorder) -> Outcome {
    let group = r.own_group();
    let mut definition = widget_definition(&group);
    let mut second = definition["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    second["served"] = json!(false);
    if let Some(versions) = definition["spec"]["versions"].as_array_mut() {
        versions.push(second);
    }
    r.install(&definition).await?;
    r.get(&format!("/apis/{group}/v2/namespaces/default/widgets")).await?;
    r.get(&format!("/apis/{group}/v2")).await?;
    r.get(&format!("/apis/{group}/v3/namespaces/default/widgets")).await?;
    Ok(())
}
