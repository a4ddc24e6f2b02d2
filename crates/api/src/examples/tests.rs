use std::collections::{BTreeMap, BTreeSet, HashSet};

use kube_cel::{CompiledSchema, ErrorKind, ValidationError, Validator, compile_schema};

use super::*;

fn schema(definition: &CustomResourceDefinition) -> Value {
    let version = definition.spec.versions.first().unwrap();
    serde_json::to_value(version.schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap()).unwrap()
}

/// Two groups may have kinds of one name.
fn full_name(definition: &CustomResourceDefinition) -> String {
    definition.metadata.name.clone().unwrap()
}

/// What the rules say to each example that reaches them: the plain schema keeps the others out.
static VERDICTS: LazyLock<Vec<(Example, Vec<ValidationError>)>> = LazyLock::new(|| {
    let validator = Validator::new();
    let compiled: BTreeMap<String, CompiledSchema> =
        crate::crds().iter().map(|crd| (full_name(crd), compile_schema(&schema(crd)))).collect();
    let reach_rules = Example::all().unwrap().into_iter().filter(|example| example.schema.is_empty());
    reach_rules
        .map(|example| {
            let schema = &compiled[&full_name(example.definition().unwrap())];
            let verdict = validator.validate_compiled(schema, &example.object, example.old.as_ref());
            (example, verdict.err().map(kube_cel::ValidationErrors::into_vec).unwrap_or_default())
        })
        .collect()
});

#[test]
fn the_rules_accept_and_refuse_what_the_table_says() {
    let mut wrong = Vec::new();
    for (example, errors) in VERDICTS.iter() {
        let refused: BTreeSet<_> = errors
            .iter()
            .map(|error| Refusal {
                message: match &error.kind {
                    ErrorKind::ValidationFailure => error.message.clone(),
                    kind => format!("{kind:?}: {}", error.message),
                },
                field: error.field_path.clone(),
            })
            .collect();
        let expected: BTreeSet<_> = example.refused.iter().cloned().collect();
        if refused != expected {
            wrong.push(format!("{}\n  expected {expected:#?}\n  got {refused:#?}", example.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_example_names_a_behaviour_once() {
    let mut seen = HashSet::new();
    for example in Example::all().unwrap() {
        assert!(seen.insert(example.name.clone()), "\"{}\" is there twice", example.name);
    }
}

/// Every rule of every definition, with the kind that it is in.
fn rules() -> Vec<(String, Value)> {
    fn collect(kind: &str, node: &Value, into: &mut Vec<(String, Value)>) {
        match node {
            Value::Object(fields) => {
                if let Some(Value::Array(rules)) = fields.get("x-kubernetes-validations") {
                    into.extend(rules.iter().map(|rule| (kind.to_owned(), rule.clone())));
                }
                fields.values().for_each(|field| collect(kind, field, into));
            }
            Value::Array(items) => items.iter().for_each(|item| collect(kind, item, into)),
            _ => {}
        }
    }
    let mut rules = Vec::new();
    for crd in crate::crds() {
        collect(&full_name(&crd), &schema(&crd), &mut rules);
    }
    rules
}

#[test]
fn every_rule_refuses_something_in_the_table() {
    let mut unused: BTreeSet<(String, String)> =
        rules().into_iter().map(|(kind, rule)| (kind, rule["rule"].as_str().unwrap().to_owned())).collect();
    for (example, errors) in VERDICTS.iter() {
        for error in errors {
            unused.remove(&(full_name(example.definition().unwrap()), error.rule.clone()));
        }
    }
    assert!(unused.is_empty(), "no example is refused by {unused:#?}");
}

#[test]
fn every_rule_has_a_message_and_a_reason_that_keeps_it() {
    for (kind, rule) in rules() {
        assert!(rule.get("message").or(rule.get("messageExpression")).is_some(), "{kind}: {rule}");
        // kube-apiserver drops the message of a `FieldValueDuplicate`.
        let reason = rule["reason"].as_str().unwrap_or_default();
        assert!(
            ["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired"].contains(&reason),
            "{kind}: {rule}"
        );
    }
}
