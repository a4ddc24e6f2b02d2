//! Checking values against a schema: types, ranges, patterns, formats, and the combinators.
//!
//! Unchanged parts of the old object are not checked.

use serde_json::{Map, Number, Value};

use super::cause::Cause;
use super::correlate::Correlated;
use super::node::{Additional, Node};
use super::path::Path;

/// Adds why `value` does not match `node`. Fields are reported below `prefix`, which the message leaves out.
pub(super) fn validate(
    node: &Node,
    value: &Value,
    correlated: Option<&Correlated<'_>>,
    prefix: &str,
    causes: &mut Vec<Cause>,
) {
    Validator { prefix, causes }.check(node, value, &Path::root(), correlated);
}

struct Validator<'v> {
    prefix: &'v str,
    causes: &'v mut Vec<Cause>,
}

impl Validator<'_> {
    fn check(&mut self, node: &Node, value: &Value, path: &Path<'_>, old: Option<&Correlated<'_>>) {
        let before = self.causes.len();
        self.check_type(node, value, path);
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::String(text) => self.check_text(node, text, path),
            Value::Number(number) => self.check_number(node, number, path),
            Value::Array(items) => self.check_list(node, items, path, old),
            Value::Object(fields) => self.check_object(node, fields, path, old),
        }
        self.check_enum(node, value, path);
        if !value.is_null() {
            self.check_branches(node, value, path);
        }
        if self.causes.len() > before && old.is_some_and(Correlated::unchanged) {
            self.causes.truncate(before);
        }
    }

    fn check_type(&mut self, node: &Node, value: &Value, path: &Path<'_>) {
        let found = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
            Value::Number(number) if number.is_i64() => "integer",
            Value::Number(_) => "number",
        };
        let fits = match value {
            Value::Null => node.nullable || (node.ty.is_empty() && !node.int_or_string),
            Value::String(_) | Value::Number(_) if node.int_or_string => value.is_string() || is_whole(value),
            _ if node.int_or_string => false,
            Value::Number(_) if node.ty == "integer" => is_whole(value),
            Value::Number(_) if node.ty == "number" => true,
            _ => node.ty.is_empty() || node.ty == found,
        };
        if !fits {
            let wanted = if node.int_or_string { "integer,string" } else { &node.ty };
            self.mistyped(path, wanted, found);
        }
    }

    fn mistyped(&mut self, path: &Path<'_>, wanted: &str, found: &str) {
        let detail = format!("{} in body must be of type {wanted}: {found:?}", name(path));
        self.add(path, |at| Cause::type_invalid(at, found, &detail));
    }

    /// Only the first problem of a text is reported.
    fn check_text(&mut self, node: &Node, text: &str, path: &Path<'_>) {
        let length = text.chars().count();
        let value = || Value::String(text.to_owned());
        if let Some(max) = node.max_length.filter(|max| length > *max) {
            self.add(path, |at| Cause::too_long(at, max));
        } else if let Some(min) = node.min_length.filter(|min| length < *min) {
            self.invalid(path, &value(), &format!("should be at least {min} chars long"));
        } else if let Some(pattern) = node.pattern.as_ref().filter(|pattern| !pattern.0.is_match(text)) {
            self.invalid(path, &value(), &format!("should match '{}'", pattern.0));
        }
        if node.format == "date-time" && text.parse::<jiff::Timestamp>().is_err() {
            self.mistyped(path, &node.format, text);
        }
    }

    fn check_number(&mut self, node: &Node, number: &Number, path: &Path<'_>) {
        let Some(float) = number.as_f64() else { return };
        let value = Value::Number(number.clone());
        if let Some(min) = node.minimum
            && (float < min || node.exclusive_minimum && float <= min)
        {
            let or_equal = if node.exclusive_minimum { "" } else { " or equal to" };
            self.invalid(path, &value, &format!("should be greater than{or_equal} {min}"));
        }
        if let Some(max) = node.maximum
            && (float > max || node.exclusive_maximum && float >= max)
        {
            let or_equal = if node.exclusive_maximum { "" } else { " or equal to" };
            self.invalid(path, &value, &format!("should be less than{or_equal} {max}"));
        }
    }

    fn check_list(&mut self, node: &Node, items: &[Value], path: &Path<'_>, old: Option<&Correlated<'_>>) {
        if let Some(inner) = &node.items {
            for (index, item) in items.iter().enumerate() {
                let old = old.and_then(|old| old.item(index));
                self.check(inner, item, &path.index(index), old.as_ref());
            }
        }
        if let Some(min) = node.min_items.filter(|min| items.len() < *min) {
            self.invalid(path, &Value::from(items.len()), &format!("should have at least {min} items"));
        }
        if let Some(max) = node.max_items.filter(|max| items.len() > *max) {
            self.add(path, |at| Cause::too_many(at, items.len(), max));
        }
    }

    fn check_object(
        &mut self,
        node: &Node,
        fields: &Map<String, Value>,
        path: &Path<'_>,
        old: Option<&Correlated<'_>>,
    ) {
        if let Some(min) = node.min_properties.filter(|min| fields.len() < *min) {
            self.invalid(path, &Value::from(fields.len()), &format!("should have at least {min} properties"));
        }
        if let Some(max) = node.max_properties.filter(|max| fields.len() > *max) {
            self.add(path, |at| Cause::too_many(at, fields.len(), max));
        }
        for (key, field) in fields {
            if let Some(inner) = node.field(key) {
                let old = old.and_then(|old| old.field(key));
                self.check(inner, field, &path.child(key), old.as_ref());
            } else if matches!(node.additional_properties, Some(Additional::Allowed(false))) {
                let detail = format!("{}.{key} in body is a forbidden property", name(path));
                self.add(path, |at| Cause::invalid_text(at, key, &detail));
            }
        }
        for key in node.required.iter().filter(|key| !fields.contains_key(*key)) {
            self.add(&path.child(key), |at| Cause::required(at, ""));
        }
    }

    fn check_enum(&mut self, node: &Node, value: &Value, path: &Path<'_>) {
        let same =
            |allowed: &Value| allowed == value || (allowed.is_number() && allowed.as_f64() == value.as_f64());
        if node.enumeration.is_empty() || node.enumeration.iter().any(same) {
            return;
        }
        let text = |allowed: &Value| allowed.as_str().map_or_else(|| allowed.to_string(), str::to_owned);
        let supported: Vec<String> = node.enumeration.iter().map(text).collect();
        self.add(path, |at| Cause::not_supported(at, value, &supported));
    }

    fn check_branches(&mut self, node: &Node, value: &Value, path: &Path<'_>) {
        let unmet = |branch: &&Node| !valid(branch, value);
        if let Some(first) = node.all_of.iter().find(unmet) {
            let none = if node.all_of.iter().all(|branch| unmet(&branch)) { ". None validated" } else { "" };
            self.unfit(path, &format!("must validate all the schemas (allOf){none}"), Some(first), value);
        }
        if let Some(first) = node.any_of.first().filter(|_| node.any_of.iter().all(|branch| unmet(&branch))) {
            self.unfit(path, "must validate at least one schema (anyOf)", Some(first), value);
        }
        let met = node.one_of.iter().filter(|branch| !unmet(branch)).count();
        if met != 1 && !node.one_of.is_empty() {
            let found = if met == 0 { "none valid".to_owned() } else { format!("{met} valid alternatives") };
            let first = node.one_of.first().filter(|_| met == 0);
            let problem = format!("must validate one and only one schema (oneOf). Found {found}");
            self.unfit(path, &problem, first, value);
        }
        if node.not.as_deref().is_some_and(|not| valid(not, value)) {
            self.unfit(path, "must not validate the schema (not)", None, value);
        }
    }

    /// A combinator's own error has no field; the errors of one branch follow it.
    fn unfit(&mut self, path: &Path<'_>, problem: &str, branch: Option<&Node>, value: &Value) {
        let detail = format!("{:?} {problem}", name(path));
        self.add(&Path::Root, |at| Cause::invalid_text(at, "", &detail));
        if let Some(branch) = branch {
            self.check(branch, value, path, None);
        }
    }

    fn invalid(&mut self, path: &Path<'_>, value: &Value, problem: &str) {
        let detail = format!("{} in body {problem}", name(path));
        self.add(path, |at| Cause::invalid(at, value, &detail));
    }

    /// Adds a cause at the path below the prefix.
    fn add(&mut self, path: &Path<'_>, make: impl FnOnce(&Path<'_>) -> Cause) {
        let (prefix, inside) = (Path::Text(self.prefix), name(path));
        self.causes.push(if self.prefix.is_empty() {
            make(path)
        } else if inside.is_empty() {
            make(&prefix)
        } else {
            make(&prefix.child(&inside))
        });
    }
}

/// Whether a value matches a branch of a combinator.
fn valid(branch: &Node, value: &Value) -> bool {
    let mut causes = Vec::new();
    validate(branch, value, None, "", &mut causes);
    causes.is_empty()
}

fn name(path: &Path<'_>) -> String {
    if matches!(path, Path::Root) { String::new() } else { path.to_string() }
}

/// Whether a value is a number without a fraction, in any notation.
fn is_whole(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|float| float.fract() == 0.0)
}
