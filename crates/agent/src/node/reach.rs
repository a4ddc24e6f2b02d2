//! Reach: which of a node's guests packets arrive at. That is the claim's to say, by its active slot, and here it is done.
//!
//! Whoever gains an address gets its routes at once. Whoever loses one keeps the route to its interface for a moment, and
//! its exported route for a longer one, so that nowhere and never there is none: what still arrives is delivered, or passed
//! on. On a segment there are no routes: there whoever gains an address says so to everyone, and whoever does not have it is
//! quiet.
//!
//! Of the guests of one claim on this node at most one is reached, at every moment: the one of the pod in the active slot,
//! and of several sandboxes of that pod the latest. A claim of which nothing is known changes nothing: its guests stay as
//! they are.

use std::collections::{BTreeMap, BTreeSet};

use tenure_handles::Timestamp;
use tenure_ipam::Cidr;

use super::attachment::Attachment;
use super::{Action, Node};
use crate::key::HolderId;

/// What is known of claims, and what is being given up.
#[derive(Debug, Default)]
pub(super) struct Reach {
    /// The UID of the pod that has each claim now, by the claim's UID.
    claims: BTreeMap<Box<str>, Option<Box<str>>>,
    /// The claims that another pod has as well.
    contested: BTreeSet<Box<str>>,
    /// Who has addresses of each claim here.
    guests: BTreeMap<String, BTreeSet<HolderId>>,
    /// When routes to interfaces go that are not reached any more.
    lingering: BTreeMap<HolderId, Timestamp>,
    /// Until when networks are exported that are not reached here any more.
    farewells: BTreeMap<Cidr, Timestamp>,
}

impl Reach {
    /// When there is something to do because time passes.
    pub(super) fn moments(&self) -> impl Iterator<Item = Timestamp> {
        self.lingering.values().chain(self.farewells.values()).copied()
    }
}

impl Node {
    pub(super) fn claim_seen(&mut self, uid: &str, active_pod: Option<String>, contested: bool) {
        self.reach.claims.insert(uid.into(), active_pod.map(String::into_boxed_str));
        let changed = if contested {
            self.reach.contested.insert(uid.into())
        } else {
            self.reach.contested.remove(uid)
        };
        if self.start.is_none() {
            self.judge(uid);
            if changed {
                self.speak_again(uid);
            }
        }
    }

    /// Whoever uses a claim whose object is gone uses it still.
    pub(super) fn claim_gone(&mut self, uid: &str) {
        self.reach.claims.remove(uid);
        if self.reach.contested.remove(uid) {
            self.speak_again(uid);
        }
    }

    /// All claims are known: whoever came back with a restart is judged by them.
    pub(super) fn judge_all(&mut self) {
        let claims: Vec<String> = self.reach.guests.keys().cloned().collect();
        for claim in claims {
            self.judge(&claim);
            if self.reach.contested.contains(claim.as_str()) {
                self.speak_again(&claim);
            }
        }
    }

    /// Takes note of a new guest, and whether packets are to arrive at it. The word of whoever asks counts only as long as
    /// nothing else was heard of the claim.
    pub(super) fn arrive(&mut self, id: HolderId, claim: &str, reached: bool) {
        self.reach.guests.entry(claim.to_owned()).or_default().insert(id);
        if reached && !self.reach.claims.contains_key(claim) {
            let pod = self.attachments.get(&id).map(|it| it.pod.uid.as_str().into());
            self.reach.claims.insert(claim.into(), pod);
        }
        let reached = self.has_claim(claim) == Some(id);
        if reached && let Some(lodging) = self.attachments.get_mut(&id).and_then(Attachment::lodging_mut) {
            lodging.reached = true;
            let hosts: Vec<Cidr> = lodging.hosts().collect();
            self.reach.farewells.retain(|network, _| !hosts.contains(network));
        }
    }

    /// A guest came back with a restart.
    pub(super) fn come_back(&mut self, id: HolderId, claim: &str) {
        self.reach.guests.entry(claim.to_owned()).or_default().insert(id);
    }

    /// Of those that came back with a restart one a claim is reached, also where a crash hit between two records.
    pub(super) fn settle_guests(&mut self) {
        for ids in self.reach.guests.values() {
            let reached = |id: &&HolderId| {
                self.attachments.get(id).and_then(Attachment::lodging).is_some_and(|lodging| lodging.reached)
            };
            let since = |id: &&HolderId| self.attachments.get(id).map(|it| it.since);
            let latest = ids.iter().filter(reached).max_by_key(|id| (since(id), **id)).copied();
            for id in ids.iter().filter(|id| Some(**id) != latest) {
                if let Some(attachment) = self.attachments.get_mut(id) {
                    attachment.be_routed(false);
                }
            }
        }
    }

    /// A guest is gone. What it was still exported for stays so for its time.
    pub(super) fn depart(&mut self, id: HolderId, claim: &str) {
        if let Some(guests) = self.reach.guests.get_mut(claim) {
            guests.remove(&id);
            if guests.is_empty() {
                self.reach.guests.remove(claim);
            }
        }
        self.reach.lingering.remove(&id);
    }

    /// The guest that packets for a claim are to arrive at; nothing if that is somewhere else, or not known.
    fn has_claim(&self, claim: &str) -> Option<HolderId> {
        let active = self.reach.claims.get(claim)?.as_deref()?;
        let guests = self.reach.guests.get(claim).into_iter().flatten();
        let guests = guests.filter_map(|id| Some((id, self.attachments.get(id)?)));
        let of_pod = guests.filter(|(_, it)| !it.is_leaving() && it.pod.uid == active);
        let latest = |(id, it): &(&HolderId, &Attachment)| {
            (it.lodging().map_or(0, |lodging| lodging.arrived), it.since, **id)
        };
        of_pod.max_by_key(latest).map(|(id, _)| *id)
    }

    /// Whether a claim's object is there, as far as anything was heard of it.
    pub(super) fn knows_claim(&self, claim: &str) -> bool {
        self.reach.claims.contains_key(claim)
    }

    /// Lets packets for a claim arrive where they are to, as far as that is here.
    pub(super) fn judge(&mut self, claim: &str) {
        if !self.reach.claims.contains_key(claim) {
            return;
        }
        let here = self.has_claim(claim);
        let guests = self.reach.guests.get(claim).into_iter().flatten().copied();
        let others: Vec<HolderId> = guests.filter(|id| Some(*id) != here).collect();
        // The new one before the old one goes.
        if let Some(id) = here {
            self.gain(id);
        }
        for id in others {
            self.lose(id, here.is_some());
        }
    }

    fn gain(&mut self, id: HolderId) {
        let Some(lodging) = self.attachments.get_mut(&id).and_then(Attachment::lodging_mut) else { return };
        if lodging.reached {
            return;
        }
        let routed = lodging.is_routed();
        (lodging.reached, lodging.lingers) = (true, None);
        let hosts: Vec<Cidr> = lodging.hosts().collect();
        self.reach.lingering.remove(&id);
        self.reach.farewells.retain(|network, _| !hosts.contains(network));
        self.write_guest(id, false);
        if !routed {
            self.route(id);
        }
        self.speak(id);
    }

    /// `passed`: another guest of this node has it now, and its route took this one's place.
    pub(super) fn lose(&mut self, id: HolderId, passed: bool) {
        let (route, export) = self.lingering_until();
        let Some(attachment) = self.attachments.get_mut(&id) else { return };
        let leaving = attachment.is_leaving();
        let Some(lodging) = attachment.lodging_mut() else { return };
        let reached = std::mem::replace(&mut lodging.reached, false);
        if reached && !leaving {
            lodging.lingers = Some(route);
            self.reach.lingering.insert(id, route);
            if !passed {
                let hosts: Vec<Cidr> = lodging.hosts().collect();
                self.reach.farewells.extend(hosts.into_iter().map(|network| (network, export)));
            }
            self.write_guest(id, false);
            self.speak(id);
        }
        if passed {
            self.stop_lingering(id);
        }
    }

    /// Until when routes to an interface and exported ones stay that are given up now.
    pub(super) fn lingering_until(&self) -> (Timestamp, Timestamp) {
        (self.now.plus(self.settings.route_lingers), self.now.plus(self.settings.export_lingers))
    }

    /// What has lingered long enough goes.
    pub(super) fn end_lingering(&mut self) {
        let now = self.now;
        self.reach.farewells.retain(|_, until| *until > now);
        let over = self.reach.lingering.iter().filter(|(_, until)| **until <= now);
        let over: Vec<HolderId> = over.map(|(id, _)| *id).collect();
        for id in over {
            self.stop_lingering(id);
        }
    }

    fn stop_lingering(&mut self, id: HolderId) {
        self.reach.lingering.remove(&id);
        let Some(lodging) = self.attachments.get_mut(&id).and_then(Attachment::lodging_mut) else { return };
        if lodging.lingers.take().is_some() {
            self.route(id);
        }
    }

    /// Has routes lead to a guest's interface, or none, if it is ours. Whoever is on its way out takes its routes with it.
    fn route(&mut self, id: HolderId) {
        let number = self.number();
        let Some(attachment) = self.attachments.get_mut(&id) else { return };
        if !attachment.interface || attachment.is_leaving() {
            return;
        }
        let (key, pod, addresses) = (attachment.key.clone(), attachment.pod.clone(), attachment.addresses());
        let Some(lodging) = attachment.lodging_mut() else { return };
        lodging.changed = number;
        let reached = lodging.is_routed();
        self.actions.push(Action::Reach { key, pod, addresses, reached });
    }

    /// Has a guest's interface say that it has the address now, or be quiet, if somebody else made it.
    pub(super) fn speak(&mut self, id: HolderId) {
        let Some(attachment) = self.attachments.get(&id) else { return };
        let Some(lodging) = attachment.lodging().filter(|_| !attachment.interface) else { return };
        if attachment.netns.is_empty() {
            return;
        }
        self.actions.push(Action::Announce {
            key: attachment.key.clone(),
            netns: attachment.netns.clone(),
            addresses: lodging.every_address(),
            reached: lodging.reached,
            contested: self.reach.contested.contains(lodging.claim.as_str()),
        });
    }

    /// Whoever of this node has a claim says so once more, and for as long as somebody else has it as well.
    fn speak_again(&mut self, claim: &str) {
        let guests = self.reach.guests.get(claim).into_iter().flatten().copied();
        let reached = |id: &HolderId| {
            let lodging = self.attachments.get(id).and_then(Attachment::lodging);
            lodging.is_some_and(|lodging| lodging.reached)
        };
        let reached: Vec<HolderId> = guests.filter(reached).collect();
        for id in reached {
            self.speak(id);
        }
    }

    /// What is exported for guests: what is reached, and what was until a moment ago.
    pub(super) fn exported_for_guests(&self) -> impl Iterator<Item = Cidr> {
        let ids = self.reach.guests.values().flatten();
        let guests = ids.filter_map(|id| self.attachments.get(id)).filter(|it| !it.is_leaving());
        let reached = guests.filter_map(Attachment::lodging).filter(|it| it.reached);
        reached.flat_map(|it| it.hosts().collect::<Vec<_>>()).chain(self.reach.farewells.keys().copied())
    }

    /// How many guests there are, and how many of them are reached.
    pub fn guest_counts(&self) -> (usize, usize) {
        let ids = self.reach.guests.values().flatten();
        let guests: Vec<_> = ids.filter_map(|id| self.attachments.get(id)?.lodging()).collect();
        (guests.len(), guests.iter().filter(|it| it.reached).count())
    }
}
