//! `'…%s…'.format([…])`, which messages are made with.

use super::super::super::wording;
use super::super::EvalError;
use super::super::value::Val;
use super::convert::plain;

type Formatted = Result<String, String>;

pub(super) fn format<'a>(args: &[Val<'a>]) -> Result<Val<'a>, EvalError> {
    let (Val::Text(template), Val::List(values)) = (&args[0], &args[1]) else {
        return Err(EvalError::no_such_overload());
    };
    let values = values.to_vec()?;
    fill(template, &values).map(Val::text).map_err(EvalError::new)
}

fn fill(template: &str, values: &[Val<'_>]) -> Formatted {
    let mut out = String::with_capacity(template.len());
    let mut next = 0;
    let mut rest = template;
    while let Some(place) = rest.find('%') {
        out.push_str(&rest[..place]);
        rest = &rest[place + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let value = values.get(next).ok_or_else(|| format!("index {next} out of range"))?;
        next += 1;
        if rest.is_empty() {
            return Err("unexpected end of string".to_owned());
        }
        let (precision, after) =
            precision(rest).map_err(|e| format!("could not parse formatting clause: {e}"))?;
        let mut chars = after.chars();
        let Some(clause) = chars.next() else {
            return Err("could not parse formatting clause: unexpected end of string".to_owned());
        };
        let text = match clause {
            's' => string(value),
            'd' => decimal(value),
            'f' => fixed(value, precision),
            'e' => scientific(value, precision),
            'b' => binary(value),
            'o' => octal(value),
            'x' => hex(value),
            'X' => hex(value).map(|text| text.to_uppercase()),
            other => {
                return Err(format!(
                    "could not parse formatting clause: unrecognized formatting clause \"{other}\""
                ));
            }
        };
        out.push_str(&text.map_err(|e| format!("error during formatting: {e}"))?);
        rest = chars.as_str();
    }
    out.push_str(rest);
    Ok(out)
}

fn precision(text: &str) -> Result<(usize, &str), String> {
    let Some(after) = text.strip_prefix('.') else { return Ok((6, text)) };
    let end = after
        .find(|c: char| !c.is_ascii_digit())
        .ok_or("error while parsing precision: could not find end of precision specifier")?;
    let digits = &after[..end];
    match digits.parse::<usize>() {
        // What nobody can read nobody asked for; it only costs memory.
        Ok(precision) if precision <= 1000 => Ok((precision, &after[end..])),
        _ => Err(format!(
            "error while parsing precision: error while converting precision to integer: {}",
            wording::quote(digits)
        )),
    }
}

fn string(value: &Val<'_>) -> Formatted {
    match value {
        Val::Null => Ok("null".to_owned()),
        Val::List(_) | Val::Map(_) => literal(value),
        Val::Ip(_) | Val::Cidr(..) | Val::Optional(_) | Val::Foreign(_) => Err(format!(
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps, was given {}",
            value.type_name()
        )),
        _ => plain(value).ok_or_else(|| "could not convert argument to string".to_owned()),
    }
}

/// A value inside of a list or a map, as a CEL literal.
fn literal(value: &Val<'_>) -> Formatted {
    match value {
        Val::Text(text) => Ok(wording::quote(text)),
        Val::Bytes(_) => Ok(format!("b{}", wording::quote(&plain(value).unwrap_or_default()))),
        Val::Double(double) => Ok(format!("{double:.6}")),
        Val::Duration(_) => Ok(format!("duration({})", wording::quote(&plain(value).unwrap_or_default()))),
        Val::Timestamp(_) => Ok(format!("timestamp({})", wording::quote(&plain(value).unwrap_or_default()))),
        Val::Null | Val::Bool(_) | Val::Int(_) | Val::Uint(_) | Val::Type(_) => string(value),
        Val::List(list) => {
            let mut parts = Vec::with_capacity(list.len());
            for item in list.iter() {
                parts.push(literal(&item.map_err(|e| e.0)?)?);
            }
            Ok(format!("[{}]", parts.join(", ")))
        }
        Val::Map(map) => {
            let mut parts = Vec::with_capacity(map.len());
            for key in map.keys() {
                if let Some(value) = map.get(&key).map_err(|e| e.0)? {
                    parts.push(format!("{}:{}", literal(&key)?, literal(&value)?));
                }
            }
            parts.sort();
            Ok(format!("{{{}}}", parts.join(", ")))
        }
        other => Err(format!("no formatting function for {}", other.type_name())),
    }
}

fn decimal(value: &Val<'_>) -> Formatted {
    match value {
        Val::Int(int) => Ok(int.to_string()),
        Val::Uint(uint) => Ok(uint.to_string()),
        other => Err(format!("decimal clause can only be used on integers, was given {}", other.type_name())),
    }
}

fn double(value: &Val<'_>, clause: &str) -> Result<f64, String> {
    match value {
        Val::Double(double) => Ok(*double),
        Val::Text(text) if text == "NaN" => Ok(f64::NAN),
        Val::Text(text) if text == "Infinity" => Ok(f64::INFINITY),
        Val::Text(text) if text == "-Infinity" => Ok(f64::NEG_INFINITY),
        other => Err(format!("{clause} clause can only be used on doubles, was given {}", other.type_name())),
    }
}

/// Fixed point with thousands separated, as the real server's locale does.
fn fixed(value: &Val<'_>, precision: usize) -> Formatted {
    let double = double(value, "fixed-point")?;
    if !double.is_finite() {
        return Ok(special(double));
    }
    let text = format!("{:.precision$}", double.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let sign = if double.is_sign_negative() && double != 0.0 { "-" } else { "" };
    let point = if fraction.is_empty() { "" } else { "." };
    Ok(format!("{sign}{grouped}{point}{fraction}"))
}

fn scientific(value: &Val<'_>, precision: usize) -> Formatted {
    let double = double(value, "scientific")?;
    if !double.is_finite() {
        return Ok(special(double));
    }
    let text = format!("{double:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(("+", exponent), |rest| ("-", rest));
    Ok(format!("{digits}\u{a0}×\u{a0}10{sign}{exponent:0>2}"))
}

fn special(double: f64) -> String {
    match () {
        () if double.is_nan() => "NaN".to_owned(),
        () if double > 0.0 => "∞".to_owned(),
        () => "-∞".to_owned(),
    }
}

fn binary(value: &Val<'_>) -> Formatted {
    match value {
        Val::Int(int) => Ok(signed(*int, &format!("{:b}", int.unsigned_abs()))),
        Val::Uint(uint) => Ok(format!("{uint:b}")),
        Val::Bool(flag) => Ok(u8::from(*flag).to_string()),
        other => Err(format!(
            "only integers and bools can be formatted as binary, was given {}",
            other.type_name()
        )),
    }
}

fn octal(value: &Val<'_>) -> Formatted {
    match value {
        Val::Int(int) => Ok(signed(*int, &format!("{:o}", int.unsigned_abs()))),
        Val::Uint(uint) => Ok(format!("{uint:o}")),
        other => Err(format!("octal clause can only be used on integers, was given {}", other.type_name())),
    }
}

fn hex(value: &Val<'_>) -> Formatted {
    let bytes = |bytes: &[u8]| {
        let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or('0');
        bytes.iter().flat_map(|b| [digit(b >> 4), digit(b & 0xf)]).collect()
    };
    match value {
        Val::Int(int) => Ok(signed(*int, &format!("{:x}", int.unsigned_abs()))),
        Val::Uint(uint) => Ok(format!("{uint:x}")),
        Val::Text(text) => Ok(bytes(text.as_bytes())),
        Val::Bytes(data) => Ok(bytes(data)),
        other => Err(format!(
            "only integers, byte buffers, and strings can be formatted as hex, was given {}",
            other.type_name()
        )),
    }
}

fn signed(int: i64, digits: &str) -> String {
    format!("{}{digits}", if int < 0 { "-" } else { "" })
}
