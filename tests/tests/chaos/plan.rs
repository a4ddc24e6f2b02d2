//! What is done and what goes wrong, all of it decided by one number before anything begins.

use std::time::Duration;

use tenure_handles::Entropy;

use crate::trouble::{Dice, Fault, Kind, Target, faults};

/// Nodes, each with an agent.
pub const NODES: usize = 4;
/// Controllers, of which one leads.
pub const CONTROLLERS: usize = 2;
/// Those who start and end containers, two on each node.
pub const WORKERS: usize = 2 * NODES;
/// Containers of one worker that live at the same time.
pub const SLOTS: usize = 9;
/// ADDs and DELs of all workers together, without those that are repeated because something was down.
const CALLS: usize = 1000;

/// Everything that is going to happen. When exactly, the machine decides.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    /// What each worker does, one step after the other.
    pub work: Vec<Vec<Step>>,
    /// What goes wrong with each target, one thing after the other.
    pub trouble: Vec<(Target, Vec<Fault>)>,
}

/// Something that a container runtime does, or somebody who looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Starts a container.
    Add {
        slot: usize,
        pool: Pool,
        /// For each try that fails, whether the next one is of the same container.
        same: u64,
    },
    /// Ends a container.
    Del { slot: usize, manner: Manner },
    /// Asks for a container that runs once more.
    Repeat { slot: usize },
    /// Asks whether a container is as it should be.
    Check { slot: usize },
    /// Sends a packet to a container.
    Ping { slot: usize },
    /// Does nothing for a while.
    Rest(Duration),
}

/// Where a container's addresses come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// Of both families, in blocks of eight.
    Default,
    /// Of one family, in blocks of two, which come and go all the time.
    Small,
}

/// How a container ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// DEL, and its namespace is used again.
    Plain,
    /// DEL, and DEL once more.
    Twice,
    /// DEL, then its namespace goes.
    NamespaceLast,
    /// Its namespace is gone before anybody says DEL.
    NamespaceFirst,
}

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64) -> Self {
        let mut dice = Dice::of(seed);
        let work: Vec<_> = (0..WORKERS).map(|_| work(&mut dice)).collect();
        let steps = work.iter().map(Vec::len).sum();
        let mut trouble = Vec::new();
        let hurt = |target, kinds: &[Kind], count, longest, dice: &mut Dice| {
            (target, faults(kinds, count, longest, steps, dice))
        };
        for node in 0..NODES {
            trouble.push(hurt(
                Target::Agent(node),
                &[Kind::Kill, Kind::Kill, Kind::Stop],
                3,
                2500,
                &mut dice,
            ));
            trouble.push(hurt(Target::Way(node), &[Kind::Kill, Kind::Freeze], 1, 4000, &mut dice));
        }
        for number in 0..CONTROLLERS {
            // Frozen for longer than its lease lasts: it wakes up, and is not the leader any more.
            trouble.push(hurt(
                Target::Controller(number),
                &[Kind::Kill, Kind::Stop, Kind::Freeze],
                3,
                5000,
                &mut dice,
            ));
        }
        trouble.push(hurt(Target::ApiServer, &[Kind::Kill, Kind::Kill, Kind::Freeze], 3, 2000, &mut dice));
        trouble.push(hurt(Target::Etcd, &[Kind::Kill, Kind::Freeze], 2, 2000, &mut dice));
        Self { work, trouble }
    }
}

fn work(dice: &mut Dice) -> Vec<Step> {
    let (mut steps, mut calls) = (Vec::new(), 0);
    let mut living = [false; SLOTS];
    // How many are to live for the time being: the tide turns every now and then.
    let mut tide = dice.below(SLOTS) + 1;
    while calls < CALLS / WORKERS {
        if dice.one_in(20) {
            tide = dice.below(SLOTS + 1);
        }
        let alive = living.iter().filter(|it| **it).count();
        let likely = match alive.cmp(&tide) {
            std::cmp::Ordering::Less => 80,
            std::cmp::Ordering::Equal => 50,
            std::cmp::Ordering::Greater => 20,
        };
        let add = alive == 0 || (alive < SLOTS && dice.percent(likely));
        let slot = dice.which(&living, !add);
        match dice.below(100) {
            0..12 if alive > 0 => steps.push(Step::Check { slot: dice.which(&living, true) }),
            12..20 if alive > 0 => steps.push(Step::Repeat { slot: dice.which(&living, true) }),
            20..26 if alive > 0 => steps.push(Step::Ping { slot: dice.which(&living, true) }),
            26..40 => steps.push(Step::Rest(dice.up_to(150))),
            _ => {
                calls += 1;
                living[slot] = add;
                steps.push(if add { dice.add(slot) } else { dice.del(slot) });
            }
        }
    }
    steps
}

impl Dice {
    /// A slot that is used, or one that is not; there must be one.
    fn which(&mut self, living: &[bool; SLOTS], used: bool) -> usize {
        let matching: Vec<usize> = (0..SLOTS).filter(|slot| living[*slot] == used).collect();
        matching[self.below(matching.len())]
    }

    fn add(&mut self, slot: usize) -> Step {
        let pool = if self.one_in(4) { Pool::Small } else { Pool::Default };
        Step::Add { slot, pool, same: self.0.next_u64() }
    }

    fn del(&mut self, slot: usize) -> Step {
        let manner = match self.below(20) {
            0..2 => Manner::Twice,
            2..4 => Manner::NamespaceLast,
            4..6 => Manner::NamespaceFirst,
            _ => Manner::Plain,
        };
        Step::Del { slot, manner }
    }
}

#[test]
fn a_seed_is_a_plan_of_a_thousand_adds_and_dels_that_spares_nobody() {
    assert_eq!(Plan::of(7), Plan::of(7));
    assert_ne!(Plan::of(7), Plan::of(8));
    for seed in 0..20 {
        let plan = Plan::of(seed);
        let calls = |step: &&Step| matches!(step, Step::Add { .. } | Step::Del { .. });
        assert_eq!(plan.work.iter().flatten().filter(calls).count(), CALLS);
        for (target, faults) in &plan.trouble {
            assert!(faults.iter().any(|fault| fault.kind == Kind::Kill), "{target:?}: {faults:?}");
        }
    }
}
