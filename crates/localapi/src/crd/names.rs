//! The names of a custom resource.

use serde_json::Value;

use super::text;
use crate::names::label1035_problems;
use crate::schema::{Cause, Path};

/// What a resource is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CrdNames {
    /// In paths.
    pub(crate) plural: String,
    /// For people, by default the kind in lower case.
    pub(crate) singular: String,
    /// Of its objects.
    pub(crate) kind: String,
    /// Of lists of them, by default the kind with `List`.
    pub(crate) list_kind: String,
    /// For people in a hurry.
    pub(crate) short_names: Vec<String>,
    /// Groups of resources that it belongs to, such as `all`.
    pub(crate) categories: Vec<String>,
}

impl CrdNames {
    /// Reads `spec.names`.
    pub(super) fn read(names: &Value) -> Self {
        let texts = |field: &str| {
            let items = names[field].as_array().into_iter().flatten();
            items.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let or = |given: &str, default: String| if given.is_empty() { default } else { given.to_owned() };
        let kind = text(names, "kind").to_owned();
        let list_kind = if kind.is_empty() { String::new() } else { format!("{kind}List") };
        Self {
            plural: text(names, "plural").to_owned(),
            singular: or(text(names, "singular"), kind.to_lowercase()),
            list_kind: or(text(names, "listKind"), list_kind),
            kind,
            short_names: texts("shortNames"),
            categories: texts("categories"),
        }
    }

    /// Causes for which the names are refused.
    pub(super) fn check(&self, path: &Path<'_>, causes: &mut Vec<Cause>) {
        let all = [
            ("plural", &self.plural),
            ("singular", &self.singular),
            ("kind", &self.kind),
            ("listKind", &self.list_kind),
        ];
        for (field, name) in all {
            if name.is_empty() {
                causes.push(Cause::required(&path.child(field), ""));
            }
        }
        for (field, name) in all.into_iter().filter(|(_, name)| !name.is_empty()) {
            let mixed = field == "kind" || field == "listKind";
            let problems =
                if mixed { label1035_problems(&name.to_lowercase()) } else { label1035_problems(name) };
            if !problems.is_empty() {
                let hint = if mixed { "may have mixed case, but should otherwise match: " } else { "" };
                let detail = format!("{hint}{}", problems.join(","));
                causes.push(Cause::invalid_text(&path.child(field), name, &detail));
            }
        }
        check_each(&self.short_names, &path.child("shortNames"), causes);
        if !self.kind.is_empty() && self.kind == self.list_kind {
            let detail = "kind and listKind may not be the same";
            causes.push(Cause::invalid_text(&path.child("listKind"), &self.list_kind, detail));
        }
        check_each(&self.categories, &path.child("categories"), causes);
    }
}

fn check_each(names: &[String], path: &Path<'_>, causes: &mut Vec<Cause>) {
    for (index, name) in names.iter().enumerate() {
        let problems = label1035_problems(name);
        if !problems.is_empty() {
            causes.push(Cause::invalid_text(&path.index(index), name, &problems.join(",")));
        }
    }
}
