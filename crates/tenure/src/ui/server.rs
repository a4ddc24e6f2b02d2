//! The answers to a browser: files of the pages for everybody, and what they show for whoever has the token.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use serde::Serialize;
use tenure_daemon::serve::Answer;

use super::assets::{asset, protect};
use super::gate::{Gate, Refused};
use super::pages::node_page;
use super::search::search;
use super::state::Shared;
use super::stream::{self, Shown};

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// Everything that answers need.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) gate: Arc<Gate>,
    pub(super) shared: Arc<Shared>,
}

/// The body of an answer: all at once, or bit by bit.
type Body = UnsyncBoxBody<Bytes, Infallible>;

/// An answer without its headers.
struct Said(StatusCode, &'static str, Body);

impl Said {
    fn text(status: StatusCode, text: impl Into<String>) -> Self {
        Self(status, TEXT, whole(text.into() + "\n"))
    }

    fn json(value: &impl Serialize) -> Self {
        match serde_json::to_string(value) {
            Ok(text) => Self(StatusCode::OK, JSON, whole(text)),
            Err(error) => Self::text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    }
}

fn whole(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).boxed_unsync()
}

impl From<Refused> for Said {
    fn from(Refused(status, why): Refused) -> Self {
        Self::text(status, why)
    }
}

impl Answer for Server {
    type Body = Body;
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let Said(status, kind, body) = self.say(&request).unwrap_or_else(Said::from);
        let mut response = Response::new(body);
        *response.status_mut() = status;
        protect(response.headers_mut());
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        if status == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET"));
        }
        response
    }
}

impl Server {
    fn say<B>(&self, request: &Request<B>) -> Result<Said, Refused> {
        self.gate.admits(request.headers())?;
        let (method, path) = (request.method(), request.uri().path());
        if method != Method::GET {
            let why = "nothing can be changed here; accepted is GET";
            return Ok(Said::text(StatusCode::METHOD_NOT_ALLOWED, why));
        }
        if let Some((kind, text)) = asset(path) {
            return Ok(Said(StatusCode::OK, kind, whole(text)));
        }
        if !path.starts_with("/v1/") {
            return Ok(Said::text(StatusCode::NOT_FOUND, "there is no such page"));
        }
        self.gate.knows(request.headers())?;
        let query = tenure_daemon::query::parse(request.uri().query());
        let value = |name: &str| query.get(name).map(String::as_str).unwrap_or_default();
        Ok(match path {
            "/v1/stream" => {
                let shown = Shown::of(&self.shared.read(), &query);
                match shown {
                    Ok(shown) => self.stream(shown),
                    Err(error) => Said::text(StatusCode::NOT_FOUND, format!("{error:#}")),
                }
            }
            "/v1/who" => match value("address").parse() {
                Ok(address) => Said::json(&crate::who::answer(&self.shared.read().snapshot, address)),
                Err(_) => Said::text(
                    StatusCode::BAD_REQUEST,
                    format!("{:?} is no address; accepted is address=10.0.0.1", value("address")),
                ),
            },
            "/v1/search" => Said::json(&search(&self.shared.read(), value("q"))),
            "/v1/node" => match node_page(&self.shared.read(), value("name")) {
                Some(page) => Said::json(&page),
                None => Said::text(StatusCode::NOT_FOUND, format!("there is no node {:?}", value("name"))),
            },
            _ => Said::text(StatusCode::NOT_FOUND, "there are /v1/stream, /v1/who, /v1/search and /v1/node"),
        })
    }

    fn stream(&self, shown: Shown) -> Said {
        let told = stream::start(Arc::clone(&self.shared), shown);
        let parts = futures::stream::unfold(told, |mut told| async {
            let bytes = told.recv().await?;
            Some((Ok::<_, Infallible>(Frame::data(bytes)), told))
        });
        Said(StatusCode::OK, EVENTS, StreamBody::new(parts).boxed_unsync())
    }
}
