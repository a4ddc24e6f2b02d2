//! Why this node has no slice of a pool, for the error of an ADD.
//!
//! Only the `NodeSlicePool` can tell. It is read when an ADD fails for want of a slice, once for all that fail within a while: with a
//! thousand pods that are tried again and again, it would be read as often.

use std::collections::BTreeMap;

use tenure_cni::{Code, Failure};
use tenure_handles::Timestamp;
use tenure_whereabouts::slices::slice_of;
use tokio::sync::Mutex;

use super::Shared;
use crate::objects::lock;

/// What was found, by the name of the pool, and when.
pub(super) type Explained = Mutex<BTreeMap<String, (Timestamp, String)>>;

impl Shared {
    /// Why there is no slice.
    pub(super) async fn no_slice(&self, name: &str) -> Failure {
        match self.refused_here(name) {
            Some(failure) => failure,
            None => self.refused_there(name).await,
        }
    }

    /// Why a slice that was given is not used, or why nothing is known of slices.
    fn refused_here(&self, name: &str) -> Option<Failure> {
        let state = lock(&self.state);
        if !state.listed {
            let message = format!("this node does not know its slice of NodeSlicePool {name:?} yet");
            return Some(refuse(message).detail("it has not yet read its IPPools from the API server"));
        }
        let cidr = state.given.get(name)?.slice;
        Some(match state.aside.get(name) {
            Some(why) => refuse(format!("slice {cidr} of NodeSlicePool {name:?} cannot be used: {why}"))
                .detail("this node tries again; other networks are served meanwhile"),
            None => refuse(format!("slice {cidr} of NodeSlicePool {name:?} cannot be used yet")).detail(
                "its IPPool could not be written, or those of the range not be read yet; is the API server there?",
            ),
        })
    }

    /// What the pool says.
    async fn refused_there(&self, name: &str) -> Failure {
        let mut explained = self.explained.lock().await;
        let now = self.clock.now();
        explained.retain(|_, (since, _)| *since <= now && now.since(*since) < self.options.look_again);
        if let Some((_, why)) = explained.get(name) {
            return refuse(why.clone());
        }
        // Where the kind is missing, there are no pools.
        let read = match self.read_pool(name).await {
            Err(error) if error.is_missing() => Ok(None),
            read => read,
        };
        let why = match read {
            Ok(pool) => match slice_of(name, pool.as_ref(), &self.options.node) {
                Ok(slice) => format!(
                    "slice {slice} of NodeSlicePool {name:?} is this node's, and its IPPool does not say so yet: that writes \
                     tenure-controller; is it running?"
                ),
                Err(refusal) => refusal.to_string(),
            },
            Err(error) => {
                format!("this node has no slice of NodeSlicePool {name:?}, and cannot see why: {error}")
            }
        };
        explained.insert(name.to_owned(), (self.clock.now(), why.clone()));
        refuse(why)
    }
}

fn refuse(message: String) -> Failure {
    Failure::new(Code::TryAgainLater, message)
}
