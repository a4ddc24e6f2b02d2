//! What people write about egress. Each line is an annotation of a pod, `KEY=VALUE`, or a destination of an Egress.

use std::collections::BTreeMap;

use tenure_api::coil::egress::{ANNOTATION_PREFIX, Destinations, egresses_of};

use crate::{Violation, hold};

/// A refusal repeats no more than this of what it refuses.
const LONGEST: usize = 4_000;

pub(crate) fn run(input: &[u8]) -> Result<(), Violation> {
    let text = String::from_utf8_lossy(input);
    let mut annotations = BTreeMap::new();
    let mut destinations = Vec::new();
    for line in text.lines() {
        match line.split_once('=') {
            Some((key, value)) => {
                _ = annotations.insert(format!("{ANNOTATION_PREFIX}{key}"), value.to_owned());
            }
            None => destinations.push(line.to_owned()),
        }
    }
    match egresses_of(&annotations) {
        Ok(egresses) => {
            let named = egresses.iter().all(|id| !id.namespace.is_empty() && !id.name.is_empty());
            hold(named && egresses.len() <= 64, || format!("these are no Egresses: {egresses:?}"))?;
        }
        Err(error) => refuses(&error.to_string(), "reading annotation")?,
    }
    match Destinations::of(&destinations) {
        Ok(read) => {
            let all: Vec<_> = read.all().collect();
            let lost = destinations.iter().find(|text| !text.parse().is_ok_and(|cidr| all.contains(&cidr)));
            hold(lost.is_none(), || format!("{lost:?} was lost"))
        }
        Err(error) => refuses(&error.to_string(), "cannot read a network"),
    }
}

fn refuses(words: &str, act: &str) -> Result<(), Violation> {
    let good = words.starts_with(act) && words.contains("accepted") && words.len() < LONGEST;
    hold(good, || format!("a refusal does not say what it refuses and what would be accepted: {words}"))
}
