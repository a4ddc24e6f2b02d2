//! Events on the objects that people look at: what was refused, ran out, or was taken back.

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

mod standing;

pub(crate) use standing::Standing;

/// The same event is written again only after this time.
const AGAIN: Duration = Duration::from_mins(1);
/// Where events of objects without a namespace go.
const NAMESPACE: &str = "default";
const COMPONENT: &str = "tenure-controller";

/// Something worth telling.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    about: ObjectReference,
    warning: bool,
    reason: String,
    message: String,
}

/// A node, also one that is gone. The kubelet gives a node's name for its UID in events, and so do we, so that
/// `kubectl describe node` shows them.
pub(crate) fn about_node(name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(name.to_owned()),
        uid: Some(name.to_owned()),
        ..ObjectReference::default()
    }
}

/// Writes notes as events until nobody sends any more. An event that cannot be written is only logged.
pub(crate) async fn publish(
    client: Client,
    clock: Arc<dyn Clock>,
    instance: String,
    mut notes: Receiver<Note>,
) {
    let mut written: HashMap<String, Timestamp> = HashMap::new();
    while let Some(note) = notes.recv().await {
        let (name, now) = (note.name(), clock.now());
        written.retain(|_, at| now.since(*at) < AGAIN);
        if written.insert(name.clone(), now).is_some() {
            continue;
        }
        let events: Api<Event> = Api::namespaced(client.clone(), note.namespace());
        let created = events.create(&PostParams::default(), &note.event(&name, now, &instance)).await;
        let result = match created {
            Err(kube::Error::Api(status)) if status.code == 409 => repeat(&events, &name, now).await,
            other => other.map(|_| ()),
        };
        if let Err(error) = result {
            tracing::warn!(event = name, %error, "writing an event failed");
        }
    }
}

/// Counts an event that was there already.
async fn repeat(events: &Api<Event>, name: &str, now: Timestamp) -> Result<(), kube::Error> {
    let Some(known) = events.get_opt(name).await? else { return Ok(()) };
    let count = known.count.unwrap_or(1).saturating_add(1);
    let patch = Patch::Merge(json!({"count": count, "lastTimestamp": Time(now.to_jiff())}));
    events.patch(name, &PatchParams::default(), &patch).await.map(|_| ())
}

impl Note {
    /// Something that went well.
    pub fn normal(about: ObjectReference, reason: &str, message: &str) -> Self {
        Self { about, warning: false, reason: reason.to_owned(), message: message.to_owned() }
    }

    /// Something that somebody should look at.
    pub fn warning(about: ObjectReference, reason: &str, message: &str) -> Self {
        Self { warning: true, ..Self::normal(about, reason, message) }
    }

    /// The same for the same, so that also another replica writes it only once.
    fn name(&self) -> String {
        let mut hasher = DefaultHasher::new();
        (&self.about.uid, &self.reason, &self.message).hash(&mut hasher);
        let object: String = self.about.name.clone().unwrap_or_default().chars().take(200).collect();
        format!("{}.{:016x}", object.trim_end_matches(['-', '.']), hasher.finish())
    }

    /// Where its event is kept: with the object.
    fn namespace(&self) -> &str {
        self.about.namespace.as_deref().unwrap_or(NAMESPACE)
    }

    fn event(&self, name: &str, now: Timestamp, instance: &str) -> Event {
        let mut event = Event {
            involved_object: self.about.clone(),
            type_: Some(if self.warning { "Warning" } else { "Normal" }.to_owned()),
            reason: Some(self.reason.clone()),
            message: Some(self.message.clone()),
            count: Some(1),
            first_timestamp: Some(Time(now.to_jiff())),
            last_timestamp: Some(Time(now.to_jiff())),
            source: Some(EventSource { component: Some(COMPONENT.to_owned()), host: None }),
            reporting_component: Some(COMPONENT.to_owned()),
            reporting_instance: Some(instance.to_owned()),
            ..Event::default()
        };
        event.metadata.name = Some(name.to_owned());
        event.metadata.namespace = Some(self.namespace().to_owned());
        event
    }
}
