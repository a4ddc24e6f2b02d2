//! The types of expressions, as the compiler of rules sees them.

use std::fmt;

use super::super::node::Node;
use super::escape::unescape;
use super::value::property;

/// A type.
#[derive(Clone, Debug)]
pub(super) enum Ty<'a> {
    /// Known only when the rule runs.
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    Duration,
    Timestamp,
    List(Box<Ty<'a>>),
    Map(Box<Ty<'a>>, Box<Ty<'a>>),
    /// An object with declared fields; whether it is a resource.
    Object(&'a Node, bool),
    Optional(Box<Ty<'a>>),
    Type,
    /// A type that only functions know, for example `net.IP`.
    Named(&'static str),
    /// A type variable of a function's signature.
    Variable(char),
}

impl<'a> Ty<'a> {
    /// The type of values that follow a schema; none when expressions cannot see them.
    pub(in crate::schema) fn of(node: &'a Node, resource: bool) -> Option<Self> {
        if node.int_or_string {
            return Some(Self::Dyn);
        }
        if resource {
            return Some(Self::Object(node, true));
        }
        Some(match node.ty.as_str() {
            "array" => {
                let items = node.items.as_deref()?;
                Self::List(Box::new(Self::of(items, items.embedded)?))
            }
            "object" => match node.additional.schema() {
                Some(inner) => Self::Map(Box::new(Self::Text), Box::new(Self::of(inner, inner.embedded)?)),
                None => Self::Object(node, false),
            },
            "string" => match node.format_name.as_str() {
                "byte" => Self::Bytes,
                "duration" => Self::Duration,
                "date" | "date-time" => Self::Timestamp,
                _ => Self::Text,
            },
            "boolean" => Self::Bool,
            "number" => Self::Double,
            "integer" => Self::Int,
            _ => return None,
        })
    }

    /// The type of a field, given by its identifier.
    pub(super) fn field(node: &'a Node, resource: bool, identifier: &str) -> Option<Self> {
        let name = unescape(identifier)?;
        let inner = property(node, resource, &name)?;
        Self::of(inner, inner.embedded)
    }

    /// Whether a value of this type can stand where the other is wanted.
    pub(super) fn fits(&self, wanted: &Self) -> bool {
        match (self, wanted) {
            (Self::Dyn, _)
            | (_, Self::Dyn)
            | (Self::Null, Self::Object(..) | Self::Optional(_))
            | (Self::Object(..) | Self::Optional(_), Self::Null) => true,
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => a.fits(b),
            (Self::Map(a, b), Self::Map(c, d)) => a.fits(c) && b.fits(d),
            (Self::Object(a, _), Self::Object(b, _)) => std::ptr::eq(*a, *b),
            (Self::Named(a), Self::Named(b)) => a == b,
            (Self::Variable(a), Self::Variable(b)) => a == b,
            _ => std::mem::discriminant(self) == std::mem::discriminant(wanted),
        }
    }

    /// Whether this is a number.
    pub(super) fn is_number(&self) -> bool {
        matches!(self, Self::Int | Self::Uint | Self::Double)
    }

    /// Of two types that fit each other, the one that says more.
    pub(super) fn join(self, other: Self) -> Self {
        if matches!(self, Self::Dyn) {
            self
        } else if matches!(other, Self::Dyn) {
            other
        } else {
            self
        }
    }
}

impl fmt::Display for Ty<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn => out.write_str("dyn"),
            Self::Null => out.write_str("null"),
            Self::Bool => out.write_str("bool"),
            Self::Int => out.write_str("int"),
            Self::Uint => out.write_str("uint"),
            Self::Double => out.write_str("double"),
            Self::Text => out.write_str("string"),
            Self::Bytes => out.write_str("bytes"),
            Self::Duration => out.write_str("duration"),
            Self::Timestamp => out.write_str("timestamp"),
            Self::List(item) => write!(out, "list({item})"),
            Self::Map(key, value) => write!(out, "map({key}, {value})"),
            Self::Object(..) => out.write_str("object"),
            Self::Optional(inner) => write!(out, "optional_type({inner})"),
            Self::Type => out.write_str("type"),
            Self::Named(name) => out.write_str(name),
            Self::Variable(name) => write!(out, "{name}"),
        }
    }
}
