//! Tables: what `kubectl get` shows.

use serde_json::json;

use super::super::objects::{lease, leases, node, widget, widget_definition, widgets};
use super::super::recorder::Call;
use super::super::{Outcome, Recorder};
use super::scenarios;

scenarios![tables:
    declared_columns_become_cells,
    a_kind_without_columns_shows_name_and_age,
    one_object_is_a_table_of_one_row,
    built_in_kinds_have_tables,
    a_watch_of_tables_sends_columns_once,
];

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

async fn table(r: &mut Recorder, path: &str) -> Outcome {
    r.send(Call::new("GET", path).header("accept", TABLE)).await?;
    Ok(())
}

async fn declared_columns_become_cells(r: &mut Recorder) -> Outcome {
    let group = r.own_group();
    let mut definition = widget_definition(&group);
    definition["spec"]["versions"][0]["additionalPrinterColumns"] = json!([
        {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "How big", "priority": 1},
        {"name": "First", "type": "string", "jsonPath": ".spec.tags[0]"},
        {"name": "Tags", "type": "string", "jsonPath": ".spec.tags"},
        {"name": "All", "type": "string", "jsonPath": ".spec.parts[*].name"},
        {"name": "Limit", "type": "integer", "jsonPath": ".spec.limits.cpu"},
        {"name": "Free", "type": "boolean", "jsonPath": ".spec.free.on"},
        {"name": "Label", "type": "string", "jsonPath": ".metadata.labels.team"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]);
    r.install(&definition).await?;
    let all = widgets(&group, &r.namespace().await?);
    let spec = json!({"color": "red", "tags": ["x", "y"], "parts": [{"name": "p"}, {"name": "q"}], "limits": {"cpu": 4}, "free": {"on": true}});
    let mut full = widget(&group, "full", &spec);
    full["metadata"]["labels"] = json!({"team": "net"});
    r.post(&all, &full).await?;
    r.post(&all, &widget(&group, "bare", &json!({}))).await?;
    table(r, &all).await?;
    let answer = r.peek(Call::new("GET", &all).header("accept", TABLE)).await?;
    r.note(
        "the description of a declared column",
        answer.body["columnDefinitions"][2]["description"].clone(),
    );
    table(r, &format!("{all}?includeObject=None")).await?;
    table(r, &format!("{all}?includeObject=Object&limit=1")).await?;
    table(r, &format!("{all}?includeObject=Some")).await?;
    Ok(())
}

async fn a_kind_without_columns_shows_name_and_age(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    r.post(&all, &widget(&group, "a", &json!({}))).await?;
    table(r, &all).await?;
    Ok(())
}

async fn one_object_is_a_table_of_one_row(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    r.post(&all, &widget(&group, "a", &json!({}))).await?;
    table(r, &format!("{all}/a")).await?;
    table(r, &format!("{all}/none")).await?;
    Ok(())
}

async fn built_in_kinds_have_tables(r: &mut Recorder) -> Outcome {
    let namespace = r.namespace().await?;
    r.prepare(&leases(&namespace), &lease("a", "h")).await?;
    r.prepare("/api/v1/nodes", &node(&namespace)).await?;
    for path in
        [leases(&namespace), format!("/api/v1/nodes/{namespace}"), format!("/api/v1/namespaces/{namespace}")]
    {
        let answer = r.peek(Call::new("GET", &path).header("accept", TABLE)).await?;
        let columns = answer.body["columnDefinitions"].as_array().into_iter().flatten();
        // The real server has more columns between these two.
        let names: Vec<_> =
            columns.map(|one| &one["name"]).filter(|name| *name == "Name" || *name == "Age").collect();
        let row = &answer.body["rows"][0];
        r.note(&path, json!({"kind": answer.body["kind"], "columns": names, "name": row["cells"][0], "object": row["object"]}));
    }
    Ok(())
}

async fn a_watch_of_tables_sends_columns_once(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    for name in ["a", "b"] {
        r.post(&all, &widget(&group, name, &json!({}))).await?;
    }
    let call = Call::new("GET", &format!("{all}?watch=1&timeoutSeconds=1&resourceVersion=0"))
        .header("accept", TABLE);
    let answer = r.peek(call).await?;
    let text = answer.body.as_str().unwrap_or_default().to_owned();
    let events: Vec<serde_json::Value> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let seen: Vec<_> = events.iter().map(|event| json!({
        "type": event["type"], "kind": event["object"]["kind"], "columns": event["object"]["columnDefinitions"].as_array().map(Vec::len),
        "cell": event["object"]["rows"][0]["cells"][0],
    })).collect();
    r.note("events", json!(seen));
    Ok(())
}
