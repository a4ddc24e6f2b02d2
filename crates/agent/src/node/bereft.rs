//! Pods that are gone from the API while their containers run: deleted by force on a node that nobody could reach.
//!
//! An address that is none of this node's any more, because its block was taken away or its claim is gone, may be somebody else's
//! elsewhere. Its container here keeps it as long as it runs, because its interface is nobody's to take. But when its pod is
//! missing, by UID, at two observations, packets are not to arrive at it any more: the node stops to route, export and announce the
//! address. A repeated ADD shows that the pod is there after all, and ends it.

use std::collections::{BTreeMap, BTreeSet};

use tenure_handles::Timestamp;

use super::attachment::{AddressLocation, Attachment, Phase};
use super::{Action, Node, Planted};
use crate::key::{HoldKey, HolderId, Pod};

/// Pods that were missing once.
#[derive(Debug, Default)]
pub(super) struct Bereft {
    missing: BTreeMap<HolderId, Timestamp>,
}

impl Node {
    /// Asks whether pods are there whose addresses may be somebody else's by now.
    pub(super) fn ask_about_pods(&mut self) {
        let holders = self.attachments.values().filter(|it| self.is_elsewhere(it));
        let holders: Vec<(HoldKey, Pod)> = holders.map(|it| (it.key.clone(), it.pod.clone())).collect();
        if !holders.is_empty() {
            self.actions.push(Action::AskAboutPods(holders));
        }
    }

    /// Whether a holder has an address that is none of this node's, and packets for it arrive here.
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

    /// What the API server said: of those who were asked about, these pods are missing. What could not be asked is not among them.
    pub(super) fn pods_asked(&mut self, asked: &[HoldKey], missing: &BTreeSet<HoldKey>) {
        for key in asked {
            let id = key.id();
            let known = self.attachments.get(&id).filter(|it| it.key == *key && missing.contains(key));
            if !known.is_some_and(|it| self.is_elsewhere(it)) {
                self.bereft.missing.remove(&id);
                continue;
            }
            let since = *self.bereft.missing.entry(id).or_insert(self.now);
            if since.plus(self.settings.look_apart) <= self.now {
                self.bereft.missing.remove(&id);
                self.silence(id);
            }
        }
    }

    /// Packets do not arrive at a holder any more.
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
