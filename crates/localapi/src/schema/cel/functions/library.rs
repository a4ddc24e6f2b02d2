//! The bridge to kube-cel's function library: quantities, URLs, versions and named formats.
//!
//! A call becomes a program of one expression over the variables `a0`, `a1`, …, parsed when the rule is
//! compiled and run in a context that each thread makes once.

use std::sync::Arc;

use kube_cel::KubeCelExt as _;
use kube_cel::cel::objects::OptionalValue;
use kube_cel::cel::{self, Context, ExecutionError, Program};

use super::super::super::wording::quote;
use super::super::EvalError;
use super::super::expr::LibraryCall;
use super::super::value::Val;

thread_local! {
    static CONTEXT: Context<'static> = Context::default().with_all();
}

const GLOBAL: [(&str, usize); 22] = [
    ("url", 1),
    ("isURL", 1),
    ("quantity", 1),
    ("isQuantity", 1),
    ("semver", 1),
    ("semver", 2),
    ("isSemver", 1),
    ("isSemver", 2),
    ("format.named", 1),
    ("format.dns1123Label", 0),
    ("format.dns1123Subdomain", 0),
    ("format.dns1035Label", 0),
    ("format.qualifiedName", 0),
    ("format.dns1123LabelPrefix", 0),
    ("format.dns1123SubdomainPrefix", 0),
    ("format.dns1035LabelPrefix", 0),
    ("format.labelValue", 0),
    ("format.uri", 0),
    ("format.uuid", 0),
    ("format.byte", 0),
    ("format.date", 0),
    ("format.datetime", 0),
];

const MEMBER: [(&str, usize); 20] = [
    ("getScheme", 1),
    ("getHost", 1),
    ("getHostname", 1),
    ("getPort", 1),
    ("getEscapedPath", 1),
    ("getQuery", 1),
    ("isInteger", 1),
    ("asInteger", 1),
    ("asApproximateFloat", 1),
    ("sign", 1),
    ("add", 2),
    ("sub", 2),
    ("isGreaterThan", 2),
    ("isLessThan", 2),
    ("compareTo", 2),
    ("major", 1),
    ("minor", 1),
    ("patch", 1),
    ("validate", 2),
    ("normalize", 1),
];

/// The call of a library function, if there is one of this name and number of arguments.
pub(super) fn find(name: &str, member: bool, count: usize) -> Option<LibraryCall> {
    let known: &'static [(&'static str, usize)] = if member { &MEMBER } else { &GLOBAL };
    let (name, _) = *known.iter().find(|entry| **entry == (name, count))?;
    let names: Vec<String> = (0..count).map(|index| format!("a{index}")).collect();
    let source = if member {
        format!("a0.{name}({})", names[1..].join(", "))
    } else {
        format!("{name}({})", names.join(", "))
    };
    let program = Program::compile(&source).ok()?;
    // The real server answers with an optional format; kube-cel with a format or an error.
    Some(LibraryCall { name, program, names, optional: name == "format.named" })
}

/// Runs a library function.
pub(super) fn call<'a>(library: &LibraryCall, args: &[Val<'a>]) -> Result<Val<'a>, EvalError> {
    CONTEXT.with(|context| {
        let mut scope = context.new_inner_scope();
        for (name, value) in library.names.iter().zip(args) {
            scope.add_variable_from_value(name.clone(), to_cel(value)?);
        }
        let result = library.program.execute(&scope).map_err(|error| library.message(&error, args));
        if library.optional {
            return Ok(result.and_then(|value| from_cel(&value)).map_or(Val::Optional(None), Val::some));
        }
        result.and_then(|value| from_cel(&value))
    })
}

impl LibraryCall {
    /// The error in the real server's words, where kube-cel has others.
    fn message(&self, error: &ExecutionError, args: &[Val<'_>]) -> EvalError {
        match (error, self.name, args) {
            (ExecutionError::FunctionError { .. }, "quantity", _) => EvalError::new(
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ),
            (ExecutionError::FunctionError { .. }, "url", [Val::Text(text)]) => EvalError::new(format!(
                "URL parse error during conversion from string: parse {}: {}",
                quote(text),
                url_problem(text)
            )),
            (ExecutionError::FunctionError { message, .. }, ..) => EvalError::new(message.clone()),
            (
                ExecutionError::NoSuchOverload
                | ExecutionError::UndeclaredReference(_)
                | ExecutionError::UnsupportedTargetType { .. }
                | ExecutionError::NotSupportedAsMethod { .. }
                | ExecutionError::UnexpectedType { .. },
                ..,
            ) => EvalError::no_such_overload(),
            (other, ..) => EvalError::new(other.to_string()),
        }
    }
}

fn url_problem(text: &str) -> &'static str {
    if text.is_empty() {
        "empty url"
    } else if text.bytes().any(|b| b < b' ' || b == 0x7f) {
        "net/url: invalid control character in URL"
    } else if text.starts_with(':') {
        "missing protocol scheme"
    } else {
        "invalid URI for request"
    }
}

fn to_cel(value: &Val<'_>) -> Result<cel::Value, EvalError> {
    Ok(match value {
        Val::Null => cel::Value::Null,
        Val::Bool(flag) => cel::Value::Bool(*flag),
        Val::Int(int) => cel::Value::Int(*int),
        Val::Uint(uint) => cel::Value::UInt(*uint),
        Val::Double(double) => cel::Value::Float(*double),
        Val::Text(text) => cel::Value::String(Arc::new(text.clone().into_owned())),
        Val::Bytes(bytes) => cel::Value::Bytes(Arc::new(bytes.to_vec())),
        Val::Foreign(foreign) => foreign.clone(),
        _ => return Err(EvalError::no_such_overload()),
    })
}

fn from_cel<'a>(value: &cel::Value) -> Result<Val<'a>, EvalError> {
    Ok(match value {
        cel::Value::Null => Val::Null,
        cel::Value::Bool(flag) => Val::Bool(*flag),
        cel::Value::Int(int) => Val::Int(*int),
        cel::Value::UInt(uint) => Val::Uint(*uint),
        cel::Value::Float(double) => Val::Double(*double),
        cel::Value::String(text) => Val::text(text.as_str()),
        cel::Value::Bytes(bytes) => Val::Bytes(bytes.as_slice().into()),
        cel::Value::List(items) => Val::list(items.iter().map(from_cel).collect::<Result<_, _>>()?),
        cel::Value::Map(map) => {
            let mut entries = Vec::with_capacity(map.map.len());
            for (key, value) in map.map.iter() {
                entries.push((from_cel(&cel::Value::from(key))?, from_cel(value)?));
            }
            entries.sort_by_key(|(key, _)| key.shown());
            Val::map(entries)
        }
        cel::Value::Opaque(opaque) => match opaque.downcast_ref::<OptionalValue>() {
            Some(optional) => match optional.value() {
                Some(value) => Val::some(from_cel(value)?),
                None => Val::Optional(None),
            },
            None => Val::Foreign(value.clone()),
        },
        other => return Err(EvalError::new(format!("unsupported value {other:?}"))),
    })
}
