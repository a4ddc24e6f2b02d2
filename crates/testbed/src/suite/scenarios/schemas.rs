//! Effects of a schema on an object: defaults, pruning, refusals with their causes.

use serde_json::{Value, json};

use super::super::objects::widget;
use super::super::recorder::Call;
use super::super::{Outcome, Recorder};
use super::scenarios;

scenarios![schemas:
    defaults_fill_what_is_missing_at_every_depth,
    unknown_fields_are_pruned_where_nothing_keeps_them,
    strict_validation_refuses_unknown_fields,
    every_violation_is_named_with_its_field,
    null_where_it_is_not_allowed,
    numbers_strings_and_formats,
    lists_that_are_sets_or_maps,
    combinations_of_schemas,
    preserved_fields_and_int_or_string,
    maps_have_bounds_too,
];

async fn defaults_fill_what_is_missing_at_every_depth(r: &mut Recorder) -> Outcome {
    let spec = json!({"type": "object", "default": {}, "properties": {
        "size": {"type": "integer", "default": 3},
        "deep": {"type": "object", "default": {}, "properties": {"on": {"type": "boolean", "default": true}, "off": {"type": "boolean"}}},
        "bare": {"type": "object", "properties": {"x": {"type": "string", "default": "y"}}},
        "parts": {"type": "array", "items": {"type": "object", "properties": {"count": {"type": "integer", "default": 1}}}},
        "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"v": {"type": "integer", "default": 9}}}},
        "list": {"type": "array", "default": ["a"], "items": {"type": "string"}},
        "maybe": {"type": "string", "nullable": true, "default": "given"},
        "never": {"type": "string", "default": "given"},
    }});
    let (group, all) = r.widgets_of(&spec).await?;
    let mut bare = widget(&group, "bare", &json!({}));
    if let Some(object) = bare.as_object_mut() {
        object.remove("spec");
    }
    r.post(&all, &bare).await?;
    let given = json!({"bare": {}, "parts": [{}, {"count": 5}], "map": {"a": {}, "b": {"v": 1}}, "list": [], "deep": {"off": false}, "size": 0});
    r.post(&all, &widget(&group, "given", &given)).await?;
    r.post(&all, &widget(&group, "null", &json!({"maybe": null, "never": null, "deep": null}))).await?;
    r.merge(&format!("{all}/given"), &json!({"spec": {"deep": null, "list": null}})).await?;
    Ok(())
}

async fn unknown_fields_are_pruned_where_nothing_keeps_them(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let spec = json!({"unknown": 1, "free": {"any": {"thing": [1, {"x": null}]}}, "limits": {"cpu": 1}, "parts": [{"name": "p", "odd": true}]});
    let mut object = widget(&group, "a", &spec);
    object["extra"] = json!({"a": 1});
    object["metadata"]["odd"] = json!("x");
    r.post(&all, &object).await?;
    r.post(&format!("{all}?fieldValidation=Ignore"), &widget(&group, "b", &json!({"unknown": 1}))).await?;
    Ok(())
}

async fn strict_validation_refuses_unknown_fields(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let strict = format!("{all}?fieldValidation=Strict");
    let mut object = widget(&group, "a", &json!({"unknown": 1, "parts": [{"name": "p", "odd": true}]}));
    object["extra"] = json!({"a": 1});
    r.post(&strict, &object).await?;
    r.post(&strict, &widget(&group, "a", &json!({"color": "red"}))).await?;
    r.put(&format!("{all}/a?fieldValidation=Strict"), &widget(&group, "a", &json!({"unknown": 1}))).await?;
    Ok(())
}

async fn try_all(r: &mut Recorder, spec: &Value, cases: &[Value]) -> Outcome {
    let (group, all) = r.widgets_of(spec).await?;
    for case in cases {
        let call = Call::new("POST", &format!("{all}?dryRun=All")).json(&widget(&group, "a", case));
        let answer = r.peek(call).await?;
        let seen = if answer.status() == 201 { answer.body["spec"].clone() } else { answer.body.clone() };
        r.note(&case.to_string(), json!({"status": answer.status(), "answer": seen}));
    }
    Ok(())
}

async fn every_violation_is_named_with_its_field(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    for spec in [
        json!({"size": 0}),
        json!({"size": 101}),
        json!({"size": "3"}),
        json!({"size": 1.5}),
        json!({"color": "blue"}),
        json!({"note": "UPPER"}),
        json!({"note": "toolongtoolong"}),
        json!({"tags": ["a", "b", "c", "d"]}),
        json!({"tags": "a"}),
        json!({"tags": ["a", 1]}),
        json!({"limits": {"cpu": "1", "memory": 2}}),
        json!({"parts": [{}, {"name": "x"}, {"count": 1}]}),
        json!({"size": 0, "color": "blue", "note": "UPPER"}),
        json!([]),
        json!("text"),
    ] {
        r.post(&all, &widget(&group, "a", &spec)).await?;
    }
    let mut object = widget(&group, "a", &json!({}));
    object["metadata"] = json!("text");
    r.post(&all, &object).await?;
    object["metadata"] = json!({"name": "a", "labels": {"a": 1}});
    r.post(&all, &object).await?;
    object["metadata"] = json!({"name": "a", "labels": "x"});
    r.post(&all, &object).await?;
    object["metadata"] = json!({"name": 5});
    r.post(&all, &object).await?;
    Ok(())
}

async fn null_where_it_is_not_allowed(r: &mut Recorder) -> Outcome {
    let spec = json!({"type": "object", "properties": {
        "plain": {"type": "string"},
        "nullable": {"type": "string", "nullable": true},
        "list": {"type": "array", "items": {"type": "string"}},
        "nullable_items": {"type": "array", "items": {"type": "string", "nullable": true}},
        "needed": {"type": "string"},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
    }, "required": ["needed"]});
    let cases = [
        json!({"needed": "x", "plain": null}),
        json!({"needed": "x", "nullable": null}),
        json!({"needed": "x", "list": ["a", null]}),
        json!({"needed": "x", "nullable_items": ["a", null]}),
        json!({"needed": null}),
        json!({"needed": "x", "map": {"a": null}}),
        json!({}),
        Value::Null,
    ];
    try_all(r, &spec, &cases).await
}

async fn numbers_strings_and_formats(r: &mut Recorder) -> Outcome {
    let spec = json!({"type": "object", "properties": {
        "number": {"type": "number", "exclusiveMinimum": true, "minimum": 0},
        "i32": {"type": "integer", "format": "int32"},
        "i64": {"type": "integer", "format": "int64"},
        "short": {"type": "string", "minLength": 2, "maxLength": 4},
        "time": {"type": "string", "format": "date-time"},
        "odd": {"type": "string", "format": "unheard-of"},
        "flag": {"type": "boolean"},
    }});
    let mut cases = Vec::new();
    for (field, values) in [
        ("number", json!([0, 0.5, 0.7, 1, -1, "1"])),
        ("i32", json!([2_147_483_647_i64, 2_147_483_648_i64, -5])),
        ("i64", json!([9_223_372_036_854_775_807_i64, 1.0, 1e3])),
        ("short", json!(["a", "ab", "ääää", "abcde"])),
        ("time", json!(["2021-01-01T00:00:00Z", "2021-01-01"])),
        ("odd", json!(["anything"])),
        ("flag", json!([true, "true", 1])),
    ] {
        for value in values.as_array().into_iter().flatten() {
            cases.push(json!({(field): value}));
        }
    }
    try_all(r, &spec, &cases).await
}

async fn lists_that_are_sets_or_maps(r: &mut Recorder) -> Outcome {
    let spec = json!({"type": "object", "properties": {
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {
            "type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}},
        "min": {"type": "array", "minItems": 2, "items": {"type": "integer"}},
    }});
    let cases = [
        json!({"set": ["a", "b"]}),
        json!({"set": ["a", "b", "a"]}),
        json!({"map": [{"k": "a"}, {"k": "b"}]}),
        json!({"map": [{"k": "a"}, {"k": "a", "v": 1}]}),
        json!({"map": [{"v": 1}]}),
        json!({"min": [1]}),
        json!({"min": []}),
    ];
    try_all(r, &spec, &cases).await
}

async fn combinations_of_schemas(r: &mut Recorder) -> Outcome {
    let spec = json!({"type": "object", "properties": {
        "any": {"type": "string", "anyOf": [{"pattern": "^a"}, {"pattern": "^b"}]},
        "one": {"type": "string", "oneOf": [{"minLength": 3}, {"maxLength": 5}]},
        "all": {"type": "string", "allOf": [{"minLength": 3}, {"maxLength": 5}]},
        "not": {"type": "string", "not": {"pattern": "^x"}},
        "exactly": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
    }});
    let cases = [
        json!({"any": "apple"}),
        json!({"any": "cherry"}),
        json!({"one": "ab"}),
        json!({"one": "abcd"}),
        json!({"all": "ab"}),
        json!({"all": "abcd"}),
        json!({"not": "x"}),
        json!({"not": "y"}),
        json!({"exactly": {"a": "1"}}),
        json!({"exactly": {}}),
        json!({"exactly": {"a": "1", "b": "2"}}),
    ];
    try_all(r, &spec, &cases).await
}

async fn preserved_fields_and_int_or_string(r: &mut Recorder) -> Outcome {
    let spec = json!({"type": "object", "properties": {
        "either": {"x-kubernetes-int-or-string": true},
        "open": {"x-kubernetes-preserve-unknown-fields": true},
        "half": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"known": {"type": "object", "properties": {"a": {"type": "integer"}}}}},
    }});
    let cases = [
        json!({"either": 1}),
        json!({"either": "50%"}),
        json!({"either": true}),
        json!({"open": [1, {"a": null}]}),
        json!({"open": "x"}),
        json!({"half": {"known": {"a": 1, "b": 2}, "other": {"c": 3}}}),
    ];
    try_all(r, &spec, &cases).await
}

async fn maps_have_bounds_too(r: &mut Recorder) -> Outcome {
    let spec = json!({"type": "object", "properties": {
        "map": {"type": "object", "minProperties": 1, "maxProperties": 2, "additionalProperties": {"type": "object", "properties": {"x": {"type": "integer", "minimum": 0}}}},
        "flags": {"type": "object", "additionalProperties": true},
    }});
    let cases = [
        json!({"map": {}}),
        json!({"map": {"a": {}, "b": {}, "c": {}}}),
        json!({"map": {"a": {"x": -1, "y": 2}}}),
        json!({"map": {"a.b/c": {"x": -1}}}),
        json!({"flags": {"a": {"b": 1}, "c": [1]}}),
    ];
    try_all(r, &spec, &cases).await
}
