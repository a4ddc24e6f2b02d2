//! The `scale` subresource: replicas of any kind that has them, as one kind.

use serde_json::{Value, json};

use crate::meta;
use crate::patch::Patch;
use crate::registry::{Resource, ScalePaths};
use crate::schema::{Cause, Path};
use crate::status::{Grouped, Status};
use crate::store::Object;
use crate::write::{Verdict, Writer};

/// A requested scale.
#[derive(Clone, Debug)]
pub(crate) enum ScaleChange {
    /// This one.
    Replace(Value),
    /// The present one with this patch.
    Patch(Patch),
}

fn at<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    look(value, path).ok().flatten()
}

/// The value at a path; the error is a value on the way that is no object.
fn look<'v>(value: &'v Value, path: &str) -> Result<Option<&'v Value>, &'v Value> {
    let mut found = value;
    for name in path.trim_start_matches('.').split('.') {
        match found {
            Value::Object(fields) if fields.contains_key(name) => found = &fields[name],
            Value::Object(_) | Value::Null => return Ok(None),
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

/// The labels of a selector, as text.
fn selector_text(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let terms: Vec<String> =
        labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    terms.join(",")
}

/// Why the replicas of a custom resource are refused.
pub(crate) fn validate(paths: &ScalePaths, value: &Value, status_only: bool) -> Vec<Cause> {
    let wanted = (!status_only).then_some(&paths.spec_replicas);
    let mut causes = Vec::new();
    for path in wanted.into_iter().chain([&paths.status_replicas]) {
        let (number, unread) = match look(value, path) {
            Ok(None) => continue,
            Ok(Some(found)) => match found.as_i64() {
                Some(number) => (number, None),
                None => (0, Some((found, "int64"))),
            },
            Err(found) => (0, Some((found, "map[string]interface{}"))),
        };
        let problem = if let Some((found, expected)) = unread {
            let (text, ty) = shown(found);
            format!("{path} accessor error: {text} is of the type {ty}, expected {expected}")
        } else if number < 0 {
            "should be a non-negative integer".to_owned()
        } else if number > i64::from(i32::MAX) {
            format!("should be less than or equal to {}", i32::MAX)
        } else {
            continue;
        };
        causes.push(Cause::invalid(&Path::Text(path), &json!(number), &problem));
    }
    causes
}

/// A value and its type in the form for messages.
fn shown(value: &Value) -> (String, &'static str) {
    let ty = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    (value.as_str().map_or_else(|| value.to_string(), str::to_owned), ty)
}

impl Writer<'_> {
    /// Decides the new state of an object to scale.
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
            ScaleChange::Patch(patch) => patch.apply(&old)?,
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
    let problem = format!("spec.replicas is {found}, not a whole number");
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
