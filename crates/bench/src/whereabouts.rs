//! Networks that ask Whereabouts for addresses: `tenured` and `tenure-cni`, installed as `whereabouts`, on a real API server,
//! beside a Whereabouts binary where one is given, and beside what the API server can do at all: plain creates.
//!
//! A call is a whole execution of the plugin. Everybody takes turns on one API server, so that the machine's noise is
//! everybody's; a peer has a host and namespaces of its own there, because each of its calls lists its whole namespace.

mod caller;
mod cluster;
mod figures;
mod ours;
pub(crate) mod peer;
mod rows;
mod size;

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::host::programs::Programs;
use crate::host::sampled::{count, nanoseconds};
use crate::host::say;
use crate::measure::Effort;
use crate::report::{Measured, Report};
use cluster::Cluster;
use figures::{Figures, Kind};
use ours::Ours;
use peer::Peer;
use size::Size;

/// The node, and its object.
const NODE: &str = "measured";
/// Where Whereabouts' objects are.
const NAMESPACE: &str = "kube-system";
/// A range that all nodes share.
const SHARED: (&str, &str) = ("shared", "10.1.0.0/16");
/// A range that is cut into slices, each as large as that.
const SLICED: (&str, &str) = ("sliced", "10.128.0.0/12");

/// All figures: a table beside plain creates, and one beside a peer if there is one.
pub(crate) fn measure(effort: Effort, programs: &Programs, peer: Option<&Path>) -> Result<Measured> {
    let runtime = tokio::runtime::Runtime::new()?;
    let mut run = Run::start(runtime.handle(), Size::of(effort), programs, peer)?;
    let measured = run.measure();
    let failure = measured.with_context(|| format!("the agent said last:\n{}", run.ours.tail())).err();
    Ok(Measured { reports: run.reports(), failure })
}

/// Those who are measured, and what came of it so far.
struct Run {
    cluster: Cluster,
    ours: Ours,
    peer: Option<Peer>,
    /// Why the peer was not measured further.
    gave_up: Option<String>,
    size: Size,
    figures: Figures,
    creates: Figures,
    theirs: Figures,
}

impl Run {
    fn start(
        runtime: &tokio::runtime::Handle,
        size: Size,
        programs: &Programs,
        peer: Option<&Path>,
    ) -> Result<Self> {
        say("start an API server and the programs");
        let cluster = Cluster::start(runtime)?;
        // Before anything else takes its time: it may be no such program.
        let peer = peer.map(|program| Peer::start(&cluster, program)).transpose()?;
        let ours = Ours::start(&cluster, programs)?;
        let (figures, creates, theirs) = (Figures::default(), Figures::default(), Figures::default());
        Ok(Self { cluster, ours, peer, gave_up: None, size, figures, creates, theirs })
    }

    fn measure(&mut self) -> Result<()> {
        for at_once in self.size.paces.clone() {
            say(&format!("ADD and DEL of a shared range, {} at once", at_once.callers));
            self.at_once(Kind::Shared, at_once)?;
        }
        for level in self.size.held.clone() {
            say(&format!("the same with {level} held"));
            self.beside(level)?;
        }
        say("give this node a slice");
        let config = network(SLICED, Some("/16"));
        self.ours.take_slice(&self.cluster, SLICED.0, &config)?;
        for at_once in self.size.paces.clone() {
            say(&format!("ADD and DEL of a slice, {} at once", at_once.callers));
            self.at_once(Kind::Sliced, at_once)?;
        }
        Ok(())
    }

    fn reports(&mut self) -> Vec<Report> {
        let own = rows::Own { size: &self.size, figures: &self.figures, caller: &self.ours.caller };
        let mut reports = vec![rows::beside_creates(&own, &self.creates)];
        if let Some(peer) = &self.peer {
            let mut report = rows::beside_peer(&own, &self.theirs, &peer.caller);
            if let Some(why) = &self.gave_up {
                report.note(&format!("{} was not measured further: {why}", peer.caller.name));
            }
            reports.push(report);
        }
        reports
    }

    /// Rounds of ADD and DEL at one pace.
    fn at_once(&mut self, kind: Kind, pace: size::Pace) -> Result<()> {
        let config = match kind {
            Kind::Shared => network(SHARED, None),
            Kind::Sliced => network(SLICED, Some("/16")),
        };
        // What a network's first ADD reads is no part of those that follow.
        self.ours.warm_up(&config)?;
        let logged = self.ours.logged()?;
        for round in 0..self.size.rounds {
            let figures = self.figures.pace(kind, pace.callers);
            let (before, used) = (self.ours.api_calls()?, self.ours.processor_time(&self.cluster)?);
            let (added, adding) = self.ours.caller.add(&config, pace.calls, pace.callers)?;
            let since = self.ours.processor_time(&self.cluster)?;
            for ((figure, since), used) in figures.processor.iter_mut().zip(since).zip(used) {
                *figure += (since - used) / count(pace.calls * self.size.rounds);
            }
            figures.api_calls.push((self.ours.api_calls()? - before) / count(pace.calls));
            figures.add.take(&adding);
            figures.del.take(&self.ours.caller.del(&config, &added, pace.callers)?);
            if pace.callers >= 100 {
                let (added, adding) = self.ours.caller.add(&config, pace.callers, pace.callers)?;
                figures.burst.take(&adding);
                self.ours.caller.del(&config, &added, pace.callers)?;
            }
            let creating = self.cluster.create_plainly(pace.calls, pace.callers)?;
            self.creates.pace(kind, pace.callers).add.take(&creating);
            if kind == Kind::Shared && round < self.size.peer_rounds {
                self.peer(|run, peer| run.peer_at_once(peer, pace));
            }
        }
        let figures = self.figures.pace(kind, pace.callers);
        figures.inside = self.ours.inside("ADD", logged)?.iter().map(nanoseconds).collect();
        Ok(())
    }

    /// Measures the peer, if there is one. What it fails at ends its measurement and not ours.
    fn peer(&mut self, measure: impl FnOnce(&mut Self, &mut Peer) -> Result<()>) {
        let Some(mut peer) = self.peer.take() else { return };
        if self.gave_up.is_none()
            && let Err(error) = measure(self, &mut peer)
        {
            say(&format!("{} is not measured further: {error:#}", peer.caller.name));
            self.gave_up = Some(format!("{error:#}"));
        }
        self.peer = Some(peer);
    }

    fn peer_at_once(&mut self, peer: &mut Peer, pace: size::Pace) -> Result<()> {
        let config = peer.network(&self.cluster, "peer", network(SHARED, None))?;
        let figures = self.theirs.pace(Kind::Shared, pace.callers);
        let before = self.cluster.whereabouts_calls()?;
        let (added, adding) = peer.caller.add(&config, pace.peer_calls, pace.callers)?;
        figures.api_calls.push((self.cluster.whereabouts_calls()? - before) / count(pace.peer_calls));
        if pace.peer_calls == pace.callers {
            figures.burst.take(&adding);
        }
        figures.add.take(&adding);
        figures.del.take(&peer.caller.del(&config, &added, pace.callers)?);
        Ok(())
    }

    /// Rounds in a range of which much is held already.
    fn beside(&mut self, level: usize) -> Result<()> {
        let name = format!("held-{level}");
        let range = format!("10.{}.0.0/16", 2 + self.figures.held.len());
        let (held, config) = ((name.as_str(), range.as_str()), network((&name, &range), None));
        self.cluster.hold_in_parts(held, level)?;
        let figures = self.figures.held.entry(level).or_default();
        let (first, taken) = self.ours.caller.add(&config, 1, 1)?;
        figures.first = taken.each.first().map(nanoseconds);
        // Objects that somebody else made get their first write from us once.
        self.ours.caller.del(&config, &first, 1)?;
        self.ours.warm_up(&config)?;
        let (few, many) = (self.size.beside.calls, self.size.beside_at_once);
        for _ in 0..self.size.rounds.min(3) {
            let before = self.ours.api_calls()?;
            let (added, adding) = self.ours.caller.add(&config, few, 1)?;
            figures.api_calls.push((self.ours.api_calls()? - before) / count(few));
            figures.add.take(&adding);
            figures.del.take(&self.ours.caller.del(&config, &added, 1)?);
            let (added, adding) = self.ours.caller.add(&config, many.calls, many.callers)?;
            figures.add_at_once.take(&adding);
            figures.del_at_once.take(&self.ours.caller.del(&config, &added, many.callers)?);
        }
        if level <= Peer::MOST_HELD {
            self.peer(|run, peer| run.peer_beside(peer, held, &config, level));
        }
        Ok(())
    }

    /// The same by the peer.
    fn peer_beside(
        &mut self,
        peer: &mut Peer,
        held: (&str, &str),
        config: &Value,
        level: usize,
    ) -> Result<()> {
        let namespace = format!("peer-{}", held.0);
        let config = peer.network(&self.cluster, &namespace, config.clone())?;
        self.cluster.hold_in_one(&namespace, held, level)?;
        let (added, adding) = peer.caller.add(&config, self.size.beside.peer_calls, 1)?;
        let figures = self.theirs.held.entry(level).or_default();
        figures.add.take(&adding);
        figures.del.take(&peer.caller.del(&config, &added, 1)?);
        Ok(())
    }
}

/// The CNI configuration of a network: its name and its range, and how large slices are, if it has them.
fn network((name, range): (&str, &str), slices: Option<&str>) -> Value {
    let mut config = json!({
        "cniVersion": "1.0.0",
        "name": name,
        "type": "macvlan",
        "master": "uplink",
        "ipam": {"type": "whereabouts", "network_name": name, "range": range},
    });
    if let Some(size) = slices {
        config["ipam"]["node_slice_size"] = json!(size);
    }
    config
}
