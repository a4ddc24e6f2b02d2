//! Field names as identifiers: `foo-bar` is `foo__dash__bar`, `namespace` is `__namespace__`.

const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The identifier of a field, if it has one.
pub(in crate::schema) fn escape(name: &str) -> Option<String> {
    let first = name.bytes().next()?;
    if first.is_ascii_digit() {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("__") {
            out.push_str("__underscores__");
            rest = after;
            continue;
        }
        match c {
            '.' => out.push_str("__dot__"),
            '-' => out.push_str("__dash__"),
            '/' => out.push_str("__slash__"),
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => out.push(c),
            _ => return None,
        }
        rest = &rest[c.len_utf8()..];
    }
    Some(out)
}

/// The field that an identifier names; `None` when the identifier holds a sequence that means nothing.
pub(super) fn unescape(identifier: &str) -> Option<String> {
    if !identifier.contains("__") {
        return Some(identifier.to_owned());
    }
    let mut out = String::with_capacity(identifier.len());
    let mut rest = identifier;
    while !rest.is_empty() {
        let Some(after) = rest.strip_prefix("__") else {
            let c = rest.chars().next()?;
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        // `__`, one or more characters without underscore, `__`.
        let word = match after.split_once('_') {
            Some((word, tail)) if !word.is_empty() && tail.starts_with('_') => Some((word, &tail[1..])),
            _ => None,
        };
        let Some((word, tail)) = word else {
            out.push('_');
            rest = &rest[1..];
            continue;
        };
        out.push_str(match word {
            "underscores" => "__",
            "dot" => ".",
            "dash" => "-",
            "slash" => "/",
            reserved if RESERVED.contains(&reserved) && identifier.len() == reserved.len() + 4 => reserved,
            _ => return None,
        });
        rest = tail;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_and_identifiers_convert_both_ways() {
        for (name, identifier) in [
            ("plain", "plain"),
            ("foo-bar", "foo__dash__bar"),
            ("a.b/c", "a__dot__b__slash__c"),
            ("namespace", "__namespace__"),
            ("a__b", "a__underscores__b"),
            ("my_field", "my_field"),
        ] {
            assert_eq!(escape(name).as_deref(), Some(identifier));
            assert_eq!(unescape(identifier).as_deref(), Some(name));
        }
        assert_eq!(escape("1a"), None);
        assert_eq!(escape("a b"), None);
        assert_eq!(unescape("a__what__b"), None);
    }

    proptest! {
        #[test]
        fn escaping_round_trips(name in "[a-z_./-]{1,12}") {
            if let Some(identifier) = escape(&name) {
                prop_assert_eq!(unescape(&identifier), Some(name));
            }
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,20}") {
            let _ = escape(&text);
            let _ = unescape(&text);
        }
    }
}
