//! Objects that exist but cannot be read: what each counts as, and who is told.
//!
//! Whoever may write an object may write one without the shape of its kind. Only its author suffers: all other
//! objects are read ([`tenure_api::read`]), this one is counted, and an event on it names the field and what is
//! accepted. It never counts as absent where absence frees something ([`Kind::stand_in`]):
//!
//! | kind | counts as |
//! |---|---|
//! | Node | one without taints: it exists, and keeps its blocks and slices |
//! | Pod | one that runs somewhere: its records stay |
//! | NetworkAttachmentDefinition | one without a configuration: its author's network is not served |
//! | IPAMClaim | one without a status, and if that is not enough without a spec: its record stays, and its status is written again |
//! | AddressBlock | what was last read of it; if nothing was, its number stays taken and its pool stays |
//! | AddressPool | what was last read of it; if nothing was, requests for it are refused with the reason |
//! | BlockRequest, OverlappingRangeIPReservation | what was last read of it; if nothing was, nothing is done about it |
//! | IPPool, NodeSlicePool | what was last read of it; while nothing was, no slice is given or withdrawn: nobody knows what is held |
//! | NodeIPPool | what was last read of it; if nothing was, its nodes wait |
//! | NodeNetworkConfigurationPolicy, NodeNetworkConfigurationEnactment | fields that nodes and others write count as absent if they cannot be read; otherwise what was last read of it, and no pool of node addresses gives or frees anything: it may have any address |
//! | Egress, EgressClients, and what runs gateways | what was last read of it; if nothing was, nothing is done about it |
//! | VirtualMachine, VirtualMachineInstance, StatefulSet | what was last read of it; if nothing was, its claims stay as they are |

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, ObjectReference};
use kube::Resource;
use kube::runtime::watcher::Event;
use tenure_api::read::{Read, Unreadable};
use tenure_watch::Identity;

use crate::events::Note;
use crate::kind::Kind;

/// An object that cannot be read.
#[derive(Clone, Debug)]
pub struct Stub {
    /// Its namespace, if it has one, and its name.
    pub(crate) full_name: String,
    /// Its namespace; empty if it has none.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    version: Option<String>,
    why: String,
    about: ObjectReference,
}

/// An event about an object, readable or not.
pub(crate) enum Sorted<K> {
    /// It can be read, or counts as this.
    Is(Event<K>),
    /// It cannot be read, and counts as what was last read.
    Unread,
}

/// Separates readable from unreadable objects.
pub(crate) fn sort<K>(event: Event<Read<K>>) -> (Sorted<K>, Option<Event<Stub>>)
where
    K: Kind,
{
    match event {
        Event::Init => (Sorted::Is(Event::Init), None),
        Event::InitDone => (Sorted::Is(Event::InitDone), None),
        Event::InitApply(read) => sort_object(read, Event::InitApply, Event::InitApply),
        Event::Apply(read) => sort_object(read, Event::Apply, Event::Apply),
        Event::Delete(read) => sort_object(read, Event::Delete, Event::Delete),
    }
}

fn sort_object<K>(
    read: Read<K>,
    of: fn(K) -> Event<K>,
    stub: fn(Stub) -> Event<Stub>,
) -> (Sorted<K>, Option<Event<Stub>>)
where
    K: Kind,
{
    let about = read.object_ref(&());
    match read {
        Read::Is(object) => (Sorted::Is(of(object)), None),
        Read::Unreadable(it) => {
            let sorted = K::stand_in(&it).map_or(Sorted::Unread, |object| Sorted::Is(of(object)));
            (sorted, Some(stub(Stub::of(&it, about))))
        }
    }
}

impl Stub {
    fn of(it: &Unreadable, about: ObjectReference) -> Self {
        Self {
            full_name: Identity::placed(&it.metadata).key,
            namespace: it.metadata.namespace.clone().unwrap_or_default(),
            name: it.name().to_owned(),
            uid: it.uid().to_owned(),
            version: it.metadata.resource_version.clone(),
            why: it.why.clone(),
            about,
        }
    }
}

/// All objects that cannot be read now.
#[derive(Debug, Default)]
pub(crate) struct Unreadables {
    all: BTreeMap<(&'static str, String), Stub>,
    /// Those without an event yet.
    untold: BTreeSet<(&'static str, String)>,
}

impl Unreadables {
    /// An object cannot be read.
    pub(crate) fn note(&mut self, kind: &'static str, stub: Stub) {
        let key = (kind, stub.full_name.clone());
        let known = self.all.get(&key);
        if known.is_some_and(|known| known.version == stub.version && known.uid == stub.uid) {
            return;
        }
        tracing::warn!(kind, object = stub.full_name, why = stub.why, "an object cannot be read");
        self.untold.insert(key.clone());
        self.all.insert(key, stub);
    }

    /// An object can be read, or is gone.
    pub(crate) fn forget(&mut self, kind: &'static str, full_name: &str) {
        self.all.remove(&(kind, full_name.to_owned()));
    }

    /// Forgets everything of this kind.
    pub(crate) fn forget_kind(&mut self, kind: &'static str) {
        self.all.retain(|(of, _), _| *of != kind);
    }

    /// Why an object cannot be read.
    pub(crate) fn why(&self, kind: &'static str, full_name: &str) -> Option<&str> {
        self.all.get(&(kind, full_name.to_owned())).map(|stub| stub.why.as_str())
    }

    /// How many there are of each kind that has some; of nodes also if there is none, so that a sum has a value.
    pub(crate) fn count(&self) -> BTreeMap<&'static str, i64> {
        let mut counts = BTreeMap::from([(Node::NAME, 0)]);
        for (kind, _) in self.all.keys() {
            *counts.entry(*kind).or_default() += 1;
        }
        counts
    }

    /// What has no event yet: one for each version of an object.
    pub(crate) fn untold(&mut self) -> Vec<Note> {
        let untold = std::mem::take(&mut self.untold);
        let tell = |key: (&'static str, String)| {
            let stub = self.all.get(&key)?;
            let message = format!("this {} cannot be read: {}; correct it", key.0, stub.why);
            Some(Note::warning(stub.about.clone(), "Unreadable", &message))
        };
        untold.into_iter().filter_map(tell).collect()
    }
}
