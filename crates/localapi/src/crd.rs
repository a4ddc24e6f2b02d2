//! Custom resource definitions: what one says, and whether it may say so.
//!
//! [`CrdInfo::parse`] refuses what kube-apiserver refuses, at the same fields and with the same words, and
//! gives everything that serving the resource needs, schemas compiled. Cost limits of rules are not enforced.

mod columns;
mod internal;
mod names;
mod openapi_schema;
mod structural;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

pub(crate) use columns::PrinterColumn;
pub(crate) use names::CrdNames;

use crate::names::{label1035_problems, subdomain_problems};
use crate::registry::ScalePaths;
use crate::schema::{Cause, Path, Schema};

/// What a definition says.
#[derive(Debug)]
pub(crate) struct CrdInfo {
    /// API group.
    pub(crate) group: String,
    /// Names of the resource.
    pub(crate) names: CrdNames,
    /// Whether objects are in namespaces.
    pub(crate) namespaced: bool,
    /// The versions, in the order of the definition.
    pub(crate) versions: Vec<CrdVersion>,
}

/// What a definition says of one version.
#[derive(Debug)]
pub(crate) struct CrdVersion {
    /// Name, for example `v1alpha1`.
    pub(crate) name: String,
    /// Whether clients can use it.
    pub(crate) served: bool,
    /// Whether objects are stored in it.
    pub(crate) storage: bool,
    /// The warning that answers carry, if clients should not use it any more.
    pub(crate) deprecation: Option<String>,
    /// Its schema.
    pub(crate) schema: Schema,
    /// Its schema as written, for the published OpenAPI documents.
    pub(crate) open_api: Value,
    /// Whether `status` is a place of its own.
    pub(crate) status: bool,
    /// Where the replicas are, if it can be scaled.
    pub(crate) scale: Option<ScalePaths>,
    /// Columns for people.
    pub(crate) columns: Vec<PrinterColumn>,
    /// Fields that lists can be selected by, as paths without the leading dot.
    pub(crate) selectable_fields: Vec<String>,
}

impl CrdInfo {
    /// Reads a `CustomResourceDefinition` object.
    pub(crate) fn parse(definition: &Value) -> Result<Self, Vec<Cause>> {
        let mut causes = Vec::new();
        let spec = &definition["spec"];
        let group = text(spec, "group");
        let names = CrdNames::read(&spec["names"]);
        let name = text(&definition["metadata"], "name");
        if name != format!("{}.{group}", names.plural) {
            let detail = "must be spec.names.plural+\".\"+spec.group";
            causes.push(Cause::invalid_text(&Path::Text("metadata.name"), name, detail));
        }
        let checker = Checker::new(spec);
        let versions = checker.check(&names, &mut causes);
        check_stored_versions(definition, &mut causes);
        check_approval(definition, group, &mut causes);
        if spec["preserveUnknownFields"] == true {
            let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
            causes.push(Cause::invalid(&Path::Text("spec.preserveUnknownFields"), &json!(true), detail));
        }
        if !causes.is_empty() {
            return Err(causes);
        }
        let namespaced = text(spec, "scope") == "Namespaced";
        Ok(Self { group: group.to_owned(), names, namespaced, versions })
    }
}

/// Checks the spec. What all versions say alike is reported as the spec's own, as the real server does.
#[expect(clippy::struct_excessive_bools, reason = "one for each part that versions can have alike")]
struct Checker<'a> {
    spec: &'a Value,
    versions: &'a [Value],
    shared_schema: bool,
    shared_subresources: bool,
    shared_columns: bool,
    shared_selectable: bool,
}

impl<'a> Checker<'a> {
    fn new(spec: &'a Value) -> Self {
        let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let alike =
            |field: &str| versions.windows(2).all(|pair| said(&pair[0], field) == said(&pair[1], field));
        Self {
            spec,
            versions,
            shared_schema: alike("schema"),
            shared_subresources: alike("subresources"),
            shared_columns: alike("additionalPrinterColumns"),
            shared_selectable: alike("selectableFields"),
        }
    }

    fn check(&self, names: &CrdNames, causes: &mut Vec<Cause>) -> Vec<CrdVersion> {
        let path = Path::Text("spec");
        self.check_group_and_scope(&path, causes);
        let list = path.child("versions");
        if self.versions.iter().any(|v| said(&v["schema"], "openAPIV3Schema").is_none()) {
            let missing = |v: &Value| said(&v["schema"], "openAPIV3Schema").is_none();
            for (index, _) in self.versions.iter().enumerate().filter(|(_, v)| missing(v)) {
                let at = list.index(index);
                causes.push(Cause::required(&at.child("schema").child("openAPIV3Schema"), ""));
            }
        }
        let mut schemas: Vec<Option<Schema>> = Vec::with_capacity(self.versions.len());
        let mut shared_causes = Vec::new();
        for (index, version) in self.versions.iter().enumerate() {
            let at = list.index(index);
            let name = text(version, "name");
            let problems = label1035_problems(name);
            if !problems.is_empty() {
                causes.push(Cause::invalid_text(&at.child("name"), name, &problems.join(",")));
            }
            check_deprecation(version, &at, causes);
            let schema_at = if self.shared_schema { path.child("validation") } else { at.child("schema") };
            let mut found = Vec::new();
            let schema = openapi_schema::check(version, &schema_at, &mut found);
            if !self.shared_schema {
                causes.append(&mut found);
            } else if index == 0 {
                // What the versions share is reported once, after them.
                shared_causes = found;
            }
            self.check_version_parts(version, &at, schema.as_ref(), causes);
            schemas.push(schema);
        }
        self.check_version_set(&list, causes);
        let first_name = self.versions.first().map_or("", |version| text(version, "name"));
        let problems = label1035_problems(first_name);
        if !first_name.is_empty() && !problems.is_empty() {
            // The older field for the version, which the server fills in from the first.
            causes.push(Cause::invalid_text(&path.child("version"), first_name, &problems.join(",")));
        }
        names.check(&path.child("names"), causes);
        causes.append(&mut shared_causes);
        if let Some(first) = self.versions.first() {
            self.check_shared_parts(first, &path, schemas.first().and_then(Option::as_ref), causes);
        }
        self.check_conversion(&path.child("conversion"), causes);
        let group = text(self.spec, "group");
        let built = self.versions.iter().zip(schemas);
        built
            .filter_map(|(version, schema)| Some(version_info(group, &names.kind, version, schema?)))
            .collect()
    }

    fn check_group_and_scope(&self, path: &Path<'_>, causes: &mut Vec<Cause>) {
        let group = text(self.spec, "group");
        let at = path.child("group");
        let problems = subdomain_problems(group);
        if group.is_empty() {
            causes.push(Cause::required(&at, ""));
        } else if !problems.is_empty() {
            causes.push(Cause::invalid_text(&at, group, &problems.join(",")));
        } else if !group.contains('.') {
            causes.push(Cause::invalid_text(&at, group, "should be a domain with at least one dot"));
        }
        match text(self.spec, "scope") {
            "Cluster" | "Namespaced" => {}
            "" => causes.push(Cause::required(&path.child("scope"), "")),
            scope => {
                let accepted = ["Cluster".to_owned(), "Namespaced".to_owned()];
                causes.push(Cause::not_supported(&path.child("scope"), &json!(scope), &accepted));
            }
        }
    }

    /// The parts that are this version's own.
    fn check_version_parts(
        &self,
        version: &Value,
        at: &Path<'_>,
        schema: Option<&Schema>,
        causes: &mut Vec<Cause>,
    ) {
        if !self.shared_subresources {
            columns::check_subresources(version, &at.child("subresources"), causes);
        }
        if !self.shared_columns {
            columns::check_columns(version, &at.child("additionalPrinterColumns"), causes);
        }
        if !self.shared_selectable {
            columns::check_selectable(version, schema, &at.child("selectableFields"), causes);
        }
    }

    /// The parts that all versions have alike.
    fn check_shared_parts(
        &self,
        version: &Value,
        path: &Path<'_>,
        schema: Option<&Schema>,
        causes: &mut Vec<Cause>,
    ) {
        if self.shared_subresources {
            columns::check_subresources(version, &path.child("subresources"), causes);
        }
        if self.shared_columns {
            columns::check_columns(version, &path.child("additionalPrinterColumns"), causes);
        }
        if self.shared_selectable {
            columns::check_selectable(version, schema, &path.child("selectableFields"), causes);
        }
    }

    fn check_version_set(&self, list: &Path<'_>, causes: &mut Vec<Cause>) {
        let names: Vec<&str> = self.versions.iter().map(|v| text(v, "name")).collect();
        if names.iter().enumerate().any(|(index, name)| names[..index].contains(name)) {
            causes.push(Cause::invalid_shown(
                list,
                &self.shown_versions(),
                "must contain unique version names",
            ));
        }
        if self.versions.iter().filter(|v| v["storage"] == true).count() != 1 {
            let detail = "must have exactly one version marked as storage version";
            causes.push(Cause::invalid_shown(list, &self.shown_versions(), detail));
        }
    }

    /// The versions as the real server prints them: its internal type, in which shared parts are not here.
    fn shown_versions(&self) -> String {
        let shown: Vec<String> = self
            .versions
            .iter()
            .map(|version| {
                let part = |field: &str, shared: bool| match said(version, field) {
                    Some(value) if !shared => crate::schema::wording::json(value),
                    _ => "null".to_owned(),
                };
                format!(
                    "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\"Schema\":{},\"Subresources\":{},\"AdditionalPrinterColumns\":{},\"SelectableFields\":{}}}",
                    crate::schema::wording::json(&json!(text(version, "name"))),
                    version["served"] == true,
                    version["storage"] == true,
                    version["deprecated"] == true,
                    part("deprecationWarning", false),
                    match said(&version["schema"], "openAPIV3Schema") {
                        Some(schema) if !self.shared_schema => {
                            format!("{{\"OpenAPIV3Schema\":{}}}", internal::schema(schema))
                        }
                        _ => "null".to_owned(),
                    },
                    part("subresources", self.shared_subresources),
                    part("additionalPrinterColumns", self.shared_columns),
                    part("selectableFields", self.shared_selectable),
                )
            })
            .collect();
        format!("[{}]", shown.join(","))
    }

    fn check_conversion(&self, at: &Path<'_>, causes: &mut Vec<Cause>) {
        let conversion = &self.spec["conversion"];
        if conversion.is_null() {
            return;
        }
        match text(conversion, "strategy") {
            "None" => {
                for field in ["webhook", "webhookClientConfig"] {
                    if said(conversion, field).is_some() {
                        let detail = "should not be set when strategy is not set to Webhook";
                        causes.push(Cause::forbidden(&at.child("webhookClientConfig"), detail));
                    }
                }
            }
            "Webhook" => {
                if said(&conversion["webhook"], "clientConfig").is_none() {
                    let detail = "required when strategy is set to Webhook";
                    causes.push(Cause::required(&at.child("webhookClientConfig"), detail));
                }
                let versions = conversion["webhook"]["conversionReviewVersions"].as_array();
                if versions.is_none_or(Vec::is_empty) {
                    causes.push(Cause::required(&at.child("conversionReviewVersions"), ""));
                }
            }
            "" => causes.push(Cause::required(&at.child("strategy"), "")),
            other => {
                let accepted = ["None".to_owned(), "Webhook".to_owned()];
                causes.push(Cause::not_supported(&at.child("strategy"), &json!(other), &accepted));
            }
        }
    }
}

fn version_info(group: &str, kind: &str, version: &Value, schema: Schema) -> CrdVersion {
    let subresources = &version["subresources"];
    let scale = said(subresources, "scale").map(|scale| ScalePaths {
        spec_replicas: text(scale, "specReplicasPath").to_owned(),
        status_replicas: text(scale, "statusReplicasPath").to_owned(),
        selector: text(scale, "labelSelectorPath").to_owned(),
    });
    let selectable = version["selectableFields"].as_array().into_iter().flatten();
    CrdVersion {
        name: text(version, "name").to_owned(),
        served: version["served"] == true,
        storage: version["storage"] == true,
        deprecation: (version["deprecated"] == true).then(|| match text(version, "deprecationWarning") {
            "" => format!("{group}/{} {kind} is deprecated", text(version, "name")),
            warning => warning.to_owned(),
        }),
        schema,
        open_api: version["schema"]["openAPIV3Schema"].clone(),
        status: said(subresources, "status").is_some(),
        scale,
        columns: PrinterColumn::read(&version["additionalPrinterColumns"]),
        selectable_fields: selectable
            .map(|field| text(field, "jsonPath").trim_start_matches('.').to_owned())
            .collect(),
    }
}

fn check_deprecation(version: &Value, at: &Path<'_>, causes: &mut Vec<Cause>) {
    let Some(warning) = version["deprecationWarning"].as_str() else { return };
    let at = at.child("deprecationWarning");
    let mut refuse = |detail: &str| causes.push(Cause::invalid_text(&at, warning, detail));
    if version["deprecated"] != true {
        refuse("can only be set for deprecated versions");
        return;
    }
    if warning.len() > 256 {
        refuse("must be <= 256 characters long");
    }
    if warning.is_empty() {
        refuse("must not be an empty string");
    }
    if let Some((index, _)) = warning.char_indices().find(|(_, c)| !crate::schema::wording::is_print(*c)) {
        refuse(&format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {index}"
        ));
    }
}

/// The stored versions are those of the status, or the first storage version of a new definition.
fn check_stored_versions(definition: &Value, causes: &mut Vec<Cause>) {
    let at = Path::Text("status.storedVersions");
    let versions = definition["spec"]["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let storage: Vec<&str> =
        versions.iter().filter(|v| v["storage"] == true).map(|v| text(v, "name")).collect();
    let stored: Vec<&str> = match definition["status"]["storedVersions"].as_array() {
        Some(stored) if !stored.is_empty() => stored.iter().filter_map(Value::as_str).collect(),
        _ => storage.first().copied().into_iter().collect(),
    };
    if stored.is_empty() {
        causes.push(Cause::invalid(&at, &Value::Null, "must have at least one stored version"));
        return;
    }
    // The version that becomes the storage version joins the list with the same write.
    for name in storage.iter().skip(1).filter(|name| !stored.contains(name)) {
        causes.push(Cause::invalid(&at, &json!(stored), &format!("must have the storage version {name}")));
    }
}

fn check_approval(definition: &Value, group: &str, causes: &mut Vec<Cause>) {
    const ANNOTATION: &str = "api-approved.kubernetes.io";
    let protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group == *domain || group.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')));
    if !protected {
        return;
    }
    let value = definition["metadata"]["annotations"][ANNOTATION].as_str().unwrap_or_default();
    let annotations = Path::Text("metadata.annotations");
    let at = annotations.key(ANNOTATION);
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    let is_url = value
        .split_once("://")
        .is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty() && !rest.starts_with('/'));
    if value.is_empty() {
        let detail = format!("protected groups must have approval annotation \"{ANNOTATION}\", {see}");
        causes.push(Cause::required(&at, &detail));
    } else if !value.starts_with("unapproved") && !is_url {
        let detail = format!(
            "protected groups must have approval annotation \"{ANNOTATION}\" with either a URL or a reason starting with \"unapproved\", {see}"
        );
        causes.push(Cause::invalid_text(&at, value, &detail));
    }
}

/// A text field; empty when it is not there.
fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// A field that says something.
fn said<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    object.get(field).filter(|value| !value.is_null())
}
