//! What is done and what goes wrong, all of it decided by one number before anything begins.

use std::time::Duration;

use tenure_tests::chaos::trouble::{Dice, Fault, Kind, Spell, Target, faults, spells};

/// Nodes, each with an agent. The gateway is on the first.
pub const NODES: usize = 3;
/// Controllers, of which one leads.
pub const CONTROLLERS: usize = 2;
/// Those who start and end clients, two on each node.
pub const WORKERS: usize = 2 * NODES;
/// Pods of one worker that live at the same time.
pub const SLOTS: usize = 3;
/// Steps of one worker.
const STEPS: usize = 22;
/// Steps of the one who changes Egresses and gateways.
const CHANGES: usize = 16;
/// The names of the Egresses. The first one has a gateway.
pub const EGRESSES: [&str; 2] = ["one", "two"];

/// Networks that an Egress leads to; all of those of the first one include what is outside.
pub fn destinations(egress: usize, choice: usize) -> &'static [&'static str] {
    match (egress, choice) {
        (0, 0) => &["0.0.0.0/0", "::/0"],
        (0, 1) => &["198.51.100.0/24", "2001:db8:99::/64"],
        (0, _) => &["198.51.100.0/25", "198.51.100.128/25", "2001:db8:99::/65"],
        (_, 0) => &["203.0.113.0/24"],
        (_, 1) => &["203.0.113.0/25", "2001:db8:77::/64"],
        _ => &["2001:db8:77::/64"],
    }
}

/// Which Egresses a pod names: a bit for each.
pub type Named = usize;

/// Everything that is going to happen. When exactly, the machine decides.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    pub work: Vec<Vec<Step>>,
    pub changes: Vec<Change>,
    /// What goes wrong with each target, one thing after the other.
    pub trouble: Vec<(Target, Vec<Fault>)>,
    /// What the API server is like for a while.
    pub spells: Vec<Spell>,
}

/// What is done with pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Starts a pod that names these.
    Start { slot: usize, named: Named },
    /// A running pod names these from now on.
    Annotate { slot: usize, named: Named },
    /// Ends a pod.
    Stop { slot: usize, manner: Manner },
    /// Asks for a pod that runs once more.
    Repeat { slot: usize },
    /// Does nothing for a while.
    Rest(Duration),
}

/// How a pod ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// DEL, then its object goes.
    Plain,
    /// Its object goes, then DEL.
    ObjectFirst,
    /// Its namespace is gone before anybody says DEL.
    NamespaceFirst,
}

/// What is done with Egresses and gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// An Egress gets other destinations.
    Destinations { egress: usize, choice: usize },
    /// An Egress is deleted and made again after a while, before or after what it owned is collected.
    Recreate { egress: usize, collect_late: bool, lasts: Duration },
    /// A Service is deleted; the controller makes another.
    Service { egress: usize },
    /// The gateway's program is killed and started again.
    KillGateway { lasts: Duration },
    /// The gateway's pod is replaced by another.
    ReplaceGateway,
    /// Does nothing for a while.
    Rest(Duration),
}

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64) -> Self {
        let mut dice = Dice::of(seed);
        let work: Vec<Vec<Step>> = (0..WORKERS).map(|_| work(&mut dice)).collect();
        let changes = changes(&mut dice);
        let steps = work.iter().map(Vec::len).sum();
        let mut trouble = Vec::new();
        let mut hurt = |target, kinds: &[Kind], count, longest| {
            trouble.push((target, faults(kinds, count, longest, steps, &mut dice)));
        };
        for node in 0..NODES {
            hurt(Target::Agent(node), &[Kind::Kill, Kind::Stop], 2, 1500);
            hurt(Target::Way(node), &[Kind::Kill, Kind::Freeze], 1, 3000);
            hurt(Target::Node(node), &[Kind::Kill], 1, 5000);
        }
        for number in 0..CONTROLLERS {
            hurt(Target::Controller(number), &[Kind::Kill, Kind::Stop, Kind::Freeze], 2, 4000);
        }
        hurt(Target::ApiServer, &[Kind::Kill, Kind::Freeze], 2, 1500);
        hurt(Target::Etcd, &[Kind::Kill, Kind::Freeze], 1, 1500);
        // No run directory is removed: agents would not know the names of the pods that run, and so not whose clients they are.
        Self { work, changes, trouble, spells: spells(steps, &mut dice) }
    }
}

fn work(dice: &mut Dice) -> Vec<Step> {
    let mut living = [false; SLOTS];
    let mut step = || {
        let slot = dice.below(SLOTS);
        match (living[slot], dice.below(100)) {
            (_, 0..20) => Step::Rest(dice.up_to(400)),
            (false, _) => {
                living[slot] = true;
                Step::Start { slot, named: dice.below(4) }
            }
            (true, 20..60) => Step::Annotate { slot, named: dice.below(4) },
            (true, 60..70) => Step::Repeat { slot },
            (true, manner) => {
                living[slot] = false;
                let manner = match manner {
                    70..85 => Manner::Plain,
                    85..95 => Manner::ObjectFirst,
                    _ => Manner::NamespaceFirst,
                };
                Step::Stop { slot, manner }
            }
        }
    };
    (0..STEPS).map(|_| step()).collect()
}

fn changes(dice: &mut Dice) -> Vec<Change> {
    let mut changes: Vec<Change> = (0..CHANGES)
        .map(|_| match dice.below(100) {
            0..30 => Change::Rest(dice.up_to(1000)),
            30..70 => Change::Destinations { egress: dice.below(2), choice: dice.below(3) },
            70..85 => Change::Service { egress: dice.below(2) },
            _ => Change::KillGateway { lasts: dice.up_to(500) },
        })
        .collect();
    // Each of these happens, whatever the dice say.
    let lasts = dice.up_to(1500);
    for change in [
        Change::Recreate { egress: 0, collect_late: dice.one_in(2), lasts },
        Change::Recreate { egress: 1, collect_late: dice.one_in(2), lasts },
        Change::KillGateway { lasts },
        Change::ReplaceGateway,
        Change::Service { egress: 0 },
    ] {
        let at = dice.below(changes.len());
        changes.insert(at, change);
    }
    changes
}

#[test]
fn a_seed_is_a_plan_that_spares_nobody() {
    assert_eq!(Plan::of(7), Plan::of(7));
    assert_ne!(Plan::of(7), Plan::of(8));
    for seed in 0..20 {
        let plan = Plan::of(seed);
        let starts = |step: &&Step| matches!(step, Step::Start { .. });
        assert!(plan.work.iter().flatten().filter(starts).count() > WORKERS * SLOTS);
        assert!(plan.changes.contains(&Change::ReplaceGateway));
        for (target, faults) in &plan.trouble {
            assert!(faults.iter().any(|fault| fault.kind == Kind::Kill), "{target:?}: {faults:?}");
        }
    }
}
