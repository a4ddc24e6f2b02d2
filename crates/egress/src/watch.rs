//! Hears of the objects that say who the clients are.

use std::sync::Arc;

use kube::ResourceExt as _;
use kube::runtime::watcher::Event;
use tenure_api::coil::egress::EgressClients;
use tenure_api::read::Read;
use tenure_watch::Listener;

use crate::serve::Server;

/// Tells the server what the watch says.
pub(crate) struct Heard(pub(crate) Arc<Server>);

impl Listener<EgressClients> for Heard {
    fn hear(&mut self, event: Event<Read<EgressClients>>) -> bool {
        self.0.hear(|clients, now| match event {
            Event::Init => clients.begin(),
            Event::InitApply(Read::Is(object)) | Event::Apply(Read::Is(object)) => {
                clients.apply(&object.name_any(), &object.spec, now);
            }
            Event::InitApply(Read::Unreadable(object)) | Event::Apply(Read::Unreadable(object)) => {
                let name = object.metadata.name.unwrap_or_default();
                tracing::warn!(
                    object = name,
                    why = object.why,
                    "cannot read an object; what it said before holds"
                );
                clients.keep(&name);
            }
            Event::Delete(object) => clients.remove(&object.name_any(), now),
            Event::InitDone => clients.finish(now),
        });
        true
    }

    /// Never: without the kind nobody knows anything, so that the watch fails and is tried again.
    fn lacks_kind(&mut self, _: bool) {}
}
