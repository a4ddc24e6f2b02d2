//! Health and metrics over HTTP: `/healthz`, `/readyz`, `/metrics`.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::health::Health;
use crate::metrics::Metrics;

/// What Prometheus expects of the text format of `OpenMetrics`.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// Answers on `listener` until the future is dropped.
pub async fn serve(listener: TcpListener, health: Arc<Health>, metrics: Arc<Metrics>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let (health, metrics) = (health.clone(), metrics.clone());
                    let service = service_fn(move |request| {
                        let response = answer(&request, &health, &metrics);
                        async move { Ok::<_, Infallible>(response) }
                    });
                    connections.spawn(async move {
                        let connection = http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
                        if let Err(error) = connection.await {
                            tracing::debug!(%error, "a connection to the metrics ended early");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection to the metrics failed");
                    tokio::time::sleep(crate::retry::wait_after(1)).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

fn answer(request: &Request<Incoming>, health: &Health, metrics: &Metrics) -> Response<Full<Bytes>> {
    let verdict = |(good, text): (bool, String)| {
        (if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, TEXT, text)
    };
    let (status, kind, text) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/healthz") => verdict(health.live()),
        (&Method::GET, "/readyz") => verdict(health.ready()),
        (&Method::GET, "/metrics") => match metrics.text() {
            Ok(text) => (StatusCode::OK, OPEN_METRICS, text),
            Err(error) => {
                (StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("writing the metrics: {error}\n"))
            }
        },
        (_, path) => {
            (StatusCode::NOT_FOUND, TEXT, format!("GET {path}: there are /healthz, /readyz and /metrics\n"))
        }
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}
