//! Reads that wait for the API server: whoever judges a run while parts of it are ended and started again asks once more instead
//! of failing.

use std::time::Duration;

use http::{Method, Request, Response};
use kube::client::Body;
use tower::BoxError;
use tower::retry::Policy;

/// How often a read is tried.
const TRIES: u32 = 600;
/// How long to wait in between.
const INTERVAL: Duration = Duration::from_millis(100);

/// Repeats reads that got no answer. A write may have been done without one, so it is not repeated.
#[derive(Clone, Debug)]
pub(super) struct Patience {
    left: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Self { left: TRIES }
    }
}

impl<B> Policy<Request<Body>, Response<B>, BoxError> for Patience {
    type Future = tokio::time::Sleep;

    fn retry(
        &mut self,
        request: &mut Request<Body>,
        answer: &mut Result<Response<B>, BoxError>,
    ) -> Option<Self::Future> {
        let again = answer.is_err() && request.method() == Method::GET && self.left > 0;
        again.then(|| {
            self.left -= 1;
            tokio::time::sleep(INTERVAL)
        })
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        if request.method() != Method::GET {
            return None;
        }
        let mut copy = Request::new(Body::empty());
        *copy.method_mut() = request.method().clone();
        *copy.uri_mut() = request.uri().clone();
        *copy.version_mut() = request.version();
        *copy.headers_mut() = request.headers().clone();
        *copy.extensions_mut() = request.extensions().clone();
        Some(copy)
    }
}
