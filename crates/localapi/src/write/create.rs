//! Creating an object.

use http::StatusCode;
use serde_json::{Value, json};

use super::{Outcome, Part, Writer, Written, dedupe_owners, home, settle_namespace};
use crate::decode::{Shaped, Strictness, cannot_handle, strict_error};
use crate::registry::{DEFINITIONS, Nature};
use crate::schema::Path;
use crate::status::{Grouped, Status};
use crate::store::Key;
use crate::{kinds, meta, names};

/// How many names are tried if a generated one is taken.
const NAME_ATTEMPTS: usize = 8;

/// The longest prefix of a generated name.
const LONGEST_PREFIX: usize = 58;

/// The alphabet of random suffixes: it spells no words, and no characters look alike.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

impl Writer<'_> {
    /// Creates an object in `namespace`.
    pub(crate) async fn create(&self, namespace: &str, shaped: Shaped) -> Result<Written, Status> {
        let Shaped { mut value, complaints } = shaped;
        let mut warnings = self.weigh(complaints)?;
        let system =
            ["creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"];
        for field in system {
            meta::remove(&mut value, field);
        }
        settle_namespace(if self.resource.namespaced { namespace } else { "" }, &mut value)?;
        warnings.extend(dedupe_owners(&mut value));
        let prefix = meta::text(&value, "generateName").to_owned();
        if !meta::text(&value, "name").is_empty() || prefix.is_empty() {
            return self.create_named(namespace, value, warnings).await;
        }
        let mut refused = None;
        for _ in 0..NAME_ATTEMPTS {
            let name = self.generate_name(&prefix);
            let mut candidate = value.clone();
            meta::set(&mut candidate, "name", json!(name));
            match self.create_named(namespace, candidate, warnings.clone()).await {
                Err(status) if status.reason == "AlreadyExists" => refused = Some(status),
                other => return other,
            }
        }
        Err(refused.unwrap_or_else(|| Status::internal("no name was generated")))
    }

    /// Handles complaints about unknown fields.
    fn weigh(&self, complaints: Vec<String>) -> Result<Vec<String>, Status> {
        match self.options.strictness {
            Strictness::Ignore => Ok(Vec::new()),
            Strictness::Warn => Ok(complaints),
            Strictness::Strict if complaints.is_empty() => Ok(Vec::new()),
            Strictness::Strict => {
                Err(Status::bad_request(cannot_handle(self.resource, &strict_error(&complaints))))
            }
        }
    }

    fn generate_name(&self, prefix: &str) -> String {
        let mut length = prefix.len().min(LONGEST_PREFIX);
        while !prefix.is_char_boundary(length) {
            length -= 1;
        }
        let mut name = prefix[..length].to_owned();
        let mut bits = self.core.entropy.next_u64();
        let base = ALPHABET.len() as u64;
        for _ in 0..5 {
            let index = usize::try_from(bits % base).unwrap_or_default();
            name.push(char::from(ALPHABET[index]));
            bits /= base;
        }
        name
    }

    /// Creates an object with a final name. Warnings are sent with any answer.
    pub(super) async fn create_named(
        &self,
        namespace: &str,
        value: Value,
        mut warnings: Vec<String>,
    ) -> Result<Written, Status> {
        let result = self.try_create(namespace, value, &mut warnings).await;
        match result {
            Ok(outcome) => Ok(Written { code: StatusCode::CREATED, outcome, warnings }),
            Err(status) => Err(status.with_warnings(warnings)),
        }
    }

    async fn try_create(
        &self,
        namespace: &str,
        mut value: Value,
        warnings: &mut Vec<String>,
    ) -> Result<Outcome, Status> {
        let name = meta::text(&value, "name").to_owned();
        self.check_home(namespace, &name).await?;
        meta::set(&mut value, "uid", json!(self.core.entropy.uuid()));
        meta::set(&mut value, "creationTimestamp", json!(self.core.now()));
        self.prepare_create(&mut value);
        let causes = self.create_causes(&value);
        if !causes.is_empty() {
            return Err(self.invalid(&value, &causes));
        }
        warnings.extend(self.content_warnings(&value, None));
        // The real server checks this when it stores, so not in a dry run.
        if !self.options.dry_run && !["", "0"].contains(&meta::text(&value, "resourceVersion")) {
            return Err(Status::plain(
                StatusCode::INTERNAL_SERVER_ERROR,
                "",
                "resourceVersion should not be set on objects to be created",
            ));
        }
        let key = Key::new(if self.resource.namespaced { namespace } else { "" }, &name);
        loop {
            let latest = self.core.store.latest(&self.resource.collection, &key);
            if let Some(existing) = latest.object {
                let mut status = if meta::text(&value, "generateName").is_empty() {
                    Status::already_exists(self.resource.grouped(), &name)
                } else {
                    Status::no_name_free(self.resource.grouped(), &name)
                };
                if existing.is_terminating() {
                    status.message = format!("object is being deleted: {}", status.message);
                }
                return Err(self.refuse(latest.settled_at, status).await);
            }
            if self.options.dry_run {
                return Ok(Outcome::Unstored(value));
            }
            let mut alive = Vec::new();
            if self.resource.namespaced {
                alive.push(home(namespace));
            }
            if let Nature::Custom(custom) = &self.resource.nature {
                alive.push((DEFINITIONS.into(), Key::new("", &custom.definition)));
            }
            let stored = self.to_stored(value.clone());
            if let Some(event) = self.commit(&key, None, stored, false, alive).await? {
                return Ok(Outcome::Stored(event.object.clone()));
            }
            // Either another client created it, or its namespace is being deleted: the next read tells.
            self.check_home(namespace, &name).await?;
        }
    }

    /// Refuses to create where nothing may be created.
    async fn check_home(&self, namespace: &str, name: &str) -> Result<(), Status> {
        if self.resource.namespaced {
            let (collection, key) = home(namespace);
            let latest = self.core.store.latest(&collection, &key);
            let status = match latest.object {
                None => Some(Status::not_found(Grouped { group: "", name: "namespaces" }, namespace)),
                Some(object) if object.is_terminating() => Some(self.leaving(namespace, name)),
                Some(_) => None,
            };
            if let Some(status) = status {
                return Err(self.refuse(latest.settled_at, status).await);
            }
        }
        if let Nature::Custom(custom) = &self.resource.nature {
            let key = Key::new("", &custom.definition);
            let latest = self.core.store.latest(DEFINITIONS, &key);
            if custom.terminating || latest.object.is_none_or(|object| object.is_terminating()) {
                let why = "create not allowed while custom resource definition is terminating";
                let status = Status::forbidden(self.resource.grouped(), name, why);
                return Err(self.refuse(latest.settled_at, status).await);
            }
        }
        Ok(())
    }

    fn leaving(&self, namespace: &str, name: &str) -> Status {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut status = Status::forbidden(self.resource.grouped(), name, &why);
        status.detail(
            "causes",
            json!([{
                "reason": "NamespaceTerminating",
                "message": format!("namespace {namespace} is being terminated"),
                "field": "metadata.namespace",
            }]),
        );
        status
    }

    fn prepare_create(&self, value: &mut Value) {
        match &self.resource.nature {
            Nature::Builtin(builtin) => {
                kinds::prepare_create(builtin, value);
                if builtin.kind == "CustomResourceDefinition" {
                    self.core.prepare_definition(value, None);
                }
            }
            Nature::Custom(_) => {
                if self.resource.status
                    && let Value::Object(fields) = &mut *value
                {
                    fields.remove("status");
                }
                meta::set(value, "generation", json!(1));
            }
        }
    }

    fn create_causes(&self, value: &Value) -> Vec<crate::schema::Cause> {
        if self.resource.custom().is_some() {
            let causes = self.type_causes(value);
            if !causes.is_empty() {
                return causes;
            }
        }
        let mut causes = Vec::new();
        names::validate_create(
            &value["metadata"],
            self.resource.name_rule(),
            self.resource.namespaced,
            &Path::Text("metadata"),
            &mut causes,
        );
        self.kind_causes(value, None, Part::Whole, &mut causes);
        causes
    }
}
