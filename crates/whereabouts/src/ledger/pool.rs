//! Pools, and which of a pool's objects an address belongs to.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tenure_api::claims::{SLICE_OWNER, label::FLOATING};
use tenure_api::whereabouts::{IPPool, IPPoolSpec, WhereaboutsNameError, label, pool_name};
use tenure_ipam::{Address, Cidr};

use super::{STATE, State};

/// How many addresses belong to one object. A write costs the API server about 50 µs for each record in the
/// object, however few of them change: this number keeps it near ten milliseconds, and a /24 in one object.
/// It is far below etcd's limit of 1.5 MiB, whatever the names of the pods.
pub const ADDRESSES_IN_AN_OBJECT: u128 = 256;

/// An object that others have filled beyond this many bytes takes no more records.
pub const LARGEST_OBJECT: usize = 1 << 20;

/// Replaces [`SLICE_OWNER`] in names of objects, which may have no colon.
pub(crate) const OWNER_IN_NAMES: &str = "tenure-claims";

/// One range of one network, shared or a node's slice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId {
    /// `network_name`; empty for the network without one.
    pub network: String,
    /// The node that owns it, or [`SLICE_OWNER`] for a slice for claims; empty if all nodes share it.
    pub node: String,
    /// The range, or the slice.
    pub range: Cidr,
}

impl PoolId {
    /// A range that all nodes share.
    pub fn shared(network: &str, range: Cidr) -> Self {
        Self { network: network.to_owned(), node: String::new(), range }
    }

    /// A node's slice.
    pub fn of_node(network: &str, node: &str, slice: Cidr) -> Self {
        Self { network: network.to_owned(), node: node.to_owned(), range: slice }
    }

    /// A slice for claims, which no node owns.
    pub fn floating(network: &str, slice: Cidr) -> Self {
        Self::of_node(network, SLICE_OWNER, slice)
    }

    /// Whether it is a slice for claims.
    pub fn is_floating(&self) -> bool {
        self.node == SLICE_OWNER
    }

    /// The name of the pool's first object: Whereabouts' own.
    pub fn name(&self) -> Result<String, WhereaboutsNameError> {
        let node = if self.is_floating() { OWNER_IN_NAMES } else { &self.node };
        pool_name(&self.network, node, &self.range.to_string())
    }

    /// The name of one of its objects: the first has the pool's, the others have their number after a dot.
    pub fn object_name(&self, number: u128) -> Result<String, WhereaboutsNameError> {
        let name = self.name()?;
        Ok(if number == 0 { name } else { format!("{name}.{number}") })
    }

    /// The number of the object for a new record of this address.
    ///
    /// It is computed and not looked up, so that two writers of one address always meet in one object. A
    /// node's slice has one writer and one object. Records in other objects, because Whereabouts wrote them
    /// all into the first one, count, and are released there.
    pub fn home(&self, address: Address) -> u128 {
        if !self.node.is_empty() {
            return 0;
        }
        address.distance_from(self.range.first()).unwrap_or(0) / ADDRESSES_IN_AN_OBJECT
    }

    /// The addresses, as numbers, that belong to an object.
    pub(super) fn addresses_of(&self, number: u128) -> (u128, u128) {
        let (first, last) = (self.range.first().bits(), self.range.last().bits());
        if !self.node.is_empty() {
            return (first, last);
        }
        let start = first.saturating_add(number.saturating_mul(ADDRESSES_IN_AN_OBJECT));
        (start, start.saturating_add(ADDRESSES_IN_AN_OBJECT - 1).min(last))
    }

    /// An object of this pool without holds.
    pub fn empty_object(&self, number: u128, state: State) -> Result<IPPool, WhereaboutsNameError> {
        let fits = |value: &&String| !value.is_empty() && value.len() <= 63;
        let yes = "true".to_owned();
        // A label's value may have no colon, either.
        let owner = if self.is_floating() { (FLOATING, &yes) } else { (label::NODE, &self.node) };
        let labels = [(label::NETWORK, &self.network), owner];
        let labels: BTreeMap<String, String> = labels
            .into_iter()
            .filter(|(_, value)| fits(value))
            .map(|(key, value)| (key.to_owned(), value.clone()))
            .collect();
        let annotations = BTreeMap::from([(STATE.to_owned(), state.as_str().to_owned())]);
        Ok(IPPool {
            metadata: ObjectMeta {
                name: Some(self.object_name(number)?),
                labels: (!labels.is_empty()).then_some(labels),
                annotations: (state != State::Unmarked).then_some(annotations),
                ..ObjectMeta::default()
            },
            spec: IPPoolSpec { range: self.range.to_string(), allocations: BTreeMap::new() },
        })
    }

    /// Whether, by its name, an object belongs to a shared range of `network` and may have records of these
    /// addresses. Whereabouts writes all records of a range into the first object.
    pub fn may_hold(network: &str, name: &str, addresses: &Cidr) -> bool {
        let rest = if network.is_empty() {
            Some(name)
        } else {
            name.strip_prefix(network).and_then(|rest| rest.strip_prefix('-'))
        };
        let Some((network_address, prefix)) = rest.and_then(|rest| rest.rsplit_once('-')) else {
            return false;
        };
        let (prefix, number) = match prefix.split_once('.') {
            Some((prefix, number)) => (prefix, number.parse().unwrap_or(0)),
            None => (prefix, 0),
        };
        let is_v6 = network_address.contains('-');
        let text = if is_v6 { network_address.replace('-', ":") } else { network_address.to_owned() };
        let Ok(range) = format!("{text}/{prefix}").parse::<Cidr>() else { return false };
        let (first, last) = Self::shared(network, range).addresses_of(number);
        let within = first <= addresses.last().bits() && addresses.first().bits() <= last;
        range.overlaps(addresses) && (number == 0 || within)
    }

    /// The pool of `network` and the number of its object that this is; `None` if it belongs to another
    /// network.
    ///
    /// Whereabouts' objects have no labels, so a name alone may be ambiguous: a network or a node before the
    /// range. It counts as a node's if `is_node` knows that node.
    pub fn of_object(network: &str, pool: &IPPool, is_node: impl Fn(&str) -> bool) -> Option<(Self, u128)> {
        let name = pool.metadata.name.as_deref()?;
        let range = pool.spec.cidr().ok()?;
        let label = |key: &str| pool.metadata.labels.as_ref().and_then(|labels| labels.get(key));
        let shared = Self::shared(network, range);
        let own = shared.name().ok()?;
        if label(label::NETWORK).is_some_and(|other| other != network) {
            return None;
        }
        if label(FLOATING).is_some_and(|value| value == "true") {
            let floating = Self::floating(network, range);
            return (floating.name().ok()? == name).then_some((floating, 0));
        }
        if name == own && label(label::NODE).is_none() {
            return Some((shared, 0));
        }
        if let Some(number) = name.strip_prefix(&own).and_then(|rest| rest.strip_prefix('.')) {
            let number = number.parse().ok().filter(|number| *number > 0)?;
            return Some((shared, number));
        }
        let node = if let Some(node) = label(label::NODE) {
            node.clone()
        } else {
            let range = Self::shared("", range).name().ok()?;
            let front = name.strip_suffix(&range)?.strip_suffix('-')?;
            let own =
                if network.is_empty() { front } else { front.strip_prefix(network)?.strip_prefix('-')? };
            Some(own.to_owned()).filter(|node| is_node(node))?
        };
        let owned = Self::of_node(network, &node, range);
        (owned.name().ok()? == name).then_some((owned, 0))
    }
}
