//! A watch of one kind, over all its restarts.
//!
//! Objects are read one by one, so that one that does not have the shape of its kind hides no other.
//!
//! The waits between failures are our own: kube's would begin anew with each list that is tried, so that an API server that
//! is away would be asked twenty times a second by every watch of every node.
//!
//! **A database that was restored from a backup.** Its versions are lower than those that were seen. A watch that goes on where it
//! was hears nothing until the server has come that far again, and never of what happened before. So a watch that the server
//! could not be asked to go on with begins with a list. That costs little: a server that was restarted does not remember where
//! watches were, and asks for a list in nearly every case itself. Who stands between may hide that the server was away; so there
//! is a list every now and then, whatever happens ([`RENEWAL`]).
//!
//! **A kind that is not defined.** One of which no object was seen is taken for missing at the first answer that says so. Otherwise
//! its objects would be gone, which frees what they hold, and a server that starts may not know all kinds yet: so that is
//! believed after [`BELIEVED`] such answers in a row.

mod unreadable;

use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tenure_api::read::Read;
use tokio::time::{Instant, sleep, sleep_until};

use crate::backoff::{Backoff, jitter};
use crate::calls::wait_of;
use crate::connection::Connection;
use unreadable::Unreadable;

/// How often a kind that is not defined is looked for, where nobody says otherwise.
pub const LOOK_FOR_KIND: Duration = Duration::from_secs(2);
/// A list comes in at least this often, and at most twice as often.
const RENEWAL: Duration = Duration::from_hours(2);
/// How often in a row the server must not know a kind before that is believed of one whose objects were seen.
const BELIEVED: u32 = 4;
/// What is told of a kind that is not defined.
const NOT_FOUND: u16 = 404;
/// What a watch is told that begins where the server does not remember any more.
const GONE: u16 = 410;

/// Who listens to a watch.
pub trait Listener<K>: Send {
    /// Takes in what the watch says. Returns whether anyone listens.
    fn hear(&mut self, event: Event<Read<K>>) -> bool;

    /// An object that could not be read can be by now, or is gone. Told by its name, with its namespace if it has one.
    fn readable(&mut self, _: String) {}

    /// The API server does not know the kind, so that there are no objects; or it knows it after all.
    fn lacks_kind(&mut self, lacks: bool);

    /// The watch does not work at present, so that what it said may be behind.
    fn failed(&mut self) {}

    /// All first lists are in that somebody waited for.
    fn all_listed(&mut self) {}
}

impl Connection {
    /// Watches for as long as anyone listens. A kind that may be missing is looked for every so often.
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
        let renewal = || Instant::now() + jitter(RENEWAL, &**self.entropy());
        let (mut events, mut renew, mut backoff) = (begin(), renewal(), self.backoff());
        let (mut missed, mut seen, mut lacks) = (0, false, false);
        let mut unreadable = Unreadable::default();
        loop {
            let event = tokio::select! {
                biased;
                event = events.next() => event,
                () = sleep_until(renew) => {
                    (events, renew) = (begin(), renewal());
                    continue;
                }
            };
            let wait = match event {
                None => return,
                // A list will be asked for; nobody has answered yet.
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
                    // What was there before it is defined again is not there any more.
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
        // A server that has forgotten where the watch was is there, as after its restart: all is listed soon.
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

/// Whether the server does not know the kind.
fn is_not_defined(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchStartFailed};
    let (InitialListFailed(error) | WatchStartFailed(error)) = error else { return false };
    matches!(error, kube::Error::Api(status) if status.code == NOT_FOUND)
}

#[cfg(test)]
mod tests;
