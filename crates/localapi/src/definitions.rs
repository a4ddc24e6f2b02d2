//! Custom resource definitions as objects: their status, their changes, their deletion.
//!
//! A definition is served as soon as it is stored: the same write accepts its names. (In a cluster,
//! controllers do this a moment later.) Its deletion waits for its objects, which the garbage collector
//! removes.

use serde_json::{Value, json};

use crate::crd::CrdInfo;
use crate::schema::{Cause, Path};
use crate::{meta, status};

/// Keeps a definition until its objects are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Sets the status of a definition that is about to be stored. `others` are the existing definitions.
pub(crate) fn settle<'o>(
    value: &mut Value,
    old: Option<&Value>,
    others: impl Iterator<Item = &'o Value>,
    now: &str,
) {
    let mut definition_status = old.map_or_else(|| json!({}), |old| old["status"].clone());
    if !definition_status.is_object() {
        definition_status = json!({});
    }
    add_stored_version(&mut definition_status, &value["spec"]["versions"]);
    let conflict = others
        .filter(|other| meta::text(other, "name") != meta::text(value, "name"))
        .filter(|other| other["spec"]["group"] == value["spec"]["group"])
        .find_map(|other| name_conflict(&value["spec"]["names"], &other["status"]["acceptedNames"]));
    match conflict {
        None => {
            definition_status["acceptedNames"] = value["spec"]["names"].clone();
            let accepted = ("True", "NoConflicts", "no conflicts found");
            set_condition(&mut definition_status, "NamesAccepted", accepted, now);
            if !holds(&definition_status, "Established") {
                let established = ("True", "InitialNamesAccepted", "the initial names have been accepted");
                set_condition(&mut definition_status, "Established", established, now);
            }
        }
        Some((reason, message)) => {
            let refused = ("False", reason, message.as_str());
            set_condition(&mut definition_status, "NamesAccepted", refused, now);
            if !holds(&definition_status, "Established") {
                definition_status["acceptedNames"] = json!({"plural": "", "kind": ""});
                let waiting = ("False", "NotAccepted", "not all names are accepted");
                set_condition(&mut definition_status, "Established", waiting, now);
            }
        }
    }
    if let Value::Object(fields) = value {
        fields.insert("status".to_owned(), definition_status);
    }
}

fn add_stored_version(definition_status: &mut Value, versions: &Value) {
    let storage = versions.as_array().into_iter().flatten().find(|version| version["storage"] == true);
    let Some(name) = storage.map(|version| version["name"].clone()) else { return };
    match definition_status["storedVersions"].as_array_mut() {
        Some(stored) if stored.contains(&name) => {}
        Some(stored) => stored.push(name),
        None => definition_status["storedVersions"] = json!([name]),
    }
}

/// Why names cannot be used beside those of another definition.
fn name_conflict(names: &Value, taken: &Value) -> Option<(&'static str, String)> {
    let in_use =
        |name: &Value| format!("{} is already in use", status::quote(name.as_str().unwrap_or_default()));
    let resource_names = |names: &Value| {
        let short = names["shortNames"].as_array().cloned().unwrap_or_default();
        [names["plural"].clone(), names["singular"].clone()].into_iter().chain(short).collect::<Vec<_>>()
    };
    let kinds = [&taken["kind"], &taken["listKind"]];
    let taken_names = resource_names(taken);
    if taken_names.contains(&names["singular"]) {
        return Some(("SingularConflict", in_use(&names["singular"])));
    }
    let short = names["shortNames"].as_array().into_iter().flatten();
    if let Some(name) = short.clone().find(|name| taken_names.contains(name)) {
        return Some(("ShortNamesConflict", in_use(name)));
    }
    if kinds.contains(&&names["kind"]) {
        return Some(("KindConflict", in_use(&names["kind"])));
    }
    if kinds.contains(&&names["listKind"]) {
        return Some(("ListKindConflict", in_use(&names["listKind"])));
    }
    None
}

/// Whether a condition is true.
pub(crate) fn holds(definition_status: &Value, kind: &str) -> bool {
    let conditions = definition_status["conditions"].as_array().into_iter().flatten();
    conditions.filter(|one| one["type"] == kind).any(|one| one["status"] == "True")
}

/// Sets a condition; its transition time moves only with its status.
fn set_condition(
    definition_status: &mut Value,
    kind: &str,
    (state, reason, message): (&str, &str, &str),
    now: &str,
) {
    if !definition_status["conditions"].is_array() {
        definition_status["conditions"] = json!([]);
    }
    let Some(conditions) = definition_status["conditions"].as_array_mut() else { return };
    let mut condition = json!({
        "type": kind, "status": state, "lastTransitionTime": now, "reason": reason, "message": message,
    });
    match conditions.iter_mut().find(|one| one["type"] == kind) {
        Some(existing) => {
            if existing["status"] == state {
                condition["lastTransitionTime"] = existing["lastTransitionTime"].clone();
            }
            *existing = condition;
        }
        None => conditions.push(condition),
    }
}

/// Why a definition, or a change of one, is refused.
pub(crate) fn validate(value: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = CrdInfo::parse(value).err().unwrap_or_default();
    let Some(old) = old else { return causes };
    let stored = old["status"]["storedVersions"].as_array().into_iter().flatten();
    let declared = value["spec"]["versions"].as_array().into_iter().flatten();
    let declared: Vec<&Value> = declared.map(|version| &version["name"]).collect();
    for (index, version) in stored.enumerate().filter(|(_, version)| !declared.contains(version)) {
        let name = version.as_str().unwrap_or_default();
        causes.push(Cause::invalid_text(
            &Path::Text("status.storedVersions").index(index),
            name,
            &format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            ),
        ));
    }
    let established = holds(&old["status"], "Established");
    let fixed: &[(&str, &str)] = if established {
        &[
            ("spec.group", "/spec/group"),
            ("spec.scope", "/spec/scope"),
            ("spec.names.kind", "/spec/names/kind"),
            ("spec.names.plural", "/spec/names/plural"),
        ]
    } else {
        &[("spec.group", "/spec/group"), ("spec.names.plural", "/spec/names/plural")]
    };
    for (path, pointer) in fixed {
        let (new, old) = (value.pointer(pointer), old.pointer(pointer));
        if new != old {
            causes.push(Cause::invalid(&Path::Text(path), new.unwrap_or(&Value::Null), "field is immutable"));
        }
    }
    causes
}

/// Marks a definition as being deleted.
pub(crate) fn begin_deletion(value: &mut Value, now: &str) {
    meta::set(value, "deletionTimestamp", json!(now));
    if !meta::finalizers(value).contains(&CLEANUP) {
        let mut finalizers: Vec<String> = meta::finalizers(value).into_iter().map(str::to_owned).collect();
        finalizers.push(CLEANUP.to_owned());
        meta::set_finalizers(value, &finalizers);
    }
    let pending = (
        "True",
        "InstanceDeletionPending",
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    );
    if let Some(definition_status) = value.get_mut("status") {
        set_condition(definition_status, "Terminating", pending, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(plural: &str, kind: &str) -> Value {
        json!({
            "metadata": {"name": format!("{plural}.example.com")},
            "spec": {
                "group": "example.com",
                "names": {"plural": plural, "singular": plural, "kind": kind, "listKind": format!("{kind}List")},
                "versions": [{"name": "v1", "served": true, "storage": true}],
            },
        })
    }

    #[test]
    fn a_definition_is_established_by_the_write_that_stores_it() {
        let mut value = definition("widgets", "Widget");
        settle(&mut value, None, std::iter::empty(), "2026-01-01T00:00:00Z");
        assert!(holds(&value["status"], "Established") && holds(&value["status"], "NamesAccepted"));
        assert_eq!(value["status"]["storedVersions"], json!(["v1"]));
        assert_eq!(value["status"]["acceptedNames"]["kind"], "Widget");
    }

    #[test]
    fn a_kind_that_is_taken_in_the_group_keeps_a_definition_from_being_served() {
        let mut first = definition("widgets", "Widget");
        settle(&mut first, None, std::iter::empty(), "2026-01-01T00:00:00Z");
        let mut second = definition("gadgets", "Widget");
        settle(&mut second, None, std::iter::once(&first), "2026-01-01T00:00:00Z");
        assert!(!holds(&second["status"], "Established"));
        let names = &second["status"]["conditions"][0];
        assert_eq!(
            (&names["reason"], &names["message"]),
            (&json!("KindConflict"), &json!("\"Widget\" is already in use"))
        );
    }

    #[test]
    fn a_new_storage_version_is_remembered_beside_the_old_one() {
        let mut first = definition("widgets", "Widget");
        settle(&mut first, None, std::iter::empty(), "2026-01-01T00:00:00Z");
        let mut second = definition("widgets", "Widget");
        second["spec"]["versions"] =
            json!([{"name": "v1", "storage": false}, {"name": "v2", "storage": true}]);
        settle(&mut second, Some(&first), std::iter::once(&first), "2026-02-01T00:00:00Z");
        assert_eq!(second["status"]["storedVersions"], json!(["v1", "v2"]));
        assert_eq!(second["status"]["conditions"][0]["lastTransitionTime"], "2026-01-01T00:00:00Z");
    }
}
