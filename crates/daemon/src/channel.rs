//! The way to the API server: one HTTP/2 connection for all calls and watches of a client.
//!
//! Over HTTP/1.1 every watch needs a connection of its own, and an agent has a dozen watches. Each connection costs the API server a TLS
//! handshake and memory, again at every restart of the API server. A server or a proxy that does not speak HTTP/2 is asked over
//! HTTP/1.1, from the first refusal on until the program ends.
//!
//! Nothing is retried here: that is up to the caller.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, Uri};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::{Client, Config};
use tokio::net::TcpStream;
use tower::{BoxError, Service, ServiceBuilder};

/// A connection on which nothing arrives is asked for a sign of life after this time, so that a watch of a server that vanished does not
/// wait for ever.
const PING_AFTER: Duration = Duration::from_secs(30);
/// How long the sign of life may take.
const PONG_WITHIN: Duration = Duration::from_secs(15);
/// How long connecting may take where the configuration does not say.
const CONNECT_WITHIN: Duration = Duration::from_secs(30);

/// A client that reaches the API server as `config` says. Makes no call.
pub(crate) fn client(mut config: Config) -> kube::Result<Client> {
    config.default_retry = false;
    if config.cluster_url.scheme_str() != Some("https") || config.proxy_url.is_some() {
        return Client::try_from(config);
    }
    let namespace = config.default_namespace.clone();
    let http2 = http2(&config)?;
    let channel = Arc::new(Channel {
        http2,
        http1: OnceLock::new(),
        config,
        speaks: AtomicU8::new(Speaks::Unknown as u8),
    });
    let service = tower::service_fn(move |request| {
        let channel = Arc::clone(&channel);
        async move { channel.send(request).await }
    });
    Ok(Client::new(service, namespace))
}

/// What the server speaks.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Speaks {
    Unknown,
    Http2,
    Http1,
}

struct Channel {
    http2: Client,
    http1: OnceLock<Client>,
    config: Config,
    /// A [`Speaks`].
    speaks: AtomicU8,
}

impl Channel {
    async fn send(&self, request: Request<Body>) -> kube::Result<Response<Body>> {
        let speaks = self.speaks.load(Ordering::Relaxed);
        if speaks == Speaks::Http1 as u8 {
            return self.http1()?.send(request).await;
        }
        let again = (speaks == Speaks::Unknown as u8).then(|| copy(&request)).flatten();
        match self.http2.send(request).await {
            // Requests that waited for the same connection only learn that there is none.
            Err(error) if is_lack(&error) || self.speaks.load(Ordering::Relaxed) == Speaks::Http1 as u8 => {
                if self.speaks.swap(Speaks::Http1 as u8, Ordering::Relaxed) != Speaks::Http1 as u8 {
                    tracing::info!(
                        "the API server does not speak HTTP/2; each watch has a connection of its own"
                    );
                }
                match again {
                    Some(request) => self.http1()?.send(request).await,
                    None => Err(error),
                }
            }
            Err(error) => Err(error),
            Ok(response) => {
                self.speaks.store(Speaks::Http2 as u8, Ordering::Relaxed);
                Ok(response)
            }
        }
    }

    fn http1(&self) -> kube::Result<&Client> {
        if let Some(client) = self.http1.get() {
            return Ok(client);
        }
        let client = Client::try_from(self.config.clone())?;
        Ok(self.http1.get_or_init(|| client))
    }
}

/// The same request once more; `None` if its body cannot be read twice.
fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let mut same = Request::new(request.body().try_clone()?);
    request.method().clone_into(same.method_mut());
    request.uri().clone_into(same.uri_mut());
    request.headers().clone_into(same.headers_mut());
    request.extensions().clone_into(same.extensions_mut());
    Some(same)
}

/// A client that speaks HTTP/2 only.
fn http2(config: &Config) -> kube::Result<Client> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(config.connect_timeout);
    let mut builder =
        HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config()?).https_only();
    if let Some(name) = &config.tls_server_name {
        let name = name.clone().try_into().map_err(|_| {
            let why = format!("tls-server-name \"{name}\" of the kubeconfig is no name of a host");
            kube::Error::Service(io::Error::new(io::ErrorKind::InvalidInput, why).into())
        })?;
        builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let connector = Http2Connector {
        https: builder.enable_all_versions().wrap_connector(tcp),
        within: config.connect_timeout.unwrap_or(CONNECT_WITHIN),
    };
    let client: legacy::Client<_, Body> = legacy::Builder::new(TokioExecutor::new())
        .http2_only(true)
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(PING_AFTER)
        .http2_keep_alive_timeout(PONG_WITHIN)
        .http2_keep_alive_while_idle(true)
        .build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(client);
    Ok(ClientBuilder::new(service, config.default_namespace.clone()).build())
}

/// The server does not speak HTTP/2.
#[derive(Debug, thiserror::Error)]
#[error("the API server does not speak HTTP/2")]
struct LacksHttp2;

fn is_lack(error: &kube::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<LacksHttp2>() {
            return true;
        }
        // TLS says so itself if the server knows protocols, and this is none of them.
        let refused = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let alert = rustls::Error::AlertReceived(rustls::AlertDescription::NoApplicationProtocol);
        if refused.and_then(|error| error.downcast_ref()).is_some_and(|error: &rustls::Error| *error == alert)
        {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Connects, and lets the server choose. A connection that is not for HTTP/2 is closed.
#[derive(Clone)]
struct Http2Connector {
    https: HttpsConnector<HttpConnector>,
    /// How long TCP and TLS may take together.
    within: Duration,
}

impl Service<Uri> for Http2Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.https.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (connecting, within) = (self.https.call(uri), self.within);
        Box::pin(async move {
            let stream = tokio::time::timeout(within, connecting).await.map_err(|_| {
                let why = format!("connecting to the API server took longer than {} s", within.as_secs());
                io::Error::new(io::ErrorKind::TimedOut, why)
            })??;
            match &stream {
                MaybeHttpsStream::Https(tls) if tls.inner().get_ref().1.alpn_protocol() == Some(b"h2") => {
                    Ok(stream)
                }
                _ => Err(LacksHttp2.into()),
            }
        })
    }
}

#[cfg(test)]
mod tests;
