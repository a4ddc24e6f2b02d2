//! Slices and shared ranges of one network together: nodes that hand out of their slices, nodes that take from ranges of several
//! sizes by what they last heard, and a controller that cuts and uncuts, in any order. No address has two holders.
//!
//! A node takes its slice as agents do: it hears of it, its ledger says `owned`, a live look shows that the slice is still given,
//! and only then it hands anything out. Its records are written behind that, and the pool may go at any moment.

use proptest::prelude::*;
use serde_json::json;
use tenure_api::whereabouts::IPPool;
use tenure_ipam::assign::Reservation;

use super::*;
use crate::config::{Arguments, Config};
use crate::ledger::memory::Memory;
use crate::ledger::{Answer, Mark, Network, Request, Settled, Spread, Want, Who, adopt, owned_object};

const NODES: usize = 3;
/// Of shared ranges: inside, around and equal to what may be cut.
const RANGES: [&str; 4] = ["10.0.0.0/28", "10.0.0.0/29", "10.0.0.8/30", "10.0.0.0/27"];
/// What may be cut.
const CUTS: [(&str, &str); 2] = [("10.0.0.0/28", "/30"), ("10.0.0.0/29", "/30")];

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A node wants an address of a shared range.
    Ask(usize, usize),
    /// It does what waits by what it knows.
    Work(usize),
    /// It hears what is new.
    Hear(usize),
    /// It hears of slices, and takes or loses one; step by step, as it reads and writes.
    Slice(usize),
    /// It hands out of its slice.
    Hand(usize),
    /// Pods go, of shared ranges or of slices.
    Go(usize),
    /// What people ask for.
    Cut(Option<usize>),
    /// The controller looks, and does the first so many writes of what it plans.
    Look,
    Write,
}

fn step() -> impl Strategy<Value = Step> {
    let node = || 0..NODES;
    prop_oneof![
        5 => (node(), 0..RANGES.len()).prop_map(|(node, range)| Step::Ask(node, range)),
        8 => node().prop_map(Step::Work),
        2 => node().prop_map(Step::Hear),
        5 => node().prop_map(Step::Slice),
        5 => node().prop_map(Step::Hand),
        2 => (0_usize..40).prop_map(Step::Go),
        3 => prop::option::weighted(0.6, 0..CUTS.len()).prop_map(Step::Cut),
        6 => Just(Step::Look),
        6 => Just(Step::Write),
    ]
}

/// How far a node is with a slice.
#[derive(Clone, Debug, Default, PartialEq)]
enum Slice {
    #[default]
    None,
    /// It has heard of it.
    Heard(Cidr),
    /// It has said that it is its.
    Said(Cidr),
    /// It hands out of it, but not what others had.
    Taken(Cidr, Vec<Address>),
}

/// How nodes take slices: as they should, or so that it goes wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Manner {
    #[default]
    Careful,
    /// They do not say that a slice is theirs before they hand out of it.
    Unsaid,
    /// They do not look whether it is still given after they have said so.
    Unlooked,
}

#[derive(Default)]
struct Node {
    known: Option<Network>,
    waiting: Vec<Request>,
    slice: Slice,
    /// What it has handed out of slices.
    held: BTreeMap<Address, String>,
}

struct World {
    memory: Memory,
    pools: Vec<NodeSlicePool>,
    cut: Option<usize>,
    nodes: Vec<Node>,
    plan: Vec<SliceWrite>,
    guards: Vec<IPPool>,
    pods: usize,
    /// Who was told which address of a shared range.
    told: BTreeMap<String, (usize, usize, Address)>,
    manner: Manner,
}

fn config(range: &str) -> Config {
    let ipam = json!({"type": "whereabouts", "range": range, "enable_l3": true});
    Config::load(&json!({"name": "n", "type": "macvlan", "ipam": ipam}), None, &Arguments::default()).unwrap()
}

fn name_of(node: usize) -> String {
    format!("n{node}")
}

fn who(pod: &str) -> Who {
    Who { id: pod.to_owned(), podref: format!("ns/{pod}"), ifname: "net1".into() }
}

impl World {
    fn new(manner: Manner) -> Self {
        let nodes = (0..NODES).map(|_| Node::default()).collect();
        let (memory, pools, plan, guards) = (Memory::default(), Vec::new(), Vec::new(), Vec::new());
        Self { memory, pools, cut: None, nodes, plan, guards, pods: 0, told: BTreeMap::new(), manner }
    }

    fn shared(&self) -> (Vec<HeldSpan>, Vec<SharedPool>, Vec<PoolId>) {
        let is_node = |name: &str| name.starts_with('n');
        let (held, shared) = see(self.memory.pools(), &BTreeSet::new(), is_node);
        let owned = self.memory.pools().filter(|pool| State::of(pool) == State::Owned);
        let owned = owned.filter_map(|pool| identify(pool, &BTreeSet::new(), &is_node)).collect();
        (held, shared, owned)
    }

    /// Plans with what is there; its writes are done later, when that may be old.
    fn look(&mut self) {
        let attachments: Vec<AttachmentDefinition> =
            self.cut.map(|cut| definition(CUTS[cut])).into_iter().collect();
        let nodes = (0..NODES).map(name_of).collect();
        let (held, shared, owned) = self.shared();
        let plan = plan(&Inputs {
            namespace: "x",
            attachments: &attachments,
            flat: None,
            nodes: &nodes,
            pools: &self.pools,
            held: &held,
            shared: &shared,
            owned: &owned,
            floating: &BTreeMap::new(),
            now: Timestamp::from_millis(7),
        });
        self.plan = if plan.guards.is_empty() { plan.writes } else { Vec::new() };
        self.guards = plan.guards;
    }

    /// The first write of the plan, as the controller does it: with a live look where it says so.
    fn write(&mut self) {
        if let Some(guard) = self.guards.pop() {
            if self.memory.pool(guard.metadata.name.as_deref().unwrap()).is_none() {
                self.memory.put_pool(guard);
            }
            return;
        }
        if self.plan.is_empty() {
            return;
        }
        let (_, shared, owned) = self.shared();
        match self.plan.remove(0) {
            SliceWrite::Create(pool) | SliceWrite::Replace(pool) => {
                let known =
                    self.pools.iter().any(|known| given(known) && known.spec.range == pool.spec.range);
                let whole = PoolId::shared("", pool.spec.range.parse().unwrap());
                if known || !given(&pool) || open_beside(&whole, &shared).next().is_none() {
                    self.pools = vec![*pool];
                }
            }
            SliceWrite::Delete { .. } => self.pools.clear(),
            SliceWrite::Seal { name } => self.mark(&name, State::Sliced),
            SliceWrite::Unseal { name } => {
                let object = shared.iter().find(|shared| shared.name == name).unwrap();
                if !is_cut(&object.id, &self.pools, &owned) {
                    self.mark(&name, State::Unique);
                }
            }
        }
    }

    fn mark(&mut self, name: &str, state: State) {
        let pool = self.memory.pool(name).unwrap();
        let marked = Mark::on(pool, state).apply(pool).unwrap();
        self.memory.put_pool(marked);
    }

    fn ask(&mut self, node: usize, range: usize) {
        self.pods += 1;
        let request =
            Request::hold(who(&format!("p{}-{range}", self.pods)), Want::of(&config(RANGES[range]), &[]));
        self.nodes[node].waiting.push(request);
    }

    fn hear(&mut self, node: usize) {
        self.nodes[node].known = Some(self.memory.read("", false));
    }

    fn work(&mut self, node: usize) {
        if self.nodes[node].known.is_none() {
            self.hear(node);
        }
        let requests = std::mem::take(&mut self.nodes[node].waiting);
        let known = self.nodes[node].known.as_ref().unwrap();
        let mut plan =
            known.plan(requests.clone(), &Spread::of(&name_of(node)), Timestamp::from_millis(1_000));
        let written = self.memory.carry_out(&mut plan, usize::MAX);
        for (request, settled) in requests.iter().zip(plan.settle(|name| written.outcome(name))) {
            match settled {
                Settled::Again(request) => self.nodes[node].waiting.push(request),
                Settled::Done(Answer::Held(addresses)) => {
                    let pod = request.who.id.clone();
                    let range = pod.rsplit_once('-').unwrap().1.parse().unwrap();
                    self.told.insert(pod, (node, range, addresses[0]));
                }
                Settled::Done(_) => {}
            }
        }
        if written.look_again {
            self.hear(node);
        }
    }

    fn slice(&mut self, node: usize) {
        let name = name_of(node);
        let now = self.pools.first().and_then(|pool| slice_of("x", Some(pool), &name).ok());
        let unlooked = self.manner == Manner::Unlooked;
        let said = matches!(self.nodes[node].slice, Slice::Said(_));
        match self.nodes[node].slice.clone() {
            Slice::None => {
                if let Some(cidr) = now {
                    self.nodes[node].slice = Slice::Heard(cidr);
                }
            }
            // By what it heard, which may be old.
            Slice::Heard(cidr) => {
                self.nodes[node].slice = Slice::Said(cidr);
                if self.manner != Manner::Unsaid {
                    self.record(node);
                }
            }
            Slice::Said(cidr) | Slice::Taken(cidr, _) if now != Some(cidr) && !(unlooked && said) => {
                self.nodes[node].slice = Slice::None;
                self.record(node);
            }
            Slice::Said(cidr) | Slice::Taken(cidr, _) => {
                let id = PoolId::of_node("", &name, cidr);
                let others = self
                    .memory
                    .pools()
                    .filter(|pool| PoolId::may_hold("", pool.metadata.name.as_deref().unwrap(), &cidr));
                self.nodes[node].slice = Slice::Taken(cidr, adopt(&id, None, others).reserved);
            }
        }
    }

    /// Writes the node's ledgers: what it holds, and whether it hands out of its slice.
    fn record(&mut self, node: usize) {
        let name = name_of(node);
        let own = match &self.nodes[node].slice {
            Slice::None | Slice::Heard(_) => None,
            Slice::Said(cidr) | Slice::Taken(cidr, _) => Some(*cidr),
        };
        let is_mine = |pool: &&IPPool| {
            pool.metadata.name.as_deref().is_some_and(|it| it.starts_with(&format!("{name}-")))
        };
        let known: Vec<Cidr> =
            self.memory.pools().filter(is_mine).map(|pool| pool.spec.cidr().unwrap()).collect();
        for cidr in known.into_iter().chain(own).collect::<BTreeSet<_>>() {
            let held: Vec<Reservation> = self.nodes[node]
                .held
                .iter()
                .filter(|(address, _)| cidr.contains(**address))
                .map(|(address, pod)| Reservation {
                    id: pod.clone(),
                    podref: format!("ns/{pod}"),
                    ifname: "net1".into(),
                    address: *address,
                })
                .collect();
            let state = if own == Some(cidr) { State::Owned } else { State::Unique };
            let id = PoolId::of_node("", &name, cidr);
            self.memory.put_pool(owned_object(&id, state, &held, None).unwrap());
        }
    }

    fn hand(&mut self, node: usize) {
        let Slice::Taken(cidr, kept_back) = &self.nodes[node].slice else { return };
        let free = (0..cidr.size()).filter_map(|at| cidr.nth(at).ok());
        let held = &self.nodes[node].held;
        let found =
            free.into_iter().find(|address| !kept_back.contains(address) && !held.contains_key(address));
        if let Some(address) = found {
            self.pods += 1;
            self.nodes[node].held.insert(address, format!("s{}", self.pods));
        }
    }

    fn go(&mut self, which: usize) {
        if let Some((pod, (_, range, _))) = self.told.iter().nth(which).map(|(pod, it)| (pod.clone(), *it)) {
            self.told.remove(&pod);
            let request = Request::release(who(&pod), &config(RANGES[range]));
            self.memory.serve("", vec![request], Timestamp::from_millis(1_000));
        } else {
            let node = which % NODES;
            let first = self.nodes[node].held.keys().next().copied();
            if let Some(first) = first {
                self.nodes[node].held.remove(&first);
            }
            self.record(node);
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Ask(node, range) => self.ask(node, range),
            Step::Work(node) => self.work(node),
            Step::Hear(node) => self.hear(node),
            Step::Slice(node) => self.slice(node),
            Step::Hand(node) => self.hand(node),
            Step::Go(which) => self.go(which),
            Step::Cut(cut) => self.cut = cut,
            Step::Look => self.look(),
            Step::Write => self.write(),
        }
    }

    /// What people ask for is done, as far as it can be.
    fn settle(&mut self, cut: Option<usize>) {
        self.take(Step::Cut(cut));
        for _ in 0..8 {
            self.take(Step::Look);
            while !self.plan.is_empty() || !self.guards.is_empty() {
                self.take(Step::Write);
            }
        }
    }

    /// An address that two have.
    fn twice(&self) -> Option<String> {
        let mut holders: BTreeMap<Address, String> = BTreeMap::new();
        let told = self.told.iter().map(|(pod, (_, _, address))| (*address, pod.clone()));
        let sliced = self.nodes.iter().flat_map(|node| node.held.clone());
        told.chain(sliced).find_map(|(address, pod)| {
            let other = holders.insert(address, pod.clone())?;
            Some(format!("{address} is both {pod}'s and {other}'s"))
        })
    }
}

/// A pool goes at the worst moment: just after the node has taken its slice, or just before.
fn play(manner: Manner, taken_before: bool) -> World {
    let mut world = World::new(manner);
    world.settle(Some(0));
    world.slice(0);
    assert!(matches!(world.nodes[0].slice, Slice::Heard(_)));
    if taken_before {
        world.slice(0);
        world.slice(0);
        world.hand(0);
        assert_eq!(world.nodes[0].held.len(), 1);
        world.settle(None);
    } else {
        world.settle(None);
        // Of what the node says from now on, the other one has not heard.
        world.hear(1);
        world.slice(0);
        world.slice(0);
        world.hand(0);
    }
    for _ in 0..8 {
        world.ask(1, 0);
        world.work(1);
        world.work(1);
    }
    world
}

#[test]
fn a_pool_that_goes_just_after_a_slice_was_taken_leaves_the_range_closed_until_the_node_has_let_go() {
    let mut world = play(Manner::Careful, true);
    assert_eq!(world.told.len(), 0, "it is closed");
    world.slice(0);
    world.settle(None);
    for _ in 0..3 {
        world.ask(1, 0);
        world.hear(1);
        world.work(1);
        world.work(1);
    }
    assert!(!world.told.is_empty(), "it is open");
    assert_eq!(world.twice(), None);
    let careless = play(Manner::Unsaid, true).twice();
    assert!(careless.is_some(), "a play in which nothing can go wrong shows nothing");
}

#[test]
fn a_pool_that_goes_just_before_a_slice_is_taken_gives_the_node_nothing() {
    let world = play(Manner::Careful, false);
    assert_eq!(world.nodes[0].held.len(), 0);
    assert_eq!(world.twice(), None);
    let careless = play(Manner::Unlooked, false).twice();
    assert!(careless.is_some(), "a play in which nothing can go wrong shows nothing");
}

fn given(pool: &NodeSlicePool) -> bool {
    let slices = pool.status.iter().flat_map(|status| &status.allocations);
    slices.into_iter().any(|slice| !slice.node_name.is_empty())
}

fn definition((range, size): (&str, &str)) -> AttachmentDefinition {
    let ipam = json!({"type": "whereabouts", "range": range, "node_slice_size": size, "enable_l3": true});
    let config = json!({"cniVersion": "1.0.0", "name": "net", "type": "macvlan", "ipam": ipam}).to_string();
    AttachmentDefinition {
        namespace: "x".into(),
        name: "net".into(),
        config,
        ..AttachmentDefinition::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_address_has_two_holders_whatever_is_cut_and_uncut_beside_ranges_that_overlap(
        steps in prop::collection::vec(step(), 1..150)
    ) {
        let mut world = World::new(Manner::Careful);
        for step in steps {
            world.take(step);
            prop_assert_eq!(world.twice(), None);
        }
    }
}
