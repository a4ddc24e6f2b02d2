//! Whereabouts' ranges as read from the API: ledgers, slices of nodes, and reservations.

use std::collections::BTreeMap;

use kube::ResourceExt;
use tenure_api::whereabouts::{
    Allocation, IPPool, NodeSlicePool, OverlappingRangeIPReservation, label, pool_name,
};
use tenure_ipam::ledger::Offsets;
use tenure_ipam::{Address, Cidr};
use tenure_whereabouts::slices::network_of_ledger;

/// All of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges {
    pub(crate) slices: Vec<NodeSlicePool>,
    pub(crate) ledgers: Vec<IPPool>,
    pub(crate) reservations: Vec<OverlappingRangeIPReservation>,
}

/// A record of a ledger.
#[derive(Clone, Debug)]
pub(crate) struct Recorded<'a> {
    pub(crate) ledger: &'a IPPool,
    pub(crate) network: String,
    pub(crate) node: Option<&'a str>,
    pub(crate) address: Address,
    pub(crate) record: &'a Allocation,
}

/// A node's slice.
#[derive(Clone, Debug)]
pub(crate) struct Slice<'a> {
    pub(crate) pool: &'a str,
    pub(crate) node: &'a str,
    pub(crate) cidr: Cidr,
    /// Its ledger, if anything was ever held in it.
    pub(crate) ledger: Option<&'a IPPool>,
}

impl Ranges {
    /// The node of a ledger: by its label, or by its name together with a slice.
    pub(crate) fn node_of<'a>(&'a self, ledger: &'a IPPool) -> Option<&'a str> {
        if let Some(node) = ledger.labels().get(label::NODE) {
            return Some(node);
        }
        let (name, cidr) = (ledger.name_any(), ledger.spec.cidr().ok()?);
        let mut allocations =
            self.slices.iter().filter_map(|pool| pool.status.as_ref()).flat_map(|it| &it.allocations);
        let of = allocations.find(|slice| {
            let own = pool_name("", &slice.node_name, &slice.slice_range).unwrap_or_default();
            !slice.node_name.is_empty()
                && slice.slice_range.parse() == Ok(cidr)
                && (name == own || name.ends_with(&format!("-{own}")))
        });
        of.map(|slice| slice.node_name.as_str())
    }

    /// Every record that stands for an address.
    pub(crate) fn records(&self) -> impl Iterator<Item = Recorded<'_>> {
        self.ledgers.iter().flat_map(|ledger| {
            let (network, node) = (network_of_ledger(ledger), self.node_of(ledger));
            records_of(ledger).map(move |(address, record)| Recorded {
                ledger,
                network: network.clone(),
                node,
                address,
                record,
            })
        })
    }

    /// All slices that have a node.
    pub(crate) fn slices(&self) -> impl Iterator<Item = Slice<'_>> {
        self.slices.iter().flat_map(move |pool| {
            let name = pool.metadata.name.as_deref().unwrap_or_default();
            let given = pool.status.iter().flat_map(|status| &status.allocations);
            given.filter(|slice| !slice.node_name.is_empty()).filter_map(move |slice| {
                let cidr: Cidr = slice.slice_range.parse().ok()?;
                let node = slice.node_name.as_str();
                let is_its =
                    |ledger: &&IPPool| ledger.spec.cidr() == Ok(cidr) && self.node_of(ledger) == Some(node);
                Some(Slice { pool: name, node, cidr, ledger: self.ledgers.iter().find(is_its) })
            })
        })
    }

    /// Ranges that all nodes share: the first object's name, the range, and how many of its addresses are held.
    pub(crate) fn shared(&self) -> BTreeMap<String, (Cidr, Vec<&IPPool>)> {
        let mut shared: BTreeMap<String, (Cidr, Vec<&IPPool>)> = BTreeMap::new();
        for ledger in &self.ledgers {
            let (Ok(cidr), None) = (ledger.spec.cidr(), self.node_of(ledger)) else { continue };
            shared.entry(shared_name(ledger, &cidr)).or_insert((cidr, Vec::new())).1.push(ledger);
        }
        shared
    }
}

/// The name that all ledgers of a range have in common which all nodes share.
pub(crate) fn shared_name(ledger: &IPPool, cidr: &Cidr) -> String {
    let (own, name) = (ledger.name_any(), pool_name(&network_of_ledger(ledger), "", &cidr.to_string()));
    name.ok().filter(|name| own.starts_with(name)).unwrap_or(own)
}

/// The records of a ledger that stand for an address.
pub(crate) fn records_of(ledger: &IPPool) -> impl Iterator<Item = (Address, &Allocation)> {
    let offsets = ledger.spec.cidr().ok().map(|cidr| Offsets::of(&cidr));
    ledger.spec.allocations.iter().filter_map(move |(key, record)| {
        let offset = key.parse().ok()?;
        Some((offsets.as_ref()?.address(offset).ok()?, record))
    })
}

/// How many addresses are held in these ledgers together.
pub(crate) fn used<'a>(ledgers: impl IntoIterator<Item = &'a IPPool>) -> u128 {
    ledgers.into_iter().map(|ledger| records_of(ledger).count() as u128).sum()
}
