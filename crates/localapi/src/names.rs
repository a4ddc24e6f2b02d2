//! Valid names, labels and annotation keys of Kubernetes, and the metadata that contain them.
//!
//! This module has the rules for texts; [`metadata`] applies them to objects. Every error uses
//! kube-apiserver's words.

mod metadata;
#[cfg(test)]
mod tests;

pub(crate) use metadata::{coerce, finalizer_warnings, tidy, validate_create, validate_update};

/// The rule for the names of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// Labels joined by dots, the rule of most kinds.
    Subdomain,
    /// One label: namespaces.
    Label,
    /// One label that starts with a letter: services.
    Label1035,
    /// Anything that can be part of a URL path: roles and their bindings.
    PathSegment,
}

impl NameRule {
    /// The rule for a built-in kind, or for any kind of a custom resource.
    pub(crate) fn of(group: &str, kind: &str) -> Self {
        match (group, kind) {
            ("", "Namespace") => Self::Label,
            ("", "Service") => Self::Label1035,
            ("rbac.authorization.k8s.io", _) => Self::PathSegment,
            _ => Self::Subdomain,
        }
    }

    /// The problems of a name; empty if it is valid. `prefix` is true for `generateName`.
    pub(crate) fn problems(self, name: &str, prefix: bool) -> Vec<String> {
        let masked =
            if prefix && self != Self::PathSegment { mask_trailing_dash(name) } else { name.to_owned() };
        match self {
            Self::Subdomain => subdomain_problems(&masked),
            Self::Label => label_problems(&masked),
            Self::Label1035 => label1035_problems(&masked),
            Self::PathSegment => path_segment_problems(name, prefix),
        }
    }
}

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const LABEL_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const KEY_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/// Problems with a DNS-1123 subdomain.
pub(crate) fn subdomain_problems(value: &str) -> Vec<String> {
    subdomain_problems_in(value, CHARACTERS)
}

fn subdomain_problems_in(value: &str, unit: &str) -> Vec<String> {
    let mut problems = too_long(value, 253, unit);
    if !is_subdomain(value) {
        problems.push(mismatch(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
            SUBDOMAIN,
            &["example.com"],
        ));
    }
    problems
}

/// Problems with a DNS-1123 label.
pub(crate) fn label_problems(value: &str) -> Vec<String> {
    let mut problems = too_long(value, 63, CHARACTERS);
    if !is_label(value) {
        problems.push(if is_subdomain(value) {
            "must not contain dots".to_owned()
        } else {
            mismatch(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
                LABEL,
                &["my-name", "123-abc"],
            )
        });
    }
    problems
}

/// Problems with a DNS-1035 label: as a DNS-1123 label, but the first character is a letter.
pub(crate) fn label1035_problems(value: &str) -> Vec<String> {
    let mut problems = too_long(value, 63, CHARACTERS);
    if !is_label(value) || !value.starts_with(|c: char| c.is_ascii_lowercase()) {
        problems.push(mismatch(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
            LABEL_1035,
            &["my-name", "abc-123"],
        ));
    }
    problems
}

/// Problems with a label key, an annotation key (lower-cased) or a finalizer: `[prefix/]name`.
pub(crate) fn qualified_name_problems(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let parts: Vec<&str> = value.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                problems.extend(
                    subdomain_problems_in(prefix, BYTES).into_iter().map(|p| format!("prefix part {p}")),
                );
            }
            *name
        }
        _ => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                mismatch(KEY_RULE, KEY, &["MyName", "my.name", "123-abc"])
            )];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else {
        problems.extend(too_long(name, 63, BYTES).into_iter().map(|p| format!("name part {p}")));
    }
    if !is_key(name) {
        problems.push(format!("name part {}", mismatch(KEY_RULE, KEY, &["MyName", "my.name", "123-abc"])));
    }
    problems
}

/// Problems with a label value.
pub(crate) fn label_value_problems(value: &str) -> Vec<String> {
    let mut problems = too_long(value, 63, BYTES);
    if !value.is_empty() && !is_key(value) {
        problems.push(mismatch(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        ));
    }
    problems
}

/// Problems with a name that only has to fit into a URL path.
pub(crate) fn path_segment_problems(value: &str, prefix: bool) -> Vec<String> {
    if !prefix && (value == "." || value == "..") {
        return vec![format!("may not be '{value}'")];
    }
    ["/", "%"].iter().filter(|c| value.contains(**c)).map(|c| format!("may not contain '{c}'")).collect()
}

fn is_label(value: &str) -> bool {
    let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = value.as_bytes();
    matches!((bytes.first(), bytes.last()), (Some(first), Some(last)) if inner(first) && inner(last))
        && bytes.iter().all(|b| inner(b) || *b == b'-')
}

fn is_subdomain(value: &str) -> bool {
    value.split('.').all(is_label)
}

fn is_key(value: &str) -> bool {
    let bytes = value.as_bytes();
    matches!((bytes.first(), bytes.last()), (Some(first), Some(last)) if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// The unit of lengths in messages about names; the lengths themselves are always bytes.
const CHARACTERS: &str = "characters";
/// The same in messages about labels and annotations.
const BYTES: &str = "bytes";

fn too_long(value: &str, max: usize, unit: &str) -> Vec<String> {
    if value.len() > max { vec![format!("must be no more than {max} {unit}")] } else { Vec::new() }
}

fn mismatch(rule: &str, regex: &str, examples: &[&str]) -> String {
    let quoted: Vec<String> = examples.iter().map(|e| format!("'{e}', ")).collect();
    format!("{rule} (e.g. {}regex used for validation is '{regex}')", quoted.join(" or "))
}

/// A name that will get a suffix may end in a dash; the real server replaces its last two bytes by a letter.
fn mask_trailing_dash(name: &str) -> String {
    match name.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let mut cut = rest.len() - 1;
            while !rest.is_char_boundary(cut) {
                cut -= 1;
            }
            format!("{}a", &rest[..cut])
        }
        _ => name.to_owned(),
    }
}
