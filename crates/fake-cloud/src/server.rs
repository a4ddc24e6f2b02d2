//! The servers: one for the APIs, one for the metadata of each machine.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tenure_handles::{Clock, SystemClock};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::answer::{Answer, Refused};
use super::faults::{self, Call, Harm};
use super::{Logged, PROJECT, Shared, TOKEN, instances, metadata, operations, reservations, subnets};

/// What a server serves.
#[derive(Clone, Debug)]
pub(super) enum Site {
    /// The APIs.
    Apis,
    /// The metadata of whichever machine asks.
    Metadata(Machines),
}

/// Which machine asks a metadata server: zone and name.
#[derive(Clone, Debug)]
pub(super) enum Machines {
    /// Always the same.
    One((String, String)),
    /// The one with the address that the question comes from.
    At(BTreeMap<IpAddr, (String, String)>),
}

impl Machines {
    fn which(&self, peer: IpAddr) -> Option<&(String, String)> {
        match self {
            Self::One(machine) => Some(machine),
            Self::At(machines) => machines.get(&peer),
        }
    }
}

/// Serves until the future is dropped.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>, site: Site) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, peer)) = accepted else { continue };
                let (shared, site) = (shared.clone(), site.clone());
                let service =
                    service_fn(move |request| respond(shared.clone(), site.clone(), peer.ip(), request));
                connections.spawn(async move {
                    // A connection that ends early is the client's business, or the harm that a test asked for.
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn respond(
    shared: Arc<Shared>,
    site: Site,
    peer: IpAddr,
    request: Request<Incoming>,
) -> io::Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let path = head.uri.path_and_query().map_or_else(String::new, ToString::to_string);
    let query = query_of(head.uri.query().unwrap_or_default());
    let log = |call, status| {
        let at = SystemClock.elapsed();
        shared.state().log.push(Logged { at, call, path: path.clone(), status });
    };
    match site {
        Site::Metadata(machines) => {
            let asked = head.headers.get("Metadata-Flavor").is_some_and(|flavor| flavor == "Google");
            let below = head.uri.path().strip_prefix("/computeMetadata/v1/").unwrap_or_default();
            let refused =
                |body: &str| metadata::Told { status: 403, body: body.to_owned(), etag: String::new() };
            let told = match machines.which(peer) {
                Some((zone, instance)) if asked => {
                    metadata::answer(&shared, zone, instance, below, &query).await
                }
                Some(_) => refused("Missing Metadata-Flavor:Google header."),
                None => refused("No machine has the address that this comes from."),
            };
            log(Call::Metadata, told.status);
            let answer = Response::builder()
                .status(told.status)
                .header("Metadata-Flavor", "Google")
                .header("ETag", told.etag);
            answer.body(Full::new(Bytes::from(told.body))).map_err(io::Error::other)
        }
        Site::Apis => {
            let (parts, base) =
                split(head.uri.path(), head.headers.get("host").and_then(|host| host.to_str().ok()));
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            let call = Call::of(&head.method, &parts);
            let harm = faults::take(&mut shared.state().faults, call);
            if harm == Some(Harm::LostRequest) {
                log(call, 0);
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            let token =
                head.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
            let allowed = !shared.settings.needs_token || token == format!("Bearer {TOKEN}");
            let answer = if !allowed {
                Answer::refused(401, "authError", "Request is missing required authentication credential.")
            } else if let Some(Harm::Refused { status, reason, message }) = &harm {
                Answer::refused(*status, reason, message.clone())
            } else {
                dispatch(&shared, call, &parts, &base, &query, &body, harm.as_ref())
                    .await
                    .unwrap_or_else(|refused| refused)
            };
            if harm == Some(Harm::LostAnswer) {
                log(call, 0);
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            log(call, answer.status);
            let response = Response::builder()
                .status(answer.status)
                .header("Content-Type", "application/json; charset=UTF-8");
            response.body(Full::new(Bytes::from(answer.body.to_string()))).map_err(io::Error::other)
        }
    }
}

async fn dispatch(
    shared: &Arc<Shared>,
    call: Call,
    parts: &[&str],
    base: &str,
    query: &BTreeMap<String, String>,
    body: &[u8],
    harm: Option<&Harm>,
) -> Result<Answer, Refused> {
    let (Some(&project), place, name) =
        (parts.get(1), parts.get(3).copied().unwrap_or_default(), parts.get(5).copied().unwrap_or_default())
    else {
        return Err(Answer::not_found(&parts.join("/")));
    };
    if project != PROJECT {
        return Err(Answer::refused(
            404,
            "notFound",
            format!("The resource 'projects/{project}' was not found"),
        ));
    }
    shared.state().count(place, call, &shared.settings)?;
    let json = || {
        serde_json::from_slice::<Value>(body)
            .map_err(|error| Answer::refused(400, "parseError", format!("Parse Error: {error}")))
    };
    let scope = format!("{}/{place}", parts.get(2).copied().unwrap_or_default());
    match call {
        Call::GetInstance => shared.state().instance(base, place, name),
        Call::ListInstances => shared.state().all_instances(base, query, shared.settings.page_size),
        Call::UpdateInterface => instances::update(shared, base, (place, name), query, &json()?, harm),
        Call::GetOperation => Ok(Answer::ok(shared.state().operation(&scope, name)?.to_json(base))),
        Call::WaitOperation => operations::wait(shared, &scope, name, base).await,
        Call::ListOperations => {
            shared.state().operations_of(&scope, query.get("filter").map(String::as_str), base)
        }
        Call::GetSubnet => shared.state().subnet(base, place, name),
        Call::PatchSubnet => subnets::patch(shared, base, (place, name), query, &json()?, harm),
        Call::GetInternalRange => shared.state().reservation(name),
        Call::CreateInternalRange => reservations::reserve(shared, query, &json()?, harm),
        Call::DeleteInternalRange => shared.state().release(name),
        Call::GetReservation => shared.state().reservation_operation(name),
        Call::Metadata | Call::Unknown => Err(Answer::not_found(&parts.join("/"))),
    }
}

/// The parts of a path after the API's version, and the address before them.
fn split(path: &str, host: Option<&str>) -> (Vec<String>, String) {
    let rest = path.strip_prefix("/compute/v1/").or_else(|| path.strip_prefix("/networkconnectivity/v1/"));
    let base = format!("http://{}/compute/v1", host.unwrap_or_default());
    (rest.unwrap_or_default().split('/').map(decoded).collect(), base)
}

fn query_of(query: &str) -> BTreeMap<String, String> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(key, value)| (decoded(key), decoded(value)))
        .collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let hex = |byte: Option<u8>| char::from(byte.unwrap_or_default()).to_digit(16).unwrap_or_default();
        bytes.push(match byte {
            b'%' => u8::try_from(hex(rest.next()) * 16 + hex(rest.next())).unwrap_or_default(),
            b'+' => b' ',
            byte => byte,
        });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
