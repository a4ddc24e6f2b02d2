//! The layer between a program and the API server that counts what passes: requests, bytes and events of watches.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use http::Request;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde::{Deserialize, Serialize};
use tenure_testbed::faults::{Call, Verb};

/// The most moments that are noted.
const MOMENTS: usize = 200_000;

/// What passed of one kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// Requests.
    pub requests: u64,
    /// Those that were refused or got no answer.
    pub failed: u64,
    /// Bytes of paths and bodies to the server.
    pub sent: u64,
    /// Bytes of bodies from the server.
    pub received: u64,
    /// Events of watches, without bookmarks.
    pub events: u64,
    /// Bookmarks of watches: the API server sends one a minute, whatever happens.
    pub bookmarks: u64,
}

impl Flow {
    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.failed += other.failed;
        self.sent += other.sent;
        self.received += other.received;
        self.events += other.events;
        self.bookmarks += other.bookmarks;
    }
}

/// What passed, by verb and resource, such as `Watch addressblocks`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flows(pub BTreeMap<String, Flow>);

impl Flows {
    /// All of it together.
    pub fn total(&self) -> Flow {
        self.total_of(|_| true)
    }

    /// What passed of the kinds that match.
    pub fn total_of(&self, matches: impl Fn(&str) -> bool) -> Flow {
        let mut total = Flow::default();
        self.0.iter().filter(|(kind, _)| matches(kind)).for_each(|(_, flow)| total.add(*flow));
        total
    }

    /// Requests that change something. Who leads is renewed by time, not by work, and does not count.
    pub fn writes(&self) -> u64 {
        let writes = ["Create ", "Update ", "Patch ", "Delete ", "DeleteCollection "];
        self.total_of(|kind| writes.iter().any(|verb| kind.starts_with(verb)) && !kind.ends_with(" leases"))
            .requests
    }

    /// Both together.
    pub fn merge(&mut self, other: &Self) {
        for (kind, flow) in &other.0 {
            self.0.entry(kind.clone()).or_default().add(*flow);
        }
    }

    /// The difference since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let left = |(kind, flow): (&String, &Flow)| {
            let before = earlier.0.get(kind).copied().unwrap_or_default();
            let flow = Flow {
                requests: flow.requests.saturating_sub(before.requests),
                failed: flow.failed.saturating_sub(before.failed),
                sent: flow.sent.saturating_sub(before.sent),
                received: flow.received.saturating_sub(before.received),
                events: flow.events.saturating_sub(before.events),
                bookmarks: flow.bookmarks.saturating_sub(before.bookmarks),
            };
            (flow != Flow::default()).then(|| (kind.clone(), flow))
        };
        Self(self.0.iter().filter_map(left).collect())
    }
}

/// Reads the lines of a watch, each an event. Parts of it may end anywhere.
#[derive(Debug, Default)]
struct Lines {
    /// How the current line begins.
    head: Vec<u8>,
}

impl Lines {
    /// How a bookmark begins.
    const BOOKMARK: &[u8] = br#"{"type":"BOOKMARK""#;

    /// How many events and bookmarks end in this part.
    fn read(&mut self, part: &[u8]) -> (u64, u64) {
        let (mut events, mut bookmarks) = (0, 0);
        for piece in part.split_inclusive(|byte| *byte == b'\n') {
            let left = Self::BOOKMARK.len().saturating_sub(self.head.len());
            self.head.extend(piece.iter().take(left));
            if piece.ends_with(b"\n") {
                if self.head == Self::BOOKMARK {
                    bookmarks += 1;
                } else {
                    events += 1;
                }
                self.head.clear();
            }
        }
        (events, bookmarks)
    }
}

/// Counts what passes one client.
#[derive(Debug, Default)]
pub(super) struct Counted {
    flows: Mutex<Flows>,
}

/// Notes when lists and watches are asked for, while that is switched on; shared by all clients of a process.
#[derive(Debug, Default)]
pub(super) struct Moments {
    on: AtomicBool,
    at: Mutex<Vec<u64>>,
}

impl Moments {
    /// Begins anew.
    pub(super) fn begin(&self) {
        lock(&self.at).clear();
        self.on.store(true, Ordering::SeqCst);
    }

    /// Ends, and says when, in milliseconds of the system's clock.
    pub(super) fn end(&self) -> Vec<u64> {
        self.on.store(false, Ordering::SeqCst);
        std::mem::take(&mut *lock(&self.at))
    }

    fn note(&self) {
        if self.on.load(Ordering::Relaxed) {
            let mut at = lock(&self.at);
            if at.len() < MOMENTS {
                at.push(now());
            }
        }
    }
}

impl Counted {
    /// What passed so far.
    pub(super) fn look(&self) -> Flows {
        lock(&self.flows).clone()
    }

    /// The same client, but what passes is counted.
    pub(super) fn counting(self: &Arc<Self>, client: Client, moments: &Arc<Moments>) -> Client {
        let (counted, moments) = (Arc::clone(self), Arc::clone(moments));
        let namespace = client.default_namespace().to_owned();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, counted, call) = (client.clone(), Arc::clone(&counted), Call::of(&request));
            let asked = request.uri().path_and_query().map_or(0, |path| path.as_str().len() as u64);
            let sent = asked + request.body().size_hint().exact().unwrap_or_default();
            if matches!(call.verb, Verb::List | Verb::Watch) {
                moments.note();
            }
            async move {
                let kind = format!("{:?} {}", call.verb, call.resource);
                let watches = call.verb == Verb::Watch;
                let answer = client.send(request).await;
                let failed = !answer.as_ref().is_ok_and(|answer| answer.status().is_success());
                counted.add(&kind, Flow { requests: 1, failed: failed.into(), sent, ..Flow::default() });
                let mut lines = Lines::default();
                answer.map(|answer| {
                    answer.map(|body| {
                        body.map_frame(move |frame| {
                            if let Some(data) = frame.data_ref() {
                                let received = data.len() as u64;
                                let (events, bookmarks) = if watches { lines.read(data) } else { (0, 0) };
                                counted.add(&kind, Flow { received, events, bookmarks, ..Flow::default() });
                            }
                            frame
                        })
                    })
                })
            }
        });
        Client::new(service, namespace)
    }

    fn add(&self, kind: &str, flow: Flow) {
        let mut flows = lock(&self.flows);
        match flows.0.get_mut(kind) {
            Some(known) => known.add(flow),
            None => drop(flows.0.insert(kind.to_owned(), flow)),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Milliseconds of the system's clock: all processes of a run compare by it.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_and_bookmarks_are_told_apart_wherever_they_are_cut() {
        let text = b"{\"type\":\"ADDED\",\"object\":1}\n{\"type\":\"BOOKMARK\",\"object\":2}\n{\"type\":\"DELETED\"}\n";
        for cut in 0..text.len() {
            let mut lines = Lines::default();
            let (first, second) = (lines.read(&text[..cut]), lines.read(&text[cut..]));
            assert_eq!((first.0 + second.0, first.1 + second.1), (2, 1), "{cut}");
        }
    }

    #[test]
    fn what_passed_since_is_the_difference_and_writes_are_counted() {
        let flow = |requests| Flow { requests, ..Flow::default() };
        let of = |pairs: &[(&str, u64)]| {
            Flows(pairs.iter().map(|(kind, requests)| ((*kind).to_owned(), flow(*requests))).collect())
        };
        let (before, after) =
            (of(&[("Get pods", 1)]), of(&[("Get pods", 1), ("Patch pods", 2), ("List pods", 3)]));
        let since = after.since(&before);
        assert_eq!(since, of(&[("Patch pods", 2), ("List pods", 3)]));
        assert_eq!((since.writes(), since.total().requests), (2, 5));
    }
}
