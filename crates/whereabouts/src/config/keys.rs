//! Keys of a JSON object: found in any case, read with the type that they should have, merged with the flat
//! file's.

use serde_json::Value;

use super::{Notice, Object, Refusal};

/// Keys of `ipam` and of the flat file that have an effect.
const MEANT: [&str; 22] = [
    "type",
    "range",
    "range_start",
    "range_end",
    "exclude",
    "ipRanges",
    "gateway",
    "addresses",
    "routes",
    "dns",
    "network_name",
    "node_slice_size",
    "fast_ipam",
    "enable_overlapping_ranges",
    "kubernetes",
    "configuration_path",
    "log_file",
    "log_level",
    "exclude_gateway",
    "pick_addresses",
    "enable_l3",
    // Keys that Multus and others add.
    "name",
];

/// Keys that Whereabouts or its fork reads, and that have no effect here.
const WITHOUT_EFFECT: [(&str, &str); 15] = [
    ("leader_lease_duration", "no lease is taken"),
    ("leader_renew_deadline", "no lease is taken"),
    ("leader_retry_period", "no lease is taken"),
    ("datastore", "state is kept in Kubernetes objects"),
    ("etcd_host", "state is kept in Kubernetes objects"),
    ("etcd_username", "state is kept in Kubernetes objects"),
    ("etcd_password", "state is kept in Kubernetes objects"),
    ("etcd_key_file", "state is kept in Kubernetes objects"),
    ("etcd_cert_file", "state is kept in Kubernetes objects"),
    ("etcd_ca_cert_file", "state is kept in Kubernetes objects"),
    ("sleep_for_race", "there is no critical section to sleep in"),
    ("reconciler_cron_expression", "what nobody uses is released within minutes, not by the clock"),
    ("optimistic_ipam", "it is always so"),
    ("cleanup_disrupted_pods", "pods are watched"),
    ("verify_network_status", "an annotation that is missing releases nothing"),
];

/// Keys of an entry of `ipRanges`.
pub(super) const OF_A_RANGE: [&str; 7] =
    ["range", "range_start", "range_end", "exclude", "pick_addresses", "enable_l3", "node_slice_size"];

/// An object's keys, and its path.
pub(super) struct Keys<'a> {
    path: &'a str,
    object: &'a Object,
}

impl<'a> Keys<'a> {
    pub(super) fn new(path: &'a str, object: &'a Object) -> Self {
        Self { path, object }
    }

    /// The path of a key of this object.
    pub(super) fn path(&self, key: &str) -> String {
        format!("{}.{key}", self.path)
    }

    pub(super) fn refuse(&self, key: &str, value: &str, problem: &str, accepted: &str) -> Refusal {
        Refusal::new(&self.path(key), value, problem, accepted)
    }

    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        let exact = self.object.get(key);
        let any = || self.object.iter().find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, v)| v);
        exact.or_else(any).filter(|value| !value.is_null())
    }

    /// A text; empty if it is missing.
    pub(super) fn text(&self, key: &str) -> Result<String, Refusal> {
        match self.get(key) {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.trim().to_owned()),
            Some(other) => Err(self.refuse(key, &other.to_string(), "it is no string", "a string")),
        }
    }

    /// A boolean, if it is set.
    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, Refusal> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(self.refuse(key, &other.to_string(), "it is no boolean", "true or false")),
        }
    }

    /// A number that is not negative.
    pub(super) fn number(&self, key: &str) -> Result<Option<u64>, Refusal> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => value.as_u64().map(Some).ok_or_else(|| {
                self.refuse(key, &value.to_string(), "it is no whole number", "a number of 0 or more")
            }),
        }
    }

    /// The entries of a list; empty if it is missing.
    pub(super) fn list(&self, key: &str) -> Result<&'a [Value], Refusal> {
        match self.get(key) {
            None => Ok(&[]),
            Some(Value::Array(list)) => Ok(list),
            Some(other) => Err(self.refuse(key, &other.to_string(), "it is no list", "a list")),
        }
    }

    /// The texts of a list, each with its path.
    pub(super) fn texts(&self, key: &str) -> Result<Vec<(String, String)>, Refusal> {
        let entry = |(place, value): (usize, &Value)| {
            let path = self.path(&format!("{key}[{place}]"));
            match value {
                Value::String(text) => Ok((path, text.trim().to_owned())),
                other => Err(Refusal::new(&path, &other.to_string(), "it is no string", "a string")),
            }
        };
        self.list(key)?.iter().enumerate().map(entry).collect()
    }

    /// An object; empty if it is missing.
    pub(super) fn object(&self, key: &str) -> Result<Object, Refusal> {
        match self.get(key) {
            None => Ok(Object::new()),
            Some(Value::Object(object)) => Ok(object.clone()),
            Some(other) => Err(self.refuse(key, &other.to_string(), "it is no object", "an object")),
        }
    }
}

/// Checks only the names of the keys: those without effect are noticed, those that look mistyped are refused.
pub(super) fn check_names(path: &str, object: &Object, notices: &mut Vec<Notice>) -> Result<(), Refusal> {
    let known = || MEANT.into_iter().chain(WITHOUT_EFFECT.iter().map(|(key, _)| *key));
    for key in object.keys() {
        let notice = |note: String| Notice { key: format!("{path}.{key}"), note };
        if MEANT.iter().any(|meant| meant.eq_ignore_ascii_case(key)) {
            continue;
        }
        if let Some((_, why)) = WITHOUT_EFFECT.iter().find(|(other, _)| other.eq_ignore_ascii_case(key)) {
            notices.push(notice(format!("ignored: {why}")));
        } else {
            refuse_typo(path, key, known())?;
            notices.push(notice("ignored: no such key is known".to_owned()));
        }
    }
    Ok(())
}

/// Refuses a key that is almost a known one: otherwise it would be ignored although it was meant.
pub(super) fn refuse_typo<'k>(
    path: &str,
    key: &str,
    known: impl Iterator<Item = &'k str>,
) -> Result<(), Refusal> {
    let near = |other: &&str| {
        let far = distance(&key.to_ascii_lowercase(), &other.to_ascii_lowercase());
        far <= if other.len() < 6 { 1 } else { 2 }
    };
    match known.into_iter().find(near) {
        Some(meant) => {
            let problem = format!("no such key is known, and it looks like {meant:?}");
            Err(Refusal::new(path, key, &problem, &format!("the key {meant:?}")))
        }
        None => Ok(()),
    }
}

/// The edit distance: how many letters must be changed, added or removed.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.chars().take(64).enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, right) in b.iter().enumerate() {
            let change = diagonal + usize::from(left != *right);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}

/// The network's values, and the flat file's where the network has none; objects key by key.
pub(super) fn merge(own: &Object, flat: &Object) -> Object {
    let mut merged = own.clone();
    for (key, value) in flat {
        let place = own.keys().find(|name| name.eq_ignore_ascii_case(key)).unwrap_or(key);
        match (merged.get_mut(place), value) {
            (Some(Value::Object(own)), Value::Object(flat)) => *own = merge(own, flat),
            (Some(own), value) if says_nothing(own) => *own = value.clone(),
            (Some(_), _) => {}
            (None, value) => {
                merged.insert(key.clone(), value.clone());
            }
        }
    }
    merged
}

/// Whether it is null, or the empty value of its type: Whereabouts treats both as unset.
fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
    }
}
