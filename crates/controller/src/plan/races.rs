//! Pools that grow into each other, nodes that disappear and return while their pods run, and two leaders whose reads
//! and writes are separate steps. Whatever the order, no address is in two blocks, and no block is deleted under a
//! container or an agent.
//!
//! Every run replays from its seed. Each bug that was found here once can be planted again ([`Planted`]), and a check
//! that does not find it within a bounded number of steps fails the build.

mod flight;
mod machines;

use std::collections::BTreeMap;

use kube::ResourceExt;
use tenure_handles::{Entropy, SeededEntropy};
use tenure_ipam::{Address, Cidr};

use super::model::{Server, tell};
use super::{Planner, Planted};
use crate::world::World;
use flight::{Delivered, Flight};
use machines::Machine;

const NODES: [&str; 3] = ["n1", "n2", "n3"];
/// `default` is also that of claims.
const POOLS: [&str; 3] = ["a", "b", "default"];
/// The subnets of pools, and those they grow into.
const NETWORKS: [&str; 4] = ["10.0.0.0/30", "10.0.0.4/30", "10.0.1.0/30", "10.0.0.0/29"];
/// By then a living agent has heard of everything, and a kubelet has ended the containers of deleted pods.
const HEARD_WITHIN: u64 = 30_000;
/// How far the clocks of the two leaders are from the server's.
const SKEW: [i64; 2] = [-20_000, 20_000];

/// A process that leads, or believes so.
struct Leader {
    world: World,
    planner: Planner,
    heard: usize,
    flights: Vec<Flight>,
    /// A list of pools that it keeps: any that contains the block's own pool will do.
    listed: Option<Vec<tenure_api::coil::AddressPool>>,
    skew: i64,
}

pub(super) struct Run {
    seed: u64,
    server: Server,
    leaders: Vec<Leader>,
    machines: BTreeMap<&'static str, Machine>,
    dice: SeededEntropy,
    planted: Option<Planted>,
    number: u64,
    /// Whether this run is about machines more than about pools.
    of_machines: bool,
}

impl Run {
    fn new(seed: u64, planted: Option<Planted>) -> Self {
        let mut server = Server::default();
        let machines = NODES.map(|node| {
            server.node(node, None);
            (node, Machine::new(node))
        });
        let leader = |skew| {
            let (world, heard) = (server.world(), server.log.len());
            let planner = planner_of(seed, planted);
            Leader { world, planner, heard, flights: Vec::new(), listed: None, skew }
        };
        let leaders = SKEW.map(leader).into();
        let dice = SeededEntropy::new(seed);
        let of_machines = seed % 2 == 1;
        let mut run =
            Self { seed, server, leaders, machines: machines.into(), dice, planted, number: 0, of_machines };
        for pool in POOLS.into_iter().filter(|_| of_machines) {
            run.shape_pool(pool);
        }
        run
    }

    fn below(&self, bound: usize) -> usize {
        usize::try_from(self.dice.next_u64() % bound.max(1) as u64).unwrap_or_default()
    }

    fn percent(&self, chance: usize) -> bool {
        self.below(100) < chance
    }

    /// Something happens. Returns what is wrong afterwards.
    fn step(&mut self) -> Result<(), String> {
        let (node, pool) = (NODES[self.below(NODES.len())], POOLS[self.below(POOLS.len())]);
        // Half of the runs are about pools, the others about machines. Each event happens up to this number of a
        // hundred:
        let (of_pools, of_machines) = ([9, 10, 27, 30, 33, 37, 41, 57, 71], [1, 2, 8, 9, 10, 40, 51, 65, 79]);
        let shares: [usize; 9] = if self.of_machines { of_machines } else { of_pools };
        let chance = self.below(100);
        match shares.iter().position(|share| chance < *share) {
            Some(0) => self.shape_pool(pool),
            Some(1) => self.server.delete_pool(pool),
            Some(2) => self.ask(node, pool),
            Some(3) => self.claim(),
            Some(4) => self.return_block(),
            Some(5) => self.live(node),
            Some(6) => self.pass(),
            Some(7) => self.hear(),
            Some(8) => self.plan(),
            _ if chance == 99 => self.crash(),
            _ => {
                for _ in 0..=self.below(8) {
                    self.deliver()?;
                }
            }
        }
        self.check()
    }

    /// A pool is created or grows, maybe into another one, often all within one second.
    fn shape_pool(&mut self, name: &str) {
        let network = NETWORKS[self.below(NETWORKS.len())];
        let bits = if name == "b" { 2 } else { 1 };
        let Some(mut known) = self.server.pools.get(name).cloned() else {
            return self.server.pool(name, bits, &[network], &[]);
        };
        let added: Cidr = network.parse().unwrap();
        let has = |subnet: &tenure_api::coil::SubnetSet| {
            let own = subnet.ipv4.as_deref().and_then(|own| own.parse::<Cidr>().ok());
            own.is_none_or(|own| own.overlaps(&added))
        };
        if !known.spec.subnets.iter().any(has) {
            let mut next = known.spec.subnets[0].clone();
            next.ipv4 = Some(network.to_owned());
            known.spec.subnets.push(next);
            self.server.put_pool(known);
        }
    }

    fn ask(&mut self, node: &str, pool: &str) {
        if self.server.nodes.contains_key(node) {
            self.number += 1;
            let by_block = self.number.is_multiple_of(2);
            self.server.request_answered(&format!("r{}", self.number), node, pool, by_block);
        }
    }

    fn claim(&mut self) {
        let name = ["x", "y", "z"][self.below(3)];
        if self.server.claims.contains_key(name) {
            self.server.delete_claim(name);
        } else {
            self.server.claim(name, None);
        }
    }

    /// A node returns a block without holds.
    fn return_block(&mut self) {
        let of_nodes = self.server.blocks.values().filter(|block| block.node().is_some());
        let names: Vec<String> = of_nodes.map(ResourceExt::name_any).collect();
        let Some(name) = names.get(self.below(names.len())) else { return };
        let networks = networks(&self.server, name);
        let used = self.machines.values().any(|machine| machine.uses(&networks));
        if !used {
            let uid = self.server.blocks[name].uid().unwrap_or_default();
            self.machines.values_mut().for_each(|machine| machine.forget(&uid));
            self.server.return_block(name);
        }
    }

    /// Time passes. Everybody who lives hears of everything within [`HEARD_WITHIN`].
    fn pass(&mut self) {
        let millis = if self.percent(40) { 1 + self.below(900) as u64 } else { self.below(40_000) as u64 };
        let end = self.server.now + millis;
        while self.server.now < end {
            self.server.now = (self.server.now + 5_000).min(end);
            let server = &mut self.server;
            self.machines.values_mut().for_each(|machine| machine.catch_up(server));
        }
    }

    fn hear(&mut self) {
        let (number, changes) = (self.below(2), 1 + self.below(40));
        let leader = &mut self.leaders[number];
        for update in self.server.log.iter().skip(leader.heard).take(changes).cloned() {
            leader.heard += 1;
            tell(&mut leader.world, update);
        }
    }

    /// A leader plans. Writes that were not sent yet are mostly planned again; those in flight go on.
    fn plan(&mut self) {
        let (number, anew) = (self.below(2), self.percent(80));
        let leader = &mut self.leaders[number];
        leader.flights.retain(|flight| !anew || flight.is_under_way());
        let millis = self.server.timestamp().as_millis().saturating_add_signed(leader.skew);
        let now = tenure_handles::Timestamp::from_millis(millis);
        let plan = leader.planner.plan(&leader.world, now);
        leader.flights.extend(plan.into_iter().map(Flight::of));
    }

    /// One step of a write in flight: a live read, or the write itself. Answers may be lost.
    fn deliver(&mut self) -> Result<(), String> {
        let (number, which, heard) = (self.below(2), self.below(usize::MAX), self.percent(80));
        let stale = self.percent(50);
        let leader = &mut self.leaders[number];
        if leader.flights.is_empty() {
            return Ok(());
        }
        let which = which % leader.flights.len();
        let mut flight = leader.flights.swap_remove(which);
        let before = self.server.log.len();
        match flight.go_on(&mut self.server, &mut leader.listed, stale, self.planted) {
            Delivered::Further => leader.flights.push(flight),
            Delivered::Over => {}
            Delivered::Deleted(block) => {
                for machine in self.machines.values() {
                    machine.survives(&block, &self.server)?;
                }
            }
        }
        if heard {
            self.server.log[before..].iter().cloned().for_each(|update| tell(&mut leader.world, update));
        }
        Ok(())
    }

    fn crash(&mut self) {
        let number = self.below(2);
        let leader = &mut self.leaders[number];
        leader.world = self.server.world();
        leader.heard = self.server.log.len();
        leader.planner = planner_of(self.seed, self.planted);
        leader.listed = None;
    }

    /// No two blocks share an address.
    fn check(&self) -> Result<(), String> {
        let carved = self.server.blocks.iter().filter(|(_, block)| !block.is_withheld());
        let mut all: Vec<(u128, u128, &str)> = Vec::new();
        for (name, _) in carved {
            for network in networks(&self.server, name) {
                all.push((network.first().bits(), network.last().bits(), name));
            }
        }
        all.sort_unstable();
        match all.windows(2).find(|pair| pair[0].1 >= pair[1].0) {
            Some(pair) => Err(format!("{} and {} share addresses", pair[0].2, pair[1].2)),
            None => Ok(()),
        }
    }

    /// Nothing interferes any more: every request is answered, and missing nodes have nothing.
    fn settle(&mut self) -> Result<(), String> {
        for machine in self.machines.values_mut() {
            machine.stop(&mut self.server);
        }
        for node in NODES {
            self.server.delete_node(node);
        }
        let mut planner = planner_of(self.seed, None);
        for _ in 0..6 {
            self.server.try_to_settle(&mut planner);
            self.check()?;
            self.server.now += 60_000;
        }
        self.server.try_to_settle(&mut planner);
        let leaked = self.server.blocks.values().find(|block| block.node().is_some());
        leaked.map_or(Ok(()), |block| Err(format!("{} leaked", block.name_any())))
    }
}

/// Every fourth run of each kind also compares plans, which other tests focus on.
fn planner_of(seed: u64, planted: Option<Planted>) -> Planner {
    if planted.is_none() && seed % 8 < 2 { Planner::default() } else { Planner::with_planted(planted) }
}

/// The networks of a block.
fn networks(server: &Server, block: &str) -> Vec<Cidr> {
    let subnet = server.blocks.get(block).and_then(|block| block.spec.to_subnet().ok());
    subnet.into_iter().flat_map(|subnet| [subnet.ipv4, subnet.ipv6]).flatten().collect()
}

fn covers(networks: &[Cidr], address: Address) -> bool {
    networks.iter().any(|network| network.contains(address))
}

/// Runs until something is wrong. Returns after how many steps, and what.
fn run(seed: u64, planted: Option<Planted>, steps: usize) -> Result<(), (usize, String)> {
    let mut run = Run::new(seed, planted);
    for step in 0..steps {
        run.step().map_err(|wrong| (step, wrong))?;
    }
    if planted.is_none() { run.settle().map_err(|wrong| (steps, wrong)) } else { Ok(()) }
}

/// How many runs are checked.
const RUNS: u64 = 150;
/// This many runs find every planted bug.
const MOST_RUNS: u64 = 300;

#[test]
fn no_order_of_events_puts_an_address_into_two_blocks_or_takes_a_block_that_is_in_use() {
    for seed in 0..RUNS {
        if let Err((step, wrong)) = run(seed, None, 400) {
            panic!("seed {seed}, step {step}: {wrong}");
        }
    }
}

#[test]
fn the_checker_finds_each_defect_that_is_planted() {
    for planted in Planted::ALL {
        let found =
            (0..MOST_RUNS).find_map(|seed| run(seed, Some(planted), 400).err().map(|found| (seed, found)));
        let (seed, (step, wrong)) = found.unwrap_or_else(|| panic!("nobody finds {planted:?}"));
        assert!(
            wrong.contains(planted.symptom()),
            "{planted:?} looks like {wrong:?} (seed {seed}, step {step})"
        );
    }
}
