//! The public interface: a `tower::Service` that answers Kubernetes API requests.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Request, Response};
use tenure_handles::{Clock, Entropy};

use crate::core::Core;
use crate::dispatch::{Call, answer};
use crate::respond::{ResponseBody, refusal};
use crate::store::{Durability, History, OpenError, Store};

/// The Kubernetes API of one host. Cheap to clone; all clones are the same API.
///
/// ```
/// # use tenure_handles::{SeededEntropy, SystemClock};
/// # use k8s_openapi::api::core::v1::Namespace;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), kube::Error> {
/// let api = tenure_localapi::LocalApi::temporary(SystemClock, SeededEntropy::new(1));
/// let namespaces: kube::Api<Namespace> = kube::Api::all(api.client());
/// assert!(namespaces.get_opt("default").await?.is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LocalApi {
    core: Arc<Core>,
}

/// How to open a [`LocalApi`].
#[derive(Clone, Debug, Default)]
pub struct Options {
    durability: Durability,
    history: History,
}

impl Options {
    /// When a write is acknowledged; the default is once it is on disk.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// How many events each resource keeps for watches that start in the past; the default is 4096.
    #[must_use]
    pub fn history(mut self, events: usize) -> Self {
        // Without any, no watch could ever follow.
        self.history.events = events.max(1);
        self
    }

    /// Opens, or creates, the API whose objects are in the file at `path`.
    pub fn open(
        self,
        path: impl AsRef<Path>,
        clock: impl Clock,
        entropy: impl Entropy,
    ) -> Result<LocalApi, OpenError> {
        let path = path.as_ref();
        let store = Store::open(path, self.durability, self.history)?;
        let core = Core::new(store, Arc::new(clock), Arc::new(entropy))
            .map_err(|error| OpenError::Start { path: path.to_owned(), reason: error.to_string() })?;
        Ok(LocalApi { core: Arc::new(core) })
    }

    /// An API whose objects live as long as it does.
    pub fn temporary(self, clock: impl Clock, entropy: impl Entropy) -> LocalApi {
        LocalApi { core: Arc::new(Core::temporary(self.history, Arc::new(clock), Arc::new(entropy))) }
    }
}

impl LocalApi {
    /// Opens, or creates, the API whose objects are in the file at `path`, with the default [`Options`].
    pub fn open(path: impl AsRef<Path>, clock: impl Clock, entropy: impl Entropy) -> Result<Self, OpenError> {
        Options::default().open(path, clock, entropy)
    }

    /// An API whose objects live as long as this value and its clones. It uses no thread of its own, so that
    /// a run on one thread with a seeded `entropy` replays.
    pub fn temporary(clock: impl Clock, entropy: impl Entropy) -> Self {
        Options::default().temporary(clock, entropy)
    }

    /// A client of this API with the default namespace `default`. Needs a tokio runtime around it.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), "default")
    }

    /// Ends all watches, refuses further writes, and releases the file once the last write is on disk. Dropping the
    /// last clone does the same; but a `kube::Client` keeps one.
    pub fn close(&self) {
        self.core.close();
    }

    /// The newest resource version that is on disk.
    pub fn resource_version(&self) -> u64 {
        self.core.store.version()
    }
}

impl<B> tower::Service<Request<B>> for LocalApi
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let core = self.core.clone();
        Box::pin(async move {
            core.ensure_garbage_collector();
            Ok(match Call::read(request).await {
                Ok(call) => answer(&core, call).await,
                Err(status) => refusal(&status),
            })
        })
    }
}
