//! When slices are planned, and when they are not.

use k8s_openapi::api::core::v1::Node;
use proptest::prelude::*;
use serde_json::json;
use tenure_api::whereabouts::{Allocation, IPPool, IPPoolSpec, label};
use tenure_whereabouts::slices::Told;

use super::super::index::Index;
use super::*;
use crate::attachment::Attachment;
use crate::write::Operation;
use tenure_api::networks::{NetworkAttachmentDefinition, NetworkAttachmentDefinitionSpec};

const GONE: Duration = Duration::from_secs(15);

/// A world with an API server behind it that does what it is told.
struct Rig {
    world: World,
    index: Index,
    planner: SlicePlanner,
    /// One that always looks at everything, and walks all slices.
    full: (Index, SlicePlanner),
    now: Timestamp,
    version: u64,
}

impl Rig {
    fn new() -> Self {
        let mut world = World::default();
        world.begin_nodes();
        world.finish_nodes();
        let ledgers = world.ledgers_mut();
        ledgers.attachments.begin();
        ledgers.attachments.finish();
        ledgers.slices.begin();
        ledgers.slices.finish();
        ledgers.pools.begin();
        ledgers.pools.finish();
        let now = Timestamp::from_millis(1_794_000_000_000);
        let planner = || SlicePlanner::new("kube-system", GONE);
        let full = (Index::default(), SlicePlanner { tables: Tables::Unasked, ..planner() });
        Self { world, index: Index::default(), planner: planner(), full, now, version: 0 }
    }

    /// What is planned, which must be what a look at everything plans.
    fn plan(&mut self) -> Vec<LedgerWrite> {
        let changes = self.index.update(&self.world);
        let (world, now) = (&self.world, self.now);
        let writes = self.planner.plan(Inputs { world, index: &self.index, changes: &changes, now });
        let (index, full) = &mut self.full;
        index.look_at_all();
        let changes = index.update(&self.world);
        let all = full.plan(Inputs { world, index, changes: &changes, now });
        let sorted = |writes: &[LedgerWrite]| {
            let whole = |write: &LedgerWrite| format!("{:?}", write.clone().whole(&self.world));
            let mut texts: Vec<String> = writes.iter().map(whole).collect();
            texts.sort();
            texts
        };
        assert_eq!(sorted(&writes), sorted(&all), "what changed, and everything, at {:?}", self.now);
        writes
    }

    fn stamp(&mut self) -> (Option<String>, Option<String>) {
        self.version += 1;
        (Some(format!("uid-{}", self.version)), Some(self.version.to_string()))
    }

    fn node(&mut self, name: &str) -> Node {
        let mut node = Node::default();
        node.metadata.name = Some(name.to_owned());
        (node.metadata.uid, node.metadata.resource_version) = self.stamp();
        self.world.apply_node(node.clone());
        node
    }

    fn attach(&mut self, size: &str) {
        let ipam = json!({"type": "whereabouts", "range": "10.0.0.0/24", "node_slice_size": size});
        let config = json!({"name": "net", "type": "macvlan", "ipam": ipam}).to_string();
        let mut object = NetworkAttachmentDefinition::new("net", NetworkAttachmentDefinitionSpec { config });
        object.metadata.namespace = Some("apps".to_owned());
        object.metadata.uid = Some("attachment".to_owned());
        object.metadata.resource_version = self.stamp().1;
        self.world.ledgers_mut().attachments.apply(Attachment::of(&object));
    }

    fn detach(&mut self) {
        self.world.ledgers_mut().attachments.remove("apps/net", "attachment");
    }

    fn put(&mut self, mut pool: IPPool) {
        let (uid, version) = self.stamp();
        pool.metadata.uid.get_or_insert(uid.unwrap_or_default());
        pool.metadata.resource_version = version;
        self.world.apply_ledger(pool);
    }

    /// A node's ledger in that state, with that many records.
    fn ledger(&mut self, node: &str, slice: &str, state: &str, records: u32) {
        let name = format!("{node}-{}", slice.replace('/', "-"));
        let allocations = (1..=records).map(|key| (key.to_string(), Allocation::default())).collect();
        let mut pool = IPPool::new(&name, IPPoolSpec { range: slice.to_owned(), allocations });
        pool.metadata.uid = Some(name);
        pool.labels_mut().insert(label::NODE.to_owned(), node.to_owned());
        pool.annotations_mut().insert("whereabouts.cni.cncf.io/state".to_owned(), state.to_owned());
        self.put(pool);
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now.plus(time);
    }

    /// Plans, does what is planned, and again until there is nothing to do at present; what was done, but for telling nodes.
    fn settle(&mut self) -> Vec<&'static str> {
        let mut done = Vec::new();
        for _ in 0..20 {
            let writes = self.plan();
            if writes.is_empty() {
                return done;
            }
            for write in writes {
                done.extend(Some(write.verb()).filter(|verb| !verb.ends_with("tell")));
                self.write(write);
            }
        }
        panic!("there is always something to do: {done:?}");
    }

    fn write(&mut self, write: LedgerWrite) {
        match write {
            LedgerWrite::Guard { pool } => self.put(*pool),
            LedgerWrite::Mark { pool, mark } => {
                let known = self.world.ledgers().pools.get(&pool.name).unwrap().pool.clone();
                self.put(mark.apply(&known).unwrap());
            }
            LedgerWrite::Slices { mut pool, gone, .. } => {
                assert!(gone.iter().all(|node| self.world.nodes().get(node).is_none()), "{gone:?}");
                let (uid, version) = self.stamp();
                pool.metadata.uid.get_or_insert(uid.unwrap_or_default());
                pool.metadata.resource_version = version;
                self.world.ledgers_mut().slices.apply(*pool);
            }
            LedgerWrite::ChangeSlices { pool, change, gone, .. } => {
                assert!(gone.iter().all(|node| self.world.nodes().get(node).is_none()), "{gone:?}");
                let mut pool = change.apply(self.world.ledgers().slices.get(&pool.name).unwrap()).unwrap();
                pool.metadata.resource_version = self.stamp().1;
                self.world.ledgers_mut().slices.apply(pool);
            }
            LedgerWrite::DropSlices { pool } => {
                self.world.ledgers_mut().slices.remove(&pool.name, &pool.uid);
            }
            LedgerWrite::Tell { ledger } => {
                assert!(self.world.ledgers().pools.get(&ledger.name_any()).is_none(), "{ledger:?}");
                self.put(*ledger);
            }
            LedgerWrite::Retell { ref pool, .. } => {
                let known = self.world.ledgers().pools.get(&pool.name).unwrap();
                let mut told = write.retell(&known.pool).unwrap();
                // Of a living node's ledger only the counts are known here.
                told.spec.allocations =
                    (1..=known.used).map(|key| (key.to_string(), Allocation::default())).collect();
                self.put(told);
            }
            LedgerWrite::Untell { pool } => self.world.ledgers_mut().pools.remove(&pool.name, &pool.uid),
            other => panic!("{other:?}"),
        }
    }

    /// Which slices nodes are told that they have.
    fn told(&self) -> BTreeMap<String, String> {
        let ledgers = self.world.ledgers().pools.iter();
        let told = ledgers.filter(|ledger| matches!(Told::by(&ledger.pool), Told::Given(_)));
        told.map(|ledger| (ledger.node().unwrap().to_owned(), ledger.pool.spec.range.clone())).collect()
    }

    /// Node → slice.
    fn given(&self) -> BTreeMap<String, String> {
        let status = self.world.ledgers().slices.iter().filter_map(|pool| pool.status.as_ref());
        let slices =
            status.flat_map(|status| &status.allocations).filter(|slice| !slice.node_name.is_empty());
        slices.map(|slice| (slice.node_name.clone(), slice.slice_range.clone())).collect()
    }
}

#[test]
fn nothing_is_planned_before_everything_is_known() {
    let mut rig = Rig::new();
    rig.attach("/26");
    rig.world.ledgers_mut().attachments = crate::cache::Cache::default();
    assert!(rig.plan().is_empty());
}

#[test]
fn a_range_is_guarded_then_cut_and_written_again_only_when_something_changes_and_not_too_often() {
    let mut rig = Rig::new();
    rig.node("a");
    rig.attach("/26");
    assert_eq!(rig.settle(), ["guard", "slices"]);
    rig.pass(Duration::from_mins(1));
    assert!(rig.settle().is_empty(), "nothing has changed");
    rig.node("b");
    assert_eq!(rig.settle(), ["slices"]);
    rig.node("c");
    assert!(rig.settle().is_empty(), "it was written just now");
    let wake = rig.planner.next().expect("a time to write it");
    rig.pass(wake.since(rig.now));
    assert_eq!(rig.settle(), ["slices"]);
    assert_eq!(rig.given().len(), 3);
}

#[test]
fn a_node_keeps_its_slice_for_a_while_after_it_is_gone_and_for_good_while_it_holds_something() {
    let mut rig = Rig::new();
    let a = rig.node("a");
    rig.node("b");
    rig.attach("/25");
    rig.settle();
    rig.node("c");
    rig.pass(Duration::from_secs(2));
    rig.settle();
    let before = rig.given();
    rig.ledger("a", "10.0.0.0/25", "owned", 1);
    rig.world.delete_node("a", &a.uid().unwrap());
    rig.settle();
    rig.pass(GONE * 2);
    rig.settle();
    assert_eq!(rig.given(), before, "it holds an address");
    rig.ledger("a", "10.0.0.0/25", "owned", 0);
    rig.pass(Duration::from_secs(2));
    rig.settle();
    assert_eq!(rig.given(), before, "its ledger says that it hands out of it");
    rig.world.ledgers_mut().pools.remove("a-10.0.0.0-25", "a-10.0.0.0-25");
    rig.pass(Duration::from_secs(2));
    assert_eq!(rig.settle(), ["slices"]);
    assert!(!rig.given().contains_key("a") && !rig.given().contains_key("c"), "first it is taken away");
    let wake = rig.planner.next().expect("a time to give it");
    rig.pass(wake.since(rig.now));
    assert_eq!(rig.settle(), ["slices"]);
    assert_eq!(rig.given().get("c"), before.get("a"));
    // One that is gone only now keeps its slice for a while, though it holds nothing.
    let b = rig.world.nodes().get("b").unwrap().clone();
    rig.world.delete_node("b", &b.uid().unwrap());
    rig.pass(Duration::from_secs(2));
    rig.settle();
    assert!(rig.given().contains_key("b"));
    rig.pass(GONE);
    rig.settle();
    assert!(!rig.given().contains_key("b"));
}

#[test]
fn a_range_that_is_whole_again_is_opened_when_no_node_hands_out_of_a_slice_any_more() {
    let mut rig = Rig::new();
    rig.node("a");
    rig.attach("/26");
    rig.settle();
    rig.ledger("a", "10.0.0.0/26", "owned", 1);
    rig.pass(PACE);
    rig.detach();
    assert_eq!(rig.settle(), ["drop_slices"]);
    rig.ledger("a", "10.0.0.0/26", "unique", 1);
    assert_eq!(rig.settle(), ["mark"], "the node has heard of it");
}

#[test]
fn a_node_that_joins_costs_a_ledger_of_its_own_and_nobody_elses_is_written() {
    let mut rig = Rig::new();
    rig.attach("/28");
    for node in 0..12 {
        rig.node(&format!("n{node}"));
    }
    rig.settle();
    assert_eq!(rig.told(), rig.given());
    assert_eq!(rig.told().len(), 12);
    rig.pass(PACE * 2);
    let before: BTreeMap<String, Option<String>> = versions(&rig);
    rig.node("n12");
    rig.settle();
    assert_eq!(rig.told(), rig.given());
    let mut after = versions(&rig);
    after.retain(|name, _| !name.starts_with("n12-"));
    assert_eq!((after, versions(&rig).len()), (before, 13));
}

/// The versions of all ledgers of nodes.
fn versions(rig: &Rig) -> BTreeMap<String, Option<String>> {
    let nodes = rig.world.ledgers().pools.iter().filter(|ledger| ledger.node().is_some());
    nodes.map(|ledger| (ledger.pool.name_any(), ledger.pool.resource_version())).collect()
}

#[test]
fn what_an_earlier_version_left_is_told_and_what_is_not_given_any_more_is_withdrawn() {
    let mut rig = Rig::new();
    rig.node("a");
    rig.node("b");
    rig.attach("/26");
    rig.settle();
    let slice = |rig: &Rig, node: &str| rig.given()[node].clone();
    let (a, b) = (slice(&rig, "a"), slice(&rig, "b"));
    // These say nothing of what the controller told: one of a slice that the node has, and one that it does not have.
    rig.ledger("a", &a, "owned", 1);
    rig.ledger("b", "10.0.0.192/26", "owned", 0);
    assert_eq!(rig.settle(), Vec::<&str>::new());
    assert_eq!(rig.told(), BTreeMap::from([("a".to_owned(), a.clone()), ("b".to_owned(), b.clone())]));
    let told = |rig: &Rig, name: &str| Told::by(&rig.world.ledgers().pools.get(name).unwrap().pool);
    assert_eq!(told(&rig, "b-10.0.0.192-26"), Told::Withdrawn);
    // What nobody wants cut is withdrawn: an object in which the node has said nothing goes, the others are the node's to remove.
    rig.pass(PACE);
    rig.detach();
    rig.settle();
    assert!(rig.told().is_empty());
    let name = |node: &str, slice: &str| format!("{node}-{}", slice.replace('/', "-"));
    assert_eq!(told(&rig, &name("a", &a)), Told::Withdrawn);
    assert!(rig.world.ledgers().pools.get(&name("b", &b)).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn whatever_nodes_do_a_slice_in_which_somebody_holds_an_address_is_nobody_elses(
        steps in prop::collection::vec((0_u8..4, 0_usize..6, 0_u64..20), 1..60)
    ) {
        let mut rig = Rig::new();
        rig.attach("/26");
        let mut held: BTreeMap<String, String> = BTreeMap::new();
        for (what, node, seconds) in steps {
            let name = format!("n{node}");
            match what {
                0 => _ = rig.node(&name),
                1 => {
                    if let Some(known) = rig.world.nodes().get(&name).cloned() {
                        rig.world.delete_node(&known.name_any(), &known.uid().unwrap());
                    }
                }
                2 => {
                    if let Some(slice) = rig.given().get(&name).filter(|_| rig.world.nodes().get(&name).is_some()) {
                        rig.ledger(&name, slice, "owned", 1);
                        held.insert(slice.clone(), name);
                    }
                }
                _ => {
                    let slices: Vec<String> =
                        held.iter().filter(|(_, node)| **node == name).map(|(slice, _)| slice.clone()).collect();
                    for slice in slices {
                        rig.ledger(&name, &slice, "owned", 0);
                        held.remove(&slice);
                    }
                }
            }
            rig.pass(Duration::from_secs(seconds));
            rig.settle();
            let lives = |(node, slice): (String, String)| rig.world.lives(&node).then_some((node, slice));
            let (given, told) = (rig.given().into_iter().filter_map(lives), rig.told().into_iter().filter_map(lives));
            prop_assert_eq!(told.collect::<Vec<_>>(), given.collect::<Vec<_>>(), "living nodes are told of their slices, and no others");
            for (node, slice) in rig.given() {
                let holder = held.get(&slice);
                prop_assert!(holder.is_none_or(|holder| *holder == node), "{} has {}, held by {:?}", node, slice, holder);
            }
        }
    }
}
