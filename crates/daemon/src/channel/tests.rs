use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

use super::*;

const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// A server that answers `ok` to every call, and to `/watch` an event and no end.
struct Server {
    address: SocketAddr,
    certificate: Vec<u8>,
    accepted: Arc<AtomicUsize>,
    open: Arc<Mutex<Vec<AbortHandle>>>,
}

impl Server {
    async fn start(protocols: &[&[u8]]) -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let certificate = made.cert.der().to_vec();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone().into()], key)
            .unwrap();
        tls.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (accepted, open) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<Vec<AbortHandle>>>::default());
        let (count, handles) = (Arc::clone(&accepted), Arc::clone(&open));
        tokio::spawn(async move {
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                let serving = tokio::spawn(serve(acceptor.clone(), tcp));
                handles.lock().unwrap_or_else(PoisonError::into_inner).push(serving.abort_handle());
            }
        });
        Self { address, certificate, accepted, open }
    }

    fn config(&self) -> Config {
        let mut config = Config::new(format!("https://{}", self.address).parse().unwrap());
        config.root_cert = Some(vec![self.certificate.clone()]);
        config
    }

    fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Drops all connections.
    fn cut(&self) {
        self.open.lock().unwrap().drain(..).for_each(|connection| connection.abort());
    }
}

async fn serve(acceptor: TlsAcceptor, tcp: TcpStream) {
    let Ok(tls) = acceptor.accept(tcp).await else { return };
    let is_http2 = tls.get_ref().1.alpn_protocol() == Some(HTTP2);
    let answer = service_fn(|request: Request<Incoming>| async move {
        let first = stream::once(async { Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"ok"))) });
        let body = if request.uri().path() == "/watch" {
            StreamBody::new(first.chain(stream::pending()).boxed())
        } else {
            StreamBody::new(first.boxed())
        };
        Ok::<_, Infallible>(Response::new(body))
    });
    let io = TokioIo::new(tls);
    if is_http2 {
        drop(http2::Builder::new(TokioExecutor::new()).serve_connection(io, answer).await);
    } else {
        drop(http1::Builder::new().serve_connection(io, answer).await);
    }
}

async fn ask(client: &Client, path: &str) -> kube::Result<Response<Body>> {
    client.send(Request::post(path).body(Body::from(b"{}".to_vec())).unwrap()).await
}

async fn text(client: &Client) -> kube::Result<Bytes> {
    Ok(ask(client, "/call").await?.into_body().collect().await?.to_bytes())
}

#[tokio::test]
async fn all_watches_and_calls_share_one_connection() {
    let server = Server::start(&[HTTP2, HTTP1]).await;
    let client = client(server.config()).unwrap();
    let watches: Vec<_> = stream::iter(0..20)
        .map(|_| async { ask(&client, "/watch").await.unwrap().into_body() })
        .buffer_unordered(20)
        .collect()
        .await;
    for mut watch in watches {
        assert_eq!(text(&client).await.unwrap(), "ok", "beside open watches");
        assert_eq!(watch.frame().await.unwrap().unwrap().into_data().unwrap(), "ok");
    }
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn a_server_without_http2_is_asked_over_http1_from_the_first_call_on() {
    for protocols in [&[HTTP1][..], &[]] {
        let server = Server::start(protocols).await;
        let client = client(server.config()).unwrap();
        let calls = stream::iter(0..4).map(|_| text(&client)).buffer_unordered(4);
        assert!(calls.all(async |answer| answer.unwrap() == "ok").await, "{protocols:?}");
        let _watch = ask(&client, "/watch").await.unwrap();
        assert_eq!(text(&client).await.unwrap(), "ok", "{protocols:?}");
    }
}

#[tokio::test]
async fn a_connection_that_breaks_is_replaced() {
    let server = Server::start(&[HTTP2, HTTP1]).await;
    let client = client(server.config()).unwrap();
    let mut watch = ask(&client, "/watch").await.unwrap().into_body();
    watch.frame().await.unwrap().unwrap();
    server.cut();
    assert!(watch.frame().await.is_none_or(|frame| frame.is_err()), "the watch learns of it");
    assert_eq!(text(&client).await.unwrap(), "ok");
    assert_eq!(server.accepted(), 2);
}

#[tokio::test]
async fn a_server_that_accepts_and_says_nothing_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Server::start(&[HTTP2]).await;
    let mut config = server.config();
    config.cluster_url = format!("https://{}", silent.local_addr().unwrap()).parse().unwrap();
    config.connect_timeout = Some(Duration::from_millis(20));
    let error = text(&client(config).unwrap()).await.unwrap_err();
    let mut causes = vec![error.to_string()];
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        causes.push(error.to_string());
        cause = error.source();
    }
    assert!(causes.iter().any(|said| said.contains("took longer")), "{causes:?}");
}
