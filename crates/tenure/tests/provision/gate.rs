//! What stands between the program and its servers: counts requests, and stops at one of them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// When the program is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Never.
    Never,
    /// After this request was performed, without its answer.
    After(usize),
}

type Hook = Box<dyn FnMut(&str, &str) + Send>;

/// The gate.
pub(crate) struct Gate {
    shared: Arc<Shared>,
    servers: JoinSet<()>,
}

struct Shared {
    stop: Stop,
    seen: Mutex<Vec<String>>,
    stopped: Notify,
    hook: Mutex<Option<Hook>>,
}

impl Gate {
    pub(crate) fn new(stop: Stop) -> Self {
        let shared = Shared { stop, seen: Mutex::default(), stopped: Notify::new(), hook: Mutex::new(None) };
        Self { shared: Arc::new(shared), servers: JoinSet::new() }
    }

    /// Calls this with method and path before each request is performed.
    pub(crate) fn before_each(&self, hook: impl FnMut(&str, &str) + Send + 'static) {
        *self.shared.hook.lock().unwrap() = Some(Box::new(hook));
    }

    /// An address in front of this one.
    pub(crate) async fn before(&mut self, server: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        self.servers.spawn(serve(listener, server, self.shared.clone()));
        address
    }

    /// Waits until a request was stopped.
    pub(crate) async fn stopped(&self) {
        self.shared.stopped.notified().await;
    }

    /// Method and path of all requests.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.shared.seen.lock().unwrap().clone()
    }
}

async fn serve(listener: TcpListener, server: SocketAddr, shared: Arc<Shared>) {
    let client: Client<HttpConnector, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (client, shared) = (client.clone(), shared.clone());
        let service = service_fn(move |request| forward(request, server, client.clone(), shared.clone()));
        connections.spawn(async move {
            // The program was killed: its connections end.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn forward(
    request: Request<Incoming>,
    server: SocketAddr,
    client: Client<HttpConnector, Full<Bytes>>,
    shared: Arc<Shared>,
) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let (mut head, body) = request.into_parts();
    let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
    let path = head.uri.path_and_query().unwrap().to_string();
    let number = {
        let mut seen = shared.seen.lock().unwrap();
        seen.push(format!("{} {path}", head.method));
        seen.len()
    };
    if let Some(hook) = shared.hook.lock().unwrap().as_mut() {
        hook(head.method.as_str(), &path);
    }
    head.uri = format!("http://{server}{path}").parse::<Uri>().unwrap();
    head.headers.remove("host");
    let answer = client.request(Request::from_parts(head, Full::new(body))).await;
    let (head, body) = answer.map_err(std::io::Error::other)?.into_parts();
    let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
    if shared.stop == Stop::After(number) {
        shared.stopped.notify_one();
        std::future::pending::<()>().await;
    }
    Ok(Response::from_parts(head, Full::new(body)))
}
