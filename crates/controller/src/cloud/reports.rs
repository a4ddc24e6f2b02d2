//! Evidence of use: addresses of pools that living pods have according to their kubelets, with or without a record.
//!
//! The prototype never rewrote an entry when a pod moved, and an API server restored from a backup knows less than
//! the machines. So an address that a pod reports without a record counts as in use at the pod's node: its alias
//! stays there, a record is written for it, and nobody else gets it. Evidence only adds: a report never changes a
//! record.

use std::collections::{BTreeMap, BTreeSet};

use tenure_cloud::{Attachment, Managed};
use tenure_ipam::{Address, Cidr};

use super::context::Context;
use super::index::{PoolView, cidr_of, records};
use crate::pods::Pods;

/// Which pods report which addresses of pools.
#[derive(Debug, Default)]
pub(super) struct Reports {
    of_pods: BTreeMap<String, (String, Vec<Address>)>,
    by_address: BTreeSet<(Address, String)>,
    by_node: BTreeMap<String, BTreeSet<(Address, String)>>,
}

/// Who keeps an address without a record.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Kept {
    /// What is attached.
    pub(super) range: Cidr,
    pub(super) node: String,
    /// The pod as `namespace/name`, and its UID.
    pub(super) pod: (String, String),
}

impl Reports {
    /// Reads all pods again, for these ranges of all pools.
    pub(super) fn read_all(&mut self, pods: &Pods, managed: &[Managed]) {
        *self = Self::default();
        let all: Vec<String> = pods.reports().map(|(podref, _)| podref.to_owned()).collect();
        for podref in all {
            self.read(pods, &podref, managed);
        }
    }

    /// Reads a pod. Returns the addresses that it had or has, and where.
    pub(super) fn read(
        &mut self,
        pods: &Pods,
        podref: &str,
        managed: &[Managed],
    ) -> (BTreeSet<Address>, BTreeSet<String>) {
        let (mut addresses, mut nodes) = (BTreeSet::new(), BTreeSet::new());
        if let Some((node, old)) = self.of_pods.remove(podref) {
            for address in old {
                let key = (address, podref.to_owned());
                self.by_address.remove(&key);
                if let Some(at) = self.by_node.get_mut(&node) {
                    at.remove(&key);
                    if at.is_empty() {
                        self.by_node.remove(&node);
                    }
                }
                addresses.insert(address);
            }
            nodes.insert(node);
        }
        let Some((report, _)) = pods.report(podref) else { return (addresses, nodes) };
        let ours = |address: &&Address| managed.iter().any(|range| range.cidr.contains(**address));
        let new: Vec<Address> = report.addresses.iter().filter(ours).copied().collect();
        if !new.is_empty() {
            for address in &new {
                let key = (*address, podref.to_owned());
                self.by_address.insert(key.clone());
                self.by_node.entry(report.node.to_string()).or_default().insert(key);
            }
            addresses.extend(&new);
            nodes.insert(report.node.to_string());
            self.of_pods.insert(podref.to_owned(), (report.node.to_string(), new));
        }
        (addresses, nodes)
    }

    /// The pods that report an address of a range.
    pub(super) fn within(&self, range: Cidr) -> impl Iterator<Item = (Address, &str)> {
        self.by_address
            .range((range.first(), String::new())..)
            .take_while(move |(address, _)| range.contains(*address))
            .map(|(address, podref)| (*address, podref.as_str()))
    }

    /// Whether a pod reports an address of a range.
    pub(super) fn is_any_within(&self, range: Cidr) -> bool {
        self.within(range).next().is_some()
    }

    /// The nodes at which an address of a range is reported.
    pub(super) fn nodes_within(&self, range: Cidr) -> impl Iterator<Item = &String> {
        self.within(range).filter_map(|(_, podref)| self.of_pods.get(podref)).map(|(node, _)| node)
    }

    /// What pods of a node report.
    pub(super) fn of_node(&self, node: &str) -> impl Iterator<Item = Address> {
        self.by_node.get(node).into_iter().flatten().map(|(address, _)| *address)
    }
}

/// Who keeps a reported address of a pool that no record covers. Of several pods: the one whose machine has the
/// alias; nobody before the machines were read. Otherwise the one that names the address, then that of the
/// prototype's entry.
pub(super) fn kept(context: Context<'_>, pool: &PoolView, address: Address) -> Option<Kept> {
    let ranges = pool.ranges.as_ref().ok()?;
    let usable = ranges.is_usable(address) && !context.withholds(pool, Cidr::host(address));
    let pods: Vec<&str> =
        context.index.reports.within(Cidr::host(address)).map(|(_, podref)| podref).collect();
    if !usable || pods.len() > 1 && context.reading {
        return None;
    }
    let rank = |podref: &&&str| {
        let node = context.pods.report(podref).map(|(report, _)| report.node.as_ref()).unwrap_or_default();
        let view = context.known.machine(node);
        let is_there = |(range, is): (&Cidr, &Attachment)| {
            range.contains(address) && matches!(is, Attachment::Attached | Attachment::Detaching)
        };
        let attached = view.is_some_and(|view| view.ranges.iter().any(is_there));
        let facts = context.pods.claim_user(podref);
        let entry = pool.allocations.get(&address);
        let is_entry = entry.is_some_and(|it| format!("{}/{}", it.pod_namespace, it.pod_name) == ***podref);
        (attached, facts.is_some_and(|facts| facts.alias == Some(address)), is_entry)
    };
    let podref = *pods.iter().max_by_key(rank)?;
    let (report, uid) = context.pods.report(podref)?;
    Some(Kept {
        range: range_of(context, pool, address, &report.node),
        node: report.node.to_string(),
        pod: (podref.to_owned(), uid.to_owned()),
    })
}

/// The whole block of a pool that attaches blocks, if nobody else has anything of it.
fn range_of(context: Context<'_>, pool: &PoolView, address: Address, node: &str) -> Cidr {
    let host = Cidr::host(address);
    let Some(block) = Cidr::new(address, pool.prefix).filter(|_| pool.prefix < 32) else { return host };
    let alone = context.index.reports.nodes_within(block).all(|other| other == node);
    let ledger = pool.ranges.as_ref().ok().and_then(|ranges| {
        let number = ranges.place(address)?.ledger;
        let name = context.index.ledger(&pool.name, number)?;
        Some((ranges.ledger(number)?.0, context.known.ledgers.get(name)?))
    });
    let taken = ledger.is_some_and(|(cidr, ledger)| {
        let mut all = records(ledger).filter_map(|(offset, record)| cidr_of(cidr, offset, record));
        all.any(|range| range.overlaps(&block))
    });
    let entries = pool.allocations.range(block.first()..=block.last()).next().is_some();
    if alone && !taken && !entries { block } else { host }
}
