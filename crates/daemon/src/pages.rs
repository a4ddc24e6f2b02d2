//! What a program tells over HTTP. A page is made when it is asked for; nothing is kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;

/// What Prometheus expects of the text format of `OpenMetrics`.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

type Made = (StatusCode, &'static str, String);
type Make = Arc<dyn Fn() -> BoxFuture<'static, Made> + Send + Sync>;

/// The pages of a program by their paths. Cheap to clone.
///
/// ```
/// # use tenure_daemon::Pages;
/// let pages = Pages::default()
///     .verdict("/healthz", || async { (true, "ok\n".to_owned()) })
///     .json("/v1/answer", || async { Ok::<_, String>(42) });
/// ```
#[derive(Clone, Default)]
pub struct Pages {
    pages: Arc<BTreeMap<&'static str, Make>>,
}

impl std::fmt::Debug for Pages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.pages.keys()).finish()
    }
}

impl Pages {
    /// A page that says whether something is well, by its status and, for people, by its text.
    #[must_use]
    pub fn verdict<F: Future<Output = (bool, String)> + Send + 'static>(
        self,
        path: &'static str,
        tell: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self {
        self.page(path, move || {
            let told = tell();
            Box::pin(async move {
                let (good, text) = told.await;
                (if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, TEXT, text)
            })
        })
    }

    /// `/metrics`, in the text format that Prometheus reads.
    #[must_use]
    pub fn metrics<F: Future<Output = Result<String, std::fmt::Error>> + Send + 'static>(
        self,
        tell: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self {
        self.page("/metrics", move || {
            let told = tell();
            Box::pin(async move {
                match told.await {
                    Ok(text) => (StatusCode::OK, OPEN_METRICS, text),
                    Err(error) => failed(&format!("writing the metrics: {error}")),
                }
            })
        })
    }

    /// A page for machines. An error is told as a text with status 503.
    #[must_use]
    pub fn json<T: Serialize, E: std::fmt::Display, F>(
        self,
        path: &'static str,
        tell: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        self.page(path, move || {
            let told = tell();
            Box::pin(async move {
                match told.await {
                    Ok(value) => match serde_json::to_string(&value) {
                        Ok(text) => (StatusCode::OK, JSON, text + "\n"),
                        Err(error) => failed(&format!("writing {path}: {error}")),
                    },
                    Err(error) => (StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{error}\n")),
                }
            })
        })
    }

    /// The answer to a request.
    pub async fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        let reading = [Method::GET, Method::HEAD].contains(method);
        let (status, kind, text) = match self.pages.get(path) {
            Some(make) if reading => make().await,
            Some(_) => (
                StatusCode::METHOD_NOT_ALLOWED,
                TEXT,
                format!("{method} {path}: nothing can be changed here; accepted is GET\n"),
            ),
            None => {
                let there: Vec<&str> = self.pages.keys().copied().collect();
                (StatusCode::NOT_FOUND, TEXT, format!("{method} {path}: there are {}\n", there.join(", ")))
            }
        };
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        if status == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        response
    }

    fn page(
        mut self,
        path: &'static str,
        make: impl Fn() -> BoxFuture<'static, Made> + Send + Sync + 'static,
    ) -> Self {
        Arc::make_mut(&mut self.pages).insert(path, Arc::new(make));
        self
    }
}

fn failed(what: &str) -> Made {
    (StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{what}\n"))
}
