//! The service: reads a call, finds its dialect, and passes the call on.

use std::sync::Arc;

use prost::Message as _;
use tenure_cni::{Code, Failure, NetworkConfig, Verb, rpc};
use tenure_grpc::{Status, server};
use tenure_handles::Clock;
use tracing::{Instrument, info, info_span, warn};

use super::call::Call;
use super::connection::{Answer, Outcome};
use super::dialect::{Deleted, Dialect};
use super::postponed::PostponedDels;
use super::result;
use crate::drive::Handle;
use crate::inspect::Calls;

/// The service. Cheap to clone.
#[derive(Debug)]
pub struct Service<C> {
    inner: Arc<Inner<C>>,
}

#[derive(Debug)]
struct Inner<C> {
    node: Handle,
    clock: C,
    calls: Calls,
    dialects: Vec<Arc<dyn Dialect>>,
    tombstones: Option<PostponedDels>,
}

/// Whether a DEL that cannot be done now may become a tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leave {
    /// It becomes one.
    Tombstone,
    /// It already is one.
    Nothing,
}

impl<C> Clone for Service<C> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<C: Clock> Service<C> {
    /// A service in front of a node. The first dialect that accepts a call answers it. ADDs remove their
    /// tombstones from `tombstones`, and DELs that cannot be done now are stored there.
    pub fn new(
        node: Handle,
        clock: C,
        dialects: Vec<Arc<dyn Dialect>>,
        tombstones: Option<PostponedDels>,
    ) -> Self {
        Self { inner: Arc::new(Inner { node, clock, calls: Calls::default(), dialects, tombstones }) }
    }

    /// The calls answered so far.
    pub fn calls(&self) -> Calls {
        self.inner.calls.clone()
    }

    /// Answers a call, counts it, and logs one line about it.
    pub async fn answer(&self, verb: Verb, call: rpc::Call) -> rpc::Reply {
        self.answer_or_leave(verb, call, Leave::Tombstone).await
    }

    /// Answers a call in its wire format.
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

    /// Performs the DEL of a tombstone. The tombstone stays if that fails.
    pub(crate) async fn replay_del(&self, call: rpc::Call) -> rpc::Reply {
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
        let outcome = self.inner.answer(verb, &call, leave).instrument(span.clone()).await;
        let took = self.inner.clock.elapsed().saturating_sub(began);
        let code = outcome.as_ref().err().map_or(0, |failure| failure.code);
        self.inner.calls.answered(verb, code, took);
        if verb == Verb::Add {
            self.inner.calls.added(self.inner.clock.now(), code, took, || holder(&call));
        }
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

impl<C: Clock> Inner<C> {
    /// The result as written to standard output; empty if the verb has none.
    async fn answer(&self, verb: Verb, message: &rpc::Call, leave: Leave) -> Result<Vec<u8>, Failure> {
        let network = NetworkConfig::parse(&message.config)?;
        if let (Verb::Add, Some(tombstones)) = (verb, &self.tombstones) {
            tombstones.take_back(&network.name, message).await?;
        }
        let dialect = self.dialect_of(&network)?;
        let call = Call::new(&self.node, &network, message);
        match verb {
            Verb::Add => return add(dialect, &call).await,
            Verb::Del => match dialect.del(&call).await? {
                Deleted::Done => {}
                Deleted::Later(failure) if leave == Leave::Tombstone => self.leave(&call, failure)?,
                Deleted::Later(failure) => return Err(failure),
            },
            Verb::Check => dialect.check(&call).await?,
            Verb::Gc => dialect.gc(&call).await?,
            Verb::Status => dialect.status(&call).await?,
            Verb::Version => {}
        }
        Ok(Vec::new())
    }

    /// The first dialect that accepts the configuration.
    fn dialect_of(&self, network: &NetworkConfig) -> Result<&dyn Dialect, Failure> {
        if let Some(dialect) = self.dialects.iter().find(|dialect| dialect.is_for(network)) {
            return Ok(dialect.as_ref());
        }
        let ipam = network.ipam.as_deref().unwrap_or_default();
        let message = format!("type is {:?} and ipam.type is {ipam:?}", network.plugin);
        // The usual dialects are asked last, and named first.
        let accepted: Vec<&str> = self.dialects.iter().rev().map(|dialect| dialect.accepts()).collect();
        Err(Failure::new(Code::InvalidConfig, message)
            .detail(format!("accepted is {}", accepted.join(", or "))))
    }

    /// Postpones a DEL that cannot be done now. The tombstone is stored before the DEL is answered.
    fn leave(&self, call: &Call<'_>, failure: Failure) -> Result<(), Failure> {
        let Some(tombstones) = &self.tombstones else { return Err(failure) };
        match tombstones.leave(&call.network.name, call.message) {
            Ok(path) => {
                warn!(%failure, tombstone = %path.display(), "a DEL is left for later");
                Ok(())
            }
            Err(error) => {
                let directory = tombstones.directory().display();
                let more = format!("; and a tombstone cannot be left in {directory}: {error}");
                Err(Failure { message: failure.message + &more, ..failure })
            }
        }
    }
}

/// Whose call it is, for people.
fn holder(call: &rpc::Call) -> tenure_view::Holder {
    let arg = |name: &str| call.args.get(name).cloned().unwrap_or_default();
    let pod = tenure_view::Pod {
        namespace: arg("K8S_POD_NAMESPACE"),
        name: arg("K8S_POD_NAME"),
        uid: arg("K8S_POD_UID"),
    };
    tenure_view::Holder {
        network: NetworkConfig::parse(&call.config).map(|network| network.name).unwrap_or_default(),
        container: call.container_id.clone(),
        interface: call.ifname.clone(),
        pod: Some(pod).filter(|pod| !pod.name.is_empty()),
    }
}

/// Performs an ADD. A failed one leaves no holds.
async fn add(dialect: &dyn Dialect, call: &Call<'_>) -> Result<Vec<u8>, Failure> {
    let added = match dialect.add(call).await {
        Ok(added) => result::to_bytes(added, call.network.version),
        Err(failure) => Err(failure),
    };
    if added.is_err() {
        call.take_back().await;
    }
    added
}

impl<C: Clock> Answer for Service<C> {
    const METHODS: &'static [&'static str] = &rpc::METHODS;

    fn outcome(&self, call: server::Call) -> impl Future<Output = Outcome> + Send + 'static {
        let service = self.clone();
        async move { service.respond(call).await }
    }
}
