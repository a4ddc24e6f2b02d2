//! Which pools have which addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included};
use std::sync::Arc;

use tenure_api::coil::EnginePool;
use tenure_ipam::{Address, Family};

/// The names of the pools of each address, as a step function: from each key up to the next, these pools have the
/// addresses.
#[derive(Clone, Debug, Default)]
pub(super) struct PoolSubnets {
    steps: BTreeMap<(Family, u128), Vec<Arc<str>>>,
}

impl PoolSubnets {
    /// Built from these pools.
    pub(super) fn of<'a>(pools: impl Iterator<Item = (&'a Arc<str>, &'a EnginePool)>) -> Self {
        // The pools that end before, and those that begin.
        let mut edges: BTreeMap<(Family, u128), [Vec<&Arc<str>>; 2]> = BTreeMap::new();
        for (name, engine) in pools {
            let networks = engine.pool().subnets().flat_map(|subnet| [subnet.ipv4, subnet.ipv6]).flatten();
            for network in networks {
                let (family, first, last) = (network.family(), network.first().bits(), network.last().bits());
                edges.entry((family, first)).or_default()[1].push(name);
                if let Some(behind) = last.checked_add(1) {
                    edges.entry((family, behind)).or_default()[0].push(name);
                }
            }
        }
        let mut inside = BTreeSet::new();
        let step = |(edge, [end, begin]): (_, [Vec<&Arc<str>>; 2])| {
            inside.retain(|name| !end.contains(&name));
            inside.extend(begin.into_iter().cloned());
            (edge, inside.iter().cloned().collect())
        };
        Self { steps: edges.into_iter().map(step).collect() }
    }

    /// The pools with an address from `first` to `last`, which are of one family; each once.
    pub(super) fn overlapping(&self, first: Address, last: Address) -> impl Iterator<Item = &Arc<str>> {
        let (from, to) = ((first.family(), first.bits()), (first.family(), last.bits()));
        let at_first = self.steps.range(..=from).next_back();
        let behind = (from < to).then(|| self.steps.range((Excluded(from), Included(to))));
        let steps = at_first.into_iter().chain(behind.into_iter().flatten());
        let mut pools: Vec<&Arc<str>> = steps.flat_map(|(_, pools)| pools).collect();
        pools.sort_unstable();
        pools.dedup();
        pools.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_pool_is_found_by_any_address_that_it_has() {
        let pool = |subnets: serde_json::Value| {
            let spec = serde_json::from_value(json!({"blockSizeBits": 0, "subnets": subnets})).unwrap();
            EnginePool::try_from(&spec).unwrap()
        };
        let pools = [
            ("outer", pool(json!([{"ipv4": "10.0.0.0/24"}, {"ipv4": "10.0.1.0/24"}]))),
            ("inner", pool(json!([{"ipv4": "10.0.0.128/25"}]))),
            ("last", pool(json!([{"ipv4": "255.255.255.0/24", "ipv6": "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff00/120"}]))),
            ("six", pool(json!([{"ipv6": "::/120"}]))),
        ]
        .map(|(name, engine)| (Arc::from(name), engine));
        let subnets = PoolSubnets::of(pools.iter().map(|(name, engine)| (name, engine)));
        let of = |first: &str, last: &str| {
            let pools = subnets.overlapping(first.parse().unwrap(), last.parse().unwrap());
            pools.map(AsRef::as_ref).collect::<Vec<&str>>().join(" ")
        };
        for (first, last, expected) in [
            ("0.0.0.0", "9.255.255.255", ""),
            ("0.0.0.0", "10.0.0.0", "outer"),
            ("10.0.0.127", "10.0.0.127", "outer"),
            ("10.0.0.127", "10.0.0.128", "inner outer"),
            ("10.0.0.255", "10.0.0.255", "inner outer"),
            ("10.0.1.0", "10.0.1.255", "outer"),
            ("10.0.2.0", "255.255.254.255", ""),
            ("0.0.0.0", "255.255.255.255", "inner last outer"),
            ("255.255.255.255", "255.255.255.255", "last"),
            ("::", "::1", "six"),
            ("::100", "fffe::", ""),
            ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "last"),
        ] {
            assert_eq!(of(first, last), expected, "{first} to {last}");
        }
        assert_eq!(
            PoolSubnets::default()
                .overlapping(Address::highest(Family::V4), Address::highest(Family::V4))
                .count(),
            0
        );
    }
}
