//! The functions that rules may call: those of kube-apiserver 1.35, no others.

mod convert;
mod format;
mod library;
mod lists;
mod net;
pub(super) mod signatures;
mod text;
mod time;

use std::rc::Rc;

use super::EvalError;
use super::expr::LibraryCall;
use super::value::Val;

pub(super) use lists::sort_by_key;

/// A function bound at compile time.
#[derive(Debug)]
pub(super) enum Function {
    /// One of ours.
    Native(Native),
    /// `matches` with a pattern that is only known at evaluation.
    Matches,
    /// One of kube-cel's.
    Library(LibraryCall),
    /// One that exists, but not for a call like this.
    Misused,
}

/// A function over its arguments; of a member function the target is the first.
pub(super) type Native = for<'a> fn(&[Val<'a>]) -> Result<Val<'a>, EvalError>;

/// The function of this name and number of arguments, the target counted.
pub(super) fn find(name: &str, member: bool, count: usize) -> Option<Function> {
    if name == "matches" && count == 2 {
        return Some(Function::Matches);
    }
    let native = if member { find_member(name, count) } else { find_global(name, count) };
    native.map(Function::Native).or_else(|| library::find(name, member, count).map(Function::Library))
}

/// Whether any function has this name.
pub(super) fn exists(name: &str) -> bool {
    (0..5).any(|count| find(name, true, count).is_some() || find(name, false, count).is_some())
}

/// The type that an identifier names.
pub(super) fn type_name(name: &str) -> Option<&'static str> {
    ["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type", "optional_type"]
        .into_iter()
        .find(|known| *known == name)
}

/// Calls a function.
pub(super) fn call<'a>(function: &Function, args: &[Val<'a>]) -> Result<Val<'a>, EvalError> {
    match function {
        Function::Native(native) => native(args),
        Function::Matches => text::matches(args),
        Function::Library(library) => library::call(library, args),
        Function::Misused => Err(EvalError::no_such_overload()),
    }
}

fn find_global(name: &str, count: usize) -> Option<Native> {
    Some(match (name, count) {
        ("size", 1) => size,
        ("type", 1) => |args| Ok(Val::Type(args[0].type_name())),
        ("int", 1) => convert::int,
        ("uint", 1) => convert::uint,
        ("double", 1) => convert::double,
        ("string", 1) => convert::string,
        ("bytes", 1) => convert::bytes,
        ("bool", 1) => convert::bool,
        ("duration", 1) => convert::duration,
        ("timestamp", 1) => convert::timestamp,
        ("ip", 1) => net::ip,
        ("cidr", 1) => net::cidr,
        ("isIP", 1) => net::is_ip,
        ("isCIDR", 1) => net::is_cidr,
        ("ip.isCanonical", 1) => net::is_canonical,
        ("sets.contains", 2) => lists::set_contains,
        ("sets.equivalent", 2) => lists::set_equivalent,
        ("sets.intersects", 2) => lists::set_intersects,
        ("lists.range", 1) => lists::range,
        ("strings.quote", 1) => text::quote,
        ("optional.none", 0) => |_| Ok(Val::Optional(None)),
        ("optional.of", 1) => |args| Ok(Val::some(args[0].clone())),
        ("optional.ofNonZeroValue", 1) => of_non_zero,
        ("optional.unwrap", 1) => lists::unwrap,
        _ => return None,
    })
}

fn find_member(name: &str, count: usize) -> Option<Native> {
    Some(match (name, count) {
        ("size", 1) => size,
        ("contains", 2) => text::contains,
        ("startsWith", 2) => text::starts_with,
        ("endsWith", 2) => text::ends_with,
        ("charAt", 2) => text::char_at,
        ("indexOf", 2 | 3) => index_of,
        ("lastIndexOf", 2 | 3) => last_index_of,
        ("lowerAscii", 1) => text::lower_ascii,
        ("upperAscii", 1) => text::upper_ascii,
        ("replace", 3 | 4) => text::replace,
        ("split", 2 | 3) => text::split,
        ("substring", 2 | 3) => text::substring,
        ("trim", 1) => text::trim,
        ("join", 1 | 2) => text::join,
        ("format", 2) => format::format,
        ("find", 2) => text::find,
        ("findAll", 2 | 3) => text::find_all,
        ("isSorted", 1) => lists::is_sorted,
        ("sum", 1) => lists::sum,
        ("min", 1) => lists::min,
        ("max", 1) => lists::max,
        ("slice", 3) => lists::slice,
        ("flatten", 1 | 2) => lists::flatten,
        ("sort", 1) => lists::sort,
        ("reverse", 1) => lists::reverse,
        ("distinct", 1) => lists::distinct,
        ("first", 1) => lists::first,
        ("last", 1) => lists::last,
        ("unwrapOpt", 1) => lists::unwrap,
        ("hasValue", 1) => |args| match &args[0] {
            Val::Optional(value) => Ok(Val::Bool(value.is_some())),
            _ => Err(EvalError::no_such_overload()),
        },
        ("value", 1) => |args| match &args[0] {
            Val::Optional(Some(value)) => Ok(value.as_ref().clone()),
            Val::Optional(None) => Err(EvalError::new("optional.none() dereference")),
            _ => Err(EvalError::no_such_overload()),
        },
        ("family", 1) => net::family,
        ("isUnspecified", 1) => net::is_unspecified,
        ("isLoopback", 1) => net::is_loopback,
        ("isLinkLocalMulticast", 1) => net::is_link_local_multicast,
        ("isLinkLocalUnicast", 1) => net::is_link_local_unicast,
        ("isGlobalUnicast", 1) => net::is_global_unicast,
        ("containsIP", 2) => net::contains_ip,
        ("containsCIDR", 2) => net::contains_cidr,
        ("prefixLength", 1) => net::prefix_length,
        ("masked", 1) => net::masked,
        ("ip", 1) => net::cidr_ip,
        ("getFullYear", 1 | 2) => time::full_year,
        ("getMonth", 1 | 2) => time::month,
        ("getDayOfYear", 1 | 2) => time::day_of_year,
        ("getDayOfMonth", 1 | 2) => time::day_of_month,
        ("getDate", 1 | 2) => time::date,
        ("getDayOfWeek", 1 | 2) => time::day_of_week,
        ("getHours", 1 | 2) => time::hours,
        ("getMinutes", 1 | 2) => time::minutes,
        ("getSeconds", 1 | 2) => time::seconds,
        ("getMilliseconds", 1 | 2) => time::milliseconds,
        _ => return None,
    })
}

/// A length as CEL counts it.
fn count<'a>(length: usize) -> Val<'a> {
    Val::Int(i64::try_from(length).unwrap_or(i64::MAX))
}

fn size<'a>(args: &[Val<'a>]) -> Result<Val<'a>, EvalError> {
    Ok(count(match &args[0] {
        Val::Text(text) => text.chars().count(),
        Val::Bytes(bytes) => bytes.len(),
        Val::List(list) => list.len(),
        Val::Map(map) => map.len(),
        _ => return Err(EvalError::no_such_overload()),
    }))
}

fn index_of<'a>(args: &[Val<'a>]) -> Result<Val<'a>, EvalError> {
    if let Val::List(_) = args[0] { lists::index_of(args) } else { text::index_of(args) }
}

fn last_index_of<'a>(args: &[Val<'a>]) -> Result<Val<'a>, EvalError> {
    if let Val::List(_) = args[0] { lists::last_index_of(args) } else { text::last_index_of(args) }
}

#[expect(clippy::unnecessary_wraps, reason = "all functions have one type")]
fn of_non_zero<'a>(args: &[Val<'a>]) -> Result<Val<'a>, EvalError> {
    let zero = match &args[0] {
        Val::Null | Val::Bool(false) | Val::Int(0) | Val::Uint(0) | Val::Optional(None) => true,
        Val::Double(double) => *double == 0.0,
        Val::Text(text) => text.is_empty(),
        Val::Bytes(bytes) => bytes.is_empty(),
        Val::List(list) => list.len() == 0,
        Val::Map(map) => map.len() == 0,
        Val::Duration(duration) => duration.is_zero(),
        _ => false,
    };
    Ok(Val::Optional(if zero { None } else { Some(Rc::new(args[0].clone())) }))
}
