//! An incremental plan equals a full one, whatever happens in whichever order, even though the former uses tables of
//! slices and the latter walks all slices.

mod model;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::json;
use tenure_api::claims::SLICE_OWNER;
use tenure_whereabouts::ledger::{PoolId, State};

use super::slices::Tables;
use super::*;
use model::{Server, config};

const NODES: [&str; 5] = ["a", "b", "c", "net-d", "e"];
const PODS: [&str; 4] = ["p", "q", "r", "s"];
/// Ranges that all nodes share; some overlap others and divided ranges.
const SHARED: [(&str, &str); 5] = [
    ("", "10.0.0.0/24"),
    ("", "10.0.0.0/25"),
    ("", "10.1.0.0/24"),
    ("blue", "10.0.0.0/24"),
    ("net", "10.2.0.0/24"),
];
const ADDRESSES: [&str; 4] = ["10.0.0.2", "10.0.0.3", "10.1.0.4", "10.2.0.5"];
const STATES: [State; 4] = [State::Unmarked, State::Unique, State::Sliced, State::Owned];

#[derive(Clone, Debug)]
enum Op {
    Node(usize, bool),
    NodeGone(usize),
    Define(usize, usize),
    Undefine(usize),
    /// A node writes the ledger of a slice that it has.
    Own(usize, usize, usize, usize, bool),
    /// Records of a shared range, or of a node that only the object's name tells.
    Share(usize, usize, usize),
    Stray(usize, usize, usize),
    LedgerGone(usize),
    Reserve(usize, usize),
    Unreserve(usize),
    Pod(usize, bool, usize),
    PodGone(usize),
    Garble(usize),
    List(usize),
    /// Pods are not watched any more.
    Blind,
    Need(usize, usize, bool),
    /// Somebody else assigns a slice to a node, which may have one already.
    Meddle(usize, usize, usize),
    Pass(u64),
    /// The first writes, this many, are done.
    Write(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let any = || any::<usize>();
    prop_oneof![
        6 => (0..NODES.len(), prop::bool::weighted(0.8)).prop_map(|(node, serves)| Op::Node(node, serves)),
        3 => (0..NODES.len()).prop_map(Op::NodeGone),
        4 => (0_usize..5, 0_usize..9).prop_map(|(name, what)| Op::Define(name, what)),
        2 => (0_usize..5).prop_map(Op::Undefine),
        6 => (0..NODES.len(), any(), 0_usize..4, any(), prop::bool::weighted(0.7))
            .prop_map(|(node, pool, state, pods, labelled)| Op::Own(node, pool, state, pods, labelled)),
        4 => (0..SHARED.len(), 0_usize..4, any()).prop_map(|(range, state, pods)| Op::Share(range, state, pods)),
        2 => (0..NODES.len(), 0..SHARED.len(), any()).prop_map(|(node, range, pods)| Op::Stray(node, range, pods)),
        2 => any().prop_map(Op::LedgerGone),
        2 => (0..ADDRESSES.len(), 0..PODS.len()).prop_map(|(address, pod)| Op::Reserve(address, pod)),
        1 => (0..ADDRESSES.len()).prop_map(Op::Unreserve),
        4 => (0..PODS.len(), prop::bool::weighted(0.7), any()).prop_map(|(pod, first, says)| Op::Pod(pod, first, says)),
        3 => (0..PODS.len()).prop_map(Op::PodGone),
        1 => any().prop_map(Op::Garble),
        1 => (0_usize..6).prop_map(Op::List),
        1 => Just(Op::Blind),
        6 => (0_usize..5, 0_usize..3, prop::bool::ANY).prop_map(|(pool, more, named)| Op::Need(pool, more, named)),
        1 => (any(), any(), 0..NODES.len()).prop_map(|(pool, slice, node)| Op::Meddle(pool, slice, node)),
        6 => prop_oneof![0_u64..3_000, 5_000_u64..100_000].prop_map(Op::Pass),
        20 => (1_usize..6).prop_map(Op::Write),
    ]
}

/// The configurations of definitions.
fn says(name: &str, what: usize) -> String {
    match what {
        0 => config(name, json!({"range": "10.0.0.0/24", "node_slice_size": "/26"})),
        1 => config(name, json!({"range": "10.0.0.0/25", "node_slice_size": "/27"})),
        2 => config(
            name,
            json!({"range": "10.1.0.0/24", "node_slice_size": "/25", "exclude": ["10.1.0.0/25"]}),
        ),
        3 => config(name, json!({"range": "10.0.0.0/24", "node_slice_size": "/26", "network_name": "blue"})),
        4 => config(name, json!({"range": "10.2.0.0/24", "node_slice_size": "/26", "network_name": "net"})),
        5 => config(name, json!({"range": "10.0.0.0/16"})),
        6 => config(
            name,
            json!({
                "range": "10.1.0.0/25", "node_slice_size": "/27", "ipRanges": [{"range": "10.3.0.0/24"}, {"range": "fd00::/64"}],
            }),
        ),
        7 => "{".to_owned(),
        _ => String::new(),
    }
}

struct Run {
    server: Server,
    planner: WhereaboutsPlanner,
    full: WhereaboutsPlanner,
    needs: BTreeMap<String, Floating>,
    planned: Vec<Write>,
}

impl Run {
    fn new(deaf: Option<Deaf>) -> Self {
        let mut full = WhereaboutsPlanner::new(&Whereabouts::default());
        full.slices.tables = Tables::Unasked;
        let mut planner = WhereaboutsPlanner { deaf, ..WhereaboutsPlanner::new(&Whereabouts::default()) };
        if matches!(deaf, Some(Deaf::Tables)) {
            planner.slices.tables = Tables::Deaf;
        }
        Self { server: Server::new(), planner, full, needs: BTreeMap::new(), planned: Vec::new() }
    }

    fn apply(&mut self, op: &Op) {
        let server = &mut self.server;
        match *op {
            Op::Node(node, serves) => server.node(NODES[node], serves),
            Op::NodeGone(node) => server.delete_node(NODES[node]),
            Op::Define(name, what) => {
                let name = ["one", "two", "three", "blue", "net"][name];
                server.define(name, says(name, what));
            }
            Op::Undefine(name) => server.undefine(["one", "two", "three", "blue", "net"][name]),
            Op::Own(node, pool, state, pods, labelled) => {
                if let Some(id) = server.slice_of(NODES[node], pool) {
                    let state = if state == 0 { State::Unique } else { State::Owned };
                    server.ledger(&id, state, &records(pods), labelled);
                }
            }
            Op::Share(range, state, pods) => {
                let (network, range) = SHARED[range];
                let id = PoolId::shared(network, range.parse().unwrap());
                server.ledger(&id, STATES[state], &records(pods), true);
            }
            Op::Stray(node, range, pods) => {
                let (network, range) = SHARED[range];
                let id = PoolId::of_node(network, NODES[node], range.parse().unwrap());
                server.ledger(&id, State::Unmarked, &records(pods), false);
            }
            Op::LedgerGone(which) => {
                let name = server.ledgers.keys().nth(which % server.ledgers.len().max(1)).cloned();
                if let Some(name) = name {
                    server.drop_ledger(&name);
                }
            }
            Op::Reserve(address, pod) => server.reserve(ADDRESSES[address], PODS[pod]),
            Op::Unreserve(address) => server.unreserve(ADDRESSES[address]),
            Op::Pod(pod, first, says) => {
                let addresses = [&ADDRESSES[..], &ADDRESSES[says % 4..=says % 4], &[]][says % 3];
                server.pod(PODS[pod], first, (says % 4 != 0).then_some(addresses));
            }
            Op::PodGone(pod) => server.delete_pod(PODS[pod]),
            Op::Garble(which) => server.garble(which),
            Op::List(kind) => server.list(kind),
            Op::Blind => server.world.ledgers_mut().pods.forget(),
            Op::Need(pool, more, named) => {
                let pool = ["one", "two", "three", "blue", "net"][pool];
                let slices =
                    ["10.0.0.64/26", "10.0.0.32/27", "10.2.0.192/26"].map(|slice| slice.parse().unwrap());
                let slices = slices.into_iter().filter(|_| named).collect();
                self.needs.insert(pool.to_owned(), Floating { more, slices });
            }
            Op::Meddle(pool, slice, node) => server.meddle(pool, slice, NODES[node]),
            Op::Pass(millis) => server.now = server.now.plus(Duration::from_millis(millis)),
            Op::Write(count) => {
                for write in self.planned.iter().take(count) {
                    server.write(write);
                }
            }
        }
        self.plan();
    }

    fn plan(&mut self) {
        let Self { server, planner, full, needs, .. } = self;
        let plan = |planner: &mut WhereaboutsPlanner| {
            let mut board = Board::default();
            board.put(SliceNeeds(needs.clone()));
            let mut writes = planner.plan(&server.world, &mut board, server.now);
            writes.sort_by_key(|write| format!("{:?}", whole(write, &server.world)));
            writes
        };
        let wholes =
            |writes: &[Write]| writes.iter().map(|write| whole(write, &server.world)).collect::<Vec<_>>();
        let writes = plan(planner);
        full.look_at_all();
        assert_eq!(wholes(&writes), wholes(&plan(full)), "what changed, and everything");
        assert_eq!(planner.suspects(), full.suspects());
        self.planned = writes;
    }
}

/// The write of a whole pool in place of a change of some slices.
fn whole(write: &Write, world: &World) -> Option<LedgerWrite> {
    write.of::<LedgerWrite>().map(|write| write.clone().whole(world))
}

/// Records of up to three pods.
fn records(pods: usize) -> Vec<(u8, &'static str)> {
    let count = pods % 4;
    (0..count).map(|at| (u8::try_from(at).unwrap() + 2, PODS[(pods / 4 + at) % PODS.len()])).collect()
}

/// What was planned meanwhile.
fn run(deaf: Option<Deaf>, ops: &[Op]) -> BTreeSet<&'static str> {
    let mut run = Run::new(deaf);
    let verbs = |op| {
        run.apply(op);
        run.planned.iter().map(|write| write.verb()).collect::<Vec<_>>()
    };
    ops.iter().flat_map(verbs).collect()
}

/// This many runs, always the same.
fn runs(count: usize) -> impl Iterator<Item = Vec<Op>> {
    let mut runner = TestRunner::deterministic();
    let ops = prop::collection::vec(op(), 1..80);
    (0..count).map(move |_| ops.new_tree(&mut runner).unwrap().current())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_plan_of_what_has_changed_is_the_plan_of_everything(ops in prop::collection::vec(op(), 1..80)) {
        run(None, &ops);
    }
}

#[test]
fn a_planner_that_does_not_hear_of_some_changes_is_found() {
    for deaf in [Deaf::Nodes, Deaf::Ledgers, Deaf::Definitions, Deaf::Tables] {
        let found = runs(200).any(|ops| catch_unwind(AssertUnwindSafe(|| run(Some(deaf), &ops))).is_err());
        assert!(found, "{deaf:?} was not found");
    }
}

/// The effect of a change of some slices.
fn changes(write: &Write) -> Vec<&'static str> {
    let Some(LedgerWrite::ChangeSlices { change, gone, .. }) = write.of() else { return Vec::new() };
    let kinds = change.slices.iter().map(|edit| match (edit.before.as_str(), edit.after.as_str()) {
        (_, SLICE_OWNER) => "is for claims",
        (SLICE_OWNER, "") => "is given back by claims",
        (_, "") => "is taken away",
        _ => "is given",
    });
    let kinds: Vec<&str> = kinds.collect();
    if kinds.is_empty() {
        vec!["only conditions"]
    } else {
        kinds.into_iter().chain(gone.first().map(|_| "gone")).collect()
    }
}

#[test]
fn the_runs_lead_to_every_kind_of_change_of_some_slices() {
    let mut kinds: BTreeSet<&str> = BTreeSet::new();
    for ops in runs(200) {
        let mut run = Run::new(None);
        for op in &ops {
            run.apply(op);
            kinds.extend(run.planned.iter().flat_map(changes));
        }
    }
    let all =
        ["gone", "is for claims", "is given", "is given back by claims", "is taken away", "only conditions"];
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), all);
}

#[test]
fn the_runs_lead_to_every_kind_of_write() {
    let mut verbs: BTreeSet<&str> = BTreeSet::new();
    runs(200).for_each(|ops| verbs.extend(run(None, &ops)));
    let all = [
        "drop_ledger",
        "drop_slices",
        "forget",
        "guard",
        "mark",
        "mark_ledger",
        "read",
        "slices",
        "tell",
        "unreserve",
        "untell",
    ];
    assert_eq!(verbs.into_iter().collect::<Vec<_>>(), all);
}
