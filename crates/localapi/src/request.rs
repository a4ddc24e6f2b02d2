//! A parsed request: its path, its parameters, the requested form of the answer.
//!
//! It only parses: nothing here knows which resources exist.

use http::{HeaderMap, Method, header};

use crate::status::Status;

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Something that is no resource: discovery, health, `OpenAPI`. Its segments.
    Other(Vec<String>),
    /// A collection, an object or a part of one.
    Resource(ResourcePath),
}

/// A place in the tree of resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    /// The API group; empty for the core group.
    pub(crate) group: String,
    /// The API version.
    pub(crate) version: String,
    /// The namespace; empty if the path has none.
    pub(crate) namespace: String,
    /// The resource, in plural.
    pub(crate) resource: String,
    /// The object's name; empty for the collection.
    pub(crate) name: String,
    /// The subresource; empty for the object itself.
    pub(crate) subresource: String,
    /// Further segments, which name nothing.
    pub(crate) beyond: bool,
}

impl Target {
    /// Reads a path.
    pub(crate) fn parse(path: &str) -> Self {
        let segments: Vec<String> =
            path.trim_matches('/').split('/').filter(|segment| !segment.is_empty()).map(decode).collect();
        let (group, rest) = match segments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["api", _, _, ..] => (String::new(), 1),
            ["apis", group, _, _, ..] => ((*group).to_owned(), 2),
            _ => return Self::Other(segments),
        };
        let mut parts = segments.into_iter().skip(rest);
        let version = parts.next().unwrap_or_default();
        let mut parts: Vec<String> = parts.collect();
        let mut namespace = String::new();
        // `namespaces/x/status` is the namespace's own status, `namespaces/x/pods` are the pods in it.
        if parts.len() >= 3 && parts[0] == "namespaces" && parts[2] != "status" {
            namespace = parts.drain(..2).next_back().unwrap_or_default();
        }
        let mut parts = parts.into_iter();
        Self::Resource(ResourcePath {
            group,
            version,
            namespace,
            resource: parts.next().unwrap_or_default(),
            name: parts.next().unwrap_or_default(),
            subresource: parts.next().unwrap_or_default(),
            beyond: parts.next().is_some(),
        })
    }
}

/// The operation at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    /// The verb of a request; `None` for unknown methods.
    pub(crate) fn of(method: &Method, place: &ResourcePath, query: &Query) -> Option<Self> {
        let named = !place.name.is_empty();
        Some(match (method.as_str(), named) {
            ("GET" | "HEAD", true) => Self::Get,
            ("GET" | "HEAD", false) if query.flag("watch") => Self::Watch,
            ("GET" | "HEAD", false) => Self::List,
            ("POST", _) => Self::Create,
            ("PUT", _) => Self::Update,
            ("PATCH", _) => Self::Patch,
            ("DELETE", true) => Self::Delete,
            ("DELETE", false) => Self::DeleteCollection,
            _ => return None,
        })
    }

    /// Its name in messages and discovery.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

/// The parameters after the question mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses the parameters.
    pub(crate) fn parse(query: Option<&str>) -> Self {
        let pair = |pair: &str| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(&key.replace('+', " ")), decode(&value.replace('+', " ")))
        };
        Self(query.unwrap_or("").split('&').filter(|text| !text.is_empty()).map(pair).collect())
    }

    /// The first value of `key`; empty if it is missing.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.0.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value)
    }

    /// Every value of `key`.
    pub(crate) fn all(&self, key: &str) -> Vec<&str> {
        self.0.iter().filter(|(name, _)| name == key).map(|(_, value)| value.as_str()).collect()
    }

    /// Whether `key` is present.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(name, _)| name == key)
    }

    /// A boolean: present, and neither `false` nor `0`.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.tristate(key).unwrap_or(false)
    }

    /// A boolean that may be missing.
    pub(crate) fn tristate(&self, key: &str) -> Option<bool> {
        let value = self.has(key).then(|| self.text(key).to_ascii_lowercase())?;
        Some(value != "false" && value != "0")
    }

    /// A whole number, if given.
    pub(crate) fn number(&self, key: &str) -> Result<Option<i64>, Status> {
        if !self.has(key) {
            return Ok(None);
        }
        let text = self.text(key);
        text.parse().map(Some).map_err(|error: std::num::ParseIntError| {
            let what = match error.kind() {
                std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => {
                    "value out of range"
                }
                _ => "invalid syntax",
            };
            Status::bad_request(format!("strconv.ParseInt: parsing {}: {what}", crate::status::quote(text)))
        })
    }
}

/// Decodes percent-encoding; invalid UTF-8 becomes replacement characters, which no name has.
fn decode(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let hex = |offset: usize| bytes.get(at + offset).and_then(|digit| (*digit as char).to_digit(16));
        if let (b'%', Some(high), Some(low)) = (byte, hex(1), hex(2)) {
            decoded.push(u8::try_from(high * 16 + low).unwrap_or_default());
            at += 3;
        } else {
            decoded.push(byte);
            at += 1;
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// The requested form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The object itself.
    Plain,
    /// A table for people.
    Table,
    /// Only the metadata.
    Metadata,
    /// A list of metadata.
    MetadataList,
}

/// One alternative of an `Accept` header.
struct Clause<'h> {
    media: &'h str,
    parameters: Vec<(&'h str, &'h str)>,
    weight: f32,
}

const JSON: &str = "application/json";

impl Form {
    /// The first form of the `Accept` header that is known.
    pub(crate) fn negotiate(headers: &HeaderMap) -> Result<Self, Status> {
        let mut texts = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let Some(first) = texts.next().filter(|text| !text.is_empty()) else { return Ok(Self::Plain) };
        let mut clauses: Vec<Clause<'_>> = first.split(',').map(Clause::parse).collect();
        clauses.sort_by(|a, b| b.weight.total_cmp(&a.weight));
        clauses
            .iter()
            .filter(|clause| ["*/*", "application/*", JSON].contains(&clause.media))
            .find_map(Clause::form)
            .ok_or_else(|| Status::not_acceptable(&[JSON]))
    }
}

impl<'h> Clause<'h> {
    fn parse(text: &'h str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let mut weight = 1.0;
        let mut parameters = Vec::new();
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let (key, value) = (key.trim(), value.trim().trim_matches('"'));
            if key == "q" {
                weight = value.parse().unwrap_or(1.0);
            } else {
                parameters.push((key, value));
            }
        }
        Self { media, parameters, weight }
    }

    fn parameter(&self, key: &str) -> &str {
        self.parameters.iter().find(|(name, _)| *name == key).map_or("", |(_, value)| value)
    }

    fn form(&self) -> Option<Form> {
        match (self.parameter("g"), self.parameter("v"), self.parameter("as")) {
            ("", _, "") => Some(Form::Plain),
            ("meta.k8s.io", "v1", "Table") => Some(Form::Table),
            ("meta.k8s.io", "v1", "PartialObjectMetadata") => Some(Form::Metadata),
            ("meta.k8s.io", "v1", "PartialObjectMetadataList") => Some(Form::MetadataList),
            _ => None,
        }
    }
}

/// The media type of a body, without its parameters; JSON if none is given.
pub(crate) fn content_type(headers: &HeaderMap) -> String {
    let text = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let media = text.split(';').next().unwrap_or("").trim();
    if media.is_empty() { JSON.to_owned() } else { media.to_ascii_lowercase() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str) -> ResourcePath {
        match Target::parse(path) {
            Target::Resource(place) => place,
            Target::Other(other) => panic!("{path} is {other:?}"),
        }
    }

    #[test]
    fn paths_name_places() {
        let at = |group: &str, namespace: &str, resource: &str, name: &str, subresource: &str| ResourcePath {
            group: group.into(),
            version: "v1".into(),
            namespace: namespace.into(),
            resource: resource.into(),
            name: name.into(),
            subresource: subresource.into(),
            beyond: false,
        };
        assert_eq!(place("/api/v1/pods"), at("", "", "pods", "", ""));
        assert_eq!(place("/api/v1/namespaces/a/pods/b/status"), at("", "a", "pods", "b", "status"));
        assert_eq!(place("/api/v1/namespaces/a"), at("", "", "namespaces", "a", ""));
        assert_eq!(place("/api/v1/namespaces/a/status"), at("", "", "namespaces", "a", "status"));
        assert_eq!(place("/apis/apps/v1/namespaces/a/deployments/"), at("apps", "a", "deployments", "", ""));
        assert_eq!(place("/apis/x.y/v1/things/a%20b"), at("x.y", "", "things", "a b", ""));
        assert!(place("/api/v1/namespaces/a/pods/b/status/c").beyond);
        assert_eq!(Target::parse("/api/v1"), Target::Other(vec!["api".into(), "v1".into()]));
        assert_eq!(Target::parse("/"), Target::Other(vec![]));
    }

    #[test]
    fn parameters_are_read_as_go_reads_them() {
        let query = Query::parse(Some("watch=1&limit=x&a=b%2Cc+d&flag&no=false"));
        assert!(query.flag("watch") && query.flag("flag") && !query.flag("no") && !query.flag("absent"));
        assert_eq!(query.text("a"), "b,c d");
        assert_eq!(
            query.number("limit").unwrap_err().message,
            "strconv.ParseInt: parsing \"x\": invalid syntax"
        );
        assert_eq!(query.number("absent").unwrap(), None);
    }

    #[test]
    fn the_accept_header_chooses_the_form() {
        let negotiate = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            Form::negotiate(&headers)
        };
        assert_eq!(
            negotiate("application/json;as=Table;v=v1;g=meta.k8s.io,application/json").unwrap(),
            Form::Table
        );
        assert_eq!(negotiate("application/vnd.kubernetes.protobuf, application/json").unwrap(), Form::Plain);
        assert_eq!(negotiate("*/*").unwrap(), Form::Plain);
        assert_eq!(
            negotiate("application/json;q=0.2, application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
                .unwrap(),
            Form::Metadata
        );
        assert_eq!(negotiate("application/yaml").unwrap_err().code, 406);
    }
}
