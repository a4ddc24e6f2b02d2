//! The scale subresource, of a built-in kind and of one that declares its paths.

use serde_json::json;

use super::super::objects::{definition, deployment, deployments, widget, widgets};
use super::super::{Outcome, Recorder};
use super::scenarios;

scenarios![scale:
    a_deployment_is_scaled,
    a_custom_object_is_scaled,
    a_stale_scale_conflicts,
    a_scale_that_makes_no_sense_is_refused,
    a_custom_object_without_replicas_cannot_be_scaled,
];

async fn a_deployment_is_scaled(r: &mut Recorder) -> Outcome {
    let all = deployments(&r.namespace().await?);
    let one = format!("{all}/a");
    r.prepare(&all, &deployment("a", 0)).await?;
    let scale = r.get(&format!("{one}/scale")).await?;
    r.put(&format!("{one}/scale"), &scale.with("/spec/replicas", json!(1))).await?;
    r.merge(&format!("{one}/scale"), &json!({"spec": {"replicas": 2}})).await?;
    let changed = r.peek(super::super::recorder::Call::new("GET", &one)).await?;
    r.note(
        "replicas and generation",
        json!([changed.body["spec"]["replicas"], changed.body["metadata"]["generation"]]),
    );
    Ok(())
}

async fn a_custom_object_is_scaled(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let one = format!("{all}/a");
    r.post(&all, &widget(&group, "a", &json!({"size": 2}))).await?;
    let scale = r.get(&format!("{one}/scale")).await?;
    r.put(&format!("{one}/scale"), &scale.with("/spec/replicas", json!(5))).await?;
    r.merge(&format!("{one}/scale"), &json!({"spec": {"replicas": 6}})).await?;
    r.get(&one).await?;
    r.merge(&format!("{one}/status"), &json!({"status": {"ready": 4, "selector": "app=a"}})).await?;
    r.get(&format!("{one}/scale")).await?;
    r.merge(&format!("{one}/scale"), &json!({"status": {"replicas": 9}})).await?;
    r.get(&one).await?;
    Ok(())
}

async fn a_stale_scale_conflicts(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let one = format!("{all}/a");
    r.post(&all, &widget(&group, "a", &json!({"size": 2}))).await?;
    let scale = r.get(&format!("{one}/scale")).await?;
    r.merge(&one, &json!({"spec": {"size": 3}})).await?;
    r.put(&format!("{one}/scale"), &scale.with("/spec/replicas", json!(5))).await?;
    Ok(())
}

async fn a_scale_that_makes_no_sense_is_refused(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let one = format!("{all}/a");
    r.post(&all, &widget(&group, "a", &json!({"size": 2}))).await?;
    r.merge(&format!("{one}/scale"), &json!({"spec": {"replicas": -1}})).await?;
    r.merge(&format!("{one}/scale"), &json!({"spec": {"replicas": 101}})).await?;
    r.merge(&format!("{one}/scale"), &json!({"spec": {"replicas": "many"}})).await?;
    let scale = r.get(&format!("{one}/scale")).await?;
    r.put(&format!("{one}/scale"), &scale.with("/metadata/name", json!("b"))).await?;
    r.delete(&format!("{one}/scale")).await?;
    let deployment_path = deployments(&r.own_name());
    r.prepare(&deployment_path, &deployment("a", 0)).await?;
    r.merge(&format!("{deployment_path}/a/scale"), &json!({"spec": {"replicas": -1}})).await?;
    Ok(())
}

async fn a_custom_object_without_replicas_cannot_be_scaled(r: &mut Recorder) -> Outcome {
    let group = r.own_group();
    let spec = json!({"type": "object", "properties": {"size": {"type": "integer"}}});
    r.install(&definition(&group, &spec)).await?;
    let all = widgets(&group, &r.namespace().await?);
    r.post(&all, &widget(&group, "a", &json!({}))).await?;
    r.get(&format!("{all}/a/scale")).await?;
    r.merge(&format!("{all}/a/scale"), &json!({"spec": {"replicas": 2}})).await?;
    r.get(&format!("{all}/a")).await?;
    Ok(())
}
