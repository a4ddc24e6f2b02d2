//! What to write next, from all that is known.

mod carved;
mod claims;
mod garbage;
mod locks;
mod makers;
mod moves;
mod pools;
mod requests;
mod share;
mod slices;
mod suspicions;
mod unused;

use std::collections::BTreeSet;
use std::time::Duration;

use kube::{Resource, ResourceExt};
use tenure_api::overlap::overlaps;
use tenure_handles::Timestamp;

use crate::events::Note;
use crate::records::Records;
use crate::release::{MISSING_NODE_REST, Releases};
use crate::users::Users;
use crate::world::World;
use crate::write::{At, Write};
use carved::Carved;
use claims::ClaimPlanner;
pub use claims::ClaimSettings;
pub(crate) use claims::speaks_for_cluster;
pub(crate) use garbage::is_out_of_service;
pub(crate) use locks::{NoLock, locks};
use makers::MakerPlanner;
use moves::MovePlanner;
pub(crate) use share::keep_only_pods;
use slices::SlicePlanner;
use suspicions::Suspicions;
use unused::UnusedPlanner;

/// How long a pool has to be missing before a request for it is refused: pools and requests arrive by two watches, so
/// a pool made just before the request may be seen just after it.
const MISSING_POOL: Duration = Duration::from_secs(1);

/// Plans. All it remembers between two plans is since when it suspects what.
#[derive(Debug)]
pub struct Planner {
    blocks_without_node: Releases,
    requests_without_pool: Suspicions,
    slices: SlicePlanner,
    /// Nothing where pods are not in this API: then nobody can say what is unused.
    unused: Option<UnusedPlanner>,
    claims: ClaimPlanner,
    moves: MovePlanner,
    makers: MakerPlanner,
    #[cfg(test)]
    planted: Option<Planted>,
}

/// How Whereabouts' ranges are looked after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whereabouts {
    /// The namespace of its objects.
    pub namespace: String,
    /// How long nobody has to use a record before it is released; `None` where pods are not in this API, so that nothing
    /// ever is.
    pub release_after: Option<Duration>,
    /// How long a node has to be gone before its slice may be given to another: longer than it takes the node, if it is
    /// there after all, to write what it holds into its ledger.
    pub node_gone_after: Duration,
}

impl Default for Whereabouts {
    fn default() -> Self {
        Self {
            namespace: "kube-system".to_owned(),
            release_after: Some(Duration::from_mins(1)),
            node_gone_after: MISSING_NODE_REST,
        }
    }
}

impl Default for Planner {
    fn default() -> Self {
        Self::new(&Whereabouts::default())
    }
}

impl Planner {
    /// One that has seen nothing yet.
    pub fn new(whereabouts: &Whereabouts) -> Self {
        Self {
            blocks_without_node: Releases::resting(MISSING_NODE_REST),
            requests_without_pool: Suspicions::lasting(MISSING_POOL),
            slices: SlicePlanner::new(&whereabouts.namespace, whereabouts.node_gone_after),
            unused: whereabouts
                .release_after
                .map(|patience| UnusedPlanner::new(patience, whereabouts.node_gone_after)),
            claims: ClaimPlanner::new(&ClaimSettings::default(), whereabouts.release_after.is_some()),
            moves: MovePlanner::default(),
            makers: MakerPlanner::default(),
            #[cfg(test)]
            planted: None,
        }
    }

    /// The same with other settings for claims.
    #[must_use]
    pub fn with_claims(mut self, settings: &ClaimSettings) -> Self {
        self.claims = ClaimPlanner::new(settings, self.unused.is_some());
        if let Some(unused) = &mut self.unused {
            unused.rest_for(settings.cooling);
        }
        self
    }

    /// The same with another rest before the blocks of a missing node are released.
    #[must_use]
    pub fn with_rest(mut self, rest: Duration) -> Self {
        self.blocks_without_node = Releases::resting(rest);
        self
    }

    /// The writes that bring the world closer to what it should be: at most one for each object. Nothing while part of
    /// the world is unknown.
    pub fn plan(&mut self, world: &World, now: Timestamp) -> Vec<Write> {
        if !world.is_complete() {
            return Vec::new();
        }
        let overlaps = overlaps(world.pools.iter());
        let carved = Carved::of(world);
        #[cfg(test)]
        let carved = if self.planted == Some(Planted::OwnNumbersOnly) { carved.by_numbers() } else { carved };
        let users = Users::of(world);
        // First, because traffic waits for them.
        let records = Records::of(world);
        let mut writes = self.moves.plan(world, &users, &records, now);
        writes.extend(self.makers.plan(world));
        // One for each claim; the others come when this one is done.
        let mut written = BTreeSet::new();
        writes.retain(|write| written.insert(write.subject().to_owned()));
        writes.extend(requests::serve(world, &overlaps, &carved, &mut self.requests_without_pool, now));
        writes.extend(pools::keep(world, &overlaps, &carved, now));
        let garbage = garbage::collect(world, &mut self.blocks_without_node, now);
        #[cfg(test)]
        let garbage = self.plant(world, garbage);
        writes.extend(garbage);
        writes.extend(locks::unlock(world));
        let claims = self.claims.plan(world, (&users, self.moves.naming()), &overlaps, &carved, &writes, now);
        writes.extend(claims.records);
        self.slices.need(self.claims.needs());
        writes.extend(self.slices.plan(world, now));
        if let Some(unused) = &mut self.unused {
            writes.extend(unused.plan(world, now));
        }
        // Last, because they may be thousands.
        writes.extend(claims.statuses.into_iter().filter(|write| !written.contains(write.subject())));
        writes
    }

    /// How many records and reservations of Whereabouts' nobody seems to use.
    pub fn suspects(&self) -> usize {
        self.unused.as_ref().map_or(0, UnusedPlanner::suspects)
    }

    /// What people should know of claims, and no write tells.
    pub(crate) fn take_notes(&mut self) -> Vec<Note> {
        let mut notes = self.moves.take_notes();
        notes.extend(self.makers.take_notes());
        notes
    }

    /// What people should know and no write tells.
    pub(crate) fn take_events(&mut self) -> Vec<tenure_whereabouts::slices::Event> {
        self.slices.take_events()
    }

    /// When to plan again even if nothing is heard until then: the next suspicion will have lasted long enough.
    pub fn next_look(&self) -> Option<Timestamp> {
        let blocks = [self.blocks_without_node.next(), self.requests_without_pool.next()];
        let unused = self.unused.as_ref().and_then(UnusedPlanner::next);
        let ledgers = [self.slices.next(), unused, self.claims.next(), self.moves.next()];
        blocks.into_iter().chain(ledgers).flatten().min()
    }
}

/// The object as the decision saw it.
fn at(object: &impl Resource) -> At {
    At {
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
        version: object.resource_version().unwrap_or_default(),
    }
}

/// The time as objects have it.
fn time(now: Timestamp) -> k8s_openapi::apimachinery::pkg::apis::meta::v1::Time {
    k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now.to_jiff())
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod planted;
#[cfg(test)]
mod proptests;
#[cfg(test)]
mod races;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use planted::Planted;
