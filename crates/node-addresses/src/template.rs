//! References in the desired state: `{{ capture.NAME.PATH }}`.
//!
//! A text that is nothing but one reference becomes the value, with its type: a prefix length becomes a number. Inside a
//! longer text a reference becomes text; several may stand there. Names of properties are not looked at: one with a reference
//! is refused.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::Refusal;
use crate::path::{as_text, get};

const OPEN: &str = "{{";
const CLOSE: &str = "}}";
const ACCEPTED: &str = "is {{ capture.NAME.PATH }}";

/// The desired state with all references replaced by what the captures hold.
pub fn fill(desired: &Value, held: &BTreeMap<String, Value>) -> Result<Value, Refusal> {
    at("desiredState", desired, held)
}

fn at(place: &str, value: &Value, held: &BTreeMap<String, Value>) -> Result<Value, Refusal> {
    match value {
        Value::String(text) => filled(place, text, held),
        Value::Array(items) => {
            let filled = items.iter().enumerate();
            let filled = filled.map(|(number, item)| at(&format!("{place}[{number}]"), item, held));
            filled.collect::<Result<_, _>>().map(Value::Array)
        }
        Value::Object(map) => {
            let filled = map.iter().map(|(key, value)| {
                let place = format!("{place}.{key}");
                if key.contains(OPEN) || key.contains(CLOSE) {
                    return Err(Refusal::new(place, "a name has a reference", "are references in values"));
                }
                Ok((key.clone(), at(&place, value, held)?))
            });
            filled.collect::<Result<_, _>>().map(Value::Object)
        }
        other => Ok(other.clone()),
    }
}

fn filled(place: &str, text: &str, held: &BTreeMap<String, Value>) -> Result<Value, Refusal> {
    let refuse = |problem: String| Refusal::new(place, format!("{text:?}: {problem}"), ACCEPTED);
    let trimmed = text.trim();
    if let Some(inner) = trimmed.strip_prefix(OPEN).and_then(|rest| rest.strip_suffix(CLOSE))
        && !inner.contains(OPEN)
        && !inner.contains(CLOSE)
    {
        return look_up(place, text, inner, held);
    }
    let mut made = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(OPEN) {
        let Some((inner, after)) = after.split_once(CLOSE) else {
            return Err(refuse(format!("{OPEN} has no end")));
        };
        if before.contains(CLOSE) {
            return Err(refuse(format!("{CLOSE} has no beginning")));
        }
        made.push_str(before);
        match look_up(place, text, inner, held)? {
            value @ (Value::String(_) | Value::Number(_) | Value::Bool(_)) => made.push_str(&as_text(&value)),
            other => {
                return Err(refuse(format!(
                    "{:?} is {other}, which cannot be a part of a text",
                    inner.trim()
                )));
            }
        }
        rest = after;
    }
    if rest.contains(CLOSE) {
        return Err(refuse(format!("{CLOSE} has no beginning")));
    }
    made.push_str(rest);
    Ok(Value::String(made))
}

fn look_up(
    place: &str,
    text: &str,
    reference: &str,
    held: &BTreeMap<String, Value>,
) -> Result<Value, Refusal> {
    let refuse = |problem: String| Refusal::new(place, format!("{text:?}: {problem}"), ACCEPTED);
    let steps: Vec<String> = reference.trim().split('.').map(ToOwned::to_owned).collect();
    let [first, name, path @ ..] = steps.as_slice() else {
        return Err(refuse("it names no capture".to_owned()));
    };
    if first != "capture" || name.is_empty() || path.is_empty() || path.iter().any(String::is_empty) {
        return Err(refuse("it is no path of a capture".to_owned()));
    }
    let Some(value) = held.get(name) else {
        let names: Vec<&str> = held.keys().map(String::as_str).collect();
        return Err(refuse(format!("there is no capture {name:?}; there are {names:?}")));
    };
    // What a capture of the node's state holds may change.
    get(value, path).map_err(|problem| Refusal::not_found(place, format!("{text:?}: {problem}"), ACCEPTED))
}
