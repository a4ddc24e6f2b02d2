//! What a runtime says, all the way to an agent and back, with a journal and a kernel that do what they are told.

use tenure_agent::coil::{Asked, Coil, Resolve};
use tenure_agent::drive::{Executor, Handle, NodeChannel};
use tenure_agent::journal::{Image, Record};
use tenure_agent::node::{Link, PoolFacts, SeenBlock};
use tenure_agent::serve::Service;
use tenure_agent::{Action, Event, Node, Pod, Settings};
use tenure_cni::{Call, CniResult, Failure, NetworkConfig, Verb, Version, rpc};
use tenure_handles::SystemClock;
use tenure_ipam::Subnet;

use crate::words::Words;
use crate::{Violation, hold, plugin};

pub(crate) fn run(input: &[u8]) -> Result<(), Violation> {
    let words = Words::read(input);
    let Ok(call) = Call::read(|name| words.variable(name), words.stdin.to_vec()) else { return Ok(()) };
    if call.verb == Verb::Version {
        return Ok(());
    }
    let (verb, version) = (call.verb, NetworkConfig::parse(&call.config).map(|config| config.version));
    let message = rpc::Call::new(&call, "tenure");
    let reply = with_service(async |service| {
        let first = service.answer(verb, message.clone()).await;
        let again = service.answer(verb, message.clone()).await;
        // After an ADD that the node agreed to, its DEL works; and so does one after any other.
        let gone = service.answer(Verb::Del, message).await;
        (first, again, gone)
    })?;
    let (first, again, gone) = reply;
    check(verb, version.as_ref().ok().copied(), &first)?;
    if verb == Verb::Add {
        hold(first == again, || format!("ADD answered {first:?} and then {again:?}"))?;
        hold(first.failure.is_some() || gone.failure.is_none(), || format!("DEL after ADD: {gone:?}"))?;
    }
    Ok(())
}

/// What every answer must be.
pub(crate) fn check(verb: Verb, version: Option<Version>, reply: &rpc::Reply) -> Result<(), Violation> {
    if let Some(failure) = &reply.failure {
        hold(failure.code > 0 && !failure.message.is_empty(), || {
            format!("refused without words: {failure:?}")
        })?;
        return plugin::named(failure.code.into(), &failure.message, &failure.details);
    }
    if verb != Verb::Add {
        return hold(reply.result.is_empty(), || format!("{verb:?} answered {:?}", reply.result));
    }
    let result = plugin::object(&reply.result)?;
    let version = version.ok_or("an ADD without a readable configuration succeeded")?;
    hold(result["cniVersion"] == version.as_str(), || format!("{result} is not of {version:?}"))?;
    if version >= Version::V0_3_0 {
        let read = CniResult::from_json(&result).map_err(|failure| format!("{result}: {failure}"))?;
        hold(!read.ips.is_empty(), || format!("{result} has no address"))?;
    }
    Ok(())
}

/// Runs something with the service of a node that has a block for the pool `default`.
pub(crate) fn with_service<T>(ask: impl AsyncFnOnce(Service<SystemClock>) -> T) -> Result<T, Violation> {
    let subnet = Subnet { ipv4: "10.1.0.0/24".parse().ok(), ipv6: "fd01::/120".parse().ok() };
    let channel = NodeChannel::new();
    let node = channel.handle();
    let executor = Obedient { node: node.clone(), position: 0 };
    let driver = channel.driver(Node::new(Settings::new("node-1")), SystemClock, executor);
    let facts = PoolFacts { block_bits: 8, ..PoolFacts::default() };
    node.tell(Event::PoolChanged { name: "default".into(), facts });
    node.tell(Event::BlockSeen(SeenBlock {
        name: "default-0".into(),
        uid: "uid-0".into(),
        node: "node-1".into(),
        pool: "default".into(),
        subnet,
        reserved: false,
        deleting: false,
        releasing: false,
        draining: false,
        pod: None,
    }));
    node.tell(Event::Journal(Image::default()));
    node.tell(Event::Kernel(Vec::new()));
    node.tell(Event::ApiRead);
    let gateways =
        (std::net::Ipv4Addr::new(169, 254, 1, 1), "fe80::1".parse().unwrap_or(std::net::Ipv6Addr::LOCALHOST));
    let coil = Coil::new(Anyone, gateways);
    let service = Service::new(node, SystemClock, vec![std::sync::Arc::new(coil)], None);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("no runtime: {error}"))?;
    runtime.block_on(async {
        tokio::select! {
            answer = ask(service) => Ok(answer),
            () = driver.run(std::future::pending()) => Err("the node ended".to_owned()),
        }
    })
}

/// Takes every pod for what it says it is.
#[derive(Debug)]
pub(crate) struct Anyone;

impl Resolve for Anyone {
    async fn resolve(&self, asked: Asked) -> Result<(String, Pod), Failure> {
        let pod = asked.pod.unwrap_or_default();
        let pod = Pod { namespace: pod.namespace, name: pod.name, uid: pod.uid };
        Ok((asked.pool.unwrap_or_else(|| "default".into()), pod))
    }
}

/// Carries everything out at once.
struct Obedient {
    node: Handle,
    position: u64,
}

impl Executor for Obedient {
    fn record(&mut self, records: Vec<Record>) {
        self.position += records.len() as u64;
        self.node.tell(Event::Committed { up_to: self.position });
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Wire(job) => {
                let link = Link { mtu: job.wiring.mtu.unwrap_or(1500), ..Link::default() };
                self.node.tell(Event::Wired { job: job.job, link });
            }
            Action::Unwire { job, .. } => self.node.tell(Event::Unwired { job }),
            Action::Inspect(job) => {
                self.node.tell(Event::Inspected { job: job.job, differences: Vec::new() });
            }
            _ => {}
        }
    }
}
