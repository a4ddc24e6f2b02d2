//! Reach: which guests packets arrive at, as their claims say.

use std::collections::BTreeMap;

use super::Node;

/// What is known of claims.
#[derive(Debug, Default)]
pub(super) struct Reach {
    /// The UID of the pod that has each claim now, by the claim's UID.
    claims: BTreeMap<String, Option<String>>,
}

impl Node {
    pub(super) fn claim_seen(&mut self, uid: String, active_pod: Option<String>) {
        self.reach.claims.insert(uid, active_pod);
    }

    pub(super) fn claim_gone(&mut self, uid: &str) {
        self.reach.claims.remove(uid);
    }
}
