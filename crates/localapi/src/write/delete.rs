//! Deleting one object or many: preconditions, grace, finalizers, dependents.

use futures::StreamExt;
use http::StatusCode;
use serde_json::{Value, json};

use super::{Outcome, Writer, Written, dry_run};
use crate::definitions;
use crate::list::{ListOptions, Page, Selection, list};
use crate::meta;
use crate::registry::Resource;
use crate::request::Query;
use crate::schema::{Cause, Path};
use crate::status::{Grouped, Status};
use crate::store::{Key, Object};

/// What happens to the objects that an object owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// They are deleted after it.
    Background,
    /// They are deleted before it.
    Foreground,
    /// They stay without an owner.
    Orphan,
}

/// The finalizer that keeps an object until its dependents are gone.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer that keeps an object until its dependents have no owner.
pub(crate) const ORPHAN: &str = "orphan";

/// How many deletions of one collection are in progress at once, so that they share commits.
const AT_ONCE: usize = 64;

/// The options of a deletion.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) dry_run: bool,
    pub(crate) grace_seconds: Option<i64>,
    pub(crate) propagation: Option<Propagation>,
    /// The older form: dependents stay.
    pub(crate) orphan: Option<bool>,
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
}

impl DeleteOptions {
    /// Reads them from a body, or without one from the parameters.
    pub(crate) fn parse(query: &Query, body: &[u8]) -> Result<Self, Status> {
        let given: Value = if body.is_empty() { Value::Null } else { decode_options(body)? };
        let (grace_seconds, orphan, policy, dry) = if given.is_null() {
            (
                query.number("gracePeriodSeconds")?,
                query.tristate("orphanDependents"),
                query.text("propagationPolicy").to_owned(),
                query.all("dryRun").into_iter().map(str::to_owned).collect(),
            )
        } else {
            let dry = given["dryRun"].as_array().into_iter().flatten();
            (
                typed(&given, "gracePeriodSeconds", "a whole number", Value::as_i64)?,
                typed(&given, "orphanDependents", "true or false", Value::as_bool)?,
                typed(&given, "propagationPolicy", "a text", |value| value.as_str().map(str::to_owned))?
                    .unwrap_or_default(),
                dry.map(|value| value.as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>(),
            )
        };
        let mut causes = Vec::new();
        if orphan.is_some() && !policy.is_empty() {
            causes.push(Cause::invalid_text(
                &Path::Text("propagationPolicy"),
                &policy,
                "orphanDependents and deletionPropagation cannot be both set",
            ));
        }
        let propagation = match policy.as_str() {
            "" => None,
            "Background" => Some(Propagation::Background),
            "Foreground" => Some(Propagation::Foreground),
            "Orphan" => Some(Propagation::Orphan),
            other => {
                let supported = ["Foreground", "Background", "Orphan", "nil"].map(str::to_owned);
                causes.push(Cause::not_supported(
                    &Path::Text("propagationPolicy"),
                    &json!(other),
                    &supported,
                ));
                None
            }
        };
        let dry_run = dry_run(&dry.iter().map(String::as_str).collect::<Vec<_>>(), &mut causes);
        if !causes.is_empty() {
            let options = Grouped { group: "meta.k8s.io", name: "DeleteOptions" };
            return Err(Status::invalid(options, "", &causes));
        }
        let precondition = |field: &str| given["preconditions"][field].as_str().map(str::to_owned);
        Ok(Self {
            dry_run,
            grace_seconds,
            propagation,
            orphan,
            uid: precondition("uid"),
            version: precondition("resourceVersion"),
        })
    }
}

fn decode_options(body: &[u8]) -> Result<Value, Status> {
    let value = crate::decode::parse("DeleteOptions", body)?;
    match value["kind"].as_str().unwrap_or_default() {
        "" | "DeleteOptions" => Ok(value),
        other => Err(Status::bad_request(format!("the body is a {other}, not DeleteOptions"))),
    }
}

fn typed<T>(
    given: &Value,
    field: &str,
    wanted: &str,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<Option<T>, Status> {
    match given.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => read(value)
            .map(Some)
            .ok_or_else(|| Status::bad_request(format!("{field} of DeleteOptions is {value}, not {wanted}"))),
    }
}

/// The next step of a deletion.
enum Step {
    /// Keep the object, with this change.
    Mark(Value),
    /// Store this change, then delete the object.
    MarkAndDelete(Value),
    /// Delete the object.
    Delete,
    /// The object is already being deleted.
    Wait,
}

impl Writer<'_> {
    /// Deletes the object `name`, or begins to.
    pub(crate) async fn delete(
        &self,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Written, Status> {
        let key = Key::new(if self.resource.namespaced { namespace } else { "" }, name);
        loop {
            let latest = self.core.store.latest(&self.resource.collection, &key);
            let Some(existing) = latest.object else {
                let status = Status::not_found(self.resource.grouped(), name);
                return Err(self.refuse(latest.settled_at, status).await);
            };
            let step = match self.next_step(&existing, options) {
                Ok(step) => step,
                Err(status) => return Err(self.refuse(latest.settled_at, status).await),
            };
            let version = Some(existing.version);
            match step {
                Step::Wait => {
                    self.core.store.settled(latest.settled_at).await.map_err(|e| super::not_stored(&e))?;
                    return Ok(deleting(options, Outcome::Stored(existing)));
                }
                Step::Mark(value) => {
                    if options.dry_run {
                        return Ok(deleting(options, Outcome::Unstored(value)));
                    }
                    if value == existing.value {
                        self.core
                            .store
                            .settled(latest.settled_at)
                            .await
                            .map_err(|e| super::not_stored(&e))?;
                        return Ok(deleting(options, Outcome::Stored(existing)));
                    }
                    if let Some(event) = self.commit(&key, version, value, false, Vec::new()).await? {
                        return Ok(deleting(options, Outcome::Stored(event.object.clone())));
                    }
                }
                Step::MarkAndDelete(value) => {
                    if options.dry_run {
                        return Ok(self.deleted(&existing, value));
                    }
                    let Some(event) = self.commit(&key, version, value, false, Vec::new()).await? else {
                        continue;
                    };
                    let last = event.object.value.clone();
                    let version = Some(event.version());
                    if let Some(event) = self.commit(&key, version, last, true, Vec::new()).await? {
                        return Ok(self.deleted(&event.object, event.object.value.clone()));
                    }
                }
                Step::Delete => {
                    let last = existing.value.clone();
                    if options.dry_run {
                        return Ok(self.deleted(&existing, last));
                    }
                    if let Some(event) = self.commit(&key, version, last, true, Vec::new()).await? {
                        return Ok(self.deleted(&event.object, event.object.value.clone()));
                    }
                }
            }
        }
    }

    /// Deletes all selected objects, and returns them.
    pub(crate) async fn delete_collection(
        &self,
        selection: &Selection,
        list_options: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<Page, Status> {
        let page = list(&self.core.store, &self.resource.collection, selection, list_options)?;
        let under_way: Vec<_> = page
            .objects
            .iter()
            .map(|object| self.delete(object.key.namespace(), object.key.name(), options))
            .collect();
        let failed = futures::stream::iter(under_way)
            .buffer_unordered(AT_ONCE)
            .filter_map(|deleted| std::future::ready(deleted.err()))
            .filter(|status| std::future::ready(status.reason != "NotFound"))
            .collect::<Vec<_>>()
            .await;
        match failed.into_iter().next() {
            Some(status) => Err(status),
            None => Ok(page),
        }
    }

    fn next_step(&self, existing: &Object, options: &DeleteOptions) -> Result<Step, Status> {
        let resource: &Resource = self.resource;
        if resource.group.is_empty() && resource.kind == "Namespace" {
            return self.delete_namespace(existing, options);
        }
        if resource.group == "apiextensions.k8s.io" && !existing.is_terminating() {
            self.check_preconditions(existing, options)?;
            let mut value = existing.value.clone();
            definitions::begin_deletion(&mut value, &self.core.now());
            return Ok(Step::Mark(value));
        }
        self.check_preconditions(existing, options)?;
        let mut value = existing.value.clone();
        let grace = if resource.group.is_empty() && resource.kind == "Pod" {
            match self.grace(&mut value, options) {
                Grace::Pending => return Ok(Step::Wait),
                Grace::Seconds(seconds) => Some(seconds),
                Grace::Over => None,
            }
        } else {
            None
        };
        let finalizers = self.deletion_finalizers(&value, options);
        if let Some(finalizers) = &finalizers {
            meta::set_finalizers(&mut value, finalizers);
        }
        let held = !meta::finalizers(&value).is_empty();
        Ok(match grace {
            Some(0) if !held => Step::MarkAndDelete(value),
            Some(_) => Step::Mark(value),
            None if held => {
                mark(&mut value, &self.core.now());
                Step::Mark(value)
            }
            None => Step::Delete,
        })
    }

    fn delete_namespace(&self, existing: &Object, options: &DeleteOptions) -> Result<Step, Status> {
        self.check_preconditions(existing, options)?;
        let name = existing.key.name();
        if ["default", "kube-system", "kube-public"].contains(&name) {
            let why = "this namespace may not be deleted";
            return Err(Status::forbidden(self.resource.grouped(), name, why));
        }
        let mut value = existing.value.clone();
        if !existing.is_terminating() {
            meta::set(&mut value, "deletionTimestamp", json!(self.core.now()));
            value["status"]["phase"] = json!("Terminating");
            if let Some(finalizers) = self.deletion_finalizers(&value, options) {
                meta::set_finalizers(&mut value, &finalizers);
            }
            return Ok(Step::Mark(value));
        }
        let held = value["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
        Ok(if held || !meta::finalizers(&value).is_empty() { Step::Wait } else { Step::Delete })
    }

    /// Refuses to delete another object, or another state of it, than the client means.
    fn check_preconditions(&self, existing: &Object, options: &DeleteOptions) -> Result<(), Status> {
        let version = existing.version.to_string();
        let checks = [
            ("UID", options.uid.as_deref(), existing.uid(), "deleted and then recreated"),
            ("ResourceVersion", options.version.as_deref(), version.as_str(), "modified"),
        ];
        for (what, wanted, actual, then) in checks {
            if let Some(wanted) = wanted.filter(|wanted| *wanted != actual) {
                let why = format!(
                    "the {what} in the precondition ({wanted}) does not match the {what} in record ({actual}). The object might have been {then}"
                );
                return Err(Status::conflict(self.resource.grouped_kind(), existing.key.name(), &why));
            }
        }
        Ok(())
    }

    /// The finalizers that the garbage collector needs for this deletion; `None` if they are already right.
    fn deletion_finalizers(&self, value: &Value, options: &DeleteOptions) -> Option<Vec<String>> {
        if self.resource.builtin().is_some_and(|builtin| builtin.traits.uncollected) {
            return None;
        }
        let present = meta::finalizers(value);
        let has = |finalizer: &str| present.contains(&finalizer);
        let (orphan, foreground) = match (options.orphan, options.propagation) {
            (Some(orphan), _) => (orphan, false),
            (None, Some(policy)) => (policy == Propagation::Orphan, policy == Propagation::Foreground),
            (None, None) => (has(ORPHAN), has(FOREGROUND) && !has(ORPHAN)),
        };
        let mut finalizers: Vec<String> = present
            .iter()
            .filter(|one| **one != ORPHAN && **one != FOREGROUND)
            .map(|one| (*one).to_owned())
            .collect();
        finalizers.extend(orphan.then(|| ORPHAN.to_owned()));
        finalizers.extend(foreground.then(|| FOREGROUND.to_owned()));
        let same = finalizers.len() == present.len() && finalizers.iter().all(|one| has(one));
        (!same).then_some(finalizers)
    }

    /// Gives a pod time to end, if it runs somewhere.
    fn grace(&self, value: &mut Value, options: &DeleteOptions) -> Grace {
        let now = self.core.now_seconds();
        let wanted = options.grace_seconds.map(|seconds| if seconds < 0 { 1 } else { seconds });
        if meta::is_terminating(value) {
            let period = value["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
            if period == 0 {
                return Grace::Over;
            }
            let Some(mut shorter) = wanted.filter(|wanted| *wanted < period) else { return Grace::Pending };
            let due = crate::core::seconds_of(meta::text(value, "deletionTimestamp")).unwrap_or(now);
            let mut due = due - period + shorter;
            if due < now {
                due = now;
                shorter = shorter.min(1);
            }
            meta::set(value, "deletionTimestamp", json!(crate::core::time_of(due)));
            meta::set(value, "deletionGracePeriodSeconds", json!(shorter));
            return Grace::Seconds(shorter);
        }
        let own = value["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(0);
        let unscheduled = value["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
        let ended = ["Failed", "Succeeded"].contains(&value["status"]["phase"].as_str().unwrap_or_default());
        let period = if unscheduled || ended { 0 } else { wanted.unwrap_or(own) };
        let period = if period < 0 { 1 } else { period };
        meta::set(value, "deletionTimestamp", json!(crate::core::time_of(now + period)));
        meta::set(value, "deletionGracePeriodSeconds", json!(period));
        if meta::generation(value) > 0 {
            let next = meta::generation(value) + 1;
            meta::set(value, "generation", json!(next));
        }
        Grace::Seconds(period)
    }

    /// The answer about a deleted object.
    fn deleted(&self, object: &Object, value: Value) -> Written {
        let returns = self.resource.builtin().is_some_and(|builtin| builtin.traits.returns_deleted);
        let outcome = if returns {
            Outcome::Unstored(crate::present::converted(self.resource, value))
        } else {
            let mut details =
                json!({"name": object.key.name(), "kind": self.resource.plural, "uid": object.uid()});
            if !self.resource.group.is_empty() {
                details["group"] = json!(self.resource.group);
            }
            Outcome::Gone(json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
            }))
        };
        Written { code: StatusCode::OK, outcome, warnings: Vec::new() }
    }
}

enum Grace {
    /// The pod already got its time.
    Pending,
    /// It has this long from now.
    Seconds(i64),
    /// Its time was zero.
    Over,
}

/// Marks an object as being deleted.
pub(crate) fn mark(value: &mut Value, now: &str) {
    if !meta::is_terminating(value) {
        if meta::generation(value) > 0 {
            let next = meta::generation(value) + 1;
            meta::set(value, "generation", json!(next));
        }
        meta::set(value, "deletionTimestamp", json!(now));
    }
    meta::set(value, "deletionGracePeriodSeconds", json!(0));
}

/// The answer about an object that still exists.
fn deleting(options: &DeleteOptions, outcome: Outcome) -> Written {
    let code = if options.orphan == Some(false) { StatusCode::ACCEPTED } else { StatusCode::OK };
    Written { code, outcome, warnings: Vec::new() }
}
