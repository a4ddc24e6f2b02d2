//! The API server and the controller, as one node sees them; all nodes share the blocks.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use tenure_handles::Timestamp;
use tenure_ipam::{Address, Subnet};

use super::claim::Claims;
use super::dice::Dice;
use super::slice::{self, SliceGiven};
use crate::node::{AskId, Event, PoolFacts, Refusal, RefusalKind, SeenBlock};

/// The nodes.
pub(super) const NODES: [&str; 2] = ["node-1", "node-2"];
/// A node that only takes blocks and returns them.
const ELSEWHERE: &str = "node-3";
pub(super) const POOL: &str = "default";
const BLOCKS: usize = 6;
pub(super) const BLOCK_BITS: u8 = 2;

/// What all nodes see.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// By index.
    blocks: BTreeMap<usize, SeenBlock>,
    uids: usize,
    /// Events that each node's watch will deliver because of changes elsewhere.
    mail: BTreeMap<String, Vec<Event>>,
    /// UIDs of blocks that were taken from their owner by force.
    pub(super) taken: BTreeSet<String>,
    /// Addresses of blocks that were deleted or given to another node although containers use them, as an operator can. Those
    /// containers keep them, and the next owner does not know. No node is to blame if two have the same one, and the first may
    /// assign more until it learns of the change. Blocks that were replaced by an object of the same node are not included.
    pub(super) tainted: Vec<Subnet>,
}

/// The API server of all nodes.
pub(super) type Cluster = Rc<RefCell<Shared>>;

#[derive(Debug)]
pub(super) struct Api {
    /// The node that sees it.
    pub(super) node: &'static str,
    pub(super) cluster: Cluster,
    pub(super) up: bool,
    pub(super) controller_up: bool,
    /// Events that the watch will deliver, in order.
    pub(super) watch: VecDeque<Event>,
    /// Events that the watch delivered, to be repeated.
    told: Vec<Event>,
    /// Whether nothing is repeated.
    honest: bool,
    /// Block requests, with the run of the agent that sent them.
    pub(super) asks: Vec<(u64, AskId)>,
    /// Answers to block requests.
    pub(super) answers: Vec<(u64, Event)>,
    /// Deletions in flight; they arrive even if their sender crashed, but not after this time.
    pub(super) returns: Vec<(String, String, Option<Timestamp>)>,
    /// Objections to the release of a block, by its UID.
    pub(super) keeps: Vec<String>,
    pub(super) slice: SliceGiven,
    pub(super) claims: Claims,
}

impl Shared {
    fn carve(&mut self, node: &str) -> Option<SeenBlock> {
        let index = (0..BLOCKS).find(|index| !self.blocks.contains_key(index))?;
        self.uids += 1;
        let network = format!("10.0.0.{}/{}", index << BLOCK_BITS, 32 - BLOCK_BITS);
        let block = SeenBlock {
            name: format!("{POOL}-{index}"),
            uid: format!("uid-{}", self.uids),
            node: node.to_owned(),
            pool: POOL.to_owned(),
            subnet: Subnet::single(network.parse().unwrap()),
            reserved: false,
            deleting: false,
            releasing: false,
            draining: false,
            pod: None,
        };
        self.blocks.insert(index, block.clone());
        Some(block)
    }

    fn indexes_of(&self, node: &str) -> Vec<usize> {
        self.blocks.iter().filter(|(_, block)| block.node == node).map(|(index, _)| *index).collect()
    }
}

impl Api {
    pub(super) fn new(node: &'static str, cluster: Cluster) -> Self {
        Self {
            node,
            cluster,
            up: true,
            controller_up: true,
            watch: VecDeque::new(),
            told: Vec::new(),
            honest: false,
            asks: Vec::new(),
            answers: Vec::new(),
            returns: Vec::new(),
            keeps: Vec::new(),
            slice: SliceGiven::given(node),
            claims: Claims::default(),
        }
    }

    pub(super) fn facts() -> PoolFacts {
        let subnets = vec![Subnet::single("10.0.0.0/27".parse().unwrap())];
        PoolFacts { subnets, block_bits: BLOCK_BITS, ..PoolFacts::default() }
    }

    /// The controller answers one request, or the API is unreachable.
    pub(super) fn answer(&mut self, dice: &Dice) {
        if self.up && !self.controller_up {
            return;
        }
        let Some((life, ask)) = dice.pick(&mut self.asks) else { return };
        let refuse = |kind, message: &str| {
            let refusal = Refusal { kind, message: message.to_owned() };
            (life, Event::BlockRefused { ask, refusal })
        };
        if !self.up {
            return self.answers.push(refuse(RefusalKind::Unreachable, "connection refused"));
        }
        let carved = self.cluster.borrow_mut().carve(self.node);
        match carved {
            Some(block) => {
                self.answers.push((life, Event::BlockGranted { ask, block: block.name.clone() }));
                self.watch.push_back(Event::BlockSeen(block));
            }
            None => self.answers.push(refuse(RefusalKind::Exhausted, "all blocks are carved")),
        }
    }

    /// One deletion arrives. Returns what was deleted.
    pub(super) fn delete_one(&mut self, dice: &Dice, now: Timestamp) -> Option<SeenBlock> {
        self.returns.retain(|(.., until)| until.is_none_or(|until| until > now));
        if !self.up {
            return None;
        }
        let (name, uid, _) = dice.pick(&mut self.returns)?;
        let mut cluster = self.cluster.borrow_mut();
        let found = cluster.blocks.iter().find(|(_, block)| block.uid == uid);
        let found = found.map(|(index, it)| (*index, it.clone()));
        match found {
            Some((_, block)) if block.node != self.node => {
                self.watch.push_back(Event::BlockSeen(block));
                None
            }
            found => {
                self.watch.push_back(Event::BlockGone { name, uid });
                cluster.blocks.remove(&found?.0)
            }
        }
    }

    /// The sender of all deletions in flight crashed, and nothing knows of them any more. A block is withheld for longer than
    /// any request takes.
    pub(super) fn limit_returns(&mut self, until: Timestamp) {
        for (.., limit) in &mut self.returns {
            limit.get_or_insert(until);
        }
    }

    /// One objection arrives: the mark is removed.
    pub(super) fn keep_one(&mut self, dice: &Dice) {
        let Some(uid) = dice.pick(&mut self.keeps).filter(|_| self.up) else { return };
        let (node, mut cluster) = (self.node, self.cluster.borrow_mut());
        let kept = cluster.blocks.values_mut().find(|block| block.uid == uid && block.node == node);
        if let Some(block) = kept {
            block.releasing = false;
            self.watch.push_back(Event::BlockSeen(block.clone()));
        }
    }

    /// The other node gets or returns a block.
    pub(super) fn live_elsewhere(&mut self, dice: &Dice) {
        if !self.up || !self.controller_up {
            return;
        }
        let mut cluster = self.cluster.borrow_mut();
        let theirs: Vec<usize> = cluster.indexes_of(ELSEWHERE);
        if theirs.is_empty() {
            cluster.carve(ELSEWHERE);
        } else if let Some(index) = theirs.get(dice.below(theirs.len())) {
            cluster.blocks.remove(index);
        }
    }

    /// Somebody takes a block from this node: deletes it, gives it to another node, or replaces it.
    pub(super) fn take_by_force(&mut self, dice: &Dice) -> bool {
        let mut cluster = self.cluster.borrow_mut();
        let ours = cluster.indexes_of(self.node);
        let Some(index) = ours.get(dice.below(ours.len())) else { return false };
        let Some(block) = cluster.blocks.remove(index) else { return false };
        cluster.taken.insert(block.uid.clone());
        cluster.uids += 1;
        match dice.below(3) {
            0 => {
                cluster.tainted.push(block.subnet);
                self.watch.push_back(Event::BlockGone { name: block.name, uid: block.uid });
            }
            1 => {
                let other = NODES.into_iter().find(|node| *node != self.node).unwrap();
                let moved = SeenBlock { node: other.to_owned(), ..block };
                cluster.tainted.push(moved.subnet);
                self.watch.push_back(Event::BlockSeen(moved.clone()));
                cluster.mail.entry(other.to_owned()).or_default().push(Event::BlockSeen(moved.clone()));
                cluster.blocks.insert(*index, moved);
            }
            _ => {
                let again = SeenBlock { uid: format!("uid-{}", cluster.uids), ..block };
                self.watch.push_back(Event::BlockSeen(again.clone()));
                cluster.blocks.insert(*index, again);
            }
        }
        true
    }

    /// Somebody changes the slice.
    pub(super) fn change_slice(&mut self, dice: &Dice) {
        let told = self.slice.change(dice);
        self.watch.extend(told);
    }

    /// Adds a label to a block or removes it.
    pub(super) fn mark(&mut self, dice: &Dice) {
        let mut cluster = self.cluster.borrow_mut();
        let ours = cluster.indexes_of(self.node);
        let Some(index) = ours.get(dice.below(ours.len())) else { return };
        let Some(block) = cluster.blocks.get_mut(index) else { return };
        if dice.percent(30) {
            // Kept for one pod, then for any.
            block.pod =
                if block.pod.is_none() { Some(format!("c{}", dice.below(slice::FIRST))) } else { None };
        } else if dice.percent(25) {
            // Drained, or no longer.
            block.draining = !block.draining;
        } else if dice.percent(40) {
            block.releasing = true;
        } else if dice.percent(70) {
            block.reserved = !block.reserved;
        } else {
            block.deleting = true;
        }
        self.watch.push_back(Event::BlockSeen(block.clone()));
    }

    /// Interference ends, and the watch delivers the current state.
    pub(super) fn put_right(&mut self) {
        (self.up, self.controller_up) = (true, true);
        self.told.clear();
        self.hear_of_others();
        let mut cluster = self.cluster.borrow_mut();
        let mut gone: BTreeSet<String> = (1..=cluster.uids).map(|number| format!("uid-{number}")).collect();
        for block in cluster.blocks.values_mut() {
            (block.reserved, block.draining, block.pod) = (false, false, None);
            gone.remove(&block.uid);
            self.watch.push_back(Event::BlockSeen(block.clone()));
        }
        drop(cluster);
        self.watch.extend(gone.into_iter().map(|uid| Event::BlockGone { name: String::new(), uid }));
        self.watch.extend(self.slice.put_right());
        self.watch.extend(self.claims.list());
        self.honest = true;
    }

    /// The next event of the watch: a new one, or an old one again.
    pub(super) fn next_told(&mut self, dice: &Dice) -> Option<Event> {
        self.hear_of_others();
        if !self.told.is_empty() && dice.percent(15) {
            return self.told.get(dice.below(self.told.len())).cloned();
        }
        if !self.up {
            return None;
        }
        let event = self.watch.pop_front()?;
        // Events of slices arrive in order, and once.
        let again = !matches!(event, Event::ApiRead | Event::SourceRead { .. } | Event::SliceSeen(_));
        let of_slice = match &event {
            Event::PoolChanged { name, .. } | Event::PoolGone { name } => name != POOL,
            Event::BlockGone { name, .. } => *name == self.slice.block().name,
            _ => false,
        };
        if again && !of_slice && !self.honest {
            self.told.push(event.clone());
        }
        Some(event)
    }

    fn hear_of_others(&mut self) {
        let mail = self.cluster.borrow_mut().mail.remove(self.node);
        self.watch.extend(mail.into_iter().flatten());
    }

    /// A new watch starts with a list of all objects.
    pub(super) fn list(&mut self) {
        self.told.clear();
        self.watch.clear();
        self.answers.clear();
        self.watch.push_back(Event::PoolChanged { name: POOL.to_owned(), facts: Self::facts() });
        let mut cluster = self.cluster.borrow_mut();
        cluster.mail.remove(self.node);
        let ours = cluster.blocks.values().filter(|block| block.node == self.node);
        self.watch.extend(ours.cloned().map(Event::BlockSeen));
        drop(cluster);
        self.watch.push_back(Event::ApiRead);
        self.watch.extend(self.slice.list());
        self.watch.push_back(Event::SourceRead { source: slice::SOURCE });
        self.watch.extend(self.claims.list());
    }

    pub(super) fn uids_here(&self) -> BTreeSet<String> {
        let cluster = self.cluster.borrow();
        let ours = cluster.blocks.values().filter(|block| block.node == self.node);
        ours.map(|block| block.uid.clone()).collect()
    }
}

pub(super) fn has(block: &SeenBlock, address: Address) -> bool {
    block.subnet.ipv4.is_some_and(|network| network.contains(address))
}
