//! What is done and what goes wrong, all of it decided by one number before anything begins.

use std::time::Duration;

use tenure_handles::Entropy;

use crate::hostile;
use crate::networks::Network;
use tenure_tests::chaos::trouble::{Dice, Fault, Kind, Spell, Target, clock_steps, faults, spells};

/// Nodes, each with an agent.
pub const NODES: usize = 3;
/// Controllers, of which one leads.
pub const CONTROLLERS: usize = 2;
/// Lanes with claims on each network.
const LANES: usize = 3;
/// How often somebody forges a claim.
const FORGERIES: usize = 8;
/// Steps of one lane.
const STEPS: usize = 26;
/// How many addresses claims wish for, on each network.
const WISHES: usize = 4;

/// Everything that is going to happen. When exactly, the machine decides.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    pub lanes: Vec<Lane>,
    /// What goes wrong with each target, one thing after the other.
    pub trouble: Vec<(Target, Vec<Fault>)>,
    /// What the API server is like for a while.
    pub spells: Vec<Spell>,
    /// After how many steps each hostile definition is made.
    pub definitions: Vec<usize>,
    /// After how many steps somebody forges a claim.
    pub forgeries: Vec<usize>,
}

/// One name of a claim, and the pods that refer to it; or pods that refer to none.
#[derive(Debug, PartialEq, Eq)]
pub struct Lane {
    pub network: Network,
    pub claims: bool,
    pub steps: Vec<Step>,
}

/// Something that users, a scheduler, a mover, a kubelet or a runtime does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Makes the claim.
    Claim(Wish),
    /// Deletes it, whoever uses it.
    Unclaim,
    /// Deletes it and makes another of the same name at once.
    Reclaim(Wish),
    /// Starts a pod.
    Start { pod: usize, start: Start },
    /// Starts a pod that asks before there is a claim.
    Early { start: Start },
    /// Starts a third pod, which is not let in, and gives up.
    Crowd { start: Start },
    /// A mover's word that this pod is to be the active one, or an old word of one.
    Commit { pod: usize, stale: bool },
    /// Ends a pod.
    Stop { pod: usize, manner: Manner },
    /// Asks whether a pod's interface is as it should be.
    Check { pod: usize },
    /// Asks for a pod's interface once more.
    Repeat { pod: usize },
    /// A pod's owner writes that it has no addresses and no claim.
    Lie { pod: usize },
    /// Does nothing for a while.
    Rest(Duration),
}

/// How a pod is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    pub node: usize,
    /// Whether somebody writes on the pod which addresses it has.
    pub told: bool,
    /// For each try that fails, whether the next one is of the same container.
    pub same: u64,
}

/// Which address a claim is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Any,
    /// By its annotation.
    Annotated(usize),
    /// By a status that it came with.
    Imported(usize),
}

/// How a pod ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// DEL, then the pod's object goes.
    Plain,
    /// It is being deleted for a while, then as above.
    Graceful,
    /// It has finished, then as above.
    Finished,
    /// Its namespace is gone before anybody says DEL.
    NamespaceFirst,
    /// The object goes first, and DEL is late.
    Forced,
    /// The object goes, and nobody says DEL, unless somebody waits for it for long.
    Lost,
}

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64) -> Self {
        let mut dice = Dice::of(seed);
        let mut lanes = Vec::new();
        for network in Network::ALL {
            for _ in 0..LANES {
                lanes.push(Lane { network, claims: true, steps: claimed(network, &mut dice) });
            }
            lanes.push(Lane { network, claims: false, steps: ordinary(&mut dice) });
        }
        let steps = lanes.iter().map(|lane| lane.steps.len()).sum();
        let mut trouble = Vec::new();
        let mut hurt = |target, kinds: &[Kind], count, longest, steps| {
            trouble.push((target, faults(kinds, count, longest, steps, &mut dice)));
        };
        for node in 0..NODES {
            hurt(Target::Agent(node), &[Kind::Kill, Kind::Stop], 2, 2000, steps);
            hurt(Target::Way(node), &[Kind::Kill, Kind::Freeze], 1, 3000, steps);
        }
        for number in 0..CONTROLLERS {
            // Frozen for longer than its lease lasts: it wakes up, and is not the leader any more.
            hurt(Target::Controller(number), &[Kind::Kill, Kind::Stop, Kind::Freeze], 2, 4000, steps);
        }
        hurt(Target::ApiServer, &[Kind::Kill, Kind::Freeze], 2, 1500, steps);
        for node in 0..NODES {
            // Longer than what is of a missing node rests.
            hurt(Target::Node(node), &[Kind::Kill], 1, 9000, steps);
        }
        for node in 0..NODES {
            trouble.extend(clock_steps(node, steps, &mut dice));
        }
        // No run directory is removed: the pods of claims on such a node would be strangers to it until they end.
        let definitions = (0..hostile::DEFINITIONS).map(|_| dice.below(steps * 8 / 10)).collect();
        let forgeries = (0..FORGERIES).map(|_| steps / 10 + dice.below(steps * 8 / 10)).collect();
        Self { lanes, trouble, spells: spells(steps, &mut dice), definitions, forgeries }
    }
}

/// What is done with one claim's name. The dice know what should be there, and whoever does it what is.
fn claimed(network: Network, dice: &mut Dice) -> Vec<Step> {
    let mut steps = Vec::new();
    let (mut claim, mut pods) = (false, [false; 2]);
    while steps.len() < STEPS {
        let count = pods.iter().filter(|pod| **pod).count();
        let free = usize::from(pods[0]);
        let some = if count == 2 { dice.below(2) } else { usize::from(!pods[0]) };
        let chance = dice.below(100);
        let step = match (claim, count, chance) {
            (_, _, 0..12) => Step::Rest(dice.up_to(600)),
            (false, 0, 12..30) => {
                (claim, pods[0]) = (true, true);
                Step::Early { start: Start::any(dice) }
            }
            (false, 0, _) | (false, _, 12..50) => {
                claim = true;
                Step::Claim(Wish::any(dice))
            }
            (true, 0, 12..22) | (true, _, 12..18) => {
                claim = false;
                Step::Unclaim
            }
            (true, 0, 22..32) | (true, _, 18..24) => Step::Reclaim(Wish::any(dice)),
            (true, 0 | 1, 32..72) => {
                pods[free] = true;
                Step::Start { pod: free, start: Start::any(dice) }
            }
            (true, 2, 24..54) => Step::Commit { pod: some, stale: dice.one_in(5) },
            (true, 2, 54..57) => Step::Crowd { start: Start::any(dice) },
            (_, 1 | 2, 57..64) => Step::Check { pod: some },
            (_, 1 | 2, 64..70) if network == Network::Routed => Step::Repeat { pod: some },
            (_, 1 | 2, 70..76) => Step::Lie { pod: some },
            (_, 1 | 2, _) => {
                pods[some] = false;
                Step::Stop { pod: some, manner: Manner::any(dice) }
            }
            _ => Step::Rest(dice.up_to(100)),
        };
        steps.push(step);
    }
    steps
}

fn ordinary(dice: &mut Dice) -> Vec<Step> {
    let (mut steps, mut pods) = (Vec::new(), [false; 2]);
    while steps.len() < STEPS {
        let pod = dice.below(2);
        if dice.one_in(3) {
            steps.push(Step::Rest(dice.up_to(800)));
        } else if pods[pod] {
            steps.push(Step::Stop { pod, manner: Manner::Plain });
            pods[pod] = false;
        } else {
            steps.push(Step::Start { pod, start: Start::any(dice) });
            pods[pod] = true;
        }
    }
    steps
}

impl Start {
    fn any(dice: &mut Dice) -> Self {
        Self { node: dice.below(NODES), told: dice.percent(50), same: dice.0.next_u64() }
    }
}

impl Wish {
    fn any(dice: &mut Dice) -> Self {
        match dice.below(10) {
            0..2 => Self::Annotated(dice.below(WISHES)),
            2..4 => Self::Imported(dice.below(WISHES)),
            _ => Self::Any,
        }
    }
}

impl Manner {
    fn any(dice: &mut Dice) -> Self {
        match dice.below(10) {
            0 | 1 => Self::Graceful,
            2 => Self::Finished,
            3 => Self::NamespaceFirst,
            4 | 5 => Self::Forced,
            6 => Self::Lost,
            _ => Self::Plain,
        }
    }
}

#[test]
fn a_seed_is_a_plan_in_which_claims_are_made_and_moved_and_nobody_is_spared() {
    assert_eq!(Plan::of(7), Plan::of(7));
    assert_ne!(Plan::of(7), Plan::of(8));
    for seed in 0..20 {
        let plan = Plan::of(seed);
        let count = |is: fn(&Step) -> bool| {
            plan.lanes.iter().flat_map(|lane| &lane.steps).filter(|it| is(it)).count()
        };
        assert!(count(|it| matches!(it, Step::Claim(_) | Step::Reclaim(_) | Step::Early { .. })) > LANES * 3);
        assert!(count(|it| matches!(it, Step::Start { pod: 1, .. })) > LANES, "moves of seed {seed}");
        assert!(count(|it| matches!(it, Step::Stop { .. })) > LANES * 3);
        for (target, faults) in &plan.trouble {
            assert!(faults.iter().any(|fault| fault.kind == Kind::Kill), "{target:?}: {faults:?}");
        }
    }
}
