//! What is done and what goes wrong, all of it decided by one number before anything begins.

use std::time::Duration;

use tenure_handles::{Entropy, SeededEntropy};

use crate::networks::NETWORKS;

/// Nodes, each with an agent.
pub const NODES: usize = 50;
/// Those who start and end containers, on each node.
pub const WORKERS_A_NODE: usize = 1;
/// Pods of one worker, each with all networks.
pub const PODS: usize = 2;
/// Acts of one worker.
const ACTS: usize = 20;
/// Things that go wrong with one agent or another.
const TROUBLES: usize = 25;

/// Everything that is going to happen. When exactly, the machine decides.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    /// What each worker does, one act after the other.
    pub work: Vec<Vec<Act>>,
    /// What goes wrong, one thing after the other.
    pub trouble: Vec<Trouble>,
}

/// Something that a container runtime does with one interface of one pod, or with a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Attaches it.
    Add { pod: usize, network: usize },
    /// Asks once more for what it has.
    Repeat { pod: usize, network: usize },
    /// Asks whether it has what it was told.
    Check { pod: usize, network: usize },
    /// Detaches it; perhaps twice.
    Del { pod: usize, network: usize, twice: bool },
    /// Its container is gone and nobody says so before the next one has come; perhaps nobody ever does.
    Replace { pod: usize, network: usize, told: bool },
    /// Says who is alive on a network.
    Collect { network: usize },
    /// Does nothing for a while.
    Rest(Duration),
}

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// After so many acts of all workers together.
    pub after: usize,
    pub kind: Kind,
    pub node: usize,
    pub lasts: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The agent is dropped, and started again.
    Crash,
    /// The agent is asked to end, and started again.
    Stop,
    /// It does not hear what it watches.
    Deaf,
    /// Its watches break off.
    Cut,
    /// The API server does not answer it.
    Alone,
    /// Its calls take long.
    Slow,
    /// The controller crashes, and another one is started.
    Controller,
}

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64) -> Self {
        let mut dice = Dice(SeededEntropy::new(seed));
        let workers = NODES * WORKERS_A_NODE;
        let work: Vec<Vec<Act>> = (0..workers).map(|_| work(&mut dice)).collect();
        let steps = workers * ACTS;
        let mut trouble: Vec<Trouble> = (0..TROUBLES)
            .map(|number| Trouble {
                after: steps / 20 + dice.below(steps * 8 / 10),
                kind: match number % 10 {
                    0..3 => Kind::Crash,
                    3 | 4 => Kind::Stop,
                    5 => Kind::Deaf,
                    6 => Kind::Cut,
                    7 => Kind::Alone,
                    8 => Kind::Slow,
                    _ if number < 20 => Kind::Controller,
                    _ => Kind::Crash,
                },
                node: dice.below(NODES),
                lasts: dice.up_to(800),
            })
            .collect();
        trouble.sort_by_key(|trouble| trouble.after);
        Self { work, trouble }
    }
}

fn work(dice: &mut Dice) -> Vec<Act> {
    let mut living = [[false; NETWORKS]; PODS];
    let mut acts = Vec::with_capacity(ACTS);
    while acts.len() < ACTS {
        let (pod, network) = (dice.below(PODS), dice.below(NETWORKS));
        let lives = &mut living[pod][network];
        let act = match (*lives, dice.below(100)) {
            (_, 0..3) => Act::Collect { network },
            (_, 3..8) => Act::Rest(dice.up_to(200)),
            (false, _) => {
                *lives = true;
                Act::Add { pod, network }
            }
            (true, 8..25) => Act::Repeat { pod, network },
            (true, 25..35) => Act::Check { pod, network },
            (true, 35..50) => Act::Replace { pod, network, told: dice.below(3) > 0 },
            (true, _) => {
                *lives = false;
                Act::Del { pod, network, twice: dice.below(5) == 0 }
            }
        };
        acts.push(act);
    }
    acts
}

/// Chance.
pub struct Dice(SeededEntropy);

impl Dice {
    /// Of a seed.
    pub fn of(seed: u64) -> Self {
        Self(SeededEntropy::new(seed))
    }

    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.0.next_u64() % end as u64).unwrap()
    }

    pub fn up_to(&mut self, millis: u64) -> Duration {
        Duration::from_millis(self.0.next_u64() % millis)
    }
}

#[test]
fn a_seed_is_a_plan_that_spares_nothing() {
    use Kind::{Alone, Controller, Crash, Cut, Deaf, Slow, Stop};

    assert_eq!(Plan::of(7), Plan::of(7));
    assert_ne!(Plan::of(7), Plan::of(8));
    let plan = Plan::of(7);
    assert_eq!(plan.work.len(), NODES * WORKERS_A_NODE);
    let acts = || plan.work.iter().flatten();
    for network in 0..NETWORKS {
        let some = |is: &dyn Fn(&Act) -> bool| acts().any(is);
        assert!(some(&|act| matches!(act, Act::Add { network: it, .. } if *it == network)));
        assert!(some(&|act| matches!(act, Act::Del { network: it, .. } if *it == network)));
        assert!(some(&|act| matches!(act, Act::Replace { network: it, .. } if *it == network)));
        assert!(some(&|act| matches!(act, Act::Collect { network: it } if *it == network)));
    }
    for kind in [Crash, Stop, Deaf, Cut, Alone, Slow, Controller] {
        assert!(plan.trouble.iter().any(|trouble| trouble.kind == kind), "{kind:?}");
    }
}
