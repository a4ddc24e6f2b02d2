//! Paths that a schema's author writes: `.spec.size`, `['a.b'].c`.

use super::node::Node;

/// Follows a path through a schema. Returns the path as the server prints it and the schema that it ends at,
/// or what is wrong with it.
pub(crate) fn resolve<'a>(text: &str, node: &'a Node, brackets: bool) -> Result<(String, &'a Node), String> {
    let mut out = String::new();
    let mut node = node;
    let mut tokens = tokens(text).into_iter();
    while let Some(token) = tokens.next() {
        let name = match token.as_str() {
            "." => tokens.next().ok_or("unexpected end of JSON path")?,
            "[" => {
                if !brackets {
                    return Err("array notation is not allowed".to_owned());
                }
                let quoted = tokens.next().ok_or("unexpected end of JSON path")?;
                let inside = quoted
                    .strip_prefix('\'')
                    .and_then(|q| q.strip_suffix('\''))
                    .ok_or_else(|| format!("expected single quoted string but got {quoted}"))?;
                let name = unescape(inside)?;
                match tokens.next().as_deref() {
                    Some("]") => {}
                    Some(other) => return Err(format!("expected ] but got {other}")),
                    None => return Err("unexpected end of JSON path".to_owned()),
                }
                name
            }
            other => return Err(format!("expected [ or . but got: {other}")),
        };
        if node.properties.is_empty() {
            node = node.additional.schema().ok_or("does not refer to a valid field")?;
            out.push('[');
            out.push_str(&name);
            out.push(']');
        } else {
            node = node.properties.get(&name).ok_or("does not refer to a valid field")?;
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(&name);
        }
    }
    Ok((out, node))
}

/// Splits at `.`, `[` and `]`; a text in single quotes is one token.
fn tokens(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let end = match c {
            '.' | '[' | ']' => 1,
            '\'' => {
                let mut previous = c;
                let close = rest.char_indices().skip(1).find(|(_, c)| {
                    let found = *c == '\'' && previous != '\\';
                    previous = *c;
                    found
                });
                close.map_or(rest.len(), |(index, _)| index + 1)
            }
            _ => rest.find(['.', '[', ']']).unwrap_or(rest.len()),
        };
        out.push(rest[..end].to_owned());
        rest = &rest[end..];
    }
    out
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match chars.next() {
            Some('a') => '\u{7}',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\u{b}',
            Some('\'') => '\'',
            Some('\\') | None => '\\',
            Some(other) => return Err(format!("invalid string literal: invalid escape char \\{other}")),
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::path::Path;
    use super::*;

    fn node() -> Node {
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {"a.b": {"type": "string"}}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        }});
        Node::compile(&schema, &Path::root()).unwrap()
    }

    #[test]
    fn paths_follow_the_schema() {
        let node = node();
        assert_eq!(resolve(".spec", &node, true).unwrap().0, "spec");
        assert_eq!(resolve(".spec['a.b']", &node, true).unwrap().0, "spec.a.b");
        assert_eq!(resolve(".labels['x']", &node, true).unwrap().0, "labels[x]");
        for (path, problem) in [
            ("spec", "expected [ or . but got: spec"),
            (".nothing", "does not refer to a valid field"),
            (".", "unexpected end of JSON path"),
            (".spec[0]", "expected single quoted string but got 0"),
            (".spec['a.b'", "unexpected end of JSON path"),
        ] {
            assert_eq!(resolve(path, &node, true).unwrap_err(), problem, "{path}");
        }
        assert_eq!(resolve(".spec['a.b']", &node, false).unwrap_err(), "array notation is not allowed");
    }

    proptest! {
        #[test]
        fn no_path_panics(path in "[.\\[\\]'a-cé\\\\]{0,16}") {
            let _ = resolve(&path, &node(), true);
        }
    }
}
