//! The layer itself: applies the rules to one request.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderValue, Request, Response, StatusCode, header};
use kube::client::Body;
use serde_json::json;
use tokio::sync::Mutex;
use tower::{BoxError, Layer, Service, ServiceExt as _};

use super::rule::Act;
use super::watches::Watches;
use super::{Answer, Call, FaultBody, Faults, Verb};

/// Puts [`Faults`] in front of a service.
#[derive(Clone, Debug)]
pub struct FaultLayer {
    faults: Faults,
}

impl FaultLayer {
    pub(super) fn new(faults: Faults) -> Self {
        Self { faults }
    }
}

impl<S> Layer<S> for FaultLayer {
    type Service = FaultService<S>;

    fn layer(&self, inner: S) -> FaultService<S> {
        FaultService { faults: self.faults.clone(), inner: Arc::new(Mutex::new(inner)) }
    }
}

/// A service with [`Faults`] in front of it.
#[derive(Debug)]
pub struct FaultService<S> {
    faults: Faults,
    /// Shared, because a request may be forwarded later, or twice; locked only until it is in progress.
    inner: Arc<Mutex<S>>,
}

/// The client's error for something that was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The server did not get the request.
    #[error("connection lost before the request was sent (a fault of the test bed)")]
    Request,
    /// The server got the request and answered.
    #[error("connection lost before the answer came (a fault of the test bed)")]
    Answer,
    /// A watch was broken off.
    #[error("connection lost while watching (a fault of the test bed)")]
    Watch,
}

impl<S> Clone for FaultService<S> {
    fn clone(&self) -> Self {
        Self { faults: self.faults.clone(), inner: Arc::clone(&self.inner) }
    }
}

impl<S, B> Service<Request<Body>> for FaultService<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<FaultBody<B>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // The readiness of the inner service is awaited when the request is forwarded, if it is.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let call = Call::of(&request);
        // Here and not in the future: chance is drawn in the order in which requests arrive.
        let plan = self.faults.plan(&call);
        let service = self.clone();
        Box::pin(async move {
            if !plan.delay.is_zero() {
                tokio::time::sleep(plan.delay).await;
            }
            match plan.act {
                None => service.pass(&call, request).await,
                Some(Act::LoseRequest) => Err(Lost::Request.into()),
                Some(Act::LoseAnswer) => {
                    service.pass(&call, request).await?;
                    Err(Lost::Answer.into())
                }
                Some(Act::Duplicate(answer)) => service.pass_twice(&call, request, answer).await,
                Some(Act::Fail(status)) => Ok(refusal(&call, status)),
            }
        })
    }
}

impl<S, B> FaultService<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    async fn pass(&self, call: &Call, request: Request<Body>) -> Result<Response<FaultBody<B>>, BoxError> {
        self.faults.sent(call);
        let under_way = {
            let mut inner = self.inner.lock().await;
            inner.ready().await.map_err(Into::into)?.call(request)
        };
        let response = under_way.await.map_err(Into::into)?;
        Ok(response.map(|body| {
            if call.verb == Verb::Watch {
                FaultBody::watched(body, Watches::open(&self.faults.shared.watches, call.clone()))
            } else {
                FaultBody::passed(body)
            }
        }))
    }

    async fn pass_twice(
        &self,
        call: &Call,
        request: Request<Body>,
        answer: Answer,
    ) -> Result<Response<FaultBody<B>>, BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await?;
        let copy = || Request::from_parts(parts.clone(), Body::from(body.clone()));
        let first = self.pass(call, copy()).await;
        let second = self.pass(call, copy()).await;
        match answer {
            Answer::First => first,
            Answer::Second => second,
        }
    }
}

/// A refusal in an API server's form.
fn refusal<B>(call: &Call, status: StatusCode) -> Response<FaultBody<B>> {
    let reason = match status.as_u16() {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 if call.verb == Verb::Create => "AlreadyExists",
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "Unknown",
    };
    let mut body = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": format!("{} {}: a fault of the test bed", status.as_u16(), status.canonical_reason().unwrap_or(reason)),
        "reason": reason,
        "code": status.as_u16(),
    });
    let overloaded = status == StatusCode::TOO_MANY_REQUESTS;
    if overloaded {
        body["details"] = json!({"retryAfterSeconds": 1});
    }
    let mut response = Response::new(FaultBody::made(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if overloaded {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}
