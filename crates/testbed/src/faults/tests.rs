//! The layer over a service of a few lines; `tests/control_plane.rs` has it over a real API server.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, channel::mpsc};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody, combinators::UnsyncBoxBody};
use kube::client::Body;
use tenure_handles::{Clock as _, SystemClock};
use tower::{BoxError, Layer as _, Service as _, ServiceExt as _, service_fn};

use super::*;

type Events = mpsc::UnboundedSender<Result<Frame<Bytes>, Infallible>>;

/// Answers every request with how many it has had; a watch with what is put into `events`.
struct Server {
    count: Arc<AtomicU64>,
    events: Arc<Mutex<Vec<Events>>>,
}

impl Server {
    fn new() -> Self {
        Self { count: Arc::default(), events: Arc::default() }
    }

    fn behind(
        &self,
        faults: &Faults,
    ) -> impl tower::Service<
        Request<Body>,
        Response = Response<FaultBody<UnsyncBoxBody<Bytes, Infallible>>>,
        Error = BoxError,
        Future: Send,
    > + Clone
    + use<> {
        let (count, events) = (Arc::clone(&self.count), Arc::clone(&self.events));
        faults.layer().layer(service_fn(move |request: Request<Body>| {
            let answer = (count.fetch_add(1, Ordering::SeqCst) + 1).to_string();
            let (sender, receiver) = mpsc::unbounded();
            if Call::of(&request).verb == Verb::Watch {
                events.lock().unwrap().push(sender);
            } else {
                sender.unbounded_send(Ok(Frame::data(Bytes::from(answer)))).unwrap();
            }
            async move { Ok::<_, Infallible>(Response::new(StreamBody::new(receiver).boxed_unsync())) }
        }))
    }

    fn send(&self, event: &'static str) {
        for events in self.events.lock().unwrap().iter() {
            events.unbounded_send(Ok(Frame::data(Bytes::from_static(event.as_bytes())))).unwrap();
        }
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }
}

fn request(method: &str, uri: &str) -> Request<Body> {
    Request::builder().method(method).uri(uri).body(Body::from(b"{}".to_vec())).unwrap()
}

const PODS: &str = "/api/v1/namespaces/a/pods";

/// Status and text of an answer, or what was lost.
async fn ask<S, B>(service: &S, method: &str, uri: &str) -> Result<(StatusCode, String), Lost>
where
    S: tower::Service<Request<Body>, Response = Response<FaultBody<B>>, Error = BoxError> + Clone,
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError> + std::fmt::Debug,
{
    let response = service.clone().oneshot(request(method, uri)).await;
    let response = response.map_err(|error| *error.downcast::<Lost>().unwrap())?;
    let status = response.status();
    let text = response.into_body().collect().await.unwrap().to_bytes();
    Ok((status, String::from_utf8(text.to_vec()).unwrap()))
}

#[tokio::test]
async fn without_rules_everything_passes_and_is_counted() {
    let (server, faults) = (Server::new(), Faults::seeded(1));
    let service = server.behind(&faults);
    assert_eq!(ask(&service, "POST", PODS).await, Ok((StatusCode::OK, "1".to_owned())));
    assert_eq!(
        ask(&service, "GET", "/api/v1/namespaces/a/pods/b/status").await,
        Ok((StatusCode::OK, "2".to_owned()))
    );
    assert_eq!(faults.tally(&Calls::all()), Tally { asked: 2, sent: 2 });
    assert_eq!(faults.tally(&Calls::writes()), Tally { asked: 1, sent: 1 });
    assert_eq!(faults.tally(&Calls::of(Verb::Get).to("pods/status")), Tally { asked: 1, sent: 1 });
    faults.reset_tallies();
    assert_eq!(faults.tally(&Calls::all()), Tally::default());
}

#[tokio::test]
async fn a_lost_request_does_not_reach_the_server_and_a_lost_answer_does() {
    let (server, faults) = (Server::new(), Faults::seeded(1));
    let service = server.behind(&faults);
    let rule = faults.add(Rule::lose_request().on(Calls::of(Verb::Create)));
    assert_eq!(ask(&service, "POST", PODS).await, Err(Lost::Request));
    assert_eq!((server.count(), faults.tally(&Calls::all())), (0, Tally { asked: 1, sent: 0 }));
    assert_eq!(faults.struck(rule), 1);
    faults.remove(rule);
    faults.add(Rule::lose_answer());
    assert_eq!(ask(&service, "POST", PODS).await, Err(Lost::Answer));
    assert_eq!((server.count(), faults.tally(&Calls::all())), (1, Tally { asked: 2, sent: 1 }));
    faults.clear();
    assert!(ask(&service, "POST", PODS).await.is_ok());
}

#[tokio::test]
async fn a_duplicate_reaches_the_server_twice_and_either_answer_can_be_seen() {
    let (server, faults) = (Server::new(), Faults::seeded(1));
    let service = server.behind(&faults);
    let first = faults.add(Rule::duplicate(Answer::First));
    assert_eq!(ask(&service, "POST", PODS).await.unwrap().1, "1");
    faults.remove(first);
    faults.add(Rule::duplicate(Answer::Second));
    assert_eq!(ask(&service, "POST", PODS).await.unwrap().1, "4");
    assert_eq!(faults.tally(&Calls::all()), Tally { asked: 2, sent: 4 });
}

#[tokio::test]
async fn a_refusal_is_a_status_as_an_api_server_says_it() {
    let (server, faults) = (Server::new(), Faults::seeded(1));
    let service = server.behind(&faults);
    for (code, method, reason) in [
        (409, "POST", "AlreadyExists"),
        (409, "PUT", "Conflict"),
        (429, "PUT", "TooManyRequests"),
        (500, "GET", "InternalError"),
    ] {
        let rule = faults.add(Rule::fail(StatusCode::from_u16(code).unwrap()));
        let response = service.clone().oneshot(request(method, &format!("{PODS}/b"))).await.unwrap();
        assert_eq!(response.status(), code);
        assert_eq!(response.headers().contains_key("retry-after"), code == 429);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let status: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            (&status["kind"], &status["reason"], &status["code"]),
            (&"Status".into(), &reason.into(), &code.into())
        );
        faults.remove(rule);
    }
    assert_eq!(server.count(), 0);
}

#[tokio::test]
async fn a_delay_is_within_its_bounds_and_delays_add_up() {
    let (server, faults) = (Server::new(), Faults::seeded(1));
    let service = server.behind(&faults);
    faults.add(Rule::delay(Duration::from_millis(20)..=Duration::from_millis(40)));
    faults.add(Rule::delay(Duration::from_millis(100)..=Duration::from_millis(100)));
    let start = SystemClock.now();
    ask(&service, "GET", PODS).await.unwrap();
    let took = SystemClock.now().since(start);
    assert!(took >= Duration::from_millis(119), "{took:?}");
    assert_eq!(server.count(), 1);
    let between = Duration::from_millis(2)..=Duration::from_millis(4);
    let mut plan = Plan::default();
    for _ in 0..100 {
        plan.include(&Rule::delay(between.clone()), &SeededEntropy::new(1));
    }
    assert!((Duration::from_millis(200)..=Duration::from_millis(400)).contains(&plan.delay), "{plan:?}");
}

#[tokio::test]
async fn a_rule_waits_for_its_turn_and_stops_when_it_has_struck_often_enough() {
    let (server, faults) = (Server::new(), Faults::seeded(1));
    let service = server.behind(&faults);
    let rule = faults.add(Rule::lose_request().on(Calls::of(Verb::List)).after(1).times(2));
    let mut lost = Vec::new();
    for _ in 0..5 {
        lost.push(ask(&service, "GET", PODS).await.is_err());
        ask(&service, "POST", PODS).await.expect("another verb is not affected");
    }
    assert_eq!(lost, [false, true, true, false, false]);
    assert_eq!(faults.struck(rule), 2);
}

#[tokio::test]
async fn of_two_rules_that_apply_the_first_counts() {
    let (server, faults) = (Server::new(), Faults::seeded(1));
    let service = server.behind(&faults);
    let refused = faults.add(Rule::fail(StatusCode::CONFLICT).times(1));
    let lost = faults.add(Rule::lose_request().times(1));
    assert_eq!(ask(&service, "PUT", PODS).await.unwrap().0, StatusCode::CONFLICT);
    assert_eq!((faults.struck(refused), faults.struck(lost)), (1, 0));
    assert_eq!(ask(&service, "PUT", PODS).await, Err(Lost::Request));
}

#[tokio::test]
async fn the_same_seed_strikes_the_same_requests_and_another_seed_others() {
    async fn pattern(seed: u64) -> Vec<bool> {
        let (server, faults) = (Server::new(), Faults::seeded(seed));
        let service = server.behind(&faults);
        faults.add(Rule::lose_request().percent(30));
        let mut lost = Vec::new();
        for _ in 0..200 {
            lost.push(ask(&service, "GET", PODS).await.is_err());
        }
        lost
    }
    let first = pattern(7).await;
    assert_eq!(first, pattern(7).await);
    assert_ne!(first, pattern(8).await);
    let struck = first.iter().filter(|lost| **lost).count();
    assert!((30..=90).contains(&struck), "{struck} of 200 at 30 percent");
}

#[tokio::test]
async fn watches_that_are_held_deliver_nothing_and_then_everything_in_order() {
    let (server, faults) = (Server::new(), Faults::seeded(1));
    let mut service = server.behind(&faults);
    let open = service.call(request("GET", &format!("{PODS}?watch=true"))).await.unwrap();
    let mut events = open.into_body().into_data_stream();
    server.send("one");
    assert_eq!(events.next().await.unwrap().unwrap(), "one");

    let held = faults.hold_watches(Calls::all().to("pods"));
    let others = faults.hold_watches(Calls::all().to("nodes"));
    server.send("two");
    server.send("three");
    assert!(tokio::time::timeout(Duration::from_millis(20), events.next()).await.is_err());
    assert!(ask(&service, "GET", PODS).await.is_ok(), "only watches are held");
    let waiting = tokio::spawn(async move { (events.next().await, events.next().await) });
    tokio::task::yield_now().await;
    drop(held);
    let (two, three) = waiting.await.unwrap();
    assert_eq!((two.unwrap().unwrap(), three.unwrap().unwrap()), ("two".into(), "three".into()));
    drop(others);
}

#[tokio::test]
async fn a_watch_that_is_opened_while_they_are_held_is_held_too() {
    let (server, faults) = (Server::new(), Faults::seeded(1));
    let mut service = server.behind(&faults);
    let held = faults.hold_watches(Calls::all());
    let open =
        service.call(request("GET", &format!("{PODS}?watch=1"))).await.expect("its head comes through");
    let mut events = open.into_body().into_data_stream();
    server.send("one");
    assert!(tokio::time::timeout(Duration::from_millis(20), events.next()).await.is_err());
    drop(held);
    assert_eq!(events.next().await.unwrap().unwrap(), "one");
}

#[tokio::test]
async fn a_watch_that_is_cut_ends_with_an_error_even_while_nothing_comes() {
    let (server, faults) = (Server::new(), Faults::seeded(1));
    let mut service = server.behind(&faults);
    let open = service.call(request("GET", &format!("{PODS}?watch=true"))).await.unwrap();
    let mut events = open.into_body().into_data_stream();
    faults.cut_watches(&Calls::all().to("nodes"));
    server.send("one");
    assert_eq!(events.next().await.unwrap().unwrap(), "one");
    let waiting = tokio::spawn(async move { (events.next().await, events.next().await) });
    tokio::task::yield_now().await;
    faults.cut_watches(&Calls::all().to("pods"));
    let (error, end) = waiting.await.unwrap();
    assert_eq!(*error.unwrap().unwrap_err().downcast::<Lost>().unwrap(), Lost::Watch);
    assert!(end.is_none());
}
