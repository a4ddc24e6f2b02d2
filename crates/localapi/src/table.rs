//! Objects as tables, which is how `kubectl get` asks for them.
//!
//! Owns the columns of every kind and `meta.k8s.io` tables. Ages are computed here, as on a real server, so the
//! caller says what time it is.

mod age;
mod builtin;
mod jsonpath;
mod pod;
#[cfg(test)]
pub(crate) mod tests;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::crd::PrinterColumn;
use crate::registry::Resource;

pub(crate) use jsonpath::JsonPath;

/// How much of each object a table carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Include {
    /// Its metadata.
    #[default]
    Metadata,
    /// All of it.
    Object,
    /// Nothing but the cells.
    None,
}

impl Include {
    /// Reads the parameter `includeObject`; none when its value is not one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "Metadata" => Some(Self::Metadata),
            "Object" => Some(Self::Object),
            "None" => Some(Self::None),
            _ => None,
        }
    }
}

/// What a table is to be like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableOptions<'a> {
    /// Version of `meta.k8s.io`.
    pub(crate) version: &'a str,
    /// How much of each object it carries.
    pub(crate) include: Include,
    /// Whether it names its columns.
    pub(crate) header: bool,
    /// What time it is.
    pub(crate) now: Timestamp,
}

/// A column: its heading, and how a cell is made.
struct Column<'a> {
    name: &'a str,
    ty: &'a str,
    format: &'a str,
    description: String,
    priority: i64,
    cell: Cell<'a>,
}

enum Cell<'a> {
    /// Of a built-in kind.
    Made(fn(&Value, Timestamp) -> Value),
    /// Of a definition's column.
    Path(Option<JsonPath>, &'a str),
}

/// A table of these objects. `metadata` is that of the list or the one object.
pub(crate) fn table(
    resource: &Resource,
    objects: &[&Value],
    metadata: Map<String, Value>,
    options: TableOptions<'_>,
) -> Value {
    let columns = columns(resource);
    let rows: Vec<Value> = objects.iter().map(|object| row(&columns, object, options)).collect();
    let definitions: Vec<Value> = columns
        .iter()
        .filter(|_| options.header)
        .map(|column| {
            json!({
                "name": column.name, "type": column.ty, "format": column.format,
                "description": column.description, "priority": column.priority,
            })
        })
        .collect();
    let definitions = if options.header { Value::Array(definitions) } else { Value::Null };
    json!({
        "kind": "Table",
        "apiVersion": format!("meta.k8s.io/{}", options.version),
        "metadata": Value::Object(metadata),
        "columnDefinitions": definitions,
        "rows": rows,
    })
}

fn row(columns: &[Column<'_>], object: &Value, options: TableOptions<'_>) -> Value {
    let cells: Vec<Value> = columns.iter().map(|column| column.cell(object, options.now)).collect();
    let mut row = json!({"cells": cells});
    if let Some(conditions) = pod::row_conditions(object) {
        row["conditions"] = conditions;
    }
    row["object"] = match options.include {
        Include::None => Value::Null,
        Include::Object => object.clone(),
        Include::Metadata => json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": format!("meta.k8s.io/{}", options.version),
            "metadata": object["metadata"],
        }),
    };
    row
}

impl Column<'_> {
    fn cell(&self, object: &Value, now: Timestamp) -> Value {
        match &self.cell {
            Cell::Made(make) => make(object, now),
            Cell::Path(path, ty) => match path.as_ref().and_then(|path| path.first(object)) {
                Some(found) => typed_cell(found, ty, now),
                None => Value::Null,
            },
        }
    }
}

/// A value as a cell of a definition's column: of the column's type, or nothing.
fn typed_cell(value: &Value, ty: &str, now: Timestamp) -> Value {
    match (ty, value) {
        (_, Value::Null) => Value::Null,
        ("string", Value::String(text)) => json!(text),
        ("string", other) => json!(crate::schema::wording::json(other)),
        #[allow(clippy::cast_possible_truncation)]
        ("integer", Value::Number(number)) => match number.as_i64() {
            Some(int) => json!(int),
            None => json!(number.as_f64().unwrap_or(0.0) as i64),
        },
        ("number", Value::Number(number)) => json!(number),
        ("boolean", Value::Bool(flag)) => json!(flag),
        ("date", Value::String(text)) => match text.parse::<Timestamp>() {
            Ok(time) => json!(age::between(time, now)),
            Err(_) => json!("<invalid>"),
        },
        _ => Value::Null,
    }
}

fn columns(resource: &Resource) -> Vec<Column<'_>> {
    match resource.custom() {
        None => builtin::columns(&resource.kind),
        Some(custom) => custom_columns(&custom.info.versions[custom.index].columns),
    }
}

const NAME: &str = "Name of the object, unique among those of its kind in its namespace.";
const AGE: &str = "Time since the object was created.";

fn name_column<'a>() -> Column<'a> {
    Column {
        name: "Name",
        ty: "string",
        format: "name",
        description: NAME.to_owned(),
        priority: 0,
        cell: Cell::Made(|object, _| json!(object["metadata"]["name"].as_str().unwrap_or_default())),
    }
}

/// The name, then what the definition lists, or the age if it lists nothing.
fn custom_columns(defined: &[PrinterColumn]) -> Vec<Column<'_>> {
    let mut columns = vec![name_column()];
    if defined.is_empty() {
        columns.push(Column {
            name: "Age",
            ty: "date",
            format: "",
            description: AGE.to_owned(),
            priority: 0,
            cell: Cell::Path(JsonPath::parse(".metadata.creationTimestamp").ok(), "date"),
        });
    }
    columns.extend(defined.iter().map(|column| Column {
        name: &column.name,
        ty: &column.ty,
        format: &column.format,
        description: if column.description.is_empty() {
            format!("Custom resource definition column (in JSONPath format): {}", column.json_path)
        } else {
            column.description.clone()
        },
        priority: column.priority,
        cell: Cell::Path(JsonPath::parse(&column.json_path).ok(), &column.ty),
    }));
    columns
}
