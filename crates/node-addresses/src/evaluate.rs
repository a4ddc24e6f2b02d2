//! From captures to what they hold: addresses of pools as they were allocated, and parts of the node's state.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use ipnet::IpNet;
use serde_json::{Map, Value, json};

use crate::expression::{Action, Expression, Operand};
use crate::path::{as_text, get, matches, retain, set};
use crate::{Capture, Captures, Refusal};

/// The address that a capture of a pool was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocated(pub IpNet);

impl Allocated {
    /// As references see it: a text and a number.
    pub fn value(self) -> Value {
        json!({"ip": self.0.addr().to_string(), "prefix-length": self.0.prefix_len()})
    }
}

/// What each capture holds. `allocated` has the addresses by the captures' names, and `state` is the node's, in nmstate's
/// form. Nothing of the state is looked at if only addresses are captured.
pub fn evaluate(
    captures: &Captures,
    allocated: &BTreeMap<String, Allocated>,
    state: &Value,
) -> Result<BTreeMap<String, Value>, Refusal> {
    let mut held = BTreeMap::new();
    for name in captures.order()? {
        let value = match captures.get(name) {
            Some(Capture::Pool(pool)) => match allocated.get(name) {
                Some(allocated) => allocated.value(),
                None => {
                    return Err(Refusal::not_found(
                        format!("capture.{name}"),
                        format!("no address of NodeIPPool {pool:?} is allocated for it"),
                        "is an address that the controller allocates",
                    ));
                }
            },
            Some(Capture::State(expression)) => {
                let refuse = |problem: String| {
                    Refusal::not_found(
                        format!("capture.{name}"),
                        problem,
                        "is an expression that finds something on this node",
                    )
                };
                execute(expression, &held, state).map_err(refuse)?
            }
            None => continue,
        };
        held.insert(name.to_owned(), value);
    }
    Ok(held)
}

fn execute(expression: &Expression, held: &BTreeMap<String, Value>, state: &Value) -> Result<Value, String> {
    let of = |capture: &Option<String>| match capture {
        None => Ok(state),
        Some(name) => held.get(name).ok_or_else(|| format!("there is no capture {name:?}")),
    };
    let input = of(&expression.input)?;
    let value = |operand: &Operand| match operand {
        Operand::Text(text) => Ok(Value::String(text.clone())),
        Operand::Null => Ok(Value::Null),
        Operand::Path { capture, path } => get(of(capture)?, path),
    };
    match &expression.action {
        Action::Keep => {
            let mut kept = input.clone();
            retain(&mut kept, &expression.path);
            Ok(kept)
        }
        Action::Equals(operand) => {
            let wanted = as_text(&value(operand)?);
            let (list, property) = items(input, &expression.path);
            let has = |item: &&Value| get(item, property).is_ok_and(|found| matches(&found, &wanted));
            let found: Vec<Value> = list.iter().filter(has).cloned().collect();
            if found.is_empty() {
                return Err(format!("nothing has {} = {wanted:?}", expression.path.join(".")));
            }
            Ok(rebuilt(&expression.path, found))
        }
        Action::Replace(operand) => {
            // nmstate makes a text of everything; whoever reads the result takes numbers and truth values from texts.
            let value = match value(operand)? {
                Value::Null => Value::Null,
                other => Value::String(as_text(&other)),
            };
            let (list, property) = items(input, &expression.path);
            let mut replaced = Vec::with_capacity(list.len());
            for item in list {
                if let Value::Object(mut item) = item.clone() {
                    set(&mut item, property, value.clone())?;
                    replaced.push(Value::Object(item));
                }
            }
            Ok(rebuilt(&expression.path, replaced))
        }
    }
}

/// How many steps of a path lead to its list: `interfaces`, `routes.running`, `routes.config`.
fn steps(path: &[String]) -> usize {
    if path.first().is_some_and(|first| first == "routes") { 2 } else { 1 }
}

/// The list that a path leads to, and the property of its items.
fn items<'v, 'p>(input: &'v Value, path: &'p [String]) -> (&'v [Value], &'p [String]) {
    let (to_list, property) = path.split_at(steps(path).min(path.len()));
    let found = to_list.iter().try_fold(input, |value, step| value.get(step));
    (found.and_then(Value::as_array).map_or(&[], Vec::as_slice), property)
}

/// A state that has only this list.
fn rebuilt(path: &[String], list: Vec<Value>) -> Value {
    let to_list = path.iter().take(steps(path)).rev();
    to_list.fold(Value::Array(list), |value, step| Value::Object(Map::from_iter([(step.clone(), value)])))
}
