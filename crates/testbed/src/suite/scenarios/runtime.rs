//! kube's runtime: watchers, stores, controllers and helpers see the same on both servers.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::finalizer::{Event as Finalizing, finalizer};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{Controller, WatchStreamExt, reflector};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::super::objects::{lease, leases, owned_by, widget, widget_definition};
use super::super::recorder::PATIENCE;
use super::super::{Outcome, Recorder, SuiteError};
use super::scenarios;

scenarios![runtime:
    a_watcher_lists_and_follows,
    a_watcher_reads_large_lists_in_pages,
    a_watcher_survives_the_end_of_its_watch,
    a_reflector_keeps_what_exists,
    a_controller_is_called_for_objects_and_their_children,
    the_finalizer_helper_adds_and_removes,
    conditions_can_be_awaited,
    typed_clients_get_typed_errors,
    discovery_finds_installed_kinds,
];

fn failed(what: &str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> SuiteError {
    SuiteError::Send { request: what.to_owned(), source: source.into() }
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> Result<T, SuiteError> {
    tokio::time::timeout(PATIENCE, future).await.map_err(|_| SuiteError::Patience {
        what: what.to_owned(),
        waited: PATIENCE,
        last: "nothing".to_owned(),
    })
}

/// An event as the transcript shows it.
fn shown<K: ResourceExt>(event: &Event<K>) -> Value {
    let object = |what: &str, object: &K| json!({"event": what, "metadata": {"name": object.name_any(), "uid": object.uid(), "resourceVersion": object.resource_version()}});
    match event {
        Event::Init => json!("init"),
        Event::InitApply(one) => object("init apply", one),
        Event::InitDone => json!("init done"),
        Event::Apply(one) => object("apply", one),
        Event::Delete(one) => object("delete", one),
    }
}

async fn follow(r: &mut Recorder, config: watcher::Config) -> Outcome {
    let namespace = r.namespace().await?;
    let all = leases(&namespace);
    for name in ["b", "a", "c"] {
        r.post(&all, &lease(name, "h")).await?;
    }
    let api: Api<Lease> = Api::namespaced(r.client(), &namespace);
    let mut events = std::pin::pin!(watcher::watcher(api, config));
    let mut seen = Vec::new();
    while seen.last() != Some(&json!("init done")) {
        let next =
            soon("the initial list", events.try_next()).await?.map_err(|error| failed("watching", error))?;
        seen.extend(next.iter().map(shown));
    }
    // The order of an initial list is not guaranteed.
    seen.sort_by_key(|event| event["metadata"]["name"].as_str().unwrap_or_default().to_owned());
    r.note("the initial list", json!(seen));
    r.merge(&format!("{all}/a"), &json!({"spec": {"holderIdentity": "two"}})).await?;
    r.delete(&format!("{all}/b")).await?;
    r.post(&all, &lease("d", "h")).await?;
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let next =
            soon("three changes", events.try_next()).await?.map_err(|error| failed("watching", error))?;
        seen.extend(next.iter().map(shown));
    }
    r.note("changes", json!(seen));
    Ok(())
}

async fn a_watcher_lists_and_follows(r: &mut Recorder) -> Outcome {
    follow(r, watcher::Config::default()).await
}

async fn a_watcher_reads_large_lists_in_pages(r: &mut Recorder) -> Outcome {
    follow(r, watcher::Config::default().page_size(2)).await
}

async fn a_watcher_survives_the_end_of_its_watch(r: &mut Recorder) -> Outcome {
    let namespace = r.namespace().await?;
    let all = leases(&namespace);
    let api: Api<Lease> = Api::namespaced(r.client(), &namespace);
    let mut events = std::pin::pin!(watcher::watcher(api, watcher::Config::default().timeout(1)));
    let mut seen = Vec::new();
    for number in 0..3 {
        tokio::time::sleep(Duration::from_millis(if number == 0 { 0 } else { 1200 })).await;
        r.post(&all, &lease(&format!("n{number}"), "h")).await?;
        let name = format!("n{number}");
        loop {
            let next = soon("the new object", events.try_next())
                .await?
                .map_err(|error| failed("watching", error))?;
            if let Some(Event::Apply(one) | Event::InitApply(one)) = next
                && one.name_any() == name
            {
                break;
            }
        }
        seen.push(name);
    }
    r.note("seen", json!(seen));
    Ok(())
}

async fn a_reflector_keeps_what_exists(r: &mut Recorder) -> Outcome {
    let namespace = r.namespace().await?;
    let all = leases(&namespace);
    for name in ["a", "b"] {
        r.post(&all, &lease(name, "h")).await?;
    }
    let api: Api<Lease> = Api::namespaced(r.client(), &namespace);
    let (store, writer) = reflector::store();
    let mut changes = std::pin::pin!(
        reflector::reflector(writer, watcher::watcher(api, watcher::Config::default())).default_backoff()
    );
    let names = |store: &reflector::Store<Lease>| {
        let mut names: Vec<_> = store.state().iter().map(|one| one.name_any()).collect();
        names.sort();
        names
    };
    let mut states = Vec::new();
    for wanted in [vec!["a", "b"], vec!["a", "b", "c"], vec!["b", "c"]] {
        match states.len() {
            1 => r.post(&all, &lease("c", "h")).await.map(drop)?,
            2 => r.delete(&format!("{all}/a")).await.map(drop)?,
            _ => {}
        }
        while names(&store) != wanted {
            soon("the store to change", changes.next()).await?;
        }
        states.push(names(&store));
    }
    r.note("states", json!(states));
    Ok(())
}

async fn a_controller_is_called_for_objects_and_their_children(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let namespace = r.own_name();
    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&group, "v1", "Widget"), "widgets");
    let api: Api<DynamicObject> = Api::namespaced_with(r.client(), &namespace, &kind);
    let children: Api<Lease> = Api::namespaced(r.client(), &namespace);
    let (called, mut calls) = tokio::sync::mpsc::unbounded_channel::<String>();
    let controller = Controller::new_with(api, watcher::Config::default(), kind)
        .owns(children, watcher::Config::default());
    let reconcile = move |object: Arc<DynamicObject>, _: Arc<()>| {
        let called = called.clone();
        async move {
            // A closed receiver means that the scenario is over.
            let _ = called.send(object.name_any());
            Ok::<_, std::convert::Infallible>(Action::await_change())
        }
    };
    let on_error = |_: Arc<DynamicObject>, _: &std::convert::Infallible, _: Arc<()>| Action::await_change();
    let running = tokio::spawn(controller.run(reconcile, on_error, Arc::new(())).for_each(|_| async {}));
    let owner = r.post(&all, &widget(&group, "one", &json!({}))).await?;
    let first = soon("the first call", calls.recv()).await?;
    r.note("called for", json!(first));
    r.merge(&format!("{all}/one"), &json!({"spec": {"size": 4}})).await?;
    let changed = soon("a call for the change", calls.recv()).await?;
    r.note("called for", json!(changed));
    let mut child = lease("child", "h");
    let mut reference = owned_by(&owner.body, true);
    reference["controller"] = json!(true);
    child["metadata"]["ownerReferences"] = json!([reference]);
    r.post(&leases(&namespace), &child).await?;
    let by_child = soon("a call for the child", calls.recv()).await?;
    r.note("called for the owner of", json!(by_child));
    running.abort();
    Ok(())
}

async fn the_finalizer_helper_adds_and_removes(r: &mut Recorder) -> Outcome {
    let namespace = r.namespace().await?;
    let all = leases(&namespace);
    let api: Api<Lease> = Api::namespaced(r.client(), &namespace);
    r.post(&all, &lease("a", "h")).await?;
    let step = async |api: &Api<Lease>| -> Result<&'static str, SuiteError> {
        let object = api.get("a").await.map_err(|error| failed("reading", error))?;
        let (told, mut hears) = tokio::sync::mpsc::unbounded_channel();
        let done = finalizer(api, "tenure.test/held", Arc::new(object), |event| async move {
            let _ = told.send(match event {
                Finalizing::Apply(_) => "apply",
                Finalizing::Cleanup(_) => "cleanup",
            });
            Ok::<_, std::convert::Infallible>(Action::await_change())
        })
        .await;
        done.map_err(|error| failed("finalizing", error))?;
        Ok(hears.recv().await.unwrap_or("nothing"))
    };
    let added = step(&api).await?;
    r.note("first", json!(added));
    r.get(&format!("{all}/a")).await?;
    let applied = step(&api).await?;
    r.note("second", json!(applied));
    r.delete(&format!("{all}/a")).await?;
    let cleaned = step(&api).await?;
    r.note("after deletion", json!(cleaned));
    r.until_gone(&format!("{all}/a")).await?;
    Ok(())
}

async fn conditions_can_be_awaited(r: &mut Recorder) -> Outcome {
    let group = r.own_group();
    let definitions: Api<CustomResourceDefinition> = Api::all(r.client());
    let definition: CustomResourceDefinition = serde_json::from_value(widget_definition(&group))
        .map_err(|error| failed("building the definition", error))?;
    definitions
        .create(&PostParams::default(), &definition)
        .await
        .map_err(|error| failed("creating", error))?;
    let name = format!("widgets.{group}");
    let wait = await_condition(definitions.clone(), &name, conditions::is_crd_established());
    let established = soon("the definition to be established", wait).await?;
    r.note("established", json!(established.is_ok()));
    let namespace = r.namespace().await?;
    let created = r.post(&leases(&namespace), &lease("a", "h")).await?;
    let api: Api<Lease> = Api::namespaced(r.client(), &namespace);
    let uid = created.uid()?;
    let gone = tokio::spawn({
        let uid = uid.clone();
        async move { await_condition(api, "a", conditions::is_deleted(&uid)).await.is_ok() }
    });
    r.delete(&format!("{}/a", leases(&namespace))).await?;
    let gone = soon("the lease to be gone", gone).await?;
    r.note("gone", json!(gone.is_ok_and(|gone| gone)));
    Ok(())
}

async fn typed_clients_get_typed_errors(r: &mut Recorder) -> Outcome {
    let namespace = r.namespace().await?;
    let api: Api<Lease> = Api::namespaced(r.client(), &namespace);
    let object: Lease = serde_json::from_value(lease("a", "h")).map_err(|error| failed("building", error))?;
    let shown = |result: Result<Lease, kube::Error>| match result {
        Ok(object) => json!(object.spec.and_then(|spec| spec.holder_identity)),
        Err(kube::Error::Api(status)) => json!([status.code, status.reason, status.message]),
        Err(other) => json!(other.to_string()),
    };
    let results = [
        ("missing", api.get("none").await),
        ("created", api.create(&PostParams::default(), &object).await),
        ("created again", api.create(&PostParams::default(), &object).await),
        (
            "patched",
            api.patch(
                "a",
                &PatchParams::default(),
                &Patch::Merge(json!({"spec": {"holderIdentity": "two"}})),
            )
            .await,
        ),
        ("replaced", api.replace("a", &PostParams::default(), &object).await),
        (
            "patched",
            api.patch(
                "a",
                &PatchParams::default(),
                &Patch::Merge(json!({"spec": {"holderIdentity": "three"}})),
            )
            .await,
        ),
    ];
    for (what, result) in results {
        r.note(what, shown(result));
    }
    let optional = api.get_opt("none").await.map_err(|error| failed("reading", error))?;
    r.note("get_opt", json!(optional.is_none()));
    let metadata = api.get_metadata("a").await.map_err(|error| failed("reading metadata", error))?;
    r.note("metadata", json!([metadata.types.map(|types| types.kind), metadata.metadata.name]));
    Ok(())
}

async fn discovery_finds_installed_kinds(r: &mut Recorder) -> Outcome {
    let (group, _) = r.own_widgets().await?;
    let client = r.client();
    let kind = GroupVersionKind::gvk(&group, "v1", "Widget");
    let (resource, capabilities) =
        kube::discovery::pinned_kind(&client, &kind).await.map_err(|error| failed("discovering", error))?;
    let mut subresources: Vec<_> =
        capabilities.subresources.iter().map(|(one, _)| one.plural.clone()).collect();
    subresources.sort();
    r.note(
        "found",
        json!([
            resource.plural,
            resource.api_version,
            capabilities.supports_operation("watch"),
            subresources
        ]),
    );
    let found = kube::Discovery::new(client.clone()).filter(&["coordination.k8s.io", &group]).run().await;
    let found = found.map_err(|error| failed("discovering", error))?;
    let kinds: Vec<_> = found
        .groups_alphabetical()
        .iter()
        .map(|one| {
            (
                one.name().to_owned(),
                one.recommended_resources()
                    .iter()
                    .map(|(resource, _)| resource.kind.clone())
                    .collect::<Vec<_>>(),
            )
        })
        .map(|(name, mut kinds)| {
            kinds.retain(|kind| kind == "Lease" || kind == "Widget");
            (name, kinds)
        })
        .collect();
    r.note("run", json!(kinds));
    Ok(())
}
