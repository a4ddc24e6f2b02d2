//! What a version says beside its schema: printer columns, subresources, selectable fields.

use serde_json::{Value, json};

use super::{said, text};
use crate::schema::{Cause, Path, Schema};

/// A column that `kubectl get` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PrinterColumn {
    /// Heading.
    pub(crate) name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub(crate) ty: String,
    /// A hint for clients.
    pub(crate) format: String,
    /// Explanation; by default one is made from the path.
    pub(crate) description: String,
    /// 0 is always shown, more only in wide output.
    pub(crate) priority: i64,
    /// Where the value is.
    pub(crate) json_path: String,
}

impl PrinterColumn {
    /// Reads `additionalPrinterColumns`.
    pub(super) fn read(columns: &Value) -> Vec<Self> {
        let columns = columns.as_array().into_iter().flatten();
        columns
            .map(|column| Self {
                name: text(column, "name").to_owned(),
                ty: text(column, "type").to_owned(),
                format: text(column, "format").to_owned(),
                description: text(column, "description").to_owned(),
                priority: column["priority"].as_i64().unwrap_or(0),
                json_path: text(column, "jsonPath").to_owned(),
            })
            .collect()
    }
}

const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

/// Causes for which printer columns are refused.
pub(super) fn check_columns(version: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    for (index, column) in PrinterColumn::read(&version["additionalPrinterColumns"]).iter().enumerate() {
        let at = path.index(index);
        if column.name.is_empty() {
            causes.push(Cause::required(&at.child("name"), ""));
        }
        let types = format!("must be one of {}", TYPES.join(","));
        if column.ty.is_empty() {
            causes.push(Cause::required(&at.child("type"), &types));
        } else if !TYPES.contains(&column.ty.as_str()) {
            causes.push(Cause::invalid_text(&at.child("type"), &column.ty, &types));
        }
        if !column.format.is_empty() && !FORMATS.contains(&column.format.as_str()) {
            let detail = format!("must be one of {}", FORMATS.join(","));
            causes.push(Cause::invalid_text(&at.child("format"), &column.format, &detail));
        }
        if column.json_path.is_empty() {
            causes.push(Cause::required(&at.child("JSONPath"), ""));
        } else {
            causes.extend(simple_path(&column.json_path, &at.child("JSONPath")));
        }
    }
}

/// Causes for which a scale subresource is refused.
pub(super) fn check_subresources(version: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let Some(scale) = said(&version["subresources"], "scale") else { return };
    for (field, below) in [("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")] {
        let name = format!("scale.{field}");
        let at = path.child(&name);
        let given = text(scale, field);
        if given.is_empty() {
            causes.push(Cause::required(&at, ""));
        } else if let Some(cause) = simple_path(given, &at) {
            causes.push(cause);
        } else if !given.starts_with(&format!("{below}.")) {
            let detail = format!("should be a json path under {below}");
            causes.push(Cause::invalid_text(&at, given, &detail));
        }
    }
    let selector = text(scale, "labelSelectorPath");
    if !selector.is_empty() {
        let at = path.child("scale.labelSelectorPath");
        if let Some(cause) = simple_path(selector, &at) {
            causes.push(cause);
        } else if !selector.starts_with(".spec.") && !selector.starts_with(".status.") {
            let detail = "should be a json path under either .spec or .status";
            causes.push(Cause::invalid_text(&at, selector, detail));
        }
    }
}

fn simple_path(path: &str, at: &Path<'_>) -> Option<Cause> {
    (!path.starts_with('.'))
        .then(|| Cause::invalid_text(at, path, "must be a simple json path starting with ."))
}

/// Causes for which selectable fields are refused.
pub(super) fn check_selectable(
    version: &Value,
    schema: Option<&Schema>,
    path: &Path<'_>,
    causes: &mut Vec<Cause>,
) {
    const MAX: usize = 8;
    let Some(schema) = schema else { return };
    let fields = version["selectableFields"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut unique: Vec<String> = Vec::new();
    for (index, field) in fields.iter().enumerate() {
        let item = path.index(index);
        let at = item.child("jsonPath");
        let given = text(field, "jsonPath");
        if given.is_empty() {
            causes.push(Cause::required(&at, ""));
            continue;
        }
        let (resolved, ty) = match schema.follow(given) {
            Ok(found) => found,
            Err(problem) => {
                causes.push(Cause::invalid_text(&at, given, &format!("is an invalid path: {problem}")));
                continue;
            }
        };
        if resolved == "metadata" || resolved.starts_with("metadata.") {
            causes.push(Cause::invalid_text(&at, given, "must not point to fields in metadata"));
        }
        if !["string", "boolean", "integer"].contains(&ty) {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            causes.push(Cause::invalid_text(&at, given, detail));
        }
        if unique.contains(&resolved) {
            causes.push(Cause::duplicate(&at, &json!(given)));
        } else {
            unique.push(resolved);
        }
    }
    if unique.len() > MAX {
        causes.push(Cause::too_many(path, unique.len(), i64::try_from(MAX).unwrap_or(i64::MAX)));
    }
}
