//! Serving HTTP, above all [`Pages`], on TCP and unix sockets, within limits: a client can neither keep the program
//! busy nor keep others from being answered.
//!
//! - A connection is for one request, which is small and comes soon.
//! - The number of connections is limited. One more ends the oldest connection of the client with the most,
//!   so that a client that opens many ends only its own.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use crate::guard::TOKEN;
use crate::pages::Pages;

/// The pause after a failed accept, for example because of too many open files.
const REST: Duration = Duration::from_secs(1);

/// The limits for clients.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most connections.
    pub connections: usize,
    /// How long the head of a request may take.
    pub head_within: Duration,
    /// How large it may be.
    pub largest_head: usize,
    /// How long a connection may take, until the last byte of its answer.
    pub all_within: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 64,
            head_within: Duration::from_secs(5),
            // A token has about 1,500 bytes.
            largest_head: 16 << 10,
            all_within: Duration::from_secs(30),
        }
    }
}

/// A source of connections.
pub trait Accept: Send {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    /// The next connection, and its client's address if known.
    fn next(&mut self) -> impl Future<Output = io::Result<(Self::Stream, Option<IpAddr>)>> + Send;
}

impl Accept for TcpListener {
    type Stream = tokio::net::TcpStream;
    async fn next(&mut self) -> io::Result<(Self::Stream, Option<IpAddr>)> {
        self.accept().await.map(|(stream, source)| (stream, Some(party(source.ip()))))
    }
}

impl Accept for UnixListener {
    type Stream = tokio::net::UnixStream;
    async fn next(&mut self) -> io::Result<(Self::Stream, Option<IpAddr>)> {
        self.accept().await.map(|(stream, _)| (stream, None))
    }
}

/// Answers requests. Cheap to clone.
pub trait Answer: Clone + Send + Sync + 'static {
    /// The body of an answer.
    type Body: Body<Data = Bytes, Error = Infallible> + Send + 'static;
    /// The answer to a request.
    fn answer(&self, request: Request<Incoming>) -> impl Future<Output = Response<Self::Body>> + Send;
}

impl Answer for Pages {
    type Body = Full<Bytes>;
    async fn answer(&self, request: Request<Incoming>) -> Response<Self::Body> {
        let token = request.headers().get(TOKEN).and_then(|token| token.to_str().ok());
        self.answer_query(request.method(), request.uri().path(), request.uri().query(), token).await
    }
}

/// The client of an address: in IPv6, one client has a /64.
fn party(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V6(source) => Ipv6Addr::from_bits(source.to_bits() >> 64 << 64).into(),
        source @ IpAddr::V4(_) => source,
    }
}

/// Serves `listener` until the future is dropped; then its connections end, too.
pub async fn serve(listener: impl Accept, pages: Pages) {
    serve_within(listener, pages, Limits::default()).await;
}

/// The same, with other limits.
pub async fn serve_within(mut listener: impl Accept, answers: impl Answer, limits: Limits) {
    let mut connections = JoinSet::new();
    let mut open = Open::default();
    loop {
        tokio::select! {
            accepted = listener.next() => match accepted {
                Ok((stream, party)) => {
                    open.make_room(limits.connections);
                    let task = connections.spawn(connection(stream, answers.clone(), limits));
                    open.connections.push((party, task));
                }
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection to the pages failed");
                    tokio::time::sleep(REST).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Open connections, oldest first, and the client of each.
#[derive(Default)]
struct Open {
    connections: Vec<(Option<IpAddr>, AbortHandle)>,
}

impl Open {
    /// Ends a connection if there is no room for one more.
    fn make_room(&mut self, most: usize) {
        self.connections.retain(|(_, task)| !task.is_finished());
        if self.connections.len() < most {
            return;
        }
        let count = |party| self.connections.iter().filter(|(other, _)| *other == party).count();
        let greediest = self.connections.iter().map(|(party, _)| *party).max_by_key(|party| count(*party));
        let oldest = self.connections.iter().position(|(party, _)| Some(*party) == greediest);
        if let Some(oldest) = oldest {
            self.connections.remove(oldest).1.abort();
        }
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    answers: impl Answer,
    limits: Limits,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answers = answers.clone();
        async move { Ok::<_, Infallible>(answers.answer(request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_within)
        .max_buf_size(limits.largest_head)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    match timeout(limits.all_within, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection to the pages ended early"),
        Err(_) => tracing::debug!("a connection to the pages took too long"),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpSocket, TcpStream, UnixStream};

    use super::*;

    fn pages() -> Pages {
        Pages::default()
            .verdict("/healthz", || async { (true, "ok\n".to_owned()) })
            .verdict("/readyz", || async { (false, "not yet\n".to_owned()) })
            .metrics(|| async { Ok("# EOF\n".to_owned()) })
            .json("/v1/node", || async { Ok::<_, String>(serde_json::json!({"node": "node1"})) })
            .json("/v1/broken", || async { Err::<(), _>("tenured is ending") })
    }

    /// Few connections, and little time for a head.
    const TIGHT: Limits = Limits {
        connections: 8,
        head_within: Duration::from_millis(50),
        largest_head: 8 << 10,
        all_within: Duration::from_secs(5),
    };

    async fn listening(limits: Limits) -> (std::net::SocketAddr, tokio::task::JoinHandle<()>) {
        let listener = crate::listen(Some(([127, 0, 0, 1], 0).into()), 0).await.unwrap();
        (listener.local_addr().unwrap(), tokio::spawn(serve_within(listener, pages(), limits)))
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
    #[tokio::test]
    async fn who_opens_many_connections_and_says_nothing_keeps_nobody_from_being_answered() {
        let limits = Limits { head_within: Duration::from_mins(1), ..TIGHT };
        let (address, served) = listening(limits).await;
        let mut idle = Vec::new();
        for _ in 0..3 * limits.connections {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"GET /healthz HTTP/1.1\r\nx-slow: ").await.unwrap();
            idle.push(stream);
        }
        for path in ["/healthz", "/metrics"] {
            let from_elsewhere = TcpSocket::new_v4().unwrap();
            from_elsewhere.bind(([127, 0, 0, 2], 0).into()).unwrap();
            let stream = from_elsewhere.connect(address).await.unwrap();
            assert_eq!(ask(stream, &format!("GET {path}")).await.0, 200);
        }
        // The first of them were ended for it.
        let mut byte = [0];
        let first = idle[0].read(&mut byte).await;
        assert!(matches!(first, Ok(0) | Err(_)), "{first:?}");
        served.abort();
    }

    #[tokio::test]
    async fn of_many_connections_the_oldest_of_whoever_has_most_ends() {
        let task = || tokio::spawn(std::future::pending::<()>()).abort_handle();
        let (many, one) = (Some(IpAddr::from([10, 0, 0, 1])), Some(IpAddr::from([10, 0, 0, 2])));
        let mut open = Open::default();
        open.connections.push((one, task()));
        while open.connections.len() < 8 {
            open.connections.push((many, task()));
        }
        let (spared, ended) = (open.connections[0].1.clone(), open.connections[1].1.clone());
        open.make_room(8);
        tokio::task::yield_now().await;
        assert_eq!(open.connections.len(), 7);
        assert!(ended.is_finished() && !spared.is_finished());
    }

    #[tokio::test]
    async fn a_head_that_is_too_large_and_a_second_request_are_not_answered() {
        let (address, served) = listening(TIGHT).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        let large = format!("GET /healthz HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(2 * TIGHT.largest_head));
        stream.write_all(large.as_bytes()).await.unwrap();
        let mut text = String::new();
        // It may end while more data are in flight.
        _ = stream.read_to_string(&mut text).await;
        assert!(!text.starts_with("HTTP/1.1 200"), "{text}");

        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: tenure\r\n\r\n").await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert!(text.starts_with("HTTP/1.1 200") && text.contains("connection: close"), "{text}");
        served.abort();
    }

    #[tokio::test]
    async fn a_head_that_does_not_come_ends_its_connection() {
        let (address, served) = listening(TIGHT).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nx-slow: ").await.unwrap();
        let mut text = String::new();
        let ended = stream.read_to_string(&mut text).await;
        assert!(ended.is_err() || !text.starts_with("HTTP/1.1 200"), "{text}");
        served.abort();
    }

    #[test]
    fn of_ipv6_one_party_has_a_64() {
        let of = |text: &str| party(text.parse().unwrap()).to_string();
        assert_eq!(of("fd00:1:2:3:4:5:6:7"), "fd00:1:2:3::");
        assert_eq!(of("::ffff:10.0.0.1"), "10.0.0.1");
    }
}
