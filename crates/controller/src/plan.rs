//! What to write next, from all that is known.

mod carved;
mod garbage;
mod pools;
mod requests;
mod suspicions;

use std::time::Duration;

use kube::{Resource, ResourceExt};
use tenure_api::overlap::overlaps;
use tenure_handles::Timestamp;

use crate::world::World;
use crate::write::{At, Write};
use carved::Carved;
pub(crate) use garbage::is_out_of_service;
use suspicions::Suspicions;

/// How long a node has to be missing before its blocks are released, when nobody saw it being deleted.
const MISSING_NODE: Duration = Duration::from_secs(10);
/// How long a pool has to be missing before a request for it is refused: pools and requests arrive by two watches, so
/// a pool made just before the request may be seen just after it.
const MISSING_POOL: Duration = Duration::from_secs(1);

/// Plans. All it remembers between two plans is since when it suspects what.
#[derive(Debug)]
pub struct Planner {
    blocks_without_node: Suspicions,
    requests_without_pool: Suspicions,
}

impl Default for Planner {
    fn default() -> Self {
        Self {
            blocks_without_node: Suspicions::lasting(MISSING_NODE),
            requests_without_pool: Suspicions::lasting(MISSING_POOL),
        }
    }
}

impl Planner {
    /// The writes that bring the world closer to what it should be: at most one for each object. Nothing while part of
    /// the world is unknown.
    pub fn plan(&mut self, world: &World, now: Timestamp) -> Vec<Write> {
        if !world.is_complete() {
            return Vec::new();
        }
        let overlaps = overlaps(world.pools.iter());
        let carved = Carved::of(world);
        let mut writes = requests::serve(world, &overlaps, &carved, &mut self.requests_without_pool, now);
        writes.extend(pools::keep(world, &overlaps, &carved, now));
        writes.extend(garbage::collect(world, &mut self.blocks_without_node, now));
        writes
    }

    /// When to plan again even if nothing is heard until then: the next suspicion will have lasted long enough.
    pub fn next_look(&self) -> Option<Timestamp> {
        [&self.blocks_without_node, &self.requests_without_pool]
            .into_iter()
            .filter_map(Suspicions::next)
            .min()
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
mod proptests;
#[cfg(test)]
mod tests;
