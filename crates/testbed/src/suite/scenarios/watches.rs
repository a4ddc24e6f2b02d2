//! Watches: from a version, from the beginning, with selectors, with bookmarks, and when they end.

use serde_json::{Value, json};

use super::super::objects::{labelled_lease, lease, leases, widget, widgets};
use super::super::{Outcome, Recorder};
use super::scenarios;

scenarios![watches:
    a_watch_from_a_version_sees_what_came_after,
    a_watch_of_a_custom_kind_sees_every_change,
    a_watch_without_version_begins_with_what_exists,
    a_watch_from_zero_begins_with_what_exists,
    an_object_that_begins_or_stops_matching_is_added_or_deleted,
    a_watch_by_field_selector_sees_one_object,
    asking_for_the_initial_list_needs_its_options,
    a_watch_with_bookmarks_gets_one_before_its_end,
    a_watch_ends_after_its_timeout,
    a_watch_across_namespaces_sees_all_of_them,
    a_watch_from_the_future_waits,
    a_watch_with_nonsense_is_refused,
    an_unchanged_write_is_no_event,
    a_deleted_event_has_the_last_state_and_a_newer_version,
    a_watch_of_one_name_in_the_path,
    two_watches_see_the_same_order,
];

async fn a_watch_from_a_version_sees_what_came_after(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    let first = r.post(&all, &lease("a", "one")).await?;
    let second = r.put(&format!("{all}/a"), &first.with("/spec/holderIdentity", json!("two"))).await?;
    r.post(&all, &lease("b", "h")).await?;
    let mut watch = r.watch(&format!("{all}?resourceVersion={}", first.version()?)).await?;
    r.events(&mut watch, 2).await?;
    r.put(&format!("{all}/a"), &second.with("/spec/holderIdentity", json!("three"))).await?;
    r.delete(&format!("{all}/b")).await?;
    r.events(&mut watch, 2).await?;
    let list = r.get(&all).await?;
    let mut later = r.watch(&format!("{all}?resourceVersion={}", list.version()?)).await?;
    r.post(&all, &lease("c", "h")).await?;
    r.events(&mut later, 1).await?;
    r.events(&mut watch, 1).await?;
    Ok(())
}

async fn a_watch_of_a_custom_kind_sees_every_change(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let list = r.get(&all).await?;
    let mut watch = r.watch(&format!("{all}?resourceVersion={}", list.version()?)).await?;
    r.post(&all, &widget(&group, "a", &json!({}))).await?;
    r.merge(&format!("{all}/a"), &json!({"spec": {"size": 5}})).await?;
    r.merge(&format!("{all}/a/status"), &json!({"status": {"ready": 5}})).await?;
    r.merge(&format!("{all}/a"), &json!({"metadata": {"finalizers": ["tenure.test/x"]}})).await?;
    r.delete(&format!("{all}/a")).await?;
    r.merge(&format!("{all}/a"), &json!({"metadata": {"finalizers": null}})).await?;
    r.events(&mut watch, 6).await?;
    Ok(())
}

async fn a_watch_without_version_begins_with_what_exists(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    for name in ["b", "a"] {
        r.post(&all, &lease(name, "h")).await?;
    }
    r.delete(&format!("{all}/a")).await?;
    r.post(&all, &lease("c", "h")).await?;
    let mut watch = r.watch(&all).await?;
    r.events(&mut watch, 2).await?;
    r.delete(&format!("{all}/b")).await?;
    r.events(&mut watch, 1).await?;
    Ok(())
}

async fn a_watch_from_zero_begins_with_what_exists(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    for name in ["b", "a"] {
        r.post(&all, &lease(name, "h")).await?;
    }
    let mut watch = r.watch(&format!("{all}?resourceVersion=0")).await?;
    r.events(&mut watch, 2).await?;
    r.delete(&format!("{all}/b")).await?;
    r.events(&mut watch, 1).await?;
    Ok(())
}

async fn an_object_that_begins_or_stops_matching_is_added_or_deleted(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    let one = format!("{all}/a");
    let first = r.post(&all, &labelled_lease("a", &json!({"side": "right"}))).await?;
    let mut watch =
        r.watch(&format!("{all}?labelSelector=side%3Dleft&resourceVersion={}", first.version()?)).await?;
    for patch in [
        json!({"metadata": {"labels": {"side": "left"}}}),
        json!({"spec": {"holderIdentity": "two"}}),
        json!({"metadata": {"labels": {"side": "right"}}}),
        json!({"spec": {"holderIdentity": "three"}}),
        json!({"metadata": {"labels": {"side": "left"}}}),
    ] {
        r.merge(&one, &patch).await?;
    }
    r.delete(&one).await?;
    r.events(&mut watch, 5).await?;
    Ok(())
}

async fn a_watch_by_field_selector_sees_one_object(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    let first = r.post(&all, &lease("a", "h")).await?;
    let path = format!("{all}?fieldSelector=metadata.name%3Db&resourceVersion={}", first.version()?);
    let mut watch = r.watch(&path).await?;
    r.merge(&format!("{all}/a"), &json!({"spec": {"holderIdentity": "two"}})).await?;
    r.post(&all, &lease("b", "h")).await?;
    r.events(&mut watch, 1).await?;
    Ok(())
}

/// Streaming the initial list as events needs etcd 3.5 behind the real server, and nothing here uses it.
async fn asking_for_the_initial_list_needs_its_options(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    r.get(&format!("{all}?watch=1&sendInitialEvents=true&allowWatchBookmarks=true")).await?;
    r.get(&format!("{all}?watch=1&sendInitialEvents=true&resourceVersionMatch=Exact")).await?;
    r.get(&format!("{all}?watch=1&resourceVersionMatch=NotOlderThan")).await?;
    r.get(&format!("{all}?sendInitialEvents=true")).await?;
    Ok(())
}

async fn a_watch_with_bookmarks_gets_one_before_its_end(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    let created = r.post(&all, &lease("a", "h")).await?;
    let path =
        format!("{all}?allowWatchBookmarks=true&timeoutSeconds=4&resourceVersion={}", created.version()?);
    let mut watch = r.watch(&path).await?;
    r.merge(&format!("{all}/a"), &json!({"spec": {"holderIdentity": "two"}})).await?;
    r.rest(&mut watch).await?;
    Ok(())
}

async fn a_watch_ends_after_its_timeout(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    let created = r.post(&all, &lease("a", "h")).await?;
    let mut watch =
        r.watch(&format!("{all}?timeoutSeconds=1&resourceVersion={}", created.version()?)).await?;
    r.delete(&format!("{all}/a")).await?;
    r.rest(&mut watch).await?;
    Ok(())
}

async fn a_watch_across_namespaces_sees_all_of_them(r: &mut Recorder) -> Outcome {
    let (group, here) = r.own_widgets().await?;
    let there = widgets(&group, "default");
    let everywhere = format!("/apis/{group}/v1/widgets");
    let list = r.get(&everywhere).await?;
    let mut watch = r.watch(&format!("{everywhere}?resourceVersion={}", list.version()?)).await?;
    let mut only = r.watch(&format!("{there}?resourceVersion={}", list.version()?)).await?;
    r.post(&here, &widget(&group, "a", &json!({}))).await?;
    r.post(&there, &widget(&group, "b", &json!({}))).await?;
    r.events(&mut watch, 2).await?;
    r.events(&mut only, 1).await?;
    Ok(())
}

async fn a_watch_from_the_future_waits(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    let mut watch = r.watch(&format!("{all}?timeoutSeconds=1&resourceVersion=9000000000000000")).await?;
    r.post(&all, &lease("a", "h")).await?;
    r.rest(&mut watch).await?;
    Ok(())
}

async fn a_watch_with_nonsense_is_refused(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    for query in
        ["resourceVersion=x", "labelSelector=a%3D%3D%3Db", "fieldSelector=spec.x%3D1", "timeoutSeconds=x"]
    {
        r.get(&format!("{all}?watch=1&timeoutSeconds=1&{query}")).await?;
    }
    Ok(())
}

async fn an_unchanged_write_is_no_event(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    let created = r.post(&all, &lease("a", "h")).await?;
    let mut watch = r.watch(&format!("{all}?resourceVersion={}", created.version()?)).await?;
    r.put(&format!("{all}/a"), &created.body).await?;
    r.post(&all, &lease("b", "h")).await?;
    r.events(&mut watch, 1).await?;
    Ok(())
}

async fn a_deleted_event_has_the_last_state_and_a_newer_version(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    let created = r.post(&all, &lease("a", "h")).await?;
    let mut watch = r.watch(&format!("{all}?resourceVersion={}", created.version()?)).await?;
    r.delete(&format!("{all}/a")).await?;
    r.post(&all, &lease("b", "h")).await?;
    let events = r.events(&mut watch, 2).await?;
    let version = |event: &Value| {
        event
            .pointer("/object/metadata/resourceVersion")
            .and_then(Value::as_str)
            .and_then(|text| text.parse::<u64>().ok())
    };
    r.note(
        "versions grow from event to event",
        json!(events.first().and_then(version) < events.get(1).and_then(version)),
    );
    Ok(())
}

async fn a_watch_of_one_name_in_the_path(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    let created = r.post(&all, &lease("a", "h")).await?;
    r.post(&all, &lease("b", "h")).await?;
    r.delete(&format!("{all}/a")).await?;
    let mut watch =
        r.watch(&format!("{all}/a?timeoutSeconds=1&resourceVersion={}", created.version()?)).await?;
    r.rest(&mut watch).await?;
    Ok(())
}

async fn two_watches_see_the_same_order(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    let first = r.post(&all, &lease("a", "h")).await?;
    let path = format!("{all}?resourceVersion={}", first.version()?);
    let (mut one, mut other) = (r.watch(&path).await?, r.watch(&path).await?);
    for name in ["z", "b", "m"] {
        r.prepare(&all, &lease(name, "h")).await?;
        r.peek(super::super::recorder::Call::new("DELETE", &format!("{all}/{name}"))).await?;
    }
    r.events(&mut one, 6).await?;
    r.events(&mut other, 6).await?;
    Ok(())
}
