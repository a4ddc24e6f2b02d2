//! What a policy captures.

use std::collections::BTreeMap;

use crate::Refusal;
use crate::expression::Expression;

const PREFIX: &str = "ippool.";
const SUFFIX: &str = ".allocate";
/// The longest name of a label.
const LONGEST: usize = 63;

/// One capture of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Capture {
    /// An address of the pool of this name.
    Pool(String),
    /// A part of the node's state.
    State(Expression),
}

impl Capture {
    /// Reads the text of the capture of this name.
    pub fn parse(name: &str, text: &str) -> Result<Self, Refusal> {
        let place = format!("capture.{name}");
        let trimmed = text.trim();
        if trimmed == "ippool" || trimmed.starts_with(PREFIX) {
            let pool = trimmed.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX));
            return match pool.filter(|pool| is_pool_name(pool)) {
                Some(pool) => Ok(Self::Pool(pool.to_owned())),
                None => Err(Refusal::new(
                    place,
                    format!("{text:?} names no pool"),
                    "is ippool.NAME.allocate, where NAME is a NodeIPPool's: at most 63 lowercase letters, digits and \
                     hyphens, beginning with a letter",
                )),
            };
        }
        Expression::parse(&place, text).map(Self::State)
    }
}

/// Whether a pool of this name can be referred to: a label that begins with a letter.
pub fn is_pool_name(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    name.len() <= LONGEST
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(inner)
        && !name.ends_with('-')
}

/// All captures of a policy, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captures(BTreeMap<String, Capture>);

impl Captures {
    /// Reads the captures of a policy. Refuses the first that is not understood, and those that refer to one that is not
    /// there or to themselves.
    pub fn parse<'a>(captures: impl IntoIterator<Item = (&'a String, &'a String)>) -> Result<Self, Refusal> {
        let mut all = BTreeMap::new();
        for (name, text) in captures {
            if !is_capture_name(name) {
                return Err(Refusal::new(
                    "capture",
                    format!("{name:?} is no name that references can contain"),
                    "are names of letters, digits, hyphens and underscores",
                ));
            }
            all.insert(name.clone(), Capture::parse(name, text)?);
        }
        let captures = Self(all);
        captures.order()?;
        Ok(captures)
    }

    /// The captures of an address, as name of the capture and name of the pool, in the order of the captures' names.
    pub fn pools(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|(name, capture)| match capture {
            Capture::Pool(pool) => Some((name.as_str(), pool.as_str())),
            Capture::State(_) => None,
        })
    }

    /// Whether something of the node's state is captured.
    pub fn needs_state(&self) -> bool {
        self.0.values().any(|capture| matches!(capture, Capture::State(_)))
    }

    /// The capture of this name.
    pub fn get(&self, name: &str) -> Option<&Capture> {
        self.0.get(name)
    }

    /// Whether nothing is captured.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names in an order in which each capture comes after those that it refers to.
    pub(crate) fn order(&self) -> Result<Vec<&str>, Refusal> {
        let mut ordered: Vec<&str> = Vec::with_capacity(self.0.len());
        let mut waiting: Vec<(&str, &Capture)> =
            self.0.iter().map(|(name, it)| (name.as_str(), it)).collect();
        for (name, capture) in &waiting {
            let Capture::State(expression) = capture else { continue };
            if let Some(missing) = expression.references().find(|it| !self.0.contains_key(*it)) {
                return Err(Refusal::new(
                    format!("capture.{name}"),
                    format!("it refers to the capture {missing:?}, which the policy does not have"),
                    format!("are {}", self.names()),
                ));
            }
        }
        while !waiting.is_empty() {
            let before = ordered.len();
            waiting.retain(|(name, capture)| {
                let ready = match capture {
                    Capture::Pool(_) => true,
                    Capture::State(expression) => expression.references().all(|it| ordered.contains(&it)),
                };
                if ready {
                    ordered.push(name);
                }
                !ready
            });
            if ordered.len() == before {
                let name = waiting.first().map_or("", |(name, _)| name);
                return Err(Refusal::new(
                    format!("capture.{name}"),
                    "it refers to itself by way of other captures",
                    "is a capture that refers to others only",
                ));
            }
        }
        Ok(ordered)
    }

    /// The names, for a message.
    pub(crate) fn names(&self) -> String {
        let names: Vec<&str> = self.0.keys().map(String::as_str).collect();
        if names.is_empty() { "no names, because there are no captures".to_owned() } else { names.join(", ") }
    }
}

fn is_capture_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(captures: &[(&str, &str)]) -> Result<Captures, Refusal> {
        let map: BTreeMap<String, String> =
            captures.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        Captures::parse(&map)
    }

    #[test]
    fn pools_are_told_from_expressions() {
        let captures = parse(&[
            ("blue", "ippool.traffic-1.allocate"),
            ("green", " ippool.t.allocate "),
            ("nic", "interfaces.name == \"eth1\""),
        ])
        .unwrap();
        assert_eq!(captures.pools().collect::<Vec<_>>(), [("blue", "traffic-1"), ("green", "t")]);
        assert!(captures.needs_state());
    }

    #[test]
    fn what_begins_like_a_pool_and_is_none_is_refused_by_name() {
        for text in [
            "ippool",
            "ippool.",
            "ippool.x",
            "ippool..allocate",
            "ippool.a.b.allocate",
            "ippool.1a.allocate",
            "ippool.A.allocate",
            "ippool.a-.allocate",
            "ippool.a.allocate | interfaces.name",
            "ippool.a.release",
        ] {
            let refusal = parse(&[("x", text)]).unwrap_err();
            assert!(refusal.to_string().contains("accepted is ippool.NAME.allocate"), "{text}: {refusal}");
            assert!(refusal.to_string().contains("capture.x"), "{refusal}");
        }
    }

    #[test]
    fn captures_come_after_those_that_they_refer_to() {
        let captures = parse(&[
            ("a", "interfaces.name == capture.b.routes.running.0.next-hop-interface"),
            ("b", "capture.c | routes.running.destination == \"0.0.0.0/0\""),
            ("c", "routes.running"),
        ])
        .unwrap();
        assert_eq!(captures.order().unwrap(), ["c", "b", "a"]);
    }

    #[test]
    fn a_circle_and_a_missing_capture_are_refused() {
        let circle =
            parse(&[("a", "capture.b | interfaces.name == x"), ("b", "capture.a | interfaces.name == x")]);
        assert!(circle.unwrap_err().to_string().contains("refers to itself"));
        let missing = parse(&[("a", "capture.b | interfaces.name == x")]).unwrap_err().to_string();
        assert!(missing.contains("\"b\"") && missing.contains("accepted are a"), "{missing}");
        assert!(parse(&[("a.b", "routes.running")]).unwrap_err().to_string().contains("\"a.b\""));
    }
}
