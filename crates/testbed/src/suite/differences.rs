//! What the comparison leaves out because the embedded server differs on purpose. Each is explained in the table of
//! `crates/localapi/README.md`, which a test here checks. What is not listed must be equal.

use serde_json::Value;

use super::document::{each_object_mut, take};
use super::transcript::Step;

/// A field that the real server has and the embedded one does not, or with another value.
pub struct Field {
    /// The kind of the object.
    pub kind: &'static str,
    /// The field, as a JSON pointer from the object; `*` stands for every item of a list.
    pub field: &'static str,
    /// How the row of the table that explains it begins.
    pub explained: &'static str,
}

/// A part of a message that the real server has and the embedded one does not.
pub struct Words {
    /// The words.
    pub text: &'static str,
    /// How the row of the table that explains it begins.
    pub explained: &'static str,
}

/// Fields that are left out of every comparison. Descriptions that a definition gives its own columns are the same;
/// a scenario looks at one.
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

/// Words that are left out of every comparison.
pub const WORDS: &[Words] = &[
    Words {
        text: ", application/apply-patch+yaml",
        explained: "| `metadata.managedFields`, server-side apply |",
    },
    Words { text: ", application/yaml, application/vnd.kubernetes.protobuf", explained: "| formats |" },
];

/// `step` without what may differ.
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
        }
    });
}

/// Takes away the field at `pointer`.
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
    fn the_embedded_servers_documentation_explains_every_difference() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../localapi/README.md");
        let table = std::fs::read_to_string(&path).unwrap();
        let explained = FIELDS.iter().map(|one| one.explained).chain(WORDS.iter().map(|one| one.explained));
        for row in explained {
            assert!(table.lines().any(|line| line.starts_with(row)), "no row starts with {row:?}");
        }
    }
}
