//! A slice's object says that the slice is this node's before anything is assigned from it, and until the node gives it up.
//!
//! ```text
//!    a pool assigns it ─▶ its object says `owned` ─▶ a live read: it is still assigned ─▶ the node is told
//! ```
//!
//! The controller opens the whole range again only after it looked for pools and then for such objects. If the pool is deleted
//! before the live read, the slice is not taken; if after it, the object already exists, and stays until the node gives up.

use std::time::Duration;

use kube::Api;
use kube::api::PostParams;
use tenure_api::release::RELEASING;
use tenure_api::whereabouts::{IPPool, NodeSlicePool};
use tenure_watch::{CallError, Heard, Identity};
use tenure_whereabouts::ledger::{PoolId, State, owned_object};

use super::Shared;
use super::known::SeenPool;
use crate::node::Node;
use crate::objects::lock;

/// A slice that this node should take.
pub(super) struct Offer {
    /// The `NodeSlicePool`, and its UID.
    pub(super) name: String,
    pub(super) uid: String,
    /// The pool as observed.
    pub(super) pool: SeenPool,
    pub(super) id: PoolId,
    /// The name of the slice's `IPPool`.
    pub(super) object: String,
    /// The object to create.
    new: IPPool,
}

impl Offer {
    /// `None` if the pool has no slice for this node, or one that cannot have an object.
    pub(super) fn of(shared: &Shared, name: String, uid: String, pool: SeenPool) -> Option<Self> {
        let id = PoolId::of_node(&pool.network, &shared.options.node, *pool.slice.as_ref().ok()?);
        let object = id.name().ok()?;
        let mut new = owned_object(&id, State::Owned, &[], None).ok()?;
        new.metadata.namespace = Some(shared.options.namespace.clone());
        Some(Self { name, uid, pool, id, object, new })
    }

    /// How the UIDs of the node's blocks of this slice begin and end.
    pub(super) fn ends(&self) -> (String, String) {
        (format!("{}.", self.uid), format!("/{}", self.id.range))
    }

    /// The one of these UIDs that is of this slice.
    pub(super) fn same(&self, had: &[String]) -> Option<String> {
        let (front, back) = self.ends();
        had.iter().find(|uid| uid.starts_with(&front) && uid.ends_with(&back)).cloned()
    }

    /// An object with the same records that names the slice's owner.
    fn said_by(&self, found: &IPPool) -> IPPool {
        let mut said = found.clone();
        let (metadata, new) = (&mut said.metadata, self.new.metadata.clone());
        metadata.labels.get_or_insert_default().extend(new.labels.unwrap_or_default());
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.extend(new.annotations.unwrap_or_default());
        // Somebody thought that this node was gone.
        annotations.remove(RELEASING);
        said
    }
}

impl Shared {
    /// The slice's object, which says that the slice is this node's. One that says so already costs no write.
    pub(super) async fn claim(&self, offer: &Offer) -> Result<IPPool, CallError> {
        let records: Api<IPPool> = self.api();
        let (object, plain) = (offer.object.as_str(), PostParams::default());
        let call = lock(&self.state).records.epoch();
        let act = |act: &'static str| move || format!("{act} IPPool {object:?}");
        let said = match self.insist(act("reading"), || records.get_opt(object)).await? {
            None => self.insist(act("creating"), || records.create(&plain, &offer.new)).await?,
            Some(found) => {
                let said = offer.said_by(&found);
                if said == found {
                    found
                } else {
                    self.insist(act("replacing"), || records.replace(object, &plain, &said)).await?
                }
            }
        };
        let heard = Heard::Answered(call, Identity::named(&said.metadata), Some(said.clone()));
        lock(&self.state).records.hear(heard);
        Ok(said)
    }

    /// Whether the same pool gives this node the same slice, live.
    pub(super) async fn is_given(&self, offer: &Offer) -> Result<bool, CallError> {
        let pools: Api<NodeSlicePool> = self.api();
        let act = || format!("reading NodeSlicePool {:?}", offer.name);
        let found = self.insist(act, || pools.get_opt(&offer.name)).await?;
        Ok(found.is_some_and(|found| {
            let now = SeenPool::of(&found, &self.options.node);
            found.metadata.uid.as_ref() == Some(&offer.uid)
                && now.slice == offer.pool.slice
                && now.network == offer.pool.network
        }))
    }

    /// A slice was withdrawn before the node was told of it: its recorded holds stay held, and its object is
    /// treated like any other that is no longer this node's.
    pub(super) async fn let_go(&self, offer: &Offer) {
        // At a start the node collects all records, of every slice. If it learned of this one now, it might
        // be assigned again before the end of the start.
        while !self.node.look(Node::is_ready).await.unwrap_or(true) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let mut state = lock(&self.state);
        if self.current(&state).contains(&offer.object) {
            return;
        }
        if let Some(left) = state.records.facts(&offer.object).cloned()
            && !state.managed.contains(&offer.object)
        {
            self.tell_leftover(&mut state, offer.object.clone(), &left);
        }
        drop(state);
        self.dirty.notify_one();
    }
}
