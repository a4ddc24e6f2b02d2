//! Moves that leave a machine together. A range that moved away stays on the machine while more will follow, so that
//! one update removes all of them, and one adds them at the next machine.
//!
//! More will follow if the node reports that the pod of another address leaves, or if a pod names an address that is
//! still here while another pod of its namespace has just got one: a tenant delays only its own moves. A single move
//! does not wait. Others wait until [`QUIET`] after the last news, and never longer than [`LONGEST`]: an update takes
//! seconds, and a second one would double that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_api::cloud::AliasRecord;
use tenure_claims::PodFacts;
use tenure_cloud::AliasRange;
use tenure_handles::Timestamp;
use tenure_ipam::Address;

use super::context::{Context, Planted};

/// How long to wait after the last news before the ranges leave.
const QUIET: Duration = Duration::from_millis(300);
/// How long they stay at most.
const LONGEST: Duration = Duration::from_secs(2);

/// The machines that ranges are about to leave, by node.
#[derive(Debug, Default)]
pub(super) struct Gatherings(BTreeMap<String, Gathering>);

#[derive(Debug)]
struct Gathering {
    since: Timestamp,
    /// When something new was last heard.
    last: Timestamp,
    moved: BTreeSet<AliasRange>,
    follows: BTreeSet<Address>,
    /// Its time is over, and the driver is about to be told.
    over: bool,
}

impl Gathering {
    fn ends(&self) -> Timestamp {
        self.last.plus(QUIET).min(self.since.plus(LONGEST))
    }
}

impl Gatherings {
    /// What stays on a node's machine for now although it has moved away.
    pub(super) fn look(&mut self, context: Context<'_>, node: &str) -> BTreeSet<AliasRange> {
        let (moved, namespaces) = moved_away(context, node);
        let follows =
            if moved.is_empty() { BTreeSet::new() } else { about_to_follow(context, node, &namespaces) };
        if follows.is_empty() {
            self.0.remove(node);
            return BTreeSet::new();
        }
        let now = context.now;
        let known = self.0.entry(node.to_owned()).or_insert_with(|| Gathering {
            since: now,
            last: now,
            moved: moved.clone(),
            follows: follows.clone(),
            over: false,
        });
        if (&known.moved, &known.follows) != (&moved, &follows) {
            (known.last, known.moved, known.follows) = (now, moved, follows);
        }
        known.over = now >= known.ends() && !context.has(Planted::NeverLeaves);
        if known.over { BTreeSet::new() } else { known.moved.clone() }
    }

    /// The nodes whose time is over.
    pub(super) fn due(&self, now: Timestamp) -> impl Iterator<Item = &String> {
        self.0.iter().filter(move |(_, it)| it.ends() <= now).map(|(node, _)| node)
    }

    /// When the next time is over.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.0.values().filter(|it| !it.over).map(Gathering::ends).min()
    }
}

/// What the driver was told to attach at a node's machine and now moves to other machines with its pods, and the
/// namespaces of these pods.
fn moved_away<'a>(context: Context<'a>, node: &str) -> (BTreeSet<AliasRange>, BTreeSet<&'a str>) {
    let (mut moved, mut namespaces) = (BTreeSet::new(), BTreeSet::new());
    let told =
        context.known.told(node).filter(|told| context.machine_of(node).as_ref() == Some(&told.machine));
    for range in told.iter().flat_map(|told| &told.ranges) {
        let record =
            record_of(context, range.cidr.first()).filter(|it| it.node != node && it.freed.is_none());
        if let Some(moving) = record.and_then(|record| record.moving.as_ref()) {
            moved.insert(range.clone());
            namespaces.insert(moving.namespace.as_str());
        }
    }
    (moved, namespaces)
}

/// Addresses of a node that will move away, too.
fn about_to_follow(context: Context<'_>, node: &str, namespaces: &BTreeSet<&str>) -> BTreeSet<Address> {
    let mut follow = BTreeSet::new();
    let leaving = context.known.nodes.get(node).map(|it| &it.spec.leaving);
    for (ledger, offset) in context.index.of_node(node) {
        let Some((ledger, record)) = context.record(ledger, *offset) else { continue };
        let range = context.index.alias(ledger, *offset, record).filter(|_| record.freed.is_none());
        let Some(address) = range.map(|range| range.cidr.first()) else { continue };
        let leaves = leaving
            .and_then(|leaving| leaving.get(&address.to_string()))
            .is_some_and(|pod| namespaces.contains(pod.namespace.as_str()));
        let named = context.index.naming(address).any(|podref| {
            let is_ours = podref.split_once('/').is_some_and(|(namespace, _)| namespaces.contains(namespace));
            let elsewhere = |pod: &PodFacts| pod.node.as_deref() != Some(node);
            is_ours && context.pods.claim_user(podref).is_some_and(elsewhere)
        });
        if leaves || named {
            follow.insert(address);
        }
    }
    follow
}

/// The record of an address.
pub(super) fn record_of(context: Context<'_>, address: Address) -> Option<&AliasRecord> {
    let (pool, number) = context.index.pool_of(address)?;
    let (cidr, _) = pool.ranges.as_ref().ok()?.ledger(number)?;
    let offset = super::ledger::offset_of(cidr, address)?;
    Some(context.record(context.index.ledger(&pool.name, number)?, offset)?.1)
}
