//! A slice's object says that the slice is this node's before anything is assigned from it, and until the node gives it up.
//!
//! ```text
//!    its object is told of ─▶ it says `owned` ─▶ a live look: it is still assigned ─▶ the node is told
//! ```
//!
//! The controller opens the whole range again, or assigns the slice to another node, only after it looked for pools and then for such
//! objects. If the pool is deleted before the live look, the slice is not taken; if after it, the object already says so, and stays
//! until the node gives up.
//!
//! The live look reads the pool's metadata, and the pool itself, with the slices of all nodes, only if a slice was taken from somebody
//! since the object was written. After that, the object says `confirmed` with its next record: a restart need not look again.

use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use kube::api::PostParams;
use tenure_api::release::RELEASING;
use tenure_api::whereabouts::{IPPool, NodeSlicePool};
use tenure_watch::{CallError, Heard, Identity};
use tenure_whereabouts::ledger::{PoolId, State, owned_object};
use tenure_whereabouts::slices::{CONFIRMED, Told, slice_of};

use super::Shared;
use super::known::GivenSlice;
use crate::node::Node;
use crate::objects::lock;

/// A slice that this node should take.
pub(super) struct Offer {
    /// The `NodeSlicePool`.
    pub(super) name: String,
    /// What was told.
    pub(super) given: GivenSlice,
    pub(super) id: PoolId,
    /// An object that says that the slice is taken.
    new: IPPool,
}

/// A slice's object, which says now that the slice is this node's.
pub(super) struct Claimed {
    pub(super) object: IPPool,
    /// Whether it is known that the slice is this node's since the object says so.
    is_confirmed: bool,
}

impl Offer {
    /// `None` if the slice cannot have an object.
    pub(super) fn of(shared: &Shared, name: String, given: GivenSlice) -> Option<Self> {
        let id = given.id(&shared.options.node);
        let new = owned_object(&id, State::Owned, &[], None).ok()?;
        Some(Self { name, given, id, new })
    }

    /// How the UIDs of the node's blocks of this slice begin and end.
    pub(super) fn ends(&self) -> (String, String) {
        (format!("{}.", self.given.given.uid), format!("/{}", self.id.range))
    }

    /// The one of these UIDs that is of this slice.
    pub(super) fn same(&self, had: &[(String, String)]) -> Option<String> {
        let (front, back) = self.ends();
        let mut had = had.iter().map(|(uid, _)| uid);
        had.find(|uid| uid.starts_with(&front) && uid.ends_with(&back)).cloned()
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
        if State::of(found) != State::Owned {
            annotations.remove(CONFIRMED);
        }
        said
    }

    /// Whether an object still tells this node that the slice is its own.
    fn is_told_by(&self, object: &IPPool) -> bool {
        match Told::by(object) {
            Told::Given(given) => given.says_like(&self.given.given),
            Told::Nothing => self.given.seen_by.is_some() && self.given.seen_by == object.metadata.uid,
            Told::Withdrawn => false,
        }
    }

    /// Whether it is known that the pool gives the slice to the node of an object since that says so.
    fn is_confirmed_by(&self, object: &IPPool) -> bool {
        let confirmed = object.metadata.annotations.as_ref().and_then(|all| all.get(CONFIRMED));
        let seen = self.given.seen_by.is_some() && self.given.seen_by == object.metadata.uid;
        State::of(object) == State::Owned && (seen || confirmed == Some(&self.given.given.uid))
    }
}

impl Shared {
    /// The slice's object, which says that the slice is this node's; nothing if it says that it is not. One that says so already costs
    /// no write.
    pub(super) async fn claim(self: &Arc<Self>, offer: &Offer) -> Result<Option<Claimed>, CallError> {
        let records: Api<IPPool> = self.api();
        let (object, plain) = (offer.given.object.as_str(), PostParams::default());
        let call = lock(&self.state).records.epoch();
        let act = |act: &'static str| move || format!("{act} IPPool {object:?}");
        let Some(found) = self.insist(act("reading"), || records.get_opt(object)).await? else {
            return Ok(None);
        };
        let is_confirmed = offer.is_confirmed_by(&found);
        let is_told = offer.is_told_by(&found);
        let said = offer.said_by(&found);
        let said = if said == found || !is_told {
            found
        } else {
            self.insist(act("replacing"), || records.replace(object, &plain, &said)).await?
        };
        self.hear_record(Heard::Answered(call, Identity::named(&said.metadata), Some(said.clone())));
        Ok(is_told.then_some(Claimed { object: said, is_confirmed }))
    }

    /// Whether the slice is this node's although others may have been given slices since its object was claimed.
    pub(super) async fn is_given(&self, offer: &Offer, claimed: &Claimed) -> Result<bool, CallError> {
        Ok(claimed.is_confirmed || self.is_given_live(&offer.name, &offer.given).await?)
    }

    /// Whether the same pool gives this node the same slice, live.
    pub(super) async fn is_given_live(&self, name: &str, slice: &GivenSlice) -> Result<bool, CallError> {
        let pools: Api<NodeSlicePool> = self.api();
        let act = || format!("reading the metadata of NodeSlicePool {name:?}");
        let Some(found) = self.insist(act, || pools.get_metadata_opt(name)).await? else { return Ok(false) };
        if slice.given.stands(&found.metadata) {
            return Ok(true);
        }
        Ok(self.read_pool(name).await?.is_some_and(|pool| {
            pool.metadata.uid.as_ref() == Some(&slice.given.uid)
                && slice_of(name, Some(&pool), &self.options.node) == Ok(slice.slice)
                && tenure_whereabouts::slices::network_of(&pool) == slice.given.network
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
        let object = &offer.given.object;
        if Self::current(&state).contains(object) {
            return;
        }
        if let Some(left) = state.records.facts(object).cloned()
            && !state.managed.contains(object)
        {
            self.tell_leftover(&mut state, object.clone(), &left);
        }
        drop(state);
        self.dirty.notify_one();
    }
}
