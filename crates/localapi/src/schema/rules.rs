//! Evaluating the validation rules of a schema on an object.
//!
//! Walks only where rules are. Transition rules run where the old object has the same part; a failure in a
//! part that did not change is forgiven, unless the rule looks at the old value itself.

use serde_json::Value;

use super::cause::Cause;
use super::cel::{EvalError, Scope, Val, escape};
use super::correlate::{Correlated, KeyedItems};
use super::lists::sorted;
use super::node::{Additional, Node};
use super::path::Path;
use super::rule::{Reason, Rule};
use super::wording;

/// What ratcheting knows at a node.
#[derive(Clone, Copy)]
enum Ratchet<'c, 'a> {
    /// Nothing can be forgiven.
    Off,
    /// This part has a counterpart in the old object.
    Here(&'c Correlated<'a>, bool),
    /// It has none, but a part around it has.
    Around(&'c Correlated<'a>),
}

impl<'a> Ratchet<'_, 'a> {
    fn forgives(self) -> bool {
        match self {
            Self::Off => false,
            Self::Here(here, _) => here.unchanged(),
            Self::Around(around) => around.unchanged(),
        }
    }

    /// Calls `then` with what is known below, after one step.
    fn below<R>(
        self,
        step: impl FnOnce(&Correlated<'a>) -> Option<Correlated<'a>>,
        hidden: bool,
        then: impl FnOnce(Ratchet<'_, 'a>) -> R,
    ) -> R {
        match self {
            Self::Here(_, true) if hidden => then(Ratchet::Off),
            Self::Here(here, _) => match step(here) {
                Some(child) => then(Ratchet::Here(&child, false)),
                None => then(Ratchet::Around(here)),
            },
            other => then(other),
        }
    }
}

/// Causes for every rule that does not hold. `old` is the object before an update.
pub(super) fn validate(
    node: &Node,
    new: &Value,
    old: Option<&Value>,
    correlated: Option<&Correlated<'_>>,
    causes: &mut Vec<Cause>,
) {
    if !node.has_rules {
        return;
    }
    let ratchet = correlated.map_or(Ratchet::Off, |root| Ratchet::Here(root, true));
    walk(node, true, new, old, &Path::root(), ratchet, causes);
}

/// The same for a value of a part of the schema.
pub(super) fn validate_part(
    node: &Node,
    new: &Value,
    old: Option<&Value>,
    path: &Path<'_>,
    causes: &mut Vec<Cause>,
) {
    walk(node, node.embedded, new, old, path, Ratchet::Off, causes);
}

fn walk(
    node: &Node,
    resource: bool,
    new: &Value,
    old: Option<&Value>,
    path: &Path<'_>,
    ratchet: Ratchet<'_, '_>,
    causes: &mut Vec<Cause>,
) {
    if !node.has_rules || new.is_null() {
        return;
    }
    evaluate(node, resource, new, old.filter(|v| !v.is_null()), path, ratchet, causes);
    match new {
        Value::Array(items) => {
            let Some(inner) = node.items.as_deref().filter(|n| n.has_rules) else { return };
            let before = old.and_then(Value::as_array).map(|items| KeyedItems::new(node, items));
            for (index, item) in items.iter().enumerate() {
                let old = before.as_ref().and_then(|b| b.get(item));
                ratchet.below(
                    |c| c.item(index),
                    false,
                    |r| walk(inner, inner.embedded, item, old, &path.index(index), r, causes),
                );
            }
        }
        Value::Object(fields) => {
            let old = |name: &str| old.and_then(|o| o.get(name));
            if let Additional::Schema(inner) = &node.additional
                && inner.has_rules
            {
                for (name, field) in sorted(fields) {
                    ratchet.below(
                        |c| c.field(name),
                        false,
                        |r| walk(inner, inner.embedded, field, old(name), &path.key(name), r, causes),
                    );
                }
            }
            for (name, property) in node.properties.iter().filter(|(_, p)| p.has_rules) {
                let Some(field) = fields.get(name) else { continue };
                // A field that expressions cannot name is still a place for rules, if its type is known.
                if escape(name).is_some() && !exposed(property) {
                    continue;
                }
                let hidden = name == "apiVersion" || name == "kind";
                ratchet.below(
                    |c| c.field(name),
                    hidden,
                    |r| walk(property, property.embedded, field, old(name), &path.child(name), r, causes),
                );
            }
        }
        _ => {}
    }
}

/// Whether a node has a type that expressions know.
fn exposed(node: &Node) -> bool {
    if node.int_or_string {
        return true;
    }
    match node.ty.as_str() {
        "array" => node.items.as_deref().is_some_and(exposed),
        "object" => node.additional.schema().is_none_or(exposed),
        "string" | "boolean" | "number" | "integer" => true,
        _ => false,
    }
}

fn evaluate(
    node: &Node,
    resource: bool,
    new: &Value,
    old: Option<&Value>,
    path: &Path<'_>,
    ratchet: Ratchet<'_, '_>,
    causes: &mut Vec<Cause>,
) {
    let shown = if node.int_or_string { "" } else { node.ty.as_str() };
    for rule in &node.rules {
        let transition = rule.program.uses_old_self();
        if transition && old.is_none() && !rule.optional_old_self {
            continue;
        }
        let scope = match scope(node, resource, new, old, rule) {
            Ok(scope) => scope,
            Err(error) => {
                causes.push(broken(path, shown, &error, rule));
                continue;
            }
        };
        match rule.program.eval(&scope) {
            Ok(Val::Bool(true)) => {}
            Ok(Val::Bool(false)) => {
                if transition || !ratchet.forgives() {
                    causes.push(failed(node, new, path, rule, &scope));
                }
            }
            Ok(_) => causes.push(broken(path, shown, &EvalError::no_such_overload(), rule)),
            Err(error) => causes.push(broken(path, shown, &error, rule)),
        }
    }
}

fn scope<'a>(
    node: &'a Node,
    resource: bool,
    new: &'a Value,
    old: Option<&'a Value>,
    rule: &Rule,
) -> Result<Scope<'a>, EvalError> {
    let this = Val::of(new, node, resource)?;
    if !rule.program.uses_old_self() {
        return Ok(Scope { this, old: None });
    }
    let before = old.map(|old| Val::of(old, node, resource)).transpose()?;
    let old =
        if rule.optional_old_self { Some(before.map_or(Val::Optional(None), Val::some)) } else { before };
    Ok(Scope { this, old })
}

/// A rule that could not be evaluated refuses the object.
fn broken(path: &Path<'_>, shown: &str, error: &EvalError, rule: &Rule) -> Cause {
    let EvalError(problem) = error;
    let detail = if problem.starts_with("no such overload") {
        format!(
            "'{problem}': call arguments did not match a supported operator, function or macro signature for rule: {}",
            rule.name()
        )
    } else {
        format!("{problem} evaluating rule: {}", rule.name())
    };
    Cause::invalid_shown(path, &wording::quote(shown), &detail)
}

fn failed(node: &Node, new: &Value, path: &Path<'_>, rule: &Rule, scope: &Scope<'_>) -> Cause {
    let detail = rule
        .message_expression
        .as_ref()
        .and_then(|program| match program.eval(scope) {
            Ok(Val::Text(text)) => Some(text.trim().to_owned()),
            _ => None,
        })
        .filter(|text| !text.is_empty() && text.len() <= 5 * 1024 && !text.contains('\n'))
        .unwrap_or_else(|| rule.message());
    let below = path.child(&rule.field_path);
    let path = if rule.field_path.is_empty() { path } else { &below };
    let hides = node.ty == "object" || node.ty == "array";
    match rule.reason {
        Reason::Invalid if hides => Cause::invalid_unshown(path, &detail),
        Reason::Invalid => Cause::invalid(path, new, &detail),
        Reason::Forbidden => Cause::forbidden(path, &detail),
        Reason::Required => Cause::required(path, &detail),
        Reason::Duplicate if hides => Cause::duplicate_unshown(path),
        Reason::Duplicate => Cause::duplicate(path, new),
    }
}
