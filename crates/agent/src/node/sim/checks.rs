//! The checks after every step.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_handles::Timestamp;
use tenure_ipam::{Address, Addresses, Cidr};

use super::agent::settings;
use super::api::has;
use super::runtime::{Call, Container, has_interface};
use super::world::World;
use super::{claim, slice};
use crate::journal::Record;
use crate::key::HoldKey;
use crate::node::attachment::Attachment;
use crate::node::view::HoldView;
use crate::node::{CallError, Done, Event, Leak, PoolError, SeenBlock, SeenSlice, Ticket};

/// What the node has been told and has done: what it can be expected to know.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "one for each thing that is read")]
pub(super) struct Knowledge {
    node: &'static str,
    /// What was read at the start.
    journal: bool,
    kernel: bool,
    api: bool,
    slices: bool,
    /// Blocks that the node has reason to consider its own.
    ours: BTreeMap<String, SeenBlock>,
    /// Blocks that this run was told are not its own.
    lost: BTreeSet<String>,
    /// When an address was last freed, by a clock that is never set back, as far as the journal certainly knows.
    freed: BTreeMap<Address, Timestamp>,
    /// The same for records that are not committed yet, and where they will be.
    freeing: Vec<(u64, Address, Timestamp)>,
    pub(super) exported: BTreeSet<Cidr>,
    /// Links that existed at a start with a lost journal: each may belong to a claim's pod, with or without a route.
    pub(super) old_links: BTreeSet<HoldKey>,
    /// Whether this run started with an incomplete journal and has not read everything yet.
    pub(super) incomplete: bool,
}

impl Knowledge {
    pub(super) fn of(node: &'static str) -> Self {
        Self { node, ..Self::default() }
    }

    pub(super) fn begin(&mut self) {
        (self.journal, self.kernel, self.api, self.slices) = (false, false, false, false);
        self.ours.clear();
        self.lost.clear();
        self.freeing.clear();
        self.exported.clear();
    }

    pub(super) fn commit(&mut self, up_to: u64) {
        let safe = self.freeing.extract_if(.., |(position, ..)| *position <= up_to);
        for (_, address, at) in safe {
            let freed = self.freed.entry(address).or_insert(at);
            *freed = at.max(*freed);
        }
    }

    /// After a reboot nothing is known of cooling.
    pub(super) fn forget(&mut self) {
        self.freed.clear();
        self.old_links.clear();
    }

    pub(super) fn tell(&mut self, event: &Event) {
        match event {
            Event::Journal(_) => self.journal = true,
            Event::Kernel(_) => self.kernel = true,
            Event::ApiRead => self.api = true,
            Event::SourceRead { .. } => self.slices = true,
            Event::BlockSeen(block) | Event::SliceSeen(SeenSlice { block, .. }) => {
                let replaced =
                    self.ours.iter().filter(|(uid, it)| it.name == block.name && **uid != block.uid);
                let replaced: Vec<String> = replaced.map(|(uid, _)| uid.clone()).collect();
                let late = self.lost.contains(&block.uid);
                if !late {
                    for uid in replaced {
                        self.lose(uid);
                    }
                }
                if block.node != self.node {
                    // A block that was never this node's may become its own.
                    if self.ours.contains_key(&block.uid) {
                        self.lose(block.uid.clone());
                    }
                } else if !late {
                    self.ours.insert(block.uid.clone(), block.clone());
                }
            }
            Event::BlockGone { uid, .. } => self.lose(uid.clone()),
            _ => {}
        }
    }

    fn lose(&mut self, uid: String) {
        self.ours.remove(&uid);
        self.lost.insert(uid);
    }
}

impl World {
    /// Invariant 3: nothing is assigned before everything is read.
    pub(super) fn check_read(&self) {
        let Knowledge { journal, kernel, api, slices, .. } = &self.knowledge;
        assert!(*journal && *kernel && *api && *slices, "handed out before all was read");
    }

    pub(super) fn check_record(&mut self, position: u64, record: &Record) {
        match record {
            Record::Held(held) => {
                self.check_read();
                // After a lost journal, others say what a running container has.
                let running = Container::Running(held.addresses);
                let has_it = self.runtime.containers.get(&held.key) == Some(&running);
                let new = !self.kernel.links.contains_key(&held.key)
                    && held.since == self.agent.node.now
                    && !has_it;
                let address = held.addresses.iter().next().unwrap();
                // Invariant 2: what is kept for a pod is for that pod.
                // A link that outlived a lost journal keeps its address, whether or not it is there still.
                let is_old = self.knowledge.old_links.contains(&held.key);
                let of = self.knowledge.ours.values().find(|block| new && !is_old && has(block, address));
                if let Some(block) = of {
                    assert!(!block.draining, "{address} is assigned from {}, which is drained", block.name);
                }
                let kept_for = of.and_then(|block| block.pod.clone());
                if let Some(pod) = &kept_for {
                    assert_eq!(*pod, held.pod.uid, "{address} is kept for a pod, and {} gets it", held.key);
                    self.counts.count("a pod got what was kept for it");
                    self.knowledge.freed.remove(&address);
                }
                // Invariant 6: a cooling address is assigned only if nothing else is free.
                if let Some(freed) = self.knowledge.freed.get(&address)
                    && new
                    && kept_for.is_none()
                    && freed.plus(settings(self.api.node).cooling) > self.true_now
                {
                    self.counts.count("cooling gave way");
                    let pools = self.agent.node.pools();
                    if slice::is_of_slice(&held.key) {
                        self.check_nothing_else(&held.key, address);
                    } else {
                        assert_eq!(pools[0].counts.free, 0, "{address} cooled, and others were free");
                    }
                }
                if slice::is_of_slice(&held.key) && held.key.network() == slice::POOL {
                    self.counts.count("adopted");
                } else if slice::is_of_slice(&held.key) && new {
                    self.check_wish(&held.key, address);
                }
            }
            // An address without a link was not known to be in use, and its block may have been returned meanwhile.
            Record::Released(released) if released.hold.key.container().starts_with('x') => {}
            // An address outside this node's blocks does not cool here: whoever assigns the block again lets it cool.
            Record::Released(released) if !self.is_of_a_block(&released.hold.addresses) => {}
            Record::Released(released) => {
                // By its own clock; at a start the remaining time counts, because the clock may have been set meanwhile.
                let (now, true_now) = (self.agent.node.now, self.true_now);
                let ago = now.since(released.at);
                let left = released.until.since(now);
                let gone = settings(self.api.node).cooling.saturating_sub(left);
                let at = before(true_now, ago.min(gone));
                for address in released.hold.addresses.iter() {
                    self.knowledge.freeing.push((position, address, at));
                }
            }
            Record::ClaimUse(_) | Record::ClaimUseEnded(_) => self.check_read(),
            Record::Doubted { doubted, .. } => {
                self.counts.count(if *doubted {
                    "a block was withheld"
                } else {
                    "a block was trusted again"
                });
            }
            Record::Owned(_) | Record::Fenced { .. } | Record::Forgotten { .. } | Record::Known(_) => {}
        }
    }

    /// Cooling in a block that was taken away is forgotten if the journal is lost.
    fn forget_what_cooled(&mut self) {
        let mut freed = std::mem::take(&mut self.knowledge.freed);
        freed.retain(|address, _| self.is_of_a_block(&(*address).into()));
        self.knowledge.freed = freed;
    }

    fn is_of_a_block(&self, addresses: &Addresses) -> bool {
        let networks = self.agent.node.blocks().into_iter().filter_map(|block| block.subnet.ipv4);
        networks.into_iter().any(|network| addresses.iter().any(|address| network.contains(address)))
    }

    pub(super) fn check_answer(&mut self, ticket: Ticket, outcome: Result<Done, CallError>) {
        let call =
            self.runtime.calls.remove(&ticket).expect("an answer to a call that is open, and only one");
        match (call, outcome) {
            (Call::Add(key), Ok(Done::Added { addresses, link, .. })) => {
                self.check_read();
                let address = addresses.iter().next().unwrap();
                let before = self.runtime.containers.get(&key).cloned();
                if let Some(Container::Running(held)) = &before {
                    // Invariant 5: a repeated ADD gets the same answer.
                    assert_eq!(*held, addresses, "{key}");
                } else if claim::is_claim_user(&key) {
                    assert_eq!(addresses, claim::address(&key).0.into(), "{key} has what its claim has");
                    self.counts.count("a claim use was added");
                } else {
                    // Invariant 2: the address belongs to a block that the node has reason to consider its own.
                    let of = self.knowledge.ours.values().find(|block| has(block, address));
                    // It keeps addresses that are on record as its own, like those it holds.
                    let on_record = self.api.slice.is_on_record(&key, address);
                    assert!(
                        of.is_some() || on_record,
                        "{key} got {address}, which is of no block of this node"
                    );
                }
                // Invariant 1: nobody else here has it.
                for (other, state) in &self.runtime.containers {
                    let taken = matches!(state, Container::Running(held) if *held == addresses);
                    // A claim's address may be moving from one to another.
                    let moves = claim::is_claim_user(other) && claim::is_claim_user(&key);
                    assert!(
                        !taken || *other == key || moves,
                        "{address} is given to {key}, and {other} has it"
                    );
                }
                // Answers survive a crash.
                let image = &self.agent.safe;
                let claim_use =
                    image.claim_uses().any(|it| it.key == key && it.addresses == [claim::address(&key)]);
                let safe = claim_use || image.holds().any(|it| it.key == key && it.addresses == addresses);
                // The kernel knows what a lost journal does not: the next start finds the link again.
                let has_link = self.kernel.links.get(&key).is_some_and(|link| link.contains(&address));
                let found = has_link && self.runtime.forgotten.contains(&key);
                assert!(safe || found, "{key} was told of {address}, which a crash would forget");
                assert_eq!(link.is_some(), has_interface(&key));
                if has_interface(&key) && claim::is_claim_user(&key) {
                    assert!(self.kernel.links.contains_key(&key), "{key}");
                } else if has_interface(&key) {
                    assert_eq!(self.kernel.links.get(&key), Some(&vec![address]), "{key}");
                }
                if before == Some(Container::Starting) {
                    self.runtime.containers.insert(key, Container::Running(addresses));
                }
            }
            (Call::Add(key), Err(error)) => {
                match error {
                    CallError::Claim(_) => self.counts.count("a claim use was refused"),
                    CallError::Pool(PoolError::Exhausted { .. }) => self.counts.count("exhausted"),
                    CallError::Full(_) => self.counts.count("a slice was full"),
                    CallError::Pool(PoolError::TimedOut { trouble, .. }) => {
                        self.counts.count("timed out");
                        if trouble.is_some_and(|text| text.contains("connection refused")) {
                            self.counts.count("unreachable");
                        }
                    }
                    _ => {}
                }
                if self.runtime.containers.get(&key) == Some(&Container::Starting) {
                    self.runtime.containers.insert(key, Container::Ending);
                }
            }
            (Call::Del(key), Ok(Done::Removed | Done::Swept(_))) => {
                let busy = self.runtime.calls.values().any(|call| *call == Call::Add(key.clone()));
                if !busy {
                    assert!(!self.kernel.links.contains_key(&key), "{key} is deleted, and its link is there");
                    let safe = self.agent.safe.holds().all(|held| held.key != key);
                    let safe = safe && self.agent.safe.claim_uses().all(|claim_use| claim_use.key != key);
                    assert!(safe, "{key} is deleted, and a crash would bring it back");
                }
                if self.runtime.containers.get(&key) == Some(&Container::Ending) {
                    self.runtime.containers.remove(&key);
                    self.runtime.forgotten.remove(&key);
                    self.runtime.deleted.remove(&key);
                }
            }
            (Call::Check(key), Ok(Done::Checked)) => {
                let running = self.runtime.containers.contains_key(&key);
                assert!(running || self.agent.node.holds().iter().all(|hold| hold.key != key));
            }
            (Call::Gc, Ok(Done::Swept(ended))) => {
                if ended > 0 {
                    self.counts.count("swept");
                }
                let held: BTreeSet<HoldKey> =
                    self.agent.node.holds().into_iter().map(|hold| hold.key).collect();
                self.runtime.containers.retain(|key, state| *state != Container::Lost || held.contains(key));
            }
            (Call::Del(_) | Call::Check(_) | Call::Gc, Err(_)) => {}
            (call, outcome) => panic!("{call:?} was answered with {outcome:?}"),
        }
    }

    /// Runs after every event.
    pub(super) fn check_node(&mut self) {
        if !self.agent.node.is_ready() {
            return;
        }
        if std::mem::take(&mut self.knowledge.incomplete) {
            self.forget_what_cooled();
        }
        let node = &self.agent.node;
        for pool in node.pools() {
            // No wake-up is lost: no ADD waits while an address is free.
            assert!(pool.waiting == 0 || pool.counts.free == 0, "{pool:?}");
            if pool.waiting > 0 {
                self.counts.count("an add waited");
            }
        }
        let holds: BTreeMap<HoldKey, HoldView> =
            self.agent.node.holds().into_iter().map(|hold| (hold.key.clone(), hold)).collect();
        let mut holders: BTreeMap<Address, String> = BTreeMap::new();
        for hold in holds.values().filter(|hold| hold.block.is_some()) {
            for address in hold.addresses.iter() {
                let other = holders.insert(address, hold.key.to_string());
                assert_eq!(other, None, "{address} is held by {} too", hold.key);
            }
        }
        claim::check_claim_users(&holds);
        for (key, container) in &self.runtime.containers {
            let Container::Running(addresses) = container else { continue };
            let Some(held) = holds.get(key) else {
                assert!(self.runtime.forgotten.contains(key), "{key} runs, and its hold is forgotten");
                if has_interface(key) {
                    let there = self.kernel.links.contains_key(key);
                    assert!(there, "{key} runs, the journal was lost, and its link was removed");
                }
                continue;
            };
            assert_eq!(held.addresses, *addresses);
        }
        self.runtime.containers.retain(|key, it| *it != Container::Vanished || holds.contains_key(key));
        if let Some(wake) = self.agent.node.next_wake() {
            assert!(wake > self.now, "a timer that is due already would spin");
        }
    }

    /// Invariant 9: only unused links are deleted.
    pub(super) fn check_leak(&mut self, key: &HoldKey, leak: &Leak) {
        let state = self.runtime.containers.get(key);
        let needed = matches!(state, Some(Container::Starting | Container::Running(_)));
        assert!(!needed, "{key} is {state:?}, and yet taken for a leak: {leak:?}");
        self.counts.count(match leak {
            Leak::NoInterface => "a hold without an interface was released",
            Leak::NoNamespace(_) => "a hold without a namespace was released",
            Leak::NoHold => "a link without a hold was put away",
        });
    }

    /// Invariant 9: in the end no leak is left, and every route exists.
    pub(super) fn check_healed(&mut self) {
        let left: Vec<&HoldKey> = self
            .runtime
            .containers
            .iter()
            .filter(|(_, it)| **it == Container::Vanished)
            .map(|(key, _)| key)
            .collect();
        assert!(left.is_empty(), "their DEL was lost, and they are still held: {left:?}");
        let holds: BTreeMap<HoldKey, HoldView> =
            self.agent.node.holds().into_iter().map(|hold| (hold.key.clone(), hold)).collect();
        for (key, addresses) in &self.kernel.links {
            let Some(held) = holds.get(key) else {
                let kept = self.agent.node.attachments.get(&key.id()).is_some_and(Attachment::is_unknown);
                let unknown = kept && self.knowledge.old_links.contains(key) && addresses.is_empty();
                assert!(unknown, "nobody holds anything for the link of {key}");
                continue;
            };
            let mut reached = held.claim.as_ref().is_none_or(|claim| claim.reached) && !held.silenced;
            // If only the kernel knows a link, it may belong to a claim; the claim's current pod gets the packets.
            let only_found = held.claim.is_none() && held.block.is_none();
            let has_claim = |it: &HoldView| it.claim.as_ref().is_some_and(|claim| claim.reached);
            reached &=
                !only_found || !holds.values().any(|it| has_claim(it) && it.addresses == held.addresses);
            let held: Vec<Address> = held.addresses.iter().filter(|_| reached).collect();
            assert_eq!(*addresses, held, "routes to {key}");
        }
        self.check_reach(&holds);
        self.check_silence(&holds);
        assert_eq!(self.agent.node.leaks(), []);
    }

    /// No route leads to a pod that is gone, if its address may belong to somebody else.
    fn check_silence(&mut self, holds: &BTreeMap<HoldKey, HoldView>) {
        let blocks = self.agent.node.blocks();
        let fenced = |name: &str| blocks.iter().filter(|it| it.name == name).all(|it| it.fence.is_some());
        for (key, addresses) in
            self.kernel.links.iter().filter(|(key, _)| self.runtime.deleted.contains(*key))
        {
            let elsewhere = holds.get(key).and_then(|hold| hold.block.as_deref()).is_some_and(fenced);
            // If only the kernel knows a link, its pod is unknown.
            let known = |hold: &HoldView| hold.settled && !hold.pod.uid.is_empty();
            if elsewhere && holds.get(key).is_some_and(known) {
                assert_eq!(*addresses, [], "the pod of {key} is gone, and packets arrive at it");
                self.counts.count("a pod was silenced");
            }
        }
    }

    /// A returned block is not in use, and nothing cools in it.
    pub(super) fn check_given_back(&self, block: &SeenBlock) {
        if self.api.cluster.borrow().taken.contains(&block.uid) {
            return;
        }
        for (key, container) in &self.runtime.containers {
            if let Container::Running(addresses) = container {
                let inside = addresses.iter().any(|address| has(block, address));
                assert!(!inside, "{} was given back, and {key} uses it", block.name);
            }
        }
        for (address, freed) in self.knowledge.freed.iter().filter(|(address, _)| has(block, **address)) {
            let cool = freed.plus(settings(self.api.node).cooling) <= self.true_now;
            assert!(cool, "{} was given back, and {address} cools: the next owner does not know", block.name);
        }
    }

    /// Without faults every call is answered within its limit.
    pub(super) fn check_nobody_waits_for_ever(&mut self) {
        for _ in 0..40 {
            self.pass(std::time::Duration::from_secs(1));
            self.event(Event::Tick);
            self.drain();
        }
        let open: Vec<&Call> = self.runtime.calls.values().collect();
        assert!(open.is_empty(), "never answered: {open:?}");
    }

    /// After all containers are deleted, nothing is left anywhere, and all parts agree.
    pub(super) fn check_the_end(&mut self) {
        assert!(self.runtime.containers.is_empty(), "{:?}", self.runtime.containers);
        assert!(self.agent.node.is_idle());
        assert_eq!(self.agent.node.holds(), [], "holds leak");
        assert!(self.kernel.links.is_empty(), "links leak: {:?}", self.kernel.links);
        assert_eq!(self.agent.safe.holds().count(), 0, "the journal remembers what is over");
        assert_eq!(self.agent.safe.claim_uses().count(), 0, "the journal remembers claim uses that ended");
        let blocks = self.agent.node.blocks();
        let (slices, blocks): (Vec<_>, Vec<_>) =
            blocks.into_iter().partition(|block| block.pool == slice::POOL);
        assert_eq!(slices.len(), usize::from(self.api.slice.is_given()), "{slices:#?}");
        assert!(blocks.len() <= 1, "of all blocks the last one stays: {blocks:#?}");
        let known: BTreeSet<String> = blocks.iter().map(|block| block.uid.clone()).collect();
        assert_eq!(known, self.api.uids_here(), "node and API agree about blocks");
        let exported: BTreeSet<Cidr> = blocks.iter().filter_map(|block| block.subnet.ipv4).collect();
        assert_eq!(self.knowledge.exported, exported);
        assert_eq!(self.agent.node.pools()[0].waiting, 0);
    }
}

fn before(time: Timestamp, ago: Duration) -> Timestamp {
    Timestamp::default().plus(time.since(Timestamp::default().plus(ago)))
}
