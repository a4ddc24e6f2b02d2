//! Namespaces: what is refused without one, and how one is deleted.

use serde_json::{Value, json};

use super::super::objects::{lease, leases, widget, widgets};
use super::super::recorder::Call;
use super::super::{Answer, Outcome, Recorder};
use super::scenarios;

scenarios![namespaces:
    nothing_is_created_in_a_missing_namespace,
    a_namespace_is_created_with_its_name_as_label,
    the_default_namespaces_exist,
    a_deleted_namespace_takes_its_objects_along,
    a_terminating_namespace_takes_nothing_new,
    a_namespace_is_a_cluster_scoped_object,
    the_default_namespace_cannot_be_deleted,
];

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

async fn nothing_is_created_in_a_missing_namespace(r: &mut Recorder) -> Outcome {
    let (group, _) = r.widgets().await?;
    let missing = format!("{}-x", r.own_name());
    r.post(&leases(&missing), &lease("a", "h")).await?;
    r.post(&widgets(&group, &missing), &widget(&group, "a", &json!({}))).await?;
    r.get(&format!("{}/a", leases(&missing))).await?;
    r.get(&leases(&missing)).await?;
    r.delete(&leases(&missing)).await?;
    r.get(&format!("/api/v1/namespaces/{missing}")).await?;
    Ok(())
}

async fn a_namespace_is_created_with_its_name_as_label(r: &mut Recorder) -> Outcome {
    let name = r.own_name();
    r.post("/api/v1/namespaces", &namespace(&name)).await?;
    r.post("/api/v1/namespaces", &namespace(&name)).await?;
    r.merge(&format!("/api/v1/namespaces/{name}"), &json!({"metadata": {"labels": {"a": "b"}}})).await?;
    r.merge(
        &format!("/api/v1/namespaces/{name}"),
        &json!({"metadata": {"labels": {"kubernetes.io/metadata.name": null}}}),
    )
    .await?;
    let annotation = json!({"metadata": {"annotations": {"coil.cybozu.com/pool": "p"}}});
    r.merge(&format!("/api/v1/namespaces/{name}"), &annotation).await?;
    r.get(&format!("/api/v1/namespaces?labelSelector=kubernetes.io%2Fmetadata.name%3D{name}")).await?;
    Ok(())
}

async fn the_default_namespaces_exist(r: &mut Recorder) -> Outcome {
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let answer =
            r.wait(&format!("/api/v1/namespaces/{name}"), name, |answer| answer.status() == 200).await?;
        r.note(
            name,
            json!({"phase": answer.body["status"]["phase"], "labels": answer.body["metadata"]["labels"]}),
        );
    }
    Ok(())
}

async fn a_deleted_namespace_takes_its_objects_along(r: &mut Recorder) -> Outcome {
    let (group, custom) = r.widgets().await?;
    let name = r.own_name();
    let all = leases(&name);
    r.post(&all, &lease("a", "h")).await?;
    r.post(&custom, &widget(&group, "a", &json!({}))).await?;
    r.delete(&format!("/api/v1/namespaces/{name}")).await?;
    r.until_gone(&format!("/api/v1/namespaces/{name}")).await?;
    r.get(&format!("{all}/a")).await?;
    r.get(&format!("{custom}/a")).await?;
    r.post(&all, &lease("a", "h")).await?;
    r.post("/api/v1/namespaces", &namespace(&name)).await?;
    r.get(&all).await?;
    Ok(())
}

async fn a_terminating_namespace_takes_nothing_new(r: &mut Recorder) -> Outcome {
    let (group, custom) = r.widgets().await?;
    let name = r.own_name();
    let all = leases(&name);
    let mut held = lease("held", "h");
    held["metadata"]["finalizers"] = json!(["tenure.test/x"]);
    r.post(&all, &held).await?;
    r.post(&custom, &widget(&group, "free", &json!({}))).await?;
    let deleting = r.peek(Call::new("DELETE", &format!("/api/v1/namespaces/{name}"))).await?;
    r.note("deleting", json!({"status": deleting.status(), "kind": deleting.body["kind"], "phase": deleting.body["status"]["phase"]}));
    r.post(&all, &lease("new", "h")).await?;
    r.post(&custom, &widget(&group, "new", &json!({}))).await?;
    r.until_gone(&format!("{custom}/free")).await?;
    let leaving = |answer: &Answer| answer.body["metadata"]["deletionTimestamp"].is_string();
    r.until(&format!("{all}/held"), "the held lease to be deleting", leaving).await?;
    // Existing objects can still be changed.
    r.merge(&format!("{all}/held"), &json!({"spec": {"holderIdentity": "two"}})).await?;
    let present = r.peek(Call::new("GET", &format!("/api/v1/namespaces/{name}"))).await?;
    r.note("phase", present.body["status"]["phase"].clone());
    r.merge(&format!("{all}/held"), &json!({"metadata": {"finalizers": null}})).await?;
    r.until_gone(&format!("/api/v1/namespaces/{name}")).await?;
    Ok(())
}

async fn a_namespace_is_a_cluster_scoped_object(r: &mut Recorder) -> Outcome {
    let mut object = namespace(&r.own_name());
    object["metadata"]["namespace"] = json!("default");
    r.post("/api/v1/namespaces", &object).await?;
    Ok(())
}

async fn the_default_namespace_cannot_be_deleted(r: &mut Recorder) -> Outcome {
    r.delete("/api/v1/namespaces/default").await?;
    r.delete("/api/v1/namespaces/kube-system").await?;
    Ok(())
}
