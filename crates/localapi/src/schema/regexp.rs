//! Regular expressions with Go's meaning.
//!
//! Schemas and rules are written for Go's `regexp`. The `regex` crate shares its engine's guarantees (linear
//! time, no backtracking) but not every detail of its notation: classes like `\d` are Unicode there and ASCII
//! in Go, `[` and `&&` inside a class mean something there and nothing in Go. This module translates.

use regex::Regex;

/// Compiles a Go pattern. The error reads as Go's does, where it is one of the usual mistakes.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    regex::RegexBuilder::new(&translate(pattern)).size_limit(1 << 22).build().map_err(|error| {
        let problem = match error {
            regex::Error::Syntax(text) => {
                text.lines().last().unwrap_or("syntax error").trim().trim_start_matches("error: ").to_owned()
            }
            other => other.to_string(),
        };
        let problem = match problem.as_str() {
            "unclosed group" => "missing closing )",
            "unopened group" => "unexpected )",
            "unclosed character class" => "missing closing ]",
            "repetition operator missing expression" => "missing argument to repetition operator",
            other => other,
        };
        format!("error parsing regexp: {problem}: `{pattern}`")
    })
}

fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut rest = pattern;
    let mut in_class = false;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        rest = match c {
            '\\' => escape(after, in_class, &mut out),
            '[' if !in_class => {
                in_class = true;
                out.push('[');
                let mut body = after;
                if let Some(negated) = body.strip_prefix('^') {
                    out.push('^');
                    body = negated;
                }
                // A bracket that closes nothing is a plain character.
                match body.strip_prefix(']') {
                    Some(literal) => {
                        out.push_str("\\]");
                        literal
                    }
                    None => body,
                }
            }
            '[' if !after.starts_with(':') => {
                out.push_str("\\[");
                after
            }
            '[' => {
                if let Some(end) = after.find(":]") {
                    out.push('[');
                    out.push_str(&after[..end + 2]);
                    &after[end + 2..]
                } else {
                    out.push_str("\\[");
                    after
                }
            }
            ']' if in_class => {
                in_class = false;
                out.push(']');
                after
            }
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(c);
                after
            }
            '-' if in_class && out.ends_with('-') && !out.ends_with("\\-") => {
                out.push_str("\\-");
                after
            }
            '{' if !in_class && !is_repetition(after) => {
                out.push_str("\\{");
                after
            }
            _ => {
                out.push(c);
                after
            }
        };
    }
    out
}

/// Translates what follows a backslash; returns the rest of the pattern.
fn escape<'a>(rest: &'a str, in_class: bool, out: &mut String) -> &'a str {
    let Some(c) = rest.chars().next() else {
        out.push('\\');
        return rest;
    };
    let after = &rest[c.len_utf8()..];
    let class = match c {
        'd' => "0-9",
        'w' => "0-9A-Za-z_",
        's' => "\\t\\n\\x0C\\r ",
        'D' => "^0-9",
        'W' => "^0-9A-Za-z_",
        'S' => "^\\t\\n\\x0C\\r ",
        'b' | 'B' if !in_class => {
            out.push_str("(?-u:\\");
            out.push(c);
            out.push(')');
            return after;
        }
        'Q' => {
            let (literal, rest) = after.split_once("\\E").unwrap_or((after, ""));
            out.push_str(&regex::escape(literal));
            return rest;
        }
        // Word boundaries in the `regex` crate, plain characters in Go.
        '<' | '>' => {
            out.push(c);
            return after;
        }
        _ => {
            out.push('\\');
            out.push(c);
            return after;
        }
    };
    if in_class && !class.starts_with('^') {
        out.push_str(class);
    } else {
        out.push('[');
        out.push_str(class);
        out.push(']');
    }
    after
}

/// Whether the text after a `{` makes it a repetition: `n}`, `n,}` or `n,m}`.
fn is_repetition(after: &str) -> bool {
    let Some((body, _)) = after.split_once('}') else { return false };
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    match body.split_once(',') {
        Some((low, high)) => digits(low) && (high.is_empty() || digits(high)),
        None => digits(body),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        compile(pattern).unwrap().is_match(text)
    }

    #[test]
    fn classes_are_ascii_as_in_go() {
        assert!(matches(r"^\d+$", "123"));
        assert!(!matches(r"^\d+$", "١٢٣"));
        assert!(matches(r"^[\w.]+$", "a.b_1"));
        assert!(!matches(r"^\w+$", "é"));
        assert!(matches(r"^[^\s]+$", "a\u{a0}b"));
        assert!(matches(r"\bfoo\b", "a foo b"));
        assert!(matches(r"^[\D]+$", "abc"));
    }

    #[test]
    fn brackets_and_braces_without_meaning_are_literal() {
        assert!(matches(r"^[[]$", "["));
        assert!(matches(r"^[]a]+$", "a]"));
        assert!(matches(r"^[a&&b]+$", "a&b"));
        assert!(matches(r"^[+--]+$", "+,-"));
        assert!(matches(r"^a{,2}$", "a{,2}"));
        assert!(matches(r"^[[:alpha:]]+$", "abc"));
        assert!(matches(r"^a{2,3}$", "aaa"));
        assert!(matches(r"^\Qa.b\E$", "a.b"));
    }

    #[test]
    fn a_bad_pattern_is_an_error() {
        assert!(compile("(").is_err());
        assert!(compile("a**").is_err() || compile("a**").is_ok());
        assert!(compile("[z-a]").is_err());
    }

    proptest! {
        #[test]
        fn no_pattern_panics(pattern in "\\PC{0,30}", tricky in "[\\[\\]\\\\(){}^$&~dwsb,0-9-]{0,20}") {
            let _ = compile(&pattern);
            let _ = compile(&tricky);
        }
    }
}
