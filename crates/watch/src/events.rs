//! Publishes Kubernetes events on the objects that people look at. Events inform people; nothing waits for them.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use tenure_handles::{Clock, Timestamp};
use tokio::sync::mpsc::Receiver;

use crate::calls::CallError;
use crate::connection::Connection;

/// The same event is written again only after this time.
const AGAIN: Duration = Duration::from_mins(1);
/// How long one call may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The namespace for events of objects without one.
const NAMESPACE: &str = "default";

/// A message for people about an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    about: ObjectReference,
    warning: bool,
    reason: String,
    message: String,
}

impl Note {
    /// A normal event.
    pub fn normal(about: ObjectReference, reason: &str, message: impl Into<String>) -> Self {
        Self { about, warning: false, reason: reason.to_owned(), message: message.into() }
    }

    /// A warning.
    pub fn warning(about: ObjectReference, reason: &str, message: impl Into<String>) -> Self {
        Self { warning: true, ..Self::normal(about, reason, message) }
    }

    /// The name of its event. Equal notes have equal names, so that repetitions count up and replicas write one event.
    pub fn name(&self, host: Option<&str>) -> String {
        let mut hasher = DefaultHasher::new();
        (&self.about.kind, &self.about.uid, &self.reason, &self.message, host).hash(&mut hasher);
        let object: String = self.about.name.clone().unwrap_or_default().chars().take(200).collect();
        format!("{}.{:016x}", object.trim_end_matches(['-', '.']), hasher.finish())
    }
}

/// A reference to a node, which may be gone. Like the kubelet, we use the node's name as the UID, so that `kubectl describe node`
/// shows the events.
pub fn about_node(name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(name.to_owned()),
        uid: Some(name.to_owned()),
        ..ObjectReference::default()
    }
}

/// Who writes events.
#[derive(Clone, Debug)]
pub struct Publisher {
    /// The program.
    pub component: &'static str,
    /// Its instance.
    pub instance: String,
    /// Its node, for programs that run on every node.
    pub host: Option<String>,
    /// The most events that it writes per minute.
    pub at_most: usize,
}

/// Names of events that were written within the last minute.
#[derive(Debug, Default)]
struct Lately {
    written: HashMap<String, Timestamp>,
}

impl Lately {
    /// Whether to write an event of this name now. If so, it counts as written.
    fn may_write(&mut self, name: &str, now: Timestamp, at_most: usize) -> bool {
        self.written.retain(|_, at| now.since(*at) < AGAIN);
        if self.written.len() >= at_most || self.written.contains_key(name) {
            return false;
        }
        self.written.insert(name.to_owned(), now);
        true
    }
}

impl Publisher {
    /// Writes notes as events until the channel is closed. Failures are only logged.
    pub async fn publish(self, connection: Connection, clock: impl Clock, mut notes: Receiver<Note>) {
        let mut lately = Lately::default();
        while let Some(note) = notes.recv().await {
            let (name, now) = (note.name(self.host.as_deref()), clock.now());
            if lately.may_write(&name, now, self.at_most)
                && let Err(error) = write(&connection, &self.event(note, &name, now)).await
            {
                tracing::warn!(%error, "an event cannot be written");
            }
        }
    }

    fn event(&self, note: Note, name: &str, now: Timestamp) -> Event {
        let component = || Some(self.component.to_owned());
        let namespace = note.about.namespace.clone().unwrap_or_else(|| NAMESPACE.to_owned());
        let mut event = Event {
            involved_object: note.about,
            type_: Some(if note.warning { "Warning" } else { "Normal" }.to_owned()),
            reason: Some(note.reason),
            message: Some(note.message),
            count: Some(1),
            first_timestamp: Some(Time(now.to_jiff())),
            last_timestamp: Some(Time(now.to_jiff())),
            source: Some(EventSource { component: component(), host: self.host.clone() }),
            reporting_component: component(),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        };
        (event.metadata.name, event.metadata.namespace) = (Some(name.to_owned()), Some(namespace));
        event
    }
}

/// Writes an event, or increases the count of an existing one.
async fn write(connection: &Connection, event: &Event) -> Result<(), CallError> {
    let metadata = &event.metadata;
    let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref().unwrap_or_default());
    let events: Api<Event> = Api::namespaced(connection.client(), namespace.unwrap_or(NAMESPACE));
    let (plain, act) = (PostParams::default(), || format!("creating Event {name:?}"));
    match connection.once(PATIENCE, act, events.create(&plain, event)).await {
        Err(error) if error.code() == Some(409) => {}
        other => return other.map(drop),
    }
    let act = || format!("reading Event {name:?}");
    let Some(known) = connection.once(PATIENCE, act, events.get_opt(name)).await? else { return Ok(()) };
    let count = known.count.unwrap_or(1).saturating_add(1);
    let patch = Patch::Merge(json!({"count": count, "lastTimestamp": event.last_timestamp}));
    let (plain, act) = (PatchParams::default(), || format!("counting Event {name:?}"));
    connection.once(PATIENCE, act, events.patch(name, &plain, &patch)).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_event_waits_a_minute_and_a_flood_is_cut() {
        let (mut lately, now) = (Lately::default(), Timestamp::from_millis(1_000));
        assert!(lately.may_write("a", now, 40));
        assert!(!lately.may_write("a", now, 40));
        let more = (0..1_000).filter(|number| lately.may_write(&number.to_string(), now, 40)).count();
        assert_eq!(more, 39);
        assert!(lately.may_write("a", now.plus(AGAIN), 40));
    }

    #[test]
    fn an_event_has_one_name_on_all_replicas_and_another_on_each_node() {
        let note = Note::warning(about_node("n"), "Reason", "words");
        assert_eq!(note.name(None), note.clone().name(None));
        assert_ne!(note.name(Some("a")), note.name(Some("b")));
        assert_ne!(note.name(None), Note::warning(about_node("n"), "Reason", "others").name(None));
    }
}
