//! Objects that are accepted and objects that are refused, for tests of every server that serves our
//! definitions.
//!
//! The table is `fixtures/rules.yaml`. The tests of this crate compare it with the rules themselves; the
//! suites that start servers compare it with those.

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Deserialize;
use serde_json::{Map, Value, json};

const RULES: &str = include_str!("../fixtures/rules.yaml");

/// One write and its result.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Example {
    /// The behaviour, as a sentence.
    pub name: String,
    /// The kind that is written; with its group, as `IPPool.ipam.gcp-cni.cast.ai`, where the first group of that kind is not meant.
    pub kind: String,
    /// The object before an update.
    pub old: Option<Value>,
    /// The object that is written.
    pub object: Value,
    /// What the rules refuse, each with its exact message.
    #[serde(default)]
    pub refused: Vec<Refusal>,
    /// What the plain schema refuses, each with part of its message.
    #[serde(default)]
    pub schema: Vec<Refusal>,
}

/// One refusal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// The field; empty for the whole object.
    pub field: String,
    /// The message about it.
    pub message: String,
}

impl Example {
    /// All examples. Objects are complete: a server accepts them unchanged.
    pub fn all() -> Result<Vec<Self>, ExampleError> {
        let mut examples: Vec<Self> = serde_saphyr::from_str(RULES).map_err(Box::new)?;
        for (number, example) in examples.iter_mut().enumerate() {
            let definition = example.definition()?;
            complete(&mut example.object, definition, number);
            if let Some(old) = &mut example.old {
                complete(old, definition, number);
            }
        }
        Ok(examples)
    }

    /// Whether the write is accepted.
    pub fn is_accepted(&self) -> bool {
        self.refused.is_empty() && self.schema.is_empty()
    }

    /// The definition of its kind.
    pub fn definition(&self) -> Result<&'static CustomResourceDefinition, ExampleError> {
        static DEFINITIONS: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(crate::crds);
        DEFINITIONS
            .iter()
            .find(|crd| {
                let kind = &crd.spec.names.kind;
                *kind == self.kind || format!("{kind}.{}", crd.spec.group) == self.kind
            })
            .ok_or_else(|| ExampleError::Kind { example: self.name.clone(), kind: self.kind.clone() })
    }
}

/// Why the table cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ExampleError {
    /// It cannot be parsed.
    #[error("reading fixtures/rules.yaml: {0}")]
    Yaml(#[from] Box<serde_saphyr::Error>),
    /// An example of a kind that is not ours.
    #[error("the example \"{example}\" is of kind {kind}, which has no definition here")]
    Kind {
        /// The example.
        example: String,
        /// Its kind.
        kind: String,
    },
}

fn complete(object: &mut Value, definition: &CustomResourceDefinition, number: usize) {
    let Value::Object(object) = object else { return };
    let version = definition.spec.versions.first().map_or("", |version| version.name.as_str());
    object.insert("apiVersion".into(), json!(format!("{}/{version}", definition.spec.group)));
    object.insert("kind".into(), json!(definition.spec.names.kind));
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(metadata) = metadata {
        metadata.entry("name").or_insert_with(|| json!(format!("example{number}")));
        if definition.spec.scope == "Namespaced" {
            metadata.entry("namespace").or_insert_with(|| json!("default"));
        }
    }
}

#[cfg(test)]
mod tests;
