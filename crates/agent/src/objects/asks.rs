//! Block requests: the node's wishes as objects that the controller answers.
//!
//! ```text
//!   AskForBlock ──▶ open ──create──▶ the request exists ──answered──▶ told ──delete──▶ nothing is left
//!                    │                      │
//!                    │ API away, refused    │ vanished, API away
//!                    └──────▶ refused ◀─────┘
//! ```
//!
//! A wish is registered before its request exists, so no answer can come too early: every answer finds the wish, whether a
//! watch, a list or our own read brings it. A request of this node without a wish is deleted: it comes from an earlier run of
//! this agent, or from a call whose answer was lost. If it was answered meanwhile, its block is used like any other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use tenure_api::coil::{AddressBlock, BlockRequest};
use tenure_handles::Timestamp;
use tenure_watch::{CallError, Change, Epoch, Heard, Identity, exactly};

use super::{Shared, facts, lock};
use crate::node::{AskId, Event, Refusal, RefusalKind, Urgency};

/// A request without an answer for this long is read, in case the watch missed it.
const LOOK: Duration = Duration::from_secs(10);
/// A granted block is read if the watch has not shown it after this time. Its request is deleted then, when the pods that waited
/// for the block do not need the API server any more.
const SHOWN: Duration = Duration::from_secs(1);

/// What is kept of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SeenRequest {
    answer: Option<Result<String, Refusal>>,
    deleting: bool,
}

/// The wishes, by the names of their requests.
#[derive(Debug, Default)]
pub(super) struct Asks {
    open: BTreeMap<String, Open>,
    /// The UIDs of requests that are being deleted.
    closing: BTreeSet<String>,
}

#[derive(Debug)]
struct Open {
    ask: AskId,
    pool: String,
    /// When the request was created, if it was.
    created: Option<Timestamp>,
}

impl SeenRequest {
    /// What is kept of a request, if it is this node's.
    pub(super) fn of(request: &BlockRequest, node: &str) -> Option<Self> {
        let deleting = request.metadata.deletion_timestamp.is_some();
        (request.spec.node_name == node).then(|| Self { answer: facts::answer(request), deleting })
    }
}

impl Shared {
    /// Requests a block.
    pub(super) fn ask(self: &Arc<Self>, ask: AskId, pool: String, urgency: Urgency) {
        let node = &self.options.node;
        let name = match tenure_api::coil::request_name(&pool, node) {
            // Each wish has its own name, so answers cannot be mixed up.
            Ok(name) => format!("{name}-{:016x}", self.connection.entropy().next_u64()),
            Err(error) => {
                let refusal = Refusal { kind: RefusalKind::Unusable, message: error.to_string() };
                return (self.tell)(Event::BlockRefused { ask, refusal });
            }
        };
        tracing::info!(request = name, pool, ?urgency, "requesting a block");
        let open = Open { ask, pool: pool.clone(), created: None };
        self.asks().open.insert(name.clone(), open);
        let shared = Arc::clone(self);
        self.spawn(async move { shared.create(name, &pool).await });
    }

    async fn create(self: &Arc<Self>, name: String, pool: &str) {
        let requests: Api<BlockRequest> = Api::all(self.connection.client());
        let call = lock(&self.requests).epoch();
        let made = async {
            let node = self.owner().await?;
            let mut request = BlockRequest::of(&node, pool)
                .map_err(|error| Refusal { kind: RefusalKind::Unusable, message: error.to_string() })?;
            request.metadata.name = Some(name.clone());
            let made = self.insist(
                || format!("creating BlockRequest {name:?}"),
                || async {
                    match requests.create(&PostParams::default(), &request).await {
                        // The answer to an earlier attempt was lost.
                        Err(kube::Error::Api(status)) if status.code == 409 => requests.get(&name).await,
                        other => other,
                    }
                },
            );
            made.await.map_err(|error| refusal(&error))
        };
        match made.await {
            Ok(request) => {
                let now = self.clock.now();
                if let Some(open) = self.asks().open.get_mut(&name) {
                    open.created = Some(now);
                }
                self.show_request(call, &request);
            }
            Err(refusal) => self.give_up(&name, refusal),
        }
    }

    /// The owner reference to the node: its requests are deleted with it.
    async fn owner(&self) -> Result<Node, Refusal> {
        let name = &self.options.node;
        let known = lock(&self.own_node).uid(name).map(str::to_owned);
        let uid = if known.is_some() {
            known
        } else {
            let nodes: Api<Node> = Api::all(self.connection.client());
            let act = || format!("reading Node {name:?}");
            let found = self.insist(act, || nodes.get_metadata_opt(name)).await;
            found.map_err(|error| refusal(&error))?.and_then(|node| node.uid())
        };
        let Some(uid) = uid else {
            let message =
                format!("there is no Node {name:?} to own a BlockRequest; accepted is --node-name of a Node");
            return Err(Refusal { kind: RefusalKind::Unreachable, message });
        };
        let mut node = Node::default();
        (node.metadata.name, node.metadata.uid) = (Some(name.clone()), Some(uid));
        Ok(node)
    }

    /// Processes a request from the answer to a call of this epoch.
    fn show_request(self: &Arc<Self>, call: Epoch, request: &BlockRequest) {
        let seen = SeenRequest::of(request, &self.options.node);
        self.hear_request(Heard::Answered(call, Identity::named(&request.metadata), seen));
    }

    /// Processes events of this node's requests.
    pub(super) fn hear_request(self: &Arc<Self>, heard: Heard<SeenRequest>) {
        let mut requests = lock(&self.requests);
        for change in requests.hear(heard) {
            match change {
                Change::Seen { key, uid, value } => self.request_seen(key, uid, value),
                Change::Gone { key, .. } => self.request_gone(&key),
            }
        }
    }

    fn request_seen(self: &Arc<Self>, name: String, uid: String, seen: SeenRequest) {
        let mut asks = self.asks();
        if !asks.open.contains_key(&name) {
            drop(asks);
            if !seen.deleting {
                tracing::info!(request = name, "deleting an abandoned block request");
                self.close(name, uid, Duration::ZERO);
            }
            return;
        }
        let Some(answer) = seen.answer else { return };
        let Some(Open { ask, .. }) = asks.open.remove(&name) else { return };
        drop(asks);
        let keep = match answer {
            Ok(block) => {
                tracing::info!(request = name, block, "a block was granted");
                (self.tell)(Event::BlockGranted { ask, block: block.clone() });
                let shared = Arc::clone(self);
                self.spawn(async move { shared.look_for_block(&block).await });
                SHOWN
            }
            Err(refusal) => {
                tracing::warn!(request = name, refusal = refusal.message, "a block was refused");
                (self.tell)(Event::BlockRefused { ask, refusal });
                Duration::ZERO
            }
        };
        self.close(name, uid, keep);
    }

    fn request_gone(&self, name: &str) {
        let Some(Open { ask, pool, .. }) = self.asks().open.remove(name) else { return };
        let message = format!("BlockRequest {name:?} was deleted before it was answered");
        tracing::warn!(request = name, pool, "{message}");
        let refusal = Refusal { kind: RefusalKind::Unreachable, message };
        (self.tell)(Event::BlockRefused { ask, refusal });
    }

    /// Refuses a wish whose request may or may not exist.
    fn give_up(self: &Arc<Self>, name: &str, refusal: Refusal) {
        let Some(Open { ask, pool, .. }) = self.asks().open.remove(name) else { return };
        tracing::warn!(request = name, pool, refusal = refusal.message, "requesting a block failed");
        (self.tell)(Event::BlockRefused { ask, refusal });
        // If it appears from now on, it is deleted because it has no wish; this one was seen before.
        let seen = lock(&self.requests).uid(name).map(str::to_owned);
        if let Some(uid) = seen {
            self.close(name.to_owned(), uid, Duration::ZERO);
        }
    }

    /// Deletes a request after this time, and retries until it succeeds.
    fn close(self: &Arc<Self>, name: String, uid: String, keep: Duration) {
        if !self.asks().closing.insert(uid.clone()) {
            return;
        }
        let shared = Arc::clone(self);
        self.spawn(async move {
            tokio::time::sleep(keep).await;
            let requests: Api<BlockRequest> = Api::all(shared.connection.client());
            let (exactly, mut backoff) = (exactly(Some(uid.clone()), None), shared.connection.backoff());
            let act = || format!("deleting BlockRequest {name:?}");
            loop {
                match shared.insist(act, || requests.delete(&name, &exactly)).await {
                    Ok(_) => break,
                    // Not found, or replaced by another one.
                    Err(error) if error.is_stale() => break,
                    Err(error) => tracing::warn!(%error, "a request cannot be deleted yet"),
                }
                backoff.wait().await;
            }
            shared.hear_request(Heard::Gone(name, uid.clone()));
            shared.asks().closing.remove(&uid);
        });
    }

    /// A granted block exists; if the watch is behind, it is read.
    async fn look_for_block(self: &Arc<Self>, name: &str) {
        tokio::time::sleep(SHOWN).await;
        let shown = lock(&self.own_blocks).facts(name).is_some();
        if shown {
            return;
        }
        let call = lock(&self.own_blocks).epoch();
        let blocks: Api<AddressBlock> = Api::all(self.connection.client());
        let act = || format!("reading AddressBlock {name:?}");
        if let Ok(Some(block)) = self.insist(act, || blocks.get_opt(name)).await {
            self.show_block(call, &block);
        }
    }

    /// Reads requests without an answer for long, in case the watch missed it.
    pub(super) async fn patrol(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK).await;
            self.look_at_requests().await;
        }
    }

    pub(super) async fn look_at_requests(self: &Arc<Self>) {
        let now = self.clock.now();
        let long_ago = |open: &Open| open.created.is_some_and(|at| now.since(at) >= LOOK);
        let old: Vec<String> = self
            .asks()
            .open
            .iter()
            .filter(|(_, open)| long_ago(open))
            .map(|(name, _)| name.clone())
            .collect();
        if old.is_empty() {
            return;
        }
        let requests: Api<BlockRequest> = Api::all(self.connection.client());
        let of_node = ListParams::default().fields(&of_node(&self.options.node));
        let call = lock(&self.requests).epoch();
        match self.insist(|| "listing BlockRequests".to_owned(), || requests.list(&of_node)).await {
            Ok(list) => {
                let there: BTreeMap<String, BlockRequest> =
                    list.items.into_iter().map(|request| (request.name_any(), request)).collect();
                for name in old {
                    match there.get(&name) {
                        Some(request) => self.show_request(call, request),
                        None => self.request_gone(&name),
                    }
                }
            }
            Err(error) => {
                for name in old {
                    self.give_up(&name, refusal(&error));
                }
            }
        }
    }
}

/// The field selector for the requests of a node.
pub(super) fn of_node(node: &str) -> String {
    format!("spec.nodeName={node}")
}

fn refusal(error: &CallError) -> Refusal {
    // If the API server refuses a request, a retry would be refused too.
    let kind = match error.code() {
        Some(400 | 422) => RefusalKind::Unusable,
        _ => RefusalKind::Unreachable,
    };
    Refusal { kind, message: error.to_string() }
}
