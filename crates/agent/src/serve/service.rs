//! The service: one method a verb.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use prost::Message as _;
use tenure_cni::{Code, Failure, NetworkConfig, Verb, rpc};
use tenure_grpc::{Status, server};
use tenure_handles::Clock;
use tracing::{Instrument, info, info_span};

use super::burials::Burials;
use super::conversation::{Answer, Outcome};
use super::guests::{self, Due};
use super::network::Network;
use super::reply::{self, Gateways};
use super::request::{PodName, Request, Resolve};
use super::whereabouts::{Leave, Whereabouts};
use crate::claims::Claims;
use crate::drive::Handle;
use crate::inspect::Calls;
use crate::key::Pod;
use crate::node::{Attach, Done, Event};

/// The service. Cheap to clone.
#[derive(Debug)]
pub struct Service<R, C> {
    inner: Arc<Inner<R, C>>,
}

#[derive(Debug)]
struct Inner<R, C> {
    node: Handle,
    resolve: R,
    clock: C,
    gateways: Gateways,
    calls: Calls,
    dialects: Dialects,
}

/// What is served beside routed pools.
#[derive(Debug, Default)]
pub struct Dialects {
    /// Networks of Whereabouts' dialect.
    pub whereabouts: Option<Whereabouts>,
    /// Claims, on networks of every dialect.
    pub claims: Option<Claims>,
    /// The tombstones that an ADD takes back.
    pub burials: Option<Burials>,
}

impl<R, C> Clone for Service<R, C> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<R: Resolve, C: Clock> Service<R, C> {
    /// A service in front of a node.
    pub fn new(node: Handle, resolve: R, clock: C, gateway_v4: Ipv4Addr, gateway_v6: Ipv6Addr) -> Self {
        Self::serving(node, resolve, clock, (gateway_v4, gateway_v6), Dialects::default())
    }

    /// A service in front of a node, which serves other dialects, too.
    pub fn serving(
        node: Handle,
        resolve: R,
        clock: C,
        (gateway_v4, gateway_v6): (Ipv4Addr, Ipv6Addr),
        dialects: Dialects,
    ) -> Self {
        let gateways = Gateways { v4: IpAddr::V4(gateway_v4), v6: IpAddr::V6(gateway_v6) };
        let calls = Calls::default();
        Self { inner: Arc::new(Inner { node, resolve, clock, gateways, calls, dialects }) }
    }

    /// What was answered so far.
    pub fn calls(&self) -> Calls {
        self.inner.calls.clone()
    }

    /// Answers a call, counts it, and writes one line about it.
    pub async fn answer(&self, verb: Verb, call: rpc::Call) -> rpc::Reply {
        self.answer_or_leave(verb, call, Leave::Tombstone).await
    }

    /// Answers a call as it comes over the wire.
    pub async fn respond(&self, call: server::Call) -> Result<Vec<u8>, Status> {
        let Some(verb) = rpc::verb(call.path) else {
            let message = format!("there is no method {}", call.path);
            return Err(Status::new(tenure_grpc::Code::Unimplemented, message));
        };
        let mut message = rpc::Call::decode(call.message()).map_err(|error| {
            Status::new(tenure_grpc::Code::InvalidArgument, format!("cannot read the call: {error}"))
        })?;
        if message.traceparent.is_empty() {
            message.traceparent = call.traceparent.unwrap_or_default();
        }
        Ok(self.answer(verb, message).await.encode_to_vec())
    }

    /// Does a DEL that was left as a tombstone. It stays one if it cannot be done.
    pub(crate) async fn bury(&self, call: rpc::Call) -> rpc::Reply {
        self.answer_or_leave(Verb::Del, call, Leave::Nothing).await
    }

    async fn answer_or_leave(&self, verb: Verb, call: rpc::Call, leave: Leave) -> rpc::Reply {
        let span = info_span!(
            "cni",
            verb = verb.as_str(),
            container = call.container_id,
            interface = call.ifname,
            netns = call.netns,
            namespace = call.args.get("K8S_POD_NAMESPACE"),
            pod = call.args.get("K8S_POD_NAME"),
            traceparent = call.traceparent,
        );
        let began = self.inner.clock.elapsed();
        let outcome = self.inner.answer(verb, call, leave).instrument(span.clone()).await;
        let took = self.inner.clock.elapsed().saturating_sub(began);
        self.inner.calls.answered(verb, outcome.as_ref().err().map_or(0, |failure| failure.code), took);
        span.in_scope(|| match &outcome {
            Ok(_) => info!(?took, "done"),
            Err(failure) => info!(?took, code = failure.code, %failure, "refused"),
        });
        match outcome {
            Ok(result) => rpc::Reply { result, failure: None },
            Err(failure) => rpc::Reply { result: Vec::new(), failure: Some(failure.into()) },
        }
    }
}

impl<R: Resolve, C: Clock> Inner<R, C> {
    /// The result as it goes to standard output; empty where the verb has none.
    async fn answer(&self, verb: Verb, call: rpc::Call, leave: Leave) -> Result<Vec<u8>, Failure> {
        let config = NetworkConfig::parse(&call.config);
        if let (Verb::Add, Some(burials), Ok(config)) = (verb, &self.dialects.burials, &config) {
            burials.take_back(&config.name, &call).await?;
        }
        if let (Some(whereabouts), Ok(config)) = (&self.dialects.whereabouts, &config)
            && Whereabouts::is_for(config)
        {
            let claims = self.dialects.claims.as_ref();
            // Apart, because it is larger than all the rest, and most calls do not need it.
            return Box::pin(whereabouts.answer((&self.node, claims), verb, config, &call, leave)).await;
        }
        if verb == Verb::Status {
            self.node.look(crate::node::Node::status).await??;
            return Ok(Vec::new());
        }
        let request = Request::read(config?, call)?;
        match verb {
            Verb::Add => return self.add(request).await,
            Verb::Del => {
                let (key, interface) = (request.key()?, !request.addresses_only);
                self.node.call(move |ticket| Event::Del { ticket, key, interface }).await?;
            }
            Verb::Check => self.check(request).await?,
            Verb::Gc => {
                let (network, alive) = (request.config.name.clone(), request.alive()?);
                self.node.call(move |ticket| Event::Gc { ticket, network, alive }).await?;
            }
            Verb::Status | Verb::Version => {}
        }
        Ok(Vec::new())
    }

    async fn add(&self, request: Request) -> Result<Vec<u8>, Failure> {
        request.refuse_chain()?;
        let asked = request.asked()?;
        let refers = self.dialects.claims.as_ref().and_then(|claims| Some((claims, asked.pod.clone()?)));
        let (pool, pod) = self.resolve.resolve(asked).await?;
        let network = if request.addresses_only { Some(self.network(&request, &pool).await?) } else { None };
        let attach = match refers {
            None => request.attach(pool, pod)?,
            Some((claims, name)) => Box::pin(self.attach(claims, &request, &name, (pool, pod))).await?,
        };
        let done = self.node.call(move |ticket| Event::Add { ticket, attach }).await?;
        let Done::Added { addresses, subnet, link } = done else {
            return Err(Failure::new(Code::Internal, "the node answered something else than was asked"));
        };
        let result = match (network, link) {
            (Some(network), _) => reply::of_addresses(&request, &network, addresses, subnet)?,
            (None, Some(link)) => reply::of_interface(&request, addresses, link, self.gateways),
            (None, None) => return Err(Failure::new(Code::Internal, "the node made no interface")),
        };
        reply::to_bytes(result, request.config.version)
    }

    /// What the node is asked for, for a pod that may refer to a claim.
    async fn attach(
        &self,
        claims: &Claims,
        request: &Request,
        name: &PodName,
        (pool, pod): (String, Pod),
    ) -> Result<Attach, Failure> {
        let (key, nowhere) = (request.key()?, |_: &str| false);
        let due =
            guests::due(claims, &self.node, (&key, name), &request.config, &request.call, &nowhere).await?;
        let mut attach = request.attach(pool, pod)?;
        let addresses: Vec<tenure_ipam::Address> = match due {
            Due::Ordinary => return Ok(attach),
            Due::Again(addresses) => addresses,
            Due::New(mut lodger) => {
                // Here each address is a host's of its own, whatever a claim's status says.
                for (address, prefix) in &mut lodger.guest.addresses {
                    *prefix = address.family().bits();
                }
                let pool = attach.pool.clone();
                let facts = self.node.look(move |node| node.pool_facts(&pool).cloned()).await?;
                guests::fits_pool(&lodger.guest, &attach.pool, facts.as_ref())?;
                attach.pod.uid = lodger.pod_uid;
                let addresses = lodger.guest.addresses.iter().map(|(address, _)| *address).collect();
                attach.guest = Some(lodger.guest);
                addresses
            }
        };
        let mac = guests::mac_for(&addresses, request.field("claimMac"))?;
        if let Some(wiring) = attach.wiring.as_mut().filter(|wiring| wiring.mac.is_none()) {
            wiring.mac = mac;
        }
        Ok(attach)
    }

    /// The network that another plugin makes.
    async fn network(&self, request: &Request, pool: &str) -> Result<Network, Failure> {
        let name = pool.to_owned();
        let facts = self.node.look(move |node| node.pool_facts(&name).cloned()).await?;
        Network::read(request, pool, facts, self.gateways)
    }

    async fn check(&self, request: Request) -> Result<(), Failure> {
        // What is held is held, whatever pool its namespace names by now.
        let (attach, expected) =
            (request.attach(String::new(), crate::key::Pod::default())?, request.expected());
        self.node.call(move |ticket| Event::Check { ticket, attach, expected }).await?;
        Ok(())
    }
}

impl<R: Resolve, C: Clock> Answer for Service<R, C> {
    const METHODS: &'static [&'static str] = &rpc::METHODS;

    fn outcome(&self, call: server::Call) -> impl Future<Output = Outcome> + Send + 'static {
        let service = self.clone();
        async move { service.respond(call).await }
    }
}
