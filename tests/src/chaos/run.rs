//! One run: the programs, everything that goes wrong with them while somebody works, and what is printed if the run fails.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tenure_testbed::control_plane::Part;

use super::course::{Over, say};
use super::objects::Struck;
use super::programs::{Agent, Blame, Controller, Programs};
use super::proxy::Proxy;
use super::trouble::{Fault, Spell, Target};
use crate::agent::Cluster;

/// Runs beside the work: gets the number of steps that are done, and whether all are.
pub type Beside<'a> = &'a (dyn Fn(&AtomicUsize, &AtomicBool) + Sync);

impl<'a> Programs<'a> {
    /// These agents, and so many controllers with these arguments.
    pub fn start(
        cluster: &'a Cluster,
        agents: Vec<Agent<'a>>,
        controllers: usize,
        arguments: &[&str],
        proxy: Proxy,
    ) -> Self {
        let names = ["controller-a", "controller-b"][..controllers].iter();
        let controllers = names.map(|name| Controller::start(cluster, name, arguments)).collect();
        Self { cluster, agents, controllers, proxy, struck: Struck::default() }
    }

    /// Lets everything go wrong while `work` is done, which counts its steps. Afterwards the control plane runs.
    pub fn upset(
        &self,
        trouble: &[(Target, Vec<Fault>)],
        spells: &[Spell],
        blame: Blame<'_>,
        beside: &[Beside<'_>],
        work: impl FnOnce(&AtomicUsize),
    ) {
        let (done, over) = (AtomicUsize::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            let (done, over) = (&done, &over);
            for (target, faults) in trouble {
                scope.spawn(move || self.trouble(*target, faults, done, over, blame));
            }
            scope.spawn(move || self.spells(spells, done, over));
            for run in beside {
                scope.spawn(move || run(done, over));
            }
            // Whoever waits for more steps to be done does not wait for those of a worker that panicked.
            let _over = Over(over);
            work(done);
        });
        self.revive(Part::Etcd);
        self.revive(Part::ApiServer);
    }

    /// Fails unless every target was struck while others worked.
    pub fn assert_all_struck(&self, trouble: &[(Target, Vec<Fault>)]) {
        for (target, _) in trouble {
            self.struck.assert_each(&[target.name()]);
        }
    }
}

/// Looks again and again, with a pause between, until all steps are done.
pub fn look_until_over(pause: Duration, look: impl Fn() + Sync) -> impl Fn(&AtomicUsize, &AtomicBool) + Sync {
    move |_, over| {
        while !over.load(Ordering::SeqCst) {
            look();
            thread::sleep(pause);
        }
    }
}

/// Lets all workers do something at once.
pub fn each<W: Send>(workers: &mut [W], act: impl Fn(&mut W) + Sync) {
    thread::scope(|scope| {
        for worker in workers {
            let act = &act;
            scope.spawn(move || act(worker));
        }
    });
}

/// Prints what is needed to understand a failure, when it is dropped by one.
pub struct FailureReport<'a> {
    /// Whose logs are printed.
    pub programs: &'a Programs<'a>,
    /// The name of the test program.
    pub test: &'static str,
    /// What decided the run.
    pub seed: u64,
    /// What else is printed.
    pub more: &'a dyn Fn() -> String,
}

impl Drop for FailureReport<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.programs.tell();
            say(&(self.more)());
            let Self { test, seed, .. } = self;
            say(&format!("to see this again: TENURE_SEED={seed} cargo test -p tenure-tests --test {test}"));
        }
    }
}

/// The last lines of a log.
pub fn last_lines(log: &str, count: usize) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
