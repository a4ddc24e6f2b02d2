//! Leaks: holds whose interface or namespace is gone without a DEL, links that nobody holds an address for,
//! and routes that are not as they should be.
//!
//! The node observes the kernel periodically. It repairs a leak when a second observation, some time later,
//! still shows it, and never after one: it may be a change in progress. ADDs and DELs in progress are not
//! even suspected. Routes are repaired at once, because that can only help.

use std::collections::BTreeMap;

use tenure_handles::Timestamp;
use tenure_ipam::{Address, Addresses, Sequence};

use super::attachment::{AddressLocation, Attachment, Phase};
use super::event::{Attach, Found, Look, Wish};
use super::{Action, Job, Leak, Node, Planted, Report};
use crate::key::{HoldKey, HolderId, Pod};

/// Leaks that were observed once.
#[derive(Debug, Default)]
pub(super) struct Suspicions {
    /// When the next observation is due; `None` before all is replayed.
    pub(super) look_at: Option<Timestamp>,
    /// The observation in progress: a late answer to an older one raises no suspicion.
    looking: Option<Job>,
    suspects: BTreeMap<HolderId, Suspect>,
    /// How many were confirmed and repaired since the start.
    repaired: u64,
}

/// A possible leak, observed once.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Suspect {
    found: LeakView,
    /// The hold's sequence number: the next hold of the same holder is not suspected.
    sequence: Option<Sequence>,
    /// Since when it is held, for holds without a number.
    held: Timestamp,
}

/// A possible leak, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeakView {
    /// The holder, or former holder.
    pub key: HoldKey,
    /// The pod.
    pub pod: Pod,
    /// The addresses.
    pub addresses: Vec<Address>,
    /// What seems to have leaked.
    pub leak: Leak,
    /// When it was first seen.
    pub since: Timestamp,
}

impl Node {
    /// All possible leaks at present, ordered by key.
    pub fn leaks(&self) -> Vec<LeakView> {
        let mut leaks: Vec<LeakView> = self.suspicions.suspects.values().map(|it| it.found.clone()).collect();
        leaks.sort_by(|one, other| one.key.cmp(&other.key));
        leaks
    }

    /// How many leaks were repaired since the start.
    pub fn repaired_leaks(&self) -> u64 {
        self.suspicions.repaired
    }

    /// Schedules the next observation after the usual interval.
    pub(super) fn look_after_a_while(&mut self) {
        self.suspicions.look_at = Some(self.now.plus(self.settings.look_every));
    }

    /// Requests an observation if it is time.
    pub(super) fn look(&mut self) {
        if self.suspicions.look_at.is_none_or(|at| at > self.now) {
            return;
        }
        self.look_after_a_while();
        self.ask_about_pods();
        let job = Job(self.number());
        self.suspicions.looking = Some(job);
        let held = || self.attachments.values().filter(|it| is_at_rest(it));
        let interfaces = held().filter(|it| it.interface).map(|it| it.key.clone()).collect();
        let namespaces = held().filter(|it| !it.interface && !it.netns.is_empty());
        let namespaces = namespaces.map(|it| (it.key.clone(), it.netns.clone())).collect();
        self.actions.push(Action::Look { job, interfaces, namespaces });
    }

    pub(super) fn looked(&mut self, job: Job, look: Look) {
        if self.suspicions.looking != Some(job) {
            return self.see_late(&look);
        }
        self.suspicions.looking = None;
        self.compare_routes(job, &look);
        let mut seen: BTreeMap<HolderId, Suspect> = BTreeMap::new();
        for key in &look.gone {
            if let Some(suspect) = self.suspect_hold(key) {
                seen.insert(key.id(), suspect);
            }
        }
        for found in look.links {
            if !self.attachments.contains_key(&found.key.id()) {
                seen.insert(found.key.id(), self.suspect_link(found));
            }
        }
        let before = std::mem::take(&mut self.suspicions.suspects);
        for (id, mut suspect) in seen {
            let since = before.get(&id).filter(|it| it.is_same(&suspect)).map(|it| it.found.since);
            let since = since.or(self.has_planted(Planted::OneObservation).then(Timestamp::default));
            match since {
                Some(since) if since.plus(self.settings.look_apart) <= self.now => {
                    self.repair_leak(id, suspect.found);
                }
                since => {
                    suspect.found.since = since.unwrap_or(self.now);
                    self.suspicions.suspects.insert(id, suspect);
                }
            }
        }
    }

    /// The answer to an older observation: what it shows was not missing back then.
    fn see_late(&mut self, look: &Look) {
        let there = |key: &HoldKey| look.links.iter().any(|found| found.key == *key);
        let suspects = &mut self.suspicions.suspects;
        suspects.retain(|_, it| it.found.leak != Leak::NoInterface || !there(&it.found.key));
    }

    /// A holder has just shown that it is alive.
    pub(super) fn trust(&mut self, id: HolderId) {
        self.suspicions.suspects.remove(&id);
    }

    /// A hold without an interface or namespace.
    fn suspect_hold(&self, key: &HoldKey) -> Option<Suspect> {
        let attachment = self.attachments.get(&key.id()).filter(|it| it.key == *key && is_at_rest(it))?;
        let leak = if attachment.interface {
            Leak::NoInterface
        } else {
            Leak::NoNamespace(attachment.netns.clone())
        };
        let (pod, addresses) = (attachment.pod.clone(), attachment.every_address());
        let sequence = match &attachment.place {
            AddressLocation::Block { hold, .. } => Some(hold.sequence),
            AddressLocation::Nowhere | AddressLocation::Claim(_) | AddressLocation::Stray(_) => None,
        };
        let found = LeakView { key: key.clone(), pod, addresses, leak, since: self.now };
        Some(Suspect { found, sequence, held: attachment.since })
    }

    /// A link that nobody holds an address for.
    fn suspect_link(&self, found: Found) -> Suspect {
        let Found { key, pod, addresses } = found;
        let found = LeakView { key, pod, addresses, leak: Leak::NoHold, since: self.now };
        Suspect { found, sequence: None, held: Timestamp::default() }
    }

    /// Ends a leaked hold or link as a DEL would.
    fn repair_leak(&mut self, id: HolderId, found: LeakView) {
        let LeakView { key, pod, addresses, leak, .. } = found;
        if leak == Leak::NoHold {
            let attach = Attach {
                key: key.clone(),
                pool: String::new(),
                pod: pod.clone(),
                netns: String::new(),
                wiring: None,
                wish: Wish::default(),
                claim_use: None,
            };
            let attachment = Attachment { interface: true, ..Attachment::new(attach) };
            self.attachments.insert(id, attachment);
        }
        self.suspicions.repaired += 1;
        self.report(Report::Leak { key, pod, addresses, leak });
        self.unwire(id);
    }

    /// Finds missing and superfluous routes, reports them, and has them repaired.
    fn compare_routes(&mut self, job: Job, look: &Look) {
        let mut holders: BTreeMap<Address, Vec<Rank>> = BTreeMap::new();
        for attachment in self.attachments.values().filter(|it| it.interface && it.is_routed()) {
            for address in attachment.every_address() {
                holders.entry(address).or_default().push(rank(attachment));
            }
        }
        let mut differences = Vec::new();
        for found in &look.links {
            let known = self.attachments.get(&found.key.id()).filter(|it| it.key == found.key);
            let Some(attachment) = known.filter(|it| is_at_rest(it) && it.interface) else { continue };
            // The observation does not show changes requested after it.
            if attachment.use_state().is_some_and(|use_state| use_state.changed > job.0) {
                continue;
            }
            let held = if attachment.is_routed() { attachment.every_address() } else { Vec::new() };
            // If two of the same rank have the same address, a route to either is correct.
            let own = rank(attachment);
            let is_first = |ranks: &Vec<Rank>| ranks.iter().filter(|rank| **rank >= own).count() == 1;
            let first = held.iter().filter(|address| holders.get(address).is_some_and(is_first));
            let missing = first.filter(|address| !found.addresses.contains(address));
            differences.extend(missing.map(|address| format!("no route led to {address} of {}", found.key)));
            let surplus = found.addresses.iter().filter(|address| !held.contains(address));
            differences.extend(surplus.map(|address| format!("{address} led to {}", found.key)));
        }
        differences.extend(look.strays.iter().map(|route| format!("{route} led to no pod")));
        if !differences.is_empty() {
            self.report(Report::Routes { differences });
            self.repair_routes();
        }
    }

    /// Sets the routes to pods to exactly those of held addresses. Holds in progress are included: their
    /// routes already exist, or come later.
    pub(super) fn repair_routes(&mut self) {
        let mut routes: Vec<(Rank, (HoldKey, Addresses))> = Vec::new();
        for attachment in self.attachments.values().filter(|it| it.interface && it.is_routed()) {
            let (key, rank) = (&attachment.key, rank(attachment));
            match &attachment.place {
                AddressLocation::Nowhere => {}
                AddressLocation::Block { .. } | AddressLocation::Claim(_) => {
                    routes.push((rank, (key.clone(), attachment.addresses())));
                }
                AddressLocation::Stray(addresses) => {
                    let each = addresses.iter().map(|address| (key.clone(), Addresses::from(*address)));
                    routes.extend(each.map(|route| (rank, route)));
                }
            }
        }
        // If two have the same address, the later one wins.
        routes.sort_by_key(|(rank, _)| *rank);
        let routes = routes.into_iter().map(|(_, route)| route).collect();
        self.actions.push(Action::Repair(routes));
    }
}

impl Suspect {
    fn is_same(&self, other: &Self) -> bool {
        (self.sequence, self.held, &self.found.leak) == (other.sequence, other.held, &other.found.leak)
    }
}

/// Who wins if several have the same address: the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Only the kernel knows of it, or a journal that lost its block.
    Stray,
    /// The claim is elsewhere now.
    Lingering,
    Reached,
    Held,
}

fn rank(attachment: &Attachment) -> Rank {
    match &attachment.place {
        AddressLocation::Nowhere | AddressLocation::Stray(_) => Rank::Stray,
        AddressLocation::Claim(use_state) if use_state.reached => Rank::Reached,
        AddressLocation::Claim(_) => Rank::Lingering,
        AddressLocation::Block { .. } => Rank::Held,
    }
}

/// Whether an address is held and nothing is in progress.
fn is_at_rest(attachment: &Attachment) -> bool {
    attachment.phase == Phase::Held && attachment.place != AddressLocation::Nowhere
}
