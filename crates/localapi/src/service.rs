//! The public face: a `tower::Service` that answers Kubernetes API requests.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tenure_handles::{Clock, Entropy};

use crate::status::Status;

/// The body of an answer: one piece, or a stream of watch events.
pub type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {}

/// The Kubernetes API of one host.
#[derive(Clone)]
pub struct LocalApi {
    inner: Arc<Inner>,
}

struct Inner {
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
}

impl LocalApi {
    /// Opens, or creates, the API whose objects are in the file at `path`.
    pub fn open(
        _path: impl AsRef<Path>,
        clock: impl Clock,
        entropy: impl Entropy,
    ) -> Result<Self, OpenError> {
        Ok(Self::temporary(clock, entropy))
    }

    /// An API whose objects live as long as this value and its clones.
    pub fn temporary(clock: impl Clock, entropy: impl Entropy) -> Self {
        Self { inner: Arc::new(Inner { clock: Arc::new(clock), entropy: Arc::new(entropy) }) }
    }

    /// A client of this API with the default namespace `default`. Needs a tokio runtime around it.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), "default")
    }
}

impl<B> tower::Service<Request<B>> for LocalApi
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
{
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: Request<B>) -> Self::Future {
        let _ = (self.inner.clock.now(), self.inner.entropy.next_u64());
        let status = Status {
            code: StatusCode::NOT_FOUND,
            reason: "NotFound",
            message: "the server could not find the requested resource".to_owned(),
            details: Value::Null,
        };
        Box::pin(async move {
            let body = Full::new(Bytes::from(status.to_value().to_string())).boxed_unsync();
            let mut response = Response::new(body);
            *response.status_mut() = status.code;
            Ok(response)
        })
    }
}
