//! Says which field of a built-in kind has the wrong type, in the words of Go's decoder.
//!
//! The typed structs only say what they expected. The field is found by taking parts away until the complaint changes.

use serde_json::Value;

use crate::json;

/// Work that a good message is worth: bytes read again while looking for the field.
const PATIENCE: usize = 16 << 20;

/// The sentence about the field of `value` for which `check` fails with `complaint`.
pub(super) fn explain(
    kind: &str,
    value: &Value,
    complaint: &str,
    check: impl Fn(Value) -> Option<String>,
) -> String {
    let mut path: Vec<Step> = Vec::new();
    let size = value.to_string().len().max(1);
    let mut tries = PATIENCE / size;
    loop {
        let here = at(value, &path).unwrap_or(&Value::Null);
        let children: Vec<Step> = match here {
            // What it is was settled before.
            Value::Object(fields) => {
                let settled = |name: &&String| path.is_empty() && (*name == "apiVersion" || *name == "kind");
                fields.keys().filter(|name| !settled(name)).cloned().map(Step::Field).collect()
            }
            Value::Array(items) => (0..items.len()).map(Step::Item).collect(),
            _ => Vec::new(),
        };
        let guilty = children.into_iter().find(|child| {
            if tries == 0 {
                return false;
            }
            tries -= 1;
            let mut without = value.clone();
            let mut place = path.clone();
            place.push(child.clone());
            if let Some(place) = at_mut(&mut without, &place) {
                *place = Value::Null;
            }
            check(without).as_deref() != Some(complaint)
        });
        match guilty {
            Some(child) => path.push(child),
            None => return sentence(kind, &path, here, complaint),
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Field(String),
    Item(usize),
}

fn at<'v>(value: &'v Value, path: &[Step]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, step| match step {
        Step::Field(name) => value.get(name),
        Step::Item(index) => value.get(index),
    })
}

fn at_mut<'v>(value: &'v mut Value, path: &[Step]) -> Option<&'v mut Value> {
    path.iter().try_fold(value, |value, step| match step {
        Step::Field(name) => value.get_mut(name),
        Step::Item(index) => value.get_mut(index),
    })
}

fn sentence(kind: &str, path: &[Step], found: &Value, complaint: &str) -> String {
    if let Some(problem) = complaint.strip_prefix("invalid value: ")
        && complaint.contains("base64")
    {
        return format!("illegal base64 data: {problem}");
    }
    let fields: Vec<&str> = path
        .iter()
        .filter_map(|step| match step {
            Step::Field(name) => Some(name.as_str()),
            Step::Item(_) => None,
        })
        .collect();
    let wanted = wanted(complaint);
    // A number of the right kind that does not fit is shown.
    let word = match found {
        Value::Number(number) if wanted.starts_with("int") => format!("number {number}"),
        other => json::word(other).to_owned(),
    };
    match fields.split_last() {
        None => format!("json: cannot unmarshal {word} into Go value of type {}", go_struct(kind, &[])),
        Some((_, parents)) => {
            let holder = go_struct(kind, parents);
            format!(
                "json: cannot unmarshal {word} into Go struct field {holder}.{} of type {wanted}",
                fields.join(".")
            )
        }
    }
}

/// The Go type that the complaint says was expected.
fn wanted(complaint: &str) -> String {
    let expected = complaint.split_once("expected ").map_or("", |(_, expected)| expected);
    let expected = expected.split(" at line").next().unwrap_or_default();
    match expected {
        "i32" => "int32".to_owned(),
        "i64" => "int64".to_owned(),
        "u32" => "uint32".to_owned(),
        "f64" => "float64".to_owned(),
        "a boolean" => "bool".to_owned(),
        "a string" | "a borrowed string" => "string".to_owned(),
        "a map" => "map[string]string".to_owned(),
        "a sequence" => "[]string".to_owned(),
        other if other.starts_with("struct ") => format!("v1.{}", other.trim_start_matches("struct ")),
        other => other.to_owned(),
    }
}

/// The Go struct that holds the field below `parents`.
fn go_struct(kind: &str, parents: &[&str]) -> String {
    match parents {
        [] => kind.to_owned(),
        [.., "metadata"] => "ObjectMeta".to_owned(),
        [.., "template", "spec"] => "PodSpec".to_owned(),
        [.., "template"] => "PodTemplateSpec".to_owned(),
        ["spec"] => format!("{kind}Spec"),
        ["status"] => format!("{kind}Status"),
        [.., "containers" | "initContainers"] => "Container".to_owned(),
        [.., "containers" | "initContainers", "ports"] => "ContainerPort".to_owned(),
        ["spec", "ports"] => "ServicePort".to_owned(),
        [.., "selector"] => "LabelSelector".to_owned(),
        [.., last] => {
            let mut letters = last.chars();
            letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
        }
    }
}
