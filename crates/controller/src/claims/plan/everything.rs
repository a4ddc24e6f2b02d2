//! Whatever happens to claims and their dependencies, an incremental plan equals a full one: every plan here is
//! compared with that of a planner that always looks at everything ([`Planner::default`]).
//!
//! Events need not make sense. Every run replays from its seed.

mod happening;
mod perform;

use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use tenure_api::claims::IPAMClaim;
use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest};
use tenure_api::networks::NetworkAttachmentDefinition;
use tenure_api::whereabouts::{IPPool, NodeSlicePool, OverlappingRangeIPReservation};
use tenure_handles::{Entropy, SeededEntropy, Timestamp};

use super::super::owners::{VirtualMachine, VirtualMachineInstance};
use super::super::records::{Overlooked, Planted};
use crate::kind::Kind;
use crate::plan::Planner;
use crate::pods::PodBrief;
use crate::world::World;
use crate::write::Write;

/// A cluster as a controller sees it.
struct Cluster {
    world: World,
    planner: Planner,
    dice: SeededEntropy,
    now: u64,
    version: u64,
    /// Writes that are not done yet.
    on_their_way: Vec<Write>,
    /// How often each kind of write was done.
    done: BTreeMap<&'static str, usize>,
}

impl Cluster {
    fn new(seed: u64) -> Self {
        let world = World::of_cluster_network(Some("cluster".to_owned()));
        let (planner, dice) = (Planner::default(), SeededEntropy::new(seed));
        let (on_their_way, done) = (Vec::new(), BTreeMap::new());
        let mut cluster = Self { world, planner, dice, now: 0, version: 0, on_their_way, done };
        cluster.list_everything();
        for name in ["n1", "n2"] {
            cluster.put::<Node>(json!({"metadata": {"name": name}}));
        }
        cluster.pool("default", &["10.0.0.0/29"], false);
        cluster.namespace("ns", None);
        for name in ["shared", "cut"] {
            cluster.define(name, 0);
        }
        cluster
    }

    fn list_everything(&mut self) {
        fn list<K: Kind>(world: &mut World) {
            K::observe(world, Event::Init);
            K::observe(world, Event::InitDone);
        }
        let world = &mut self.world;
        list::<AddressPool>(world);
        list::<AddressBlock>(world);
        list::<BlockRequest>(world);
        list::<Node>(world);
        // Some kinds are listed later; until then absence means nothing.
        let late = self.dice.next_u64().is_multiple_of(8);
        if !late {
            list::<IPPool>(world);
            list::<PodBrief>(world);
        }
        list::<NetworkAttachmentDefinition>(world);
        list::<NodeSlicePool>(world);
        list::<OverlappingRangeIPReservation>(world);
        list::<IPAMClaim>(world);
        list::<PartialObjectMeta<Namespace>>(world);
        list::<VirtualMachine>(world);
        list::<VirtualMachineInstance>(world);
        list::<StatefulSet>(world);
        list::<MutatingWebhookConfiguration>(world);
    }

    fn below(&self, bound: usize) -> usize {
        usize::try_from(self.dice.next_u64() % bound.max(1) as u64).unwrap_or_default()
    }

    fn one_of<'a>(&self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }

    fn timestamp(&self) -> Timestamp {
        Timestamp::from_millis(1_794_000_000_000 + self.now)
    }

    /// Creates or changes an object.
    fn put<K: Kind + Resource<DynamicType = ()>>(&mut self, object: Value) {
        self.put_object::<K>(serde_json::from_value(object).unwrap());
    }

    fn put_object<K: Kind + Resource<DynamicType = ()>>(&mut self, mut object: K) {
        self.version += 1;
        let created = crate::plan::time(self.timestamp());
        let version = self.version.to_string();
        let meta = object.meta_mut();
        meta.uid.get_or_insert_with(|| format!("uid-{version}"));
        meta.creation_timestamp.get_or_insert(created);
        meta.resource_version = Some(version);
        K::observe(&mut self.world, Event::Apply(object));
    }

    /// Deletes an object.
    #[expect(clippy::needless_pass_by_value, reason = "nobody has an object that is gone")]
    fn remove<K: Kind + Resource<DynamicType = ()> + Debug>(&mut self, object: K) {
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        K::observe_gone(&mut self.world, &namespace, &name, &object.uid().unwrap_or_default());
    }

    /// Plans, which compares the plans, and performs some of the writes.
    fn plan(&mut self) {
        self.world.in_flight = self.on_their_way.iter().take(self.below(3)).cloned().collect();
        let plan = self.planner.plan(&self.world, self.timestamp());
        if self.below(3) > 0 {
            self.on_their_way.clear();
        }
        self.on_their_way.extend(plan);
        for _ in 0..self.below(6) {
            let there = self.on_their_way.len();
            if there > 0 {
                let write = self.on_their_way.swap_remove(self.below(there));
                if self.perform(&write) {
                    *self.done.entry(write.verb()).or_default() += 1;
                }
            }
        }
    }
}

/// Runs it. Returns how often each kind of write was done.
fn run(seed: u64, planted: Option<Planted>) -> BTreeMap<&'static str, usize> {
    let mut cluster = Cluster::new(seed);
    cluster.world.claims_mut().planted = planted;
    for _ in 0..250 {
        if cluster.below(3) == 0 {
            cluster.plan();
        } else {
            cluster.happen();
        }
    }
    cluster.done
}

/// This many runs compare plans, and find every planted bug.
const RUNS: u64 = 60;

#[test]
fn a_plan_of_what_has_changed_is_the_plan_of_everything() {
    let mut done: BTreeMap<&'static str, usize> = BTreeMap::new();
    for seed in 0..RUNS {
        for (verb, count) in run(seed, None) {
            *done.entry(verb).or_default() += count;
        }
    }
    // A run that never plans one kind of write compares nothing.
    for verb in [
        "create",
        "claim_records",
        "drop_floating",
        "claim_hold",
        "claim_forget",
        "claim_slice",
        "claim_name",
        "drop_claim_ledger",
        "claim_status",
        "hold",
        "create_claim",
        "claim_finalizers",
        "delete_claim",
        "guard",
        "slices",
    ] {
        assert!(done.get(verb).is_some_and(|count| *count > 3), "{verb} was not planned: {done:?}");
    }
}

/// A check that misses its bug is no check.
#[test]
fn an_event_that_a_plan_overlooks_is_found() {
    for overlooked in [
        Overlooked::Claims,
        Overlooked::Namespaces,
        Overlooked::Attachments,
        Overlooked::Pods,
        Overlooked::Nodes,
        Overlooked::Blocks,
        Overlooked::Ledgers,
        Overlooked::Slices,
        Overlooked::Time,
        Overlooked::Pending,
        Overlooked::Waiting,
    ] {
        let fails =
            |seed| std::panic::catch_unwind(|| run(seed, Some(Planted::Overlooks(overlooked)))).is_err();
        assert!((0..RUNS).any(fails), "nobody noticed that {overlooked:?} were overlooked");
    }
}
