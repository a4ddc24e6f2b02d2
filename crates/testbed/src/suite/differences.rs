//! Where the embedded server differs from kube-apiserver on purpose: the table, and how a step looks without it.
//! `docs/localapi-differences.md` is this table for readers. What is not here must be equal.

use serde_json::Value;

use super::document::{each_object_mut, take};
use super::transcript::Step;

/// A field that one of the servers may have and the other not.
pub struct Difference {
    /// The kind of the object.
    pub kind: &'static str,
    /// The field, as a JSON pointer from the object; `*` stands for every item of a list.
    pub field: &'static str,
    /// The value that the real server gives it by itself, as JSON: only with this value it is left out of the
    /// comparison. Nothing: whatever the value is.
    pub value: Option<&'static str>,
    /// Why the embedded server does not follow.
    pub reason: &'static str,
}

/// Every difference on purpose.
pub const DIFFERENCES: &[Difference] = &[];

/// `step` without what may differ.
pub(super) fn without(_scenario: &str, mut step: Step) -> Step {
    match &mut step {
        Step::Exchange(exchange) => clean(&mut exchange.answer),
        Step::Events(events) => events.events.iter_mut().for_each(clean),
        Step::Note(note) => clean(&mut note.value),
    }
    step
}

fn clean(document: &mut Value) {
    let list_of = document["kind"].as_str().and_then(|kind| kind.strip_suffix("List")).map(str::to_owned);
    if let (Some(kind), Some(items)) = (list_of, document.get_mut("items").and_then(Value::as_array_mut)) {
        for item in items {
            clean_object(&kind, item);
        }
    }
    each_object_mut(document, &mut |object| {
        if let Some(kind) = object.get("kind").and_then(Value::as_str).map(str::to_owned) {
            let mut value = Value::Object(std::mem::take(object));
            clean_object(&kind, &mut value);
            if let Value::Object(cleaned) = value {
                *object = cleaned;
            }
        }
    });
}

fn clean_object(kind: &str, object: &mut Value) {
    for difference in DIFFERENCES.iter().filter(|difference| difference.kind == kind) {
        let value = difference.value.and_then(|text| serde_json::from_str::<Value>(text).ok());
        leave_out(object, difference.field, value.as_ref());
    }
}

/// Takes away the field at `pointer` if it has `value`.
fn leave_out(object: &mut Value, pointer: &str, value: Option<&Value>) {
    if let Some((before, after)) = pointer.split_once("/*") {
        for item in object.pointer_mut(before).and_then(Value::as_array_mut).into_iter().flatten() {
            leave_out(item, after, value);
        }
    } else if object.pointer(pointer).is_some_and(|present| value.is_none_or(|value| value == present)) {
        take(object, pointer);
    }
}
