//! Objects that others write, read one by one.
//!
//! A typed list fails as a whole if one of its objects does not have the expected form, so one such object
//! could keep everybody from reading all others. [`Read`] replaces a kind `K` in `Api<Read<K>>`: reading
//! never fails because of an object's content, and an object of another form becomes [`Read::Unreadable`],
//! with its metadata and the reason.
//!
//! It promises that an unreadable object still *exists*. Its metadata are available, so nobody needs to treat
//! it as absent. Code that frees something because an object is absent must check for both.
//!
//! Objects can be nested without limit, and parsers stop at some depth. Below [`DEPTH`] levels nothing is
//! read, because no kind that we read is so deep. The server's notes about who wrote which field are left
//! out: nobody here reads them, and they can be larger than the object.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

/// Deeper than any field that we read.
const DEPTH: usize = 32;
/// The server's notes about who wrote which field.
const MANAGED: &str = "managedFields";
/// How many fields are left out, one after the other, to find the wrong one.
const ATTEMPTS: usize = 64;
/// A reason is cut after this many characters: it quotes what somebody wrote.
const WORDS: usize = 300;

/// An object as a server returns it.
#[derive(Clone, Debug, PartialEq)]
pub enum Read<K> {
    /// It has the form of its kind.
    Is(K),
    /// It exists, and has another form.
    Unreadable(Box<Unreadable>),
}

/// An object that does not have the form of its kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Unreadable {
    /// Its metadata; if they cannot be read, only name, namespace, UID and version.
    pub metadata: ObjectMeta,
    /// Which field is wrong, its value, and what would be accepted.
    pub why: String,
    fields: Map<String, Value>,
}

impl<K> Read<K> {
    /// The object, if it can be read.
    pub fn is(self) -> Option<K> {
        match self {
            Self::Is(object) => Some(object),
            Self::Unreadable(_) => None,
        }
    }

    /// The object, or why it cannot be read.
    pub fn as_result(&self) -> Result<&K, &Unreadable> {
        match self {
            Self::Is(object) => Ok(object),
            Self::Unreadable(unreadable) => Err(unreadable),
        }
    }
}

impl<K: DeserializeOwned> Read<K> {
    fn of(value: Value) -> Self {
        match K::deserialize(&value) {
            Ok(object) => Self::Is(object),
            Err(error) => {
                let why = explain::<K>(&value, &error.to_string());
                let metadata = value.get("metadata").map(metadata_of).unwrap_or_default();
                let fields = if let Value::Object(fields) = value { fields } else { Map::new() };
                Self::Unreadable(Box::new(Unreadable { metadata, why, fields }))
            }
        }
    }
}

impl Unreadable {
    /// The object without these fields, if that is readable.
    pub fn without<K: DeserializeOwned>(&self, fields: &[&str]) -> Option<K> {
        let mut rest = self.fields.clone();
        rest.retain(|name, _| !fields.contains(&name.as_str()));
        K::deserialize(&Value::Object(rest)).ok()
    }

    /// Its UID.
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.metadata.namespace {
            Some(namespace) => write!(f, "{namespace}/{} cannot be read: {}", self.name(), self.why),
            None => write!(f, "{} cannot be read: {}", self.name(), self.why),
        }
    }
}

/// Metadata, or their most important fields.
fn metadata_of(value: &Value) -> ObjectMeta {
    ObjectMeta::deserialize(value).unwrap_or_else(|_| {
        let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        }
    })
}

/// Names the field of an error: the innermost one without which there is another error, or none.
fn explain<K: DeserializeOwned>(value: &Value, error: &str) -> String {
    let (mut path, mut left) = (Vec::<String>::new(), ATTEMPTS);
    let mut rest = value.clone();
    while let Some(Value::Object(fields)) = at(&mut rest, &path) {
        let names: Vec<String> = fields.keys().take(left).cloned().collect();
        left -= names.len();
        let guilty = names.into_iter().find(|name| {
            let Some(Value::Object(fields)) = at(&mut rest, &path) else { return false };
            let Some(taken) = fields.remove(name) else { return false };
            let matters = K::deserialize(&rest).err().is_none_or(|other| other.to_string() != error);
            // A required field is wrong if its absence gives a different error.
            if let Some(Value::Object(fields)) = at(&mut rest, &path) {
                fields.insert(name.clone(), taken);
            }
            matters
        });
        let Some(guilty) = guilty else { break };
        path.push(guilty);
    }
    let words: String = error.chars().take(WORDS).collect();
    if path.is_empty() { words } else { format!("{}: {words}", path.join(".")) }
}

fn at<'a>(value: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    path.iter().try_fold(value, |value, name| value.get_mut(name))
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Read<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::of(Shallow { left: DEPTH }.deserialize(deserializer)?))
    }
}

impl<K: Serialize> Serialize for Read<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Is(object) => object.serialize(serializer),
            Self::Unreadable(unreadable) => unreadable.fields.serialize(serializer),
        }
    }
}

impl<K: Resource> Resource for Read<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dynamic)
    }

    fn group(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dynamic)
    }

    fn version(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dynamic)
    }

    fn plural(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dynamic)
    }

    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Is(object) => object.meta(),
            Self::Unreadable(unreadable) => &unreadable.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Is(object) => object.meta_mut(),
            Self::Unreadable(unreadable) => &mut unreadable.metadata,
        }
    }
}

/// A value up to the depth that anyone reads.
#[derive(Clone, Copy)]
struct Shallow {
    left: usize,
}

impl Shallow {
    fn inner(self) -> Self {
        Self { left: self.left.saturating_sub(1) }
    }
}

impl<'de> DeserializeSeed<'de> for Shallow {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        if self.left == 0 {
            // Skipped without recursion, however deep it is.
            deserializer.deserialize_ignored_any(IgnoredAny).map(|IgnoredAny| Value::Null)
        } else {
            deserializer.deserialize_any(self)
        }
    }
}

impl<'de> Visitor<'de> for Shallow {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = seq.next_element_seed(self.inner())? {
            all.push(item);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            if name == MANAGED {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = map.next_value_seed(self.inner())?;
            all.insert(name, value);
        }
        Ok(Value::Object(all))
    }
}

#[cfg(test)]
mod tests;
