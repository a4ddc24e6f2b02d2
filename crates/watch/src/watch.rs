//! A watch of one kind that survives restarts of the API server.
//!
//! Objects are parsed one by one, so that an object with the wrong shape hides no other.
//!
//! The waits after failures are our own. kube's waits start again with each list, so every watch of every node would ask an API
//! server that is down twenty times a second.
//!
//! **etcd was restored from a backup.** Its versions are lower than the versions that the watch has seen. A watch that resumes
//! receives nothing until the API server has reached its version again, and misses everything before. So a watch that could not be
//! resumed starts with a list. That costs little: a restarted API server does not know old versions, and nearly always demands a
//! list anyway. A proxy can hide that the API server was down, so every watch also lists again now and then ([`RENEWAL`]).
//!
//! **The kind is not defined.** If the watch has seen no object, it believes the first 404. Otherwise it believes [`BELIEVED`] of
//! them in a row: absence of objects frees addresses, and a starting API server may not know all kinds yet.

mod unreadable;

use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tenure_api::read::Read;
use tokio::time::sleep;

use crate::backoff::{Backoff, jitter};
use crate::calls::wait_of;
use crate::connection::Connection;
use unreadable::Unreadable;

/// The usual interval for looking for a kind that is not defined.
pub const LOOK_FOR_KIND: Duration = Duration::from_secs(2);
/// The longest time between two lists. The shortest is half of it.
const RENEWAL: Duration = Duration::from_hours(2);
/// So many 404 answers in a row mean that a kind is gone whose objects were seen.
const BELIEVED: u32 = 4;
/// The status for a kind that is not defined.
const NOT_FOUND: u16 = 404;
/// The status for a version that the API server does not remember.
const GONE: u16 = 410;

/// Receives what a watch says.
pub trait Listener<K>: Send {
    /// An event of the watch. Returns false to end the watch.
    fn hear(&mut self, event: Event<Read<K>>) -> bool;

    /// An object that could not be parsed is gone or can be parsed now. The name includes the namespace, if there is one.
    fn readable(&mut self, _: String) {}

    /// The API server does not know the kind, so there are no objects; or it knows the kind again.
    fn lacks_kind(&mut self, lacks: bool);

    /// The watch failed, so what it said before may be outdated.
    fn failed(&mut self) {}

    /// All expected first lists of the connection are complete.
    fn all_listed(&mut self) {}
}

impl Connection {
    /// Watches until the listener ends it. `may_be_missing` allows that the kind is not defined; then the watch looks for it at this
    /// interval.
    pub async fn watch<K>(
        &self,
        name: &'static str,
        api: Api<Read<K>>,
        config: watcher::Config,
        may_be_missing: Option<Duration>,
        mut listener: impl Listener<K>,
    ) where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let begin = || watcher(api.clone(), config.clone()).boxed();
        let renewal = || Box::pin(sleep(jitter(RENEWAL, &**self.entropy())));
        let (mut events, mut renew, mut backoff) = (begin(), renewal(), self.backoff());
        let (mut missed, mut seen, mut lacks) = (0, false, false);
        let mut unreadable = Unreadable::default();
        loop {
            let event = tokio::select! {
                biased;
                event = events.next() => event,
                () = &mut renew => {
                    (events, renew) = (begin(), renewal());
                    continue;
                }
            };
            let wait = match event {
                None => return,
                // A list begins. The API server has not answered yet.
                Some(Ok(Event::Init)) => {
                    unreadable.hear(&Event::<Read<K>>::Init);
                    if !listener.hear(Event::Init) {
                        return;
                    }
                    continue;
                }
                Some(Ok(event)) => {
                    backoff.reset();
                    missed = 0;
                    seen |= matches!(event, Event::InitApply(_) | Event::Apply(_));
                    self.health().heard(name);
                    if std::mem::take(&mut lacks) {
                        listener.lacks_kind(false);
                    }
                    let before = unreadable.len();
                    unreadable.hear(&event).into_iter().for_each(|name| listener.readable(name));
                    if before != unreadable.len() {
                        self.health().unreadable(name, unreadable.len());
                    }
                    let listed = matches!(event, Event::InitDone);
                    if !listener.hear(event) {
                        return;
                    }
                    if listed && self.health().listed(name) {
                        listener.all_listed();
                    }
                    continue;
                }
                Some(Err(error))
                    if let Some(look) = may_be_missing
                        && is_not_defined(&error) =>
                {
                    missed += 1;
                    if !seen || missed >= BELIEVED {
                        seen = false;
                        self.health().lacks_kind(name);
                        if !std::mem::replace(&mut lacks, true) {
                            tracing::info!(
                                kind = name,
                                "the API server does not know this kind; looking for it again"
                            );
                            listener.lacks_kind(true);
                        }
                        if self.health().listed(name) {
                            listener.all_listed();
                        }
                    }
                    // If the kind is defined again, its earlier objects are gone.
                    events = begin();
                    jitter(look, &**self.entropy())
                }
                Some(Err(error)) => {
                    tracing::warn!(kind = name, %error, "watching failed; trying again");
                    let wait = wait_after(&error, &mut backoff);
                    self.health().failed(name, error.to_string(), wait);
                    listener.failed();
                    if matches!(error, watcher::Error::WatchStartFailed(_)) {
                        events = begin();
                    }
                    wait
                }
            };
            sleep(wait).await;
        }
    }
}

/// How long to wait after a failure.
fn wait_after(error: &watcher::Error, backoff: &mut Backoff) -> Duration {
    use watcher::Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
    match error {
        // The API server is up, and has forgotten the version, as after a restart: list soon.
        WatchError(status) if status.code == GONE => {
            backoff.reset();
            backoff.fail()
        }
        InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error) => {
            backoff.fail().max(wait_of(error))
        }
        _ => backoff.fail(),
    }
}

/// Whether the API server does not know the kind.
fn is_not_defined(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchStartFailed};
    let (InitialListFailed(error) | WatchStartFailed(error)) = error else { return false };
    matches!(error, kube::Error::Api(status) if status.code == NOT_FOUND)
}

#[cfg(test)]
mod tests;
