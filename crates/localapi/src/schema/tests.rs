//! What kube-apiserver 1.35.4 answered, and that we answer the same.
//!
//! `fixtures/answers.json` is a recording: each case is a schema of a definition that was applied to a real
//! server, and objects that were created or changed under it, with the causes of the refusal or the object as
//! it was stored.

use serde_json::{Value, json};

use super::*;

#[derive(serde::Deserialize)]
struct Case {
    name: String,
    schema: Value,
    steps: Vec<Step>,
}

#[derive(serde::Deserialize)]
struct Step {
    object: Value,
    #[serde(default)]
    old: Option<Value>,
    #[serde(default)]
    causes: Vec<RecordedCause>,
    #[serde(default)]
    stored: Option<Value>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
struct RecordedCause {
    field: String,
    message: String,
    reason: String,
}

impl RecordedCause {
    /// Without the evaluator's own words about a rule that could not be evaluated.
    fn plain(mut self) -> Self {
        if let Some((_, rule)) = self.message.split_once(" evaluating rule: ") {
            self.message = format!("not evaluated: {rule}");
        }
        self
    }
}

/// The object as it is stored if it is accepted, and why it is not.
fn answer(schema: &Schema, given: &Value, old: Option<&Value>, name: &str) -> (Value, Vec<RecordedCause>) {
    let whole = |given: &Value| {
        let mut object = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}});
        for (key, value) in given.as_object().unwrap() {
            object[key] = value.clone();
        }
        schema.prune(&mut object);
        schema.default(&mut object);
        object
    };
    let object = whole(given);
    let old = old.map(whole);
    let mut causes: Vec<RecordedCause> = schema
        .causes(&object, old.as_ref())
        .into_iter()
        .map(|cause| RecordedCause { field: cause.field, message: cause.message, reason: cause.reason })
        .map(RecordedCause::plain)
        .collect();
    causes.sort();
    let mut stored = object;
    crate::json::settle_numbers(&mut stored);
    for key in ["apiVersion", "kind", "metadata"] {
        stored.as_object_mut().unwrap().remove(key);
    }
    (stored, causes)
}

#[test]
fn every_recorded_answer_of_the_real_server_is_ours() {
    let recorded = include_str!("../../fixtures/answers.json");
    let cases: Vec<Case> = serde_json::from_str(recorded).unwrap();
    let mut different = Vec::new();
    for case in &cases {
        let schema = match Schema::compile(&case.schema) {
            Ok(schema) => schema,
            Err(error) => {
                different.push(format!("{}: {error}", case.name));
                continue;
            }
        };
        for (index, step) in case.steps.iter().enumerate() {
            let name = format!("o{}", index + 1);
            let (stored, causes) = answer(&schema, &step.object, step.old.as_ref(), &name);
            let mut expected: Vec<_> = step.causes.iter().cloned().map(RecordedCause::plain).collect();
            expected.sort();
            let at = format!("{} {} {}", case.name, index, step.object);
            if causes != expected {
                let only = |a: &[RecordedCause], b: &[RecordedCause]| -> Vec<String> {
                    let missing = a.iter().filter(|cause| !b.contains(cause));
                    missing
                        .map(|cause| format!("{} {}: {}", cause.reason, cause.field, cause.message))
                        .collect()
                };
                let (real, ours) = (only(&expected, &causes), only(&causes, &expected));
                different.push(format!("{at}\n   only real {real:#?}\n   only ours {ours:#?}"));
            } else if let Some(real) = &step.stored
                && *real != stored
            {
                different.push(format!("{at}\n   real {real}\n   ours {stored}"));
            }
        }
    }
    assert!(different.is_empty(), "{} answers differ:\n{}", different.len(), different.join("\n"));
}
