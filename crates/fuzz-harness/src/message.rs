//! What the agent reads from its socket. The first byte chooses the method, the rest is the request's body: gRPC frames
//! with, if all is well, one `Call` in them.

use std::time::Duration;

use prost::Message as _;
use tenure_cni::{Verb, rpc};
use tenure_grpc::server::{Connection, Event};
use tenure_grpc::{CallError, UnaryCall};

use crate::answer::Peer;
use crate::{Violation, agent, hold};

pub(crate) fn run(input: &[u8]) -> Result<(), Violation> {
    let (first, body) = input.split_first().unwrap_or((&0, &[]));
    let verbs = [Verb::Add, Verb::Del, Verb::Check, Verb::Status, Verb::Gc];
    let verb = verbs.get(usize::from(*first) % (verbs.len() + 1));
    let path = verb.and_then(|verb| rpc::path(*verb)).unwrap_or("/tenure.cni.v1.CNI/Nonsense");
    let mut connection = Connection::new(&rpc::METHODS);
    connection.receive(&request(path, body));
    agent::with_service(async |service| {
        while let Some(event) = connection.event() {
            if let Event::Call(call) = event {
                let stream = call.stream;
                connection.answer(stream, service.respond(call).await);
            }
        }
    })?;
    let reader = UnaryCall { path, message: &[], traceparent: None, patience: Duration::from_secs(1) };
    match reader.over(Peer(connection.outgoing())) {
        Ok(answer) => {
            let reply = rpc::Reply::decode(&*answer).map_err(|error| format!("answer: {error}"))?;
            let bad = reply.failure.is_some_and(|failure| failure.code == 0 || failure.message.is_empty());
            hold(!bad, || "a refusal without words".into())
        }
        Err(CallError::Refused { code, message }) => {
            hold(code != 0 && !message.is_empty(), || format!("gRPC status {code}: {message:?}"))
        }
        Err(error) => Err(format!("no answer: {error}")),
    }
}

/// A request as it comes over a connection, whatever is in its body.
fn request(path: &str, body: &[u8]) -> Vec<u8> {
    const LARGEST: usize = 16_384;
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    frame(&mut bytes, 4, 0, 0, &[]);
    // POST and http are entries of the table, :path and content-type names of it.
    let mut head = vec![0x83, 0x86, 0x04];
    text(&mut head, path);
    head.extend([0x0f, 0x10]);
    text(&mut head, "application/grpc");
    frame(&mut bytes, 1, 0x4, 1, &head);
    for chunk in body.chunks(LARGEST) {
        frame(&mut bytes, 0, 0, 1, chunk);
    }
    frame(&mut bytes, 0, 0x1, 1, &[]);
    bytes
}

fn frame(bytes: &mut Vec<u8>, kind: u8, flags: u8, stream: u8, payload: &[u8]) {
    let [.., l0, l1, l2] = payload.len().to_be_bytes();
    bytes.extend([l0, l1, l2, kind, flags, 0, 0, 0, stream]);
    bytes.extend(payload);
}

/// A text of less than 127 bytes.
fn text(bytes: &mut Vec<u8>, text: &str) {
    bytes.push(u8::try_from(text.len()).unwrap_or(0));
    bytes.extend(text.bytes());
}
