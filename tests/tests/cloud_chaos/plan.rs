//! What is done and what goes wrong, all of it decided by one number before anything begins.

use std::time::Duration;

use tenure_tests::chaos::trouble::{Dice, Fault, Kind, Target, faults};

/// Nodes, each a machine with an agent.
pub const NODES: usize = 3;
/// Controllers, of which one leads.
pub const CONTROLLERS: usize = 2;
/// Those who start, move and end pods.
pub const WORKERS: usize = 4;
/// Pods of one worker that live at the same time.
pub const SLOTS: usize = 2;
/// Steps of one worker.
const STEPS: usize = 12;

/// Everything that is going to happen. When exactly, the machine decides.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    pub work: Vec<Vec<Step>>,
    /// What goes wrong with each target, one thing after the other.
    pub trouble: Vec<(Target, Vec<Fault>)>,
    /// What the cloud does, one thing after the other, each when so many steps are done.
    pub weather: Vec<(usize, Weather)>,
}

/// What is done with pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Starts a pod.
    Start { slot: usize, node: usize },
    /// A pod moves to another node.
    Move { slot: usize, by: usize, manner: Moving },
    /// Ends a pod.
    Stop { slot: usize, object_first: bool },
    /// Somebody of another namespace names the address of a pod.
    Steal { slot: usize, node: usize },
    /// Does nothing for a while.
    Rest(Duration),
}

/// How a pod moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moving {
    /// The next pod has the address before the first one ends.
    Plain,
    /// The first pod has ended before there is a next one.
    SourceFirst,
    /// The next pod ends before it has the address, after so long; the first one goes on.
    Aborted(Duration),
}

/// What the cloud does to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    /// 412: somebody else was faster.
    Stale,
    /// 403: too many requests.
    TooMany,
    /// 400: something is under way.
    NotReady,
    /// An update gets lost, before or after it is accepted.
    LostRequest,
    LostAnswer,
    /// A read or a poll gets lost.
    LostRead,
    LostPoll,
    /// An operation ends late.
    Late(Duration),
    /// An operation never ends, until somebody ends it after this time.
    Endless(Duration),
    /// An operation ends with an error.
    Failed,
    /// An operation ends with the words that another machine has the address.
    InUse,
}

impl Weather {
    /// What it is counted as.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stale => "updates refused: 412",
            Self::TooMany => "updates refused: 403",
            Self::NotReady => "updates refused: resourceNotReady",
            Self::LostRequest => "updates lost",
            Self::LostAnswer => "answers to updates lost",
            Self::LostRead => "answers to reads lost",
            Self::LostPoll => "polls refused",
            Self::Late(_) => "operations that end late",
            Self::Endless(_) => "operations that do not end",
            Self::Failed => "operations that fail",
            Self::InUse => "addresses in use",
        }
    }
}

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64) -> Self {
        let mut dice = Dice::of(seed);
        let work: Vec<Vec<Step>> = (0..WORKERS).map(|_| work(&mut dice)).collect();
        let steps = work.iter().map(Vec::len).sum();
        let mut trouble = Vec::new();
        let mut hurt = |target, kinds: &[Kind], count, longest| {
            trouble.push((target, faults(kinds, count, longest, steps, &mut dice)));
        };
        for node in 0..NODES {
            hurt(Target::Agent(node), &[Kind::Kill, Kind::Stop], 2, 1500);
        }
        for number in 0..CONTROLLERS {
            hurt(Target::Controller(number), &[Kind::Kill, Kind::Stop, Kind::Freeze], 2, 3000);
        }
        hurt(Target::ApiServer, &[Kind::Kill, Kind::Freeze], 1, 1500);
        let weather = weather(steps, &mut dice);
        Self { work, trouble, weather }
    }
}

fn work(dice: &mut Dice) -> Vec<Step> {
    let mut living = [false; SLOTS];
    let mut step = || {
        let (slot, node) = (dice.below(SLOTS), dice.below(NODES));
        match (living[slot], dice.below(100)) {
            (_, 0..10) => Step::Rest(dice.up_to(400)),
            (false, _) => {
                living[slot] = true;
                Step::Start { slot, node }
            }
            (true, 10..65) => {
                let manner = match dice.below(10) {
                    0..5 => Moving::Plain,
                    5..8 => Moving::SourceFirst,
                    _ => Moving::Aborted(dice.up_to(2500)),
                };
                Step::Move { slot, by: 1 + dice.below(NODES - 1), manner }
            }
            (true, 65..80) => Step::Steal { slot, node },
            (true, manner) => {
                living[slot] = false;
                Step::Stop { slot, object_first: manner < 90 }
            }
        }
    };
    (0..STEPS).map(|_| step()).collect()
}

/// Each of it once, in any order.
fn weather(steps: usize, dice: &mut Dice) -> Vec<(usize, Weather)> {
    let mut all = vec![
        Weather::Stale,
        Weather::TooMany,
        Weather::NotReady,
        Weather::LostRequest,
        Weather::LostAnswer,
        Weather::LostRead,
        Weather::LostPoll,
        Weather::Late(dice.up_to(4000)),
        Weather::Endless(dice.up_to(4000)),
        Weather::Failed,
        Weather::InUse,
    ];
    let mut order = Vec::new();
    while !all.is_empty() {
        order.push(all.swap_remove(dice.below(all.len())));
    }
    let count = order.len();
    order.into_iter().enumerate().map(|(number, it)| (number * steps * 8 / (count * 10), it)).collect()
}

#[test]
fn a_seed_is_a_plan_that_spares_nobody() {
    assert_eq!(Plan::of(7), Plan::of(7));
    assert_ne!(Plan::of(7), Plan::of(8));
    for seed in 0..20 {
        let plan = Plan::of(seed);
        let moves = |step: &&Step| matches!(step, Step::Move { .. });
        assert!(plan.work.iter().flatten().filter(moves).count() > WORKERS, "{plan:?}");
        for (target, faults) in &plan.trouble {
            assert!(faults.iter().any(|fault| fault.kind == Kind::Kill), "{target:?}: {faults:?}");
        }
    }
}
