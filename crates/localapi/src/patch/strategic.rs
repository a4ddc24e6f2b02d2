//! Strategic merge patch: a merge patch that knows which lists are sets and which are keyed.
//!
//! Owns the table of merge keys of the built-in kinds and the directives `$patch`, `$retainKeys`,
//! `$setElementOrder/FIELD` and `$deleteFromPrimitiveList/FIELD`.

use serde_json::{Map, Value};

use super::{PatchError, without_nulls};
use crate::schema::wording::plain;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const ELEMENT_ORDER: &str = "$setElementOrder";
const DELETE_PRIMITIVES: &str = "$deleteFromPrimitiveList";

/// Applies a strategic merge patch to an object of a built-in kind, or leaves the object as it was.
pub(crate) fn strategic_merge(kind: &str, target: &mut Value, patch: &Value) -> Result<(), PatchError> {
    let (Value::Object(fields), Value::Object(changes)) = (&*target, patch) else {
        return Err(PatchError::Malformed("invalid JSON document".to_owned()));
    };
    let merged = merge_map(fields.clone(), changes.clone(), &Place { kind, parent: "" })?;
    *target = Value::Object(merged);
    Ok(())
}

/// Where in an object the merge is: the kind and the name of the surrounding field, enough to tell apart the
/// few field names that mean two things.
#[derive(Clone, Copy)]
struct Place<'a> {
    kind: &'a str,
    parent: &'a str,
}

/// How a list is patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListRule {
    /// The patch's list replaces the object's.
    Atomic,
    /// Scalars, united.
    Set,
    /// Objects with the same value of this key are merged.
    Keyed(&'static str),
}

impl Place<'_> {
    fn list(&self, field: &str) -> ListRule {
        match field {
            "finalizers" | "podCIDRs" => ListRule::Set,
            "ownerReferences" => ListRule::Keyed("uid"),
            "conditions" | "addresses" => ListRule::Keyed("type"),
            "containers"
            | "initContainers"
            | "ephemeralContainers"
            | "env"
            | "volumes"
            | "imagePullSecrets"
            | "resourceClaims"
            | "resourceClaimStatuses"
            | "schedulingGates"
            | "allocatedResourcesStatus" => ListRule::Keyed("name"),
            "secrets" if self.kind == "ServiceAccount" => ListRule::Keyed("name"),
            "ports" if self.kind == "Service" && self.parent == "spec" => ListRule::Keyed("port"),
            "ports" if matches!(self.parent, "containers" | "initContainers" | "ephemeralContainers") => {
                ListRule::Keyed("containerPort")
            }
            "volumeMounts" => ListRule::Keyed("mountPath"),
            "volumeDevices" => ListRule::Keyed("devicePath"),
            "hostAliases" | "podIPs" | "hostIPs" => ListRule::Keyed("ip"),
            "topologySpreadConstraints" => ListRule::Keyed("topologyKey"),
            _ => ListRule::Atomic,
        }
    }

    /// Whether an object field is replaced instead of merged.
    fn replaces_map(&self, field: &str) -> bool {
        self.kind == "PodDisruptionBudget" && field == "selector"
    }
}

type Fields = Map<String, Value>;

fn merge_map(mut original: Fields, mut patch: Fields, place: &Place<'_>) -> Result<Fields, PatchError> {
    if let Some(directive) = patch.remove(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => Ok(patch),
            Some("delete") => Ok(Map::new()),
            _ => {
                let shown = plain(&directive);
                patch.insert(DIRECTIVE.to_owned(), directive);
                Err(unknown_directive(&shown, &Value::Object(patch)))
            }
        };
    }
    retain_keys(&mut original, &mut patch)?;
    let orders: Vec<String> = patch.keys().filter(|k| k.starts_with(ELEMENT_ORDER)).cloned().collect();
    for key in orders {
        let order = patch.remove(&key).unwrap_or_default();
        merge_ordered(&mut original, &mut patch, &key, &order, place)?;
    }
    for (key, change) in patch {
        let (key, deletes) = match key.strip_prefix(DELETE_PRIMITIVES) {
            Some(rest) => match rest.strip_prefix('/') {
                Some(field) if !field.is_empty() => (field.to_owned(), true),
                _ => return Err(malformed("invalid patch format of primitive list")),
            },
            None => (key, false),
        };
        if change.is_null() {
            original.remove(&key);
            continue;
        }
        let merged = match (original.remove(&key), change) {
            (None, _) if deletes => None,
            (None, change) => without_directives(without_nulls(&change)),
            (Some(Value::Object(current)), Value::Object(change)) if !place.replaces_map(&key) => {
                let inner = Place { kind: place.kind, parent: &key };
                Some(Value::Object(merge_map(current, change, &inner)?))
            }
            (Some(Value::Array(current)), Value::Array(change)) => {
                Some(Value::Array(merge_list(current, change, place, &key, deletes)?))
            }
            (current, _) if deletes => current,
            (Some(Value::Array(_) | Value::Object(_)), change) => without_directives(without_nulls(&change)),
            (Some(_), change) => without_directives(change),
        };
        if let Some(merged) = merged {
            original.insert(key, merged);
        }
    }
    Ok(original)
}

fn retain_keys(original: &mut Fields, patch: &mut Fields) -> Result<(), PatchError> {
    let Some(retained) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let bad = || malformed("invalid patch format of retainKeys");
    let Value::Array(retained) = retained else { return Err(bad()) };
    let has = |key: &str| retained.iter().any(|v| v.as_str() == Some(key));
    let stray = patch.iter().any(|(key, value)| {
        !value.is_null()
            && !key.starts_with(DELETE_PRIMITIVES)
            && !key.starts_with(ELEMENT_ORDER)
            && !has(key)
    });
    if stray {
        return Err(bad());
    }
    original.retain(|key, _| has(key));
    Ok(())
}

/// Merges the list that a `$setElementOrder` directive orders, and takes it out of the patch.
fn merge_ordered(
    original: &mut Fields,
    patch: &mut Fields,
    directive: &str,
    order: &Value,
    place: &Place<'_>,
) -> Result<(), PatchError> {
    let bad = || malformed("invalid patch format of setElementOrder list");
    let field = directive.strip_prefix(ELEMENT_ORDER).and_then(|r| r.strip_prefix('/')).ok_or_else(bad)?;
    let Value::Array(order) = order else { return Err(bad()) };
    let list = |value: Option<Value>| match value {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(other) => {
            Err(PatchError::Unclassified(format!("expected a []interface {{}}, but received {other}")))
        }
    };
    let current = list(original.get(field).cloned())?;
    let change = list(patch.get(field).cloned())?;
    let rule = place.list(field);
    if let Some(change) = &change {
        check_order(change, order, rule)?;
    }
    let before = current.clone().unwrap_or_default();
    let merged = match (current, change) {
        (None, None) => return Ok(()),
        (Some(current), None) => current,
        (None, Some(change)) => match without_directives(Value::Array(change)) {
            Some(Value::Array(items)) => items,
            _ => return Ok(()),
        },
        (Some(current), Some(change)) => merge_list(current, change, place, field, false)?,
    };
    patch.remove(field);
    original.insert(field.to_owned(), Value::Array(arrange(merged, order, &before, rule)?));
    Ok(())
}

/// The items of the patch must appear in the order list, in the same sequence.
fn check_order(change: &[Value], order: &[Value], rule: ListRule) -> Result<(), PatchError> {
    if change.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut wanted = change.iter().filter(|item| item.get(DIRECTIVE).is_none()).peekable();
    for element in order {
        if let Some(item) = wanted.peek()
            && same(item, element, rule)?
        {
            wanted.next();
        }
    }
    if wanted.peek().is_none() {
        return Ok(());
    }
    let (change, order) = (Value::from(change.to_vec()), Value::from(order.to_vec()));
    Err(PatchError::Unclassified(format!(
        "The order in patch list:\n{}\n doesn't match {ELEMENT_ORDER} list:\n{}\n",
        plain(&change),
        plain(&order)
    )))
}

fn merge_list(
    current: Vec<Value>,
    change: Vec<Value>,
    place: &Place<'_>,
    field: &str,
    deletes: bool,
) -> Result<Vec<Value>, PatchError> {
    if deletes {
        return Ok(current.into_iter().filter(|item| !change.contains(item)).collect());
    }
    if current.iter().chain(&change).any(Value::is_array) && place.list(field) != ListRule::Atomic {
        return Err(PatchError::Unfit("lists of lists are not supported".to_owned()));
    }
    match place.list(field) {
        ListRule::Atomic => Ok(change),
        ListRule::Set => {
            let before = current.clone();
            let mut merged: Vec<Value> = Vec::with_capacity(current.len() + change.len());
            for item in current.into_iter().chain(change.iter().cloned()) {
                if !merged.contains(&item) {
                    merged.push(item);
                }
            }
            arrange(merged, &change, &before, ListRule::Set)
        }
        ListRule::Keyed(key) => {
            let inner = Place { kind: place.kind, parent: field };
            merge_keyed(current, change, &inner, key)
        }
    }
}

fn merge_keyed(
    mut current: Vec<Value>,
    change: Vec<Value>,
    place: &Place<'_>,
    key: &'static str,
) -> Result<Vec<Value>, PatchError> {
    let mut plain = Vec::new();
    let mut replace = false;
    for item in change {
        match item.get(DIRECTIVE).map(|d| d.as_str().unwrap_or_default()) {
            None => plain.push(item),
            Some("delete") => {
                let value = key_of(&item, key)?;
                current.retain(|c| c.get(key) != Some(value));
            }
            Some("replace") => replace = true,
            Some("merge") => {
                let message = "merging lists cannot yet be specified in the patch";
                return Err(PatchError::Unclassified(message.to_owned()));
            }
            Some(other) => return Err(unknown_directive(other, &item)),
        }
    }
    if replace {
        return Ok(plain);
    }
    let before = current.clone();
    for item in &plain {
        let value = key_of(item, key)?;
        let found = current.iter_mut().find(|c| c.get(key) == Some(value));
        match (found, item) {
            (Some(slot), Value::Object(change)) => {
                if let Value::Object(fields) = std::mem::take(slot) {
                    *slot = Value::Object(merge_map(fields, change.clone(), place)?);
                }
            }
            _ => current.push(item.clone()),
        }
    }
    arrange(current, &plain, &before, ListRule::Keyed(key))
}

/// Sorts a merged list: what the patch names in the patch's order, what only the server has in its old order,
/// the two interleaved by the old order.
fn arrange(
    merged: Vec<Value>,
    order: &[Value],
    before: &[Value],
    rule: ListRule,
) -> Result<Vec<Value>, PatchError> {
    let position = |item: &Value, list: &[Value]| -> Result<Option<usize>, PatchError> {
        for (index, other) in list.iter().enumerate() {
            if same(item, other, rule)? {
                return Ok(Some(index));
            }
        }
        Ok(None)
    };
    let mut named = Vec::new();
    let mut others = Vec::new();
    for item in merged {
        let old = position(&item, before)?;
        match position(&item, order)? {
            Some(place) => named.push((place, old, item)),
            None => others.push((old.unwrap_or(usize::MAX), old, item)),
        }
    }
    named.sort_by_key(|(place, _, _)| *place);
    others.sort_by_key(|(place, _, _)| *place);
    let mut out = Vec::with_capacity(named.len() + others.len());
    let mut named = named.into_iter().peekable();
    let mut others = others.into_iter().peekable();
    loop {
        let first = match (named.peek(), others.peek()) {
            (None, None) => return Ok(out),
            (None, Some(_)) => false,
            (Some((_, Some(a), _)), Some((_, Some(b), _))) => a < b,
            _ => true,
        };
        let next = if first { named.next() } else { others.next() };
        out.extend(next.map(|(_, _, item)| item));
    }
}

fn same(left: &Value, right: &Value, rule: ListRule) -> Result<bool, PatchError> {
    match rule {
        ListRule::Keyed(key) => Ok(key_of(left, key)? == key_of(right, key)?),
        _ => Ok(left == right),
    }
}

fn key_of<'a>(item: &'a Value, key: &str) -> Result<&'a Value, PatchError> {
    item.get(key).ok_or_else(|| {
        PatchError::Unclassified(format!("map: {} does not contain declared merge key: {key}", plain(item)))
    })
}

/// A value as it is stored when there was none before: objects that carry a directive are left out.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => Some(Value::Object(
            fields.into_iter().filter_map(|(k, v)| without_directives(v).map(|v| (k, v))).collect(),
        )),
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        other => Some(other),
    }
}

fn unknown_directive(directive: &str, item: &Value) -> PatchError {
    PatchError::Unclassified(format!("unknown patch type: {directive} in map: {}", plain(item)))
}

fn malformed(message: &str) -> PatchError {
    PatchError::Malformed(message.to_owned())
}
