//! Events on the objects that people look at. The same one is not written twice within a minute, nor more than a few dozen
//! in all: they are help for people, and never hold anything up.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tenure_handles::{Clock, Timestamp};
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;

/// The same event is written again only after this time.
const AGAIN: Duration = Duration::from_mins(1);
/// How many events are written in that time.
const AT_MOST: usize = 40;
/// How long writing one may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Where events of objects without a namespace go.
const NAMESPACE: &str = "default";
const COMPONENT: &str = "tenured";

/// Something worth telling.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Note {
    pub(super) about: ObjectReference,
    pub(super) warning: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// What was written lately, so that nobody is told twice.
#[derive(Debug, Default)]
struct Lately {
    written: HashMap<String, Timestamp>,
}

impl Lately {
    /// Whether an event of this name may be written now; if so, it counts as written.
    fn may_write(&mut self, name: &str, now: Timestamp) -> bool {
        self.written.retain(|_, at| now.since(*at) < AGAIN);
        if self.written.len() >= AT_MOST || self.written.contains_key(name) {
            return false;
        }
        self.written.insert(name.to_owned(), now);
        true
    }
}

/// Writes notes as events until nobody sends any more. One that cannot be written is only logged.
pub(super) async fn publish(client: Client, clock: Arc<dyn Clock>, node: String, mut notes: Receiver<Note>) {
    let mut lately = Lately::default();
    while let Some(note) = notes.recv().await {
        let (name, now) = (note.name(&node), clock.now());
        if !lately.may_write(&name, now) {
            continue;
        }
        match timeout(PATIENCE, write(&client, &note.event(&name, now, &node))).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(event = name, %error, "writing an event failed"),
            Err(_) => tracing::warn!(event = name, "writing an event took too long"),
        }
    }
}

async fn write(client: &Client, event: &Event) -> Result<(), kube::Error> {
    let namespace = event.metadata.namespace.as_deref().unwrap_or(NAMESPACE);
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    match events.create(&PostParams::default(), event).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let name = event.metadata.name.as_deref().unwrap_or_default();
            let Some(known) = events.get_opt(name).await? else { return Ok(()) };
            let count = known.count.unwrap_or(1).saturating_add(1);
            let patch = Patch::Merge(json!({"count": count, "lastTimestamp": event.last_timestamp}));
            events.patch(name, &PatchParams::default(), &patch).await.map(|_| ())
        }
        other => other.map(|_| ()),
    }
}

impl Note {
    /// The same for the same, so that a repetition counts up.
    fn name(&self, node: &str) -> String {
        let mut hasher = DefaultHasher::new();
        (&self.about.kind, &self.about.uid, self.reason, &self.message, node).hash(&mut hasher);
        let object: String = self.about.name.clone().unwrap_or_default().chars().take(200).collect();
        format!("{}.{:016x}", object.trim_end_matches(['-', '.']), hasher.finish())
    }

    fn event(&self, name: &str, now: Timestamp, node: &str) -> Event {
        let mut event = Event {
            involved_object: self.about.clone(),
            type_: Some(if self.warning { "Warning" } else { "Normal" }.to_owned()),
            reason: Some(self.reason.to_owned()),
            message: Some(self.message.clone()),
            count: Some(1),
            first_timestamp: Some(Time(now.to_jiff())),
            last_timestamp: Some(Time(now.to_jiff())),
            source: Some(EventSource { component: Some(COMPONENT.to_owned()), host: Some(node.to_owned()) }),
            reporting_component: Some(COMPONENT.to_owned()),
            reporting_instance: Some(node.to_owned()),
            ..Event::default()
        };
        event.metadata.name = Some(name.to_owned());
        event.metadata.namespace = Some(self.about.namespace.clone().unwrap_or_else(|| NAMESPACE.to_owned()));
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_event_waits_a_minute_and_a_flood_is_cut() {
        let (mut lately, now) = (Lately::default(), Timestamp::from_millis(1_000));
        assert!(lately.may_write("a", now));
        assert!(!lately.may_write("a", now));
        let more = (0..1_000).filter(|number| lately.may_write(&number.to_string(), now)).count();
        assert_eq!(more, AT_MOST - 1);
        assert!(lately.may_write("a", now.plus(AGAIN)));
    }
}
