//! How the real server prints values inside its messages.
//!
//! kube-apiserver is a Go program: its messages show values as Go's formatter and JSON encoder write them.
//! Everything here is that notation, and nothing else in the crate needs to know it.

use std::fmt::Write as _;

use serde_json::{Number, Value};

/// A number as Go holds it after decoding JSON: integers that fit 64 bits, everything else as a float.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum GoNumber {
    /// A 64-bit integer.
    Int(i64),
    /// Anything else.
    Float(f64),
}

impl GoNumber {
    /// Reads a JSON number.
    pub(crate) fn of(number: &Number) -> Self {
        match number.as_i64() {
            Some(int) => Self::Int(int),
            None => Self::Float(number.as_f64().unwrap_or(f64::MAX)),
        }
    }

    /// The value as a float, losing what a float cannot hold.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn as_f64(self) -> f64 {
        match self {
            Self::Int(int) => int as f64,
            Self::Float(float) => float,
        }
    }
}

/// A value as an error message shows it: texts quoted, numbers plain, the rest as compact JSON.
pub(crate) fn value(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Number(number) => match GoNumber::of(number) {
            GoNumber::Int(int) => int.to_string(),
            GoNumber::Float(float) => float_g(float),
        },
        _ => json(value),
    }
}

/// A value as Go's `%v` prints it: `map[a:1 b:[x y]]`.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(plain).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(fields) => {
            let mut entries: Vec<String> =
                fields.iter().map(|(key, value)| format!("{key}:{}", plain(value))).collect();
            entries.sort();
            format!("map[{}]", entries.join(" "))
        }
        other => self::value(other),
    }
}

/// A text in double quotes, escaped as Go's `%q` does.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            _ if is_print(c) => out.push(c),
            _ => push_escaped(&mut out, u32::from(c)),
        }
    }
    out.push('"');
    out
}

fn push_escaped(out: &mut String, code: u32) {
    // Writing to a String cannot fail.
    let _ = match code {
        0..=0x7f => write!(out, "\\x{code:02x}"),
        0x80..=0xffff => write!(out, "\\u{code:04x}"),
        _ => write!(out, "\\U{code:08x}"),
    };
}

/// Whether Go calls a character printable: letters, marks, numbers, punctuation, symbols and the plain space.
pub(crate) fn is_print(c: char) -> bool {
    match c {
        ' '..='~' => true,
        _ if c.is_control() || c.is_whitespace() => false,
        // `escape_debug` knows the unassigned and private ranges; combining marks it escapes, Go prints.
        _ => c.escape_debug().count() == 1 || c.is_alphanumeric() || is_mark(c),
    }
}

fn is_mark(c: char) -> bool {
    matches!(u32::from(c), 0x300..=0x36f | 0x483..=0x489 | 0x591..=0x5bd | 0x610..=0x61a | 0x64b..=0x65f | 0x1ab0..=0x1aff | 0x1dc0..=0x1dff | 0x20d0..=0x20ff | 0xfe00..=0xfe0f | 0xfe20..=0xfe2f)
}

/// A float as Go's `%v` prints it: shortest digits, exponent outside 1e-4..1e6.
pub(crate) fn float_g(float: f64) -> String {
    float_text(float, 1e-4..1e6, true)
}

/// Compact JSON with sorted keys and the characters `<`, `>` and `&` escaped, as Go encodes it.
pub(crate) fn json(value: &Value) -> String {
    let mut out = String::new();
    push_json(&mut out, value);
    out
}

fn push_json(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Number(number) => match GoNumber::of(number) {
            GoNumber::Int(int) => out.push_str(&int.to_string()),
            GoNumber::Float(float) => out.push_str(&float_text(float, 1e-6..1e21, false)),
        },
        Value::String(text) => push_json_text(out, text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                push_json(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort();
            out.push('{');
            for (index, key) in keys.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                push_json_text(out, key);
                out.push(':');
                push_json(out, &map[key.as_str()]);
            }
            out.push('}');
        }
    }
}

fn push_json_text(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{0}'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            _ => out.push(c),
        }
    }
    out.push('"');
}

fn float_text(float: f64, plain: std::ops::Range<f64>, pad_exponent: bool) -> String {
    let size = float.abs();
    if float.is_nan() {
        return "NaN".to_owned();
    }
    if float.is_infinite() {
        return if float > 0.0 { "+Inf".to_owned() } else { "-Inf".to_owned() };
    }
    if float != 0.0 && !plain.contains(&size) {
        let text = format!("{float:e}");
        let Some((digits, exponent)) = text.split_once('e') else { return text };
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(rest) => ('-', rest),
            None => ('+', exponent),
        };
        let pad = if pad_exponent && exponent.len() < 2 { "0" } else { "" };
        return format!("{digits}e{sign}{pad}{exponent}");
    }
    format!("{float}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_are_quoted_as_go_quotes_them() {
        assert_eq!(quote("a\"b\\\n\u{0}\u{7f}é\u{ad}"), "\"a\\\"b\\\\\\n\\x00\\x7fé\\u00ad\"");
        assert_eq!(value(&json!("x")), "\"x\"");
    }

    #[test]
    fn floats_are_printed_as_go_prints_them() {
        for (float, text) in
            [(1.5, "1.5"), (1e21, "1e+21"), (0.00001, "1e-05"), (100_000_000.0, "1e+08"), (0.0, "0")]
        {
            assert_eq!(float_g(float), text);
        }
        assert_eq!(json(&json!(1e-7)), "1e-7");
        assert_eq!(value(&json!(18_446_744_073_709_551_615_u64)), "1.8446744073709552e+19");
    }

    #[test]
    fn maps_are_printed_as_go_prints_them() {
        assert_eq!(
            plain(&json!({"b": [1, "x"], "a": null, "c": {"d": true}})),
            "map[a:<nil> b:[1 x] c:map[d:true]]"
        );
    }

    #[test]
    fn objects_are_compact_sorted_json() {
        assert_eq!(
            json(&json!({"b": [1, null], "a": {"x": "<&>"}})),
            r#"{"a":{"x":"\u003c\u0026\u003e"},"b":[1,null]}"#
        );
    }
}
