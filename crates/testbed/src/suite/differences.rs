//! Intended differences of the embedded server, which the comparison ignores. The table in `crates/localapi/README.md` explains
//! each, and a test here checks that. Everything else must be equal.

use serde_json::{Map, Value};

use super::document::{each_object_mut, take};
use super::transcript::Step;

/// A field that the embedded server lacks, or has with another value.
pub struct Field {
    /// The kind of the object.
    pub kind: &'static str,
    /// The field, as a JSON pointer from the object; `*` stands for every item of a list.
    pub field: &'static str,
    /// The start of the table row that explains it.
    pub explained: &'static str,
}

/// A part of a message that the embedded server lacks.
pub struct Words {
    /// The text.
    pub text: &'static str,
    /// The start of the table row that explains it.
    pub explained: &'static str,
}

/// Fields that every comparison ignores. Descriptions of a definition's own columns are equal; a scenario checks one.
pub const FIELDS: &[Field] = &[
    Field {
        kind: "Table",
        field: "/columnDefinitions/*/description",
        explained: "| order and wording of OpenAPI and table column descriptions |",
    },
    Field {
        kind: "APIResourceList",
        field: "/resources/*/storageVersionHash",
        explained: "| `storageVersionHash` in discovery |",
    },
];

/// Texts that every comparison ignores.
pub const WORDS: &[Words] = &[
    Words {
        text: ", application/apply-patch+yaml",
        explained: "| `metadata.managedFields`, server-side apply |",
    },
    Words { text: ", application/yaml, application/vnd.kubernetes.protobuf", explained: "| formats |" },
    Words { text: ", application/strategic-merge-patch+json", explained: "| strategic merge patch |" },
];

/// The start of the row that explains why messages about malformed requests are not compared.
pub const MALFORMED: &str = "| words about a malformed request |";
/// The same for messages about a rule that could not be evaluated.
pub const NOT_EVALUATED: &str = "| words about a rule that could not be evaluated |";

/// The prefix of both servers' messages about unknown fields.
const UNKNOWN_FIELDS: &str = "strict decoding error: ";

/// Removes the message from the refusal of a malformed request: code, reason and details stay. Messages about the fields of a
/// decoded object are compared in full.
fn leave_out_malformed(status: &mut Map<String, Value>) {
    let Some(Value::String(message)) = status.get("message") else { return };
    let unread = matches!(status.get("code").and_then(Value::as_u64), Some(400 | 500));
    let unfit = status.get("reason").is_some_and(|reason| reason == "Invalid")
        && match status.get("details").and_then(|details| details.get("causes")) {
            None => true,
            // The result of a patch is not an object of the kind.
            Some(causes) => causes[0]["field"] == "patch",
        };
    if (unread || unfit) && !message.contains(UNKNOWN_FIELDS) {
        status.remove("message");
        if let Some(Value::Array(causes)) =
            status.get_mut("details").and_then(|details| details.get_mut("causes"))
        {
            causes
                .iter_mut()
                .filter_map(Value::as_object_mut)
                .for_each(|cause| drop(cause.remove("message")));
        }
    }
}

/// Removes the evaluator's own text from a failed rule: the rule stays.
fn leave_out_evaluation(status: &mut Map<String, Value>) {
    const FAILED: &str = " evaluating rule: ";
    let Some(Value::String(mut message)) = status.remove("message") else { return };
    let causes = status.get_mut("details").and_then(|details| details.get_mut("causes"));
    for cause in causes.and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(Value::String(text)) = cause.get_mut("message") else { continue };
        if let Some((_, rule)) = text.split_once(FAILED) {
            let short = format!("Invalid value: {rule}");
            message = message.replace(text.as_str(), &short);
            *text = short;
        }
    }
    status.insert("message".to_owned(), Value::String(message));
}

/// A conflict without the etcd key that the real server names.
fn without_storage_key(message: &str) -> String {
    const END: &str = "AdditionalErrorMsg: ";
    match (message.find("StorageError: "), message.find(END)) {
        (Some(start), Some(end)) => format!("{}{}", &message[..start], &message[end + END.len()..]),
        _ => message.to_owned(),
    }
}

/// `step` without intended differences.
pub(super) fn without(mut step: Step) -> Step {
    match &mut step {
        Step::Exchange(exchange) => clean(&mut exchange.answer),
        Step::Events(events) => events.events.iter_mut().for_each(clean),
        Step::Note(note) => clean(&mut note.value),
    }
    step
}

fn clean(document: &mut Value) {
    each_object_mut(document, &mut |object| {
        let Some(kind) = object.get("kind").and_then(Value::as_str).map(str::to_owned) else { return };
        let mut value = Value::Object(std::mem::take(object));
        for difference in FIELDS.iter().filter(|difference| difference.kind == kind) {
            leave_out(&mut value, difference.field);
        }
        if let Value::Object(cleaned) = value {
            *object = cleaned;
        }
        if let Some(Value::String(message)) = object.get_mut("message") {
            for words in WORDS {
                *message = message.replace(words.text, "");
            }
            *message = without_storage_key(message);
        }
        if kind == "Status" {
            leave_out_malformed(object);
            leave_out_evaluation(object);
        }
    });
}

/// Removes the field at `pointer`.
fn leave_out(object: &mut Value, pointer: &str) {
    match pointer.split_once("/*") {
        Some((before, after)) => {
            for item in object.pointer_mut(before).and_then(Value::as_array_mut).into_iter().flatten() {
                leave_out(item, after);
            }
        }
        None => take(object, pointer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn listed_fields_and_words_are_left_out_and_others_stay() {
        let mut table =
            json!({"kind": "Table", "columnDefinitions": [{"name": "a", "description": "x"}, {"name": "b"}]});
        clean(&mut table);
        assert_eq!(table, json!({"kind": "Table", "columnDefinitions": [{"name": "a"}, {"name": "b"}]}));
        let mut status = json!({"kind": "Status", "message": "include: a, application/apply-patch+yaml", "description": "x"});
        clean(&mut status);
        assert_eq!(status, json!({"kind": "Status", "message": "include: a", "description": "x"}));
    }

    #[test]
    fn words_are_left_out_only_where_a_request_could_not_be_read() {
        let status = |code: u16, reason: &str, message: &str, details: Value| {
            let mut status = json!({"kind": "Status", "code": code, "reason": reason, "message": message, "details": details});
            clean(&mut status);
            status["message"].as_str().map(str::to_owned)
        };
        let cause = |field: &str| json!({"causes": [{"field": field, "message": "bad"}]});
        assert_eq!(status(400, "BadRequest", "unexpected end", Value::Null), None);
        assert_eq!(status(422, "Invalid", "bad", cause("patch")), None);
        assert_eq!(status(422, "Invalid", "bad", json!({})), None);
        assert_eq!(status(422, "Invalid", "bad", cause("spec.size")).as_deref(), Some("bad"));
        let failed = "Invalid value: \"object\": no such key evaluating rule: a over b";
        let causes = json!({"causes": [{"field": "spec", "message": failed}]});
        let message = format!("x is invalid: spec: {failed}");
        let left = status(422, "Invalid", &message, causes);
        assert_eq!(left.as_deref(), Some("x is invalid: spec: Invalid value: a over b"));
        let strict = "strict decoding error: unknown field";
        assert_eq!(status(400, "BadRequest", strict, Value::Null).as_deref(), Some(strict));
        let conflict = "on x: StorageError: invalid object, Key: /registry/x, AdditionalErrorMsg: other UID";
        assert_eq!(status(409, "Conflict", conflict, json!({})).as_deref(), Some("on x: other UID"));
    }

    #[test]
    fn the_embedded_servers_documentation_explains_every_difference() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../localapi/README.md");
        let table = std::fs::read_to_string(&path).unwrap();
        let explained = FIELDS
            .iter()
            .map(|one| one.explained)
            .chain(WORDS.iter().map(|one| one.explained))
            .chain([MALFORMED, NOT_EVALUATED]);
        for row in explained {
            assert!(table.lines().any(|line| line.starts_with(row)), "no row starts with {row:?}");
        }
    }
}
