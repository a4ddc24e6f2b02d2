//! The part of Kubernetes' JSONPath that definitions use: fields, items, wildcards and filters.
//!
//! `.spec.size`, `.metadata.labels['a\.b']`, `.status.conditions[?(@.type=="Ready")].status`, `.items[*].name`.

use serde_json::Value;

/// A parsed path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    Index(i64),
    All,
    Filter {
        path: Vec<Step>,
        operator: Operator,
        value: Operand,
    },
    /// `[?(@.field)]`
    Exists(Vec<Step>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operand {
    Text(String),
    /// Kept as written; compared as a number.
    Number(String),
    Bool(bool),
}

impl JsonPath {
    /// Parses a path. The error says what was not understood.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text);
        let text = text.strip_prefix('$').unwrap_or(text);
        Ok(Self { steps: steps(text)? })
    }

    /// The first value that the path leads to.
    pub(crate) fn first<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        find(object, &self.steps).into_iter().next()
    }
}

fn find<'a>(object: &'a Value, steps: &[Step]) -> Vec<&'a Value> {
    let mut found = vec![object];
    for step in steps {
        found = found.into_iter().flat_map(|value| step.apply(value)).collect();
    }
    found
}

impl Step {
    fn apply<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Self::Field(name), Value::Object(fields)) => fields.get(name).into_iter().collect(),
            (Self::Index(index), Value::Array(items)) => {
                let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
                let index = if *index < 0 { index.saturating_add(length) } else { *index };
                usize::try_from(index).ok().and_then(|index| items.get(index)).into_iter().collect()
            }
            (Self::All, Value::Array(items)) => items.iter().collect(),
            (Self::All, Value::Object(fields)) => fields.values().collect(),
            (Self::Exists(path), Value::Array(items)) => {
                items.iter().filter(|item| !find(item, path).is_empty()).collect()
            }
            (Self::Filter { path, operator, value }, Value::Array(items)) => items
                .iter()
                .filter(|item| find(item, path).first().is_some_and(|found| operator.holds(found, value)))
                .collect(),
            _ => Vec::new(),
        }
    }
}

impl Operator {
    fn holds(self, found: &Value, operand: &Operand) -> bool {
        let order = match (found, operand) {
            (Value::String(found), Operand::Text(text)) => Some(found.as_str().cmp(text)),
            (Value::Bool(found), Operand::Bool(flag)) => Some(found.cmp(flag)),
            (Value::Number(found), Operand::Number(number)) => {
                number.parse::<f64>().ok().and_then(|n| found.as_f64()?.partial_cmp(&n))
            }
            _ => None,
        };
        match self {
            Self::Equal => order.is_some_and(std::cmp::Ordering::is_eq),
            Self::NotEqual => order.is_none_or(std::cmp::Ordering::is_ne),
            Self::Less => order.is_some_and(std::cmp::Ordering::is_lt),
            Self::LessEqual => order.is_some_and(std::cmp::Ordering::is_le),
            Self::Greater => order.is_some_and(std::cmp::Ordering::is_gt),
            Self::GreaterEqual => order.is_some_and(std::cmp::Ordering::is_ge),
        }
    }
}

fn steps(text: &str) -> Result<Vec<Step>, String> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = match c {
            '.' => field(&rest[1..], &mut out)?,
            '[' => bracket(&rest[1..], &mut out)?,
            _ if out.is_empty() => field(rest, &mut out)?,
            _ => return Err(format!("unexpected {rest:?}")),
        };
    }
    Ok(out)
}

/// A field name up to the next dot or bracket; a backslash makes the next character part of it.
fn field<'a>(text: &'a str, out: &mut Vec<Step>) -> Result<&'a str, String> {
    let mut name = String::new();
    let mut chars = text.char_indices();
    let mut end = text.len();
    while let Some((index, c)) = chars.next() {
        match c {
            '.' | '[' => {
                end = index;
                break;
            }
            '\\' => name.extend(chars.next().map(|(_, c)| c)),
            c => name.push(c),
        }
    }
    let rest = &text[end..];
    match name.as_str() {
        // `.` alone is the object, and a dot before a bracket changes nothing.
        "" if rest.is_empty() || rest.starts_with('[') => {}
        "" => return Err("recursive descent is not supported".to_owned()),
        "*" => out.push(Step::All),
        _ => out.push(Step::Field(name)),
    }
    Ok(rest)
}

fn bracket<'a>(text: &'a str, out: &mut Vec<Step>) -> Result<&'a str, String> {
    let unclosed = || format!("unterminated array in {text:?}");
    if let Some(filter) = text.strip_prefix("?(") {
        let end = outside_quotes(filter, ")]").ok_or_else(unclosed)?;
        out.push(self::filter(filter[..end].trim())?);
        return Ok(&filter[end + 2..]);
    }
    let end = outside_quotes(text, "]").ok_or_else(unclosed)?;
    let (inside, rest) = (text[..end].trim(), &text[end + 1..]);
    // A name in brackets is read like one after a dot, dots in it included: `['a\.b']` is one field.
    if let Some(name) = inside.strip_prefix('\'').and_then(|name| name.strip_suffix('\'')) {
        out.extend(steps(&format!(".{name}"))?);
        return Ok(rest);
    }
    out.push(match inside {
        "*" | "" | ":" => Step::All,
        number => Step::Index(number.parse().map_err(|_| format!("invalid array index {number:?}"))?),
    });
    Ok(rest)
}

/// Where `pattern` first occurs outside of quotes.
fn outside_quotes(text: &str, pattern: &str) -> Option<usize> {
    let mut quote = None;
    for (index, c) in text.char_indices() {
        match (quote, c) {
            (None, _) if text[index..].starts_with(pattern) => return Some(index),
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            _ => {}
        }
    }
    None
}

fn filter(text: &str) -> Result<Step, String> {
    const OPERATORS: [(&str, Operator); 6] = [
        ("==", Operator::Equal),
        ("!=", Operator::NotEqual),
        ("<=", Operator::LessEqual),
        (">=", Operator::GreaterEqual),
        ("<", Operator::Less),
        (">", Operator::Greater),
    ];
    let path = |text: &str| {
        let text = text.trim();
        steps(text.strip_prefix('@').ok_or_else(|| format!("expected @ in {text:?}"))?)
    };
    for (sign, operator) in OPERATORS {
        if let Some(place) = outside_quotes(text, sign) {
            let right = text[place + sign.len()..].trim();
            let value = match (unquote(right), right) {
                (Some(text), _) => Operand::Text(text),
                (None, "true") => Operand::Bool(true),
                (None, "false") => Operand::Bool(false),
                (None, number) if number.parse::<f64>().is_ok() => Operand::Number(number.to_owned()),
                (None, other) => return Err(format!("unsupported operand {other:?}")),
            };
            return Ok(Step::Filter { path: path(&text[..place])?, operator, value });
        }
    }
    Ok(Step::Exists(path(text)?))
}

fn unquote(text: &str) -> Option<String> {
    let inside = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    inside('\'').or_else(|| inside('"')).map(|text| text.replace("\\'", "'").replace("\\\"", "\""))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_lead_to_values() {
        let object = json!({"spec": {"a": 1, "b.c": "x"}, "list": [{"type": "A", "n": 1}, {"type": "B", "n": 2, "ok": true}]});
        for (path, value) in [
            (".spec.a", Some(json!(1))),
            ("{.spec.a}", Some(json!(1))),
            (".spec['b\\.c']", Some(json!("x"))),
            (".spec['b.c']", None),
            (".spec.b\\.c", Some(json!("x"))),
            (".list[0].type", Some(json!("A"))),
            (".list[-1].type", Some(json!("B"))),
            (".list[*].n", Some(json!(1))),
            (".list[?(@.type==\"B\")].n", Some(json!(2))),
            (".list[?(@.type == 'B')].n", Some(json!(2))),
            (".list[?(@.n>1)].type", Some(json!("B"))),
            (".list[?(@.n!=1)].type", Some(json!("B"))),
            (".list[?(@.ok)].type", Some(json!("B"))),
            (".list[?(@.ok==true)].type", Some(json!("B"))),
            (".nothing.here", None),
            (".list[7]", None),
            (".spec[0]", None),
        ] {
            assert_eq!(JsonPath::parse(path).unwrap().first(&object).cloned(), value, "{path}");
        }
        assert_eq!(JsonPath::parse(".").unwrap().first(&object), Some(&object));
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        for path in ["..a", ".a[", ".a[x]", ".a[?(x==1)]", ".a[?(@.b==c)]"] {
            assert!(JsonPath::parse(path).is_err(), "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_path_panics(path in "[.\\[\\]'\"@?()=a-c0-9*é\\\\ -]{0,20}", object in crate::schema::proptests::any_json()) {
            if let Ok(path) = JsonPath::parse(&path) {
                let _ = path.first(&object);
            }
        }
    }
}
