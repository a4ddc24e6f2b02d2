//! Kubernetes events on the objects that people look at: what was refused, ran out, or was taken back. They are help for people,
//! and never hold anything up.

use std::borrow::Cow;
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
/// Where events of objects without a namespace go.
const NAMESPACE: &str = "default";

/// Something worth telling.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    about: ObjectReference,
    warning: bool,
    reason: Cow<'static, str>,
    message: String,
}

impl Note {
    /// Something that went well.
    pub fn normal(about: ObjectReference, reason: &str, message: &str) -> Self {
        Self { about, warning: false, reason: reason.to_owned().into(), message: message.to_owned() }
    }

    /// Something that somebody should look at.
    pub fn warning(about: ObjectReference, reason: &str, message: &str) -> Self {
        Self { warning: true, ..Self::normal(about, reason, message) }
    }

    /// What it is called, the same for the same, so that a repetition counts up, and another replica writes it only once.
    pub fn name(&self, host: Option<&str>) -> String {
        let mut hasher = DefaultHasher::new();
        (&self.about.kind, &self.about.uid, &self.reason, &self.message, host).hash(&mut hasher);
        let object: String = self.about.name.clone().unwrap_or_default().chars().take(200).collect();
        format!("{}.{:016x}", object.trim_end_matches(['-', '.']), hasher.finish())
    }
}

/// A node, also one that is gone. The kubelet gives a node's name for its UID in events, and so do we, so that
/// `kubectl describe node` shows them.
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
    /// Which one of those.
    pub instance: String,
    /// The node that it is about, if it is one of many programs that tell the same of different nodes.
    pub host: Option<String>,
    /// How many events it writes a minute.
    pub at_most: usize,
}

/// What was written lately, so that nobody is told twice.
#[derive(Debug, Default)]
struct Lately {
    written: HashMap<String, Timestamp>,
}

impl Lately {
    /// Whether an event of this name may be written now; if so, it counts as written.
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
    /// Writes notes as events until nobody sends any more. One that cannot be written is only logged.
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
            reason: Some(note.reason.into_owned()),
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

/// Writes an event, or counts one more where it is there already.
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
