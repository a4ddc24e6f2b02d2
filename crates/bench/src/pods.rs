//! Pods get addresses: `tenured`, `tenure-controller` and `tenure-cni` on a real API server and in real namespaces, beside
//! ptp + host-local, and beside Coil where its programs are given. A call is a whole execution of the plugin.
//!
//! Everybody has a host of his own, and they take turns, so that the machine's noise is everybody's. All of it is made of
//! namespaces and processes that end with this one.

mod cluster;
mod coil;
mod figures;
mod ours;
mod party;
mod ptp;
mod rows;
mod side;
mod size;

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::host::programs::Programs;
use crate::host::sampled::{count, nanoseconds};
use crate::host::say;
use crate::measure::Effort;
use crate::report::{Measured, Report};
use cluster::{crowd, single};
use coil::Coil;
use figures::Figures;
use ours::Ours;
use party::Party;
use ptp::Ptp;
use side::Pace;
use size::Size;

/// The pods that come and go.
const COMING: &str = "pod";
/// The pods that are there meanwhile.
const STANDING: &str = "standing";
/// How many pods are added at once while nobody looks.
const BATCH: usize = 100;

/// All figures, in a table for each peer.
pub(crate) fn measure(
    effort: Effort,
    long: bool,
    programs: &Programs,
    peer: Option<&Path>,
) -> Result<Measured> {
    let runtime = tokio::runtime::Runtime::new()?;
    let mut run = Run::start(runtime.handle(), Size::of(effort, long), programs, peer)?;
    let measured = run.measure();
    let failure = measured.with_context(|| format!("the agent said last:\n{}", run.ours.tail())).err();
    Ok(Measured { reports: run.reports(), failure })
}

/// A peer, and why it was not measured further.
struct Peer {
    party: Box<dyn Party>,
    gave_up: Option<String>,
}

/// Those who are measured, and what came of it so far.
struct Run {
    ours: Ours,
    peers: Vec<Peer>,
    /// Ours, then the peers'.
    figures: Vec<Figures>,
    size: Size,
    /// Of our own calls to the API server.
    calls_per_add: f64,
    /// Of the plugin, the agent and the controller.
    sizes: [f64; 3],
    inside: [Vec<f64>; 2],
}

impl Run {
    fn start(
        runtime: &tokio::runtime::Handle,
        size: Size,
        programs: &Programs,
        peer: Option<&Path>,
    ) -> Result<Self> {
        say("start an API server, the programs and their peers");
        let sizes = programs.sizes()?;
        let ours = Ours::start(runtime, programs, size.pools())?;
        let mut peers: Vec<Box<dyn Party>> = vec![Box::new(Ptp::start()?)];
        if let Some(peer) = peer {
            peers.push(Box::new(Coil::start(runtime, peer, size.pools())?));
        }
        let peers: Vec<Peer> = peers.into_iter().map(|party| Peer { party, gave_up: None }).collect();
        let figures = (0..=peers.len()).map(|_| Figures::default()).collect();
        let mut run =
            Self { ours, peers, figures, size, calls_per_add: f64::NAN, sizes, inside: Default::default() };
        let pods = run.size.pods;
        run.each(|party, _| {
            party.expect("default", COMING, 0..pods)?;
            party.side().make(COMING, 0..pods)
        })?;
        Ok(run)
    }

    fn measure(&mut self) -> Result<()> {
        self.one_by_one()?;
        self.at_once()?;
        self.without_blocks()?;
        self.beside_others()
    }

    fn reports(&mut self) -> Vec<Report> {
        let own = rows::Own {
            inside: &self.inside,
            calls_per_add: self.calls_per_add,
            sizes: self.sizes,
            said: self.ours.side.last_failure.take(),
            calls: (self.ours.side.calls, self.ours.side.failed),
            left: self.ours.side.left,
        };
        let (ours, theirs) = self.figures.split_at(1);
        let (Some(ours), size) = (ours.first(), &self.size) else { return Vec::new() };
        self.peers
            .iter_mut()
            .zip(theirs)
            .map(|(peer, figures)| {
                let mut report = rows::report(size, &own, ours, peer.party.as_mut(), figures);
                if let Some(why) = &peer.gave_up {
                    report.note(&format!("{} was not measured further: {why}", peer.party.side().name));
                }
                report
            })
            .collect()
    }

    /// Lets everybody do something in turn. What a peer fails at ends its measurement and not ours.
    fn each(&mut self, mut act: impl FnMut(&mut dyn Party, &mut Figures) -> Result<()>) -> Result<()> {
        let Some((ours, theirs)) = self.figures.split_first_mut() else { return Ok(()) };
        act(&mut self.ours, ours).context("measuring Tenure")?;
        for (peer, figures) in self.peers.iter_mut().zip(theirs) {
            if peer.gave_up.is_none()
                && let Err(error) = act(peer.party.as_mut(), figures)
            {
                say(&format!("{} is not measured further: {error:#}", peer.party.side().name));
                peer.gave_up = Some(format!("{error:#}"));
            }
        }
        Ok(())
    }

    /// ADD and DEL, one at a time.
    fn one_by_one(&mut self) -> Result<()> {
        say("ADD and DEL, one at a time");
        let (pods, rounds) = (self.size.pods, self.size.rounds);
        // What the first pod's block brought with it has passed.
        std::thread::sleep(std::time::Duration::from_secs(1));
        let (calls, logged) = (self.ours.api_calls()?, self.ours.logged()?);
        for _ in 0..rounds {
            self.each(|party, figures| {
                let (added, adding) = party.side().add(COMING, 0..pods, "default", Pace::OneByOne)?;
                let (deleting, _) = party.side().del(&added, Pace::OneByOne)?;
                figures.add.take(&adding);
                figures.del.take(&deleting);
                Ok(())
            })?;
        }
        self.calls_per_add = (self.ours.api_calls()? - calls) / count(pods * rounds);
        for (verb, inside) in ["ADD", "DEL"].iter().zip(&mut self.inside) {
            *inside = self.ours.inside(verb, logged)?.iter().map(nanoseconds).collect();
        }
        Ok(())
    }

    /// Many ADD and DEL at once, of addresses that the node has.
    fn at_once(&mut self) -> Result<()> {
        say("ADD and DEL, many at once");
        let pods = self.size.pods;
        for _ in 0..self.size.rounds {
            self.each(|party, figures| {
                let (added, adding) = party.side().add(COMING, 0..pods, "default", Pace::AtOnce)?;
                let (deleting, more) = party.side().del(&added, Pace::AtOnce)?;
                figures.gone.push(nanoseconds(&(deleting.wall + more)));
                figures.add_at_once.take(&adding);
                figures.del_at_once.take(&deleting);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// ADDs of a pool that the node has no block of.
    fn without_blocks(&mut self) -> Result<()> {
        say("ADD on a node without blocks");
        let (pods, rounds) = (self.size.pods, self.size.rounds);
        for number in 0..self.size.crowds {
            let namespace = crowd(number);
            self.each(|party, figures| {
                if !party.has_blocks() && number >= rounds {
                    return Ok(());
                }
                party.expect(&namespace, COMING, 0..pods)?;
                let (added, adding) = party.side().add(COMING, 0..pods, &namespace, Pace::AtOnce)?;
                party.side().del(&added, Pace::AtOnce)?;
                figures.crowd.take(&adding);
                Ok(())
            })?;
        }
        for number in 0..self.size.singles {
            let namespace = single(number);
            self.each(|party, figures| {
                party.expect(&namespace, COMING, 0..1)?;
                let (added, adding) = party.side().add(COMING, 0..1, &namespace, Pace::OneByOne)?;
                party.side().del(&added, Pace::OneByOne)?;
                figures.single.take(&adding);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// With other pods on the node, and in the cluster.
    fn beside_others(&mut self) -> Result<()> {
        let mut standing = 0;
        for level in self.size.levels.clone() {
            say(&format!("with {level} pods on the node"));
            self.crowd_up(&mut standing, level - 1)?;
            if level == self.size.memory_at {
                self.memory()?;
            }
            let few = self.size.pods.min(30);
            for _ in 0..self.size.rounds.min(3) {
                self.each(|party, figures| {
                    let (added, adding) = party.side().add(COMING, 0..few, "default", Pace::OneByOne)?;
                    let (deleting, _) = party.side().del(&added, Pace::OneByOne)?;
                    let (add, del) = figures.beside.entry(level).or_default();
                    add.take(&adding);
                    del.take(&deleting);
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    /// Adds pods that stay.
    fn crowd_up(&mut self, standing: &mut usize, wanted: usize) -> Result<()> {
        self.each(|party, _| {
            party.expect("default", STANDING, *standing..wanted)?;
            party.side().make(STANDING, *standing..wanted)?;
            let batches = (*standing..wanted).step_by(BATCH);
            for batch in batches.map(|first| first..(first + BATCH).min(wanted)) {
                party.side().add(STANDING, batch, "default", Pace::AtOnce)?;
            }
            Ok(())
        })?;
        *standing = wanted;
        Ok(())
    }

    /// What the agents have in use, before and after pods came to other nodes.
    fn memory(&mut self) -> Result<()> {
        let strangers = self.size.strangers;
        self.each(|party, figures| {
            let before = party.memory()?;
            party.strangers(strangers)?;
            figures.memory = before.zip(party.memory()?);
            Ok(())
        })
    }
}
