//! A pool as this node uses it.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use tenure_handles::Timestamp;

use super::event::{PoolFacts, RefusalKind};
use super::{Node, Planted, Report};
use crate::key::HolderId;

/// A pool.
#[derive(Debug, Default)]
pub(super) struct Pool {
    /// Its facts; `None` if it is gone.
    pub(super) facts: Option<PoolFacts>,
    /// Holders that wait for an address, in order.
    pub(super) queue: VecDeque<HolderId>,
    /// The last refusal, until something changes.
    pub(super) trouble: Option<Trouble>,
    /// The number of refusals in a row.
    pub(super) refusals: u32,
    /// The UIDs of pods that will ask for an address soon.
    pub(super) expected: BTreeSet<String>,
    /// Whether its blocks are not exported, also after it is gone.
    pub(super) unexported: bool,
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) kind: RefusalKind,
    pub(super) message: String,
    pub(super) since: Timestamp,
    /// The delay before a block is requested again.
    pub(super) retry: Duration,
}

impl Pool {
    /// Whether new addresses may be assigned from it.
    pub(super) fn is_giving(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| !facts.deleting)
    }

    /// Whether its blocks are slices.
    pub(super) fn is_sliced(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| facts.sliced)
    }

    /// How many free addresses it wants ready, if it says so.
    pub(super) fn warm(&self) -> Option<u32> {
        self.facts.as_ref().and_then(|facts| facts.warm)
    }

    /// How many addresses a block has.
    pub(super) fn block_size(&self) -> u128 {
        let bits = self.facts.as_ref().map_or(0, |facts| facts.block_bits);
        1_u128.checked_shl(bits.into()).unwrap_or(u128::MAX)
    }

    /// Whether its last refusal means that waiting does not help.
    pub(super) fn is_refused(&self) -> bool {
        self.trouble.as_ref().is_some_and(|trouble| trouble.kind != RefusalKind::Unreachable)
    }

    /// When a block may be requested again; `None` if at once.
    pub(super) fn ask_again_at(&self) -> Option<Timestamp> {
        self.trouble.as_ref().map(|trouble| trouble.since.plus(trouble.retry))
    }
}

impl Node {
    /// A pool changed or is gone.
    pub(super) fn pool_changed(&mut self, name: &str, facts: Option<PoolFacts>) {
        if facts.is_none() && !self.pools.contains_key(name) {
            return;
        }
        if facts.is_none() {
            // Nobody answers requests for a pool that is gone.
            self.asks.retain(|_, ask| ask.pool != name);
        }
        let pool = self.pools.entry(name.to_owned()).or_default();
        if pool.facts != facts {
            let exhausted = facts.as_ref().is_some_and(|facts| facts.exhausted);
            pool.unexported = facts.as_ref().map_or(pool.unexported, |facts| facts.unexported);
            pool.facts = facts;
            if !exhausted {
                // The change may have removed the reason for refusals; the next waiting call finds out.
                self.forget_trouble(name);
            }
        }
        if self.start.is_some() {
            return;
        }
        let cooling = self.cooling(name);
        let of_pool: Vec<String> = self.uids_of(name).map(str::to_owned).collect();
        for uid in of_pool {
            if let Some(block) = self.blocks.get_mut(&uid) {
                block.engine.set_rest(cooling);
            }
            self.reserve(&uid);
        }
        self.touch(name);
    }

    /// Other pods are expected to ask for an address of a pool.
    pub(super) fn pods_expected(&mut self, name: &str, pods: BTreeSet<String>) {
        self.pools.entry(name.to_owned()).or_default().expected = pods;
        if self.start.is_none() {
            self.touch(name);
        }
    }

    /// How many pods that have not asked for an address of the pool are expected to.
    pub(super) fn expected(&self, name: &str) -> usize {
        let Some(pool) = self.pools.get(name).filter(|pool| !pool.expected.is_empty()) else { return 0 };
        let of_pool = self.attachments.values().filter(|it| it.pool == name);
        let asked: BTreeSet<&String> =
            of_pool.map(|it| &it.pod.uid).filter(|uid| pool.expected.contains(*uid)).collect();
        pool.expected.len() - asked.len()
    }

    /// The facts about a pool.
    pub fn pool_facts(&self, pool: &str) -> Option<&PoolFacts> {
        self.pools.get(pool)?.facts.as_ref()
    }

    /// How long freed addresses of a pool cool.
    pub(super) fn cooling(&self, pool: &str) -> Duration {
        if self.has_planted(Planted::NoCooling) {
            return Duration::ZERO;
        }
        let facts = self.pools.get(pool).and_then(|pool| pool.facts.as_ref());
        facts.and_then(|facts| facts.cooling).unwrap_or(self.settings.cooling)
    }

    /// Forgets the last refusal: blocks may be available again.
    pub(super) fn forget_trouble(&mut self, name: &str) {
        let Some(pool) = self.pools.get_mut(name) else { return };
        pool.refusals = 0;
        if pool.trouble.take().is_some() {
            self.report(Report::PoolHealed { pool: name.to_owned() });
        }
    }

    /// The UIDs of a pool's blocks.
    pub(super) fn uids_of(&self, pool: &str) -> impl Iterator<Item = &str> {
        let blocks = self.blocks.iter().filter(move |(_, block)| block.facts.pool == pool);
        blocks.map(|(uid, _)| uid.as_str())
    }
}
