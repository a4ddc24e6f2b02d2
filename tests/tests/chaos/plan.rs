//! What is done and what goes wrong, all of it decided by one number before anything begins.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_handles::Entropy;

use tenure_tests::chaos::trouble::{Dice, Fault, Kind, Spell, Target, clock_steps, faults, spells};

/// Nodes, each with an agent.
pub const NODES: usize = 4;
/// Nodes whose run directory is removed while containers run.
pub const LOSES_JOURNAL: [usize; 2] = [1, 2];
/// Nodes to which a pod is bound that the API knows of.
pub const WITH_POD: [usize; 2] = [0, 1];
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
    /// What the API server is like for a while.
    pub spells: Vec<Spell>,
    /// How pools grow, one after the other: first into each other, then into what is nobody's.
    pub growth: Vec<Growth>,
}

/// A subnet that a pool gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Growth {
    /// After so many steps of all workers together.
    pub after: usize,
    pub pool: Pool,
    pub subnet: Value,
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

impl Pool {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Small => "small",
        }
    }

    /// What it has before it grows: too little for all.
    pub fn first(self) -> Value {
        match self {
            Self::Default => json!({"ipv4": "10.64.0.0/26", "ipv6": "fd64::/122"}),
            Self::Small => json!({"ipv4": "10.65.0.0/29"}),
        }
    }
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
            let kinds = [Kind::Kill, Kind::Kill, Kind::Stop];
            // Whoever lost a journal begins to ask around anew with every start, and is to be done when the chaos is over.
            let until = if LOSES_JOURNAL.contains(&node) { steps * 2 / 5 } else { steps };
            trouble.push((Target::Agent(node), faults(&kinds, 2, 1500, until, &mut dice)));
            trouble.extend(clock_steps(node, until, &mut dice));
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
        for node in 0..NODES {
            // Longer than what is of a missing node rests, where a pod says that the node is in use.
            let longest = if WITH_POD.contains(&node) { 12_000 } else { 4000 };
            trouble.push(hurt(Target::Node(node), &[Kind::Kill], 2, longest, &mut dice));
        }
        // Early: agents ask around twice, half a minute apart, before they hand out of their old blocks again.
        for (node, kinds) in LOSES_JOURNAL.into_iter().zip([[Kind::Kill, Kind::Freeze], [Kind::Kill; 2]]) {
            let early = faults(&kinds, 2, 1500, steps / 3, &mut dice);
            trouble.push((Target::RunDirectory(node), early));
        }
        Self { work, trouble, growth: growth(steps, &mut dice), spells: spells(steps, &mut dice) }
    }
}

/// Each pool grows into what the other has in use, in either order, and then to where there is room for all.
fn growth(steps: usize, dice: &mut Dice) -> Vec<Growth> {
    let grow = |pool, ipv4: &str, ipv6: Option<&str>| (pool, json!({"ipv4": ipv4, "ipv6": ipv6}));
    let mut all = vec![
        grow(Pool::Small, "10.64.0.0/27", None),
        grow(Pool::Default, "10.65.0.0/26", Some("fd65::/122")),
        grow(Pool::Small, "10.66.0.0/24", None),
        grow(Pool::Default, "10.67.0.0/20", Some("fd67::/116")),
    ];
    if dice.one_in(2) {
        all.swap(0, 1);
    }
    let mut after = 0;
    all.into_iter()
        .map(|(pool, mut subnet)| {
            subnet.as_object_mut().unwrap().retain(|_, value| !value.is_null());
            after += dice.below(steps / 20) + 1;
            Growth { after, pool, subnet }
        })
        .collect()
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
        let slot = which(dice, &living, !add);
        match dice.below(100) {
            0..12 if alive > 0 => steps.push(Step::Check { slot: which(dice, &living, true) }),
            12..20 if alive > 0 => steps.push(Step::Repeat { slot: which(dice, &living, true) }),
            20..26 if alive > 0 => steps.push(Step::Ping { slot: which(dice, &living, true) }),
            26..40 => steps.push(Step::Rest(dice.up_to(150))),
            _ => {
                calls += 1;
                living[slot] = add;
                steps.push(if add { add_to(dice, slot) } else { delete_from(dice, slot) });
            }
        }
    }
    steps
}

/// A slot that is used, or one that is not; there must be one.
fn which(dice: &mut Dice, living: &[bool; SLOTS], used: bool) -> usize {
    let matching: Vec<usize> = (0..SLOTS).filter(|slot| living[*slot] == used).collect();
    matching[dice.below(matching.len())]
}

fn add_to(dice: &mut Dice, slot: usize) -> Step {
    let pool = if dice.one_in(4) { Pool::Small } else { Pool::Default };
    Step::Add { slot, pool, same: dice.0.next_u64() }
}

fn delete_from(dice: &mut Dice, slot: usize) -> Step {
    let manner = match dice.below(20) {
        0..2 => Manner::Twice,
        2..4 => Manner::NamespaceLast,
        4..6 => Manner::NamespaceFirst,
        _ => Manner::Plain,
    };
    Step::Del { slot, manner }
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
