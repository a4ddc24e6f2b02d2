//! What goes wrong, with whom and when: decided by one number before anything begins.

use std::time::Duration;

use tenure_handles::{Entropy, SeededEntropy};

use super::proxy::Mood;

/// Who something goes wrong with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Agent(usize),
    Controller(usize),
    ApiServer,
    Etcd,
    /// The way of a node to the API server.
    Way(usize),
    /// The wall clock of an agent is set hours ahead or back, and stays so: with `Kind::Kill` while the agent is down, otherwise
    /// while it runs.
    Clock {
        node: usize,
        ahead: bool,
    },
    /// The object of a node, while the node and its containers run.
    Node(usize),
    /// The directory of an agent's sockets, journal and tombstones, while containers run.
    RunDirectory(usize),
}

impl Target {
    /// What faults of it are counted as.
    pub fn name(self) -> &'static str {
        match self {
            Self::Agent(_) => "agents ended under way",
            Self::Controller(_) => "controllers ended or frozen under way",
            Self::ApiServer => "API servers ended or frozen under way",
            Self::Etcd => "etcd ended or frozen under way",
            Self::Way(_) => "ways cut under way",
            Self::Clock { .. } => "clocks set under way",
            Self::Node(_) => "nodes deleted under way",
            Self::RunDirectory(_) => "run directories removed under way",
        }
    }
}

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// After so many steps of all workers together.
    pub after: usize,
    pub kind: Kind,
    /// How long until it is put right; a program then takes a while to start.
    pub lasts: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Ends at once.
    Kill,
    /// Is asked to end.
    Stop,
    /// Stands still, and goes on later as if nothing had been.
    Freeze,
}

/// What the API server is like for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spell {
    /// After so many steps of all workers together.
    pub after: usize,
    pub mood: Mood,
    pub lasts: Duration,
}

/// Each mood of the API server once, in any order, and some once more.
pub fn spells(steps: usize, dice: &mut Dice) -> Vec<Spell> {
    let mut spell = |mood| Spell { after: dice.below(steps * 9 / 10), mood, lasts: dice.up_to(2500) };
    let mut spells: Vec<Spell> = Mood::ALL.into_iter().chain(Mood::ALL).map(&mut spell).collect();
    spells.sort_by_key(|spell| spell.after);
    spells
}

/// So many things that go wrong with somebody, in the course of so many steps.
pub fn faults(kinds: &[Kind], count: usize, longest: u64, steps: usize, dice: &mut Dice) -> Vec<Fault> {
    // One is of the first kind, and in the first half, whatever the dice say: nothing is spared, and all of it while others work.
    let mut faults: Vec<Fault> = (0..count)
        .map(|number| Fault {
            after: steps / 50 + dice.below(if number == 0 { steps / 2 } else { steps * 9 / 10 }),
            kind: if number == 0 { kinds[0] } else { kinds[dice.below(kinds.len())] },
            lasts: dice.up_to(longest),
        })
        .collect();
    faults.sort_by_key(|fault| fault.after);
    faults
}

/// How the clock of an agent is set: ahead and back, while the agent runs and while it does not.
pub fn clock_steps(node: usize, steps: usize, dice: &mut Dice) -> [(Target, Vec<Fault>); 2] {
    [true, false].map(|ahead| {
        let mut set = faults(&[Kind::Kill], 2, 500, steps, dice);
        set[dice.below(2)].kind = Kind::Freeze;
        (Target::Clock { node, ahead }, set)
    })
}

/// Chance, from one number.
pub struct Dice(pub SeededEntropy);

impl Dice {
    pub fn of(seed: u64) -> Self {
        Self(SeededEntropy::new(seed))
    }

    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.0.next_u64() % end as u64).unwrap()
    }

    pub fn percent(&mut self, of: usize) -> bool {
        self.below(100) < of
    }

    pub fn one_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    pub fn up_to(&mut self, millis: u64) -> Duration {
        Duration::from_millis(self.0.next_u64() % millis)
    }
}
