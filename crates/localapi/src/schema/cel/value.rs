//! Values of expressions. Objects and lists of the validated resource are looked at in place, through their
//! schema; only what an expression makes itself is owned.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::LazyLock;

use jiff::{SignedDuration, Timestamp};
use kube_cel::cel;
use serde_json::Value;

use super::super::correlate::composite_key;
use super::super::format;
use super::super::node::{ListType, Node};
use super::super::wording::{self, GoNumber};
use super::EvalError;
use super::escape::{escape, unescape};

/// A value.
#[derive(Clone, Debug)]
pub(in crate::schema) enum Val<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Cow<'a, str>),
    Bytes(Rc<[u8]>),
    Duration(SignedDuration),
    Timestamp(Timestamp),
    List(List<'a>),
    Map(Map<'a>),
    Optional(Option<Rc<Val<'a>>>),
    Type(&'static str),
    Ip(IpAddr),
    Cidr(IpAddr, u8),
    /// A value of one of kube-cel's own types: a quantity, a URL, a version.
    Foreign(cel::Value),
}

/// A list: of the resource, or made by an expression.
#[derive(Clone, Debug)]
pub(in crate::schema) struct List<'a> {
    items: Items<'a>,
    /// The schema of the list, if it came from the resource.
    node: Option<&'a Node>,
}

#[derive(Clone, Debug)]
enum Items<'a> {
    Json(&'a [Value]),
    Owned(Rc<Vec<Val<'a>>>),
}

/// A map: an object of the resource, or made by an expression.
#[derive(Clone, Debug)]
pub(in crate::schema) enum Map<'a> {
    /// An object, its schema, and whether it is a resource (so that it has `metadata`).
    Json(&'a serde_json::Map<String, Value>, &'a Node, bool),
    /// Entries in the order in which they were made.
    Owned(Rc<Vec<(Val<'a>, Val<'a>)>>),
}

/// What every resource has, whatever its schema says.
struct ResourceNodes {
    text: Node,
    metadata: Node,
}

static RESOURCE: LazyLock<ResourceNodes> = LazyLock::new(|| {
    let text = || Node { ty: "string".to_owned(), ..Node::default() };
    let mut metadata = Node { ty: "object".to_owned(), ..Node::default() };
    metadata.properties.insert("name".to_owned(), text());
    metadata.properties.insert("generateName".to_owned(), text());
    ResourceNodes { text: text(), metadata }
});

impl<'a> Val<'a> {
    /// Looks at a part of the resource through its schema.
    pub(in crate::schema) fn of(value: &'a Value, node: &'a Node, resource: bool) -> Result<Self, EvalError> {
        let wrong = |wanted: &str| {
            let found = match value {
                Value::Null => "<nil>",
                Value::Bool(_) => "bool",
                Value::String(_) => "string",
                Value::Number(number) => match GoNumber::of(number) {
                    GoNumber::Int(_) => "int64",
                    GoNumber::Float(_) => "float64",
                },
                Value::Array(_) => "[]interface {}",
                Value::Object(_) => "map[string]interface {}",
            };
            Err(EvalError::new(format!("invalid data, expected {wanted}, got {found}")))
        };
        if value.is_null() {
            return if node.nullable {
                Ok(Self::Null)
            } else {
                Err(EvalError::new("invalid data, got null for schema with nullable=false"))
            };
        }
        if node.int_or_string {
            return match value {
                Value::String(text) => Ok(Self::Text(Cow::Borrowed(text))),
                Value::Number(number) if number.is_i64() => Ok(Self::Int(number.as_i64().unwrap_or(0))),
                _ => Err(EvalError::new(
                    "invalid data, expected XIntOrString value to be either a string or integer",
                )),
            };
        }
        match (node.ty.as_str(), value) {
            ("object", Value::Object(fields)) => {
                Ok(Self::Map(Map::Json(fields, node, resource || node.embedded)))
            }
            ("object", _) => {
                Err(EvalError::new("invalid data, expected a map for the provided schema with type=object"))
            }
            ("array", Value::Array(items)) => {
                Ok(Self::List(List { items: Items::Json(items), node: Some(node) }))
            }
            ("array", _) => {
                Err(EvalError::new("invalid data, expected an array for the provided schema with type=array"))
            }
            ("string", Value::String(text)) => Self::of_text(text, &node.format_name),
            ("string", _) => wrong("string"),
            ("number", Value::Number(number)) => Ok(Self::Double(GoNumber::of(number).as_f64())),
            ("number", _) => wrong("float"),
            ("integer", Value::Number(number)) if number.is_i64() => {
                Ok(Self::Int(number.as_i64().unwrap_or(0)))
            }
            ("integer", _) => wrong("int"),
            ("boolean", Value::Bool(flag)) => Ok(Self::Bool(*flag)),
            ("boolean", _) => wrong("bool"),
            (other, _) => Err(EvalError::new(format!(
                "invalid type, expected object, array, number, integer, boolean or string, or no type with x-kubernetes-int-or-string or x-kubernetes-preserve-unknown-fields is true, got {other}"
            ))),
        }
    }

    fn of_text(text: &'a str, format: &str) -> Result<Self, EvalError> {
        match format {
            "duration" => match format::parse_duration(text) {
                Some(nanos) => Ok(Self::Duration(SignedDuration::from_nanos(nanos))),
                None => Err(EvalError::new(format!(
                    "Invalid duration {text}: unable to parse {text} as duration"
                ))),
            },
            "date" => match text
                .parse::<jiff::civil::Date>()
                .ok()
                .and_then(|d| d.to_zoned(jiff::tz::TimeZone::UTC).ok())
            {
                Some(day) => Ok(Self::Timestamp(day.timestamp())),
                None => Err(EvalError::new(format!("Invalid date formatted string {text}"))),
            },
            "date-time" => match parse_date_time(text) {
                Some(time) => Ok(Self::Timestamp(time)),
                None => Err(EvalError::new(format!("Invalid date-time formatted string {text}"))),
            },
            "byte" => {
                use base64::Engine as _;
                match base64::engine::general_purpose::URL_SAFE.decode(text) {
                    Ok(bytes) => Ok(Self::Bytes(bytes.into())),
                    Err(_) => Err(EvalError::new(format!("Invalid byte formatted string {text}"))),
                }
            }
            _ => Ok(Self::Text(Cow::Borrowed(text))),
        }
    }

    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(Cow::Owned(text.into()))
    }

    pub(super) fn list(items: Vec<Val<'a>>) -> Self {
        Self::List(List { items: Items::Owned(Rc::new(items)), node: None })
    }

    pub(super) fn map(entries: Vec<(Val<'a>, Val<'a>)>) -> Self {
        Self::Map(Map::Owned(Rc::new(entries)))
    }

    pub(in crate::schema) fn some(value: Val<'a>) -> Self {
        Self::Optional(Some(Rc::new(value)))
    }

    /// The name of the value's type, as `type(x)` and messages print it.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::Text(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
            Self::Ip(_) => "net.IP",
            Self::Cidr(..) => "net.CIDR",
            Self::Foreign(_) => "opaque",
        }
    }

    /// Equality across numeric types; values of other different types are just not equal.
    pub(super) fn equals(&self, other: &Val<'a>) -> Result<bool, EvalError> {
        Ok(match (self, other) {
            (Self::Null, Self::Null) | (Self::Optional(None), Self::Optional(None)) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Text(a), Self::Text(b)) => a == b,
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::Duration(a), Self::Duration(b)) => a == b,
            (Self::Timestamp(a), Self::Timestamp(b)) => a == b,
            (Self::Type(a), Self::Type(b)) => a == b,
            (Self::Ip(a), Self::Ip(b)) => a == b,
            (Self::Cidr(a, n), Self::Cidr(b, m)) => a == b && n == m,
            (Self::Foreign(a), Self::Foreign(b)) => a == b,
            (Self::List(a), Self::List(b)) => a.equals(b)?,
            (Self::Map(a), Self::Map(b)) => a.equals(b)?,
            (Self::Optional(Some(a)), Self::Optional(Some(b))) => a.equals(b)?,
            _ => self.compare_numbers(other) == Some(Ordering::Equal),
        })
    }

    /// Order, where the type has one.
    pub(super) fn compare(&self, other: &Val<'a>) -> Result<Ordering, EvalError> {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => Ok(a.cmp(b)),
            (Self::Text(a), Self::Text(b)) => Ok(a.cmp(b)),
            (Self::Bytes(a), Self::Bytes(b)) => Ok(a.cmp(b)),
            (Self::Duration(a), Self::Duration(b)) => Ok(a.cmp(b)),
            (Self::Timestamp(a), Self::Timestamp(b)) => Ok(a.cmp(b)),
            _ => self.compare_numbers(other).ok_or_else(|| match (self, other) {
                (Self::Double(_), Self::Double(_)) => EvalError::new("NaN values cannot be ordered"),
                _ => EvalError::no_such_overload(),
            }),
        }
    }

    #[allow(clippy::cast_precision_loss)]
    fn compare_numbers(&self, other: &Val<'a>) -> Option<Ordering> {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => Some(a.cmp(b)),
            (Self::Uint(a), Self::Uint(b)) => Some(a.cmp(b)),
            (Self::Double(a), Self::Double(b)) => a.partial_cmp(b),
            (Self::Int(a), Self::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Self::Uint(a), Self::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Self::Int(a), Self::Double(b)) => compare_int_double(i128::from(*a), *b),
            (Self::Uint(a), Self::Double(b)) => compare_int_double(i128::from(*a), *b),
            (Self::Double(a), Self::Int(b)) => compare_int_double(i128::from(*b), *a).map(Ordering::reverse),
            (Self::Double(a), Self::Uint(b)) => compare_int_double(i128::from(*b), *a).map(Ordering::reverse),
            _ => None,
        }
    }

    /// The value under a key of a map, an index of a list, or through an optional value.
    pub(super) fn get(&self, key: &Val<'a>) -> Result<Option<Val<'a>>, EvalError> {
        match self {
            Self::Map(map) => map.get(key),
            Self::List(list) => {
                let index = match key {
                    Self::Int(index) => usize::try_from(*index).ok(),
                    Self::Uint(index) => usize::try_from(*index).ok(),
                    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                    Self::Double(index) if index.fract() == 0.0 && *index >= 0.0 => Some(*index as usize),
                    other => return Err(EvalError::new(format!("unsupported index: {}", other.type_name()))),
                };
                index.map_or(Ok(None), |index| list.get(index))
            }
            _ => Err(EvalError::no_such_overload()),
        }
    }

    /// How a key is printed in `no such key: …`.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Bool(flag) => flag.to_string(),
            Self::Int(int) => int.to_string(),
            Self::Uint(int) => int.to_string(),
            Self::Double(float) => wording::float_g(*float),
            Self::Text(text) => text.clone().into_owned(),
            other => other.type_name().to_owned(),
        }
    }
}

#[allow(clippy::cast_possible_truncation)]
fn compare_int_double(int: i128, double: f64) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    if double.abs() >= 1e30 {
        return Some(if double > 0.0 { Ordering::Less } else { Ordering::Greater });
    }
    let whole = double.trunc();
    Some(
        int.cmp(&(whole as i128))
            .then_with(|| 0.0_f64.partial_cmp(&(double - whole)).unwrap_or(Ordering::Equal)),
    )
}

/// A date and time; the zone may be left out.
fn parse_date_time(text: &str) -> Option<Timestamp> {
    if text.is_empty() {
        return Some(Timestamp::UNIX_EPOCH);
    }
    text.parse::<Timestamp>().ok().or_else(|| {
        let local: jiff::civil::DateTime = text.parse().ok()?;
        Some(local.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
    })
}

impl<'a> List<'a> {
    pub(super) fn len(&self) -> usize {
        match &self.items {
            Items::Json(items) => items.len(),
            Items::Owned(items) => items.len(),
        }
    }

    pub(super) fn get(&self, index: usize) -> Result<Option<Val<'a>>, EvalError> {
        match &self.items {
            Items::Json(items) => match items.get(index) {
                Some(item) => self.convert(item).map(Some),
                None => Ok(None),
            },
            Items::Owned(items) => Ok(items.get(index).cloned()),
        }
    }

    fn convert(&self, item: &'a Value) -> Result<Val<'a>, EvalError> {
        match self.node.and_then(|n| n.items.as_deref()) {
            Some(node) => Val::of(item, node, false),
            None => Err(EvalError::new("invalid array type, expected Items with a non-empty Schema")),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Result<Val<'a>, EvalError>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index).transpose())
    }

    pub(super) fn to_vec(&self) -> Result<Vec<Val<'a>>, EvalError> {
        self.iter().collect()
    }

    pub(super) fn contains(&self, value: &Val<'a>) -> Result<bool, EvalError> {
        let mut failure = None;
        for item in self.iter() {
            match item.and_then(|item| item.equals(value)) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(false), Err)
    }

    fn list_type(&self) -> ListType {
        self.node.map_or(ListType::Atomic, |n| n.list_type)
    }

    /// Sets and keyed lists are equal in any order.
    fn equals(&self, other: &List<'a>) -> Result<bool, EvalError> {
        if self.len() != other.len() {
            return Ok(false);
        }
        if self.list_type() == ListType::Atomic {
            for index in 0..self.len() {
                match (self.get(index)?, other.get(index)?) {
                    (Some(a), Some(b)) if a.equals(&b)? => {}
                    _ => return Ok(false),
                }
            }
            return Ok(true);
        }
        if let (Items::Json(a), Items::Json(b), Some(node), ListType::Map) =
            (&self.items, &other.items, self.node, self.list_type())
        {
            return self.equal_by_key(a, b, node);
        }
        for item in self.iter() {
            if !other.contains(&item?)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn equal_by_key(&self, a: &'a [Value], b: &'a [Value], node: &Node) -> Result<bool, EvalError> {
        let key =
            |item: &Value| item.as_object().and_then(|fields| composite_key(fields, &node.list_map_keys));
        let known: std::collections::HashMap<_, _> =
            a.iter().filter_map(|item| Some((key(item)?, item))).collect();
        for item in b {
            let Some(same) = key(item).and_then(|k| known.get(&k).copied()) else { return Ok(false) };
            if !self.convert(same)?.equals(&self.convert(item)?)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Concatenation; a set takes only what it has not, a keyed list replaces what it has.
    pub(super) fn add(&self, other: &List<'a>) -> Result<List<'a>, EvalError> {
        let mut items = self.to_vec()?;
        for item in other.iter() {
            let item = item?;
            match self.list_type() {
                ListType::Atomic => items.push(item),
                ListType::Set => {
                    let mut known = false;
                    for other in &items {
                        known = known || other.equals(&item)?;
                    }
                    if !known {
                        items.push(item);
                    }
                }
                ListType::Map => {
                    let keys = self.node.map(|n| n.list_map_keys.as_slice()).unwrap_or_default();
                    let mut place = None;
                    for (index, known) in items.iter().enumerate() {
                        if same_keys(known, &item, keys)? {
                            place = Some(index);
                        }
                    }
                    match place {
                        Some(index) => items[index] = item,
                        None => items.push(item),
                    }
                }
            }
        }
        Ok(List { items: Items::Owned(Rc::new(items)), node: self.node })
    }
}

fn same_keys<'a>(a: &Val<'a>, b: &Val<'a>, keys: &[String]) -> Result<bool, EvalError> {
    for key in keys {
        let key = Val::text(escape(key).unwrap_or_else(|| key.clone()));
        match (a.get(&key)?, b.get(&key)?) {
            (Some(a), Some(b)) if a.equals(&b)? => {}
            (None, None) => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

impl<'a> Map<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Json(fields, ..) => fields.len(),
            Self::Owned(entries) => entries.len(),
        }
    }

    /// The value of a key. Null fields of objects with properties count as absent.
    pub(super) fn get(&self, key: &Val<'a>) -> Result<Option<Val<'a>>, EvalError> {
        match self {
            Self::Json(fields, node, resource) => {
                let Val::Text(name) = key else { return Err(EvalError::no_such_overload()) };
                let object = *resource || !node.properties.is_empty();
                let name = if object {
                    match unescape(name) {
                        Some(name) => Cow::Owned(name),
                        None => return Ok(None),
                    }
                } else {
                    name.clone()
                };
                match (fields.get(name.as_ref()), property(node, *resource, &name)) {
                    (Some(Value::Null), _) if object => Ok(None),
                    (Some(value), Some(node)) => Val::of(value, node, false).map(Some),
                    _ => Ok(None),
                }
            }
            Self::Owned(entries) => {
                for (known, value) in entries.iter() {
                    if known.equals(key)? {
                        return Ok(Some(value.clone()));
                    }
                }
                Ok(None)
            }
        }
    }

    /// The keys that an expression can see, sorted when they come from the resource.
    pub(super) fn keys(&self) -> Vec<Val<'a>> {
        match self {
            Self::Json(fields, node, resource) => {
                let object = *resource || !node.properties.is_empty();
                let mut names: Vec<&'a String> =
                    fields.keys().filter(|name| property(node, *resource, name).is_some()).collect();
                names.sort();
                names
                    .into_iter()
                    .map(|name| match escape(name) {
                        Some(escaped) if object => Val::text(escaped),
                        _ => Val::Text(Cow::Borrowed(name.as_str())),
                    })
                    .collect()
            }
            Self::Owned(entries) => entries.iter().map(|(key, _)| key.clone()).collect(),
        }
    }

    fn equals(&self, other: &Map<'a>) -> Result<bool, EvalError> {
        if self.len() != other.len() {
            return Ok(false);
        }
        if let (Self::Json(a, node, resource), Self::Json(b, ..)) = (self, other) {
            // What the schema does not know is compared as it is.
            for (name, value) in a.iter().filter(|(name, _)| property(node, *resource, name).is_none()) {
                if b.get(name).is_some_and(|other| other != value) {
                    return Ok(false);
                }
            }
        }
        for key in self.keys() {
            match (self.get(&key)?, other.get(&key)?) {
                (Some(a), Some(b)) if a.equals(&b)? => {}
                (None, None) => {}
                _ => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// The schema of a field as rules see it.
pub(super) fn property<'a>(node: &'a Node, resource: bool, name: &str) -> Option<&'a Node> {
    if resource {
        match name {
            "apiVersion" | "kind" => return Some(&RESOURCE.text),
            "metadata" => return Some(&RESOURCE.metadata),
            _ => {}
        }
    }
    node.field(name)
}
