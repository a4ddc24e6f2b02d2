//! Keeping stocked: requests the next block before the free addresses run out, counting waiting calls, and as
//! many blocks at once as are missing.

use std::time::Duration;

use tenure_handles::Timestamp;

use super::event::{Refusal, RefusalKind};
use super::pool::Trouble;
use super::{Action, AskId, Node, PoolError, Report, Urgency};
use crate::key::HolderId;

/// How many blocks of a pool with [`PoolFacts::warm`](super::PoolFacts::warm) are requested at a time: these requests are one number in
/// one object.
const TOGETHER: u32 = 1024;

/// A request for a block in progress.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) pool: String,
    /// When it was made, or granted.
    pub(super) since: Timestamp,
    /// The block that was granted, until it is seen.
    pub(super) granted: Option<String>,
}

impl Node {
    /// Requests blocks if free addresses run low.
    pub(super) fn stock(&mut self, name: &str) {
        let Some(pool) = self.pools.get(name).filter(|pool| pool.is_giving() && !pool.is_sliced()) else {
            return;
        };
        if pool.ask_again_at().is_some_and(|at| at > self.now) {
            return;
        }
        let size = pool.block_size();
        let kept_for_pod = |id: &&HolderId| self.attachments.get(id).is_some_and(|it| it.wish.kept_for_pod);
        let waiting = pool.queue.len() - pool.queue.iter().filter(kept_for_pod).count();
        let soon = self.expected(name);
        // A pool that nobody uses here needs no blocks, unless it says so.
        let used = pool.warm().is_some()
            || waiting + soon > 0
            || self.usable_blocks(name).any(|block| !block.engine.is_empty());
        if !used {
            return;
        }
        // Blocks that are being kept will be usable in a moment.
        let kept = self
            .blocks
            .values()
            .filter(|block| block.facts.pool == name && block.is_being_kept() && !block.draining);
        let free = self.usable_blocks(name).chain(kept).map(|block| block.engine.counts().free);
        let expected = free.fold(0, u128::saturating_add).saturating_add(self.coming(name));
        let wanted = ((waiting + soon) as u128).saturating_add(self.low_water(name));
        let missing = wanted.saturating_sub(expected).div_ceil(size);
        let under_way = self.asks.values().filter(|ask| ask.pool == name).count() as u128;
        let at_once = if pool.warm().is_some() { TOGETHER } else { self.settings.asks_at_once };
        let room = u128::from(at_once).saturating_sub(under_way);
        let urgency = if waiting > 0 { Urgency::Waiting(waiting) } else { Urgency::Ahead };
        for _ in 0..missing.min(room) {
            let ask = AskId(self.number());
            self.asks.insert(ask, Ask { pool: name.to_owned(), since: self.now, granted: None });
            self.actions.push(Action::AskForBlock { ask, pool: name.to_owned(), urgency });
        }
    }

    /// How many free addresses there should be, not counting those that calls wait for.
    pub(super) fn low_water(&self, name: &str) -> u128 {
        if let Some(warm) = self.pools.get(name).and_then(super::pool::Pool::warm) {
            return warm.into();
        }
        let size = self.pools.get(name).map_or(1, super::pool::Pool::block_size);
        let part = size / u128::from(self.settings.low_water_divisor.max(1));
        part.clamp(1, u128::from(self.settings.low_water_most.max(1)))
    }

    /// How many addresses are expected.
    pub(super) fn coming(&self, name: &str) -> u128 {
        let size = self.pools.get(name).map_or(1, super::pool::Pool::block_size);
        let asks = self.asks.values().filter(|ask| ask.pool == name).count();
        size.saturating_mul(asks as u128)
    }

    /// A block was carved. The request stays until the block is seen, so that no other is requested in its
    /// place.
    pub(super) fn block_granted(&mut self, ask: AskId, block: String) {
        let Some(wish) = self.asks.get_mut(&ask) else { return };
        let pool = wish.pool.clone();
        let here = self.blocks.values().any(|it| it.facts.name == block && it.fence.is_none());
        if here {
            self.asks.remove(&ask);
        } else {
            wish.granted = Some(block);
            wish.since = self.now;
        }
        self.forget_trouble(&pool);
        self.touch(&pool);
    }

    /// The block of this name arrived: ends the request that it was granted for.
    pub(super) fn granted_is_here(&mut self, name: &str) {
        self.asks.retain(|_, ask| ask.granted.as_deref() != Some(name));
    }

    pub(super) fn block_refused(&mut self, ask: AskId, refusal: Refusal) {
        if let Some(Ask { pool, .. }) = self.asks.remove(&ask) {
            self.refuse(&pool, refusal);
        }
    }

    /// A block without assignable addresses arrived.
    pub(super) fn useless(&mut self, pool: &str, block: &str) {
        let message = format!("block {block:?} has no address to assign");
        self.refuse(pool, Refusal { kind: RefusalKind::Unreachable, message });
    }

    fn refuse(&mut self, name: &str, refusal: Refusal) {
        let Some(pool) = self.pools.get_mut(name) else { return };
        let Refusal { kind, message } = refusal;
        // Several requests that are refused together count as one refusal.
        let again = pool.ask_again_at().is_some_and(|at| at > self.now);
        if !again {
            pool.refusals = pool.refusals.saturating_add(1);
        }
        let news = pool.trouble.as_ref().is_none_or(|trouble| trouble.kind != kind);
        let doubled = self.settings.retry_first.saturating_mul(1 << (pool.refusals.clamp(1, 16) - 1));
        let retry: Duration = doubled.min(self.settings.retry_last);
        pool.trouble = Some(Trouble { kind, message: message.clone(), since: self.now, retry });
        if news {
            self.report(Report::PoolRefused { pool: name.to_owned(), message });
        }
        self.touch(name);
    }

    /// Drops requests whose granted blocks never appeared.
    pub(super) fn expire_grants(&mut self) {
        let (now, patience) = (self.now, self.settings.grant_patience);
        self.asks.retain(|_, ask| ask.granted.is_none() || ask.since.plus(patience) > now);
    }
}

impl Trouble {
    /// The error for calls that get no address because of this.
    pub(super) fn error(&self, pool: &str) -> PoolError {
        let (pool, message) = (pool.to_owned(), self.message.clone());
        match self.kind {
            RefusalKind::Exhausted => PoolError::Exhausted { pool, message },
            RefusalKind::Unusable => PoolError::Unusable { pool, message },
            RefusalKind::Unreachable => {
                PoolError::TimedOut { pool, waited: Duration::ZERO, trouble: Some(message) }
            }
        }
    }
}
