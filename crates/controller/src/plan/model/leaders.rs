//! Two processes that lead or believe so: each is behind, and their writes arrive in any order.

use kube::ResourceExt;
use proptest::prelude::*;

use super::{Outcome, Server, Update, tell};
use crate::coil::BlockWrite;
use crate::plan::Planner;
use crate::world::World;
use crate::write::Write;

/// What happens to leaders meanwhile.
#[derive(Clone, Debug)]
pub(crate) enum Turn {
    /// A leader hears of this many changes.
    Hear {
        leader: usize,
        changes: usize,
    },
    /// A leader hears of claims before changes of other kinds.
    HearClaims {
        leader: usize,
        changes: usize,
    },
    /// A leader lists blocks again, before it hears what led to them.
    List {
        leader: usize,
    },
    /// A leader plans; earlier planned writes may still arrive.
    Plan {
        leader: usize,
    },
    /// A write arrives at the server, in any order; its answer may be lost.
    Arrive {
        leader: usize,
        write: usize,
        heard: bool,
    },
    /// A leader restarts. Its writes stay in flight.
    Crash {
        leader: usize,
    },
    Pass(u64),
}

/// Any turn.
pub(crate) fn turn() -> impl Strategy<Value = Turn> {
    let leader = 0_usize..2;
    prop_oneof![
        8 => (leader.clone(), 1_usize..8).prop_map(|(leader, changes)| Turn::Hear { leader, changes }),
        2 => (leader.clone(), 1_usize..16).prop_map(|(leader, changes)| Turn::HearClaims { leader, changes }),
        1 => leader.clone().prop_map(|leader| Turn::List { leader }),
        8 => leader.clone().prop_map(|leader| Turn::Plan { leader }),
        16 => (leader.clone(), any::<usize>(), any::<bool>())
            .prop_map(|(leader, write, heard)| Turn::Arrive { leader, write, heard }),
        1 => leader.prop_map(|leader| Turn::Crash { leader }),
        3 => (1_u64..15_000).prop_map(Turn::Pass),
    ]
}

/// Both of them.
pub(crate) struct Leaders(Vec<Leader>);

impl Leaders {
    /// Two that have heard everything.
    pub(crate) fn of(server: &Server) -> Self {
        Self((0..2).map(|_| Leader::of(server)).collect())
    }

    /// Takes a turn. `write` performs a write that arrives; `None` if it does not arrive after all.
    pub(crate) fn take(
        &mut self,
        turn: &Turn,
        server: &mut Server,
        write: impl FnOnce(&mut Server, &Write) -> Option<Outcome>,
    ) {
        match *turn {
            Turn::Hear { leader, changes } => self.0[leader].hear(server, changes),
            Turn::HearClaims { leader, changes } => self.0[leader].hear_claims(server, changes),
            Turn::List { leader } => self.0[leader].list(server),
            Turn::Plan { leader } => self.0[leader].plan(server),
            Turn::Arrive { leader, write: number, heard } => {
                let leader = &mut self.0[leader];
                let Some(next) = leader.next_to_arrive(number) else { return };
                let before = server.log.len();
                if let Some(outcome) = write(server, &next).filter(|_| heard) {
                    leader.learn(server, before, &next, &outcome);
                }
            }
            Turn::Crash { leader } => self.0[leader].crash(server),
            Turn::Pass(millis) => server.now += millis,
        }
    }
}

/// A process that leads, or believes so: what it has heard, and its writes in flight.
struct Leader {
    world: World,
    planner: Planner,
    /// How much of the log it has heard.
    heard: usize,
    on_their_way: Vec<Write>,
}

impl Leader {
    /// One that has heard everything.
    fn of(server: &Server) -> Self {
        let (world, heard) = (server.world(), server.log.len());
        let planner = Planner::comparing_unless(server.planted.is_some());
        Self { world, planner, heard, on_their_way: Vec::new() }
    }

    fn hear(&mut self, server: &Server, changes: usize) {
        for update in server.log.iter().skip(self.heard).take(changes).cloned() {
            self.heard += 1;
            tell(&mut self.world, update);
        }
    }

    fn hear_claims(&mut self, server: &Server, changes: usize) {
        let updates = server.log.iter().skip(self.heard).take(changes);
        for update in updates.filter(|it| matches!(it, Update::Claim(_) | Update::ClaimGone(_))).cloned() {
            tell(&mut self.world, update);
        }
    }

    fn list(&mut self, server: &Server) {
        self.world.coil_mut().blocks.begin();
        server.blocks.values().cloned().for_each(|block| self.world.coil_mut().blocks.apply(block));
        self.world.coil_mut().blocks.finish();
    }

    fn plan(&mut self, server: &Server) {
        self.on_their_way.extend(self.planner.plan(&self.world, server.timestamp()));
    }

    fn crash(&mut self, server: &Server) {
        let on_their_way = std::mem::take(&mut self.on_their_way);
        *self = Self { on_their_way, ..Self::of(server) };
    }

    fn next_to_arrive(&mut self, number: usize) -> Option<Write> {
        let there = self.on_their_way.len();
        (there > 0).then(|| self.on_their_way.swap_remove(number % there))
    }

    /// The answer to a write shows the current object, or what conflicts.
    fn learn(&mut self, server: &Server, before: usize, write: &Write, outcome: &Outcome) {
        match (write.of(), outcome) {
            (_, Outcome::Done) => {
                server.log[before..].iter().cloned().for_each(|update| tell(&mut self.world, update));
            }
            (Some(BlockWrite::Create { block }), Outcome::AlreadyExists) => {
                self.world.coil_mut().blocks.apply(server.blocks[&block.name_any()].clone());
            }
            _ => {}
        }
    }
}
