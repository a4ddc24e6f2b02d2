//! Which lists began and ended, by kind, so that an answer to a write counts only if no list of its kind came
//! between.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::runtime::watcher::Event;
use tenure_watch::Epoch;

use crate::kind::Kind;

/// The lists of each kind. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lists(Arc<BTreeMap<&'static str, Epoch>>);

impl Lists {
    /// Notes the beginning or end of a list.
    pub(super) fn note<K: Kind>(&mut self, event: &Event<K>) {
        let note = match event {
            Event::Init => Epoch::begin,
            Event::InitDone => Epoch::finish,
            _ => return,
        };
        note(Arc::make_mut(&mut self.0).entry(K::NAME).or_default());
    }

    /// Whether no list of this kind was in progress from `then` until now.
    pub(super) fn are_quiet_since(&self, then: &Self, kind: &str) -> bool {
        self.of(kind).is_quiet_since(then.of(kind))
    }

    fn of(&self, kind: &str) -> Epoch {
        self.0.get(kind).copied().unwrap_or_default()
    }
}
