//! Checking values against a schema: types, ranges, patterns, formats, and the combinators.
//!
//! The order of checks, the wording and which branch of an `anyOf` is reported follow the real server.
//! A part that did not change since the old object is not complained about.

use serde_json::{Map, Value};

use super::cause::Cause;
use super::correlate::Correlated;
use super::lists::sorted;
use super::node::{Additional, Node};
use super::path::Path;
use super::wording::{self, GoNumber};

/// Causes why `value` does not follow `node`. Fields are reported below `prefix`, which the message leaves out.
pub(super) fn validate(
    node: &Node,
    value: &Value,
    correlated: Option<&Correlated<'_>>,
    prefix: &str,
    causes: &mut Vec<Cause>,
) {
    let validator = Validator { prefix };
    let mut outcome = validator.check(node, value, &Path::root(), correlated);
    outcome.forgive(correlated);
    causes.extend(outcome.issues.into_iter().map(|issue| issue.cause));
}

struct Validator<'p> {
    prefix: &'p str,
}

/// What checking one value found.
#[derive(Default)]
struct Outcome {
    issues: Vec<Issue>,
    /// How many checks succeeded: the branch with most decides what is reported of an `anyOf`.
    matched: usize,
}

struct Issue {
    /// Two issues with the same text are one.
    text: String,
    cause: Cause,
}

impl Outcome {
    fn add(&mut self, issue: Issue) {
        if self.issues.iter().all(|known| known.text != issue.text) {
            self.issues.push(issue);
        }
    }

    fn merge(&mut self, other: Outcome) {
        self.matched += other.matched;
        for issue in other.issues {
            self.add(issue);
        }
    }

    fn is_valid(&self) -> bool {
        self.issues.is_empty()
    }

    /// Errors in a part that did not change do not count.
    fn forgive(&mut self, correlated: Option<&Correlated<'_>>) {
        if !self.issues.is_empty() && correlated.is_some_and(Correlated::unchanged) {
            self.issues.clear();
        }
    }
}

impl Validator<'_> {
    fn check(&self, node: &Node, value: &Value, path: &Path<'_>, old: Option<&Correlated<'_>>) -> Outcome {
        let mut out = Outcome::default();
        if value.is_null() {
            self.check_type(node, value, path, &mut out);
            self.check_enum(node, value, path, &mut out);
            return out;
        }
        if !node.ty.is_empty() || node.format.is_some() {
            self.check_type(node, value, path, &mut out);
            out.matched += 1;
        }
        self.check_branches(node, value, path, &mut out);
        out.matched += 2;
        match value {
            Value::String(text) => {
                self.check_text(node, text, path, &mut out);
                out.matched += 1;
                if let Some(format) = node.format {
                    if !format.accepts(text) {
                        let wanted = &node.format_name;
                        out.add(self.type_issue(path, wanted, text));
                    }
                    out.matched += 1;
                }
            }
            Value::Number(number) => {
                self.check_number(node, GoNumber::of(number), path, &mut out);
                out.matched += 2;
            }
            Value::Array(items) => {
                self.check_list(node, items, path, old, &mut out);
                out.matched += 2;
            }
            _ => {}
        }
        self.check_enum(node, value, path, &mut out);
        out.matched += 1;
        if let Value::Object(fields) = value {
            self.check_object(node, fields, path, old, &mut out);
            out.matched += 1;
        }
        out.matched += 1;
        out
    }

    fn check_type(&self, node: &Node, value: &Value, path: &Path<'_>, out: &mut Outcome) {
        let has = |name: &str| node.ty.split(',').any(|t| t == name);
        let typed = !node.ty.is_empty();
        let (found, found_format) = match value {
            Value::Null => {
                if typed && !has("null") && !node.nullable {
                    out.add(self.type_issue(path, &node.ty, "null"));
                } else {
                    out.matched += 1;
                }
                return;
            }
            Value::Bool(_) => ("boolean", ""),
            Value::String(_) => ("string", ""),
            Value::Array(_) => ("array", ""),
            Value::Object(_) => ("object", ""),
            Value::Number(number) => match GoNumber::of(number) {
                GoNumber::Int(_) => ("integer", "int64"),
                GoNumber::Float(_) => ("number", "float64"),
            },
        };
        let whole = matches!(value, Value::Number(n) if is_json_integer(n.as_f64().unwrap_or(0.0)));
        let float_as_integer = found == "number" && whole && has("integer");
        let integer_as_float = found == "integer" && has("number");
        let fits = has(found) || float_as_integer || integer_as_float;
        let formatted = node.format.is_some();
        let texty = matches!(value, Value::String(_) | Value::Array(_));
        if !texty && formatted && !fits {
            out.add(self.type_issue(path, &node.format_name, found_format));
        } else if !(has("number") || has("integer")) && formatted && texty || fits {
            out.matched += 1;
        } else {
            out.add(self.type_issue(path, &node.ty, found));
        }
    }

    fn check_branches(&self, node: &Node, value: &Value, path: &Path<'_>, out: &mut Outcome) {
        if !node.any_of.is_empty() {
            self.check_any_of(node, value, path, out);
        }
        if !node.one_of.is_empty() {
            self.check_one_of(node, value, path, out);
        }
        if !node.all_of.is_empty() {
            let mut valid = 0;
            for branch in &node.all_of {
                let result = self.check(branch, value, path, None);
                valid += usize::from(result.is_valid());
                out.merge(result);
            }
            if valid != node.all_of.len() {
                let none = if valid == 0 { ". None validated" } else { "" };
                out.add(self.branch_issue(path, &format!("must validate all the schemas (allOf){none}")));
            }
        }
        if let Some(not) = &node.not
            && self.check(not, value, path, None).is_valid()
        {
            out.add(self.branch_issue(path, "must not validate the schema (not)"));
        }
    }

    fn check_any_of(&self, node: &Node, value: &Value, path: &Path<'_>, out: &mut Outcome) {
        let mut best: Option<Outcome> = None;
        for branch in &node.any_of {
            let result = self.check(branch, value, path, None);
            if result.is_valid() {
                out.merge(result);
                return;
            }
            if best.as_ref().is_none_or(|b| result.matched > b.matched) {
                best = Some(result);
            }
        }
        out.add(self.branch_issue(path, "must validate at least one schema (anyOf)"));
        out.merge(best.unwrap_or_default());
    }

    fn check_one_of(&self, node: &Node, value: &Value, path: &Path<'_>, out: &mut Outcome) {
        let mut best: Option<Outcome> = None;
        let mut first: Option<Outcome> = None;
        let mut valid = 0;
        for branch in &node.one_of {
            let result = self.check(branch, value, path, None);
            if result.is_valid() {
                valid += 1;
                best = None;
                first.get_or_insert(result);
            } else if valid == 0 && best.as_ref().is_none_or(|b| result.matched > b.matched) {
                best = Some(result);
            }
        }
        if valid == 1 {
            out.merge(first.unwrap_or_default());
            return;
        }
        let found = match valid {
            0 => "Found none valid".to_owned(),
            _ => format!("Found {valid} valid alternatives"),
        };
        out.add(self.branch_issue(path, &format!("must validate one and only one schema (oneOf). {found}")));
        out.merge(best.unwrap_or_default());
    }

    /// The first broken rule of a text is reported, the others are not.
    fn check_text(&self, node: &Node, text: &str, path: &Path<'_>, out: &mut Outcome) {
        let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
        let value = || Value::String(text.to_owned());
        if let Some(max) = node.max_length.filter(|max| length > *max) {
            out.add(Issue {
                text: format!("{} in body should be at most {max} chars long", name(path)),
                cause: self.at(path, |p| Cause::too_long(p, max)),
            });
        } else if let Some(min) = node.min_length.filter(|min| length < *min) {
            out.add(self.issue(path, &value(), &format!("should be at least {min} chars long")));
        } else if let Some((pattern, _)) = node.pattern.as_ref().filter(|(_, regex)| !regex.is_match(text)) {
            out.add(self.issue(path, &value(), &format!("should match '{pattern}'")));
        }
    }

    fn check_number(&self, node: &Node, number: GoNumber, path: &Path<'_>, out: &mut Outcome) {
        let value = match number {
            GoNumber::Int(int) => Value::from(int),
            GoNumber::Float(float) => Value::from(float),
        };
        if let Some(factor) = node.multiple_of {
            match not_multiple(number, factor) {
                None => {}
                Some(shown) if factor <= 0.0 || shown == "0" => {
                    let text =
                        format!("factor MultipleOf declared for {} must be positive: {shown}", name(path));
                    let cause = self.at(path, |p| Cause::invalid_shown(p, &shown, &text));
                    out.add(Issue { text, cause });
                }
                Some(shown) => out.add(self.issue(path, &value, &format!("should be a multiple of {shown}"))),
            }
        }
        if let Some((shown, order)) = node.minimum.map(|min| compare(number, min))
            && (order.is_lt() || node.exclusive_minimum && order.is_eq())
        {
            let or_equal = if node.exclusive_minimum { "" } else { " or equal to" };
            out.add(self.issue(path, &value, &format!("should be greater than{or_equal} {shown}")));
        }
        if let Some((shown, order)) = node.maximum.map(|max| compare(number, max))
            && (order.is_gt() || node.exclusive_maximum && order.is_eq())
        {
            let or_equal = if node.exclusive_maximum { "" } else { " or equal to" };
            out.add(self.issue(path, &value, &format!("should be less than{or_equal} {shown}")));
        }
    }

    fn check_list(
        &self,
        node: &Node,
        items: &[Value],
        path: &Path<'_>,
        old: Option<&Correlated<'_>>,
        out: &mut Outcome,
    ) {
        if let Some(inner) = &node.items {
            for (index, item) in items.iter().enumerate() {
                let old = old.and_then(|o| o.item(index));
                let mut result = self.check(inner, item, &path.index(index), old.as_ref());
                result.forgive(old.as_ref());
                out.merge(result);
            }
        }
        let size = i64::try_from(items.len()).unwrap_or(i64::MAX);
        if let Some(min) = node.min_items.filter(|min| size < *min) {
            out.add(self.issue(path, &Value::from(size), &format!("should have at least {min} items")));
        }
        if let Some(max) = node.max_items.filter(|max| size > *max) {
            out.add(Issue {
                text: format!("{} in body should have at most {max} items", name(path)),
                cause: self.at(path, |p| Cause::too_many(p, items.len(), max)),
            });
        }
        if node.unique_items && items.iter().enumerate().any(|(i, item)| items[..i].contains(item)) {
            out.add(self.issue(path, &Value::from(""), "shouldn't contain duplicates"));
        }
    }

    fn check_enum(&self, node: &Node, value: &Value, path: &Path<'_>, out: &mut Outcome) {
        if node.enumeration.is_empty() || node.enumeration.iter().any(|allowed| same(value, allowed)) {
            return;
        }
        let supported: Vec<String> = node
            .enumeration
            .iter()
            .map(|allowed| match allowed {
                Value::String(text) => text.clone(),
                other => wording::json(other),
            })
            .collect();
        out.add(Issue {
            text: format!("{} in body should be one of {supported:?}", name(path)),
            cause: self.at(path, |p| Cause::not_supported(p, value, &supported)),
        });
    }

    fn check_object(
        &self,
        node: &Node,
        fields: &Map<String, Value>,
        path: &Path<'_>,
        old: Option<&Correlated<'_>>,
        out: &mut Outcome,
    ) {
        let size = i64::try_from(fields.len()).unwrap_or(i64::MAX);
        if let Some(min) = node.min_properties.filter(|min| size < *min) {
            out.add(self.issue(path, &Value::from(size), &format!("should have at least {min} properties")));
        }
        if let Some(max) = node.max_properties.filter(|max| size > *max) {
            out.add(Issue {
                text: format!("{} in body should have at most {max} properties", name(path)),
                cause: self.at(path, |p| Cause::too_many(p, fields.len(), max)),
            });
        }
        let child = |inner: &Node, name: &str, field: &Value| {
            // What the server converts between versions (`apiVersion`, `kind`) is never forgiven.
            let hidden = matches!(path, Path::Root) && (name == "apiVersion" || name == "kind");
            let old = if hidden { None } else { old.and_then(|o| o.field(name)) };
            let mut result = self.check(inner, field, &path.child(name), old.as_ref());
            result.forgive(old.as_ref());
            result
        };
        match &node.additional {
            Additional::Allowed(false) => {
                for (key, _) in sorted(fields).into_iter().filter(|(k, _)| !node.properties.contains_key(*k))
                {
                    let text = format!("{}.{key} in body is a forbidden property", name(path));
                    let cause = self.at(path, |p| Cause::invalid_text(p, key, &text));
                    out.add(Issue { text, cause });
                }
            }
            Additional::Schema(inner) => {
                for (key, field) in sorted(fields) {
                    if !node.properties.contains_key(key) {
                        out.merge(child(inner, key, field));
                    }
                }
            }
            Additional::Absent | Additional::Allowed(true) => {}
        }
        for (key, property) in &node.properties {
            if let Some(field) = fields.get(key) {
                out.merge(child(property, key, field));
            }
        }
        for key in &node.required {
            if !fields.contains_key(key) {
                out.add(Issue {
                    text: format!("{}.{key} in body is required", name(path)),
                    cause: self.at(&path.child(key), |p| Cause::required(p, "")),
                });
            }
        }
    }

    fn issue(&self, path: &Path<'_>, value: &Value, problem: &str) -> Issue {
        let text = format!("{} in body {problem}", name(path));
        let cause = self.at(path, |p| Cause::invalid(p, value, &text));
        Issue { text, cause }
    }

    fn type_issue(&self, path: &Path<'_>, wanted: &str, found: &str) -> Issue {
        let text = format!("{} in body must be of type {wanted}: {}", name(path), wording::quote(found));
        let cause = self.at(path, |p| Cause::type_invalid(p, found, &text));
        Issue { text, cause }
    }

    /// A combinator's own complaint has no field of its own.
    fn branch_issue(&self, path: &Path<'_>, problem: &str) -> Issue {
        let text = format!("{} {problem}", wording::quote(&name(path)));
        let cause = self.at(&Path::Root, |p| Cause::invalid_text(p, "", &text));
        Issue { text, cause }
    }

    /// Makes a cause at the path below the prefix.
    fn at(&self, path: &Path<'_>, make: impl FnOnce(&Path<'_>) -> Cause) -> Cause {
        if self.prefix.is_empty() {
            return make(path);
        }
        let prefix = Path::Text(self.prefix);
        let inside = name(path);
        if inside.is_empty() { make(&prefix) } else { make(&prefix.child(&inside)) }
    }
}

fn name(path: &Path<'_>) -> String {
    match path {
        Path::Root => String::new(),
        other => other.to_string(),
    }
}

/// Whether the real server finds a value in an enumeration: numbers compare after conversion to the listed type.
#[allow(clippy::cast_possible_truncation, clippy::float_cmp)]
fn same(value: &Value, allowed: &Value) -> bool {
    match (value, allowed) {
        (Value::Number(value), Value::Number(allowed)) => {
            match (GoNumber::of(value), GoNumber::of(allowed)) {
                (GoNumber::Int(a), GoNumber::Int(b)) => a == b,
                (GoNumber::Float(a), GoNumber::Int(b)) => a as i64 == b,
                (a, GoNumber::Float(b)) => a.as_f64() == b,
            }
        }
        (Value::Null, _) | (_, Value::Null) => false,
        (value, allowed) => value == allowed,
    }
}

/// The bound as it is printed for this number, and how the number compares with it.
#[allow(clippy::cast_possible_truncation)]
fn compare(number: GoNumber, bound: f64) -> (String, std::cmp::Ordering) {
    match number {
        GoNumber::Int(int) => {
            let bound = bound as i64;
            (bound.to_string(), int.cmp(&bound))
        }
        GoNumber::Float(float) => {
            let order = float.partial_cmp(&bound).unwrap_or(std::cmp::Ordering::Equal);
            (wording::float_g(bound), order)
        }
    }
}

/// The factor as it is printed, when the number is not a multiple of it.
#[allow(clippy::cast_possible_truncation)]
fn not_multiple(number: GoNumber, factor: f64) -> Option<String> {
    match number {
        GoNumber::Int(int) => {
            let factor = factor as i64;
            let multiple = factor > 0 && int % factor == 0;
            (!multiple).then(|| factor.to_string())
        }
        GoNumber::Float(float) => {
            let quotient = if factor < 1.0 { 1.0 / factor * float } else { float / factor };
            let multiple = factor > 0.0 && is_json_integer(quotient);
            (!multiple).then(|| wording::float_g(factor))
        }
    }
}

/// Whether a float is near enough to an integer to pass for one.
#[allow(clippy::float_cmp)]
fn is_json_integer(float: f64) -> bool {
    const LARGEST: f64 = 9_007_199_254_740_991.0;
    if !float.is_finite() || float.abs() > LARGEST {
        return false;
    }
    let whole = float.trunc();
    let difference = (float - whole).abs();
    if float == whole {
        true
    } else if float == 0.0 || whole == 0.0 || difference < f64::MIN_POSITIVE {
        difference < 1e-9 * f64::MIN_POSITIVE
    } else {
        difference / (float.abs() + whole.abs()).min(f64::MAX) < 1e-9
    }
}
