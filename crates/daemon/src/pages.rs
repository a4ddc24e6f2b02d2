//! The HTTP pages of a program. A page is made on request, at most ten times a second for all callers,
//! because making it may stop the program's own work. Pages that answer questions answer one at a time, and rest in between.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;

use crate::guard::{Denied, Guard};
use crate::query;
use crate::turns::{Queue, Turns};

/// The content type that Prometheus expects for `OpenMetrics` text.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// Status, content type and body of a page.
pub(crate) type Made = (StatusCode, &'static str, Bytes);
type Make = Arc<dyn Fn() -> BoxFuture<'static, Made> + Send + Sync>;
type Ask = Arc<dyn Fn(BTreeMap<String, String>) -> BoxFuture<'static, Made> + Send + Sync>;

/// Why a question has no answer: the status, and a text for people.
pub type Refused = (StatusCode, String);

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
    pages: Arc<BTreeMap<&'static str, Page>>,
}

#[derive(Clone)]
struct Page {
    content: Content,
    guard: Option<Guard>,
}

#[derive(Clone)]
enum Content {
    /// The same for all who ask at the same time.
    Made { make: Make, turns: Arc<Turns> },
    /// One for each question.
    Asked { ask: Ask, queue: Arc<Queue> },
}

impl std::fmt::Debug for Pages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.pages.keys()).finish()
    }
}

impl Pages {
    /// A page about health: its status is for machines, its text for people.
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
                let status = if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                (status, TEXT, text.into())
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
                    Ok(text) => (StatusCode::OK, OPEN_METRICS, text.into()),
                    Err(error) => failed(&format!("writing the metrics: {error}")),
                }
            })
        })
    }

    /// A page for machines. An error is sent as text with status 503.
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
                    Ok(value) => as_json(path, &value),
                    Err(error) => (StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{error}\n").into()),
                }
            })
        })
    }

    /// A page for machines that answers questions: the values of its query by their names. They are answered one at a time, and the
    /// page rests in between for longer than it worked, so that nobody can keep the program busy with questions.
    #[must_use]
    pub fn questions<T: Serialize, F>(
        mut self,
        path: &'static str,
        answer: impl Fn(BTreeMap<String, String>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<T, Refused>> + Send + 'static,
    {
        let ask = move |values: BTreeMap<String, String>| -> BoxFuture<'static, Made> {
            let answered = answer(values);
            Box::pin(async move {
                match answered.await {
                    Ok(value) => as_json(path, &value),
                    Err((status, message)) => (status, TEXT, (message + "\n").into()),
                }
            })
        };
        let content = Content::Asked { ask: Arc::new(ask), queue: Arc::default() };
        Arc::make_mut(&mut self.pages).insert(path, Page { content, guard: None });
        self
    }

    /// The same pages, with one of them only for callers that the guard admits.
    #[must_use]
    pub fn guarded(mut self, path: &str, guard: Guard) -> Self {
        if let Some(page) = Arc::make_mut(&mut self.pages).get_mut(path) {
            page.guard = Some(guard);
        }
        self
    }

    /// The same pages without one of them.
    #[must_use]
    pub fn without(mut self, path: &str) -> Self {
        Arc::make_mut(&mut self.pages).remove(path);
        self
    }

    /// The answer to a request; `token` is the request's token for a [`Guard`].
    pub async fn answer(&self, method: &Method, path: &str, token: Option<&str>) -> Response<Full<Bytes>> {
        self.answer_query(method, path, None, token).await
    }

    /// The same for a request with a query.
    pub async fn answer_query(
        &self,
        method: &Method,
        path: &str,
        query: Option<&str>,
        token: Option<&str>,
    ) -> Response<Full<Bytes>> {
        let reading = [Method::GET, Method::HEAD].contains(method);
        let (status, kind, text) = match self.pages.get(path) {
            Some(page) if reading => page.make(query, token).await,
            Some(_) => (
                StatusCode::METHOD_NOT_ALLOWED,
                TEXT,
                format!("{method} {path}: nothing can be changed here; accepted is GET\n").into(),
            ),
            None => {
                let there: Vec<&str> = self.pages.keys().copied().collect();
                let text = format!("{method} {path}: there are {}\n", there.join(", "));
                (StatusCode::NOT_FOUND, TEXT, text.into())
            }
        };
        let mut response = Response::new(Full::new(text));
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
        let content = Content::Made { make: Arc::new(make), turns: Arc::default() };
        let page = Page { content, guard: None };
        Arc::make_mut(&mut self.pages).insert(path, page);
        self
    }
}

impl Page {
    async fn make(&self, query: Option<&str>, token: Option<&str>) -> Made {
        if let Some(guard) = &self.guard
            && let Err(Denied { status, message }) = guard.admit(token).await
        {
            return (status, TEXT, (message + "\n").into());
        }
        match &self.content {
            Content::Made { make, turns } => turns.take(|| make()).await,
            Content::Asked { ask, queue } => {
                let answered = queue.take(|| ask(query::parse(query))).await;
                answered.unwrap_or_else(|| {
                    let message = "too many questions at once; ask again later\n";
                    (StatusCode::TOO_MANY_REQUESTS, TEXT, message.into())
                })
            }
        }
    }
}

fn as_json(path: &str, value: &impl Serialize) -> Made {
    match serde_json::to_string(value) {
        Ok(text) => (StatusCode::OK, JSON, (text + "\n").into()),
        Err(error) => failed(&format!("writing {path}: {error}")),
    }
}

fn failed(what: &str) -> Made {
    (StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{what}\n").into())
}
