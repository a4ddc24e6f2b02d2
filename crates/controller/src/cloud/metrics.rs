//! Metrics of alias addresses.

use std::sync::Arc;

use kube::ResourceExt as _;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tenure_api::cloud::{AliasPoolStatus, IPLedger};
use tenure_cloud::{Answer, Attachment, CloudError, ErrorKind, Progress};
use tenure_handles::Timestamp;

use super::moves::slots_of;
use crate::cache::Known;
use crate::metrics::{Labels, Moves, Numbers, labels, metric};
use crate::part::Count;
use crate::world::World;

/// Counted by the driver.
#[derive(Debug, Default)]
pub(super) struct CloudNumbers {
    requests: Family<Labels, Counter>,
}

impl CloudNumbers {
    /// A request to the cloud was answered.
    pub(super) fn requested(&self, kind: &'static str, answer: &Answer) {
        let outcome = match answer {
            Answer::Unfinished(Err(error))
            | Answer::Observed(Err(error))
            | Answer::Applied(Err(error))
            | Answer::Polled(Err(error) | Ok(Progress::Failed(error)))
            | Answer::Owner(Err(error)) => word(error),
            _ => "done",
        };
        self.requests.get_or_create(&labels([("kind", kind), ("outcome", outcome)])).inc();
    }
}

fn word(error: &CloudError) -> &'static str {
    match error.kind {
        ErrorKind::Conflict => "conflict",
        ErrorKind::InUse(_) => "in_use",
        ErrorKind::Capacity => "capacity",
        ErrorKind::Throttled(_) => "throttled",
        ErrorKind::NotReady => "not_ready",
        ErrorKind::NotFound => "not_found",
        ErrorKind::Denied => "denied",
        ErrorKind::Invalid(_) => "invalid",
        ErrorKind::Transient => "transient",
    }
}

/// Counts of pools and machines.
#[derive(Debug)]
pub(super) struct CloudMetrics {
    addresses: Numbers,
    ranges: Numbers,
    wanted: Numbers,
    moves: Moves,
}

impl CloudMetrics {
    pub(super) fn registered(registry: &mut Registry, numbers: &Arc<CloudNumbers>) -> Self {
        registry.register(
            "tenure_cloud_requests",
            "Requests to the cloud by kind (update: changes of an interface) and outcome",
            numbers.requests.clone(),
        );
        Self {
            addresses: metric(
                registry,
                "tenure_alias_pool_addresses",
                "Addresses of an IPPool by state: capacity, allocated, available",
            ),
            ranges: metric(
                registry,
                "tenure_alias_ranges",
                "Alias ranges by state: attached, attaching, refused, detaching",
            ),
            wanted: metric(
                registry,
                "tenure_alias_ranges_wanted",
                "Alias ranges that nodes want in all, and those of them that no machine has yet (waiting)",
            ),
            moves: Moves::registered(
                registry,
                ["tenure_alias_moves", "tenure_alias_move_oldest_start_seconds"],
            ),
        }
    }
}

impl Count for CloudMetrics {
    fn count(&self, world: &World, leads: bool, _: usize, now: Timestamp) {
        [&self.addresses, &self.ranges, &self.wanted].into_iter().for_each(Family::clear);
        let known = world.aliases();
        let ledgers = leads.then(|| known.ledgers.iter()).into_iter().flatten();
        self.moves.are(ledgers.flat_map(unfinished), now);
        if !leads {
            return;
        }
        for pool in known.pools.iter() {
            let Some(AliasPoolStatus { capacity, allocated, available, .. }) = &pool.status else { continue };
            for (state, count) in [("capacity", capacity), ("allocated", allocated), ("available", available)]
            {
                let labels = labels([("pool", &pool.key()), ("state", state)]);
                self.addresses.get_or_create(&labels).set(as_number(*count));
            }
        }
        for attachment in known.machines().flat_map(|(_, view)| view.ranges.values()) {
            let state = match attachment {
                Attachment::Attached => "attached",
                Attachment::Attaching => "attaching",
                Attachment::Refused(_) => "refused",
                Attachment::Detaching | Attachment::Absent => "detaching",
            };
            self.ranges.get_or_create(&labels([("state", state)])).inc();
        }
        for node in known.nodes.iter() {
            let attached = node.status.as_ref().map_or(0, |status| status.attached);
            let waiting = node.spec.wanted.saturating_sub(attached).max(0);
            for (state, count) in [("wanted", node.spec.wanted), ("waiting", waiting)] {
                let labels = labels([("pool", &node.spec.pool), ("state", state)]);
                self.wanted.get_or_create(&labels).inc_by(count.into());
            }
        }
    }
}

/// The moves in a ledger: another pod has come for the address, or may come.
fn unfinished(ledger: &IPLedger) -> impl Iterator<Item = String> {
    let records = ledger.spec.records.iter().filter(|(_, record)| {
        let moving = record.moving.as_ref();
        moving.is_some_and(|it| it.vacant.is_some() || slots_of(it).incoming.is_some())
    });
    records.map(|(offset, _)| format!("{}/{offset}", ledger.name_any()))
}

#[expect(clippy::cast_precision_loss, reason = "no pool has so many addresses")]
fn as_number(count: i64) -> f64 {
    count as f64
}
