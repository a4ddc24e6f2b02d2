//! Label selectors: `a=b, c!=d, e in (f,g), h notin (i), j, !k, l>1`.

use serde_json::{Map, Value};

use super::SelectorError;
use crate::names::{label_value_problems, qualified_name_problems};
use crate::schema::wording::quote;

/// Requirements that all must hold; none matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Greater,
    Less,
}

impl LabelSelector {
    /// Reads the value of a `labelSelector` parameter.
    pub(crate) fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut parser = Parser { tokens: tokens(text), position: 0 };
        parser.selector().map(|requirements| Self { requirements }).map_err(SelectorError)
    }

    /// Whether an object's `metadata.labels` fulfil every requirement.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        if self.requirements.is_empty() {
            return true;
        }
        let labels = object.get("metadata").and_then(|m| m.get("labels")).and_then(Value::as_object);
        self.requirements.iter().all(|r| r.matches(labels))
    }

    /// Whether the selector restricts nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }
}

impl Requirement {
    fn new(key: String, operator: Operator, values: Vec<String>) -> Result<Self, String> {
        let mut problems = Vec::new();
        if matches!(operator, Operator::Greater | Operator::Less) {
            for (index, value) in values.iter().enumerate().filter(|(_, v)| v.parse::<i64>().is_err()) {
                let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                problems.push(format!("values[{index}]: Invalid value: {}: {detail}", quote(value)));
            }
        }
        for (index, value) in values.iter().enumerate() {
            let found = label_value_problems(value);
            if !found.is_empty() {
                problems.push(format!(
                    "values[{index}][{key}]: Invalid value: {}: {}",
                    quote(value),
                    found.join("; ")
                ));
            }
        }
        match problems.as_slice() {
            [] => Ok(Self { key, operator, values }),
            [one] => Err(one.clone()),
            _ => Err(format!("[{}]", problems.join(", "))),
        }
    }

    fn matches(&self, labels: Option<&Map<String, Value>>) -> bool {
        let value = labels.and_then(|l| l.get(&self.key)).and_then(Value::as_str);
        match (self.operator, value) {
            (Operator::In, Some(value)) => self.has(value),
            (Operator::NotIn, Some(value)) => !self.has(value),
            (Operator::Exists, value) => value.is_some(),
            (Operator::DoesNotExist, value) => value.is_none(),
            (Operator::NotIn, None) => true,
            (Operator::In | Operator::Greater | Operator::Less, None) => false,
            (Operator::Greater, Some(value)) => self.compare(value).is_some_and(std::cmp::Ordering::is_gt),
            (Operator::Less, Some(value)) => self.compare(value).is_some_and(std::cmp::Ordering::is_lt),
        }
    }

    fn has(&self, value: &str) -> bool {
        self.values.iter().any(|v| v == value)
    }

    fn compare(&self, value: &str) -> Option<std::cmp::Ordering> {
        let bound = self.values.first()?.parse::<i64>().ok()?;
        Some(value.parse::<i64>().ok()?.cmp(&bound))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Symbol(&'static str),
    Unknown(String),
    End,
}

impl Token {
    fn literal(&self) -> &str {
        match self {
            Token::Word(text) | Token::Unknown(text) => text,
            Token::Symbol(symbol) => symbol,
            Token::End => "",
        }
    }
}

const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];

fn tokens(text: &str) -> Vec<Token> {
    let special = |c: char| matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<');
    let space = |c: char| matches!(c, ' ' | '\t' | '\r' | '\n');
    // A NUL byte ends the text for the real scanner.
    let mut rest = text.split('\0').next().unwrap_or_default();
    let mut out = Vec::new();
    loop {
        rest = rest.trim_start_matches(space);
        let Some(first) = rest.chars().next() else { break };
        if special(first) {
            if let Some(symbol) = SYMBOLS.iter().find(|s| rest.starts_with(**s)) {
                out.push(Token::Symbol(symbol));
                rest = &rest[symbol.len()..];
            } else {
                out.push(Token::Unknown(format!("error expected: keyword found '{first}'")));
                rest = &rest[first.len_utf8()..];
            }
        } else {
            let end = rest.find(|c: char| special(c) || space(c)).unwrap_or(rest.len());
            out.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
    }
    out.push(Token::End);
    out
}

struct Parser {
    tokens: Vec<Token>,
    position: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.position).unwrap_or(&Token::End)
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.position += 1;
        token
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                Token::Word(_) | Token::Symbol("!") => {}
                Token::End => return Ok(requirements),
                other => {
                    let found = other.literal();
                    return Err(format!("found '{found}', expected: !, identifier, or 'end of string'"));
                }
            }
            let requirement = self.requirement().map_err(|e| format!("unable to parse requirement: {e}"))?;
            requirements.push(requirement);
            match self.next() {
                Token::End => return Ok(requirements),
                Token::Symbol(",") => {
                    if !matches!(self.peek(), Token::Word(_) | Token::Symbol("!")) {
                        let found = self.peek().literal();
                        return Err(format!("found '{found}', expected: identifier after ','"));
                    }
                }
                other => {
                    let found = other.literal();
                    return Err(format!("found '{found}', expected: ',' or 'end of string'"));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let negated = *self.peek() == Token::Symbol("!");
        if negated {
            self.position += 1;
        }
        let key = match self.next() {
            Token::Word(key) => key,
            other => return Err(format!("found '{}', expected: identifier", other.literal())),
        };
        let problems = qualified_name_problems(&key);
        if !problems.is_empty() {
            return Err(format!("<nil>: Invalid value: {}: {}", quote(&key), problems.join("; ")));
        }
        if negated {
            return Requirement::new(key, Operator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Requirement::new(key, Operator::Exists, Vec::new());
        }
        match self.next() {
            Token::Word(word) if word == "in" => {
                let values = self.values()?;
                Requirement::new(key, Operator::In, values)
            }
            Token::Word(word) if word == "notin" => {
                let values = self.values()?;
                Requirement::new(key, Operator::NotIn, values)
            }
            Token::Symbol("=" | "==") => self.exact(key, Operator::In),
            Token::Symbol("!=") => self.exact(key, Operator::NotIn),
            Token::Symbol(">") => self.exact(key, Operator::Greater),
            Token::Symbol("<") => self.exact(key, Operator::Less),
            other => {
                let found = other.literal();
                Err(format!("found '{found}', expected: in, notin, =, ==, !=, gt, lt"))
            }
        }
    }

    fn exact(&mut self, key: String, operator: Operator) -> Result<Requirement, String> {
        let value = match self.peek() {
            Token::End | Token::Symbol(",") => String::new(),
            _ => match self.next() {
                Token::Word(value) => value,
                other => return Err(format!("found '{}', expected: identifier", other.literal())),
            },
        };
        Requirement::new(key, operator, vec![value])
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        let open = self.next();
        if open != Token::Symbol("(") {
            return Err(format!("found '{}' expected: '('", open.literal()));
        }
        match self.peek() {
            Token::Word(_) | Token::Symbol(",") => {}
            Token::Symbol(")") => {
                self.position += 1;
                return Ok(vec![String::new()]);
            }
            other => {
                let found = other.literal();
                return Err(format!("found '{found}', expected: ',', ')' or identifier"));
            }
        }
        let mut values = Vec::new();
        loop {
            match self.next() {
                Token::Word(value) => {
                    values.push(value);
                    match self.peek() {
                        Token::Symbol(",") => {}
                        Token::Symbol(")") => break,
                        other => {
                            let found = other.literal();
                            return Err(format!("found '{found}', expected: ',' or ')'"));
                        }
                    }
                }
                Token::Symbol(",") => {
                    if values.is_empty() {
                        values.push(String::new());
                    }
                    match self.peek() {
                        Token::Symbol(")") => {
                            values.push(String::new());
                            break;
                        }
                        Token::Symbol(",") => values.push(String::new()),
                        _ => {}
                    }
                }
                other => {
                    let found = other.literal();
                    return Err(format!("found '{found}', expected: ',', or identifier"));
                }
            }
        }
        self.position += 1;
        values.sort();
        values.dedup();
        Ok(values)
    }
}
