//! What is done and what goes wrong, all of it decided by one number before anything begins.

use std::time::Duration;

use tenure_tests::chaos::trouble::{Dice, Fault, Kind, Spell, Target, faults, spells};

/// Nodes, each with an agent and two interfaces.
pub const NODES: usize = 3;
/// Controllers, of which one leads.
pub const CONTROLLERS: usize = 2;
/// The policies: the first gives `eth1` an address, the second `eth2`, both of the same pool.
pub const POLICIES: usize = 2;
/// Last addresses that the pool is made with; the largest is enough for all. It starts at 1.
pub const ENDS: [u8; 3] = [3, 5, 12];
/// MTUs that policies ask for.
pub const MTUS: [u32; 2] = [1400, 1450];
/// Steps of the one who changes nodes, and of the one who changes policies and the pool.
const STEPS: usize = 24;

/// Everything that is going to happen. When exactly, the machine decides.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    /// By worker.
    pub work: Vec<Vec<Step>>,
    /// What goes wrong with each target, one thing after the other.
    pub trouble: Vec<(Target, Vec<Fault>)>,
    /// What the API server is like for a while.
    pub spells: Vec<Spell>,
}

/// What an administrator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A policy selects a node, or does so no longer.
    Select { node: usize, policy: usize, selected: bool },
    /// A policy is made, or deleted if it is there.
    Policy { policy: usize },
    /// A policy asks for another MTU.
    Change { policy: usize, mtu: usize },
    /// The pool is deleted and made again.
    Recreate { end: usize, lasts: Duration },
    /// The pool grows as far as it can.
    Grow,
    /// Somebody empties the pool's record.
    Empty,
    /// A reset of the pool.
    ResetPool,
    /// A reset of a policy, or of its enactment on a node.
    Reset { policy: usize, node: Option<usize> },
    /// Does nothing for a while.
    Rest(Duration),
}

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64) -> Self {
        let mut dice = Dice::of(seed);
        let work = vec![nodes(&mut dice), policies(&mut dice)];
        let steps = work.iter().map(Vec::len).sum();
        let mut trouble = Vec::new();
        let mut hurt = |target, kinds: &[Kind], count, longest| {
            trouble.push((target, faults(kinds, count, longest, steps, &mut dice)));
        };
        for node in 0..NODES {
            hurt(Target::Agent(node), &[Kind::Kill, Kind::Stop], 3, 1500);
            hurt(Target::Way(node), &[Kind::Kill, Kind::Freeze], 1, 3000);
            hurt(Target::Node(node), &[Kind::Kill], 1, 4000);
        }
        for number in 0..CONTROLLERS {
            hurt(Target::Controller(number), &[Kind::Kill, Kind::Stop, Kind::Freeze], 2, 3000);
        }
        hurt(Target::ApiServer, &[Kind::Kill, Kind::Freeze], 1, 1500);
        hurt(Target::Etcd, &[Kind::Kill, Kind::Freeze], 1, 1500);
        Self { work, trouble, spells: spells(steps, &mut dice) }
    }
}

fn nodes(dice: &mut Dice) -> Vec<Step> {
    let step = |dice: &mut Dice| match dice.below(100) {
        0..35 => Step::Rest(dice.up_to(700)),
        _ => Step::Select {
            node: dice.below(NODES),
            policy: dice.below(POLICIES),
            selected: dice.below(3) > 0,
        },
    };
    (0..STEPS).map(|_| step(dice)).collect()
}

fn policies(dice: &mut Dice) -> Vec<Step> {
    let step = |dice: &mut Dice| match dice.below(100) {
        0..35 => Step::Rest(dice.up_to(700)),
        35..50 => Step::Policy { policy: dice.below(POLICIES) },
        50..65 => Step::Change { policy: dice.below(POLICIES), mtu: dice.below(MTUS.len()) },
        65..85 => {
            let node = Some(dice.below(NODES)).filter(|_| dice.one_in(2));
            Step::Reset { policy: dice.below(POLICIES), node }
        }
        85..95 => Step::Empty,
        _ => Step::ResetPool,
    };
    let mut steps: Vec<Step> = (0..STEPS - 5).map(|_| step(dice)).collect();
    // Each of these happens, whatever the dice say.
    for it in [
        Step::Policy { policy: 0 },
        Step::Recreate { end: dice.below(2), lasts: dice.up_to(1000) },
        Step::Grow,
        Step::Empty,
        Step::ResetPool,
    ] {
        let at = dice.below(steps.len());
        steps.insert(at, it);
    }
    steps
}

#[test]
fn a_seed_is_a_plan_that_spares_nobody() {
    assert_eq!(Plan::of(7), Plan::of(7));
    assert_ne!(Plan::of(7), Plan::of(8));
    for seed in 0..20 {
        let plan = Plan::of(seed);
        assert!(plan.work.concat().iter().any(|step| matches!(step, Step::Recreate { .. })));
        for (target, faults) in &plan.trouble {
            assert!(faults.iter().any(|fault| fault.kind == Kind::Kill), "{target:?}: {faults:?}");
        }
    }
}
