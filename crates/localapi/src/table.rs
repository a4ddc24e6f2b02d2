//! Objects as tables, the format that `kubectl get` requests.
//!
//! A definition's columns are shown as declared; every other kind shows its name and its age. Ages are
//! computed here, as on a real server, so the caller passes the time.

use jiff::Timestamp;
use jsonpath_rust::JsonPath;
use serde_json::{Map, Value, json};

use crate::crd::PrinterColumn;
use crate::registry::Resource;

/// How much of each object a table contains.
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
    /// Reads the parameter `includeObject`; `None` if its value is invalid.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "Metadata" => Some(Self::Metadata),
            "Object" => Some(Self::Object),
            "None" => Some(Self::None),
            _ => None,
        }
    }
}

/// The options of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableOptions {
    /// How much of each object it contains.
    pub(crate) include: Include,
    /// Whether it names its columns.
    pub(crate) header: bool,
    /// The present time.
    pub(crate) now: Timestamp,
}

/// A table of these objects. `metadata` is that of the list or the one object.
pub(crate) fn table(
    resource: &Resource,
    objects: &[&Value],
    metadata: &Map<String, Value>,
    options: TableOptions,
) -> Value {
    let columns = columns(resource);
    let paths: Vec<String> = columns.iter().map(|column| query(&column.json_path)).collect();
    let cells = |object: &Value| -> Vec<Value> {
        let path = |(column, path): (&PrinterColumn, &String)| {
            let found = object.query(path).ok().and_then(|found| found.into_iter().next());
            found.map_or(Value::Null, |found| cell(found, &column.ty, options.now))
        };
        columns.iter().zip(&paths).map(path).collect()
    };
    let row = |object: &&Value| {
        let shown = match options.include {
            Include::None => Value::Null,
            Include::Object => (*object).clone(),
            Include::Metadata => crate::present::metadata_of(object),
        };
        json!({"cells": cells(object), "object": shown})
    };
    let rows: Vec<Value> = objects.iter().map(row).collect();
    let header: Vec<Value> = columns.iter().map(heading).collect();
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": options.header.then_some(header),
        "rows": rows,
    })
}

fn heading(column: &PrinterColumn) -> Value {
    let description = if column.description.is_empty() {
        format!("Custom resource definition column (in JSONPath format): {}", column.json_path)
    } else {
        column.description.clone()
    };
    json!({
        "name": column.name, "type": column.ty, "format": column.format,
        "description": description, "priority": column.priority,
    })
}

/// The name, then the definition's columns, or the age if it has none.
fn columns(resource: &Resource) -> Vec<PrinterColumn> {
    let own = |name: &str, ty: &str, format: &str, description: &str, json_path: &str| PrinterColumn {
        name: name.to_owned(),
        ty: ty.to_owned(),
        format: format.to_owned(),
        description: description.to_owned(),
        priority: 0,
        json_path: json_path.to_owned(),
    };
    let name = "Name of the object, unique among those of its kind in its namespace.";
    let mut columns = vec![own("Name", "string", "name", name, ".metadata.name")];
    match resource.custom().map(|custom| &custom.info.versions[custom.index].columns) {
        Some(defined) if !defined.is_empty() => columns.extend(defined.iter().cloned()),
        _ => {
            let age = "Time since the object was created.";
            columns.push(own("Age", "date", "", age, ".metadata.creationTimestamp"));
        }
    }
    columns
}

/// Kubernetes' JSONPath in the form of RFC 9535: it begins with `$`, and dots in brackets need no backslash.
fn query(path: &str) -> String {
    format!("${}", path.replace("\\.", "."))
}

/// A value as a cell of a column: of the column's type, or null.
fn cell(value: &Value, ty: &str, now: Timestamp) -> Value {
    match (ty, value) {
        (_, Value::Null) => Value::Null,
        ("string", Value::String(text)) => json!(text),
        ("string", other) => json!(other.to_string()),
        ("integer" | "number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(text)) => match text.parse::<Timestamp>() {
            Ok(time) => json!(age(time, now)),
            Err(_) => json!("<invalid>"),
        },
        _ => Value::Null,
    }
}

/// A duration for people, in at most two units, fewer the longer it is: `3m10s`, `5h`.
fn age(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(then).as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |big: i64, big_unit: &str, small: i64, small_unit: &str| {
        if small == 0 { format!("{big}{big_unit}") } else { format!("{big}{big_unit}{small}{small_unit}") }
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => two(days, "d", hours % 24, "h"),
        _ if days < 730 => format!("{days}d"),
        _ if days < 2920 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_at_most_two_units() {
        let now: Timestamp = "2026-06-01T00:00:00Z".parse().unwrap();
        for (seconds, expected) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (190, "3m10s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (10_860, "3h1m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (176_400, "2d1h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
            (252_288_000, "8y"),
        ] {
            assert_eq!(age(now - jiff::SignedDuration::from_secs(seconds), now), expected, "{seconds}");
        }
    }

    #[test]
    fn the_paths_of_columns_lead_to_values() {
        let object =
            json!({"spec": {"a": 1, "b.c/d": "x"}, "list": [{"type": "A", "n": 1}, {"type": "B", "n": 2}]});
        for (path, value) in [
            (".spec.a", Some(json!(1))),
            (".spec['b\\.c/d']", Some(json!("x"))),
            (".list[0].type", Some(json!("A"))),
            (".list[*].n", Some(json!(1))),
            (".list[?(@.type==\"B\")].n", Some(json!(2))),
            (".nothing.here", None),
            (".list[7]", None),
            (".spec[0]", None),
        ] {
            let found = object.query(&query(path)).unwrap();
            assert_eq!(found.first().copied().cloned(), value, "{path}");
        }
    }
}
