//! The validation rules of a schema (CEL), and their evaluation on an object.
//!
//! The language and its library are the `kube-cel` crate's. This module applies rules to an object: it walks
//! only where rules are; a transition rule runs if the old object has the same part, found by its keys in a
//! keyed list; and a failure in an unchanged part is ignored, unless the rule itself uses the old value.

use kube_cel::{CompiledSchema, ErrorKind, ValidationError};
use serde_json::Value;

use super::cause::Cause;
use super::correlate::{Correlated, KeyedItems};
use super::node::Node;
use super::path::Path;

const RULES: &str = "x-kubernetes-validations";
const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// The rules of one node.
#[derive(Debug)]
pub(super) struct Rules(CompiledSchema);

impl Rules {
    /// Compiles the rules of a schema's root; `None` if it has none.
    pub(super) fn compile(schema: &Value) -> Result<Option<Self>, String> {
        if schema.get(RULES).and_then(Value::as_array).is_none_or(Vec::is_empty) {
            return Ok(None);
        }
        let mut alone = schema.clone();
        for (keyword, value) in alone.as_object_mut().into_iter().flatten() {
            if keyword != RULES {
                remove_rules(value);
            }
        }
        let compiled = kube_cel::compile_schema(&alone);
        if let Some(error) = compiled.compilation_errors().first() {
            return Err(error.to_string());
        }
        for rule in compiled.validations.iter().flatten() {
            if rule.rule.optional_old_self == Some(true) {
                return Err("optionalOldSelf is not supported".to_owned());
            }
            if rule.rule.rule.trim().is_empty() {
                return Err("a rule is empty".to_owned());
            }
            if let Some(reason) = rule.rule.reason.as_deref().filter(|reason| !REASONS.contains(reason)) {
                return Err(format!("reason {reason:?} is none of {}", REASONS.join(", ")));
            }
        }
        Ok(Some(Self(compiled)))
    }

    /// The name of a rule for people: its message, or its text without one.
    fn name<'r>(&'r self, rule: &'r str) -> &'r str {
        let known = self.0.validations.iter().flatten().find(|one| one.rule.rule == rule);
        known.and_then(|one| one.rule.message.as_deref()).unwrap_or(rule)
    }

    /// Whether a rule compares with the old value.
    fn is_transition(&self, rule: &str) -> bool {
        self.0.validations.iter().flatten().any(|one| one.is_transition_rule && one.rule.rule == rule)
    }
}

/// Removes the rules from a part of a schema.
fn remove_rules(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove(RULES);
            fields.values_mut().for_each(remove_rules);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_rules),
        _ => {}
    }
}

/// Adds a cause for every rule that fails. `old` is the object before an update.
pub(super) fn validate(
    node: &Node,
    new: &Value,
    old: Option<&Value>,
    correlated: Option<&Correlated<'_>>,
    causes: &mut Vec<Cause>,
) {
    walk(node, new, old, &Path::root(), correlated, causes);
}

/// `around` is the smallest enclosing part with a counterpart in the old object.
fn walk(
    node: &Node,
    new: &Value,
    old: Option<&Value>,
    path: &Path<'_>,
    around: Option<&Correlated<'_>>,
    causes: &mut Vec<Cause>,
) {
    if !node.has_rules || new.is_null() {
        return;
    }
    let old = old.filter(|old| !old.is_null());
    if let Some(rules) = &node.rules {
        let errors = kube_cel::validate_compiled(&rules.0, new, old).err();
        for error in errors.into_iter().flatten() {
            let forgivable = error.kind == ErrorKind::ValidationFailure && !rules.is_transition(&error.rule);
            if !(forgivable && around.is_some_and(Correlated::unchanged)) {
                causes.push(cause(node, rules, new, path, &error));
            }
        }
    }
    match new {
        Value::Array(items) => {
            let Some(inner) = node.items.as_deref() else { return };
            let before = old.and_then(Value::as_array).map(|items| KeyedItems::new(node, items));
            for (index, item) in items.iter().enumerate() {
                let old = before.as_ref().and_then(|before| before.get(item));
                let here = around.and_then(|around| around.item(index));
                walk(inner, item, old, &path.index(index), here.as_ref().or(around), causes);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                let (inner, at) = match (node.properties.get(name), node.additional()) {
                    (Some(property), _) => (property, path.child(name)),
                    (None, Some(inner)) => (inner, path.key(name)),
                    (None, None) => continue,
                };
                let here = around.and_then(|around| around.field(name));
                walk(inner, field, old.and_then(|old| old.get(name)), &at, here.as_ref().or(around), causes);
            }
        }
        _ => {}
    }
}

fn cause(node: &Node, rules: &Rules, new: &Value, path: &Path<'_>, error: &ValidationError) -> Cause {
    if error.kind != ErrorKind::ValidationFailure {
        // A rule that could not be evaluated refuses the object.
        let detail = format!("{} evaluating rule: {}", error.message, rules.name(&error.rule));
        return Cause::invalid_shown(path, &format!("{:?}", node.ty), &detail);
    }
    let detail = match error.message.trim() {
        "" => format!("failed rule: {}", error.rule),
        message => message.to_owned(),
    };
    let below = path.child(error.field_path.trim_start_matches('.'));
    let path = if error.field_path.is_empty() { path } else { &below };
    let hides = node.ty == "object" || node.ty == "array";
    match error.reason.as_deref().unwrap_or_default() {
        "FieldValueForbidden" => Cause::forbidden(path, &detail),
        "FieldValueRequired" => Cause::required(path, &detail),
        "FieldValueDuplicate" if hides => Cause::duplicate_unshown(path),
        "FieldValueDuplicate" => Cause::duplicate(path, new),
        _ if hides => Cause::invalid_unshown(path, &detail),
        _ => Cause::invalid(path, new, &detail),
    }
}
