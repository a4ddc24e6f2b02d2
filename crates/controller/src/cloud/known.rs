//! What is known of alias addresses: the objects, what the driver was told, and what it reports of each machine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use tenure_api::cloud::{AliasPool, IPLedger, NodeAliases};
use tenure_cloud::{Attachment, InterfaceId, Refusal, View};
use tenure_ipam::Cidr;

use super::write::Wanted;
use crate::cache::Cache;
use crate::changes::{ChangeLog, Changed, Cursor};
use crate::world::{State, World};

/// Alias pools and what belongs to them.
#[derive(Debug, Default)]
pub struct Aliases {
    /// Pools.
    pub pools: Cache<AliasPool>,
    /// Ledgers.
    pub ledgers: Cache<IPLedger>,
    /// What nodes want, by node.
    pub nodes: Cache<NodeAliases>,
    /// The number of the working driver, if any.
    driver: Option<u64>,
    /// What it was told, by node.
    told: BTreeMap<String, Arc<Wanted>>,
    /// What it reports of each node's machine.
    machines: BTreeMap<String, MachineView>,
    /// The nodes whose machines have, or may have, a range.
    holders: BTreeMap<Cidr, BTreeSet<String>>,
    /// The nodes for which something changed.
    changes: ChangeLog,
}

/// A machine as the driver sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineView {
    /// What the driver had been told by then ([`Wanted::turn`]).
    pub turn: u64,
    /// Whether its list was read. Before, a missing range means nothing.
    pub known: bool,
    /// Ranges that are wanted or present there.
    pub ranges: BTreeMap<Cidr, Attachment>,
    /// How many ranges of others it has.
    pub others: usize,
    /// How many ranges it takes, as far as known.
    pub limit: usize,
    /// What the cloud refuses there.
    pub refusal: Option<Refusal>,
}

impl MachineView {
    pub(super) fn new(turn: u64, view: View) -> Self {
        let ranges = view.ranges.into_iter().map(|(range, is)| (range.cidr, is)).collect();
        let View { known, others, limit, refusal, .. } = view;
        Self { turn, known, ranges, others, limit, refusal }
    }
}

impl Aliases {
    /// The working driver.
    pub fn driver(&self) -> Option<u64> {
        self.driver
    }

    /// A driver starts without knowledge, or none works any more.
    pub fn note_driver(&mut self, driver: Option<u64>) {
        self.driver = driver;
        self.told.clear();
        self.machines.clear();
        self.holders.clear();
        self.changes.note_all();
    }

    /// A driver was told what a node's machine should have.
    pub fn note_told(&mut self, wanted: Arc<Wanted>) {
        if self.driver == Some(wanted.driver) {
            self.changes.note(&wanted.node);
            self.told.insert(wanted.node.clone(), wanted);
        }
    }

    /// A driver reports a node's machine.
    pub fn note_machine(&mut self, driver: u64, node: &str, view: &MachineView) {
        if self.driver == Some(driver) {
            self.changes.note(node);
            for range in view.ranges.keys() {
                self.holders.entry(*range).or_default().insert(node.to_owned());
            }
            let before = self.machines.insert(node.to_owned(), view.clone()).unwrap_or_default();
            for range in before.ranges.keys().filter(|range| !view.ranges.contains_key(range)) {
                if let Some(holders) = self.holders.get_mut(range) {
                    holders.remove(node);
                    if holders.is_empty() {
                        self.holders.remove(range);
                    }
                }
            }
        }
    }

    /// What the driver was told of a node.
    pub fn told(&self, node: &str) -> Option<&Arc<Wanted>> {
        self.told.get(node)
    }

    /// All that it was told.
    pub(super) fn all_told(&self) -> impl Iterator<Item = &Arc<Wanted>> {
        self.told.values()
    }

    /// What it reports of a node's machine.
    pub fn machine(&self, node: &str) -> Option<&MachineView> {
        self.machines.get(node)
    }

    /// Whether a machine has, or may have, a range.
    pub fn is_somewhere(&self, range: &Cidr) -> bool {
        self.holders.contains_key(range)
    }

    /// Whether a machine has, or may have, a range within this one.
    pub fn is_any_within(&self, cidr: Cidr) -> bool {
        self.holders.range(cidr..).next().is_some_and(|(range, _)| cidr.covers(range))
    }

    /// All machines that it has reported, by node.
    pub fn machines(&self) -> impl Iterator<Item = (&String, &MachineView)> {
        self.machines.iter()
    }

    /// The nodes for which the driver was told or reported something since `cursor`.
    pub(super) fn changed_machines(&self, cursor: &mut Cursor) -> Changed {
        self.changes.since(cursor)
    }

    /// Whether anybody uses alias addresses.
    pub fn is_used(&self) -> bool {
        !self.pools.is_empty()
    }

    /// Whether all of it is known.
    pub(super) fn is_complete(&self) -> bool {
        self.pools.is_complete() && self.ledgers.is_complete() && self.nodes.is_complete()
    }
}

impl State for Aliases {
    fn changes(&self) -> u64 {
        self.pools.changes() + self.ledgers.changes() + self.nodes.changes() + self.changes.count()
    }
}

impl World {
    /// Alias addresses.
    pub fn aliases(&self) -> &Aliases {
        self.state()
    }

    /// The same, mutable.
    pub(crate) fn aliases_mut(&mut self) -> &mut Aliases {
        self.state_mut()
    }
}

/// The machine of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Machine {
    /// The project that it is in.
    pub project: String,
    /// Its first interface.
    pub interface: InterfaceId,
}

/// A node that is not a machine of the cloud, as far as can be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "spec.providerID of the node is \"{0}\"; accepted is gce://PROJECT/ZONE/INSTANCE, which the cloud's controller writes"
)]
pub struct MachineError(String);

impl Machine {
    /// The machine of a node.
    pub fn of(node: &Node) -> Result<Self, MachineError> {
        let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default();
        id.parse()
    }
}

impl std::str::FromStr for Machine {
    type Err = MachineError;

    fn from_str(text: &str) -> Result<Self, MachineError> {
        let fails = || MachineError(text.chars().take(256).collect());
        let path = text.strip_prefix("gce://").ok_or_else(fails)?;
        match path.split('/').collect::<Vec<_>>()[..] {
            [project, zone, instance] if ![project, zone, instance].contains(&"") => {
                Ok(Self { project: project.to_owned(), interface: InterfaceId::first(zone, instance) })
            }
            _ => Err(fails()),
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "gce://{}/{}/{}", self.project, self.interface.zone, self.interface.instance)
    }
}
