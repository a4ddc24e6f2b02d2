//! Conversions between types, with cel-go's limits and messages.

use super::super::super::format::parse_go_duration;
use super::super::super::wording;
use super::super::EvalError;
use super::super::value::Val;
use jiff::{SignedDuration, Timestamp};

/// The first float that is too large for a 64-bit integer.
const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

type Converted<'a> = Result<Val<'a>, EvalError>;

fn failed<'a>(from: &Val<'a>, to: &str) -> Converted<'a> {
    Err(EvalError::new(format!("type conversion error from '{}' to '{to}'", from.type_name())))
}

#[allow(clippy::cast_possible_truncation)]
pub(super) fn int<'a>(args: &[Val<'a>]) -> Converted<'a> {
    match &args[0] {
        value @ Val::Int(_) => Ok(value.clone()),
        Val::Uint(uint) => i64::try_from(*uint).map(Val::Int).map_err(|_| EvalError::new("integer overflow")),
        Val::Double(double) if double.abs() < TWO_TO_63 => Ok(Val::Int(*double as i64)),
        Val::Double(_) => Err(EvalError::new("integer overflow")),
        Val::Duration(duration) => {
            i64::try_from(duration.as_nanos()).map(Val::Int).map_err(|_| EvalError::new("integer overflow"))
        }
        Val::Timestamp(time) => Ok(Val::Int(time.as_second())),
        Val::Text(text) => match text.parse() {
            Ok(int) => Ok(Val::Int(int)),
            Err(_) => failed(&args[0], "int"),
        },
        _ => Err(EvalError::no_such_overload()),
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(super) fn uint<'a>(args: &[Val<'a>]) -> Converted<'a> {
    let overflow = || EvalError::new("unsigned integer overflow");
    match &args[0] {
        value @ Val::Uint(_) => Ok(value.clone()),
        Val::Int(int) => u64::try_from(*int).map(Val::Uint).map_err(|_| overflow()),
        Val::Double(double) if *double >= 0.0 && *double < 2.0 * TWO_TO_63 => Ok(Val::Uint(*double as u64)),
        Val::Double(_) => Err(overflow()),
        Val::Text(text) => match text.parse() {
            Ok(uint) => Ok(Val::Uint(uint)),
            Err(_) => failed(&args[0], "uint"),
        },
        _ => Err(EvalError::no_such_overload()),
    }
}

#[allow(clippy::cast_precision_loss)]
pub(super) fn double<'a>(args: &[Val<'a>]) -> Converted<'a> {
    match &args[0] {
        value @ Val::Double(_) => Ok(value.clone()),
        Val::Int(int) => Ok(Val::Double(*int as f64)),
        Val::Uint(uint) => Ok(Val::Double(*uint as f64)),
        Val::Text(text) => match text.parse() {
            Ok(double) => Ok(Val::Double(double)),
            Err(_) => failed(&args[0], "double"),
        },
        _ => Err(EvalError::no_such_overload()),
    }
}

pub(super) fn string<'a>(args: &[Val<'a>]) -> Converted<'a> {
    match &args[0] {
        value @ Val::Text(_) => Ok(value.clone()),
        other => match plain(other) {
            Some(text) => Ok(Val::text(text)),
            None if matches!(other, Val::Bytes(_)) => {
                Err(EvalError::new("invalid UTF-8 in bytes, cannot convert to string"))
            }
            None => Err(EvalError::no_such_overload()),
        },
    }
}

/// A scalar as `string()` gives it.
pub(super) fn plain(value: &Val<'_>) -> Option<String> {
    Some(match value {
        Val::Text(text) => text.clone().into_owned(),
        Val::Bool(flag) => flag.to_string(),
        Val::Int(int) => int.to_string(),
        Val::Uint(uint) => uint.to_string(),
        Val::Double(double) => wording::float_g(*double),
        Val::Bytes(bytes) => String::from_utf8(bytes.to_vec()).ok()?,
        Val::Timestamp(time) => time.to_string(),
        Val::Duration(duration) => format!("{}s", seconds(*duration)),
        Val::Ip(address) => address.to_string(),
        Val::Cidr(address, length) => format!("{address}/{length}"),
        Val::Type(name) => (*name).to_owned(),
        _ => return None,
    })
}

/// Seconds with as many decimals as needed.
fn seconds(duration: SignedDuration) -> String {
    let sign = if duration.is_negative() { "-" } else { "" };
    let fraction = format!("{:09}", duration.subsec_nanos().unsigned_abs());
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{}{point}{fraction}", duration.as_secs().unsigned_abs())
}

pub(super) fn bytes<'a>(args: &[Val<'a>]) -> Converted<'a> {
    match &args[0] {
        value @ Val::Bytes(_) => Ok(value.clone()),
        Val::Text(text) => Ok(Val::Bytes(text.as_bytes().into())),
        _ => Err(EvalError::no_such_overload()),
    }
}

pub(super) fn bool<'a>(args: &[Val<'a>]) -> Converted<'a> {
    match &args[0] {
        value @ Val::Bool(_) => Ok(value.clone()),
        Val::Text(text) => match text.as_ref() {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Val::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Val::Bool(false)),
            _ => failed(&args[0], "bool"),
        },
        _ => Err(EvalError::no_such_overload()),
    }
}

pub(super) fn duration<'a>(args: &[Val<'a>]) -> Converted<'a> {
    match &args[0] {
        value @ Val::Duration(_) => Ok(value.clone()),
        Val::Int(nanos) => Ok(Val::Duration(SignedDuration::from_nanos(*nanos))),
        Val::Text(text) => match parse_go_duration(text) {
            Some(nanos) => Ok(Val::Duration(SignedDuration::from_nanos(nanos))),
            None => failed(&args[0], "google.protobuf.Duration"),
        },
        _ => Err(EvalError::no_such_overload()),
    }
}

pub(super) fn timestamp<'a>(args: &[Val<'a>]) -> Converted<'a> {
    match &args[0] {
        value @ Val::Timestamp(_) => Ok(value.clone()),
        Val::Int(seconds) => Timestamp::from_second(*seconds)
            .map(Val::Timestamp)
            .map_err(|_| EvalError::new("timestamp overflow")),
        Val::Text(text) => match text.parse() {
            Ok(time) => Ok(Val::Timestamp(time)),
            Err(_) => failed(&args[0], "google.protobuf.Timestamp"),
        },
        _ => Err(EvalError::no_such_overload()),
    }
}
