//! The API on a socket.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests and their helpers may")]

mod harness;

use std::time::Duration;

use harness::Host;
use serde_json::{Value, json};
use tenure_localapi::{ServeError, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// One request over a connection of its own; the body of the answer.
async fn ask(mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin, path: &str) -> (String, Value) {
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), serde_json::from_str(body).unwrap_or(Value::Null))
}

#[tokio::test]
async fn a_unix_socket_answers_and_goes_away_with_its_server() {
    let host = Host::new();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("api.sock");
    let server = Server::unix(host.api.clone(), &path).await.unwrap();
    let stream = tokio::net::UnixStream::connect(&path).await.unwrap();
    let (head, list) = ask(stream, "/api/v1/namespaces").await;
    assert_eq!((head.as_str(), &list["kind"]), ("HTTP/1.1 200 OK", &json!("NamespaceList")));
    let second = Server::unix(host.api.clone(), &path).await;
    assert!(matches!(second, Err(ServeError::InUse(_))));
    server.stop().await;
    assert!(!path.exists());
    // A socket that a killed server left behind is in nobody's way.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    Server::unix(host.api.clone(), &path).await.unwrap();
}

#[tokio::test]
async fn a_loopback_port_answers_and_other_addresses_are_refused() {
    let host = Host::new();
    let open = "0.0.0.0:0".parse().unwrap();
    let error = Server::loopback(host.api.clone(), open).await.unwrap_err();
    assert!(error.to_string().contains("0.0.0.0:0") && error.to_string().contains("127.0.0.1"), "{error}");
    let server = Server::loopback(host.api.clone(), "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let stream = tokio::net::TcpStream::connect(server.address().unwrap()).await.unwrap();
    let (head, version) = ask(stream, "/version").await;
    assert_eq!((head.as_str(), &version["major"]), ("HTTP/1.1 200 OK", &json!("1")));
    server.stop().await;
}

#[tokio::test]
async fn a_watch_over_a_socket_ends_when_the_api_closes() {
    let host = Host::new();
    let server = Server::loopback(host.api.clone(), "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let stream = tokio::net::TcpStream::connect(server.address().unwrap()).await.unwrap();
    let watching = tokio::spawn(ask(stream, "/api/v1/namespaces?watch=1&resourceVersion=4"));
    tokio::time::sleep(Duration::from_millis(50)).await;
    host.api.close();
    let (head, _) = tokio::time::timeout(Duration::from_secs(5), watching).await.unwrap().unwrap();
    assert_eq!(head, "HTTP/1.1 200 OK");
    server.stop().await;
}
