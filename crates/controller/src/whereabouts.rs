//! Whereabouts' dialect: ranges in network configurations, slices for nodes, and unused records.

mod events;
mod index;
mod ledgers;
mod metrics;
mod perform;
mod slices;
mod unused;
mod write;

use std::collections::BTreeMap;
use std::convert::identity;
use std::sync::Arc;
use std::time::Duration;

use kube::runtime::watcher::Event;
use kube::{Api, Client, ResourceExt};
use prometheus_client::registry::Registry;
use tenure_api::networks::NetworkAttachmentDefinition;
use tenure_api::whereabouts::{IPPool, NodeSlicePool, OverlappingRangeIPReservation};
use tenure_handles::Timestamp;
use tenure_whereabouts::slices::Floating;

use crate::events::Note;
use crate::kind::{Kind, cached_in, cached_kind};
use crate::part::{Board, Count, Part, Perform, Plan};
use crate::pods::PodBrief;
use crate::release::MISSING_NODE_REST;
use crate::unreadable::Stub;
use crate::watch::{Watch, Watches};
use crate::world::World;
use crate::write::Write;
use index::{Index, Inputs};
pub use ledgers::{Ledger, Ledgers};
pub(crate) use perform::LedgerApi;
use slices::SlicePlanner;
use unused::UnusedPlanner;
pub(crate) use write::DIVISIONS;
pub use write::{LedgerWrite, Rest};

/// Pods that have ended are not even sent.
pub(crate) const LIVING: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// How to manage Whereabouts' ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whereabouts {
    /// The namespace of its objects.
    pub namespace: String,
    /// How long a record has to be unused before it is released; `None` if this API has no pods: then nothing is.
    pub release_after: Option<Duration>,
    /// How long a node has to be gone before its slice may be given to another: longer than the node, if it still
    /// exists, takes to write its holds into its ledger.
    pub node_gone_after: Duration,
    /// How long a freed address cools.
    pub cooling: Duration,
}

impl Default for Whereabouts {
    fn default() -> Self {
        Self {
            namespace: "kube-system".to_owned(),
            release_after: Some(Duration::from_mins(1)),
            node_gone_after: MISSING_NODE_REST,
            cooling: Duration::from_secs(30),
        }
    }
}

impl Part for Whereabouts {
    fn watch(&self, watches: &mut Watches<'_>) {
        let client = watches.client();
        let namespace = self.namespace.as_str();
        let optional = || Watch { may_be_missing: true, ..Watch::default() };
        watches.add::<NetworkAttachmentDefinition>(Api::all(client.clone()), optional());
        watches.add::<NodeSlicePool>(Api::namespaced(client.clone(), namespace), optional());
        watches.add::<IPPool>(Api::namespaced(client.clone(), namespace), optional());
        watches.add::<OverlappingRangeIPReservation>(Api::namespaced(client.clone(), namespace), optional());
        let pods_are_here = self.release_after.is_some();
        let needed = move |world: &World| pods_are_here && world.needs_pods();
        let pods = Watch { fields: Some(LIVING), needed: Some(Box::new(needed)), ..optional() };
        watches.add::<PodBrief>(Api::all(client), pods);
    }

    fn planner(&self) -> Box<dyn Plan> {
        Box::new(WhereaboutsPlanner::new(self))
    }

    fn performer(&self, client: &Client) -> (&'static str, Arc<dyn Perform>) {
        (write::PART, Arc::new(LedgerApi::new(client.clone(), &self.namespace)))
    }

    fn metrics(&self, registry: &mut Registry) -> Box<dyn Count> {
        Box::new(metrics::LedgerMetrics::registered(registry))
    }
}

/// What claims need of slices.
#[derive(Debug, Default)]
pub(crate) struct SliceNeeds(pub(crate) BTreeMap<String, Floating>);

/// Plans slices and the release of unused records.
#[derive(Debug)]
pub(crate) struct WhereaboutsPlanner {
    index: Index,
    slices: SlicePlanner,
    /// `None` if this API has no pods: then it is not known what is unused.
    unused: Option<UnusedPlanner>,
    /// A bug that a test plants.
    #[cfg(test)]
    deaf: Option<Deaf>,
}

/// A planner that overlooks changes of these.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
enum Deaf {
    Nodes,
    Ledgers,
    Definitions,
    /// The tables of slices overlook nodes.
    Tables,
}

impl WhereaboutsPlanner {
    pub(crate) fn new(settings: &Whereabouts) -> Self {
        let unused = |patience| UnusedPlanner::new(patience, settings.node_gone_after, settings.cooling);
        Self {
            index: Index::default(),
            slices: SlicePlanner::new(&settings.namespace, settings.node_gone_after),
            unused: settings.release_after.map(unused),
            #[cfg(test)]
            deaf: None,
        }
    }
}

impl Plan for WhereaboutsPlanner {
    fn plan(&mut self, world: &World, board: &mut Board, now: Timestamp) -> Vec<Write> {
        if let Some(SliceNeeds(needs)) = board.get() {
            self.slices.need(needs);
        }
        let changes = self.index.update(world);
        #[cfg(test)]
        let changes = changes.without(self.deaf);
        let inputs = Inputs { world, index: &self.index, changes: &changes, now };
        let mut writes = self.slices.plan(inputs);
        if let Some(unused) = &mut self.unused {
            writes.extend(unused.plan(inputs));
        }
        writes.into_iter().map(Write::from).collect()
    }

    fn look_at_all(&mut self) {
        self.index.look_at_all();
    }

    fn next_look(&self) -> Option<Timestamp> {
        let unused = self.unused.as_ref().and_then(UnusedPlanner::next);
        [self.slices.next(), unused].into_iter().flatten().min()
    }

    fn take_notes(&mut self, world: &World) -> Vec<Note> {
        self.slices.take_events().iter().filter_map(|event| events::of_slices(event, world)).collect()
    }

    fn suspects(&self) -> usize {
        self.unused.as_ref().map_or(0, UnusedPlanner::suspects)
    }
}

cached_in!(NodeSlicePool, Self, ledgers_mut.slices, identity, by name);
cached_in!(OverlappingRangeIPReservation, Self, ledgers_mut.reservations, identity, by name);
cached_kind!(NodeSlicePool, "NodeSlicePool");
cached_kind!(OverlappingRangeIPReservation, "OverlappingRangeIPReservation");

impl Kind for IPPool {
    const NAME: &'static str = "IPPool";

    fn observe(world: &mut World, event: Event<Self>) {
        match event {
            Event::InitApply(pool) => world.list_ledger(pool),
            Event::Apply(pool) => world.apply_ledger(pool),
            Event::Init => world.ledgers_mut().pools.begin(),
            Event::InitDone => world.ledgers_mut().pools.finish(),
            Event::Delete(pool) => {
                Self::observe_gone(world, "", &pool.name_any(), &pool.uid().unwrap_or_default());
            }
        }
    }

    fn observe_gone(world: &mut World, _: &str, name: &str, uid: &str) {
        world.ledgers_mut().pools.remove(name, uid);
    }

    fn observe_unreadable(world: &mut World, stub: &Stub, gone: bool) {
        if gone {
            world.ledgers_mut().pools.remove(&stub.name, &stub.uid);
        } else {
            world.ledgers_mut().pools.keep(&stub.name, &stub.uid);
        }
    }
}

#[cfg(test)]
mod proptests;
