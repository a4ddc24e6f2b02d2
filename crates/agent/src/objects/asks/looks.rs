//! Reading requests: what the watch of blocks does not tell.
//!
//! An open request is read by name after about a second, and then more and more seldom. The read may be answered from the API
//! server's memory, but not from before the request was created. So one that is missing has vanished.
//!
//! All requests of this node are listed at the start, again after some minutes, and about every hour. They are also listed when
//! a block comes whose request nobody here knows, and when the watch of blocks had to list again: the API server was restarted, or
//! etcd restored. Requests without a wish are deleted.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{GetParams, ListParams};
use kube::{Api, ResourceExt};
use tenure_api::coil::BlockRequest;
use tenure_api::read::Read;
use tenure_watch::{CallError, ErrorKind, jitter};

use super::super::{Shared, Watching as _, facts, watched};
use super::refusal;
use crate::node::{Refusal, RefusalKind};

/// The longest wait before the first look at an open request, and before each later one. Waits double up to that.
const FIRST_LOOK: Duration = Duration::from_secs(1);
const LAST_LOOKS: Duration = Duration::from_secs(10);
/// So many looks in a row must fail before a wish is refused because of that.
const FAILURES: u32 = 3;
/// The longest wait before the second list. What an earlier run of this agent has sent last is here by then.
const SECOND_LIST: Duration = Duration::from_mins(10);
/// The longest wait before each later list. The shortest is half of it.
const LATER_LISTS: Duration = Duration::from_mins(80);
/// How long a list may take.
const LISTED: Duration = Duration::from_secs(30);

impl Shared {
    /// Reads an open request until its wish is resolved. `created` is its first version.
    pub(super) async fn look_at_request(self: &Arc<Self>, name: String, created: &BlockRequest) {
        let requests: Api<BlockRequest> = Api::all(self.connection.client());
        let act = || format!("reading BlockRequest {name:?}");
        let mut at_least = created.resource_version();
        let (mut wait, mut failures) = (FIRST_LOOK, 0);
        self.heed(&name, created);
        loop {
            if !self.asks().open.contains_key(&name) {
                return;
            }
            tokio::time::sleep(jitter(wait, &**self.connection.entropy())).await;
            wait = (wait * 2).min(LAST_LOOKS);
            if !self.asks().open.contains_key(&name) {
                return;
            }
            let read = GetParams { resource_version: at_least.clone() };
            match self.insist(act, || requests.get_with(&name, &read)).await {
                Ok(request) if request.metadata.uid == created.metadata.uid => {
                    failures = 0;
                    self.heed(&name, &request);
                }
                Ok(_) => self.request_vanished(&name),
                Err(error) if error.is_missing() => self.request_vanished(&name),
                Err(error) => {
                    // After a restore from a backup there may be no such version.
                    at_least = None;
                    failures += 1;
                    if failures >= FAILURES {
                        self.refuse(&name, refusal(&error));
                    }
                }
            }
        }
    }

    /// Resolves the wish of a request whose status has an answer: a refusal, or a block that a controller names there which does not
    /// know that this is not needed.
    fn heed(self: &Arc<Self>, name: &str, request: &BlockRequest) {
        match facts::answer(request) {
            Some(Ok(block)) => self.grant(name, &block),
            Some(Err(refusal)) => self.refuse(name, refusal),
            None => {}
        }
    }

    fn request_vanished(self: &Arc<Self>, name: &str) {
        let message = format!("BlockRequest {name:?} was deleted before it was answered");
        self.refuse(name, Refusal { kind: RefusalKind::Unreachable, message });
    }

    /// Lists the requests of this node now and then, for ever. The agent is ready after the first list.
    pub(in crate::objects) async fn list_requests(self: Arc<Self>) {
        let health = Arc::clone(self.connection.health());
        let mut backoff = self.connection.backoff();
        while let Err(error) = self.list_requests_once().await {
            let wait = wait_after(&error, backoff.fail());
            tracing::warn!(%error, "listing requests failed; trying again");
            health.failed(watched::OWN_REQUESTS, error.to_string(), wait);
            tokio::time::sleep(wait).await;
        }
        health.heard(watched::OWN_REQUESTS);
        if health.listed(watched::OWN_REQUESTS) {
            self.all_listed();
        }
        // From here on nobody relies on it.
        health.ended(watched::OWN_REQUESTS);
        let mut longest = SECOND_LIST;
        loop {
            let wait = jitter(longest, &**self.connection.entropy());
            tokio::select! {
                () = tokio::time::sleep(wait) => longest = LATER_LISTS,
                () = self.list_requests.notified() => {}
            }
            backoff.reset();
            while let Err(error) = self.list_requests_once().await {
                tracing::warn!(%error, "listing requests failed; trying again");
                tokio::time::sleep(wait_after(&error, backoff.fail())).await;
            }
        }
    }

    /// Lists the requests of this node, and deletes those without a wish.
    async fn list_requests_once(self: &Arc<Self>) -> Result<(), CallError> {
        let requests: Api<Read<BlockRequest>> = Api::all(self.connection.client());
        let node = &self.options.node;
        let own = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let act = || "listing BlockRequests".to_owned();
        let list = self.connection.once(LISTED, act, requests.list(&own)).await?;
        for request in list.items {
            match request {
                Read::Is(request) => {
                    if request.spec.node_name == *node && request.metadata.deletion_timestamp.is_none() {
                        self.request_listed(request.name_any(), request.uid().unwrap_or_default());
                    }
                }
                Read::Unreadable(it) => tracing::warn!(object = %it, "a request cannot be read, and stays"),
            }
        }
        Ok(())
    }

    fn request_listed(self: &Arc<Self>, name: String, uid: String) {
        let mut asks = self.asks();
        if asks.open.contains_key(&name) || !asks.closing.insert(uid.clone()) {
            return;
        }
        drop(asks);
        tracing::info!(request = name, "deleting an abandoned block request");
        self.delete_request(name, Some(uid), Duration::ZERO);
    }
}

/// How long to wait after a failure: at least as long as the API server asks for.
fn wait_after(error: &CallError, wait: Duration) -> Duration {
    match error.kind() {
        ErrorKind::Retry(least) => wait.max(least),
        ErrorKind::Final => wait,
    }
}
