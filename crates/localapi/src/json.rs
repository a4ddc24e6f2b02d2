//! JSON as kube-apiserver reads it: which fields came twice, whole numbers as such, complaints in its words.

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A document that was read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Read {
    /// The last value of each field.
    pub(crate) value: Value,
    /// Paths of the fields that came more than once.
    pub(crate) duplicates: Vec<String>,
}

/// Reads a document; the error says what is wrong with its syntax.
pub(crate) fn read(bytes: &[u8]) -> Result<Read, String> {
    let mut duplicates = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let read = Node(&mut duplicates)
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value));
    match read {
        Ok(value) => Ok(Read { value, duplicates }),
        Err(error) => Err(syntax_problem(bytes).unwrap_or_else(|| error.to_string())),
    }
}

/// A number as Go writes it: 1.0 is 1.
pub(crate) fn whole(number: f64) -> Option<Number> {
    // Up to here every whole number has a float of its own.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() <= EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "whole, and small enough to be exact")]
        return Some(Number::from(number as i64));
    }
    Number::from_f64(number)
}

/// Turns floats that are whole into whole numbers.
pub(crate) fn settle_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(settled) = number.as_f64().and_then(whole) {
                *number = settled;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(settle_numbers),
        Value::Object(fields) => fields.values_mut().for_each(settle_numbers),
        _ => {}
    }
}

/// One value; paths of duplicates below it are relative to it.
struct Node<'d>(&'d mut Vec<String>);

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(whole(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let before = self.0.len();
            let Some(item) = items.next_element_seed(Node(&mut *self.0))? else {
                return Ok(Value::Array(list));
            };
            for path in self.0.iter_mut().skip(before) {
                *path = join(&format!("[{}]", list.len()), path);
            }
            list.push(item);
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let before = self.0.len();
            let value = fields.next_value_seed(Node(&mut *self.0))?;
            for path in self.0.iter_mut().skip(before) {
                *path = join(&name, path);
            }
            if map.contains_key(&name) {
                self.0.push(name.clone());
            }
            map.insert(name, value);
        }
        Ok(Value::Object(map))
    }
}

fn join(parent: &str, path: &str) -> String {
    if path.starts_with('[') { format!("{parent}{path}") } else { format!("{parent}.{path}") }
}

/// The word that Go uses for a type of JSON value.
pub(crate) fn word(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// What is wrong with the syntax of a document, in the words of Go's decoder; none if it finds nothing.
fn syntax_problem(bytes: &[u8]) -> Option<String> {
    let mut scanner = Scanner { bytes, at: 0 };
    let result = scanner.value(0).and_then(|()| {
        scanner.space();
        if scanner.at == bytes.len() { Ok(()) } else { Err(scanner.unexpected("after top-level value")) }
    });
    result.err()
}

/// Deeper than this nothing is read anyway.
const DEEPEST: usize = 128;

struct Scanner<'b> {
    bytes: &'b [u8],
    at: usize,
}

type Scan = Result<(), String>;

impl Scanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while self.peek().is_some_and(|byte| b" \t\r\n".contains(&byte)) {
            self.at += 1;
        }
    }

    fn unexpected(&self, place: &str) -> String {
        match self.peek() {
            None => "unexpected end of JSON input".to_owned(),
            Some(byte) => format!("invalid character {} {place}", shown(byte)),
        }
    }

    fn value(&mut self, depth: usize) -> Scan {
        self.space();
        if depth > DEEPEST {
            return Err("exceeded max depth".to_owned());
        }
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    fn object(&mut self, depth: usize) -> Scan {
        self.at += 1;
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("looking for beginning of object key string"));
            }
            self.string()?;
            self.space();
            if self.peek() != Some(b':') {
                return Err(self.unexpected("after object key"));
            }
            self.at += 1;
            self.value(depth + 1)?;
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.unexpected("after object key:value pair")),
            }
        }
    }

    fn array(&mut self, depth: usize) -> Scan {
        self.at += 1;
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.value(depth + 1)?;
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.unexpected("after array element")),
            }
        }
    }

    fn string(&mut self) -> Scan {
        self.at += 1;
        loop {
            match self.peek() {
                None => return Err(self.unexpected("")),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    match self.peek() {
                        Some(b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"') => self.at += 1,
                        Some(b'u') => {
                            self.at += 1;
                            for _ in 0..4 {
                                if !self.peek().is_some_and(|byte| byte.is_ascii_hexdigit()) {
                                    return Err(self.unexpected("in \\u hexadecimal character escape"));
                                }
                                self.at += 1;
                            }
                        }
                        _ => return Err(self.unexpected("in string escape code")),
                    }
                }
                Some(byte) if byte < 0x20 => return Err(self.unexpected("in string literal")),
                Some(_) => self.at += 1,
            }
        }
    }

    fn digits(&mut self, place: &str) -> Scan {
        if !self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            return Err(self.unexpected(place));
        }
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Scan {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits("in numeric literal")?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits("after decimal point in numeric literal")?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits("in exponent of numeric literal")?;
        }
        Ok(())
    }

    fn literal(&mut self, word: &str) -> Scan {
        for expected in word.bytes() {
            if self.peek() != Some(expected) {
                let place = format!("in literal {word} (expecting {})", shown(expected));
                return Err(self.unexpected(&place));
            }
            self.at += 1;
        }
        Ok(())
    }
}

/// A byte as Go shows it.
fn shown(byte: u8) -> String {
    match byte {
        b'\'' => "'\\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        _ => {
            let quoted = crate::status::quote(&char::from(byte).to_string());
            format!("'{}'", quoted.trim_matches('"'))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_that_come_twice_are_noted_and_the_last_one_counts() {
        let read = read(br#"{"a": 1, "b": {"c": [{"d": 1, "d": 2}], "c2": 1}, "a": 2.0}"#).unwrap();
        assert_eq!(read.value, json!({"a": 2, "b": {"c": [{"d": 2}], "c2": 1}}));
        assert_eq!(read.duplicates, ["b.c[0].d", "a"]);
    }

    #[test]
    fn whole_numbers_are_whole_and_others_stay() {
        let read = read(b"[1.0, 1.5, 1e3, 18446744073709551615, 1e300]").unwrap();
        assert_eq!(read.value, json!([1, 1.5, 1000, 18_446_744_073_709_551_615_u64, 1e300]));
    }

    #[test]
    fn bad_syntax_is_named_as_go_names_it() {
        let problem = |text: &str| read(text.as_bytes()).unwrap_err();
        assert_eq!(problem(""), "unexpected end of JSON input");
        assert_eq!(problem("{"), "unexpected end of JSON input");
        assert_eq!(problem("nonsense"), "invalid character 'o' in literal null (expecting 'u')");
        assert_eq!(problem("{a"), "invalid character 'a' looking for beginning of object key string");
        assert_eq!(problem("{\"a\" 1}"), "invalid character '1' after object key");
        assert_eq!(problem("[1 2]"), "invalid character '2' after array element");
        assert_eq!(problem("{} {}"), "invalid character '{' after top-level value");
        assert_eq!(problem("-x"), "invalid character 'x' in numeric literal");
        assert_eq!(read(b"\x9e").unwrap_err(), "invalid character '\\u009e' looking for beginning of value");
    }
}
