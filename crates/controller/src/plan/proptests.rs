//! Two leaders at once, each with its own view of the world, on one API server. Whatever they learn late, and
//! whichever of their writes are late, repeated or lost with a crash, the result is right.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use proptest::prelude::*;
use tenure_api::coil::{BlockRequest, RequestOutcome};

use super::model::{Leaders, Outcome, Server, Turn, turn};
use super::*;
use crate::coil::BlockWrite;

const POOLS: [&str; 3] = ["p", "q", "r"];
const NODES: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Clone, Debug)]
enum Op {
    Request { node: usize, pool: usize, by_block: bool },
    ForgetRequest(usize),
    ReturnBlock(usize),
    DeletePool(usize),
    DeleteNode(usize),
    AddNode(usize),
    GrowPool(usize),
    Turn(Turn),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => request(),
        1 => any::<usize>().prop_map(Op::ForgetRequest),
        2 => any::<usize>().prop_map(Op::ReturnBlock),
        1 => (0..POOLS.len()).prop_map(Op::DeletePool),
        1 => (0..NODES.len()).prop_map(Op::DeleteNode),
        1 => (0..NODES.len()).prop_map(Op::AddNode),
        1 => (0..POOLS.len()).prop_map(Op::GrowPool),
        37 => turn().prop_map(Op::Turn),
    ]
}

/// A request of either sort.
fn request() -> impl Strategy<Value = Op> {
    (0..NODES.len(), 0..POOLS.len(), any::<bool>()).prop_map(|(node, pool, by_block)| Op::Request {
        node,
        pool,
        by_block,
    })
}

struct Run {
    server: Server,
    leaders: Leaders,
    asked: u32,
    /// The node of each request, by UID.
    askers: BTreeMap<String, String>,
    /// UIDs of requests that got a block when they had one or had an answer, or an answer that does not name the block that
    /// they have. Only writes of two leaders do that; at worst the node that asked has a block too many.
    late: BTreeSet<String>,
}

impl Run {
    fn new() -> Self {
        let mut server = Server::default();
        server.pool("p", 1, &["10.0.0.0/29"], &["10.0.0.2-10.0.0.3"]);
        server.now += 2_000;
        server.pool("q", 1, &["10.0.0.4/30", "10.0.1.0/30"], &[]);
        server.pool("r", 0, &["10.0.2.0/31"], &[]);
        for node in NODES {
            server.node(node, None);
        }
        let leaders = Leaders::of(&server);
        Self { server, leaders, asked: 0, askers: BTreeMap::new(), late: BTreeSet::new() }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Request { node, pool, by_block } => {
                self.asked += 1;
                let name = format!("r{}", self.asked);
                if self.server.nodes.contains_key(NODES[node]) {
                    let uid = self.server.request_answered(&name, NODES[node], POOLS[pool], by_block);
                    self.askers.insert(uid, NODES[node].to_owned());
                }
            }
            Op::ForgetRequest(number) => {
                if let Some(name) = pick(self.server.requests.keys(), number) {
                    self.server.delete_request(&name);
                }
            }
            Op::ReturnBlock(number) => {
                if let Some(name) = pick(self.server.blocks.keys(), number) {
                    self.server.return_block(&name);
                }
            }
            Op::DeletePool(pool) => self.server.delete_pool(POOLS[pool]),
            Op::DeleteNode(node) => self.server.delete_node(NODES[node]),
            Op::AddNode(node) => {
                if !self.server.nodes.contains_key(NODES[node]) {
                    self.server.node(NODES[node], None);
                }
            }
            Op::GrowPool(pool) => {
                if let Some(mut known) = self.server.pools.get(POOLS[pool]).cloned()
                    && known.spec.subnets.len() < 4
                {
                    let mut next = known.spec.subnets[0].clone();
                    next.ipv4 = Some(format!("10.{}.{}.0/30", pool + 1, known.spec.subnets.len()));
                    known.spec.subnets.push(next);
                    self.server.put_pool(known);
                }
            }
            Op::Turn(ref turn) => {
                let Self { server, leaders, late, .. } = self;
                leaders.take(turn, server, |server, write| arrive(server, late, write));
            }
        }
    }

    /// Whether a block answers this request.
    fn has_block(&self, request: &BlockRequest) -> bool {
        let uid = request.metadata.uid.as_deref();
        self.server.blocks.values().any(|block| block.request_uid() == uid)
    }

    /// Always holds.
    fn check(&self) -> Result<(), TestCaseError> {
        let mut held: Vec<(u128, u128, &str)> = Vec::new();
        let mut of_request: BTreeMap<&str, &str> = BTreeMap::new();
        for (name, block) in self.server.blocks.iter().filter(|(_, block)| !block.is_withheld()) {
            let range = block.spec.to_subnet().unwrap().ipv4.unwrap();
            held.push((range.first().bits(), range.first().bits() + range.last_offset(), name));
            prop_assert!(name != "p-1", "a block of excluded addresses was carved");
            let uid = block.request_uid().unwrap();
            prop_assert_eq!(
                block.node(),
                self.askers.get(uid).map(String::as_str),
                "it belongs to whom it was for"
            );
            if self.late.contains(uid) {
                continue;
            }
            if let Some(other) = of_request.insert(uid, name) {
                prop_assert!(false, "one request has both {other} and {name}");
            }
            let request = self.server.requests.values().find(|request| request.uid().as_deref() == Some(uid));
            match request.map(BlockRequest::outcome) {
                Some(RequestOutcome::Failed { reason, .. }) => {
                    prop_assert!(false, "{name} exists for a request that was refused: {reason}");
                }
                Some(RequestOutcome::Block(answer)) => prop_assert_eq!(answer, name.as_str()),
                Some(RequestOutcome::Pending) | None => {}
            }
        }
        for request in self.server.requests.values().filter(|request| request.is_answered_by_block()) {
            let answered = matches!(request.outcome(), RequestOutcome::Block(_));
            prop_assert!(!answered, "{} got an answer that nobody reads", request.name_any());
        }
        held.sort_unstable();
        for pair in held.windows(2) {
            prop_assert!(pair[0].1 < pair[1].0, "{} and {} share addresses", pair[0].2, pair[1].2);
        }
        Ok(())
    }

    /// Holds in the end, with one leader and nothing in flight.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        let mut planner = Planner::default();
        // Long enough for two observations of every missing node, and the time between them.
        for _ in 0..4 {
            self.server.settle(&mut planner);
            self.check()?;
            self.server.now += 70_000;
        }
        self.server.settle(&mut planner);
        for request in self.server.requests.values() {
            let by_block = request.is_answered_by_block() && self.has_block(request);
            prop_assert!(
                by_block || request.outcome() != RequestOutcome::Pending,
                "{} waits for ever",
                request.name_any()
            );
        }
        for block in self.server.blocks.values().filter(|block| !block.is_withheld()) {
            prop_assert!(
                self.server.nodes.contains_key(block.node().unwrap()),
                "{} leaked",
                block.name_any()
            );
        }
        for (name, pool) in &self.server.pools {
            let mut blocks = self.server.blocks.values().filter(|block| !block.is_withheld());
            let used = blocks.any(|block| block.pool() == Some(name));
            prop_assert!(used || pool.metadata.deletion_timestamp.is_none(), "pool {name} never goes");
        }
        Ok(())
    }
}

/// A write arrives. One that another leader's write has overtaken is noted.
fn arrive(server: &mut Server, late: &mut BTreeSet<String>, write: &Write) -> Option<Outcome> {
    let has_block = |uid: &str| server.blocks.values().any(|block| block.request_uid() == Some(uid));
    if let Some(BlockWrite::Answer { request, status }) = write.of() {
        let named = status.address_block_name.as_ref();
        let mut blocks = server.blocks.iter().filter(|(_, block)| block.request_uid() == Some(&request.uid));
        let overtaken = blocks.any(|(name, _)| Some(name) != named);
        let outcome = server.write(write);
        if overtaken && outcome == Outcome::Done {
            late.insert(request.uid.clone());
        }
        return Some(outcome);
    }
    let Some(BlockWrite::Create { block }) = write.of() else { return Some(server.write(write)) };
    // No creation outlives the term in which its pool existed.
    let pool = server.pools.get(block.pool().unwrap());
    if pool.and_then(ResourceExt::uid) != Some(block.owner_references()[0].uid.clone()) {
        return None;
    }
    let uid = block.request_uid().unwrap();
    let request = server.requests.values().find(|request| request.uid().as_deref() == Some(uid));
    let pending = request.is_some_and(|request| request.outcome() == RequestOutcome::Pending);
    let overtaken = !pending || has_block(uid);
    let outcome = server.write(write);
    if overtaken && outcome == Outcome::Done {
        late.insert(uid.to_owned());
    }
    Some(outcome)
}

fn pick<'a>(names: impl ExactSizeIterator<Item = &'a String>, number: usize) -> Option<String> {
    let count = names.len();
    let mut names = names;
    if count == 0 { None } else { names.nth(number % count).cloned() }
}

proptest! {
    #[test]
    fn two_leaders_with_old_news_and_late_writes_give_no_address_twice_and_serve_every_request(
        ops in proptest::collection::vec(op(), 1..150)
    ) {
        let mut run = Run::new();
        for op in &ops {
            run.apply(op);
            run.check()?;
        }
        run.settle()?;
    }

    #[test]
    fn a_crash_between_any_two_writes_loses_nothing(
        asks in proptest::collection::vec(request(), 1..12),
        survive in proptest::collection::vec(0_usize..4, 1..20),
    ) {
        let mut run = Run::new();
        for ask in &asks {
            run.apply(ask);
        }
        // Each leader performs this many of its writes, and is then replaced by one that knows only the API.
        for writes in survive {
            let plan = Planner::default().plan(&run.server.world(), run.server.timestamp());
            for write in plan.iter().take(writes) {
                prop_assert_eq!(run.server.write(write), Outcome::Done);
            }
            run.check()?;
        }
        run.settle()?;
    }

    #[test]
    fn what_a_deposed_leader_writes_late_changes_nothing(
        asks in proptest::collection::vec(request(), 1..12),
        steps in 0_usize..3,
    ) {
        let mut run = Run::new();
        for ask in &asks {
            run.apply(ask);
        }
        let mut deposed = Planner::default();
        for _ in 0..steps {
            for write in deposed.plan(&run.server.world(), run.server.timestamp()) {
                run.server.write(&write);
            }
        }
        // It is deposed with everything planned and nothing written; its successor finishes the work.
        let late = deposed.plan(&run.server.world(), run.server.timestamp());
        let mut successor = Planner::default();
        run.server.settle(&mut successor);
        let before = run.server.log.len();
        for write in late {
            prop_assert_ne!(run.server.write(&write), Outcome::Done, "{:?}", write);
        }
        prop_assert_eq!(run.server.log.len(), before);
    }
}
