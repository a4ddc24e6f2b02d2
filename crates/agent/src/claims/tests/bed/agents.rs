//! Agents of a bed: they start with everything read, and their kernel does everything at once.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_cni::Failure;
use tenure_ipam::{Cidr, Subnet};
use tenure_testbed::clock::RuntimeClock;
use tokio_util::sync::CancellationToken;

use super::{Agent, Bed, SYSTEM, until};
use crate::claims::{Claims, ClaimsOptions, Reason};
use crate::coil::{Asked, Coil, Resolve};
use crate::drive::{Executor, NodeChannel};
use crate::journal::{Image, Record};
use crate::key::Pod;
use crate::node::{Action, Event, Link, Node, PoolFacts, SeenBlock, Settings};
use crate::pods::Pods;
use crate::serve::{Dialect, PostponedDels, Service};
use crate::testing::Obedient;
use crate::whereabouts::Whereabouts;
use crate::whereabouts::ledgers::{self, Ledgers};
use crate::whereabouts::slices::{self, Slices};

/// Everybody has the pool `default`.
#[derive(Debug)]
struct Default;

impl Resolve for Default {
    async fn resolve(&self, asked: Asked) -> Result<(String, Pod), Failure> {
        let pod = asked.pod.unwrap_or_default();
        Ok(("default".into(), Pod { namespace: pod.namespace, name: pod.name, uid: pod.uid }))
    }
}

/// Does everything at once, and remembers what.
struct Kernelless {
    /// Commits, and says what is different of slices.
    within: Obedient,
    asked: Arc<Mutex<Vec<Action>>>,
}

impl Executor for Kernelless {
    fn record(&mut self, records: Vec<Record>) {
        self.within.record(records);
    }

    fn carry_out(&mut self, action: Action) {
        self.asked.lock().unwrap().push(action.clone());
        let node = &self.within.node;
        match action {
            Action::Wire(job) => {
                let pod_mac = job.wiring.mac.unwrap_or_else(|| "02:00:00:00:00:07".into());
                let (host_name, host_mac) = ("tnr1".into(), "0a:54:65:6e:75:72".into());
                let link = Link { host_name, host_mac, pod_mac, mtu: 1500 };
                node.tell(Event::Wired { job: job.job, link });
            }
            Action::Unwire { job, .. } => node.tell(Event::Unwired { job }),
            Action::Inspect(job) => {
                node.tell(Event::Inspected { job: job.job, differences: Vec::new() });
            }
            _ => {}
        }
    }
}

impl Bed {
    /// An agent that has read everything, and waits for claims as long as it takes.
    pub(in crate::claims) async fn agent(&self) -> Agent {
        self.agent_after(Image::default()).await
    }

    /// One with the journal of one before.
    pub(in crate::claims) async fn agent_after(&self, journal: Image) -> Agent {
        let patience = crate::testing::SOON;
        self.agent_with(journal, ClaimsOptions { patience, ..ClaimsOptions::default() }).await
    }

    /// One on whose node this network was set up to let addresses outlive pods.
    pub(in crate::claims) async fn agent_of_network(&self, network: &str) -> Agent {
        let (patience, cluster_network) = (crate::testing::SOON, Some(network.to_owned()));
        self.agent_with(
            Image::default(),
            ClaimsOptions { patience, cluster_network, ..ClaimsOptions::default() },
        )
        .await
    }

    /// One that has read claims, too, and waits for nothing.
    pub(in crate::claims) async fn hasty_agent(&self) -> Agent {
        let patience = Duration::from_millis(50);
        let agent =
            self.agent_with(Image::default(), ClaimsOptions { patience, ..ClaimsOptions::default() }).await;
        agent.claims.watch(Reason::Reference);
        let listed = || agent.claims.health().watches[crate::claims::CLAIMS].listed;
        until("the claims", async || listed().then_some(())).await;
        agent
    }

    async fn agent_with(&self, journal: Image, options: ClaimsOptions) -> Agent {
        let (channel, stop) = (NodeChannel::new(), CancellationToken::new());
        let node = channel.handle();
        let claim_uses = journal.claim_uses().count();
        for event in routed_pool() {
            node.tell(event);
        }
        for event in [Event::Journal(journal.clone()), Event::Kernel(Vec::new()), Event::ApiRead] {
            node.tell(event);
        }
        let client = self.faults.client(self.server.clone(), SYSTEM);
        let wanted = slices::SlicesOptions {
            debounce: Duration::from_millis(20),
            ..slices::SlicesOptions::new("node-1", SYSTEM)
        };
        let slices = Slices::start(client.clone(), wanted, RuntimeClock, node.clone(), stop.clone());
        let (journal, asked) = (Arc::new(Mutex::new(journal)), Arc::default());
        let within = Obedient {
            node: node.clone(),
            slices: slices.clone(),
            journal: Arc::clone(&journal),
            position: 0,
        };
        let executor = Kernelless { within, asked: Arc::clone(&asked) };
        let settings = Settings { sources: vec![slices::SOURCE], ..Settings::new("node-1") };
        let driver = channel.driver(Node::new(settings), RuntimeClock, executor);
        tokio::spawn(driver.run(stop.clone().cancelled_owned()));
        let directory = self.directory.path().join("node-1");
        let wanted = ledgers::LedgersOptions {
            patience: Duration::from_millis(300),
            ..ledgers::LedgersOptions::new("node-1", directory.join("ledgers"))
        };
        let ledgers = Ledgers::new(client.clone(), wanted, RuntimeClock, stop.clone());
        let pods = Pods::new(client.clone(), "node-1", RuntimeClock, stop.clone());
        let around = (node.clone(), pods.clone(), None);
        let claims = Claims::start(client, options, RuntimeClock, around, stop.clone());
        if claim_uses > 0 {
            claims.watch(Reason::ClaimUses);
        }
        let tombstones = directory.join("tombstones");
        let whereabouts =
            Whereabouts::new(ledgers, slices, pods, &directory, false).with_claims(Some(claims.clone()));
        let gateways = ("169.254.1.1".parse().unwrap(), "fe80::1".parse().unwrap());
        let coil = Coil::new(Default, gateways).with_claims(Some(claims.clone()));
        let postponed = PostponedDels::of(&tombstones);
        let dialects: Vec<Arc<dyn Dialect>> = vec![Arc::new(whereabouts), Arc::new(coil)];
        let service = Service::new(node.clone(), RuntimeClock, dialects, Some(postponed));
        let agent = Agent { node, claims, service, journal, asked, tombstones, _life: stop.drop_guard() };
        until("the node", async || agent.node.look(Node::is_ready).await.unwrap().then_some(())).await;
        agent.claims.ready().await;
        agent
    }
}

/// The pool `default`, and a block of this node's.
fn routed_pool() -> [Event; 2] {
    let cidr = |text: &str| text.parse::<Cidr>().unwrap();
    let subnets = vec![Subnet::dual(cidr("10.1.0.0/16"), cidr("fd01::/112"))];
    let facts = PoolFacts { subnets, block_bits: 8, ..PoolFacts::default() };
    let block = SeenBlock {
        name: "default-0".into(),
        uid: "block-uid".into(),
        node: "node-1".into(),
        pool: "default".into(),
        subnet: Subnet::dual(cidr("10.1.0.0/24"), cidr("fd01::/120")),
        reserved: false,
        deleting: false,
        releasing: false,
        draining: false,
        pod: None,
    };
    [Event::PoolChanged { name: "default".into(), facts }, Event::BlockSeen(block)]
}
