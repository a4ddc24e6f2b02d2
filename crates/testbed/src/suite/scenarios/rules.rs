//! Validation rules (CEL): on values, on transitions, with their own messages.

use serde_json::{Value, json};

use super::super::objects::widget;
use super::super::recorder::Call;
use super::super::{Outcome, Recorder};
use super::scenarios;

scenarios![rules:
    a_rule_refuses_with_its_message_and_field,
    a_transition_rule_compares_with_what_was,
    a_message_may_be_computed,
    rules_apply_to_items_and_entries,
    addresses_and_networks_are_known_to_rules,
    rules_with_missing_values_and_reasons,
    rules_see_defaults_and_metadata,
    schema_violations_hide_rules,
    rules_on_status_apply_to_the_status_subresource,
    strings_lists_and_numbers_in_rules,
    a_rule_that_fails_to_evaluate_refuses,
];

async fn post(r: &mut Recorder, all: &str, group: &str, spec: &Value) -> Outcome {
    let answer =
        r.peek(Call::new("POST", &format!("{all}?dryRun=All")).json(&widget(group, "a", spec))).await?;
    let seen = if answer.status() == 201 { answer.body["spec"].clone() } else { answer.body.clone() };
    r.note(&spec.to_string(), json!({"status": answer.status(), "answer": seen}));
    Ok(())
}

async fn a_rule_refuses_with_its_message_and_field(r: &mut Recorder) -> Outcome {
    let spec = json!({"type": "object", "properties": {
        "low": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= 0", "message": "low must not be negative"}]},
        "high": {"type": "integer"}, "name": {"type": "string"},
    }, "x-kubernetes-validations": [
        {"rule": "!has(self.low) || !has(self.high) || self.low <= self.high", "message": "low must not be above high"},
        {"rule": "!has(self.name) || self.name != 'x'"},
        {"rule": "!has(self.name) || self.name != 'y'", "message": "not y", "fieldPath": ".name", "reason": "FieldValueForbidden"},
    ]});
    let (group, all) = r.widgets_of(&spec).await?;
    for case in [
        json!({"low": 1, "high": 2}),
        json!({"low": 3, "high": 2}),
        json!({"low": -1}),
        json!({"name": "x"}),
        json!({"name": "y"}),
        json!({"low": -1, "high": -2, "name": "x"}),
    ] {
        post(r, &all, &group, &case).await?;
    }
    Ok(())
}

async fn a_transition_rule_compares_with_what_was(r: &mut Recorder) -> Outcome {
    let spec = json!({"type": "object", "properties": {
        "fixed": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed cannot be changed"}]},
        "grows": {"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 20}, "x-kubernetes-validations": [
            {"rule": "size(self) >= size(oldSelf) && oldSelf.all(x, x in self)", "message": "entries can only be added"}]},
    }, "x-kubernetes-validations": [{"rule": "!has(oldSelf.fixed) || has(self.fixed)", "message": "fixed cannot be removed"}]});
    let (group, all) = r.widgets_of(&spec).await?;
    let one = format!("{all}/a");
    r.post(&all, &widget(&group, "a", &json!({"fixed": "x", "grows": ["a"]}))).await?;
    for patch in [
        json!({"fixed": "y"}),
        json!({"fixed": null}),
        json!({"grows": ["a", "b"]}),
        json!({"grows": ["b"]}),
        json!({"grows": ["c", "b"]}),
        json!({"fixed": "z", "grows": []}),
    ] {
        r.merge(&one, &json!({"spec": patch})).await?;
    }
    r.merge(&one, &json!({"metadata": {"labels": {"a": "b"}}})).await?;
    Ok(())
}

async fn a_message_may_be_computed(r: &mut Recorder) -> Outcome {
    let spec = json!({"type": "object", "properties": {"size": {"type": "integer"}, "max": {"type": "integer"}, "name": {"type": "string", "maxLength": 20, "default": "max"}}, "x-kubernetes-validations": [
        {"rule": "self.size <= self.max", "messageExpression": "'size is ' + (self.size > 9 ? 'far' : 'just') + ' above ' + self.name"},
        {"rule": "self.size != 13", "message": "fallback", "messageExpression": "1 / (self.size - 13) > 0 ? 'x' : 'y'"},
        {"rule": "self.size != 14", "messageExpression": "''"},
    ]});
    let (group, all) = r.widgets_of(&spec).await?;
    for case in [
        json!({"size": 2, "max": 1}),
        json!({"size": 13, "max": 20}),
        json!({"size": 14, "max": 20}),
        json!({"size": 3}),
    ] {
        post(r, &all, &group, &case).await?;
    }
    Ok(())
}

async fn rules_apply_to_items_and_entries(r: &mut Recorder) -> Outcome {
    let spec = json!({"type": "object", "properties": {
        "list": {"type": "array", "maxItems": 5, "items": {"type": "object", "properties": {"v": {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": "self.v > 0", "message": "v must be positive"}]}},
        "map": {"type": "object", "maxProperties": 5, "additionalProperties": {"type": "integer",
            "x-kubernetes-validations": [{"rule": "self > 0", "message": "entry must be positive"}]}},
        "keyed": {"type": "array", "maxItems": 5, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {
            "type": "object", "required": ["k"], "properties": {"k": {"type": "string", "maxLength": 9}, "v": {"type": "integer", "x-kubernetes-validations": [
                {"rule": "self >= oldSelf", "message": "v can only grow"}]}}}},
        "weird-name": {"type": "integer"},
    }, "x-kubernetes-validations": [{"rule": "!has(self.weird__dash__name) || self.weird__dash__name == 1", "message": "escaped names work"}]});
    let (group, all) = r.widgets_of(&spec).await?;
    for case in [
        json!({"list": [{"v": 1}, {"v": 0}, {"v": -1}]}),
        json!({"map": {"a": 1, "b": 0}}),
        json!({"weird-name": 2}),
    ] {
        post(r, &all, &group, &case).await?;
    }
    r.post(&all, &widget(&group, "a", &json!({"keyed": [{"k": "x", "v": 5}, {"k": "y", "v": 5}]}))).await?;
    r.merge(&format!("{all}/a"), &json!({"spec": {"keyed": [{"k": "y", "v": 4}, {"k": "x", "v": 6}]}}))
        .await?;
    r.merge(&format!("{all}/a"), &json!({"spec": {"keyed": [{"k": "z", "v": 1}, {"k": "x", "v": 6}]}}))
        .await?;
    Ok(())
}

async fn addresses_and_networks_are_known_to_rules(r: &mut Recorder) -> Outcome {
    let field = |rule: &str| json!({"type": "string", "maxLength": 50, "x-kubernetes-validations": [{"rule": rule, "message": rule}]});
    let spec = json!({"type": "object", "properties": {
        "cidr": field("isCIDR(self)"),
        "ip": field("isIP(self)"),
        "v4": field("isIP(self) && ip(self).family() == 4"),
        "masked": field("isCIDR(self) && cidr(self) == cidr(self).masked()"),
        "long": field("isCIDR(self) && cidr(self).prefixLength() >= 24"),
        "inside": field("isIP(self) && cidr('10.0.0.0/8').containsIP(self)"),
        "part": field("isCIDR(self) && cidr('10.0.0.0/8').containsCIDR(self)"),
        "canonical": field("isIP(self) && ip.isCanonical(self)"),
        "ordinary": field("isIP(self) && ip(self).isGlobalUnicast() && !ip(self).isLoopback() && !ip(self).isUnspecified()"),
    }});
    let (group, all) = r.widgets_of(&spec).await?;
    for (field, values) in [
        (
            "cidr",
            vec![
                "10.0.0.0/8",
                "10.0.0.1/8",
                "10.0.0.0",
                "10.0.0.0/33",
                "fd00::/64",
                "::ffff:10.0.0.0/104",
                "",
            ],
        ),
        (
            "ip",
            vec!["10.0.0.1", "10.0.0.01", "::1", "fd00::1%eth0", "::ffff:1.2.3.4", "1.2.3", "", " 1.2.3.4"],
        ),
        ("v4", vec!["10.0.0.1", "::1"]),
        ("masked", vec!["10.0.0.0/8", "10.0.0.1/8", "fd00::/64", "fd00::1/64"]),
        ("long", vec!["10.0.0.0/24", "10.0.0.0/23"]),
        ("inside", vec!["10.255.0.1", "11.0.0.1", "::1"]),
        ("part", vec!["10.1.0.0/16", "10.0.0.0/7", "fd00::/64"]),
        ("canonical", vec!["fd00::1", "FD00::1", "fd00:0::1"]),
        ("ordinary", vec!["10.0.0.1", "127.0.0.1", "0.0.0.0", "224.0.0.1"]),
    ] {
        for value in values {
            post(r, &all, &group, &json!({(field): value})).await?;
        }
    }
    Ok(())
}

async fn rules_with_missing_values_and_reasons(r: &mut Recorder) -> Outcome {
    let spec = json!({"type": "object", "properties": {
        "a": {"type": "integer"}, "b": {"type": "integer"}, "c": {"type": "string"},
    }, "x-kubernetes-validations": [
        {"rule": "(has(self.a) ? self.a : 0) + (has(self.b) ? self.b : 0) < 10", "message": "together below ten", "reason": "FieldValueInvalid"},
        {"rule": "has(self.a) || has(self.b)", "message": "a or b", "reason": "FieldValueRequired", "fieldPath": ".a"},
        {"rule": "!has(self.c) || self.c != 'dup'", "message": "c is taken", "reason": "FieldValueDuplicate", "fieldPath": ".c"},
    ]});
    let (group, all) = r.widgets_of(&spec).await?;
    for case in [json!({"a": 1}), json!({"a": 5, "b": 5}), json!({}), json!({"a": 1, "c": "dup"})] {
        post(r, &all, &group, &case).await?;
    }
    Ok(())
}

async fn rules_see_defaults_and_metadata(r: &mut Recorder) -> Outcome {
    let group = r.own_group();
    let spec = json!({"type": "object", "properties": {"size": {"type": "integer", "default": 3}}});
    let mut definition = super::super::objects::definition(&group, &spec);
    let pointer = "/spec/versions/0/schema/openAPIV3Schema/x-kubernetes-validations";
    super::super::document::put(
        &mut definition,
        pointer,
        json!([
            {"rule": "self.metadata.name.startsWith('w-')", "message": "the name must start with w-"},
            {"rule": "!has(self.spec) || self.spec.size == 3", "message": "the default is seen"},
        ]),
    );
    r.install(&definition).await?;
    let all = super::super::objects::widgets(&group, &r.namespace().await?);
    r.post(&all, &widget(&group, "w-a", &json!({}))).await?;
    r.post(&all, &widget(&group, "x-a", &json!({}))).await?;
    r.post(&all, &widget(&group, "w-b", &json!({"size": 4}))).await?;
    Ok(())
}

async fn schema_violations_hide_rules(r: &mut Recorder) -> Outcome {
    let spec = json!({"type": "object", "properties": {
        "size": {"type": "integer", "minimum": 5, "x-kubernetes-validations": [{"rule": "self != 3", "message": "not three"}]},
        "text": {"type": "string"},
    }, "x-kubernetes-validations": [{"rule": "self.size != 3", "message": "not three from above"}]});
    let (group, all) = r.widgets_of(&spec).await?;
    for case in [json!({"size": 3}), json!({"size": "3"}), json!({"size": 3, "text": 1})] {
        post(r, &all, &group, &case).await?;
    }
    Ok(())
}

async fn rules_on_status_apply_to_the_status_subresource(r: &mut Recorder) -> Outcome {
    let group = r.own_group();
    let mut definition = super::super::objects::widget_definition(&group);
    let pointer =
        "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/ready/x-kubernetes-validations";
    super::super::document::put(
        &mut definition,
        pointer,
        json!([{"rule": "self >= 0", "message": "ready must not be negative"}]),
    );
    let pointer = "/spec/versions/0/schema/openAPIV3Schema/x-kubernetes-validations";
    let rule = "!has(self.status) || !has(self.status.ready) || self.status.ready <= self.spec.size";
    super::super::document::put(
        &mut definition,
        pointer,
        json!([{"rule": rule, "message": "more ready than wanted"}]),
    );
    r.install(&definition).await?;
    let all = super::super::objects::widgets(&group, &r.namespace().await?);
    r.post(&all, &widget(&group, "a", &json!({"size": 3}))).await?;
    for ready in [-1, 2, 4] {
        r.merge(&format!("{all}/a/status"), &json!({"status": {"ready": ready}})).await?;
    }
    r.merge(&format!("{all}/a"), &json!({"spec": {"size": 1}})).await?;
    Ok(())
}

async fn strings_lists_and_numbers_in_rules(r: &mut Recorder) -> Outcome {
    let field = |rule: &str| json!({"type": "string", "maxLength": 50, "x-kubernetes-validations": [{"rule": rule, "message": rule}]});
    let list = |rule: &str| json!({"type": "array", "maxItems": 6, "items": {"type": "string", "maxLength": 20}, "x-kubernetes-validations": [{"rule": rule, "message": rule}]});
    let spec = json!({"type": "object", "properties": {
        "matches": field("self.matches('^[a-z]+$')"),
        "split": field("self.split('/').size() == 2 && int(self.split('/')[1]) <= 32"),
        "lower": field("self.lowerAscii() == self"),
        "replace": field("self.replace('-', '').size() == 3"),
        "find": field("self.find('[0-9]+') == '12'"),
        "indexes": field("self.indexOf('.') == 2 && self.substring(0, 2) == 'ab'"),
        "unique": list("self.all(x, self.exists_one(y, x == y))"),
        "pairs": list("self.all(x, !self.exists(y, x != y && x.startsWith(y)))"),
        "sorted": list("self.isSorted()"),
        "sum": list("self.map(x, size(x)).sum() < 6"),
        "mapped": list("self.filter(x, x != '').map(x, x + '!').size() == 2"),
    }});
    let (group, all) = r.widgets_of(&spec).await?;
    for case in [
        json!({"matches": "abc"}),
        json!({"matches": "a1"}),
        json!({"split": "a/24"}),
        json!({"split": "a/33"}),
        json!({"split": "a"}),
        json!({"split": "a/x"}),
        json!({"lower": "Abc"}),
        json!({"replace": "a-b-c"}),
        json!({"replace": "abcd"}),
        json!({"find": "a12b"}),
        json!({"find": "ab"}),
        json!({"indexes": "ab.c"}),
        json!({"indexes": "a"}),
        json!({"unique": ["a", "b", "a"]}),
        json!({"unique": ["a", "b"]}),
        json!({"pairs": ["10.0", "10.0.1"]}),
        json!({"sorted": ["b", "a"]}),
        json!({"sorted": ["a", "b"]}),
        json!({"sum": ["abc", "defg"]}),
        json!({"mapped": ["a", "", "b"]}),
    ] {
        post(r, &all, &group, &case).await?;
    }
    Ok(())
}

async fn a_rule_that_fails_to_evaluate_refuses(r: &mut Recorder) -> Outcome {
    let spec = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "s": {"type": "string"}}, "x-kubernetes-validations": [
        {"rule": "self.a / self.b > 0", "message": "a over b"},
    ]});
    let (group, all) = r.widgets_of(&spec).await?;
    for case in [json!({"a": 4, "b": 2}), json!({"a": 4, "b": 0}), json!({"a": 4})] {
        post(r, &all, &group, &case).await?;
    }
    Ok(())
}
