//! The annotations by which a pod asks for Egresses: `egress.coil.cybozu.com/NAMESPACE: name[,name]`.
//!
//! Whoever writes pods writes them, so every length is bounded, and whatever is not understood is refused with its value.

use std::collections::{BTreeMap, BTreeSet};

use super::id::EgressId;
use super::names::is_label;

/// What keys of such annotations begin with; a namespace follows.
pub const ANNOTATION_PREFIX: &str = "egress.coil.cybozu.com/";

/// So many Egresses one pod may use. Each takes a tunnel and routes in the pod.
const MOST: usize = 64;
/// Of a value that is refused, so many characters are repeated.
const WORDS: usize = 128;

/// An annotation that does not name Egresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "reading annotation \"{key}\": {reason} in \"{value}\"; accepted are names of Egresses in the namespace that the key ends \
     in, separated by commas, such as \"{ANNOTATION_PREFIX}internet: egress,other\", at most {MOST} for a pod"
)]
pub struct AnnotationError {
    /// The key, shortened if it is very long.
    pub key: String,
    /// The value, shortened if it is very long.
    pub value: String,
    /// What is wrong.
    pub reason: String,
}

/// The Egresses that a pod's annotations ask for; none if there is no such annotation.
pub fn egresses_of(annotations: &BTreeMap<String, String>) -> Result<BTreeSet<EgressId>, AnnotationError> {
    let mut egresses = BTreeSet::new();
    let begin = annotations.range(ANNOTATION_PREFIX.to_owned()..);
    for (key, value) in begin.take_while(|(key, _)| key.starts_with(ANNOTATION_PREFIX)) {
        let failed = |reason: String| AnnotationError { key: short(key), value: short(value), reason };
        let namespace = &key[ANNOTATION_PREFIX.len()..];
        if !is_label(namespace) {
            return Err(failed("the key ends in no name of a namespace".to_owned()));
        }
        for name in value.split(',').map(str::trim) {
            if name.is_empty() {
                return Err(failed("there is an empty name".to_owned()));
            }
            if !is_label(name) {
                return Err(failed(format!("\"{}\" is no name of an Egress", short(name))));
            }
            egresses.insert(EgressId::new(namespace, name));
            if egresses.len() > MOST {
                return Err(failed(format!("there are more than {MOST} names")));
            }
        }
    }
    Ok(egresses)
}

fn short(text: &str) -> String {
    match text.char_indices().nth(WORDS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let annotations = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let egresses = egresses_of(&annotations).map_err(|error| error.to_string())?;
        Ok(egresses.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_pod_names_egresses_of_several_namespaces() {
        let pairs = [
            ("egress.coil.cybozu.com/internet", "egress"),
            ("egress.coil.cybozu.com/other-net", "b, a,b"),
            ("egress.coil.cybozu.computer/x", "is another annotation"),
            ("coil.cybozu.com/pool", "blue"),
        ];
        assert_eq!(of(&pairs).unwrap(), ["internet/egress", "other-net/a", "other-net/b"]);
        assert!(of(&[("a", "b")]).unwrap().is_empty());
    }

    #[test]
    fn what_is_no_list_of_names_is_refused_with_its_value() {
        let key = "egress.coil.cybozu.com/internet";
        for (value, reason) in [
            ("", "there is an empty name"),
            ("a,,b", "there is an empty name"),
            ("a b", "\"a b\" is no name of an Egress"),
            ("a,Ü", "\"Ü\" is no name of an Egress"),
            ("../a", "\"../a\" is no name of an Egress"),
        ] {
            let said = of(&[(key, value)]).unwrap_err();
            let expected =
                format!("reading annotation \"{key}\": {reason} in \"{value}\"; accepted are names");
            assert!(said.starts_with(&expected), "{said}");
        }
        let said = of(&[("egress.coil.cybozu.com/", "a")]).unwrap_err();
        assert!(said.contains("the key ends in no name of a namespace"), "{said}");
    }

    #[test]
    fn a_pod_has_a_bounded_number_of_egresses_and_a_refusal_a_bounded_length() {
        let many = |count: usize| (0..count).map(|n| format!("e{n}")).collect::<Vec<_>>().join(",");
        assert_eq!(of(&[("egress.coil.cybozu.com/a", &many(64))]).unwrap().len(), 64);
        let pairs = [("egress.coil.cybozu.com/a", &*many(40)), ("egress.coil.cybozu.com/b", &*many(40))];
        assert!(of(&pairs).unwrap_err().contains("there are more than 64 names"));
        assert!(of(&[("egress.coil.cybozu.com/a", &"ü".repeat(100_000))]).unwrap_err().len() < 1_500);
    }

    proptest! {
        #[test]
        fn no_annotation_panics_and_what_is_read_are_names(key in "[a-zA-Z0-9./_-]{0,80}", value in "\\PC{0,80}") {
            let annotations = BTreeMap::from([(format!("{ANNOTATION_PREFIX}{key}"), value)]);
            for id in egresses_of(&annotations).unwrap_or_default() {
                prop_assert!(is_label(&id.namespace) && is_label(&id.name));
            }
        }
    }
}
