//! What the agent reads from its socket. The first byte chooses the method, the rest is the request's body: gRPC frames
//! with, if all is well, one `Call` in them.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use prost::Message as _;
use tenure_cni::{Verb, rpc};
use tonic::body::Body;
use tower::Service as _;

use crate::{Broken, agent, hold};

pub(crate) fn enter(input: &[u8]) -> Result<(), Broken> {
    let (first, body) = input.split_first().unwrap_or((&0, &[]));
    let verbs = [Verb::Add, Verb::Del, Verb::Check, Verb::Status, Verb::Gc];
    let verb = verbs.get(usize::from(*first) % (verbs.len() + 1));
    let path = verb.and_then(|verb| rpc::path(*verb)).unwrap_or("/tenure.cni.v1.CNI/Nonsense");
    let body = body.to_vec();
    let (status, headers, answer) = agent::with_service(async |mut service| {
        let body = Body::new(Full::new(Bytes::from(body)).map_err(|never| match never {}));
        let request = http::Request::post(path).header("content-type", "application/grpc").body(body);
        let request = request.map_err(|error| format!("no request: {error}"))?;
        let Ok(response) = service.call(request).await;
        let (parts, body) = response.into_parts();
        let collected = body.collect().await.map_err(|error| format!("no answer: {error}"))?;
        let trailers = collected.trailers().cloned().unwrap_or_default();
        let mut headers = parts.headers;
        headers.extend(trailers);
        Ok::<_, Broken>((parts.status, headers, collected.to_bytes()))
    })??;
    hold(status.is_success(), || format!("HTTP status {status}"))?;
    let code = headers.get("grpc-status").and_then(|code| code.to_str().ok()).unwrap_or_default();
    hold(code.parse::<u32>().is_ok(), || format!("gRPC status {code:?} in {headers:?}"))?;
    if code == "0" {
        let message = answer.get(5..).ok_or("an answer that is no message")?;
        let reply = rpc::Reply::decode(message).map_err(|error| format!("answer: {error}"))?;
        let bad = reply.failure.is_some_and(|failure| failure.code == 0 || failure.message.is_empty());
        hold(!bad, || "a refusal without words".into())?;
    }
    Ok(())
}
