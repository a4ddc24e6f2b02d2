//! The contents of a pool file: one or more AddressPools, as YAML or JSON.
//!
//! The API validates the fields, by the same rules as in a cluster. This module finds what the API would not
//! notice or not explain: other kinds, misspelt fields, an empty file.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::Value;
use tenure_api::coil::{self, AddressPool};

/// Fields of metadata that are used.
const USED: [&str; 3] = ["annotations", "labels", "name"];
/// Fields of metadata that the API fills in: the output of `kubectl get -o yaml` has them.
const FILLED_IN: [&str; 7] =
    ["creationTimestamp", "finalizers", "generation", "managedFields", "resourceVersion", "selfLink", "uid"];
const TOP: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];

/// What is wrong with a pool file. While a file has a mistake, nothing of it is applied, and the pools that
/// it created before stay as they are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("pool file {file}{}: {problem}", .document.map(|number| format!(", document {number}")).unwrap_or_default())]
pub struct Mistake {
    /// The file's name in the directory.
    pub file: String,
    /// The number of its document, from 1.
    pub document: Option<usize>,
    /// The field, its value and what would be accepted.
    pub problem: String,
}

impl Mistake {
    pub(super) fn of_file(file: &str, problem: impl Into<String>) -> Self {
        Self { file: file.to_owned(), document: None, problem: problem.into() }
    }
}

/// A pool that a file contains.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wanted {
    pub(super) document: usize,
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) spec: Value,
}

/// Reads the text of a file.
pub(super) fn read(file: &str, text: &str) -> Result<Vec<Wanted>, Mistake> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)
        .map_err(|error| Mistake::of_file(file, format!("is no YAML: {}", first_line(&error.to_string()))))?;
    if documents.is_empty() {
        let problem = "is empty; accepted are AddressPools; to delete its pools, delete the file";
        return Err(Mistake::of_file(file, problem));
    }
    let mut pools: Vec<Wanted> = Vec::new();
    for (index, value) in documents.into_iter().enumerate() {
        let document = index + 1;
        let wrong = |problem| Mistake { file: file.to_owned(), document: Some(document), problem };
        let pool = read_one(document, value).map_err(wrong)?;
        if let Some(other) = pools.iter().find(|other| other.name == pool.name) {
            let problem = format!(
                "metadata.name is {:?}, as in document {}; accepted is each name once",
                pool.name, other.document
            );
            return Err(wrong(problem));
        }
        pools.push(pool);
    }
    Ok(pools)
}

fn read_one(document: usize, value: Value) -> Result<Wanted, String> {
    let Value::Object(mut top) = value else {
        return Err(format!("is {value}; accepted is an AddressPool"));
    };
    let version = format!("{}/{}", coil::GROUP, coil::VERSION);
    for (field, accepted) in [("apiVersion", version.as_str()), ("kind", "AddressPool")] {
        match top.get(field) {
            Some(Value::String(value)) if value == accepted => {}
            None => return Err(format!("{field} is missing; accepted is {accepted:?}")),
            Some(other) => return Err(format!("{field} is {other}; accepted is {accepted:?}")),
        }
    }
    known("", top.keys(), TOP.iter())?;
    let metadata = top.remove("metadata").unwrap_or_default();
    let Value::Object(metadata) = metadata else {
        return Err(format!("metadata is {metadata}; accepted is a mapping with a name"));
    };
    known("metadata.", metadata.keys().filter(|key| !FILLED_IN.contains(&key.as_str())), USED.iter())?;
    let name = match metadata.get("name") {
        Some(Value::String(name)) if !name.is_empty() => name.clone(),
        None | Some(Value::Null) => {
            return Err("metadata.name is missing; accepted is the pool's name".to_owned());
        }
        Some(other) => return Err(format!("metadata.name is {other}; accepted is the pool's name")),
    };
    let strings = |field: &str| match metadata.get(field).cloned() {
        None | Some(Value::Null) => Ok(BTreeMap::new()),
        Some(value) => serde_json::from_value(value.clone())
            .map_err(|_| format!("metadata.{field} is {value}; accepted is a mapping of strings")),
    };
    let (labels, annotations) = (strings("labels")?, strings("annotations")?);
    let spec = top.remove("spec").ok_or("spec is missing; accepted is a mapping with subnets")?;
    known_in_schema("spec", &spec, spec_schema())?;
    Ok(Wanted { document, name, labels, annotations, spec })
}

fn known<'a>(
    prefix: &str,
    fields: impl Iterator<Item = &'a String>,
    accepted: impl Iterator<Item = impl AsRef<str>>,
) -> Result<(), String> {
    let accepted: Vec<String> = accepted.map(|field| field.as_ref().to_owned()).collect();
    for field in fields {
        if !accepted.contains(field) {
            return Err(format!("{prefix}{field} is unknown; accepted are {}", accepted.join(", ")));
        }
    }
    Ok(())
}

/// Refuses fields that are not in the schema. The API would drop them silently.
fn known_in_schema(path: &str, value: &Value, schema: &Value) -> Result<(), String> {
    match (value, schema.get("properties"), schema.get("items")) {
        (Value::Object(fields), Some(Value::Object(properties)), _) => {
            known(&format!("{path}."), fields.keys(), properties.keys())?;
            fields.iter().try_for_each(|(name, value)| {
                let schema = properties.get(name).unwrap_or(&Value::Null);
                known_in_schema(&format!("{path}.{name}"), value, schema)
            })
        }
        (Value::Array(items), _, Some(schema)) => items
            .iter()
            .enumerate()
            .try_for_each(|(index, item)| known_in_schema(&format!("{path}[{index}]"), item, schema)),
        _ => Ok(()),
    }
}

/// The schema of an AddressPool's spec.
fn spec_schema() -> &'static Value {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        let definition = serde_json::to_value(tenure_api::crd_of::<AddressPool>()).unwrap_or_default();
        let schema = definition.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec");
        schema.cloned().unwrap_or_default()
    })
}

/// The YAML reader adds an excerpt after the first line.
fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod proptests;
#[cfg(test)]
mod tests;
