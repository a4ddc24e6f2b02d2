//! The API on a socket, for `kubectl` and other programs on the host.
//!
//! There is no authentication: whoever can reach the socket may do everything. The permissions of its
//! directory decide who can reach a unix socket; a port is opened only on loopback addresses.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::LocalApi;

/// How long connections may take to finish after the server is told to stop.
const DRAIN: Duration = Duration::from_secs(2);

/// Why a socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is reachable from elsewhere.
    #[error(
        "serving the local API on {0}: only loopback addresses are allowed, such as 127.0.0.1:0, because there is no authentication"
    )]
    NotLoopback(SocketAddr),
    /// Another server uses it.
    #[error("serving the local API on {0}: another server answers there")]
    InUse(PathBuf),
    /// The operating system refused.
    #[error("serving the local API on {place}")]
    Io {
        /// The path or address.
        place: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A running server; it stops when this is dropped.
#[derive(Debug)]
pub struct Server {
    stop: watch::Sender<bool>,
    task: Option<JoinHandle<()>>,
    address: Option<SocketAddr>,
    socket: Option<PathBuf>,
}

impl Server {
    /// Serves on a unix socket at `path`. Replaces a socket that a dead server left there.
    pub async fn unix(api: LocalApi, path: impl AsRef<Path>) -> Result<Self, ServeError> {
        let path = path.as_ref().to_owned();
        let fail = |source| ServeError::Io { place: path.display().to_string(), source };
        if tokio::net::UnixStream::connect(&path).await.is_ok() {
            return Err(ServeError::InUse(path));
        }
        match std::fs::symlink_metadata(&path) {
            Ok(found) if is_socket(&found) => std::fs::remove_file(&path).map_err(fail)?,
            _ => {}
        }
        let listener = UnixListener::bind(&path).map_err(fail)?;
        let mut server = Self::run(api, Listener::Unix(listener));
        server.socket = Some(path);
        Ok(server)
    }

    /// Serves on a loopback address; port 0 takes any free one.
    pub async fn loopback(api: LocalApi, address: SocketAddr) -> Result<Self, ServeError> {
        if !address.ip().is_loopback() {
            return Err(ServeError::NotLoopback(address));
        }
        let fail = |source| ServeError::Io { place: address.to_string(), source };
        let listener = TcpListener::bind(address).await.map_err(fail)?;
        let address = listener.local_addr().map_err(fail)?;
        let mut server = Self::run(api, Listener::Tcp(listener));
        server.address = Some(address);
        Ok(server)
    }

    /// The address, if it serves on one.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Stops accepting and waits a moment for the connections to end.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        if let Some(task) = self.task.take()
            && task.await.is_err()
        {
            tracing::error!("the local API's server ended badly");
        }
    }

    fn run(api: LocalApi, listener: Listener) -> Self {
        let (stop, stopped) = watch::channel(false);
        let task = Some(tokio::spawn(accept(api, listener, stopped)));
        Self { stop, task, address: None, socket: None }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(socket) = &self.socket
            && let Err(error) = std::fs::remove_file(socket)
        {
            tracing::debug!(%error, path = %socket.display(), "a socket stays behind");
        }
    }
}

fn is_socket(metadata: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    metadata.file_type().is_socket()
}

enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// A connection of either kind.
trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

impl Listener {
    async fn accept(&self) -> io::Result<Box<dyn Connection>> {
        Ok(match self {
            Self::Unix(listener) => Box::new(listener.accept().await?.0),
            Self::Tcp(listener) => {
                let stream = listener.accept().await?.0;
                // Watch events are small and must not wait for more data.
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
        })
    }
}

async fn accept(api: LocalApi, listener: Listener, mut stopped: watch::Receiver<bool>) {
    let graceful = GracefulShutdown::new();
    let builder = http1::Builder::new();
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            _ = stopped.wait_for(|stop| *stop) => break,
        };
        match stream {
            Ok(stream) => {
                let service = TowerToHyperService::new(api.clone());
                let connection = builder.serve_connection(TokioIo::new(stream), service);
                let connection = graceful.watch(connection);
                connections.spawn(async move {
                    if let Err(error) = connection.await {
                        tracing::debug!(%error, "a connection to the local API broke");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection to the local API was not accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(listener);
    if tokio::time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
        tracing::debug!("connections to the local API are cut");
        connections.shutdown().await;
    }
}
