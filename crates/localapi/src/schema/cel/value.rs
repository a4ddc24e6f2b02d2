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

use super::super::format;
use super::super::node::Node;
use super::super::wording::{self, GoNumber};
use super::EvalError;

mod list;
mod map;

pub(in crate::schema) use list::List;
pub(in crate::schema) use map::Map;

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
            ("array", Value::Array(items)) => Ok(Self::List(List::of(items, node))),
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
        Self::List(List::made(items))
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
