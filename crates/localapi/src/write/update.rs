//! Replacing and patching an object or its status.

use http::StatusCode;
use serde_json::{Value, json};

use super::{Outcome, Writer, Written, dedupe_owners, settle_namespace};
use crate::decode::{self, Shaped, Strictness, strict_error};
use crate::names::NameRule;
use crate::patch::Patch;
use crate::registry::Nature;
use crate::scale::ScaleChange;
use crate::schema::{Cause, Path};
use crate::status::{Grouped, MODIFIED, Status};
use crate::store::{Key, Object};
use crate::{kinds, meta, names};

/// The part of an object that a request may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// All but the status, if that is a subresource.
    Whole,
    /// The status.
    Status,
}

/// The change of a request.
#[derive(Debug)]
pub(crate) enum Change {
    /// Replace the object by this.
    Replace(Shaped),
    /// Apply this patch to the object.
    Patch(Patch),
    /// Change the number of replicas.
    Scale(ScaleChange),
}

/// The decision about an object.
pub(crate) enum Verdict {
    /// Nothing changes.
    Same,
    /// Store this.
    Put(Value),
    /// Delete it: a deletion only waited for the last finalizer. The answer shows this.
    Delete(Value),
}

impl Writer<'_> {
    /// Changes the object `name`, or creates it if the kind allows that.
    pub(crate) async fn update(
        &self,
        namespace: &str,
        name: &str,
        part: Part,
        change: &Change,
    ) -> Result<Written, Status> {
        let namespace = if self.resource.namespaced { namespace } else { "" };
        let mut replacement = None;
        if let Change::Replace(shaped) = change {
            let mut shaped = shaped.clone();
            if self.options.strictness == Strictness::Strict && !shaped.complaints.is_empty() {
                let problem = strict_error(&shaped.complaints);
                return Err(Status::bad_request(decode::cannot_handle(self.resource, &problem)));
            }
            settle_namespace(namespace, &mut shaped.value)?;
            check_name(&shaped.value, name)?;
            replacement = Some(shaped);
        }
        let key = Key::new(namespace, name);
        loop {
            let latest = self.core.store.latest(&self.resource.collection, &key);
            let Some(existing) = latest.object else {
                let creates = part == Part::Whole
                    && self.resource.builtin().is_some_and(|builtin| builtin.traits.create_on_update);
                let shaped = replacement.as_ref();
                let warnings = self.complaints(shaped.map_or(&[], |shaped| &shaped.complaints));
                let status = match shaped {
                    Some(shaped) if creates => {
                        let uid = meta::text(&shaped.value, "uid");
                        if uid.is_empty() {
                            let mut value = shaped.value.clone();
                            // A request without a UID means any object of the name and version, even none. A
                            // dry run shows it nevertheless.
                            if !self.options.dry_run {
                                meta::remove(&mut value, "resourceVersion");
                            }
                            return self.create_named(namespace, value, warnings).await;
                        }
                        // A client that still knows a deleted object does not bring it back.
                        Status::conflict(self.resource.grouped(), name, &other_uid(uid, ""))
                    }
                    _ => Status::not_found(self.resource.grouped(), name),
                };
                return Err(self.refuse(latest.settled_at, status.with_warnings(warnings)).await);
            };
            let mut warnings = Vec::new();
            let verdict = match (&replacement, change) {
                (Some(shaped), _) => {
                    warnings.extend(self.complaints(&shaped.complaints));
                    self.replace(&existing, &shaped.value, part, &mut warnings)
                }
                (None, Change::Patch(patch)) => self.patch(&existing, patch, part, &mut warnings),
                (None, Change::Scale(scale)) => self.rescale(&existing, scale, &mut warnings),
                (None, Change::Replace(_)) => Err(Status::internal("a replacement without an object")),
            };
            let verdict = match verdict {
                Ok(verdict) => verdict,
                Err(status) => {
                    return Err(self.refuse(latest.settled_at, status.with_warnings(warnings)).await);
                }
            };
            let written = |outcome| Written { code: StatusCode::OK, outcome, warnings };
            let (value, delete) = match verdict {
                Verdict::Same => {
                    self.core.store.settled(latest.settled_at).await.map_err(|e| super::not_stored(&e))?;
                    return Ok(written(Outcome::Stored(existing)));
                }
                Verdict::Put(value) => (value, false),
                Verdict::Delete(value) => (value, true),
            };
            if self.options.dry_run {
                return Ok(written(Outcome::Unstored(value)));
            }
            // A deletion records the last stored state.
            let draft = if delete { existing.value.clone() } else { self.to_stored(value.clone()) };
            if let Some(event) = self.commit(&key, Some(existing.version), draft, delete, Vec::new()).await? {
                return Ok(written(if delete {
                    Outcome::Unstored(value)
                } else {
                    Outcome::Stored(event.object.clone())
                }));
            }
        }
    }

    fn complaints(&self, complaints: &[String]) -> Vec<String> {
        if self.options.strictness == Strictness::Warn { complaints.to_vec() } else { Vec::new() }
    }

    fn replace(
        &self,
        existing: &Object,
        value: &Value,
        part: Part,
        warnings: &mut Vec<String>,
    ) -> Result<Verdict, Status> {
        let uid = meta::text(value, "uid");
        if !uid.is_empty() && uid != existing.uid() {
            return Err(Status::conflict(
                self.resource.grouped(),
                existing.key.name(),
                &other_uid(uid, existing.uid()),
            ));
        }
        self.judge(existing, value.clone(), part, warnings)
    }

    fn patch(
        &self,
        existing: &Object,
        patch: &Patch,
        part: Part,
        warnings: &mut Vec<String>,
    ) -> Result<Verdict, Status> {
        let patched = patch.apply(&self.shown(existing))?;
        let refuse = |problem: &str| unfit_patch(&patched, problem);
        if !patched.is_object() {
            return Err(refuse("it would be no object any more"));
        }
        let Shaped { mut value, complaints } =
            decode::shape(self.resource, patched.clone()).map_err(|problem| refuse(&problem))?;
        match self.options.strictness {
            Strictness::Strict if !complaints.is_empty() => return Err(refuse(&strict_error(&complaints))),
            Strictness::Warn => warnings.extend(complaints),
            Strictness::Strict | Strictness::Ignore => {}
        }
        settle_namespace(existing.key.namespace(), &mut value)?;
        check_name(&value, existing.key.name())?;
        self.judge(existing, value, part, warnings)
    }

    /// Decides about an object that should become `value`.
    pub(crate) fn judge(
        &self,
        existing: &Object,
        mut value: Value,
        part: Part,
        warnings: &mut Vec<String>,
    ) -> Result<Verdict, Status> {
        let old = self.shown(existing);
        warnings.extend(dedupe_owners(&mut value));
        self.check_version(existing, &value)?;
        meta::set(&mut value, "resourceVersion", json!(existing.version.to_string()));
        meta::copy(&mut value, &old, "generation");
        self.prepare_update(&mut value, &old, part);
        keep_system_fields(&mut value, &old);
        let causes = self.update_causes(&value, &old, part);
        if !causes.is_empty() {
            return Err(self.invalid(&value, &causes));
        }
        warnings.extend(self.content_warnings(&value, Some(&old)));
        if self.may_go(&value, &old) {
            return Ok(Verdict::Delete(value));
        }
        if value == old && crate::present::is_as_stored(self.resource, existing) {
            return Ok(Verdict::Same);
        }
        Ok(Verdict::Put(value))
    }

    fn check_version(&self, existing: &Object, value: &Value) -> Result<(), Status> {
        let given = meta::text(value, "resourceVersion");
        let version: u64 = if given.is_empty() {
            0
        } else {
            given.parse().map_err(|_| crate::list::uncaught_version(given))?
        };
        let conditional = self.resource.builtin().is_none_or(|builtin| builtin.traits.conditional_update);
        let resource = self.resource.grouped();
        if version == 0 && conditional {
            let path = Path::Text("metadata.resourceVersion");
            let cause = Cause::invalid_shown(&path, "0", "must be specified for an update");
            return Err(Status::invalid(resource, existing.key.name(), &[cause]));
        }
        if version != 0 && version != existing.version {
            return Err(Status::conflict(resource, existing.key.name(), MODIFIED));
        }
        Ok(())
    }

    fn prepare_update(&self, value: &mut Value, old: &Value, part: Part) {
        match (&self.resource.nature, part) {
            (Nature::Builtin(builtin), Part::Whole) => {
                kinds::prepare_update(builtin, value, old);
                if builtin.kind == "CustomResourceDefinition" {
                    self.core.prepare_definition(value, Some(old));
                }
            }
            (Nature::Builtin(builtin), Part::Status) => {
                kinds::prepare_status_update(builtin, value, old);
            }
            (Nature::Custom(_), Part::Status) => {
                let mut next = old.clone();
                if let Value::Object(fields) = &mut next {
                    match value.get("status") {
                        Some(status) => fields.insert("status".to_owned(), status.clone()),
                        None => fields.remove("status"),
                    };
                }
                *value = next;
            }
            (Nature::Custom(_), Part::Whole) => {
                if self.resource.status
                    && let Value::Object(fields) = &mut *value
                {
                    match old.get("status") {
                        Some(status) => fields.insert("status".to_owned(), status.clone()),
                        None => fields.remove("status"),
                    };
                }
                if !same_but_metadata(value, old) {
                    meta::set(value, "generation", json!(meta::generation(old) + 1));
                }
            }
        }
    }

    fn update_causes(&self, value: &Value, old: &Value, part: Part) -> Vec<Cause> {
        let mut causes = Vec::new();
        let path = Path::Text("metadata");
        let (new_meta, old_meta) = (&value["metadata"], &old["metadata"]);
        names::validate_create(new_meta, NameRule::PathSegment, self.resource.namespaced, &path, &mut causes);
        names::validate_update(new_meta, old_meta, &path, &mut causes);
        if self.resource.custom().is_some() {
            let wrong = self.type_causes(value);
            if !wrong.is_empty() {
                causes.extend(wrong);
                return causes;
            }
        }
        // The kind's own rules check the metadata once more.
        names::validate_update(new_meta, old_meta, &path, &mut causes);
        self.kind_causes(value, Some(old), part, &mut causes);
        causes
    }

    /// Whether a deletion only waited for this change.
    fn may_go(&self, value: &Value, old: &Value) -> bool {
        let grace = old["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
        let holds = self.resource.kind == "Namespace"
            && self.resource.group.is_empty()
            && value["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
        meta::is_terminating(old) && grace == 0 && meta::finalizers(value).is_empty() && !holds
    }
}

/// Why a write to an object of another uid conflicts.
fn other_uid(given: &str, present: &str) -> String {
    format!("Precondition failed: UID in precondition: {given}, UID in object meta: {present}")
}

/// 422 about a patch whose result is no object of the kind.
pub(crate) fn unfit_patch(patched: &Value, problem: &str) -> Status {
    let cause = Cause::invalid_text(&Path::Text("patch"), &patched.to_string(), problem);
    Status::invalid(Grouped { group: "", name: "" }, "", &[cause])
}

fn check_name(value: &Value, name: &str) -> Result<(), Status> {
    let given = meta::text(value, "name");
    if given == name {
        return Ok(());
    }
    if given.is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    Err(Status::bad_request(format!(
        "the name of the object ({given}) does not match the name on the URL ({name})"
    )))
}

/// Reverts what no update may change.
fn keep_system_fields(value: &mut Value, old: &Value) {
    if meta::text(value, "uid").is_empty() {
        meta::copy(value, old, "uid");
    }
    meta::copy(value, old, "creationTimestamp");
    if meta::is_terminating(old) {
        meta::copy(value, old, "deletionTimestamp");
    }
    let grace = "deletionGracePeriodSeconds";
    if !old["metadata"][grace].is_null() && value["metadata"][grace].is_null() {
        meta::copy(value, old, grace);
    }
}

fn same_but_metadata(one: &Value, other: &Value) -> bool {
    let fields = |value: &Value| {
        let fields = value.as_object().into_iter().flatten();
        fields
            .filter(|(name, _)| *name != "metadata")
            .map(|(n, v)| (n.clone(), v.clone()))
            .collect::<Vec<_>>()
    };
    fields(one) == fields(other)
}
