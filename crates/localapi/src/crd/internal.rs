//! Schemas as kube-apiserver prints them in messages: its internal type, every field in the order of that type.

use serde_json::{Map, Value, json};

use crate::schema::wording;

/// How a field is kept internally.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Flag,
    /// A value as it is, or null.
    Plain,
    Schema,
    SchemaOrList,
    SchemaOrFlag,
    Schemas,
    SchemaMap,
    Rules,
}

const FIELDS: [(&str, &str, Kind); 44] = [
    ("ID", "id", Kind::Text),
    ("Schema", "$schema", Kind::Text),
    ("Ref", "$ref", Kind::Plain),
    ("Description", "description", Kind::Text),
    ("Type", "type", Kind::Text),
    ("Nullable", "nullable", Kind::Flag),
    ("Format", "format", Kind::Text),
    ("Title", "title", Kind::Text),
    ("Default", "default", Kind::Plain),
    ("Maximum", "maximum", Kind::Plain),
    ("ExclusiveMaximum", "exclusiveMaximum", Kind::Flag),
    ("Minimum", "minimum", Kind::Plain),
    ("ExclusiveMinimum", "exclusiveMinimum", Kind::Flag),
    ("MaxLength", "maxLength", Kind::Plain),
    ("MinLength", "minLength", Kind::Plain),
    ("Pattern", "pattern", Kind::Text),
    ("MaxItems", "maxItems", Kind::Plain),
    ("MinItems", "minItems", Kind::Plain),
    ("UniqueItems", "uniqueItems", Kind::Flag),
    ("MultipleOf", "multipleOf", Kind::Plain),
    ("Enum", "enum", Kind::Plain),
    ("MaxProperties", "maxProperties", Kind::Plain),
    ("MinProperties", "minProperties", Kind::Plain),
    ("Required", "required", Kind::Plain),
    ("Items", "items", Kind::SchemaOrList),
    ("AllOf", "allOf", Kind::Schemas),
    ("OneOf", "oneOf", Kind::Schemas),
    ("AnyOf", "anyOf", Kind::Schemas),
    ("Not", "not", Kind::Schema),
    ("Properties", "properties", Kind::SchemaMap),
    ("AdditionalProperties", "additionalProperties", Kind::SchemaOrFlag),
    ("PatternProperties", "patternProperties", Kind::SchemaMap),
    ("Dependencies", "dependencies", Kind::Plain),
    ("AdditionalItems", "additionalItems", Kind::SchemaOrFlag),
    ("Definitions", "definitions", Kind::SchemaMap),
    ("ExternalDocs", "externalDocs", Kind::Plain),
    ("Example", "example", Kind::Plain),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields", Kind::Plain),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", Kind::Flag),
    ("XIntOrString", "x-kubernetes-int-or-string", Kind::Flag),
    ("XListMapKeys", "x-kubernetes-list-map-keys", Kind::Plain),
    ("XListType", "x-kubernetes-list-type", Kind::Plain),
    ("XMapType", "x-kubernetes-map-type", Kind::Plain),
    ("XValidations", "x-kubernetes-validations", Kind::Rules),
];

/// A schema.
pub(super) fn schema(value: &Value) -> String {
    let parts: Vec<String> = FIELDS
        .iter()
        .map(|(name, key, kind)| {
            format!("\"{name}\":{}", field(value.get(key).unwrap_or(&Value::Null), *kind))
        })
        .collect();
    format!("{{{}}}", parts.join(","))
}

fn field(value: &Value, kind: Kind) -> String {
    match (kind, value) {
        (Kind::Text, Value::Null) => "\"\"".to_owned(),
        (Kind::Flag, Value::Null) => "false".to_owned(),
        (_, Value::Null) => "null".to_owned(),
        (Kind::Schema, schema) => self::schema(schema),
        (Kind::SchemaOrList, Value::Array(items)) => {
            format!("{{\"Schema\":null,\"JSONSchemas\":{}}}", list(items, schema))
        }
        (Kind::SchemaOrList, schema) => {
            format!("{{\"Schema\":{},\"JSONSchemas\":null}}", self::schema(schema))
        }
        (Kind::SchemaOrFlag, Value::Bool(allows)) => format!("{{\"Allows\":{allows},\"Schema\":null}}"),
        (Kind::SchemaOrFlag, schema) => format!("{{\"Allows\":true,\"Schema\":{}}}", self::schema(schema)),
        (Kind::Schemas, Value::Array(items)) => list(items, schema),
        (Kind::Rules, Value::Array(items)) => list(items, rule),
        (Kind::SchemaMap, Value::Object(fields)) => {
            let mut names: Vec<&String> = fields.keys().collect();
            names.sort();
            let parts: Vec<String> = names
                .into_iter()
                .map(|name| format!("{}:{}", wording::json(&json!(name)), schema(&fields[name.as_str()])))
                .collect();
            format!("{{{}}}", parts.join(","))
        }
        (_, other) => wording::json(other),
    }
}

fn list(items: &[Value], print: fn(&Value) -> String) -> String {
    let parts: Vec<String> = items.iter().map(print).collect();
    format!("[{}]", parts.join(","))
}

/// A validation rule.
pub(super) fn rule(rule: &Value) -> String {
    let empty = Map::new();
    let fields = rule.as_object().unwrap_or(&empty);
    let field = |name: &str, absent: Value| wording::json(fields.get(name).unwrap_or(&absent));
    format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        field("rule", json!("")),
        field("message", json!("")),
        field("messageExpression", json!("")),
        field("reason", Value::Null),
        field("fieldPath", json!("")),
        field("optionalOldSelf", Value::Null),
    )
}
