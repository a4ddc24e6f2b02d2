//! Events on the objects that people look at: what was refused, ran out, or was taken back.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use serde_json::json;
use tenure_api::coil::{AddressPool, BlockRequest, RequestOutcome, condition};
use tenure_handles::{Clock, Timestamp};
use tenure_whereabouts::slices::{self, About};
use tokio::sync::mpsc::Receiver;

use crate::world::World;
use crate::write::{Because, LedgerWrite, Write};

mod claims;
mod makers;
mod moves;
mod standing;

pub(crate) use makers::{of_machine, of_stateful_set};
pub(crate) use moves::{crowded, definition_refused, not_allowed, unreadable_signal};
pub(crate) use standing::Standing;

/// The same event is written again only after this time.
const AGAIN: Duration = Duration::from_mins(1);
/// So many pods are named in a message; the others are counted.
const NAMED: usize = 5;
/// Where events of objects without a namespace go.
const NAMESPACE: &str = "default";
const COMPONENT: &str = "tenure-controller";

/// Something worth telling.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Note {
    about: ObjectReference,
    warning: bool,
    reason: String,
    message: String,
}

/// What a write that was done gives to tell; `world` is what was known before it, for [`Write::Ledger`] after it.
pub(crate) fn notes(write: &Write, world: &World) -> Vec<Note> {
    match write {
        Write::Answer { request, status, .. } => {
            let Some(known) = world.requests.get(&request.name) else { return Vec::new() };
            let mut answered = BlockRequest::new(&request.name, known.spec.clone());
            answered.status = Some(status.clone());
            let RequestOutcome::Failed { reason, message } = answered.outcome() else { return Vec::new() };
            let node = node_reference(&known.spec.node_name);
            let note = |about, message| Note { about, warning: true, reason: reason.to_owned(), message };
            vec![
                note(known.object_ref(&()), message.to_owned()),
                note(node, format!("no block for this node: {message}")),
            ]
        }
        Write::PoolStatus { pool, status } => {
            let Some(known) = world.pools.get(&pool.name) else { return Vec::new() };
            let before = known.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
            let bad = |condition: &&k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| {
                let is_bad = match condition.type_.as_str() {
                    condition::EXHAUSTED | condition::OVERLAPPING => condition.status == "True",
                    condition::READY => condition.reason == condition::reason::INVALID,
                    _ => false,
                };
                let was = before.iter().find(|known| known.type_ == condition.type_);
                is_bad
                    && was.is_none_or(|was| was.status != condition.status || was.reason != condition.reason)
            };
            let bad = status.conditions.iter().filter(bad);
            bad.map(|condition| pool_note(known, &condition.reason, &condition.message)).collect()
        }
        Write::ReleaseBlock { block, node, because, .. } => {
            let why = match because {
                Because::NodeIsGone => "the node is gone and no pod is bound to it",
                Because::OutOfService { .. } => "the node is out of service and no pod uses it",
            };
            let message = format!("AddressBlock \"{}\" was taken back: {why}", block.name);
            let reason = "BlockReleased".to_owned();
            vec![Note { about: node_reference(node), warning: false, reason, message }]
        }
        Write::Ledger(write) => of_ledger(write, world),
        Write::Claim(write) => claims::of_claim(write, world),
        Write::Move(write) => moves::of_move(write, world),
        Write::Reserve { .. }
        | Write::Create { .. }
        | Write::PoolFinalizers { .. }
        | Write::Unlock { .. }
        | Write::MarkBlock { .. }
        | Write::UnmarkBlock { .. }
        | Write::Make(_) => Vec::new(),
    }
}

fn of_ledger(write: &LedgerWrite, world: &World) -> Vec<Note> {
    match write {
        LedgerWrite::Slices { events, .. } => {
            events.iter().filter_map(|event| of_slices(event, world)).collect()
        }
        LedgerWrite::Forget { pool, records, .. } => {
            let Some(ledger) = world.ledgers.pools.get(&pool.name) else { return Vec::new() };
            let podrefs: BTreeSet<&str> = records.iter().map(|it| it.who.podref.as_str()).collect();
            let named: Vec<&str> = podrefs.iter().take(NAMED).copied().collect();
            let more = if podrefs.len() > NAMED { ", …" } else { "" };
            let message = format!(
                "released what nobody uses any more: {} of {}{more}",
                records.len(),
                named.join(", ")
            );
            let reason = "AddressReleased".to_owned();
            vec![Note { about: ledger.pool.object_ref(&()), warning: false, reason, message }]
        }
        _ => Vec::new(),
    }
}

/// What was decided about slices, as a note.
pub(crate) fn of_slices(event: &slices::Event, world: &World) -> Option<Note> {
    let about = match &event.about {
        About::Pool(name) => world.ledgers.slices.get(name)?.object_ref(&()),
        About::Node(name) => node_reference(name),
        About::Attachment(namespace, name) => {
            let known = world.ledgers.attachments.get(&format!("{namespace}/{name}"));
            ObjectReference {
                api_version: Some("k8s.cni.cncf.io/v1".to_owned()),
                kind: Some("NetworkAttachmentDefinition".to_owned()),
                namespace: Some(namespace.clone()),
                name: Some(name.clone()),
                uid: known.map(|known| known.definition.uid.clone()),
                ..ObjectReference::default()
            }
        }
    };
    Some(Note { about, warning: true, reason: event.reason.to_owned(), message: event.message.clone() })
}

fn pool_note(pool: &AddressPool, reason: &str, message: &str) -> Note {
    let (reason, message) = (reason.to_owned(), message.to_owned());
    Note { about: pool.object_ref(&()), warning: true, reason, message }
}

/// A node, also one that is gone. The kubelet gives a node's name for its UID in events, and so do we, so that
/// `kubectl describe node` shows them.
fn node_reference(name: &str) -> ObjectReference {
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
    pub(crate) fn normal(about: ObjectReference, reason: &str, message: &str) -> Self {
        Self { about, warning: false, reason: reason.to_owned(), message: message.to_owned() }
    }

    /// Something that somebody should look at.
    pub(crate) fn warning(about: ObjectReference, reason: &str, message: &str) -> Self {
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
