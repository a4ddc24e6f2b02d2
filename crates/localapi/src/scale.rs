//! The `scale` subresource: replicas of any kind that has them, as one kind.

use serde_json::{Value, json};

use crate::meta;
use crate::registry::{Resource, ScalePaths};
use crate::schema::{Cause, Path};
use crate::status::{Grouped, Status};
use crate::store::Object;
use crate::write::{Patch, Verdict, Writer};

/// A wanted scale.
#[derive(Clone, Debug)]
pub(crate) enum ScaleChange {
    /// This one.
    Replace(Value),
    /// The present one, changed like this.
    Patch(Patch),
}

fn at<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    look(value, path).ok().flatten()
}

/// What a path leads to; the error says which value on the way is no object.
fn look<'v>(value: &'v Value, path: &str) -> Result<Option<&'v Value>, &'v Value> {
    let mut found = value;
    for name in path.trim_start_matches('.').split('.') {
        match found {
            Value::Object(fields) => match fields.get(name) {
                Some(next) => found = next,
                None => return Ok(None),
            },
            Value::Null => return Ok(None),
            other => return Err(other),
        }
    }
    Ok((!found.is_null()).then_some(found))
}

/// The scale of an object.
pub(crate) fn scale_of(resource: &Resource, value: &Value) -> Result<Value, Status> {
    let Some(paths) = &resource.scale else {
        return Err(Status::not_found(resource.grouped(), meta::text(value, "name")));
    };
    let replicas = |path: &str| at(value, path).and_then(Value::as_i64);
    let Some(wanted) = replicas(&paths.spec_replicas) else {
        let path = crate::status::quote(&paths.spec_replicas);
        return Err(Status::internal(&format!("the spec replicas field {path} does not exist")));
    };
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(found) = value["metadata"].get(field) {
            metadata[field] = found.clone();
        }
    }
    let mut status = json!({"replicas": replicas(&paths.status_replicas).unwrap_or(0)});
    let selector = match &paths.selector {
        path if !path.is_empty() => at(value, path).and_then(Value::as_str).unwrap_or_default().to_owned(),
        _ => selector_text(&value["spec"]["selector"]),
    };
    if !selector.is_empty() {
        status["selector"] = json!(selector);
    }
    let spec = if wanted == 0 { json!({}) } else { json!({"replicas": wanted}) };
    Ok(
        json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}),
    )
}

/// A label selector as text.
fn selector_text(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let mut terms: Vec<String> =
        labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        let values = expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let mut values: Vec<&str> = values.collect();
        values.sort_unstable();
        let values = values.join(",");
        terms.push(match expression["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    terms.sort();
    terms.join(",")
}

/// Causes for which the replicas of a custom resource are refused.
pub(crate) fn validate(paths: &ScalePaths, value: &Value, status_only: bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut check = |path: &str| {
        let accessor = |found: &Value, expected: &str| {
            format!(
                "{path} accessor error: {} is of the type {}, expected {expected}",
                go_text(found),
                go_type(found)
            )
        };
        let number = match look(value, path) {
            Ok(None) => return,
            Ok(Some(number)) => number,
            Err(found) => {
                let problem = accessor(found, "map[string]interface{}");
                causes.push(Cause::invalid(&Path::Text(path), &json!(0), &problem));
                return;
            }
        };
        let problem = match number.as_i64() {
            None => accessor(number, "int64"),
            Some(number) if number < 0 => "should be a non-negative integer".to_owned(),
            Some(number) if number > i64::from(i32::MAX) => {
                format!("should be less than or equal to {}", i32::MAX)
            }
            Some(_) => return,
        };
        let shown = number.as_i64().unwrap_or(0);
        causes.push(Cause::invalid(&Path::Text(path), &json!(shown), &problem));
    };
    if !status_only {
        check(&paths.spec_replicas);
    }
    check(&paths.status_replicas);
    causes
}

/// A value as Go's `%v` prints it.
fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(go_text).collect::<Vec<_>>().join(" "))
        }
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{name}:{}", go_text(value)));
            format!("map[{}]", fields.collect::<Vec<_>>().join(" "))
        }
        other => other.to_string(),
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

impl Writer<'_> {
    /// Decides what becomes of an object that is to be scaled.
    pub(crate) fn rescale(
        &self,
        existing: &Object,
        change: &ScaleChange,
        warnings: &mut Vec<String>,
    ) -> Result<Verdict, Status> {
        let Some(paths) = &self.resource.scale else {
            return Err(Status::not_found(self.resource.grouped(), existing.key.name()));
        };
        let mut value = crate::present::value(self.resource, existing).into_owned();
        let old = scale_of(self.resource, &value).unwrap_or_else(|_| {
            json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": value["metadata"], "spec": {}})
        });
        let scale = match change {
            ScaleChange::Replace(scale) => scale.clone(),
            ScaleChange::Patch(patch) => patch.apply("Scale", &old)?,
        };
        let name = existing.key.name();
        let given = meta::text(&scale, "name");
        if given != name {
            return Err(Status::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({name})"
            )));
        }
        let builtin = self.resource.builtin().is_some();
        let replicas = match &scale["spec"]["replicas"] {
            Value::Null if !builtin && scale_of(self.resource, &value).is_err() => {
                let path = crate::status::quote(&paths.spec_replicas);
                return Err(Status::bad_request(format!("the spec replicas field {path} cannot be empty")));
            }
            Value::Null => 0,
            number => number.as_i64().ok_or_else(|| mistyped(change, &scale, number))?,
        };
        if builtin && replicas < 0 {
            let detail = "must be greater than or equal to 0";
            let cause = Cause::invalid(&Path::Text("spec.replicas"), &json!(replicas), detail);
            let kind = Grouped { group: "autoscaling", name: "Scale" };
            return Err(Status::invalid(kind, name, &[cause]));
        }
        let uid = meta::text(&scale, "uid");
        if !uid.is_empty() && uid != existing.uid() {
            let why = format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                existing.uid()
            );
            return Err(Status::conflict(self.resource.grouped(), name, &why));
        }
        put(&mut value, &paths.spec_replicas, json!(replicas));
        let version = meta::text(&scale, "resourceVersion").to_owned();
        if !version.is_empty() {
            meta::set(&mut value, "resourceVersion", json!(version));
        }
        self.judge(existing, value, crate::write::Part::Whole, warnings)
    }
}

/// The refusal of replicas that are no number.
fn mistyped(change: &ScaleChange, scale: &Value, found: &Value) -> Status {
    let problem = format!(
        "json: cannot unmarshal {} into Go struct field ScaleSpec.spec.replicas of type int32",
        crate::json::word(found)
    );
    match change {
        ScaleChange::Replace(_) => {
            Status::bad_request(format!("Scale in version \"v1\" cannot be handled as a Scale: {problem}"))
        }
        ScaleChange::Patch(_) => crate::write::unfit_patch(scale, &problem),
    }
}

fn put(value: &mut Value, path: &str, new: Value) {
    let mut at = value;
    for name in path.trim_start_matches('.').split('.') {
        let Value::Object(fields) = at else { return };
        at = fields.entry(name).or_insert_with(|| json!({}));
    }
    *at = new;
}
