//! Pods that are gone from the API while their containers run: deleted by force on a node that could not be
//! reached.
//!
//! If a block was taken away or a claim is gone, its addresses may have other holders elsewhere. A container
//! here keeps such an address as long as it runs, because nobody else may take its interface. But when two
//! observations show that its pod, by UID, is gone, packets must not arrive at it any more: the node stops to
//! route, export and announce the address. A repeated ADD shows that the pod exists after all, and ends this.

use std::collections::{BTreeMap, BTreeSet};

use tenure_handles::Timestamp;

use super::attachment::{AddressLocation, Attachment, Phase};
use super::{Action, Node, Planted};
use crate::key::{HoldKey, HolderId, Pod};

/// Pods that one observation found missing.
#[derive(Debug, Default)]
pub(super) struct MissingPods {
    missing: BTreeMap<HolderId, Timestamp>,
}

impl Node {
    /// Asks whether the pods exist whose addresses may have other holders by now.
    pub(super) fn ask_about_pods(&mut self) {
        let holders = self.attachments.values().filter(|it| self.is_elsewhere(it));
        let holders: Vec<(HoldKey, Pod)> = holders.map(|it| (it.key.clone(), it.pod.clone())).collect();
        if !holders.is_empty() {
            self.actions.push(Action::AskAboutPods(holders));
        }
    }

    /// Whether a holder has an address that no longer belongs to this node, and packets for it arrive here.
    fn is_elsewhere(&self, attachment: &Attachment) -> bool {
        let reached = attachment.phase == Phase::Held && attachment.is_routed();
        let elsewhere = match &attachment.place {
            AddressLocation::Nowhere => false,
            AddressLocation::Block { uid, .. } => {
                attachment.interface && self.blocks.get(uid).is_some_and(|block| block.fence.is_some())
            }
            AddressLocation::Claim(use_state) => !self.knows_claim(&use_state.claim),
            AddressLocation::Stray(addresses) => attachment.interface && !addresses.is_empty(),
        };
        reached && elsewhere && !attachment.pod.name.is_empty() && !attachment.pod.uid.is_empty()
    }

    /// The API server's answer: of the pods asked about, these are missing. It leaves out those that it could
    /// not be asked about.
    pub(super) fn pods_asked(&mut self, asked: &[HoldKey], missing: &BTreeSet<HoldKey>) {
        for key in asked {
            let id = key.id();
            let known = self.attachments.get(&id).filter(|it| it.key == *key && missing.contains(key));
            if !known.is_some_and(|it| self.is_elsewhere(it)) {
                self.missing_pods.missing.remove(&id);
                continue;
            }
            let since = *self.missing_pods.missing.entry(id).or_insert(self.now);
            if since.plus(self.settings.look_apart) <= self.now {
                self.missing_pods.missing.remove(&id);
                self.silence(id);
            }
        }
    }

    /// Stops packets from arriving at a holder.
    fn silence(&mut self, id: HolderId) {
        if self.has_planted(Planted::GonePodReached) {
            return;
        }
        let Some(attachment) = self.attachments.get_mut(&id) else { return };
        if attachment.use_state().is_some() {
            return self.lose(id, false);
        }
        attachment.silenced = true;
        let (key, pod, addresses) = (attachment.key.clone(), attachment.pod.clone(), attachment.addresses());
        self.actions.push(Action::Reach { key, pod, addresses, reached: false });
    }
}
