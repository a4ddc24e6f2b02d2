//! Telling [`Pages`] over HTTP, on TCP and unix sockets alike.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinSet;

use crate::pages::Pages;

/// After a connection could not be accepted, as when there are too many open files.
const REST: Duration = Duration::from_secs(1);

/// Where connections come from.
pub trait Accept: Send {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    /// The next connection.
    fn next(&mut self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Accept for TcpListener {
    type Stream = tokio::net::TcpStream;
    async fn next(&mut self) -> io::Result<Self::Stream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

impl Accept for UnixListener {
    type Stream = tokio::net::UnixStream;
    async fn next(&mut self) -> io::Result<Self::Stream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

/// Answers on `listener` until the future is dropped; then also the connections end.
pub async fn serve(mut listener: impl Accept, pages: Pages) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.next() => match accepted {
                Ok(stream) => _ = connections.spawn(connection(stream, pages.clone())),
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection to the pages failed");
                    tokio::time::sleep(REST).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, pages: Pages) {
    let service = service_fn(move |request: Request<Incoming>| {
        let pages = pages.clone();
        async move { Ok::<_, Infallible>(pages.answer(request.method(), request.uri().path()).await) }
    });
    let connection =
        http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection to the pages ended early");
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;

    use super::*;

    fn pages() -> Pages {
        Pages::default()
            .verdict("/healthz", || async { (true, "ok\n".to_owned()) })
            .verdict("/readyz", || async { (false, "not yet\n".to_owned()) })
            .metrics(|| async { Ok("# EOF\n".to_owned()) })
            .json("/v1/node", || async { Ok::<_, String>(serde_json::json!({"node": "node1"})) })
            .json("/v1/broken", || async { Err::<(), _>("tenured is ending") })
    }

    async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin, line: &str) -> (u16, String) {
        let request = format!("{line} HTTP/1.1\r\nhost: tenure\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), body.to_owned())
    }

    #[tokio::test]
    async fn pages_are_told_over_tcp_and_unix_sockets_alike() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.sock");
        let unix = tokio::spawn(serve(crate::listen_unix(&path).unwrap(), pages()));
        let listener = crate::listen(Some(([127, 0, 0, 1], 0).into()), 0).await.unwrap();
        let address = listener.local_addr().unwrap();
        let tcp = tokio::spawn(serve(listener, pages()));
        for (line, status, body) in [
            ("GET /healthz", 200, "ok\n"),
            ("GET /readyz", 503, "not yet\n"),
            ("GET /metrics", 200, "# EOF\n"),
            ("GET /v1/node", 200, "{\"node\":\"node1\"}\n"),
            ("GET /v1/node?watch=1", 200, "{\"node\":\"node1\"}\n"),
            ("HEAD /healthz", 200, ""),
            ("GET /v1/broken", 503, "tenured is ending\n"),
            ("POST /healthz", 405, "POST /healthz: nothing can be changed here; accepted is GET\n"),
            ("GET /", 404, "GET /: there are /healthz, /metrics, /readyz, /v1/broken, /v1/node\n"),
        ] {
            let expected = (status, body.to_owned());
            assert_eq!(ask(UnixStream::connect(&path).await.unwrap(), line).await, expected, "{line}");
            let stream = tokio::net::TcpStream::connect(address).await.unwrap();
            assert_eq!(ask(stream, line).await, expected, "{line}");
        }
        unix.abort();
        tcp.abort();
    }
}
