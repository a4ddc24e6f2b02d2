//! Writing objects: the meaning of creations, replacements, patches and deletions, and what each refuses.
//!
//! Every write is decided outside all locks from the newest state of the object, and then proposed to the
//! store on condition that this state has not changed. If it has, the decision is made again.

mod bind;
mod create;
mod delete;
mod update;

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

pub(crate) use delete::{DeleteOptions, FOREGROUND, ORPHAN, Propagation};
pub(crate) use update::{Change, Part, Verdict, unfit_patch};

use crate::core::Core;
use crate::decode::Strictness;
use crate::registry::{NAMESPACES, Nature, Resource};
use crate::request::Query;
use crate::schema::{Cause, Path};
use crate::status::{Grouped, Status};
use crate::store::{CommitError, Draft, Event, Key, Object, Proposal, Refused};
use crate::{meta, names, present};

/// The answer to a write.
#[derive(Debug)]
pub(crate) struct Written {
    /// 200 or 201, or 202 for a deletion in progress.
    pub(crate) code: StatusCode,
    /// The object, or a `Status` of success.
    pub(crate) outcome: Outcome,
    /// For the `Warning` headers.
    pub(crate) warnings: Vec<String>,
}

/// The result of a write.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// An object as it is stored.
    Stored(Arc<Object>),
    /// An object that is not stored: of a dry run, or the last state of a deleted one.
    Unstored(Value),
    /// A `Status` about a deleted object.
    Gone(Value),
}

/// The parameters that all writes share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteOptions {
    /// Answer without a change.
    pub(crate) dry_run: bool,
    /// How to handle unknown fields.
    pub(crate) strictness: Strictness,
}

impl WriteOptions {
    /// Reads and checks them; `kind` is their name in an error, such as `CreateOptions`.
    pub(crate) fn parse(query: &Query, kind: &str) -> Result<Self, Status> {
        let mut causes = Vec::new();
        let manager = query.text("fieldManager");
        if manager.len() > 128 {
            causes.push(Cause::too_long(&Path::Text("fieldManager"), 128));
        }
        let dry_run = dry_run(&query.all("dryRun"), &mut causes);
        let validation = query.text("fieldValidation");
        let strictness = match validation {
            "Ignore" => Strictness::Ignore,
            "Strict" => Strictness::Strict,
            "" | "Warn" => Strictness::Warn,
            _ => {
                let supported = ["", "Ignore", "Strict", "Warn"].map(str::to_owned);
                causes.push(Cause::not_supported(
                    &Path::Text("fieldValidation"),
                    &json!(validation),
                    &supported,
                ));
                Strictness::Warn
            }
        };
        if causes.is_empty() {
            return Ok(Self { dry_run, strictness });
        }
        Err(Status::invalid(Grouped { group: "meta.k8s.io", name: kind }, "", &causes))
    }
}

/// Whether it is a dry run.
fn dry_run(values: &[&str], causes: &mut Vec<Cause>) -> bool {
    if values.iter().any(|value| *value != "All") {
        causes.push(Cause {
            reason: "FieldValueNotSupported".to_owned(),
            field: "dryRun".to_owned(),
            message: format!("Unsupported value: {}: supported values: \"All\"", json!(values)),
        });
    }
    !values.is_empty()
}

/// One write request.
#[derive(Debug)]
pub(crate) struct Writer<'c> {
    pub(crate) core: &'c Core,
    pub(crate) resource: &'c Arc<Resource>,
    pub(crate) options: WriteOptions,
}

impl Writer<'_> {
    /// The value in the stored form.
    fn to_stored(&self, mut value: Value) -> Value {
        match &self.resource.nature {
            Nature::Builtin(_) => value,
            Nature::Custom(custom) => {
                value["apiVersion"] = json!(custom.stored_api_version);
                crate::json::settle_numbers(&mut value);
                value
            }
        }
    }

    /// Proposes a state of an object and waits until it is on disk; `None` if another writer was faster.
    async fn commit(
        &self,
        key: &Key,
        expected: Option<u64>,
        value: Value,
        delete: bool,
        alive: Vec<(Arc<str>, Key)>,
    ) -> Result<Option<Arc<Event>>, Status> {
        let proposal = Proposal {
            collection: self.resource.collection.clone(),
            key: key.clone(),
            expected,
            draft: Draft::new(value),
            delete,
            alive,
        };
        match self.core.commit(proposal).await {
            Ok(event) => Ok(Some(event)),
            Err(Refused::Stale | Refused::NotAlive) => Ok(None),
            Err(Refused::Ended(error)) => Err(not_stored(&error)),
        }
    }

    /// A refusal that depends on the newest state may be sent once that state is on disk.
    async fn refuse(&self, settled_at: u64, status: Status) -> Status {
        match self.core.store.settled(settled_at).await {
            Ok(()) => status,
            Err(error) => not_stored(&error),
        }
    }

    /// An object as the endpoint shows it.
    fn shown(&self, object: &Object) -> Value {
        present::value(self.resource, object).into_owned()
    }

    /// Adds the causes of the kind, after those of the metadata.
    fn kind_causes(&self, value: &Value, old: Option<&Value>, part: Part, causes: &mut Vec<Cause>) {
        match &self.resource.nature {
            Nature::Builtin(builtin) if part == Part::Whole => {
                causes.extend(if builtin.kind == "CustomResourceDefinition" {
                    crate::definitions::validate(value, old)
                } else {
                    crate::kinds::validate(builtin.kind, value)
                });
            }
            Nature::Builtin(_) => {}
            Nature::Custom(custom) => {
                match (part, old) {
                    (Part::Status, Some(old)) => custom.schema().validate_status(value, old, causes),
                    _ => custom.schema().validate(value, old, causes),
                }
                if let Some(scale) = &self.resource.scale {
                    causes.extend(crate::scale::validate(scale, value, part == Part::Status));
                }
            }
        }
    }

    /// Causes about `kind` and `apiVersion` of a custom resource.
    fn type_causes(&self, value: &Value) -> Vec<Cause> {
        let mut causes = Vec::new();
        for (field, expected) in [("kind", &self.resource.kind), ("apiVersion", &self.resource.api_version)] {
            let given = value[field].as_str().unwrap_or_default();
            if given != expected {
                causes.push(Cause::invalid_text(&Path::Text(field), given, &format!("must be {expected}")));
            }
        }
        causes
    }

    fn invalid(&self, value: &Value, causes: &[Cause]) -> Status {
        // A custom resource may claim to be something else; an error uses its claim.
        let (api_version, kind) = (value["apiVersion"].as_str(), value["kind"].as_str());
        let kind = match (&self.resource.nature, api_version, kind) {
            (Nature::Custom(_), Some(api_version), Some(kind)) => {
                Grouped { group: api_version.split_once('/').map_or("", |(group, _)| group), name: kind }
            }
            _ => self.resource.grouped_kind(),
        };
        Status::invalid(kind, meta::text(value, "name"), causes)
    }

    /// Warnings about the object's content.
    fn content_warnings(&self, value: &Value, old: Option<&Value>) -> Vec<String> {
        match &self.resource.nature {
            Nature::Builtin(_) => Vec::new(),
            Nature::Custom(_) => {
                names::finalizer_warnings(&value["metadata"], old.map(|old| &old["metadata"]))
            }
        }
    }
}

/// Sets the object's namespace from the path, or refuses another one.
fn settle_namespace(namespace: &str, value: &mut Value) -> Result<(), Status> {
    let given = meta::text(value, "namespace");
    if given == namespace {
        return Ok(());
    }
    if given.is_empty() {
        meta::set(value, "namespace", json!(namespace));
        Ok(())
    } else if namespace.is_empty() {
        meta::remove(value, "namespace");
        Ok(())
    } else {
        Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ))
    }
}

/// Why a write was not stored, for the client.
pub(crate) fn not_stored(error: &CommitError) -> Status {
    match error {
        CommitError::Closed => {
            Status::plain(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", "the local API is closing")
        }
        CommitError::Disk(_) => Status::internal(&error.to_string()),
    }
}

/// The namespace of an object, for the store's check that it exists.
fn home(namespace: &str) -> (Arc<str>, Key) {
    (NAMESPACES.into(), Key::new("", namespace))
}

/// Removes exact duplicates of owner references; returns which were repeated.
fn dedupe_owners(value: &mut Value) -> Option<String> {
    let owners = meta::owners(value);
    let mut kept: Vec<Value> = Vec::with_capacity(owners.len());
    let mut repeated = Vec::new();
    for owner in owners {
        if kept.contains(owner) {
            repeated.push(owner["uid"].as_str().unwrap_or_default().to_owned());
        } else {
            kept.push(owner.clone());
        }
    }
    (!repeated.is_empty()).then(|| {
        meta::set_owners(value, kept);
        format!(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your request(s); duplicate UID(s) observed: {}",
            repeated.join(", ")
        )
    })
}
