//! A cluster of nodes, and everything that happens to it. Each scenario returns its figures.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use tenure_testbed::control_plane::{ApiRequests, Part};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::cluster::{Cluster, Used};
use super::counted::{Flows, now};
use super::crew::Hand;
use super::figures::{Figures, thousandths};
use super::order::{Answer, Begin, Churn, Order, Serve};
use super::worker::Way;
use super::{Plan, peer};
use crate::host::sampled::{count, percentile};
use crate::host::say;

/// How long after a restart of the API server is watched who comes back.
const COMING_BACK: Duration = Duration::from_secs(30);
/// How often progress is shown.
const SHOW_EVERY: Duration = Duration::from_secs(5);

/// A cluster whose nodes may have been started.
pub struct Run {
    plan: Plan,
    /// Before the cluster, so that nobody asks a server that is gone.
    hands: Vec<Hand>,
    leaders: Vec<Hand>,
    cluster: Cluster,
    runtime: Runtime,
    nodes: Vec<usize>,
    /// What the controllers that are gone have used.
    former: Used,
}

/// What everybody has used and sent at some moment.
struct Moment {
    at: u64,
    requests: ApiRequests,
    agents: BTreeMap<usize, Flows>,
    controller: Flows,
    used: [Used; 4],
}

impl Run {
    /// An API server with nodes, pods and networks, before anything of ours was started.
    pub fn start(plan: Plan) -> Result<Self> {
        let runtime = Runtime::new()?;
        let cluster = runtime.block_on(Cluster::real(plan.durable))?;
        Self::on(plan, runtime, cluster)
    }

    /// The same on the embedded API server, in this process.
    pub fn embedded(plan: Plan) -> Result<Self> {
        let runtime = Runtime::new()?;
        let cluster = runtime.block_on(Cluster::embedded())?;
        Self::on(plan, runtime, cluster)
    }

    fn on(plan: Plan, runtime: Runtime, cluster: Cluster) -> Result<Self> {
        let nodes: Vec<usize> = (0..plan.nodes).collect();
        runtime.block_on(async {
            cluster.networks(&plan).await?;
            cluster.nodes(&plan, &nodes, plan.pods).await
        })?;
        let mut run = Self {
            plan,
            hands: Vec::new(),
            leaders: Vec::new(),
            cluster,
            runtime,
            nodes,
            former: Used::default(),
        };
        for _ in 0..plan.workers.max(1) {
            run.hands.push(run.hand(run.cluster.way_of_agents())?);
        }
        Ok(run)
    }

    fn hand(&self, way: Way) -> Result<Hand> {
        let Plan { kind, networks, nodes, .. } = self.plan;
        match way {
            Way::Kubeconfig(kubeconfig) if self.plan.workers > 0 => {
                Hand::process(Begin { kubeconfig, kind, networks, nodes })
            }
            way => Hand::inside(way, &self.plan),
        }
    }

    /// Starts all agents at once, and a controller with them. If `failover`, it is killed when half of the nodes are served, and
    /// another one that is there already takes over.
    pub fn cold(&mut self, failover: bool) -> Result<Figures> {
        ensure!(
            !failover || self.plan.workers > 0,
            "only a controller in a process of its own can be killed"
        );
        self.leaders = (0..=usize::from(failover))
            .map(|_| self.hand(self.cluster.way_of_controllers()))
            .collect::<Result<_>>()?;
        let before = self.moment()?;
        self.leaders[0].order(&Order::Lead, &|_| {})?;
        let order = |nodes: &[usize]| {
            Order::Serve(Serve { nodes: nodes.to_vec(), pods: (0..self.plan.pods).collect() })
        };
        if !failover {
            let answer = self.all("served", &self.nodes, order, |_| Ok(()))?;
            return self.figures("cold start", &before, &answer);
        }
        let (half, killed) = (self.plan.nodes / 2, AtomicUsize::new(0));
        let leader = self.leaders.remove(0);
        let second = &self.leaders[0];
        let leader = std::sync::Mutex::new(Some(leader));
        let former = std::sync::Mutex::new(Used::default());
        let answer = self.all("served", &self.nodes, order, |done| {
            let mut leader = leader.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if done < half {
                return Ok(());
            }
            let Some(leader) = leader.take() else { return Ok(()) };
            second.order(&Order::Lead, &|_| {})?;
            *former.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = leader.used()?;
            leader.kill()?;
            killed.store(done, Ordering::SeqCst);
            say("the leading controller was killed");
            Ok(())
        })?;
        self.former = former.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        ensure!(killed.into_inner() > 0, "all nodes were served before the controller could be killed");
        self.figures("failover", &before, &answer)
    }

    /// A pod more on each node, all at once; everything else runs already.
    pub fn burst(&mut self) -> Result<Figures> {
        let pod = self.plan.pods;
        self.plan.pods += 1;
        self.runtime.block_on(self.cluster.pods(&self.plan, &self.nodes, pod..pod + 1))?;
        let before = self.moment()?;
        let order = |nodes: &[usize]| Order::Serve(Serve { nodes: nodes.to_vec(), pods: vec![pod] });
        let answer = self.all("served", &self.nodes, order, |_| Ok(()))?;
        self.figures("a pod on each node at once", &before, &answer)
    }

    /// The same with somebody else's plugin for Whereabouts' networks, each call an execution of its program.
    pub fn peer(&self, program: &Path) -> Result<Figures> {
        let before = self.moment()?;
        let answer = self.runtime.block_on(peer::burst(&self.cluster, &self.plan, program))?;
        let mut figures = self.figures("the peer, a pod on each node at once", &before, &answer)?;
        // These are about our agents, who had nothing to do.
        figures
            .values
            .retain(|name, _| !["agent", "controller", "writes"].iter().any(|of| name.starts_with(of)));
        Ok(figures)
    }

    /// More nodes with pods come at once.
    pub fn grow(&mut self, nodes: usize) -> Result<Figures> {
        let first = self.nodes.last().map_or(0, |last| last + 1);
        let new: Vec<usize> = (first..first + nodes).collect();
        self.runtime.block_on(self.cluster.nodes(&self.plan, &new, self.plan.pods))?;
        self.nodes.extend(&new);
        let before = self.moment()?;
        let pods: Vec<usize> = (0..self.plan.pods).collect();
        let order = |nodes: &[usize]| Order::Serve(Serve { nodes: nodes.to_vec(), pods: pods.clone() });
        let answer = self.all("served", &new, order, |_| Ok(()))?;
        self.figures("growth", &before, &answer)
    }

    /// Restarts all agents, a tenth at once.
    pub fn restart(&mut self) -> Result<Figures> {
        let before = self.moment()?;
        let at_once = self.plan.nodes.div_ceil(10 * self.hands.len());
        let order = |nodes: &[usize]| Order::Restart { nodes: nodes.to_vec(), at_once };
        let answer = self.all("restarted", &self.nodes, order, |_| Ok(()))?;
        self.figures("rolling restart", &before, &answer)
    }

    /// Deletes a tenth of the nodes, and as many others come.
    pub fn replace(&mut self) -> Result<Figures> {
        let tenth = self.plan.nodes.div_ceil(10);
        let gone: Vec<usize> = self.nodes.drain(..tenth).collect();
        self.all("gone", &gone, |nodes| Order::Forget { nodes: nodes.to_vec() }, |_| Ok(()))?;
        self.runtime.block_on(self.cluster.remove(&self.plan, &gone))?;
        let mut figures = self.grow(tenth)?;
        "a tenth replaced".clone_into(&mut figures.scenario);
        Ok(figures)
    }

    /// Lets pods come and go at this rate. If `restart`, the API server is restarted in the middle.
    pub fn churn(&mut self, rate: f64, seconds: u64, restart: bool) -> Result<Figures> {
        let before = self.moment()?;
        let (pods, share) = (self.plan.pods, rate / count(self.hands.len()));
        let order =
            |nodes: &[usize]| Order::Churn(Churn { nodes: nodes.to_vec(), pods, rate: share, seconds });
        let (began, restarted) = (Instant::now(), AtomicUsize::new(0));
        let answer = self.all("pods", &self.nodes, order, |_| {
            let due = restart && began.elapsed() > Duration::from_secs(seconds / 2);
            if due && restarted.swap(1, Ordering::SeqCst) == 0 {
                say("the API server is restarted");
                let plane = self.cluster.plane().context("the embedded API server cannot be restarted")?;
                self.runtime.block_on(plane.restart(Part::ApiServer))?;
            }
            Ok(())
        })?;
        self.figures(if restart { "API server restarted" } else { "steady churn" }, &before, &answer)
    }

    /// Restarts the API server, and notes when lists and watches are asked for.
    pub fn reconnect(&mut self) -> Result<Figures> {
        let Some(plane) = self.cluster.plane() else { bail!("the embedded API server cannot be restarted") };
        let before = self.moment()?;
        self.all("", &self.nodes, |_| Order::Moments { begin: true }, |_| Ok(()))?;
        let down = now();
        self.runtime.block_on(plane.restart(Part::ApiServer))?;
        thread::sleep(COMING_BACK);
        let watched = now().saturating_sub(down) / 100;
        let answer = self.all("", &self.nodes, |_| Order::Moments { begin: false }, |_| Ok(()))?;
        let mut curve = vec![0; usize::try_from(watched)?];
        for moment in &answer.moments {
            let tenth = usize::try_from(moment.saturating_sub(down) / 100).unwrap_or(usize::MAX);
            if let Some(place) = curve.get_mut(tenth) {
                *place += 1;
            }
        }
        let mut figures = self.figures("all watches come back", &before, &answer)?;
        let peak = curve.windows(10).map(|second| second.iter().sum::<u64>()).max().unwrap_or_default();
        figures.set("reconnects", float(curve.iter().sum()));
        figures.set("reconnects_peak", float(peak));
        figures.curve = curve;
        Ok(figures)
    }

    /// What passed between each node's agent and the API server so far.
    pub fn flows(&self) -> Result<BTreeMap<usize, Flows>> {
        let mut all = BTreeMap::new();
        for hand in &self.hands {
            all.extend(hand.order(&Order::Count, &|_| {})?.flows);
        }
        Ok(all)
    }

    /// Writes where the API server spends its processor time from now on, for `seconds`, to a file; says so if it cannot.
    pub fn profile(&self, seconds: u64, file: &Path) -> Result<JoinHandle<()>> {
        let (profile, file) = (self.cluster.profile(seconds, file)?, file.display().to_string());
        Ok(self.runtime.spawn(async move {
            match profile.await {
                Ok(()) => say(&format!("the profile of the API server is in {file}")),
                Err(error) => say(&format!("there is no profile of the API server: {error:#}")),
            }
        }))
    }

    /// Waits for a profile.
    pub fn wait_for(&self, profile: JoinHandle<()>) -> Result<()> {
        Ok(self.runtime.block_on(profile)?)
    }

    /// How many connections the API server has, of agents, controller and people; nothing of an embedded one.
    pub fn connections(&self) -> Result<Option<usize>> {
        self.cluster.connections()
    }

    /// Has all workers do something for these nodes. `look` learns how many are done, and may do something meanwhile.
    fn all(
        &self,
        done: &str,
        nodes: &[usize],
        order: impl Fn(&[usize]) -> Order + Sync,
        look: impl Fn(usize) -> Result<()>,
    ) -> Result<Answer> {
        let counts: Vec<AtomicUsize> = self.hands.iter().map(|_| AtomicUsize::new(0)).collect();
        let began = Instant::now();
        thread::scope(|scope| {
            let working: Vec<_> = self
                .hands
                .iter()
                .enumerate()
                .map(|(which, hand)| {
                    let own: Vec<usize> =
                        nodes.iter().copied().filter(|node| node % self.hands.len() == which).collect();
                    let (order, total) = (&order, &counts[which]);
                    scope.spawn(move || {
                        hand.order(&order(&own), &|count| total.store(count, Ordering::Relaxed))
                    })
                })
                .collect();
            let (mut shown, mut looked) = (Instant::now(), Ok(()));
            while looked.is_ok() && working.iter().any(|worker| !worker.is_finished()) {
                thread::sleep(Duration::from_millis(5));
                let count = counts.iter().map(|count| count.load(Ordering::Relaxed)).sum();
                looked = look(count);
                if shown.elapsed() > SHOW_EVERY && !done.is_empty() {
                    shown = Instant::now();
                    say(&format!("{:.0} s: {count} {done}", began.elapsed().as_secs_f64()));
                }
            }
            let mut all = Answer::default();
            for worker in working {
                let Ok(answer) = worker.join() else { bail!("the thread of a worker ended early") };
                all.merge(answer?);
            }
            looked.map(|()| all)
        })
    }

    fn moment(&self) -> Result<Moment> {
        let mut controller = Flows::default();
        for leader in &self.leaders {
            controller.merge(&leader.order(&Order::Count, &|_| {})?.controller);
        }
        let sum = |hands: &[Hand], first: Used| {
            hands.iter().try_fold(first, |all, hand| {
                let used = hand.used()?;
                anyhow::Ok(Used {
                    processor: all.processor + used.processor,
                    memory: all.memory + used.memory,
                })
            })
        };
        let former = Used { memory: 0.0, ..self.former };
        let used = [
            sum(&self.hands, Used::default())?,
            sum(&self.leaders, former)?,
            self.cluster.used(Part::ApiServer)?,
            self.cluster.used(Part::Etcd)?,
        ];
        let requests = self.runtime.block_on(self.cluster.requests())?;
        Ok(Moment { at: now(), requests, agents: self.flows()?, controller, used })
    }

    fn figures(&self, scenario: &str, before: &Moment, answer: &Answer) -> Result<Figures> {
        let after = self.moment()?;
        let mut figures = Figures {
            scenario: scenario.to_owned(),
            kind: self.plan.kind,
            nodes: self.plan.nodes,
            networks: self.plan.networks,
            pods: self.plan.pods,
            values: BTreeMap::new(),
            requests: BTreeMap::new(),
            curve: Vec::new(),
        };
        figures.set("failed", float(answer.failed));
        if !answer.calls.is_empty() {
            figures.calls(before.at, &answer.calls);
        }
        if let Some(said) = &answer.last_failure {
            say(&format!("a call that failed said: {}", said.trim()));
        }
        for (name, at) in [("answering", &answer.answering), ("served", &answer.served)] {
            if let Some(last) = at.iter().max() {
                figures.set(name, thousandths(last.saturating_sub(before.at)));
            }
        }
        let away: Vec<f64> = answer.away.iter().copied().map(thousandths).collect();
        if !away.is_empty() {
            figures.set("away_p50", percentile(&away, 50));
            figures.set("away_max", percentile(&away, 100));
        }
        let nothing = Flows::default();
        let each = after.agents.iter();
        let each = each.map(|(number, flows)| flows.since(before.agents.get(number).unwrap_or(&nothing)));
        agents(&mut figures, &each.collect::<Vec<_>>());
        let controller = after.controller.since(&before.controller);
        let total = controller.total();
        figures.set("controller_requests", float(total.requests));
        figures.set("controller_events", float(total.events));
        figures.set("controller_received", float(total.received));
        figures.set("controller_sent", float(total.sent));
        let writes = figures.value("writes").unwrap_or_default() + float(controller.writes());
        figures.set("writes", writes);
        if !answer.calls.is_empty() {
            figures.set("writes_add", writes / count(answer.calls.len()));
        }
        let [agents, controller, server, etcd] = after.used;
        let nodes = count(self.nodes.len());
        let spent = |part: usize| after.used[part].processor - before.used[part].processor;
        for (name, value) in [
            ("agent_processor", spent(0) / nodes),
            ("agent_memory", agents.memory / nodes),
            ("controller_processor", spent(1)),
            ("controller_memory", controller.memory),
        ] {
            figures.set(name, value);
        }
        if let Some(connections) = self.cluster.connections()? {
            figures.set("connections", count(connections));
            for (name, value) in [
                ("server_memory", server.memory),
                ("server_processor", spent(2)),
                ("etcd_memory", etcd.memory),
                ("etcd_processor", spent(3)),
                ("database", self.cluster.database()?),
            ] {
                // A part that was restarted has used less than before.
                figures.set(name, if value < 0.0 { f64::NAN } else { value });
            }
            for (request, number) in after.requests.since(&before.requests).iter() {
                let kind = format!("{} {}", request.verb, request.resource);
                *figures.requests.entry(kind).or_default() += number;
            }
            figures.set("requests", float(figures.requests.values().sum()));
        }
        figures.values.retain(|_, value| !value.is_nan());
        Ok(figures)
    }
}

/// Figures of what passed between agents and the API server.
fn agents(figures: &mut Figures, each: &[Flows]) {
    let totals: Vec<_> = each.iter().map(Flows::total).collect();
    let mut set = |name: &str, of: fn(&super::Flow) -> u64| {
        let all: u64 = totals.iter().map(of).sum();
        figures.set(name, float(all) / count(totals.len().max(1)));
        figures.set(&format!("{name}_max"), float(totals.iter().map(of).max().unwrap_or_default()));
    };
    set("agent_requests", |flow| flow.requests);
    set("agent_events", |flow| flow.events);
    set("agent_received", |flow| flow.received);
    set("agent_sent", |flow| flow.sent);
    figures.set("writes", float(each.iter().map(Flows::writes).sum()));
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn float(number: u64) -> f64 {
    number as f64
}
