//! Claim users: interfaces of this node with the addresses of a claim, which are in no block of this node.
//!
//! The claim owns the addresses before, during and after their use. The node records who uses them, so that
//! nothing else gets them here and packets are routed correctly ([`reach`](super::reach)). ADD is idempotent
//! as always: the same key has the same claim. Several users of one claim on one node are allowed, because a
//! move may stay on a node, and a pod's new sandbox may come before the old one is gone.

use tenure_handles::Timestamp;
use tenure_ipam::{Address, Addresses, Cidr};

use super::attachment::{AddressLocation, Attaching, Attachment, Phase, Wire};
use super::block::Owned;
use super::commit::AfterCommit;
use super::event::{Attach, ClaimUse};
use super::{CallError, ClaimError, Node, Report, Ticket};
use crate::journal::{BlockFacts, ClaimUseRecord, Record};
use crate::key::{HolderId, UNSAID};

/// The claim of a claim user, and its routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClaimUseState {
    /// The claim's UID.
    pub(super) claim: String,
    pub(super) claim_name: String,
    pub(super) addresses: Vec<(Address, u8)>,
    /// Whether packets for it should arrive here.
    pub(super) reached: bool,
    /// Until when routes lead to its interface although its claim is elsewhere.
    pub(super) lingers: Option<Timestamp>,
    /// When routes to its interface were last added or removed, as one of this node's numbers.
    pub(super) changed: u64,
    /// When it arrived, as one of this node's numbers, because clocks can be set back; 0 if before a restart.
    pub(super) arrived: u64,
}

impl ClaimUseState {
    fn new(claim_use: ClaimUse) -> Self {
        let ClaimUse { claim, claim_name, addresses, .. } = claim_use;
        Self { claim, claim_name, addresses, reached: false, lingers: None, changed: 0, arrived: 0 }
    }

    /// Whether routes lead to its interface, if the interface is ours.
    pub(super) fn is_routed(&self) -> bool {
        self.reached || self.lingers.is_some()
    }

    /// All its addresses.
    pub(super) fn every_address(&self) -> Vec<Address> {
        self.addresses.iter().map(|(address, _)| *address).collect()
    }

    /// Its routed addresses (not those on a segment), as networks.
    pub(super) fn hosts(&self) -> impl Iterator<Item = Cidr> {
        self.addresses.iter().filter(|it| is_host(it)).map(|(address, _)| Cidr::host(*address))
    }

    /// Whether its addresses are in a block's realm: the cluster's own, or that of the pool it asked for.
    pub(super) fn is_of_realm(&self, pool: &str, facts: &BlockFacts) -> bool {
        let routed = self.addresses.iter().any(is_host);
        if routed { facts.realm.is_empty() } else { facts.pool == pool }
    }

    fn is_same(&self, claim_use: &ClaimUse) -> bool {
        self.claim == claim_use.claim && self.addresses == claim_use.addresses
    }
}

fn is_host((address, prefix): &(Address, u8)) -> bool {
    address.family().bits() == *prefix
}

/// The first address of each family.
pub(super) fn one_a_family(addresses: impl IntoIterator<Item = Address>) -> Addresses {
    let mut one_a_family = Addresses { ipv4: None, ipv6: None };
    for address in addresses {
        let Addresses { ipv4, ipv6 } = Addresses::from(address);
        one_a_family.ipv4 = one_a_family.ipv4.or(ipv4);
        one_a_family.ipv6 = one_a_family.ipv6.or(ipv6);
    }
    one_a_family
}

impl Attachment {
    /// Its claim, if it uses one.
    pub(super) fn use_state(&self) -> Option<&ClaimUseState> {
        match &self.place {
            AddressLocation::Claim(use_state) => Some(use_state),
            AddressLocation::Nowhere | AddressLocation::Block { .. } | AddressLocation::Stray(_) => None,
        }
    }

    pub(super) fn use_state_mut(&mut self) -> Option<&mut ClaimUseState> {
        match &mut self.place {
            AddressLocation::Claim(use_state) => Some(use_state),
            AddressLocation::Nowhere | AddressLocation::Block { .. } | AddressLocation::Stray(_) => None,
        }
    }

    /// Whether routes should lead to its interface. They do except for a claim user whose claim is elsewhere,
    /// and a holder whose pod is gone.
    pub(super) fn is_routed(&self) -> bool {
        !self.silenced && self.use_state().is_none_or(ClaimUseState::is_routed)
    }

    /// Records at a start whether routes lead to its interface: the kernel is right about that.
    pub(super) fn be_routed(&mut self, routed: bool) {
        if let Some(use_state) = self.use_state_mut() {
            use_state.reached = routed;
        }
    }

    /// Its journal record, if it is a claim user or may be one of an unknown claim. For a link that only the
    /// kernel knows, the kernel says which addresses lead to it.
    pub(super) fn use_record(&self) -> Option<ClaimUseRecord> {
        let (claim, claim_name, addresses, reached) = match self.use_state() {
            Some(it) => (it.claim.clone(), it.claim_name.clone(), it.addresses.clone(), it.reached),
            None if matches!(self.place, AddressLocation::Stray(_)) && self.on_record.is_none() => {
                (UNSAID.to_owned(), String::new(), Vec::new(), false)
            }
            None => return None,
        };
        Some(ClaimUseRecord {
            claim,
            claim_name,
            pool: self.pool.clone(),
            key: self.key.clone(),
            pod: self.pod.clone(),
            interface: self.interface,
            addresses,
            reached,
            since: self.since,
            netns: self.netns.clone(),
        })
    }

    /// Why an ADD that asks for this cannot be answered with what the key already has; `None` if it can.
    pub(super) fn refuses(&self, claim_use: Option<&ClaimUse>) -> Option<CallError> {
        // An ADD without a claim keeps what is already held.
        let claim_use = claim_use?;
        let same = match &self.place {
            AddressLocation::Claim(use_state) => use_state.is_same(claim_use),
            AddressLocation::Stray(addresses) => {
                addresses.iter().all(|it| claim_use.addresses.iter().any(|(own, _)| own == it))
            }
            AddressLocation::Nowhere | AddressLocation::Block { .. } => false,
        };
        let claim = self.use_state().map(|use_state| use_state.claim_name.clone());
        let (key, held, asked) = (Box::new(self.key.clone()), self.addresses(), Box::new(claim_use.clone()));
        (!same).then_some(ClaimError::Other { key, held, claim, asked }.into())
    }
}

impl Node {
    /// Assigns the addresses of its claim to a new holder.
    pub(super) fn use_claim(&mut self, ticket: Ticket, attach: Attach, claim_use: ClaimUse) {
        if let Err(failure) = self.may_use_claim(&attach, &claim_use) {
            return self.answer(ticket, Err(failure));
        }
        let (id, now) = (attach.key.id(), self.now);
        let mut attachment = Attachment::new(attach);
        attachment.since = now;
        attachment.adds.push((ticket, now));
        let wiring = attachment.wiring.take();
        attachment.phase =
            Phase::Attaching(Attaching { fresh: true, committed: false, wire: Wire::Nothing, undo: false });
        let (claim, reached) = (claim_use.claim.clone(), claim_use.reached);
        let arrived = self.number();
        attachment.place = AddressLocation::Claim(ClaimUseState { arrived, ..ClaimUseState::new(claim_use) });
        self.attachments.insert(id, attachment);
        self.arrive(id, &claim, reached);
        self.write_claim_user(id, true);
        match wiring {
            Some(wiring) => self.wire(id, wiring),
            None => self.announce(id),
        }
        // The claim's former user is no longer reached.
        self.judge(&claim);
    }

    /// Restores a claim user from the journal.
    pub(super) fn put_claim_user(&mut self, use_record: &ClaimUseRecord) {
        let id = use_record.key.id();
        if self.attachments.contains_key(&id) {
            return;
        }
        let ClaimUseRecord { key, pod, pool, interface, since, .. } = use_record.clone();
        let mut attachment = super::replay::attachment(key, pod, pool, interface, since);
        attachment.netns.clone_from(&use_record.netns);
        if use_record.claim == UNSAID {
            attachment.place = AddressLocation::Stray(Vec::new());
            self.attachments.insert(id, attachment);
            return;
        }
        attachment.place = AddressLocation::Claim(ClaimUseState {
            claim: use_record.claim.clone(),
            claim_name: use_record.claim_name.clone(),
            addresses: use_record.addresses.clone(),
            reached: use_record.reached,
            lingers: None,
            changed: 0,
            arrived: 0,
        });
        self.attachments.insert(id, attachment);
        self.come_back(id, &use_record.claim);
    }

    /// Writes a claim user's state to the journal; its ADD may wait for that.
    pub(super) fn write_claim_user(&mut self, id: HolderId, awaited: bool) {
        let Some(use_record) = self.attachments.get(&id).and_then(Attachment::use_record) else { return };
        let position = self.record(Record::ClaimUse(use_record));
        if awaited {
            self.commits.after(position, AfterCommit::Held(id));
        }
    }

    /// A link of which only the kernel knew turns out to be a claim user. Returns whether it did; then the
    /// journal must record it before the call is answered.
    pub(super) fn recognise(&mut self, id: HolderId, attach: &Attach) -> bool {
        let Some(claim_use) = attach.claim_use.clone() else { return false };
        let Some(attachment) = self.attachments.get_mut(&id) else { return false };
        let AddressLocation::Stray(routed) = &attachment.place else { return false };
        let routed = !routed.is_empty();
        attachment.pod.clone_from(&attach.pod);
        let (claim, reached) = (claim_use.claim.clone(), claim_use.reached);
        attachment.place =
            AddressLocation::Claim(ClaimUseState { reached: routed, ..ClaimUseState::new(claim_use) });
        self.arrive(id, &claim, reached);
        self.write_claim_user(id, true);
        self.judge(&claim);
        true
    }

    /// Whether a new claim user can be accepted.
    fn may_use_claim(&mut self, attach: &Attach, claim_use: &ClaimUse) -> Result<(), CallError> {
        if self.commits.is_broken() {
            return Err(CallError::JournalBroken);
        }
        let addresses: Vec<Address> = claim_use.addresses.iter().map(|(address, _)| *address).collect();
        let invalid = claim_use.addresses.iter().any(|(address, prefix)| *prefix > address.family().bits());
        if claim_use.claim.is_empty() || addresses.is_empty() || invalid {
            return Err(ClaimError::Unusable(Box::new(claim_use.clone())).into());
        }
        if attach.wiring.is_some()
            && one_a_family(addresses.iter().copied()).iter().count() != addresses.len()
        {
            return Err(ClaimError::Crowded(Box::new(claim_use.clone())).into());
        }
        let Some(problem) = self.in_the_way(attach, claim_use, &addresses) else { return Ok(()) };
        let (key, pod) = (attach.key.clone(), attach.pod.clone());
        self.report(Report::Stray { key, pod, addresses, problem: problem.clone() });
        Err(ClaimError::InTheWay { claim: Box::new(claim_use.clone()), problem }.into())
    }

    /// Who has a claim's address here although only the claim's users may: a block of this node, which would
    /// assign it, or a holder that has it for another reason.
    fn in_the_way(&self, attach: &Attach, claim_use: &ClaimUse, addresses: &[Address]) -> Option<String> {
        let use_state = ClaimUseState::new(claim_use.clone());
        let of_realm = |facts: &BlockFacts| use_state.is_of_realm(&attach.pool, facts);
        let has = |block: &&Owned| addresses.iter().any(|address| block.has(*address));
        let mut owned = self.blocks.values().filter(|block| block.fence.is_none() && of_realm(&block.facts));
        if let Some(block) = owned.find(has) {
            return Some(format!("they are of block {:?}, which is this node's own", block.facts.name));
        }
        let routed = use_state.hosts().next().is_some();
        let rival = |it: &&Attachment| {
            let realm = match &it.place {
                AddressLocation::Nowhere => false,
                AddressLocation::Block { uid, .. } => {
                    self.blocks.get(uid).is_some_and(|block| of_realm(&block.facts))
                }
                AddressLocation::Claim(other) => {
                    let same_kind =
                        other.hosts().next().is_some() == routed && (routed || it.pool == attach.pool);
                    same_kind && other.claim != claim_use.claim
                }
                AddressLocation::Stray(_) => routed && it.interface,
            };
            realm && it.every_address().iter().any(|address| addresses.contains(address))
        };
        let rival = self.attachments.values().find(rival)?;
        Some(format!("{} has one of them", rival.key))
    }
}
