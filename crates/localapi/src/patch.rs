//! The two supported kinds of patch: JSON merge patch (RFC 7396) and JSON patch (RFC 6902), both by the
//! `json-patch` crate.

use json_patch::{AddOperation, PatchOperation};
use serde::Deserialize;
use serde_json::Value;

use crate::json;
use crate::status::Status;

const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json-patch+json";

/// A change of the present state.
#[derive(Clone, Debug)]
pub(crate) enum Patch {
    /// JSON merge patch.
    Merge(Value),
    /// JSON patch.
    Json(json_patch::Patch),
}

impl Patch {
    /// Reads a patch of the given media type.
    pub(crate) fn parse(media: &str, body: &[u8]) -> Result<Self, Status> {
        let bad = |problem: String| Status::bad_request(format!("error decoding patch: {problem}"));
        if media != MERGE && media != JSON {
            return Err(Status::unsupported_media_type(&[JSON, MERGE]));
        }
        let patch = json::read(body).map_err(bad)?;
        match patch {
            Value::Array(_) if media == JSON => {
                json_patch::Patch::deserialize(patch).map(Self::Json).map_err(|error| {
                    Status::unprocessable(format!("the patch has an operation that is none: {error}"))
                })
            }
            Value::Object(_) if media == MERGE => Ok(Self::Merge(patch)),
            _ if media == JSON => Err(bad("it is no list of operations".to_owned())),
            _ => Err(bad("it is no JSON object".to_owned())),
        }
    }

    /// The patched value.
    pub(crate) fn apply(&self, value: &Value) -> Result<Value, Status> {
        let mut patched = value.clone();
        match self {
            Self::Merge(patch) => json_patch::merge(&mut patched, patch),
            Self::Json(patch) => {
                for operation in &patch.0 {
                    apply_one(operation, &mut patched).map_err(|error| {
                        Status::unprocessable(format!("the patch does not fit the object: {error}"))
                    })?;
                }
            }
        }
        Ok(patched)
    }
}

/// Applies one operation. Kubernetes reads two of them more leniently than the RFC and the crate, and clients
/// rely on it: a missing field passes a test for `null`, and `replace` sets it.
fn apply_one(operation: &PatchOperation, value: &mut Value) -> Result<(), json_patch::PatchError> {
    let missing = |path: &str| {
        let holder = path.rsplit_once('/').and_then(|(holder, _)| value.pointer(holder));
        holder.is_some_and(Value::is_object) && value.pointer(path).is_none()
    };
    let operation = match operation {
        PatchOperation::Test(test) if test.value.is_null() && missing(test.path.as_str()) => return Ok(()),
        PatchOperation::Replace(replace) if missing(replace.path.as_str()) => {
            let (path, value) = (replace.path.clone(), replace.value.clone());
            PatchOperation::Add(AddOperation { path, value })
        }
        other => other.clone(),
    };
    json_patch::patch_unsafe(value, &[operation])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn both_kinds_change_what_they_name() {
        let object = json!({"a": {"b": 1, "c": [1, 2]}, "d": "x"});
        let merge =
            Patch::parse(MERGE, br#"{"a": {"b": null, "c": [3]}, "e": {"f": null, "g": 1}}"#).unwrap();
        assert_eq!(merge.apply(&object).unwrap(), json!({"a": {"c": [3]}, "d": "x", "e": {"g": 1}}));
        let operations =
            br#"[{"op": "test", "path": "/d", "value": "x"}, {"op": "add", "path": "/a/c/-", "value": 3},
            {"op": "test", "path": "/none", "value": null}, {"op": "replace", "path": "/none", "value": 1},
            {"op": "remove", "path": "/d"}]"#;
        let patched = Patch::parse(JSON, operations).unwrap().apply(&object).unwrap();
        assert_eq!(patched, json!({"a": {"b": 1, "c": [1, 2, 3]}, "none": 1}));
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        assert_eq!(Patch::parse("application/strategic-merge-patch+json", b"{}").unwrap_err().code, 415);
        for (media, body) in [(MERGE, "[]"), (MERGE, "{"), (JSON, "{}")] {
            assert_eq!(Patch::parse(media, body.as_bytes()).unwrap_err().code, 400, "{body}");
        }
        assert_eq!(Patch::parse(JSON, br#"[{"op": "odd", "path": "/a"}]"#).unwrap_err().code, 422);
        for body in [r#"[{"op": "test", "path": "/a", "value": 2}]"#, r#"[{"op": "remove", "path": "/b"}]"#] {
            let patch = Patch::parse(JSON, body.as_bytes()).unwrap();
            assert_eq!(patch.apply(&json!({"a": 1})).unwrap_err().code, 422, "{body}");
        }
    }

    /// `fixtures/patches.json` records how a real kube-apiserver 1.35.4 applied patches.
    #[test]
    fn every_recorded_patch_is_applied_alike() {
        let recorded: Vec<Value> = serde_json::from_str(include_str!("../fixtures/patches.json")).unwrap();
        let mut different = Vec::new();
        for case in recorded {
            let media = if case["type"] == "merge" { MERGE } else { JSON };
            let patch = Patch::parse(media, case["patch"].to_string().as_bytes());
            let patched = patch.and_then(|patch| patch.apply(&case["target"]));
            let (code, result) = match &patched {
                Ok(value) => (200, value),
                Err(status) => (status.code.as_u16(), &Value::Null),
            };
            if case["code"] != code || (code == 200 && case["result"] != *result) {
                different.push(format!(
                    "{}: {} {}, not {code} {result}",
                    case["patch"], case["code"], case["result"]
                ));
            }
        }
        assert!(different.is_empty(), "{}", different.join("\n"));
    }

    proptest! {
        #[test]
        fn no_patch_panics(object in crate::schema::proptests::any_json(), patch in crate::schema::proptests::any_json()) {
            for media in [MERGE, JSON] {
                if let Ok(patch) = Patch::parse(media, patch.to_string().as_bytes()) {
                    let _ = patch.apply(&object);
                }
            }
        }
    }
}
