//! Destinations: which family they are of, which table of a client they belong into, and which of them two Egresses of one client
//! have in common.

use std::collections::BTreeMap;

use tenure_ipam::{Cidr, Family, Notation, ParseError};

use super::id::EgressId;

/// Networks that clusters use inside. A destination in one of them is *narrow*: it goes before the rules that keep such networks off
/// the tunnels. All others are *wide* and go after.
const PRIVATE: [&str; 4] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"];

/// The destinations of an Egress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destinations {
    /// Those of IPv4.
    pub ipv4: OfFamily,
    /// Those of IPv6.
    pub ipv6: OfFamily,
}

/// The destinations of one family, each once, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfFamily {
    /// Inside private networks: they come first.
    pub narrow: Vec<Cidr>,
    /// All others.
    pub wide: Vec<Cidr>,
}

impl Destinations {
    /// Reads the destinations of an Egress's spec.
    pub fn of(texts: &[String]) -> Result<Self, ParseError> {
        let mut destinations = Self::default();
        for text in texts {
            let destination = Notation::Strict.cidr(text)?;
            let family = match destination.family() {
                Family::V4 => &mut destinations.ipv4,
                Family::V6 => &mut destinations.ipv6,
            };
            let list = if is_private(destination) { &mut family.narrow } else { &mut family.wide };
            if let Err(place) = list.binary_search(&destination) {
                list.insert(place, destination);
            }
        }
        Ok(destinations)
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = Cidr> {
        [&self.ipv4, &self.ipv6]
            .into_iter()
            .flat_map(|family| family.narrow.iter().chain(&family.wide))
            .copied()
    }
}

fn is_private(destination: Cidr) -> bool {
    PRIVATE.iter().filter_map(|text| text.parse::<Cidr>().ok()).any(|private| private.covers(&destination))
}

/// Two Egresses of one client have the same destination. The first one has it; the other one has its other destinations.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// What both have.
    pub destination: Cidr,
    /// Who has it.
    pub first: EgressId,
    /// Who would like it.
    pub second: EgressId,
}

/// What the Egresses of one client have in common. Only equal networks: where one lies inside another, the longer prefix has it, and
/// that is what people want who name `0.0.0.0/0` in one Egress and a single network in another.
///
/// Of several the one whose namespace and name come first in order has the destination, whoever asks and whatever came first.
pub fn conflicts<'a>(egresses: impl IntoIterator<Item = (&'a EgressId, &'a Destinations)>) -> Vec<Conflict> {
    let egresses: BTreeMap<&EgressId, &Destinations> = egresses.into_iter().collect();
    let mut taken: BTreeMap<Cidr, &EgressId> = BTreeMap::new();
    let mut conflicts = Vec::new();
    for (id, destinations) in egresses {
        for destination in destinations.all() {
            let first = *taken.entry(destination).or_insert(id);
            if first != id {
                conflicts.push(Conflict { destination, first: first.clone(), second: id.clone() });
            }
        }
    }
    conflicts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(texts: &[&str]) -> Result<Destinations, ParseError> {
        Destinations::of(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    fn texts(list: &[Cidr]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn destinations_are_split_by_family_and_narrow_ones_come_first() {
        let all = read(&[
            "0.0.0.0/0",
            "fd02::/120",
            "10.1.2.3/16",
            "9.9.9.9/32",
            "::/0",
            "192.168.0.0/16",
            "10.1.0.0/16",
            "10.0.0.0/7",
            "172.32.0.0/12",
        ])
        .unwrap();
        assert_eq!(texts(&all.ipv4.narrow), ["10.1.0.0/16", "192.168.0.0/16"]);
        assert_eq!(texts(&all.ipv4.wide), ["0.0.0.0/0", "9.9.9.9/32", "10.0.0.0/7", "172.32.0.0/12"]);
        assert_eq!(
            (texts(&all.ipv6.narrow), texts(&all.ipv6.wide)),
            (vec!["fd02::/120".into()], vec!["::/0".into()])
        );
    }

    #[test]
    fn a_destination_that_is_no_network_is_refused_with_its_value() {
        for bad in ["127.0.0.1", "a.b.c.d/20", "", "10.0.0.0/33", "::ffff:10.0.0.0/104"] {
            let said = read(&["10.0.0.0/8", bad]).unwrap_err().to_string();
            assert!(said.contains(&format!("{bad:?}")) && said.contains("accepted is"), "{said}");
        }
    }

    #[test]
    fn only_equal_destinations_of_two_egresses_conflict_and_order_decides() {
        let (a, b, c) = (EgressId::new("x", "a"), EgressId::new("x", "b"), EgressId::new("w", "z"));
        let internet = read(&["0.0.0.0/0", "::/0"]).unwrap();
        let (narrower, same) = (read(&["9.9.9.9/32"]).unwrap(), read(&["9.9.9.9/32", "::/0"]).unwrap());
        assert_eq!(conflicts([(&a, &internet), (&b, &narrower)]), []);
        let conflict = |destination: &str, first: &EgressId, second: &EgressId| Conflict {
            destination: destination.parse().unwrap(),
            first: first.clone(),
            second: second.clone(),
        };
        let expected = [conflict("9.9.9.9/32", &c, &b), conflict("::/0", &c, &a)];
        let mut found = conflicts([(&a, &internet), (&b, &narrower), (&c, &same)]);
        found.sort();
        assert_eq!(found, expected);
        assert_eq!(conflicts([(&a, &internet), (&a, &internet)]), [], "one is not two");
    }

    proptest! {
        #[test]
        fn no_text_panics_and_nothing_is_lost(all in proptest::collection::vec("[0-9a-f.:/]{0,20}|[0-9]{1,3}\\.0\\.0\\.0/[0-9]{1,2}", 0..20)) {
            if let Ok(destinations) = Destinations::of(&all) {
                for text in &all {
                    let cidr = text.parse().unwrap();
                    prop_assert_eq!(destinations.all().filter(|it| *it == cidr).count(), 1);
                }
            }
        }
    }
}
