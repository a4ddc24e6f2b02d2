//! Requests over a unix socket: to the embedded Kubernetes API, or for an agent's state.

use std::io;
use std::path::{Path, PathBuf};

use http::{HeaderValue, Request, Response};
use hyper::body::{Body, Incoming};
use hyper_util::rt::TokioIo;
use kube::Client;
use tokio::net::UnixStream;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody accepts the connection.
    #[error("connecting to {}: {}", path.display(), help(path))]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The connection broke, or the other end does not speak HTTP.
    #[error("asking at {}", path.display())]
    Ask {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: hyper::Error,
    },
}

fn help(path: &Path) -> &'static str {
    if path.exists() {
        "is tenured running, and are you root?"
    } else {
        "it is not there; is tenured running?"
    }
}

/// A client of the Kubernetes API at a unix socket. Makes no call.
pub fn connect_unix(socket: &Path) -> Client {
    let socket = socket.to_owned();
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let socket = socket.clone();
        async move { ask(&socket, request).await }
    });
    Client::new(service, "default")
}

/// Sends one request over a connection of its own, which is cheap and leaves nothing to manage.
pub async fn ask<B>(socket: &Path, mut request: Request<B>) -> Result<Response<Incoming>, AskError>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let stream = UnixStream::connect(socket).await;
    let stream = stream.map_err(|source| AskError::Connect { path: socket.to_owned(), source })?;
    let asking = |source| AskError::Ask { path: socket.to_owned(), source };
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(asking)?;
    // The caller learns how it ended from the answer.
    tokio::spawn(async move { drop(connection.await) });
    // A server expects the path alone.
    if let Some(path) = request.uri().path_and_query().cloned() {
        *request.uri_mut() = path.into();
    }
    request.headers_mut().insert(http::header::HOST, HeaderValue::from_static("tenure"));
    sender.send_request(request).await.map_err(asking)
}

#[cfg(test)]
mod tests {
    use http_body_util::Empty;
    use hyper::body::Bytes;

    use super::*;
    use crate::{Pages, listen_unix, serve};

    #[tokio::test]
    async fn an_answer_comes_over_a_socket_and_a_socket_that_is_not_there_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("state.sock");
        let request = || Request::get("http://anything/healthz").body(Empty::<Bytes>::new()).unwrap();
        let error = ask(&socket, request()).await.unwrap_err().to_string();
        assert!(error.ends_with("state.sock: it is not there; is tenured running?"), "{error}");
        let pages = Pages::default().verdict("/healthz", || async { (true, "ok\n".to_owned()) });
        tokio::spawn(serve(listen_unix(&socket).unwrap(), pages));
        assert_eq!(ask(&socket, request()).await.unwrap().status(), 200);
    }
}
