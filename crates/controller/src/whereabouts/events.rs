//! Events about ranges and slices.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use tenure_whereabouts::slices::{self, About};

use super::write::LedgerWrite;
use crate::events::{Note, about_node};
use crate::world::World;

/// How many pods a message names; the others are counted.
const NAMED: usize = 5;

/// The events of a completed write; `world` is the state after the write.
pub(super) fn of_ledger(write: &LedgerWrite, world: &World) -> Vec<Note> {
    match write {
        LedgerWrite::Slices { events, .. } | LedgerWrite::ChangeSlices { events, .. } => {
            events.iter().filter_map(|event| of_slices(event, world)).collect()
        }
        LedgerWrite::Forget { pool, records, .. } => {
            let Some(ledger) = world.ledgers().pools.get(&pool.name) else { return Vec::new() };
            let podrefs: BTreeSet<&str> = records.iter().map(|it| it.who.podref.as_str()).collect();
            let named: Vec<&str> = podrefs.iter().take(NAMED).copied().collect();
            let more = if podrefs.len() > NAMED { ", …" } else { "" };
            let message = format!(
                "released what nobody uses any more: {} of {}{more}",
                records.len(),
                named.join(", ")
            );
            vec![Note::normal(ledger.pool.object_ref(&()), "AddressReleased", &message)]
        }
        _ => Vec::new(),
    }
}

/// A decision about slices, as an event.
pub(super) fn of_slices(event: &slices::Event, world: &World) -> Option<Note> {
    let about = match &event.about {
        About::Pool(name) => world.ledgers().slices.get(name)?.object_ref(&()),
        About::Node(name) => about_node(name),
        About::Attachment(namespace, name) => {
            let known = world.ledgers().attachments.get(&format!("{namespace}/{name}"));
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
    Some(Note::warning(about, event.reason, &event.message))
}
