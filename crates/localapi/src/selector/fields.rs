//! Field selectors: `metadata.name=a,status.phase!=Running`, and the field labels that each kind supports.

use serde_json::Value;

use super::SelectorError;

/// Terms that all must hold; none matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector {
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    field: String,
    equal: bool,
    value: String,
}

/// The field labels that a kind can be selected by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldLabels {
    labels: Vec<String>,
    /// Whether the kind only knows its name and namespace, which the real server says in other words.
    generic: bool,
}

impl FieldLabels {
    /// The labels of a built-in kind.
    pub(crate) fn of(group: &str, kind: &str) -> Self {
        let own: &[&str] = match (group, kind) {
            ("", "Pod") => &[
                "metadata.namespace",
                "spec.nodeName",
                "spec.restartPolicy",
                "spec.schedulerName",
                "spec.serviceAccountName",
                "spec.hostNetwork",
                "status.phase",
                "status.podIP",
                "status.podIPs",
                "status.nominatedNodeName",
            ],
            ("", "Node") => &["spec.unschedulable"],
            ("", "Namespace") => &["status.phase"],
            ("", "Secret") => &["metadata.namespace", "type"],
            ("", "Service") => &["metadata.namespace", "spec.clusterIP", "spec.type"],
            ("", "ReplicationController") => &["metadata.namespace", "status.replicas"],
            ("batch", "Job") => &["metadata.namespace", "status.successful"],
            ("", "Event") => &[
                "metadata.namespace",
                "involvedObject.kind",
                "involvedObject.namespace",
                "involvedObject.name",
                "involvedObject.uid",
                "involvedObject.apiVersion",
                "involvedObject.resourceVersion",
                "involvedObject.fieldPath",
                "reason",
                "reportingComponent",
                "source",
                "type",
            ],
            _ => {
                let labels = vec!["metadata.name".to_owned(), "metadata.namespace".to_owned()];
                return Self { labels, generic: true };
            }
        };
        let labels = std::iter::once("metadata.name").chain(own.iter().copied()).map(str::to_owned).collect();
        Self { labels, generic: false }
    }

    /// The labels of a custom resource: its name, its namespace if it has one, and its `selectableFields`
    /// (as paths without the leading dot).
    pub(crate) fn custom(namespaced: bool, selectable: &[String]) -> Self {
        let mut labels = vec!["metadata.name".to_owned()];
        if namespaced {
            labels.push("metadata.namespace".to_owned());
        }
        labels.extend(selectable.iter().cloned());
        Self { labels, generic: false }
    }

    fn check(&self, label: &str) -> Result<(), SelectorError> {
        if self.labels.iter().any(|l| l == label) {
            return Ok(());
        }
        Err(SelectorError(if self.generic {
            format!(
                "{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
                crate::schema::wording::quote(label)
            )
        } else {
            format!("field label not supported: {label}")
        }))
    }
}

impl FieldSelector {
    /// Reads the value of a `fieldSelector` parameter for a kind.
    pub(crate) fn parse(text: &str, labels: &FieldLabels) -> Result<Self, SelectorError> {
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|p| !p.is_empty()) {
            let Some((field, equal, value)) = split_term(part) else {
                return Err(SelectorError(format!("invalid selector: '{text}'; can't understand '{part}'")));
            };
            let value = unescape(value)?;
            // An empty term restricts nothing.
            if !(field.is_empty() && value.is_empty()) {
                terms.push(Term { field: field.to_owned(), equal, value });
            }
        }
        for term in &terms {
            labels.check(&term.field)?;
        }
        Ok(Self { terms })
    }

    /// Whether the object fulfils every term; a field that is not there counts as the empty text.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.terms.iter().all(|term| (field_text(object, &term.field) == term.value) == term.equal)
    }

    /// Whether the selector restricts nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }
}

fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (index, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    term.char_indices().find_map(|(index, _)| {
        let (field, rest) = term.split_at(index);
        if let Some(value) = rest.strip_prefix("!=") {
            Some((field, false, value))
        } else {
            rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')).map(|value| (field, true, value))
        }
    })
}

fn unescape(text: &str) -> Result<String, SelectorError> {
    let bad = |sequence: &str| {
        Err(SelectorError(format!("invalid field selector: invalid escape sequence: {sequence}")))
    };
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                Some(c) => return bad(&format!("\\{c}")),
                None => return bad("\\"),
            },
            ',' | '=' => {
                let code = u32::from(c);
                return Err(SelectorError(format!(
                    "invalid field selector: unescaped character in value: {code}"
                )));
            }
            _ => out.push(c),
        }
    }
    Ok(out)
}

/// The text that a field label stands for. Most labels are paths; a few are computed.
fn field_text(object: &Value, label: &str) -> String {
    match label {
        "spec.unschedulable" | "spec.hostNetwork" => {
            let set = at(object, label).and_then(Value::as_bool).unwrap_or(false);
            set.to_string()
        }
        "status.podIP" => {
            let first = at(object, "status.podIPs").and_then(|ips| ips.get(0)).and_then(|ip| ip.get("ip"));
            plain(first.or_else(|| at(object, label)))
        }
        "status.podIPs" => String::new(),
        "status.replicas" | "status.successful" => match at(object, label) {
            Some(value) => plain(Some(value)),
            None => "0".to_owned(),
        },
        "reportingComponent" => {
            plain(at(object, "reportingComponent").or_else(|| at(object, "reportingController")))
        }
        "source" => {
            let component = plain(at(object, "source.component"));
            if component.is_empty() { field_text(object, "reportingComponent") } else { component }
        }
        _ => plain(at(object, label)),
    }
}

fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(object, |value, step| value.get(step))
}

fn plain(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => String::new(),
        Some(other) => other.to_string(),
    }
}
