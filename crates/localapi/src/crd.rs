//! Custom resource definitions: their contents, and whether they can be served.
//!
//! [`CrdInfo::parse`] returns everything that serving the resource needs, with compiled schemas, and refuses
//! what cannot be served. It does not check style: a definition that kube-apiserver refuses may be served
//! here.

use serde_json::{Value, json};

use crate::names::{label1035_problems, subdomain_problems};
use crate::registry::ScalePaths;
use crate::schema::{Cause, Path, Schema};

/// The contents of a definition.
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

/// The names of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CrdNames {
    /// In paths.
    pub(crate) plural: String,
    /// For people, by default the kind in lower case.
    pub(crate) singular: String,
    /// Of its objects.
    pub(crate) kind: String,
    /// Of lists of them, by default the kind with `List`.
    pub(crate) list_kind: String,
    /// Abbreviations for people.
    pub(crate) short_names: Vec<String>,
    /// Groups of resources that it belongs to, such as `all`.
    pub(crate) categories: Vec<String>,
}

/// One version of a definition.
#[derive(Debug)]
pub(crate) struct CrdVersion {
    /// Name, for example `v1alpha1`.
    pub(crate) name: String,
    /// Whether clients can use it.
    pub(crate) served: bool,
    /// Whether objects are stored in it.
    pub(crate) storage: bool,
    /// The warning in answers, if the version is deprecated.
    pub(crate) deprecation: Option<String>,
    /// Its schema.
    pub(crate) schema: Schema,
    /// Its schema as written, for the published OpenAPI documents.
    pub(crate) open_api: Value,
    /// Whether it has a `status` subresource.
    pub(crate) status: bool,
    /// The paths of the replicas, if it can be scaled.
    pub(crate) scale: Option<ScalePaths>,
    /// Columns for people.
    pub(crate) columns: Vec<PrinterColumn>,
    /// Fields that lists can be selected by, as paths without the leading dot.
    pub(crate) selectable_fields: Vec<String>,
}

/// A column that `kubectl get` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PrinterColumn {
    /// Heading.
    pub(crate) name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub(crate) ty: String,
    /// A hint for clients.
    pub(crate) format: String,
    /// Explanation; the default is made from the path.
    pub(crate) description: String,
    /// 0 is always shown, more only in wide output.
    pub(crate) priority: i64,
    /// The path of the value.
    pub(crate) json_path: String,
}

impl CrdInfo {
    /// Reads a `CustomResourceDefinition` object.
    pub(crate) fn parse(definition: &Value) -> Result<Self, Vec<Cause>> {
        let mut causes = Vec::new();
        let spec = &definition["spec"];
        let group = text(spec, "group").to_owned();
        let names = CrdNames::read(&spec["names"]);
        let name = text(&definition["metadata"], "name");
        if name != format!("{}.{group}", names.plural) {
            let detail = "must be spec.names.plural+\".\"+spec.group";
            causes.push(Cause::invalid_text(&Path::Text("metadata.name"), name, detail));
        }
        let problems = subdomain_problems(&group);
        if group.is_empty() {
            causes.push(Cause::required(&Path::Text("spec.group"), ""));
        } else if !problems.is_empty() {
            causes.push(Cause::invalid_text(&Path::Text("spec.group"), &group, &problems.join(",")));
        }
        let namespaced = match text(spec, "scope") {
            "Namespaced" => true,
            "Cluster" => false,
            scope => {
                let accepted = ["Cluster".to_owned(), "Namespaced".to_owned()];
                causes.push(Cause::not_supported(&Path::Text("spec.scope"), &json!(scope), &accepted));
                false
            }
        };
        names.check(&mut causes);
        let versions = read_versions(spec, &group, &names.kind, &mut causes);
        if causes.is_empty() { Ok(Self { group, names, namespaced, versions }) } else { Err(causes) }
    }
}

impl CrdNames {
    /// Reads `spec.names`.
    fn read(names: &Value) -> Self {
        let texts = |field: &str| {
            let items = names[field].as_array().into_iter().flatten();
            items.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let or = |given: &str, default: String| if given.is_empty() { default } else { given.to_owned() };
        let kind = text(names, "kind").to_owned();
        Self {
            plural: text(names, "plural").to_owned(),
            singular: or(text(names, "singular"), kind.to_lowercase()),
            list_kind: or(text(names, "listKind"), format!("{kind}List")),
            kind,
            short_names: texts("shortNames"),
            categories: texts("categories"),
        }
    }

    fn check(&self, causes: &mut Vec<Cause>) {
        for (field, name) in [("plural", &self.plural), ("singular", &self.singular), ("kind", &self.kind)] {
            let path = Path::Text("spec.names");
            let problems = label1035_problems(&name.to_lowercase());
            if name.is_empty() {
                causes.push(Cause::required(&path.child(field), ""));
            } else if !problems.is_empty() {
                causes.push(Cause::invalid_text(&path.child(field), name, &problems.join(",")));
            }
        }
    }
}

fn read_versions(spec: &Value, group: &str, kind: &str, causes: &mut Vec<Cause>) -> Vec<CrdVersion> {
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let list = Path::Text("spec.versions");
    let mut read: Vec<CrdVersion> = Vec::with_capacity(versions.len());
    for (index, version) in versions.iter().enumerate() {
        let at = list.index(index);
        let name = text(version, "name");
        let problems = label1035_problems(name);
        if !problems.is_empty() {
            causes.push(Cause::invalid_text(&at.child("name"), name, &problems.join(",")));
        }
        if read.iter().any(|other| other.name == name) {
            causes.push(Cause::duplicate(&at.child("name"), &json!(name)));
        }
        let at = at.child("schema.openAPIV3Schema");
        match said(&version["schema"], "openAPIV3Schema").map(Schema::compile) {
            None => causes.push(Cause::required(&at, "")),
            Some(Err(error)) => causes.push(Cause::invalid_unshown(&at, &error.to_string())),
            Some(Ok(schema)) => read.push(CrdVersion::read(version, schema, group, kind)),
        }
    }
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid_unshown(&list, detail));
    }
    read
}

impl CrdVersion {
    fn read(version: &Value, schema: Schema, group: &str, kind: &str) -> Self {
        let subresources = &version["subresources"];
        let scale = said(subresources, "scale").map(|scale| ScalePaths {
            spec_replicas: text(scale, "specReplicasPath").to_owned(),
            status_replicas: text(scale, "statusReplicasPath").to_owned(),
            selector: text(scale, "labelSelectorPath").to_owned(),
        });
        let selectable = version["selectableFields"].as_array().into_iter().flatten();
        let columns = version["additionalPrinterColumns"].as_array().into_iter().flatten();
        Self {
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
            columns: columns.map(PrinterColumn::read).collect(),
            selectable_fields: selectable
                .map(|field| text(field, "jsonPath").trim_start_matches('.').to_owned())
                .collect(),
        }
    }
}

impl PrinterColumn {
    fn read(column: &Value) -> Self {
        Self {
            name: text(column, "name").to_owned(),
            ty: text(column, "type").to_owned(),
            format: text(column, "format").to_owned(),
            description: text(column, "description").to_owned(),
            priority: column["priority"].as_i64().unwrap_or(0),
            json_path: text(column, "jsonPath").to_owned(),
        }
    }
}

/// A text field; empty if it is missing.
fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// A field that is present and not empty.
fn said<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    object.get(field).filter(|value| !value.is_null())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn definition() -> Value {
        json!({
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
                "versions": [
                    {"name": "v1", "served": true, "storage": true,
                     "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                        "spec": {"type": "object", "properties": {"size": {"type": "integer"}, "color": {"type": "string"}}},
                        "status": {"type": "object", "properties": {"size": {"type": "integer"}}}}}},
                     "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
                     "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1}],
                     "selectableFields": [{"jsonPath": ".spec.color"}]},
                    {"name": "v1alpha1", "served": false, "storage": false, "deprecated": true,
                     "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
                ],
            },
        })
    }

    #[test]
    fn a_definition_gives_everything_that_serving_needs() {
        let info = CrdInfo::parse(&definition()).unwrap();
        assert_eq!((info.group.as_str(), info.namespaced), ("example.com", true));
        assert_eq!((info.names.singular.as_str(), info.names.list_kind.as_str()), ("widget", "WidgetList"));
        let [first, second] = info.versions.as_slice() else { panic!("two versions") };
        assert!(first.served && first.storage && first.status && !second.served && !second.status);
        assert_eq!(first.scale.as_ref().unwrap().spec_replicas, ".spec.size");
        assert_eq!(first.selectable_fields, ["spec.color"]);
        assert_eq!((first.columns[0].name.as_str(), first.columns[0].priority), ("Size", 1));
        assert_eq!(
            (first.deprecation.is_none(), second.deprecation.as_deref()),
            (true, Some("example.com/v1alpha1 Widget is deprecated"))
        );
    }

    #[test]
    fn what_cannot_be_served_is_refused_at_its_field() {
        let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/color";
        for (pointer, value, field) in [
            ("/metadata/name", json!("others.example.com"), "metadata.name"),
            ("/spec/scope", json!("Everywhere"), "spec.scope"),
            ("/spec/names/kind", json!(""), "spec.names.kind"),
            ("/spec/versions/0/storage", json!(false), "spec.versions"),
            ("/spec/versions/1/name", json!("v1"), "spec.versions[1].name"),
            ("/spec/versions/1/schema", json!(null), "spec.versions[1].schema.openAPIV3Schema"),
            (schema, json!({"type": "text"}), "spec.versions[0].schema.openAPIV3Schema"),
            (schema, json!({"type": "string", "pattern": "("}), "spec.versions[0].schema.openAPIV3Schema"),
            (schema, json!({"type": "number", "multipleOf": 2}), "spec.versions[0].schema.openAPIV3Schema"),
            (
                schema,
                json!({"type": "string", "x-kubernetes-validations": [{"rule": "self =="}]}),
                "spec.versions[0].schema.openAPIV3Schema",
            ),
        ] {
            let mut definition = definition();
            *definition.pointer_mut(pointer).unwrap() = value;
            let causes = CrdInfo::parse(&definition).unwrap_err();
            let fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
            assert!(fields.contains(&field), "{pointer}: {causes:?}");
        }
    }

    proptest! {
        #[test]
        fn no_definition_makes_us_panic(schema in crate::schema::proptests::any_json(), spec in crate::schema::proptests::any_json()) {
            let mut with_schema = definition();
            with_schema["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema;
            let _ = CrdInfo::parse(&with_schema);
            let _ = CrdInfo::parse(&json!({"spec": spec}));
            let _ = CrdInfo::parse(&spec);
        }
    }
}
