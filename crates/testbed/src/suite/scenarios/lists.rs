//! Lists: order, pages, and resource versions.

use serde_json::json;

use super::super::objects::{labelled_lease, lease, leases, widget, widgets};
use super::super::recorder::Call;
use super::super::{Answer, Outcome, Recorder, SuiteError};
use super::scenarios;

scenarios![lists:
    a_list_is_ordered_by_name,
    an_empty_list_is_a_list,
    a_list_across_namespaces_is_ordered_by_namespace_and_name,
    pages_follow_each_other_and_show_one_moment,
    a_page_token_that_is_no_token_is_refused,
    pages_with_selectors_do_not_say_how_many_remain,
    a_list_may_ask_for_a_version,
    a_list_of_the_future_is_refused,
    a_list_with_nonsense_versions_is_refused,
    a_read_may_ask_for_a_version,
    metadata_alone_can_be_asked_for,
];

async fn fill(r: &mut Recorder, all: &str, names: &[&str]) -> Result<Answer, SuiteError> {
    let mut last = None;
    for name in names {
        last = Some(r.post(all, &lease(name, "h")).await?);
    }
    match last {
        Some(last) => Ok(last),
        None => r.get(all).await,
    }
}

async fn a_list_is_ordered_by_name(r: &mut Recorder) -> Outcome {
    let (group, custom) = r.widgets().await?;
    let all = leases(&r.own_name());
    fill(r, &all, &["b", "a.b", "a-b", "a", "10", "9"]).await?;
    r.get(&all).await?;
    for name in ["b", "a"] {
        r.post(&custom, &widget(&group, name, &json!({}))).await?;
    }
    r.get(&custom).await?;
    Ok(())
}

async fn an_empty_list_is_a_list(r: &mut Recorder) -> Outcome {
    let (_, custom) = r.widgets().await?;
    r.get(&custom).await?;
    r.get(&leases(&r.own_name())).await?;
    r.get("/api/v1/namespaces/there-is-no-such-namespace/pods").await?;
    Ok(())
}

async fn a_list_across_namespaces_is_ordered_by_namespace_and_name(r: &mut Recorder) -> Outcome {
    let (group, first) = r.own_widgets().await?;
    for name in ["b", "a"] {
        r.post(&first, &widget(&group, name, &json!({}))).await?;
    }
    let second = widgets(&group, "default");
    r.post(&second, &widget(&group, "c", &json!({}))).await?;
    r.get(&format!("/apis/{group}/v1/widgets")).await?;
    r.get(&format!("/apis/{group}/v1/widgets?limit=2")).await?;
    r.post(&format!("/apis/{group}/v1/widgets"), &widget(&group, "d", &json!({}))).await?;
    Ok(())
}

async fn pages_follow_each_other_and_show_one_moment(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    fill(r, &all, &["a", "b", "c", "d", "e"]).await?;
    let first = r.get(&format!("{all}?limit=2")).await?;
    r.post(&all, &lease("aa", "late")).await?;
    r.delete(&format!("{all}/d")).await?;
    let second = r.get(&format!("{all}?limit=2&continue={}", encoded(&first.token()?))).await?;
    r.note("both pages have one version", json!(first.version()? == second.version()?));
    r.get(&format!("{all}?limit=2&continue={}", encoded(&second.token()?))).await?;
    // Without a limit the rest comes at once; an exact count leaves no token.
    r.get(&format!("{all}?continue={}", encoded(&first.token()?))).await?;
    r.get(&format!("{all}?limit=5")).await?;
    Ok(())
}

async fn a_page_token_that_is_no_token_is_refused(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    fill(r, &all, &["a", "b"]).await?;
    r.get(&format!("{all}?limit=1&continue=nonsense")).await?;
    let first = r.get(&format!("{all}?limit=1")).await?;
    let token = encoded(&first.token()?);
    r.get(&format!("{all}?limit=1&continue={token}&resourceVersion={}", first.version()?)).await?;
    r.get(&format!("{all}?limit=-1")).await?;
    r.get(&format!("{all}?limit=x")).await?;
    Ok(())
}

async fn pages_with_selectors_do_not_say_how_many_remain(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    for (name, side) in [("a", "left"), ("b", "right"), ("c", "left"), ("d", "left")] {
        r.post(&all, &labelled_lease(name, &json!({"side": side}))).await?;
    }
    let first = r.get(&format!("{all}?limit=2&labelSelector=side%3Dleft")).await?;
    r.get(&format!("{all}?limit=2&labelSelector=side%3Dleft&continue={}", encoded(&first.token()?))).await?;
    Ok(())
}

async fn a_list_may_ask_for_a_version(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    let old = fill(r, &all, &["a", "b"]).await?.version()?;
    r.post(&all, &lease("c", "h")).await?;
    // "At least as new": any later state is allowed, so only that it is not older is compared.
    let list = r.peek(Call::new("GET", &format!("{all}?resourceVersion={old}"))).await?;
    let number = |text: &str| text.parse::<u64>().unwrap_or(0);
    let enough =
        list.body["items"].as_array().map_or(0, Vec::len) >= 2 && number(&list.version()?) >= number(&old);
    r.note("at least as new", json!({"status": list.status(), "holds": enough}));
    r.get(&format!("{all}?resourceVersion={old}&resourceVersionMatch=Exact")).await?;
    let page = r.get(&format!("{all}?resourceVersion={old}&resourceVersionMatch=Exact&limit=1")).await?;
    r.get(&format!("{all}?limit=1&continue={}", encoded(&page.token()?))).await?;
    let any = r.peek(Call::new("GET", &format!("{all}?resourceVersion=0"))).await?;
    r.note("any version", json!({"status": any.status(), "kind": any.body["kind"]}));
    Ok(())
}

/// The server answers after three seconds that it has not reached the version; the client should retry.
async fn a_list_of_the_future_is_refused(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    r.get(&format!(
        "{all}?resourceVersion=9000000000000000&resourceVersionMatch=NotOlderThan&timeoutSeconds=1"
    ))
    .await?;
    Ok(())
}

async fn a_list_with_nonsense_versions_is_refused(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    for query in [
        "resourceVersion=x",
        "resourceVersion=-1",
        "resourceVersionMatch=Exact",
        "resourceVersion=0&resourceVersionMatch=Exact",
        "resourceVersion=5&resourceVersionMatch=Newest",
    ] {
        r.get(&format!("{all}?{query}")).await?;
    }
    Ok(())
}

async fn a_read_may_ask_for_a_version(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    let created = r.post(&all, &lease("a", "h")).await?;
    r.get(&format!("{all}/a?resourceVersion={}", created.version()?)).await?;
    r.get(&format!("{all}/a?resourceVersion=x")).await?;
    Ok(())
}

async fn metadata_alone_can_be_asked_for(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    r.post(&all, &widget(&group, "a", &json!({"color": "red"}))).await?;
    let accept = |kind: &str| format!("application/json;as={kind};g=meta.k8s.io;v=v1");
    for (path, kind) in
        [(all.clone(), "PartialObjectMetadataList"), (format!("{all}/a"), "PartialObjectMetadata")]
    {
        let call = Call::new("GET", &path).header("accept", &accept(kind));
        r.send(call).await?;
    }
    let mut watch = r.watch(&format!("{all}?resourceVersion=0&timeoutSeconds=1")).await?;
    r.events(&mut watch, 1).await?;
    Ok(())
}

/// A page token, safe inside a query.
pub(super) fn encoded(token: &str) -> String {
    token.replace('%', "%25").replace('+', "%2B").replace('/', "%2F").replace('=', "%3D").replace('&', "%26")
}
