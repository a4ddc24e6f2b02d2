//! The protocol: its file, other versions of it, and what the small client and tonic make of each other.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use prost::Message;
use serde_json::json;
use tenure_cni::grpc::{CallError, UnaryCall};
use tenure_cni::{Verb, rpc};
use tonic::body::Body;
use tonic::server::{Grpc, UnaryService};
use tonic::{Response, Status};

use super::codec::Prost;
use super::rig::*;
use crate::serve::listen;

const PROTO: &str = include_str!("../../../../../proto/tenure/cni/v1/cni.proto");

fn call_of(config: &serde_json::Value) -> rpc::Call {
    rpc::Call {
        protocol: rpc::PROTOCOL,
        container_id: "c1".into(),
        netns: "/run/netns/c1".into(),
        ifname: "eth0".into(),
        config: config.to_string().into_bytes(),
        ..rpc::Call::default()
    }
}

async fn send(socket: &Path, path: &'static str, message: Vec<u8>) -> Result<Vec<u8>, CallError> {
    let socket = socket.to_owned();
    let call = move || {
        let patience = Duration::from_secs(20);
        UnaryCall { path, message: &message, traceparent: Some("00-4bf92f35-00f067aa-01"), patience }
            .send(&socket)
    };
    tokio::task::spawn_blocking(call).await.unwrap()
}

async fn add(socket: &Path, message: Vec<u8>) -> rpc::Reply {
    let answer = send(socket, rpc::path(Verb::Add).unwrap(), message).await.unwrap();
    rpc::Reply::decode(&*answer).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn configurations_larger_than_a_window_of_http2_get_through() {
    let rig = Rig::ready();
    for size in [60_000, 70_000, 300_000, 1_000_000] {
        let mut config = config("1.0.0");
        config["note"] = json!("x".repeat(size));
        let reply = add(&rig.socket(), call_of(&config).encode_to_vec()).await;
        assert_eq!(reply.failure, None, "{size}");
    }
    let mut config = config("1.0.0");
    config["note"] = json!("x".repeat(2_000_000));
    let reply = add(&rig.socket(), call_of(&config).encode_to_vec()).await;
    assert_eq!(reply.failure.unwrap().code, 6, "and what is too large is refused with words");
}

/// A newer plugin: fields that this agent does not know, of every wire type.
#[tokio::test(flavor = "multi_thread")]
async fn a_newer_plugin_is_understood() {
    let rig = Rig::ready();
    let mut message = rpc::Call { protocol: 99, ..call_of(&config("1.0.0")) }.encode_to_vec();
    message.extend(
        Newer { word: "hello".into(), number: 7, nested: Some(Nested { fixed: 1.5 }) }.encode_to_vec(),
    );
    let reply = add(&rig.socket(), message).await;
    assert_eq!(reply.failure, None);
    // An older one: fields that it does not have.
    let older = rpc::Call { protocol: 0, plugin: String::new(), ..call_of(&config("1.0.0")) };
    assert_eq!(add(&rig.socket(), older.encode_to_vec()).await.failure, None);
}

#[derive(Clone, PartialEq, Message)]
struct Newer {
    #[prost(string, tag = "100")]
    word: String,
    #[prost(uint64, tag = "101")]
    number: u64,
    #[prost(message, optional, tag = "102")]
    nested: Option<Nested>,
}

#[derive(Clone, PartialEq, Message)]
struct Nested {
    #[prost(double, tag = "1")]
    fixed: f64,
}

/// An answer of a newer agent, with a large part that this plugin does not know.
#[derive(Clone, PartialEq, Message)]
struct NewerReply {
    #[prost(bytes = "vec", tag = "1")]
    result: Vec<u8>,
    #[prost(string, tag = "50")]
    comment: String,
}

#[derive(Clone)]
struct NewerAgent;

impl tower::Service<http::Request<Body>> for NewerAgent {
    type Response = http::Response<Body>;
    type Error = std::convert::Infallible;
    type Future = futures::future::BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move { Ok(Grpc::new(Prost::new()).unary(Self, request).await) })
    }
}

impl UnaryService<rpc::Call> for NewerAgent {
    type Response = NewerReply;
    type Future = std::future::Ready<Result<Response<NewerReply>, Status>>;

    fn call(&mut self, _: tonic::Request<rpc::Call>) -> Self::Future {
        let reply = NewerReply { result: b"{}".to_vec(), comment: "x".repeat(200_000) };
        std::future::ready(Ok(Response::new(reply)))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_agent_is_understood() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("tenured.sock");
    let listener = listen(&socket).unwrap().listener;
    let incoming = futures::stream::unfold(listener, |listener| async {
        Some((listener.accept().await.map(|(stream, _)| stream), listener))
    });
    let serving = tonic::transport::Server::builder().serve_with_incoming(NewerAgent, Box::pin(incoming));
    let server = tokio::spawn(async move { serving.await.unwrap() });
    let reply = add(&socket, call_of(&config("1.0.0")).encode_to_vec()).await;
    assert_eq!((reply.result.as_slice(), reply.failure), (&b"{}"[..], None));
    server.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_call_gets_a_status_and_not_an_answer() {
    let rig = Rig::ready();
    let unknown = send(&rig.socket(), "/tenure.cni.v1.CNI/Move", Vec::new()).await;
    assert!(
        matches!(&unknown, Err(CallError::Refused { code: 12, message }) if message.contains("Move")),
        "{unknown:?}"
    );
    let garbage = send(&rig.socket(), "/tenure.cni.v1.CNI/Add", vec![0xff; 40]).await;
    assert!(matches!(&garbage, Err(CallError::Refused { code: 3, .. })), "{garbage:?}");
    let empty = send(&rig.socket(), "/tenure.cni.v1.CNI/Add", Vec::new()).await.unwrap();
    assert_eq!(rpc::Reply::decode(&*empty).unwrap().failure.unwrap().code, 6, "an empty call is one");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_socket_is_roots_alone_and_a_new_agent_takes_it_over() {
    let rig = Rig::ready();
    assert_eq!((mode(&rig.socket()), mode(rig.socket().parent().unwrap())), (0o600, 0o700));
    let second = listen(&rig.socket()).unwrap();
    assert_eq!(mode(&rig.socket()), 0o600);
    drop(second);
    let refused = listen(Path::new("/dev/null/tenured.sock")).unwrap_err();
    assert!(refused.to_string().contains("/dev/null"), "{refused}");
}

/// A field of a message: its number, and how it goes over the wire.
type Fields = BTreeMap<String, (u64, u64)>;

/// The fields of a message, from the file.
fn fields_in_file(message: &str) -> Fields {
    let body = PROTO.split(&format!("message {message} {{")).nth(1).unwrap().split("\n}").next().unwrap();
    let lines = body.lines().map(str::trim).filter(|line| line.ends_with(';') && !line.starts_with("//"));
    lines
        .map(|line| {
            let (declared, number) = line.trim_end_matches(';').rsplit_once(" = ").unwrap();
            let (kind, name) = declared.rsplit_once(' ').unwrap();
            // Varints are 0, everything else here has a length.
            let wire = if kind == "uint32" { 0 } else { 2 };
            (name.to_owned(), (number.parse().unwrap(), wire))
        })
        .collect()
}

/// Number and wire type of the only field that a message has set.
fn field_on_wire(message: &impl Message) -> (u64, u64) {
    let bytes = message.encode_to_vec();
    let key = prost::encoding::decode_varint(&mut &*bytes).unwrap();
    (key >> 3, key & 7)
}

/// The fields of a message, each from one in which only it is set.
fn on_wire<M: Message>(messages: &[(&str, M)]) -> Fields {
    messages.iter().map(|(name, message)| ((*name).to_owned(), field_on_wire(message))).collect()
}

#[test]
fn the_messages_are_those_of_the_proto_file() {
    let text = || "x".to_owned();
    let call = rpc::Call::default();
    let calls = [
        ("protocol", rpc::Call { protocol: 1, ..call.clone() }),
        ("container_id", rpc::Call { container_id: text(), ..call.clone() }),
        ("netns", rpc::Call { netns: text(), ..call.clone() }),
        ("ifname", rpc::Call { ifname: text(), ..call.clone() }),
        ("args", rpc::Call { args: [(text(), text())].into(), ..call.clone() }),
        ("path", rpc::Call { path: text(), ..call.clone() }),
        ("config", rpc::Call { config: vec![1], ..call.clone() }),
        ("plugin", rpc::Call { plugin: text(), ..call.clone() }),
        ("traceparent", rpc::Call { traceparent: text(), ..call.clone() }),
    ];
    let failure = rpc::Failure::default();
    let failures = [
        ("code", rpc::Failure { code: 1, ..failure.clone() }),
        ("message", rpc::Failure { message: text(), ..failure.clone() }),
        ("details", rpc::Failure { details: text(), ..failure.clone() }),
    ];
    let replies = [
        ("result", rpc::Reply { result: vec![1], failure: None }),
        ("failure", rpc::Reply { result: Vec::new(), failure: Some(failure.clone()) }),
    ];
    assert_eq!(on_wire(&calls), fields_in_file("Call"));
    assert_eq!(on_wire(&failures), fields_in_file("Failure"));
    assert_eq!(on_wire(&replies), fields_in_file("Reply"));
}

#[test]
fn the_methods_are_those_of_the_proto_file() {
    let package = PROTO.lines().find_map(|line| line.strip_prefix("package ")).unwrap().trim_end_matches(';');
    let methods = PROTO.lines().filter_map(|line| line.trim().strip_prefix("rpc ")?.split_once('('));
    let mut in_file: Vec<String> = methods.map(|(name, _)| format!("/{package}.CNI/{name}")).collect();
    let verbs = [Verb::Add, Verb::Del, Verb::Check, Verb::Status, Verb::Gc];
    let mut here: Vec<String> = verbs.into_iter().filter_map(rpc::path).map(str::to_owned).collect();
    in_file.sort();
    here.sort();
    assert_eq!(in_file, here);
}
