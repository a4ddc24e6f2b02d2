//! Reach: which of a node's claim users packets arrive at. A claim says so by its active slot, and this
//! module applies it.
//!
//! A claim user that gains an address gets its routes at once. One that loses an address keeps the route to
//! its interface for a moment and its exported route a little longer, so that there is always a route
//! somewhere: late packets are delivered or forwarded. A segment has no routes: there, the claim user that
//! gains an address announces it, and the others stay silent.
//!
//! Of all users of one claim on this node at most one is reached at any moment: that of the pod in the active
//! slot, and of several sandboxes of that pod the latest. An unknown claim changes nothing: its users stay as
//! they are.

use std::collections::{BTreeMap, BTreeSet};

use tenure_handles::Timestamp;
use tenure_ipam::Cidr;

use super::attachment::Attachment;
use super::{Action, Node};
use crate::key::HolderId;

/// What is known of claims, and which routes are about to end.
#[derive(Debug, Default)]
pub(super) struct Reach {
    /// The UID of the pod that has each claim now, by the claim's UID.
    claims: BTreeMap<Box<str>, Option<Box<str>>>,
    /// The claims that a second pod has as well.
    contested: BTreeSet<Box<str>>,
    /// The users of each claim on this node.
    claim_uses: BTreeMap<String, BTreeSet<HolderId>>,
    /// When to remove routes to interfaces that are no longer reached.
    lingering: BTreeMap<HolderId, Timestamp>,
    /// Until when networks are exported that are no longer reached here.
    exported_until: BTreeMap<Cidr, Timestamp>,
}

impl Reach {
    /// The times at which something is due.
    pub(super) fn moments(&self) -> impl Iterator<Item = Timestamp> {
        self.lingering.values().chain(self.exported_until.values()).copied()
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
                self.announce_again(uid);
            }
        }
    }

    /// Users of a claim whose object is gone continue to use it.
    pub(super) fn claim_gone(&mut self, uid: &str) {
        self.reach.claims.remove(uid);
        if self.reach.contested.remove(uid) {
            self.announce_again(uid);
        }
    }

    /// All claims are known: applies them to claim users restored at a restart.
    pub(super) fn judge_all(&mut self) {
        let claims: Vec<String> = self.reach.claim_uses.keys().cloned().collect();
        for claim in claims {
            self.judge(&claim);
            if self.reach.contested.contains(claim.as_str()) {
                self.announce_again(&claim);
            }
        }
    }

    /// Adds a new claim user and decides whether packets arrive at it. The caller's value counts only until
    /// something else is known of the claim.
    pub(super) fn arrive(&mut self, id: HolderId, claim: &str, reached: bool) {
        self.reach.claim_uses.entry(claim.to_owned()).or_default().insert(id);
        if reached && !self.reach.claims.contains_key(claim) {
            let pod = self.attachments.get(&id).map(|it| it.pod.uid.as_str().into());
            self.reach.claims.insert(claim.into(), pod);
        }
        let reached = self.has_claim(claim) == Some(id);
        if reached && let Some(use_state) = self.attachments.get_mut(&id).and_then(Attachment::use_state_mut)
        {
            use_state.reached = true;
            let hosts: Vec<Cidr> = use_state.hosts().collect();
            self.reach.exported_until.retain(|network, _| !hosts.contains(network));
        }
    }

    /// A claim user was restored at a restart.
    pub(super) fn come_back(&mut self, id: HolderId, claim: &str) {
        self.reach.claim_uses.entry(claim.to_owned()).or_default().insert(id);
    }

    /// Makes one user per claim reached among those restored at a restart, even if a crash happened between
    /// two records.
    pub(super) fn settle_claim_users(&mut self) {
        for ids in self.reach.claim_uses.values() {
            let reached = |id: &&HolderId| {
                self.attachments
                    .get(id)
                    .and_then(Attachment::use_state)
                    .is_some_and(|use_state| use_state.reached)
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

    /// A claim user is gone. Its networks stay exported for the linger time.
    pub(super) fn depart(&mut self, id: HolderId, claim: &str) {
        if let Some(claim_uses) = self.reach.claim_uses.get_mut(claim) {
            claim_uses.remove(&id);
            if claim_uses.is_empty() {
                self.reach.claim_uses.remove(claim);
            }
        }
        self.reach.lingering.remove(&id);
    }

    /// The claim user that packets for a claim should arrive at; `None` if it is elsewhere or unknown.
    fn has_claim(&self, claim: &str) -> Option<HolderId> {
        let active = self.reach.claims.get(claim)?.as_deref()?;
        let claim_uses = self.reach.claim_uses.get(claim).into_iter().flatten();
        let claim_uses = claim_uses.filter_map(|id| Some((id, self.attachments.get(id)?)));
        let of_pod = claim_uses.filter(|(_, it)| !it.is_leaving() && it.pod.uid == active);
        let latest = |(id, it): &(&HolderId, &Attachment)| {
            (it.use_state().map_or(0, |use_state| use_state.arrived), it.since, **id)
        };
        of_pod.max_by_key(latest).map(|(id, _)| *id)
    }

    /// Whether a claim's object exists, as far as known.
    pub(super) fn knows_claim(&self, claim: &str) -> bool {
        self.reach.claims.contains_key(claim)
    }

    /// Makes packets for a claim arrive at the right claim user, as far as it is on this node.
    pub(super) fn judge(&mut self, claim: &str) {
        if !self.reach.claims.contains_key(claim) {
            return;
        }
        let here = self.has_claim(claim);
        let claim_uses = self.reach.claim_uses.get(claim).into_iter().flatten().copied();
        let others: Vec<HolderId> = claim_uses.filter(|id| Some(*id) != here).collect();
        // The new one starts before the old one ends.
        if let Some(id) = here {
            self.gain(id);
        }
        for id in others {
            self.lose(id, here.is_some());
        }
    }

    fn gain(&mut self, id: HolderId) {
        let Some(use_state) = self.attachments.get_mut(&id).and_then(Attachment::use_state_mut) else {
            return;
        };
        if use_state.reached {
            return;
        }
        let routed = use_state.is_routed();
        (use_state.reached, use_state.lingers) = (true, None);
        let hosts: Vec<Cidr> = use_state.hosts().collect();
        self.reach.lingering.remove(&id);
        self.reach.exported_until.retain(|network, _| !hosts.contains(network));
        self.write_claim_user(id, false);
        if !routed {
            self.route(id);
        }
        self.announce(id);
    }

    /// `passed`: another claim user of this node has the claim now, and its route replaced this one's.
    pub(super) fn lose(&mut self, id: HolderId, passed: bool) {
        let (route, export) = self.lingering_until();
        let Some(attachment) = self.attachments.get_mut(&id) else { return };
        let leaving = attachment.is_leaving();
        let Some(use_state) = attachment.use_state_mut() else { return };
        let reached = std::mem::replace(&mut use_state.reached, false);
        if reached && !leaving {
            use_state.lingers = Some(route);
            self.reach.lingering.insert(id, route);
            if !passed {
                let hosts: Vec<Cidr> = use_state.hosts().collect();
                self.reach.exported_until.extend(hosts.into_iter().map(|network| (network, export)));
            }
            self.write_claim_user(id, false);
            self.announce(id);
        }
        if passed {
            self.stop_lingering(id);
        }
    }

    /// Until when routes to an interface and exported routes stay that end now.
    pub(super) fn lingering_until(&self) -> (Timestamp, Timestamp) {
        (self.now.plus(self.settings.route_lingers), self.now.plus(self.settings.export_lingers))
    }

    /// Removes routes whose linger time is over.
    pub(super) fn end_lingering(&mut self) {
        let now = self.now;
        self.reach.exported_until.retain(|_, until| *until > now);
        let over = self.reach.lingering.iter().filter(|(_, until)| **until <= now);
        let over: Vec<HolderId> = over.map(|(id, _)| *id).collect();
        for id in over {
            self.stop_lingering(id);
        }
    }

    fn stop_lingering(&mut self, id: HolderId) {
        self.reach.lingering.remove(&id);
        let Some(use_state) = self.attachments.get_mut(&id).and_then(Attachment::use_state_mut) else {
            return;
        };
        if use_state.lingers.take().is_some() {
            self.route(id);
        }
    }

    /// Adds or removes the routes to a claim user's interface, if it is ours. A claim user that is being
    /// removed takes its routes with it.
    fn route(&mut self, id: HolderId) {
        let number = self.number();
        let Some(attachment) = self.attachments.get_mut(&id) else { return };
        if !attachment.interface || attachment.is_leaving() {
            return;
        }
        let (key, pod, addresses) = (attachment.key.clone(), attachment.pod.clone(), attachment.addresses());
        let Some(use_state) = attachment.use_state_mut() else { return };
        use_state.changed = number;
        let reached = use_state.is_routed();
        self.actions.push(Action::Reach { key, pod, addresses, reached });
    }

    /// Makes the interface of another plugin announce the address or stay silent.
    pub(super) fn announce(&mut self, id: HolderId) {
        let Some(attachment) = self.attachments.get(&id) else { return };
        let Some(use_state) = attachment.use_state().filter(|_| !attachment.interface) else { return };
        if attachment.netns.is_empty() {
            return;
        }
        self.actions.push(Action::Announce {
            key: attachment.key.clone(),
            netns: attachment.netns.clone(),
            addresses: use_state.every_address(),
            reached: use_state.reached,
            contested: self.reach.contested.contains(use_state.claim.as_str()),
        });
    }

    /// Announces a claim again from its user on this node, and repeatedly as long as another pod has the
    /// claim as well.
    fn announce_again(&mut self, claim: &str) {
        let claim_uses = self.reach.claim_uses.get(claim).into_iter().flatten().copied();
        let reached = |id: &HolderId| {
            let use_state = self.attachments.get(id).and_then(Attachment::use_state);
            use_state.is_some_and(|use_state| use_state.reached)
        };
        let reached: Vec<HolderId> = claim_uses.filter(reached).collect();
        for id in reached {
            self.announce(id);
        }
    }

    /// The networks exported for claim users: the reached ones, and those that were reached until a moment
    /// ago.
    pub(super) fn exported_for_claim_users(&self) -> impl Iterator<Item = Cidr> {
        let ids = self.reach.claim_uses.values().flatten();
        let claim_uses = ids.filter_map(|id| self.attachments.get(id)).filter(|it| !it.is_leaving());
        let reached = claim_uses.filter_map(Attachment::use_state).filter(|it| it.reached);
        reached.flat_map(|it| it.hosts().collect::<Vec<_>>()).chain(self.reach.exported_until.keys().copied())
    }

    /// How many claim users there are, and how many of them are reached.
    pub fn claim_user_counts(&self) -> (usize, usize) {
        let ids = self.reach.claim_uses.values().flatten();
        let claim_uses: Vec<_> = ids.filter_map(|id| self.attachments.get(id)?.use_state()).collect();
        (claim_uses.len(), claim_uses.iter().filter(|it| it.reached).count())
    }
}
