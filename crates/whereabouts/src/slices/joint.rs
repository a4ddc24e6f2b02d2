//! Slices and shared ranges of one network together: nodes that assign from their slices, nodes that take from ranges
//! of several sizes by what they last heard, and a controller that divides ranges and merges them again, in any
//! order. People request divisions that overlap each other and what others use, and write unreadable definitions. No
//! address has two holders, and no definition keeps others from a range that they use.
//!
//! A node takes its slice like an agent: it is told of it, perhaps late, and perhaps by a leader of long ago; its ledger says `owned`;
//! a live look shows that the slice is still assigned; and only then it assigns addresses. The look is at the pool's metadata, and at
//! the pool only if that proves nothing. Its records are written later, and the pool may be deleted at any moment.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;
use serde_json::json;
use tenure_api::whereabouts::{IPPool, Reservation};

use super::*;
use crate::config::{Arguments, Config};
use crate::ledger::memory::Memory;
use crate::ledger::{Answer, Mark, Network, Request, Settled, Spread, Want, Who, adopt, owned_object};

mod steps;

use steps::{CUTS, NODES, RANGES, Step, step};

/// How far a node is with a slice.
#[derive(Clone, Debug, Default, PartialEq)]
enum Slice {
    #[default]
    None,
    /// It was told of it.
    Heard(Given, Cidr),
    /// It has marked it as its own.
    Said(Given, Cidr),
    /// It assigns from it, but not what others held.
    Taken(Cidr, Vec<Address>),
}

/// How nodes take slices: correctly, or with a bug.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Manner {
    #[default]
    Careful,
    /// They do not mark a slice as their own before they assign from it.
    Unsaid,
    /// They do not check that it is still assigned after they have marked it.
    Unlooked,
    /// They take the same pool for one that has taken nothing from anybody.
    Credulous,
}

#[derive(Default)]
struct Node {
    known: Option<Network>,
    waiting: Vec<Request>,
    /// By divided range.
    slices: [Slice; CUTS.len()],
    /// What it was told last of each.
    told: [Option<(Given, Cidr)>; CUTS.len()],
    /// What it has assigned from slices.
    held: BTreeMap<Address, String>,
}

struct World {
    memory: Memory,
    pools: BTreeMap<String, NodeSlicePool>,
    /// Which divisions are requested, and since when.
    cuts: BTreeMap<usize, u64>,
    garbled: bool,
    time: u64,
    nodes: Vec<Node>,
    plan: Vec<SliceWrite>,
    guards: Vec<IPPool>,
    pods: usize,
    /// Who was given which address of a shared range.
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
    let (podref, uid) = (format!("ns/{pod}"), format!("uid-{pod}"));
    Who { id: pod.to_owned(), podref, uid, ifname: "net1".into() }
}

impl World {
    fn new(manner: Manner) -> Self {
        let nodes = (0..NODES).map(|_| Node::default()).collect();
        Self {
            memory: Memory::default(),
            pools: BTreeMap::new(),
            cuts: BTreeMap::new(),
            garbled: false,
            time: 0,
            nodes,
            plan: Vec::new(),
            guards: Vec::new(),
            pods: 0,
            told: BTreeMap::new(),
            manner,
        }
    }

    fn shared(&self) -> (Vec<HeldSpan>, Vec<SharedPool>, Vec<PoolId>) {
        let is_node = |name: &str| name.starts_with('n');
        let (held, shared) = see(self.memory.pools(), &BTreeSet::new(), is_node);
        let owned = self.memory.pools().filter(|pool| State::of(pool) == State::Owned);
        let owned = owned.filter_map(|pool| identify(pool, &BTreeSet::new(), &is_node)).collect();
        (held, shared, owned)
    }

    /// Plans with the current state; its writes are performed later, when that may be outdated.
    fn look(&mut self) {
        let mut attachments: Vec<AttachmentDefinition> =
            self.cuts.iter().map(|(cut, since)| definition(*cut, *since)).collect();
        if self.garbled {
            attachments.push(AttachmentDefinition { config: "{".into(), ..definition(0, 0) });
        }
        let pools: Vec<NodeSlicePool> = self.pools.values().cloned().collect();
        let nodes = (0..NODES).map(name_of).collect();
        let (held, shared, owned) = self.shared();
        let plan = plan(&Inputs {
            namespace: "x",
            attachments: &attachments,
            flat: None,
            nodes: &nodes,
            pools: &pools,
            held: &held,
            shared: &shared,
            owned: &owned,
            floating: &BTreeMap::new(),
            now: Timestamp::from_millis(self.time),
        });
        if let Some(trampled) = self.tramples(&plan, &shared) {
            panic!("{trampled}");
        }
        self.plan = if plan.guards.is_empty() { plan.writes } else { Vec::new() };
        self.guards = plan.guards;
    }

    /// The first write of the plan, performed like the controller does: with a live read if it says so.
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
                let name = pool.metadata.name.clone().unwrap();
                let known = self.pools.get(&name);
                let known = known.is_some_and(|known| given(known) && known.spec.range == pool.spec.range);
                let whole = PoolId::shared("", pool.spec.range.parse().unwrap());
                if known || !given(&pool) || open_beside(&whole, &shared).next().is_none() {
                    let mut pool = *pool;
                    let made =
                        self.pools.get(&name).and_then(|known| known.metadata.creation_timestamp.clone());
                    let now = || Time(Timestamp::from_millis(self.time).to_jiff());
                    pool.metadata.creation_timestamp = Some(made.unwrap_or_else(now));
                    let before = self.pools.get(&name).map(|known| &known.metadata);
                    let generation = before.and_then(|before| before.generation).unwrap_or(0) + 1;
                    let uid = before.and_then(|before| before.uid.clone());
                    pool.metadata.generation = Some(generation);
                    pool.metadata.uid = Some(uid.unwrap_or_else(|| format!("uid-{}", self.time)));
                    self.pools.insert(name, pool);
                }
            }
            SliceWrite::Delete { name, .. } => drop(self.pools.remove(&name)),
            SliceWrite::Seal { name } => self.mark(&name, State::Sliced),
            SliceWrite::Unseal { name } => {
                let object = shared.iter().find(|shared| shared.name == name).unwrap();
                if !is_sliced(&object.id, self.pools.values(), &owned) {
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

    /// Somebody tells a node what is given now. The node may act on that much later.
    fn tell(&mut self, node: usize, cut: usize) {
        let pool = self.pools.get(&format!("net{cut}"));
        let slice = pool.and_then(|pool| slice_of("x", Some(pool), &name_of(node)).ok());
        self.nodes[node].told[cut] = pool.map(Given::of).zip(slice);
    }

    /// Whether a live look shows that the slice is the node's.
    fn is_given(&self, node: usize, cut: usize, (given, cidr): (&Given, Cidr)) -> bool {
        let Some(pool) = self.pools.get(&format!("net{cut}")) else { return false };
        let is_same = pool.metadata.uid.as_ref() == Some(&given.uid);
        let seems = given.stands(&pool.metadata) || self.manner == Manner::Credulous && is_same;
        seems || is_same && slice_of("x", Some(pool), &name_of(node)) == Ok(cidr)
    }

    fn slice(&mut self, node: usize, cut: usize) {
        let name = name_of(node);
        let told = self.nodes[node].told[cut].clone();
        match self.nodes[node].slices[cut].clone() {
            Slice::None => {
                if let Some((given, cidr)) = told {
                    self.nodes[node].slices[cut] = Slice::Heard(given, cidr);
                }
            }
            // By what it was told, which may be outdated.
            Slice::Heard(given, cidr) => {
                self.nodes[node].slices[cut] = Slice::Said(given, cidr);
                if self.manner != Manner::Unsaid {
                    self.record(node);
                }
            }
            Slice::Said(given, cidr)
                if self.manner != Manner::Unlooked && !self.is_given(node, cut, (&given, cidr)) =>
            {
                self.nodes[node].slices[cut] = Slice::None;
                self.record(node);
            }
            Slice::Taken(cidr, _) if told.map(|(_, cidr)| cidr) != Some(cidr) => {
                self.nodes[node].slices[cut] = Slice::None;
                self.record(node);
            }
            Slice::Said(_, cidr) | Slice::Taken(cidr, _) => {
                let id = PoolId::of_node("", &name, cidr);
                let others = self
                    .memory
                    .pools()
                    .filter(|pool| PoolId::may_hold("", pool.metadata.name.as_deref().unwrap(), &cidr));
                self.nodes[node].slices[cut] = Slice::Taken(cidr, adopt(&id, None, others).reserved);
            }
        }
    }

    /// Writes the node's ledgers: what it holds, and whether it assigns from its slice.
    fn record(&mut self, node: usize) {
        let name = name_of(node);
        let own: Vec<Cidr> = self.nodes[node]
            .slices
            .iter()
            .filter_map(|slice| match slice {
                Slice::None | Slice::Heard(..) => None,
                Slice::Said(_, cidr) | Slice::Taken(cidr, _) => Some(*cidr),
            })
            .collect();
        let is_mine = |pool: &&IPPool| {
            pool.metadata.name.as_deref().is_some_and(|it| it.starts_with(&format!("{name}-")))
        };
        let known: Vec<Cidr> =
            self.memory.pools().filter(is_mine).map(|pool| pool.spec.cidr().unwrap()).collect();
        for cidr in known.into_iter().chain(own.clone()).collect::<BTreeSet<_>>() {
            let held: Vec<Reservation> = self.nodes[node]
                .held
                .iter()
                .filter(|(address, _)| cidr.contains(**address))
                .map(|(address, pod)| Reservation {
                    id: pod.clone(),
                    podref: format!("ns/{pod}"),
                    uid: String::new(),
                    ifname: "net1".into(),
                    address: *address,
                })
                .collect();
            let state = if own.contains(&cidr) { State::Owned } else { State::Unique };
            let id = PoolId::of_node("", &name, cidr);
            self.memory.put_pool(owned_object(&id, state, &held, None).unwrap());
        }
    }

    fn hand(&mut self, node: usize, cut: usize) {
        let Slice::Taken(cidr, kept_back) = &self.nodes[node].slices[cut] else { return };
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
        self.time += 1;
        match step {
            Step::Ask(node, range) => self.ask(node, range),
            Step::Work(node) => self.work(node),
            Step::Hear(node) => self.hear(node),
            Step::Tell(node, cut) => self.tell(node, cut),
            Step::Slice(node, cut) => self.slice(node, cut),
            Step::Hand(node, cut) => self.hand(node, cut),
            Step::Go(which) => self.go(which),
            Step::Cut(cut, true) => {
                self.cuts.entry(cut).or_insert(self.time);
            }
            Step::Cut(cut, false) => drop(self.cuts.remove(&cut)),
            Step::Garble(garbled) => self.garbled = garbled,
            Step::Look => self.look(),
            Step::Write => self.write(),
        }
    }

    /// Requests are fulfilled, as far as possible.
    fn settle(&mut self, cut: Option<usize>) {
        self.cuts = cut.map(|cut| (cut, self.time)).into_iter().collect();
        for _ in 0..8 {
            self.take(Step::Look);
            while !self.plan.is_empty() || !self.guards.is_empty() {
                self.take(Step::Write);
            }
        }
    }

    /// A range in use that a plan closes for another definition that has assigned nothing yet.
    fn tramples(&self, plan: &SlicePlan, shared: &[SharedPool]) -> Option<String> {
        let whole: Vec<PoolId> =
            CUTS.iter().map(|(range, _)| PoolId::shared("", range.parse().unwrap())).collect();
        let sealed = plan.writes.iter().filter_map(|write| match write {
            SliceWrite::Seal { name } => shared.iter().find(|shared| shared.name == *name && shared.used > 0),
            _ => None,
        });
        let mut of_others = sealed.filter(|shared| !whole.contains(&shared.id));
        let found = of_others.find(|shared| !is_sliced(&shared.id, self.pools.values(), []))?;
        Some(format!("{} is in use and is closed for a definition that has nothing yet", found.name))
    }

    /// An address with two holders.
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

/// A pool is deleted at the worst moment: just after the node has taken its slice, or just before.
fn play(manner: Manner, taken_before: bool) -> World {
    let mut world = World::new(manner);
    world.settle(Some(0));
    world.tell(0, 0);
    world.slice(0, 0);
    assert!(matches!(world.nodes[0].slices[0], Slice::Heard(..)));
    if taken_before {
        world.slice(0, 0);
        world.slice(0, 0);
        world.hand(0, 0);
        assert_eq!(world.nodes[0].held.len(), 1);
        world.settle(None);
    } else {
        world.settle(None);
        // The other one has not heard what the node says from now on.
        world.hear(1);
        world.slice(0, 0);
        world.slice(0, 0);
        world.hand(0, 0);
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
    world.tell(0, 0);
    world.slice(0, 0);
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

fn definition(cut: usize, since: u64) -> AttachmentDefinition {
    let (range, size) = CUTS[cut];
    let ipam = json!({"type": "whereabouts", "range": range, "node_slice_size": size, "enable_l3": true});
    let config = json!({"cniVersion": "1.0.0", "name": format!("net{cut}"), "type": "macvlan", "ipam": ipam});
    AttachmentDefinition {
        namespace: "x".into(),
        name: format!("net{cut}"),
        uid: format!("uid{cut}"),
        created: Timestamp::from_millis(since),
        config: config.to_string(),
        ..AttachmentDefinition::default()
    }
}

fn run(steps: Vec<Step>) {
    let mut world = World::new(Manner::Careful);
    for step in steps {
        world.take(step);
        assert_eq!(world.twice(), None);
    }
}

/// A slice is taken away and given to another node, before the first one acts on what it was told.
fn late(manner: Manner) -> World {
    let mut world = World::new(manner);
    world.settle(Some(0));
    world.tell(0, 0);
    let pool = world.pools.get_mut("net0").unwrap();
    let first = pool.slice_of(&name_of(0)).unwrap().to_owned();
    let slices = &mut pool.status.as_mut().unwrap().allocations;
    for slice in slices {
        slice.node_name = if slice.slice_range == first { name_of(1) } else { String::new() };
    }
    let metadata = &mut pool.metadata;
    let taken = given::taken_after(Some(metadata), true, Timestamp::from_millis(1));
    metadata.annotations.as_mut().unwrap().insert(TAKEN.to_owned(), taken);
    metadata.generation = metadata.generation.map(|generation| generation + 1);
    world.tell(1, 0);
    for node in [1, 0] {
        (0..3).for_each(|_| world.slice(node, 0));
        world.hand(node, 0);
    }
    world
}

#[test]
fn a_node_that_acts_late_on_what_it_was_told_takes_nothing_that_another_one_has() {
    let world = late(Manner::Careful);
    assert_eq!((world.nodes[0].held.len(), world.nodes[1].held.len()), (0, 1));
    let credulous = late(Manner::Credulous).twice();
    assert!(credulous.is_some(), "a play in which nothing can go wrong shows nothing");
}

#[test]
fn the_checker_finds_a_definition_that_closes_what_others_use() {
    let steps = prop::collection::vec(step(), 1..150);
    crate::planted::must_be_found(crate::planted::Bug::SealsWhatIsInUse, &steps, run);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_address_has_two_holders_whatever_is_cut_and_uncut_beside_ranges_that_overlap(
        steps in prop::collection::vec(step(), 1..150)
    ) {
        run(steps);
    }
}
