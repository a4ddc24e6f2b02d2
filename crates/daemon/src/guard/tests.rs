//! A guard with an API server that knows one token.

use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tenure_handles::{ManualClock, Timestamp};

use super::*;

/// What the API server is like.
#[derive(Clone, Copy)]
struct Server {
    /// Whether it looks at audiences.
    audiences: bool,
    allows: bool,
    works: bool,
}

const GOOD: Server = Server { audiences: true, allows: true, works: true };

fn guard(server: Server) -> (Guard, Arc<ManualClock>, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            let path = request.uri().path().to_owned();
            let body: Value = serde_json::from_slice(&request.into_body().collect().await?.to_bytes())?;
            let answer = answer(server, &path, &body);
            let status = if server.works { 201 } else { 500 };
            let response = Response::builder().status(status).body(kube::client::Body::from(answer))?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(response)
        }
    });
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_800_000_000_000)));
    let right = Right { group: "tenure", resource: "nodes", subresource: "view", name: "node1".to_owned() };
    let guard = Guard::new(Client::new(service, "default"), clock.clone(), "tenured/node1".to_owned(), right);
    (guard, clock, asked)
}

fn answer(server: Server, path: &str, asked: &Value) -> Vec<u8> {
    let answer = if !server.works {
        json!({"kind": "Status", "code": 500, "message": "etcd is away"})
    } else if path.ends_with("/tokenreviews") {
        let good = asked["spec"]["token"] == "good" && asked["spec"]["audiences"] == json!(["tenured/node1"]);
        let audiences = if server.audiences { asked["spec"]["audiences"].clone() } else { json!([]) };
        let status = if good {
            json!({"authenticated": true, "audiences": audiences, "user": {"username": "ann", "groups": ["ops"]}})
        } else {
            json!({"authenticated": false})
        };
        json!({"spec": asked["spec"], "status": status})
    } else {
        let wanted = json!({"verb": "get", "group": "tenure", "resource": "nodes", "subresource": "view", "name": "node1"});
        let spec = &asked["spec"];
        let same =
            spec["resourceAttributes"] == wanted && spec["user"] == "ann" && spec["groups"] == json!(["ops"]);
        json!({"spec": spec, "status": {"allowed": server.allows && same}})
    };
    answer.to_string().into_bytes()
}

async fn status(guard: &Guard, token: Option<&str>) -> u16 {
    guard.admit(token).await.map_or_else(|denied| denied.status.as_u16(), |()| 200)
}

#[tokio::test(start_paused = true)]
async fn a_guard_admits_whom_the_api_server_knows_and_allows() {
    let (guarded, _, _) = guard(GOOD);
    assert_eq!(status(&guarded, Some("good")).await, 200);
    for missing in [None, Some("")] {
        let denied = guarded.admit(missing).await.unwrap_err();
        assert_eq!(denied.status, 401);
        assert!(
            denied.message.contains(r#"audience "tenured/node1" in the header tenure-token"#),
            "{denied:?}"
        );
    }
    assert_eq!(status(&guarded, Some("bad")).await, 401);
    // A server that does not look at audiences has said nothing.
    assert_eq!(status(&guard(Server { audiences: false, ..GOOD }).0, Some("good")).await, 401);
    let denied = guard(Server { allows: false, ..GOOD }).0.admit(Some("good")).await.unwrap_err();
    assert_eq!(denied.status, 403);
    assert!(denied.message.starts_with(r#""ann" may not get nodes/view"#), "{denied:?}");
    // Whom nobody knows is not let in.
    assert_eq!(status(&guard(Server { works: false, ..GOOD }).0, Some("good")).await, 503);
}

#[tokio::test(start_paused = true)]
async fn an_admission_is_remembered_for_seconds_and_a_refusal_is_not() {
    let (guard, clock, asked) = guard(GOOD);
    for _ in 0..5 {
        assert_eq!(status(&guard, Some("good")).await, 200);
    }
    assert_eq!(asked.load(Ordering::SeqCst), 2, "one review of each kind");
    clock.advance(REMEMBERED);
    assert_eq!(status(&guard, Some("good")).await, 200);
    assert_eq!(asked.load(Ordering::SeqCst), 4);
    for _ in 0..3 {
        assert_eq!(status(&guard, Some("bad")).await, 401);
    }
    assert_eq!(asked.load(Ordering::SeqCst), 7);
}

#[tokio::test(start_paused = true)]
async fn many_who_guess_tokens_do_not_reach_the_api_server_all_at_once() {
    let (guard, _, asked) = guard(GOOD);
    let guesses = (0..100).map(|number| {
        let guard = guard.clone();
        async move { status(&guard, Some(&format!("guess {number}"))).await }
    });
    let said = futures::future::join_all(guesses).await;
    let (refused, later): (Vec<u16>, Vec<u16>) = said.into_iter().partition(|status| *status == 401);
    assert_eq!((refused.len(), later), (MOST_WAITING, vec![429; 100 - MOST_WAITING]));
    assert_eq!(asked.load(Ordering::SeqCst), MOST_WAITING);
}
