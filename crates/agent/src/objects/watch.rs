//! A watch of one kind, over all its restarts.
//!
//! The waits between failures are our own: kube's would begin anew with each list that is tried, so that an API server that
//! is away would be asked twenty times a second by every watch of every node.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tenure_api::read::Read;

use super::health::{Gauge, Watched};
use super::mirror::{Heard, Identity};
use super::waits::Waits;

/// Who watches.
pub(crate) trait Watching: Send + Sync + 'static {
    /// Whether the kinds that it watches may be unknown to the server: then there are no objects of them.
    const MAY_BE_MISSING: bool = false;
    /// Whether objects of all namespaces are watched: they are known by namespace and name then.
    const ALL_NAMESPACES: bool = false;
    /// How long to wait before a kind that is unknown is asked for again.
    const APPEARS: Duration = Duration::from_secs(2);

    /// Where it is noted how watches are.
    fn gauge(&self) -> &Gauge;

    /// All first lists are in.
    fn all_listed(self: &Arc<Self>);

    /// A watch does not work at present, so that what it said may be behind.
    fn faltered(&self, _: Watched) {}
}

/// What the list of a kind is told that the server does not know.
const UNKNOWN: u16 = 404;
/// How often in a row a server must not know a kind before that is believed of one whose objects were seen: when it starts,
/// it may not know it yet.
const BELIEVED: u32 = 4;
/// What a watch is told that begins where the server does not remember any more.
const GONE: u16 = 410;

/// Watches until the agent stops. `keep` says what is kept of an object, and `hear` is given what is heard.
///
/// Objects are read one by one: one that does not have the shape of its kind hides no other. It is there all the same, so what
/// was last read of it stays; whoever wrote it is told by the controller's event on it.
pub(crate) async fn watch<K, V, S: Watching>(
    shared: Arc<S>,
    watched: Watched,
    api: Api<Read<K>>,
    selector: watcher::Config,
    keep: impl Fn(&K) -> Option<V> + Send,
    hear: impl Fn(&Arc<S>, Heard<V>) + Send,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut events = watcher(api, selector).boxed();
    let (mut waits, mut missed, mut seen) = (Waits::default(), 0, false);
    let mut unreadable = Unreadable::default();
    let identity = if S::ALL_NAMESPACES { Identity::in_namespace_of } else { Identity::of_metadata };
    while let Some(event) = events.next().await {
        match event {
            // A list will be asked for; nobody has answered yet.
            Ok(Event::Init) => hear(&shared, Heard::Begin),
            Ok(event) => {
                (waits, missed) = (Waits::default(), 0);
                seen |= matches!(event, Event::InitApply(_) | Event::Apply(_));
                shared.gauge().heard(watched);
                let listed = matches!(event, Event::InitDone);
                let before = unreadable.len();
                unreadable.hear(&event, S::ALL_NAMESPACES);
                if before != unreadable.len() {
                    shared.gauge().unreadable(watched, unreadable.len());
                }
                match event {
                    Event::Init => {}
                    Event::InitApply(Read::Is(object)) => {
                        hear(&shared, Heard::Listed(identity(object.meta()), keep(&object)));
                    }
                    Event::InitDone => hear(&shared, Heard::Finish),
                    Event::Apply(Read::Is(object)) => {
                        hear(&shared, Heard::Applied(identity(object.meta()), keep(&object)));
                    }
                    Event::InitApply(Read::Unreadable(it)) | Event::Apply(Read::Unreadable(it)) => {
                        tracing::warn!(%watched, object = %it, "an object cannot be read; it counts as what was last read of it");
                        hear(&shared, Heard::Unread(identity(&it.metadata)));
                    }
                    Event::Delete(object) => hear(&shared, Heard::Left(identity(object.meta()))),
                }
                if listed && shared.gauge().listed(watched) {
                    shared.all_listed();
                }
            }
            Err(error) if S::MAY_BE_MISSING && is_unknown(&error) => {
                missed += 1;
                if !seen || missed >= BELIEVED {
                    seen = false;
                    shared.gauge().heard(watched);
                    hear(&shared, Heard::Finish);
                    if shared.gauge().listed(watched) {
                        shared.all_listed();
                    }
                }
                tokio::time::sleep(S::APPEARS).await;
            }
            Err(error) => {
                tracing::warn!(%watched, %error, "watching failed; trying again");
                shared.gauge().failed(watched, error.to_string());
                shared.faltered(watched);
                tokio::time::sleep(wait_after(&error, &mut waits)).await;
            }
        }
    }
}

/// The names of those that cannot be read.
#[derive(Default)]
struct Unreadable {
    names: BTreeSet<String>,
    /// While a list comes in, those that it has not mentioned yet.
    unseen: BTreeSet<String>,
}

impl Unreadable {
    fn len(&self) -> usize {
        self.names.len()
    }

    fn hear<K: Resource<DynamicType = ()>>(&mut self, event: &Event<Read<K>>, all_namespaces: bool) {
        let (read, is_there) = match event {
            Event::Init => return self.unseen.clone_from(&self.names),
            Event::InitDone => {
                let vanished = std::mem::take(&mut self.unseen);
                return self.names.retain(|name| !vanished.contains(name));
            }
            Event::InitApply(read) | Event::Apply(read) => (read, true),
            Event::Delete(read) => (read, false),
        };
        let is_unreadable = is_there && read.as_result().is_err();
        if !is_unreadable && self.names.is_empty() {
            return;
        }
        let of = if all_namespaces { Identity::in_namespace_of } else { Identity::of_metadata };
        let name = of(read.meta()).name;
        self.unseen.remove(&name);
        if is_unreadable {
            self.names.insert(name);
        } else {
            self.names.remove(&name);
        }
    }
}

/// Whether the server does not know the kind.
fn is_unknown(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchStartFailed};
    let (InitialListFailed(error) | WatchStartFailed(error)) = error else { return false };
    matches!(error, kube::Error::Api(status) if status.code == UNKNOWN)
}

/// How long to wait after a failure.
fn wait_after(error: &watcher::Error, waits: &mut Waits) -> Duration {
    // A server that has forgotten where the watch was is there, as after its restart: all is listed soon.
    if matches!(error, watcher::Error::WatchError(status) if status.code == GONE) {
        *waits = Waits::default();
    }
    waits.wait()
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn after_a_restart_of_the_api_server_nobody_waits_as_long_as_while_it_was_away() {
        let (mut waits, away) = (Waits::default(), watcher::Error::NoResourceVersion);
        let waited: Vec<_> = (0..6).map(|_| wait_after(&away, &mut waits).as_millis()).collect();
        assert_eq!(waited, [50, 100, 200, 400, 800, 1600]);
        let status = Status::failure("too old resource version", "Expired").with_code(GONE);
        let expired = watcher::Error::WatchError(status.boxed());
        assert_eq!(wait_after(&expired, &mut waits).as_millis(), 50);
    }
}
