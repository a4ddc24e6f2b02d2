//! Slices of ranges: blocks that cannot be requested, and whose holds may come from records.
//!
//! A record names a container's interface, not the runtime's network. An adopted hold has its pool in place
//! of the network, and moves to the network whose ADD asks for it again. A pod that is added again with
//! another container keeps its address as long as nobody released it: Whereabouts does the same, and a late
//! DEL of the old container finds nothing to end.

use std::collections::{BTreeMap, BTreeSet};

use tenure_handles::Timestamp;
use tenure_ipam::{Address, Cidr, Granted};

use super::attachment::{AddressLocation, Attaching, Attachment, Deleter, Phase, Wire};
use super::block::{Object, Owned, shares_realm};
use super::commit::AfterCommit;
use super::detach::Sweep;
use super::event::{Attach, Recorded, SeenSlice};
use super::{CallError, Done, Fence, Full, Node, Planted, Ticket};
use crate::journal::{BlockFacts, Record};
use crate::key::{HoldKey, HolderId, Pod, UNSAID};

/// How many parts of an attachment are tried although none is known.
const PARTS: u32 = 16;

/// A slice, or what is left of one, as its record should say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceView {
    /// The UID of the block.
    pub uid: String,
    /// The name of the block, and of its record.
    pub name: String,
    /// The pool.
    pub pool: String,
    /// The realm within which its addresses are unique.
    pub realm: String,
    /// The slice.
    pub cidr: Cidr,
    /// Whether it is this node's; otherwise only its holds are.
    pub owned: bool,
    /// Its holds.
    pub holds: Vec<SliceHold>,
}

/// A hold in a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceHold {
    /// The address.
    pub address: Address,
    /// The holder.
    pub key: HoldKey,
    /// Its pod.
    pub pod: Pod,
    /// Since when.
    pub since: Timestamp,
    /// Whether only the API can tell whether it is still needed: neither its interface nor its namespace is
    /// known here.
    pub unseen: bool,
}

impl SliceHold {
    /// The container, if known.
    pub fn container(&self) -> &str {
        said(self.key.container())
    }

    /// The interface, if known.
    pub fn interface(&self) -> &str {
        said(self.key.interface())
    }
}

fn slice_holds(attachment: &Attachment) -> impl Iterator<Item = SliceHold> {
    attachment.every_address().into_iter().map(|address| SliceHold {
        address,
        key: attachment.key.clone(),
        pod: attachment.pod.clone(),
        since: attachment.since,
        unseen: attachment.phase == Phase::Held && !attachment.interface && attachment.netns.is_empty(),
    })
}

fn said(text: &str) -> &str {
    if text == UNSAID { "" } else { text }
}

/// Holders of slice addresses by container and by pod, so that lookups stay fast on a full node.
#[derive(Debug, Default)]
pub(super) struct SliceHolders {
    by: BTreeMap<SliceHolder, BTreeSet<HolderId>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SliceHolder {
    Container(String),
    Pod(String, String),
}

impl SliceHolders {
    fn insert(&mut self, id: HolderId, key: &HoldKey, pod: &Pod) {
        for holder in SliceHolder::both(key, pod) {
            self.by.entry(holder).or_default().insert(id);
        }
    }

    pub(super) fn remove(&mut self, id: HolderId, key: &HoldKey, pod: &Pod) {
        for holder in SliceHolder::both(key, pod) {
            if let Some(ids) = self.by.get_mut(&holder) {
                ids.remove(&id);
                if ids.is_empty() {
                    self.by.remove(&holder);
                }
            }
        }
    }

    fn get<'a>(&'a self, holder: &SliceHolder) -> impl Iterator<Item = HolderId> + use<'a> {
        self.by.get(holder).into_iter().flatten().copied()
    }
}

impl SliceHolder {
    fn both(key: &HoldKey, pod: &Pod) -> [Self; 2] {
        [Self::Container(key.container().to_owned()), Self::Pod(pod.namespace.clone(), pod.name.clone())]
    }
}

impl Node {
    /// Adds a holder to the index if its address is in a slice.
    pub(super) fn index_slice_holder(&mut self, id: HolderId) {
        let Some(it) = self.attachments.get(&id) else { return };
        let block = it.block().and_then(|uid| self.blocks.get(uid));
        if it.key.is_adopted() || block.is_some_and(Owned::is_slice) {
            self.slice_holders.insert(id, &it.key, &it.pod);
        }
    }

    /// All slices in which this node has something, by name.
    pub fn slices(&self) -> Vec<SliceView> {
        let view = |block: &Owned| {
            let held = self.attachments.values().filter(|it| it.block() == Some(&block.facts.uid));
            // An address that is being released is free as soon as the journal says so, and nothing reports
            // it again.
            let held = held.filter(|it| it.phase != Phase::Releasing);
            let mut holds: Vec<SliceHold> = held.flat_map(slice_holds).collect();
            holds.sort_by_key(|hold| hold.address);
            Some(SliceView {
                uid: block.facts.uid.clone(),
                name: block.facts.name.clone(),
                pool: block.facts.pool.clone(),
                realm: block.facts.realm.clone(),
                cidr: block.networks().next()?,
                owned: block.fence.is_none() && block.object == Object::Ours,
                holds,
            })
        };
        let slices = self.blocks.values().filter(|block| block.is_slice());
        let mut views: Vec<SliceView> = slices.filter_map(view).collect();
        views.sort_by(|one, other| (&one.name, &one.uid).cmp(&(&other.name, &other.uid)));
        views
    }

    /// Holds that only the API can confirm: those in slices, and those whose block the journal lost.
    pub fn unseen(&self) -> Vec<SliceHold> {
        let of_slice = |it: &&Attachment| match &it.place {
            AddressLocation::Block { uid, .. } => self.blocks.get(uid).is_some_and(Owned::is_slice),
            AddressLocation::Stray(_) => true,
            AddressLocation::Nowhere | AddressLocation::Claim(_) => false,
        };
        let holds = self.attachments.values().filter(of_slice).flat_map(slice_holds);
        holds.filter(|hold| hold.unseen).collect()
    }

    /// The blocks of this name and realm that were not taken away, even before all is replayed: the UID and the pool of each.
    /// `None` before the journal is read.
    pub fn slices_named(&self, name: &str, realm: &str) -> Option<Vec<(String, String)>> {
        let is_it = |facts: &&BlockFacts| facts.name == name && facts.realm == realm;
        let said = |facts: &BlockFacts| (facts.uid.clone(), facts.pool.clone());
        if self.is_ready() {
            let there = self.blocks.values().filter(|block| block.fence.is_none()).map(|block| &block.facts);
            return Some(there.filter(is_it).map(said).collect());
        }
        let blocks = self.journal_at_start()?.blocks().filter(|(_, block)| !block.fenced);
        Some(blocks.filter_map(|(_, block)| block.facts.as_ref()).filter(is_it).map(said).collect())
    }

    /// Whether a holder's addresses are in a block's realm. For holds that the journal could not place,
    /// nobody knows.
    pub(super) fn is_of_realm(&self, attachment: &Attachment, facts: &BlockFacts) -> bool {
        match &attachment.place {
            AddressLocation::Nowhere => false,
            AddressLocation::Block { uid, .. } => {
                self.blocks.get(uid).is_some_and(|block| shares_realm(&block.facts, facts))
            }
            AddressLocation::Claim(use_state) => use_state.is_of_realm(&attachment.pool, facts),
            AddressLocation::Stray(_) => facts.realm.is_empty() || !attachment.interface,
        }
    }

    /// Holds the addresses in the records of a block of which nothing else is known.
    pub(super) fn adopt_records(&mut self, uid: &str, records: Vec<Recorded>) {
        let Some(facts) = self.blocks.get(uid).map(|block| block.facts.clone()) else { return };
        let others = self.attachments.values().filter(|it| self.is_of_realm(it, &facts));
        let mut taken: BTreeSet<Address> = others.flat_map(Attachment::every_address).collect();
        for record in records {
            if !taken.insert(record.address) {
                continue;
            }
            let Some(key) = self.adopted_key(&facts.pool, &record) else { continue };
            let Some(block) = self.blocks.get_mut(uid) else { return };
            let id = key.id();
            let Ok(Granted::New(hold)) = block.engine.replay(id, record.address, None) else { continue };
            let (pool, pod) = (facts.pool.clone(), record.pod);
            let mut attachment = super::replay::attachment(key, pod, pool, false, self.now);
            attachment.place = AddressLocation::Block { uid: uid.to_owned(), hold };
            if let Some(held) = attachment.held() {
                self.record(Record::Held(held));
            }
            self.attachments.insert(id, attachment);
            self.index_slice_holder(id);
        }
    }

    /// Holds the addresses in the records of a former slice of this node of which nothing else is known.
    pub(super) fn adopt_leftover(&mut self, slice: SeenSlice) {
        if slice.realm.is_empty() || slice.records.is_empty() {
            return;
        }
        let facts = super::adopt::facts_of(&slice);
        let (uid, cooling) = (facts.uid.clone(), self.cooling(&facts.pool));
        let Some(block) = Owned::new(facts.clone(), cooling, self.now) else { return };
        self.record(Record::Owned(facts));
        self.blocks.insert(uid.clone(), Owned { object: Object::Gone, ..block });
        self.adopt_records(&uid, slice.records);
        self.fence(&uid, Fence::Gone);
    }

    /// An unused key for a record.
    fn adopted_key(&self, pool: &str, record: &Recorded) -> Option<HoldKey> {
        let or_unsaid = |text: &str| {
            if text.is_empty() || text.contains('/') { UNSAID.to_owned() } else { text.to_owned() }
        };
        let key = HoldKey::adopted(pool, or_unsaid(&record.container), or_unsaid(&record.interface)).ok()?;
        // Records of others may name one interface several times.
        (0..u32::MAX).map(|part| key.part(part)).find(|key| !self.attachments.contains_key(&key.id()))
    }

    /// The hold adopted for the container's interface of a key, in a pool; in any pool if that is empty.
    pub(super) fn adopted_for(&self, key: &HoldKey, pool: &str) -> Option<&Attachment> {
        let of_container = self.slice_holders.get(&SliceHolder::Container(key.container().to_owned()));
        let of_container = of_container.filter_map(|id| self.attachments.get(&id)).collect::<Vec<_>>();
        let of_pool = |it: &&Attachment| pool.is_empty() || it.pool == pool;
        of_container.into_iter().filter(of_pool).find(|it| is_adopted_for(it, key))
    }

    /// Who holds an address of the pool for the same pod under another key: an adopted record, or an earlier
    /// container. A pod of the same name with another UID is another pod, and the earlier one may still run.
    /// If the UID is unknown, only a record without a container counts as the pod's own.
    pub(super) fn former_self(&self, attach: &Attach) -> Option<HolderId> {
        self.pools.get(&attach.pool).filter(|pool| pool.is_sliced() && pool.is_giving())?;
        let same_pod = |it: &Attachment| {
            let interface = said(it.key.interface());
            let same_interface = interface.is_empty() || interface == attach.key.interface();
            let same_network = it.key.network() == attach.key.network() || it.key.network() == attach.pool;
            let (pod, asking) = (&it.pod, &attach.pod);
            same_network
                && same_interface
                && !pod.name.is_empty()
                && (&pod.namespace, &pod.name) == (&asking.namespace, &asking.name)
                && (self.has_planted(Planted::SameNameSamePod)
                    || if pod.uid.is_empty() {
                        said(it.key.container()).is_empty()
                    } else {
                        pod.uid == asking.uid
                    })
        };
        let of_pool = |it: &Attachment| {
            let block = it.block().and_then(|uid| self.blocks.get(uid));
            block.is_some_and(|block| block.is_usable() && block.facts.pool == attach.pool)
        };
        let holders = SliceHolder::both(&attach.key, &attach.pod);
        let ids: BTreeSet<HolderId> =
            holders.iter().flat_map(|holder| self.slice_holders.get(holder)).collect();
        let found = ids.into_iter().filter_map(|id| {
            let it = self.attachments.get(&id).filter(|it| it.phase == Phase::Held && !it.interface)?;
            let adopted = is_adopted_for(it, &attach.key);
            let will_do = it.key != attach.key && of_pool(it) && (adopted || same_pod(it));
            let address = it.every_address().into_iter().next();
            will_do.then(|| (!adopted, said(it.key.interface()).is_empty(), address, id))
        });
        found.min().map(|(.., id)| id)
    }

    /// Moves a hold from another key to the caller's. The address stays the same.
    pub(super) fn take_over(&mut self, former: HolderId, ticket: Ticket, attach: Attach) {
        let (id, now) = (attach.key.id(), self.now);
        let Some(old) = self.attachments.get(&former) else { return };
        let AddressLocation::Block { uid, hold } = old.place.clone() else { return };
        let since = old.since;
        let Some(block) = self.blocks.get_mut(&uid) else { return };
        let Some(address) = hold.addresses.iter().next() else { return };
        block.engine.release(&former, hold.sequence, now);
        let Ok(Granted::New(hold)) = block.engine.replay(id, address, None) else { return };
        if let Some(old) = self.attachments.remove(&former) {
            self.slice_holders.remove(former, &old.key, &old.pod);
        }
        self.trust(former);
        let mut attachment = Attachment::new(attach);
        attachment.since = since;
        attachment.place = AddressLocation::Block { uid, hold };
        attachment.adds.push((ticket, now));
        attachment.phase =
            Phase::Attaching(Attaching { fresh: false, committed: false, wire: Wire::Nothing, undo: false });
        // One record replaces the former one's, so that after a crash either all of it happened or nothing.
        if let Some(held) = attachment.held() {
            let position = self.record(Record::Held(held));
            self.commits.after(position, AfterCommit::Held(id));
        }
        self.attachments.insert(id, attachment);
        self.index_slice_holder(id);
    }

    /// Ends all holds of an attachment.
    pub(super) fn detach(&mut self, ticket: Ticket, key: &HoldKey) {
        if let Err(failure) = self.ready() {
            return self.answer(ticket, Err(failure));
        }
        // Addresses not held yet will be held under their key; holds are known by their container.
        let by_key = (0..PARTS).map(|part| key.part(part).id());
        let by_container = self.slice_holders.get(&SliceHolder::Container(key.container().to_owned()));
        let all: BTreeSet<HolderId> = by_key.chain(by_container).collect();
        let of_key = |it: &Attachment| it.key.is_part_of(key) || is_adopted_for(it, key);
        let ids = all.into_iter().filter(|id| self.attachments.get(id).is_some_and(of_key));
        let ids: Vec<HolderId> = ids.collect();
        if ids.is_empty() {
            return self.answer(ticket, Ok(Done::Swept(0)));
        }
        self.sweeps.insert(ticket, Sweep::of(&ids));
        for id in ids {
            self.remove(id, Deleter::Sweep(ticket));
        }
    }

    /// Refuses all calls that wait for an address of a slice, because waiting does not help.
    pub(super) fn refuse_waiting(&mut self, name: &str) {
        while let Some(id) = self.pools.get_mut(name).and_then(|pool| pool.queue.pop_front()) {
            let slices: Vec<String> =
                self.usable_blocks(name).map(|block| block.facts.name.clone()).collect();
            if let Some(attachment) = self.attachments.get(&id) {
                let mut of_pool = self.blocks.values().filter(|block| block.facts.pool == name);
                let failure = match of_pool.find(|block| block.withheld) {
                    Some(block) => CallError::Withheld(block.facts.name.clone()),
                    None => CallError::Full(Box::new(Full {
                        pool: name.to_owned(),
                        blocks: slices,
                        wish: attachment.wish.clone(),
                        pod: attachment.pod.clone(),
                    })),
                };
                self.fail_adds(id, &failure);
            }
            self.attachments.remove(&id);
        }
    }
}

/// Whether it was adopted for the container's interface that the key names, or for any interface of the
/// container.
fn is_adopted_for(attachment: &Attachment, key: &HoldKey) -> bool {
    let own = &attachment.key;
    let interface = said(own.interface());
    own.is_adopted()
        && own.container() == key.container()
        && (interface.is_empty() || interface == key.interface())
}
