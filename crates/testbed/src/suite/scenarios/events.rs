//! Events: written by controllers, counted by merge patch, read with selectors.

use serde_json::{Value, json};

use super::super::{Outcome, Recorder};
use super::scenarios;

scenarios![events:
    an_event_is_recorded_and_counted,
    events_are_selected_by_what_they_are_about,
    an_event_in_another_namespace_than_its_object_is_refused,
];

fn event(namespace: &str, name: &str, about: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": about, "namespace": namespace, "uid": "11111111-2222-4333-8444-555555555555"},
        "reason": "AddressHeld", "message": "10.0.0.1 is held", "type": "Normal",
        "source": {"component": "tenured", "host": "n1"},
        "firstTimestamp": "2021-06-01T10:00:00Z", "lastTimestamp": "2021-06-01T10:00:00Z", "count": 1,
    })
}

async fn an_event_is_recorded_and_counted(r: &mut Recorder) -> Outcome {
    let namespace = r.namespace().await?;
    let all = format!("/api/v1/namespaces/{namespace}/events");
    r.post(&all, &event(&namespace, "a", "pod")).await?;
    r.merge(&format!("{all}/a"), &json!({"count": 2, "lastTimestamp": "2021-06-01T10:01:00Z"})).await?;
    r.get(&all).await?;
    r.delete(&format!("{all}/a")).await?;
    Ok(())
}

async fn events_are_selected_by_what_they_are_about(r: &mut Recorder) -> Outcome {
    let namespace = r.namespace().await?;
    let all = format!("/api/v1/namespaces/{namespace}/events");
    for (name, about) in [("a", "one"), ("b", "two")] {
        r.prepare(&all, &event(&namespace, name, about)).await?;
    }
    for selector in [
        "involvedObject.name%3Done",
        "involvedObject.kind%3DPod%2CinvolvedObject.name%3Dtwo",
        "reason%3DAddressHeld",
        "type%3DWarning",
        "involvedObject.uid%3D11111111-2222-4333-8444-555555555555",
        "message%3Dx",
    ] {
        let list = r
            .peek(super::super::recorder::Call::new("GET", &format!("{all}?fieldSelector={selector}")))
            .await?;
        let names: Vec<_> = list.body["items"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|item| &item["metadata"]["name"])
            .collect();
        let seen = json!({"status": list.status(), "names": names});
        r.note(selector, seen);
    }
    Ok(())
}

async fn an_event_in_another_namespace_than_its_object_is_refused(r: &mut Recorder) -> Outcome {
    let namespace = r.namespace().await?;
    let all = format!("/api/v1/namespaces/{namespace}/events");
    r.post(&all, &event("default", "a", "pod")).await?;
    let mut about_node = event("", "b", "n1");
    about_node["involvedObject"] = json!({"apiVersion": "v1", "kind": "Node", "name": "n1"});
    r.post(&all, &about_node).await?;
    r.post("/api/v1/namespaces/default/events", &about_node).await?;
    Ok(())
}
