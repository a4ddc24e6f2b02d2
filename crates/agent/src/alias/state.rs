//! What this node has of alias ranges and what it wants: decides, without I/O, what the node is told and what its `NodeAliases` says.
//!
//! ```text
//!   in the status ──▶ attached, and in the machine's metadata ──▶ a block ──▶ returned ──▶ not in the status any more
//!   (pending)         (usable)
//! ```
//!
//! An open request of the node counts until a range is usable, however long the cloud takes: wanted are the ranges that are usable by
//! whichever pod asks, and as many more as are pending or asked for, whichever is more. So a slow cloud is never asked twice for one pod. A
//! refused request still counts until the node repeats it or a range comes: otherwise the controller would forget what it could not give.
//!
//! A status that is not there says nothing: somebody deleted the object, and the controller writes it again from its records.

mod trouble;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tenure_api::cloud::{LeavingPod, NodeAlias, NodeAliasesSpec, NodeAliasesStatus};
use tenure_ipam::{Address, Cidr, Notation, Subnet};

use super::POOLS;
use super::facts::KnownPool;
use crate::key::Pod;
use crate::node::{AskId, Event, PoolFacts, Refusal, RefusalKind, SeenBlock};

/// The most ranges that an object has room for.
const MOST: usize = 1024;

/// Which pool the node uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolChoice {
    /// The one of this name.
    Named(String),
    /// The only one there is.
    Only,
}

/// What is known and wanted.
#[derive(Debug)]
pub(super) struct State {
    node: String,
    choice: PoolChoice,
    pools: BTreeMap<String, Result<KnownPool, String>>,
    /// The spec of this node's object, if it exists.
    spec: Option<NodeAliasesSpec>,
    /// What its last status says.
    aliases: BTreeMap<Cidr, NodeAlias>,
    /// The same of what claims have: no block, because only their pods get it.
    claimed: BTreeMap<Cidr, NodeAlias>,
    problem: Option<String>,
    /// The ranges that the machine's host knows, and why nobody knows that at present.
    machine: BTreeSet<Cidr>,
    machine_trouble: Option<String>,
    start: Start,
    /// Open requests of the node.
    asks: VecDeque<AskId>,
    /// Requests that were refused and not repeated, and how many were refused since the last [`State::patrol`].
    refused: usize,
    refused_lately: usize,
    returned: BTreeMap<Cidr, String>,
    leaving: BTreeMap<Address, LeavingPod>,
    /// This node's pods by UID, and whether they are marked as moving out; `None` before that is known.
    marked: Option<BTreeMap<String, bool>>,
    /// Pods that will ask for an address soon, by UID, and what the node was told about that.
    expected: BTreeSet<String>,
    told_expected: BTreeSet<String>,
    told_pool: Option<(String, PoolFacts)>,
    /// Blocks that the node was told of, by UID.
    told: BTreeMap<String, SeenBlock>,
    /// The UIDs among them that any pod can have now.
    ready: BTreeSet<String>,
    events: Vec<Event>,
}

/// What was read so far.
#[derive(Debug, Default)]
struct Start {
    objects: bool,
    machine: bool,
    told: bool,
}

impl State {
    pub(super) fn new(node: String, choice: PoolChoice) -> Self {
        Self {
            node,
            choice,
            pools: BTreeMap::new(),
            spec: None,
            aliases: BTreeMap::new(),
            claimed: BTreeMap::new(),
            problem: None,
            machine: BTreeSet::new(),
            machine_trouble: None,
            start: Start::default(),
            asks: VecDeque::new(),
            refused: 0,
            refused_lately: 0,
            returned: BTreeMap::new(),
            leaving: BTreeMap::new(),
            marked: None,
            expected: BTreeSet::new(),
            told_expected: BTreeSet::new(),
            told_pool: None,
            told: BTreeMap::new(),
            ready: BTreeSet::new(),
            events: Vec::new(),
        }
    }

    /// The events for the node since the last call, in order.
    pub(super) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// A pool appeared, changed, or is gone.
    pub(super) fn pool_seen(&mut self, name: &str, pool: Option<Result<KnownPool, String>>) {
        match pool {
            Some(pool) => self.pools.insert(name.to_owned(), pool),
            None => self.pools.remove(name),
        };
        self.refresh();
    }

    /// This node's object as it is now; nothing if there is none.
    pub(super) fn object_seen(&mut self, object: Option<(NodeAliasesSpec, Option<NodeAliasesStatus>)>) {
        let (spec, status) = object.unzip();
        self.spec = spec;
        if let Some(status) = status.flatten() {
            let parsed = |(text, alias): (String, NodeAlias)| {
                let cidr = Notation::Strict.cidr_or_address(&text);
                cidr.inspect_err(|error| tracing::warn!(%error, "an alias range of this node cannot be read"))
                    .ok()
                    .map(|cidr| (cidr, alias))
            };
            let all = status.aliases.into_iter().filter_map(parsed);
            (self.claimed, self.aliases) = all.partition(|(_, alias)| alias.claim.is_some());
            self.problem = status.problem;
        }
        self.refresh();
    }

    /// Whether packets for an address that a claim has arrive here; if not, why.
    pub(super) fn reaches(&self, address: Address) -> Result<(), Option<String>> {
        let range = Cidr::host(address);
        match self.claimed.get(&range) {
            Some(alias) if self.is_usable(&range, alias) => Ok(()),
            known => {
                Err(known.and_then(|alias| alias.problem.clone()).or_else(|| self.machine_trouble.clone()))
            }
        }
    }

    /// All first lists are complete.
    pub(super) fn listed(&mut self) {
        self.start.objects = true;
        self.refresh();
    }

    /// What the machine's metadata says, or why it says nothing: then what it said last holds.
    pub(super) fn machine_seen(&mut self, ranges: Result<BTreeSet<Cidr>, String>) {
        match ranges {
            Ok(ranges) => (self.machine, self.machine_trouble) = (ranges, None),
            Err(trouble) => self.machine_trouble = Some(trouble),
        }
        self.start.machine = true;
        self.refresh();
    }

    /// The node requests a block.
    pub(super) fn ask(&mut self, ask: AskId) {
        self.refused = self.refused.saturating_sub(1);
        self.asks.push_back(ask);
        self.refresh();
    }

    /// The node returns a block.
    pub(super) fn give_back(&mut self, name: String, uid: String) {
        match self.aliases.iter().find(|(cidr, alias)| uid_of(cidr, &alias.grant) == uid) {
            Some((cidr, alias)) => drop(self.returned.insert(*cidr, alias.grant.clone())),
            None => self.events.push(Event::BlockGone { name, uid }),
        }
        self.refresh();
    }

    /// From time to time, and less often than the node repeats a request: nobody waits any more for what was not repeated.
    pub(super) fn patrol(&mut self) {
        self.refused = self.refused.min(self.refused_lately);
        self.refused_lately = 0;
    }

    /// The object could not be written.
    pub(super) fn not_written(&mut self, why: &str) {
        self.refuse(self.asks.len(), RefusalKind::Unreachable, why);
    }

    /// Which pods of this node are marked as moving out, by UID (whoever is not here is gone), and who holds what.
    pub(super) fn marks_seen(&mut self, marked: BTreeMap<String, bool>, mut holds: Vec<(Address, Pod)>) {
        holds.retain(|(_, pod)| marked.get(&pod.uid).copied().unwrap_or_default());
        self.marked = Some(marked);
        self.leave(holds);
    }

    /// These pods are marked as moving out.
    pub(super) fn leave(&mut self, holds: Vec<(Address, Pod)>) {
        for (address, Pod { namespace, name, uid }) in holds {
            // A range of several addresses cannot move.
            if self.aliases.contains_key(&Cidr::host(address)) {
                self.leaving.insert(address, LeavingPod { namespace, pod: name, uid });
            }
        }
        self.refresh();
    }

    /// Which pods of this node will ask for any address soon, by UID.
    pub(super) fn expect(&mut self, pods: BTreeSet<String>) {
        self.expected = pods;
        self.refresh();
    }

    /// What its object should say, if it does not.
    pub(super) fn unwritten(&self) -> Option<NodeAliasesSpec> {
        let in_use = self.told_pool.as_ref().map(|(pool, _)| pool);
        let pool = in_use.or_else(|| Some(&self.spec.as_ref()?.pool)).filter(|_| self.start.told)?;
        let returned = self.returned.iter().map(|(cidr, grant)| (cidr.to_string(), grant.clone()));
        let leaving = self.leaving.iter().map(|(address, pod)| (address.to_string(), pod.clone()));
        let spec = NodeAliasesSpec {
            pool: pool.clone(),
            wanted: i32::try_from(self.wanted().min(MOST)).unwrap_or_default(),
            returned: returned.collect(),
            leaving: leaving.collect(),
        };
        // Also a node that wants nothing says so: otherwise no address could move to it.
        (self.spec.as_ref() != Some(&spec)).then_some(spec)
    }

    /// The pool in use, by its name, or why there is none.
    pub(super) fn pool(&self) -> Result<(&str, &KnownPool), String> {
        if !self.start.told {
            return Err("this node has not yet read its alias ranges from the API server".to_owned());
        }
        let name = self.pool_name()?;
        match self.pools.get_key_value(name) {
            Some((name, Ok(pool))) => Ok((name, pool)),
            Some((_, Err(why))) => Err(format!("IPPool {name:?} cannot be used: {why}")),
            None => Err(format!("there is no IPPool {name:?}")),
        }
    }

    /// The name of the pool in use. Ranges that the node has are of the pool that its object names.
    fn pool_name(&self) -> Result<&str, String> {
        if let Some(spec) = self.spec.as_ref().filter(|_| !self.aliases.is_empty()) {
            return Ok(&spec.pool);
        }
        match (&self.choice, self.pools.len()) {
            (PoolChoice::Named(name), _) => Ok(name),
            (PoolChoice::Only, 1) => self.pools.keys().next().map(String::as_str).ok_or_else(String::new),
            (PoolChoice::Only, 0) => Err("there is no IPPool (ipam.gcp-cni.cast.ai)".to_owned()),
            (PoolChoice::Only, _) => {
                let named = self.spec.as_ref().map(|spec| spec.pool.as_str());
                named.filter(|name| self.pools.contains_key(*name)).ok_or_else(|| {
                    let names: Vec<&str> = self.pools.keys().map(String::as_str).collect();
                    format!(
                        "there are several IPPools ({}); --alias-pool of tenured says which",
                        names.join(", ")
                    )
                })
            }
        }
    }

    fn refresh(&mut self) {
        if !self.start.objects || !self.start.machine {
            return;
        }
        if !self.start.told {
            self.remember();
        }
        self.tell_pool();
        self.tell_expected();
        self.tell_gone();
        self.tell_blocks();
        if !self.start.told {
            self.start.told = true;
            self.events.push(Event::SourceRead { source: super::SOURCE });
        }
        self.answer();
    }

    /// At a start: what an earlier agent wrote.
    fn remember(&mut self) {
        let Some(spec) = &self.spec else { return };
        let returned = spec.returned.iter();
        let returned = returned.filter_map(|(cidr, grant)| Some((cidr.parse().ok()?, grant.clone())));
        self.returned = returned.collect();
        let leaving = spec.leaving.iter();
        self.leaving = leaving.filter_map(|(text, pod)| Some((text.parse().ok()?, pod.clone()))).collect();
    }

    fn tell_pool(&mut self) {
        let name = self.pool_name().ok();
        let known = name.and_then(|name| Some((name, self.pools.get(name)?.as_ref().ok()?)));
        let pool = known.map(|(name, pool)| (name.to_owned(), pool.facts.clone()));
        if pool == self.told_pool {
            return;
        }
        if let Some((before, _)) = &self.told_pool
            && pool.as_ref().is_none_or(|(name, _)| name != before)
        {
            // The node drops its requests with the pool.
            self.asks.clear();
            self.refused = 0;
            self.events.push(Event::PoolGone { name: key_of(before) });
        }
        if let Some((name, facts)) = &pool {
            self.events.push(Event::PoolChanged { name: key_of(name), facts: facts.clone() });
        }
        self.told_pool = pool;
        self.told_expected.clear();
    }

    fn tell_expected(&mut self) {
        let Some((pool, _)) = &self.told_pool else { return };
        if self.expected != self.told_expected {
            self.told_expected.clone_from(&self.expected);
            self.events.push(Event::PodsExpected { pool: key_of(pool), pods: self.expected.clone() });
        }
    }

    /// Ranges that the status no longer has.
    fn tell_gone(&mut self) {
        let uids: BTreeSet<String> =
            self.aliases.iter().map(|(cidr, alias)| uid_of(cidr, &alias.grant)).collect();
        let gone: Vec<String> =
            self.told.keys().filter(|uid| !uids.contains(uid.as_str())).cloned().collect();
        self.returned.retain(|cidr, grant| uids.contains(&uid_of(cidr, grant)));
        for uid in gone {
            self.ready.remove(&uid);
            if let Some(block) = self.told.remove(&uid) {
                self.events.push(Event::BlockGone { name: block.name, uid });
            }
        }
        self.drop_leaving();
    }

    /// Pods whose address left this node, whose mark was removed, or that ended after the controller had noted them.
    fn drop_leaving(&mut self) {
        let (aliases, marked) = (&self.aliases, &self.marked);
        self.leaving.retain(|address, pod| {
            let Some(alias) = aliases.get(&Cidr::host(*address)) else { return false };
            match marked.as_ref().map(|marked| marked.get(&pod.uid)) {
                None => true,
                Some(Some(marked)) => *marked,
                Some(None) => alias.pod.is_none(),
            }
        });
    }

    fn tell_blocks(&mut self) {
        let pool = match (&self.told_pool, &self.spec) {
            (Some((pool, _)), _) => pool.clone(),
            (None, Some(spec)) => spec.pool.clone(),
            (None, None) => return,
        };
        let kept: Vec<(Cidr, NodeAlias)> = self.kept().map(|(cidr, alias)| (*cidr, alias.clone())).collect();
        for (cidr, alias) in kept {
            let usable = self.is_usable(&cidr, &alias);
            let local = self.leaving.get(&cidr.first()).filter(|_| cidr.host_bits() == 0);
            let seen = SeenBlock {
                name: format!("{pool}-{cidr}"),
                uid: uid_of(&cidr, &alias.grant),
                node: self.node.clone(),
                pool: key_of(&pool),
                subnet: Subnet::single(cidr),
                reserved: !usable,
                deleting: false,
                releasing: false,
                draining: false,
                pod: alias.pod.or_else(|| local.map(|pod| pod.uid.clone())),
            };
            let known = self.told.get(&seen.uid);
            // Nobody waits for a range that is not there yet. At a start the node may have holds in it.
            let early = known.is_none() && seen.reserved && self.start.told;
            if known == Some(&seen) || early {
                continue;
            }
            let (name, uid, anybody) = (seen.name.clone(), seen.uid.clone(), usable && seen.pod.is_none());
            self.told.insert(uid.clone(), seen.clone());
            self.events.push(Event::BlockSeen(seen));
            if !anybody {
                self.ready.remove(&uid);
            } else if self.ready.insert(uid) {
                match self.asks.pop_front() {
                    Some(ask) => self.events.push(Event::BlockGranted { ask, block: name }),
                    None => self.refused = self.refused.saturating_sub(1),
                }
            }
        }
    }

    /// Passes the controller's words on to those that will get nothing for now.
    fn answer(&mut self) {
        let coming = self.pending().filter(|(_, alias)| alias.problem.is_none()).count();
        let of_one = self.pending().find_map(|(_, alias)| alias.problem.clone());
        let Some(why) = self.problem.clone().or(of_one) else { return };
        let exhausted = self.told_pool.as_ref().is_some_and(|(_, facts)| facts.exhausted);
        let kind = if exhausted { RefusalKind::Exhausted } else { RefusalKind::Unreachable };
        self.refuse(self.asks.len().saturating_sub(coming), kind, &why);
    }

    fn refuse(&mut self, count: usize, kind: RefusalKind, why: &str) {
        let left = self.asks.len().saturating_sub(count);
        for ask in self.asks.split_off(left) {
            self.refused += 1;
            self.refused_lately += 1;
            let refusal = Refusal { kind, message: why.to_owned() };
            self.events.push(Event::BlockRefused { ask, refusal });
        }
    }

    /// How many ranges the node wants for whichever pod asks.
    fn wanted(&self) -> usize {
        let (all, pending) = (self.for_any_pod().count(), self.pending().count());
        (all - pending) + pending.max(self.asks.len() + self.refused)
    }

    /// The ranges that this node has not given back.
    fn kept(&self) -> impl Iterator<Item = (&Cidr, &NodeAlias)> {
        self.aliases.iter().filter(|(cidr, alias)| self.returned.get(cidr) != Some(&alias.grant))
    }

    /// Those of them that are not kept for one pod.
    fn for_any_pod(&self) -> impl Iterator<Item = (&Cidr, &NodeAlias)> {
        self.kept().filter(|(cidr, alias)| alias.pod.is_none() && !self.leaving.contains_key(&cidr.first()))
    }

    /// Those of them that are not usable yet.
    fn pending(&self) -> impl Iterator<Item = (&Cidr, &NodeAlias)> {
        self.for_any_pod().filter(|(cidr, alias)| !self.is_usable(cidr, alias))
    }

    fn is_usable(&self, cidr: &Cidr, alias: &NodeAlias) -> bool {
        alias.attached && self.machine.contains(cidr)
    }
}

/// The UID of a range as a block: ranges that were granted together have one grant.
fn uid_of(cidr: &Cidr, grant: &str) -> String {
    format!("{grant}@{cidr}")
}

/// The node's name for a pool. It is never parsed.
pub(super) fn key_of(pool: &str) -> String {
    format!("{POOLS}{pool}")
}

#[cfg(test)]
mod tests;
