//! Block requests: the node's wishes as objects. The block that names a request is its answer.
//!
//! ```text
//!   AskForBlock ──▶ open ──create──▶ the request exists ──its block is seen──▶ granted ──1 s, delete──▶ nothing is left
//!                    │                      │
//!                    │ API away, refused    │ a read shows a refusal, or that it vanished; API away
//!                    └──────▶ refused ◀─────┘───────────────────────────────────────────delete──▶ nothing is left
//! ```
//!
//! A request costs three writes: the agent creates it, the controller creates the block, and the agent deletes the request.
//! The annotation `tenure/answered-by: block` says that nobody waits for an answer in the status. Controllers that do not know it
//! write one, which counts as well.
//!
//! Nobody watches requests: the API server would send each event of the kind to the watches of all nodes. The watch of this node's
//! blocks shows what was granted; everything else is read ([`looks`]). A block may be seen before the call that created its request
//! is answered, and only that answer tells the request's UID. So whoever comes second looks for the other one.
//!
//! A request of this node without a wish is deleted: it comes from an earlier run of this agent, or from a call whose answer was
//! lost. If it has a block, that is used like any other.

mod looks;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use tenure_api::coil::{AddressBlock, BlockRequest};
use tenure_watch::{CallError, exactly};

use super::{Shared, lock};
use crate::node::{AskId, Event, Refusal, RefusalKind, Urgency};

/// A granted block is read if the watch has not shown it after this time. Its request is deleted then, when the pods that waited
/// for the block do not need the API server any more.
const SHOWN: Duration = Duration::from_secs(1);
/// The API server may still perform a write so long after it was sent.
const LATE_WRITE: Duration = Duration::from_secs(70);
/// The status of the API server for an object that exists already.
const CONFLICT: u16 = 409;

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
    /// The UID of the request, once its creation is confirmed.
    uid: Option<String>,
}

impl Asks {
    /// Ends a wish. From now on its request is being deleted.
    fn end(&mut self, name: &str) -> Option<Open> {
        let open = self.open.remove(name)?;
        self.closing.extend(open.uid.clone());
        Some(open)
    }

    /// Whether the request with this UID may be one of these, as far as UIDs are known.
    pub(super) fn may_have(&self, uid: &str) -> bool {
        self.has(uid) || self.open.values().any(|open| open.uid.is_none())
    }

    /// Whether the request with this UID waits, or is being deleted.
    pub(super) fn has(&self, uid: &str) -> bool {
        self.closing.contains(uid) || self.open.values().any(|open| open.uid.as_deref() == Some(uid))
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
        let open = Open { ask, pool: pool.clone(), uid: None };
        self.asks().open.insert(name.clone(), open);
        let shared = Arc::clone(self);
        self.spawn(async move { shared.create(name, &pool).await });
    }

    async fn create(self: &Arc<Self>, name: String, pool: &str) {
        let requests: Api<BlockRequest> = Api::all(self.connection.client());
        // How many calls may have created it, although none said so.
        let doubtful = AtomicUsize::new(0);
        let made = async {
            let node = self.owner().await?;
            let request = BlockRequest::of(&node, pool)
                .map_err(|error| Refusal { kind: RefusalKind::Unusable, message: error.to_string() })?;
            let mut request = request.answered_by_block();
            request.metadata.name = Some(name.clone());
            let made = self.insist(
                || format!("creating BlockRequest {name:?}"),
                || async {
                    doubtful.fetch_add(1, Ordering::Relaxed);
                    match requests.create(&PostParams::default(), &request).await {
                        // The answer to an earlier attempt was lost.
                        Err(kube::Error::Api(status)) if status.code == CONFLICT => requests.get(&name).await,
                        Err(kube::Error::Api(status)) if matches!(status.code, 400..=407 | 410..=499) => {
                            doubtful.fetch_sub(1, Ordering::Relaxed);
                            Err(kube::Error::Api(status))
                        }
                        other => other,
                    }
                },
            );
            made.await.map_err(|error| refusal(&error))
        };
        match made.await {
            Ok(request) => self.created(name, &request).await,
            Err(refusal) => {
                self.refuse(&name, refusal);
                if doubtful.into_inner() > 0 {
                    self.clear(&name).await;
                }
            }
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

    /// The request exists. Waits for its answer.
    async fn created(self: &Arc<Self>, name: String, request: &BlockRequest) {
        let uid = request.uid().unwrap_or_default();
        if let Some(open) = self.asks().open.get_mut(&name) {
            open.uid = Some(uid.clone());
        }
        // From now on a block finds the wish. One that was seen before is found here.
        let answer = {
            let blocks = lock(&self.own_blocks);
            let mut all = blocks.all_facts();
            let answer = all.find(|(_, block)| block.request.as_ref() == Some(&uid));
            answer.map(|(block, _)| block.to_owned())
        };
        match answer {
            Some(block) => self.block_answers(&uid, &block),
            None => self.look_at_request(name, request).await,
        }
    }

    /// There is a block of this node that names the request with this UID.
    pub(super) fn block_answers(self: &Arc<Self>, uid: &str, block: &str) {
        let name = {
            let asks = self.asks();
            let mut open = asks.open.iter();
            open.find(|(_, open)| open.uid.as_deref() == Some(uid)).map(|(name, _)| name.clone())
        };
        if let Some(name) = name {
            self.grant(&name, block);
        }
    }

    /// Resolves a wish.
    fn grant(self: &Arc<Self>, name: &str, block: &str) {
        let Some(Open { ask, uid, .. }) = self.asks().end(name) else { return };
        tracing::info!(request = name, block, "a block was granted");
        (self.tell)(Event::BlockGranted { ask, block: block.to_owned() });
        let (shared, block) = (Arc::clone(self), block.to_owned());
        self.spawn(async move { shared.look_for_block(&block).await });
        self.delete_request(name.to_owned(), uid, SHOWN);
    }

    /// Refuses a wish. Its request is deleted, if it is known to exist.
    fn refuse(self: &Arc<Self>, name: &str, refusal: Refusal) {
        let Some(Open { ask, pool, uid }) = self.asks().end(name) else { return };
        tracing::warn!(request = name, pool, refusal = refusal.message, "a block was refused");
        (self.tell)(Event::BlockRefused { ask, refusal });
        self.delete_request(name.to_owned(), uid, Duration::ZERO);
    }

    /// Deletes a request that was noted as being deleted. Waits before, and retries until it succeeds.
    fn delete_request(self: &Arc<Self>, name: String, uid: Option<String>, wait: Duration) {
        let Some(uid) = uid else { return };
        let shared = Arc::clone(self);
        self.spawn(async move {
            tokio::time::sleep(wait).await;
            // It is not found later, or replaced by another one.
            shared.delete_until(&name, &exactly(Some(uid.clone()), None)).await;
            shared.asks().closing.remove(&uid);
        });
    }

    /// Deletes a request that may exist or still come into being. Nothing else has its name, ever.
    async fn clear(&self, name: &str) {
        let by_name = DeleteParams::default();
        if !self.delete_until(name, &by_name).await {
            tokio::time::sleep(LATE_WRITE).await;
            self.delete_until(name, &by_name).await;
        }
    }

    /// Deletes a request, and retries until the API server has done it or does not have it. Returns whether it had.
    async fn delete_until(&self, name: &str, which: &DeleteParams) -> bool {
        let requests: Api<BlockRequest> = Api::all(self.connection.client());
        let (act, mut backoff) = (|| format!("deleting BlockRequest {name:?}"), self.connection.backoff());
        loop {
            match self.insist(act, || requests.delete(name, which)).await {
                Ok(_) => return true,
                Err(error) if error.is_stale() => return false,
                Err(error) => tracing::warn!(%error, "a request cannot be deleted yet"),
            }
            backoff.wait().await;
        }
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
}

fn refusal(error: &CallError) -> Refusal {
    // If the API server refuses a request, a retry would be refused too.
    let kind = match error.code() {
        Some(400 | 422) => RefusalKind::Unusable,
        _ => RefusalKind::Unreachable,
    };
    Refusal { kind, message: error.to_string() }
}
