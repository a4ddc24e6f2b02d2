//! What is between all programs and the API server: a proxy of HTTP that refuses with 429 and 503, holds writes back for ten
//! seconds, and answers others ten seconds after they were done.
//!
//! A write is done although whoever asked for it has given up meanwhile, as a real server does it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use tenure_testbed::faults::{Calls, Faults, Rule, RuleId};
use tokio::net::TcpListener;

use crate::agent::Cluster;

/// How long a slow write takes.
const SLOW: Duration = Duration::from_secs(10);
/// So many writes are answered late, each time that answers are.
const LATE: usize = 3;

/// The proxy, and what it does to requests for the time being.
pub struct Proxy {
    pub address: SocketAddr,
    faults: Faults,
    late: Arc<Late>,
}

#[derive(Default)]
struct Late {
    /// How many more writes are answered late.
    left: AtomicUsize,
    /// How many were.
    struck: AtomicUsize,
}

/// What the API server does for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// Refuses one request in four with 429, "too many requests".
    TooMany,
    /// Refuses one request in four with 503, "unavailable".
    Unavailable,
    /// Does a few writes after ten seconds.
    SlowWrites,
    /// Does a few writes at once, and says so after ten seconds.
    LateAnswers,
}

/// What it does to requests now.
#[derive(Clone, Copy)]
pub enum UnderWay {
    Rule(RuleId),
    /// Answers are late; so many had been before.
    Late(usize),
}

impl Mood {
    pub const ALL: [Self; 4] = [Self::TooMany, Self::Unavailable, Self::SlowWrites, Self::LateAnswers];

    /// What it is counted as.
    pub fn name(self) -> &'static str {
        match self {
            Self::TooMany => "answers 429",
            Self::Unavailable => "answers 503",
            Self::SlowWrites => "writes done late",
            Self::LateAnswers => "writes answered late",
        }
    }
}

impl Proxy {
    /// Serves on a loopback port, in front of a real API server, until the cluster ends.
    pub fn before(cluster: &Cluster, seed: u64) -> Self {
        let (runtime, faults, late) = (&cluster.runtime, Faults::seeded(seed), Arc::<Late>::default());
        let _inside = runtime.enter();
        let client = cluster.plane().client_with(&faults).unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(accept(listener, client, Arc::clone(&late)));
        Self { address, faults, late }
    }

    /// What it can do beside, to whoever chooses the requests.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Begins to do it.
    pub fn begin(&self, mood: Mood) -> UnderWay {
        let rule = match mood {
            Mood::TooMany => Rule::fail(StatusCode::TOO_MANY_REQUESTS).percent(25),
            Mood::Unavailable => Rule::fail(StatusCode::SERVICE_UNAVAILABLE).percent(25),
            Mood::SlowWrites => Rule::delay(SLOW..=SLOW).on(Calls::writes()).percent(30).times(3),
            Mood::LateAnswers => {
                self.late.left.store(LATE, Ordering::SeqCst);
                return UnderWay::Late(self.late.struck.load(Ordering::SeqCst));
            }
        };
        UnderWay::Rule(self.faults.add(rule))
    }

    /// How often it happened.
    pub fn struck(&self, under_way: UnderWay) -> usize {
        match under_way {
            UnderWay::Rule(rule) => usize::try_from(self.faults.struck(rule)).unwrap(),
            UnderWay::Late(before) => self.late.struck.load(Ordering::SeqCst) - before,
        }
    }

    /// Ends it.
    pub fn end(&self, under_way: UnderWay) {
        match under_way {
            UnderWay::Rule(rule) => self.faults.remove(rule),
            UnderWay::Late(_) => self.late.left.store(0, Ordering::SeqCst),
        }
    }
}

impl Late {
    /// Whether this one is to be answered late.
    fn take(&self) -> bool {
        let less = |left: usize| left.checked_sub(1);
        let taken = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok();
        self.struck.fetch_add(usize::from(taken), Ordering::SeqCst);
        taken
    }
}

async fn accept(listener: TcpListener, client: Client, late: Arc<Late>) {
    while let Ok((stream, _)) = listener.accept().await {
        // Events are small and must not wait for company.
        _ = stream.set_nodelay(true);
        let (client, late) = (client.clone(), Arc::clone(&late));
        let service = service_fn(move |request| {
            let passed = pass(request, client.clone(), Arc::clone(&late));
            async move { Ok::<_, Infallible>(passed.await) }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

/// Passes a request on, whether or not somebody still waits for its answer.
async fn pass(request: Request<Incoming>, client: Client, late: Arc<Late>) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    // The client knows where the server is, and who it is itself.
    parts.headers.remove(http::header::HOST);
    parts.headers.remove(http::header::AUTHORIZATION);
    parts.uri = parts.uri.path_and_query().map_or("/", |it| it.as_str()).parse().unwrap();
    let is_write = parts.method != Method::GET;
    let Ok(body) = body.collect().await else { return refusal() };
    let body = body.to_bytes();
    let answered = tokio::spawn(async move {
        let answer = client.send(Request::from_parts(parts, Body::from(body))).await;
        if is_write && late.take() {
            tokio::time::sleep(SLOW).await;
        }
        answer
    });
    match answered.await {
        Ok(Ok(mut answer)) => {
            *answer.version_mut() = Version::HTTP_11;
            answer
        }
        _ => refusal(),
    }
}

/// What is said when the server is not there.
fn refusal() -> Response<Body> {
    let mut response = Response::new(Body::from(Vec::new()));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}
