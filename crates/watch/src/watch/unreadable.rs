//! The objects of one watch that cannot be parsed.

use std::collections::BTreeSet;

use kube::Resource;
use kube::runtime::watcher::Event;
use tenure_api::read::Read;

use crate::cache::Identity;

/// Names of objects that cannot be parsed, with their namespaces if they have one.
#[derive(Default)]
pub(super) struct Unreadable {
    names: BTreeSet<String>,
    /// During a list: those that it has not mentioned yet.
    unseen: BTreeSet<String>,
}

impl Unreadable {
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// Processes an event. Returns the names of objects that are gone or can be parsed now.
    pub(super) fn hear<K: Resource<DynamicType = ()>>(&mut self, event: &Event<Read<K>>) -> Vec<String> {
        let (read, is_there) = match event {
            Event::Init => {
                self.unseen.clone_from(&self.names);
                return Vec::new();
            }
            Event::InitDone => {
                let vanished = std::mem::take(&mut self.unseen);
                self.names.retain(|name| !vanished.contains(name));
                return vanished.into_iter().collect();
            }
            Event::InitApply(read) | Event::Apply(read) => (read, true),
            Event::Delete(read) => (read, false),
        };
        let is_unreadable = is_there && read.as_result().is_err();
        if !is_unreadable && self.names.is_empty() {
            return Vec::new();
        }
        let name = Identity::placed(read.meta()).key;
        self.unseen.remove(&name);
        if is_unreadable {
            self.names.insert(name);
            return Vec::new();
        }
        if self.names.remove(&name) { vec![name] } else { Vec::new() }
    }
}
