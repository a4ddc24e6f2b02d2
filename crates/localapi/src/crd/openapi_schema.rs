//! Which OpenAPI a definition's schema may use, list types, and validation rules.

use serde_json::{Value, json};

use super::{internal, said, structural, text};
use crate::schema::{Cause, Path, Schema};

/// Checks the schema of a version; compiles it when it is good.
pub(super) fn check(version: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) -> Option<Schema> {
    let schema = said(&version["schema"], "openAPIV3Schema")?;
    let at = path.child("openAPIV3Schema");
    let before = causes.len();
    if said(&version["subresources"], "status").is_some() {
        check_root_with_status(schema, path, causes);
    }
    if schema["nullable"] == true {
        let at = path.child("openAPIV3Schema.nullable");
        causes.push(Cause::forbidden(&at, "nullable cannot be true at the root"));
    }
    let mut unreadable = structural::unsupported(schema).map(|keyword| {
        Cause::invalid_text(&at, "", &format!("OpenAPIV3Schema '{keyword}' is not supported"))
    });
    let mut found = if unreadable.is_none() { structural::check(schema, &at) } else { Vec::new() };
    if found.is_empty() && unreadable.is_none() {
        // Rules that do not compile are reported below; defaults are then checked without them.
        match Schema::compile(schema).or_else(|_| Schema::compile_without_rules(schema)) {
            Ok(good) => found = good.validate_defaults(&at),
            Err(error) => unreadable = Some(Cause::invalid_text(&at, "", &error.to_string())),
        }
    }
    let rules = found.is_empty() && unreadable.is_none();
    causes.append(&mut found);
    let mut errors = Errors::default();
    let place = Place { defaults: None, meta: false, uncorrelated: None, rules };
    check_node(schema, &at, &place, true, &mut errors);
    causes.append(&mut errors.schema);
    causes.append(&mut errors.rules);
    if causes.len() == before {
        // What could not be read at all is only worth telling when nothing else is wrong.
        causes.extend(unreadable);
    }
    if causes.len() > before {
        return None;
    }
    match Schema::compile(schema) {
        Ok(schema) => Some(schema),
        Err(error) => {
            causes.push(Cause::invalid_text(path, "", &format!("error building validator: {error}")));
            None
        }
    }
}

/// With a status subresource, the root only says what can be said of the status alone as well.
fn check_root_with_status(schema: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    const ALLOWED: [(&str, &str); 22] = [
        ("description", "Description"),
        ("type", "Type"),
        ("format", "Format"),
        ("title", "Title"),
        ("maximum", "Maximum"),
        ("exclusiveMaximum", "ExclusiveMaximum"),
        ("minimum", "Minimum"),
        ("exclusiveMinimum", "ExclusiveMinimum"),
        ("maxLength", "MaxLength"),
        ("minLength", "MinLength"),
        ("pattern", "Pattern"),
        ("maxItems", "MaxItems"),
        ("minItems", "MinItems"),
        ("uniqueItems", "UniqueItems"),
        ("multipleOf", "MultipleOf"),
        ("required", "Required"),
        ("items", "Items"),
        ("properties", "Properties"),
        ("externalDocs", "ExternalDocs"),
        ("example", "Example"),
        ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields"),
        ("x-kubernetes-validations", "XValidations"),
    ];
    let ty = text(schema, "type");
    if !ty.is_empty() && ty != "object" {
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        causes.push(Cause::invalid_text(&path.child("openAPIV3Schema.type"), ty, detail));
        return;
    }
    let fields = schema.as_object().into_iter().flatten();
    let strange =
        fields.filter(|(_, value)| !is_zero(value)).any(|(key, _)| ALLOWED.iter().all(|(k, _)| k != key));
    if strange {
        let names: Vec<&str> = ALLOWED.iter().map(|(_, name)| *name).collect();
        let detail = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            names.join(" ")
        );
        causes.push(Cause::invalid_shown(&path.child("openAPIV3Schema"), &internal::schema(schema), &detail));
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

#[derive(Default)]
struct Errors {
    schema: Vec<Cause>,
    rules: Vec<Cause>,
}

/// Where in a schema the check is.
#[derive(Clone)]
struct Place {
    /// Why defaults are not allowed here, if they are not.
    defaults: Option<String>,
    /// Whether this describes `metadata`, `kind` or `apiVersion`.
    meta: bool,
    /// The outermost list or map around here in which old and new items cannot be told apart.
    uncorrelated: Option<String>,
    /// Whether rules are compiled.
    rules: bool,
}

impl Place {
    fn without_rules(&self) -> Self {
        Self { rules: false, ..self.clone() }
    }

    fn uncorrelated(&self, path: &Path<'_>) -> Self {
        let mut place = self.clone();
        place.uncorrelated.get_or_insert_with(|| path.to_string());
        place
    }
}

fn check_node(schema: &Value, path: &Path<'_>, place: &Place, root: bool, errors: &mut Errors) {
    let Some(fields) = schema.as_object() else { return };
    let below = errors.schema.len();
    check_vocabulary(schema, path, place, &mut errors.schema);
    if schema["uniqueItems"] == true {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.schema.push(Cause::forbidden(&path.child("uniqueItems"), detail));
    }
    let properties = fields.get("properties").and_then(Value::as_object);
    if let Some(additional) = said(schema, "additionalProperties") {
        let at = path.child("additionalProperties");
        if properties.is_some_and(|p| !p.is_empty()) && *additional != Value::Bool(true) {
            let detail = "additionalProperties and properties are mutual exclusive";
            errors.schema.push(Cause::forbidden(&at, detail));
        }
        let mut inner = place.clone();
        if place.meta {
            inner.defaults = Some("inside additionalProperties applying to object metadata".to_owned());
        }
        check_node(additional, &at, &inner, false, errors);
    }
    let embedded = schema["x-kubernetes-embedded-resource"] == true;
    let at = path.child("properties");
    for (name, property) in properties.into_iter().flatten() {
        let mut inner = place.clone();
        if (root || embedded) && ["metadata", "kind", "apiVersion"].contains(&name.as_str()) {
            inner.meta = true;
            if root {
                inner.defaults = Some(format!("in top-level {name}"));
            }
        }
        check_node(property, &at.key(name), &inner, false, errors);
    }
    check_branches(schema, path, place, errors);
    if let Some(items) = said(schema, "items") {
        let keyed = text(schema, "x-kubernetes-list-type") == "map";
        let inner = if keyed { place.clone() } else { place.uncorrelated(path) };
        check_node(items, &path.child("items"), &inner, false, errors);
    }
    check_list_and_map_types(schema, path, &mut errors.schema);
    check_rule_fields(schema, path, &mut errors.schema);
    if errors.schema.len() == below && place.rules {
        check_rules(schema, path, place, root, &mut errors.rules);
    }
}

fn check_branches(schema: &Value, path: &Path<'_>, place: &Place, errors: &mut Errors) {
    let inner = place.without_rules();
    if let Some(not) = said(schema, "not") {
        check_node(not, &path.child("not"), &inner, false, errors);
    }
    for name in ["allOf", "oneOf", "anyOf"] {
        for (index, branch) in schema[name].as_array().into_iter().flatten().enumerate() {
            check_node(branch, &path.child(name).index(index), &inner, false, errors);
        }
    }
}

fn check_vocabulary(schema: &Value, path: &Path<'_>, place: &Place, causes: &mut Vec<Cause>) {
    const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
    let ty = text(schema, "type");
    if !ty.is_empty() && !TYPES.contains(&ty) {
        let types = TYPES.map(str::to_owned);
        causes.push(Cause::not_supported(&path.child("type"), &json!(ty), &types));
    }
    if let (Some(reason), true) = (&place.defaults, said(schema, "default").is_some()) {
        causes.push(Cause::forbidden(&path.child("default"), &format!("must not be set {reason}")));
    }
    for (field, name) in [
        ("id", "id"),
        ("additionalItems", "additionalItems"),
        ("patternProperties", "patternProperties"),
        ("definitions", "definitions"),
        ("dependencies", "dependencies"),
        ("$ref", "$ref"),
    ] {
        if said(schema, field).is_some_and(|value| value.as_object().is_none_or(|o| !o.is_empty())) {
            causes.push(Cause::forbidden(&path.child(name), &format!("{name} is not supported")));
        }
    }
    if ty == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        causes.push(Cause::forbidden(&path.child("type"), detail));
    }
    if schema["items"].is_array() {
        let detail = "items must be a schema object and not an array";
        causes.push(Cause::forbidden(&path.child("items"), detail));
    }
    if place.meta && schema["x-kubernetes-embedded-resource"] == true {
        let at = path.child("x-kubernetes-embedded-resource");
        causes.push(Cause::forbidden(&at, "must not be used inside of resource meta"));
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == false {
        let at = path.child("x-kubernetes-preserve-unknown-fields");
        causes.push(Cause::invalid(&at, &json!(false), "must be true or undefined"));
    }
}

fn check_list_and_map_types(schema: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let ty = text(schema, "type");
    let type_at = path.child("type");
    let mistyped = |wanted: &str, keyword: &str| {
        let detail = format!("must be {wanted} if {keyword} is specified");
        if ty.is_empty() {
            Cause::required(&type_at, &detail)
        } else {
            Cause::invalid_text(&type_at, ty, &detail)
        }
    };
    if let Some(map_type) = said(schema, "x-kubernetes-map-type") {
        if ty != "object" {
            causes.push(mistyped("object", "x-kubernetes-map-type"));
        }
        if *map_type != "atomic" && *map_type != "granular" {
            let accepted = ["atomic".to_owned(), "granular".to_owned()];
            causes.push(Cause::not_supported(&path.child("x-kubernetes-map-type"), map_type, &accepted));
        }
    }
    let list_at = path.child("x-kubernetes-list-type");
    let keys = schema["x-kubernetes-list-map-keys"].as_array().map(Vec::as_slice).unwrap_or_default();
    let list_type = said(schema, "x-kubernetes-list-type");
    if let Some(list_type) = list_type {
        if ty != "array" {
            causes.push(mistyped("array", "x-kubernetes-list-type"));
        } else if *list_type == "set" {
            check_set_items(&schema["items"], &path.child("items"), causes);
        }
        if *list_type != "atomic" && *list_type != "set" && *list_type != "map" {
            let accepted = ["atomic".to_owned(), "set".to_owned(), "map".to_owned()];
            causes.push(Cause::not_supported(&list_at, list_type, &accepted));
        }
    }
    if !keys.is_empty() {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        match list_type {
            None => causes.push(Cause::required(&list_at, detail)),
            Some(other) if *other != "map" => causes.push(Cause::invalid(&list_at, other, detail)),
            Some(_) => {}
        }
    }
    if list_type.is_some_and(|t| *t == "map") {
        check_keyed_list(schema, keys, path, causes);
    }
    if list_type.is_some_and(|t| *t == "map" || *t == "set") {
        check_items_present(schema, keys, path, causes);
    }
}

fn check_set_items(items: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let list_type = said(items, "x-kubernetes-list-type").unwrap_or(&Value::Null);
    match text(items, "type") {
        "array" if !list_type.is_null() && *list_type != "atomic" => {
            causes.push(Cause::invalid(&path.child("x-kubernetes-list-type"), list_type, detail));
        }
        "object" if items["x-kubernetes-map-type"] != "atomic" => {
            causes.push(Cause::invalid(&path.child("x-kubernetes-map-type"), list_type, detail));
        }
        _ => {}
    }
}

fn check_keyed_list(schema: &Value, keys: &[Value], path: &Path<'_>, causes: &mut Vec<Cause>) {
    let keys_at = path.child("x-kubernetes-list-map-keys");
    if keys.is_empty() {
        causes.push(Cause::required(&keys_at, "must not be empty if x-kubernetes-list-type is map"));
    }
    let items_at = path.child("items");
    let Some(items) = said(schema, "items") else {
        causes.push(Cause::required(&items_at, "must have a schema if x-kubernetes-list-type is map"));
        return;
    };
    if text(items, "type") != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        causes.push(Cause::invalid_text(&items_at.child("type"), text(items, "type"), detail));
        return;
    }
    for (index, key) in keys.iter().enumerate() {
        let name = key.as_str().unwrap_or_default();
        match items["properties"].get(name) {
            Some(property) if ["array", "object"].contains(&text(property, "type")) => {
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                let at = items_at.child("properties");
                causes.push(Cause::invalid_text(&at.key(name).child("type"), text(items, "type"), detail));
            }
            Some(_) => {}
            None => {
                let detail = "entries must all be names of item properties";
                causes.push(Cause::invalid(&keys_at, &json!(keys), detail));
            }
        }
        if keys[..index].contains(key) {
            causes.push(Cause::invalid(&keys_at, &json!(keys), "must not contain duplicate entries"));
        }
    }
}

/// Items of sets and keyed lists are never null, and every key has a value.
fn check_items_present(schema: &Value, keys: &[Value], path: &Path<'_>, causes: &mut Vec<Cause>) {
    let Some(items) = said(schema, "items").filter(|i| i.is_object()) else { return };
    let list_type = text(schema, "x-kubernetes-list-type");
    let at = path.child("items");
    if items["nullable"] == true {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        causes.push(Cause::forbidden(&at.child("nullable"), &detail));
    }
    if list_type != "map" {
        return;
    }
    let required = items["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    let properties = at.child("properties");
    for key in keys {
        let name = key.as_str().unwrap_or_default();
        let Some(property) = items["properties"].get(name) else { continue };
        if !required.contains(key) && said(property, "default").is_none() {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            causes.push(Cause::required(&properties.key(name).child("default"), detail));
        }
        if property["nullable"] == true {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            causes.push(Cause::forbidden(&properties.key(name).child("nullable"), detail));
        }
    }
}

fn rules(schema: &Value) -> impl Iterator<Item = (usize, &Value)> {
    schema["x-kubernetes-validations"].as_array().into_iter().flatten().enumerate()
}

/// What a rule says beside its expressions.
fn check_rule_fields(schema: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    const REASONS: [&str; 4] =
        ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    let list = path.child("x-kubernetes-validations");
    let breaks = |text: &str| text.contains(['\n', '\r']);
    for (index, rule) in rules(schema) {
        let at = list.index(index);
        let (expression, message) = (text(rule, "rule").trim(), text(rule, "message"));
        if expression.is_empty() {
            causes.push(Cause::required(&at.child("rule"), "rule is not specified"));
        } else if !message.is_empty() && message.trim().is_empty() {
            let detail = "must be non-empty if specified";
            causes.push(Cause::invalid_text(&at.child("message"), message, detail));
        } else if breaks(message.trim()) {
            causes.push(Cause::invalid_text(&at.child("message"), message, "must not contain line breaks"));
        } else if breaks(expression) && message.trim().is_empty() {
            let detail = "message must be specified if rule contains line breaks";
            causes.push(Cause::required(&at.child("message"), detail));
        }
        let message_expression = text(rule, "messageExpression");
        if !message_expression.is_empty() && message_expression.trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            causes.push(Cause::required(&at.child("messageExpression"), detail));
        }
        if let Some(reason) = said(rule, "reason")
            && !REASONS.iter().any(|known| reason == known)
        {
            causes.push(Cause::not_supported(&at.child("reason"), reason, &REASONS.map(str::to_owned)));
        }
        let field_path = text(rule, "fieldPath");
        let field_at = at.child("fieldPath");
        if !field_path.is_empty() && field_path.trim().is_empty() {
            causes.push(Cause::invalid_text(&field_at, field_path, "must be non-empty if specified"));
        }
        if breaks(field_path) {
            causes.push(Cause::invalid_text(&field_at, field_path, "must not contain line breaks"));
        }
        if !field_path.is_empty()
            && Schema::compile_without_rules(schema).is_ok_and(|node| node.follow_any(field_path).is_err())
        {
            causes.push(Cause::invalid_text(&field_at, field_path, "must be a valid path"));
        }
    }
}

fn check_rules(schema: &Value, path: &Path<'_>, place: &Place, root: bool, causes: &mut Vec<Cause>) {
    if rules(schema).next().is_none() {
        return;
    }
    let Ok(node) = Schema::compile_without_rules(schema) else { return };
    let resource = root || schema["x-kubernetes-embedded-resource"] == true;
    let list = path.child("x-kubernetes-validations");
    for (index, rule) in rules(schema) {
        let at = list.index(index);
        let problems = node.rule_problems(rule, resource);
        if let Some(problem) = problems.rule {
            causes.push(Cause::invalid_shown(&at.child("rule"), &internal::rule(rule), &problem));
        }
        if let Some(problem) = problems.message_expression {
            causes.push(Cause::invalid_shown(
                &at.child("messageExpression"),
                &internal::rule(rule),
                &problem,
            ));
        }
        if problems.uses_old_self {
            if let Some(around) = &place.uncorrelated {
                let detail = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {around}"
                );
                causes.push(Cause::invalid_text(&at.child("rule"), text(rule, "rule"), &detail));
            }
        } else if let Some(optional) = said(rule, "optionalOldSelf") {
            let detail = "may not be set if oldSelf is not used in rule";
            causes.push(Cause::invalid(&at.child("optionalOldSelf"), optional, detail));
        }
    }
}
