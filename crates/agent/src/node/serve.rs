//! Assigning: first come, first served, as soon as an address is free for whatever reason.

use tenure_ipam::{Choice, Hold};

use super::block::Owned;
use super::event::Wish;
use super::{CallError, Node, Planted, PoolError};
use crate::key::HolderId;

impl Node {
    /// Ends cooling in a pool's blocks where its time is over.
    pub(super) fn advance(&mut self, pool: &str) {
        for block in self.blocks.values_mut().filter(|block| block.facts.pool == pool) {
            block.engine.advance(self.now);
        }
    }

    /// Assigns addresses to waiting holders.
    pub(super) fn serve(&mut self, name: &str) {
        if self.has_planted(Planted::ServeNeedsApi) && !self.asks.is_empty() {
            return;
        }
        let mut passed = 0;
        while let Some(pool) = self.pools.get(name).filter(|pool| pool.is_giving())
            && let Some(id) = pool.queue.get(passed).copied()
        {
            let wish =
                self.attachments.get_mut(&id).map(|it| std::mem::take(&mut it.wish)).unwrap_or_default();
            let given = match self.hand_out_kept(name, id, &wish) {
                Some(given) => Some(given),
                None if wish.kept_for_pod => None,
                None if wish == Wish::default() => self.hand_out(name, id),
                None => self.assign_wished(name, id, &wish),
            };
            match given {
                Some((uid, hold)) => {
                    if let Some(pool) = self.pools.get_mut(name) {
                        pool.queue.remove(passed);
                    }
                    self.set_up(id, uid, hold);
                }
                // A request without a preference could have got any address, and so could those after it.
                None if wish == Wish::default() && !self.keeps_for_pods(name) => return,
                None => {
                    if let Some(attachment) = self.attachments.get_mut(&id) {
                        attachment.wish = wish;
                    }
                    passed += 1;
                }
            }
        }
    }

    fn hand_out(&mut self, name: &str, id: HolderId) -> Option<(String, Hold)> {
        let uid =
            self.fullest(name).or_else(|| self.cooled_longest(name).filter(|_| self.gives_way(name, id)))?;
        let block = self.blocks.get_mut(&uid)?;
        let hold = block.engine.hold(id, Choice::NextAfterLast, self.now).ok()?.hold();
        Some((uid, hold))
    }

    /// The block with the fewest free addresses, so that others become empty and can be returned.
    fn fullest(&self, name: &str) -> Option<String> {
        let free = self.usable_blocks(name).map(|block| (block.engine.counts().free, block));
        let fullest =
            free.filter(|(free, _)| *free > 0).min_by_key(|(free, block)| (*free, &block.facts.name));
        fullest.map(|(_, block)| block.facts.uid.clone())
    }

    /// The block with the assignable address that has cooled longest.
    fn cooled_longest(&self, name: &str) -> Option<String> {
        let cooling = self.usable_blocks(name).filter_map(|block| {
            let reserved = block.engine.reserved();
            let oldest = block.engine.cooling().find(|it| !reserved.contains(it.offset))?;
            Some((oldest.until, &block.facts.name, &block.facts.uid))
        });
        cooling.min().map(|(_, _, uid)| uid.clone())
    }

    /// Whether a cooling address may be assigned now. A new block is better if one may come soon; failing is
    /// worse.
    pub(super) fn gives_way(&self, name: &str, id: HolderId) -> bool {
        let Some(pool) = self.pools.get(name) else { return false };
        let waits = self.attachments.get(&id).and_then(|it| it.adds.first());
        let since = waits.map_or(self.now, |(_, since)| *since);
        // No other slice will come.
        pool.is_sliced()
            || pool.trouble.is_some()
            || since.plus(self.settings.cooling_gives_way_after) <= self.now
    }

    /// A pool's blocks that addresses may be assigned from, to any pod.
    pub(super) fn usable_blocks(&self, pool: &str) -> impl Iterator<Item = &Owned> {
        let usable = move |block: &&Owned| block.facts.pool == pool && block.is_usable();
        let for_any = self.has_planted(Planted::KeptForAnyone);
        self.blocks.values().filter(usable).filter(move |block| for_any || block.pod.is_none())
    }

    /// Whether a block of the pool is kept for a pod, which may not be the first that waits.
    fn keeps_for_pods(&self, pool: &str) -> bool {
        self.blocks.values().any(|block| block.facts.pool == pool && block.pod.is_some())
    }

    /// Assigns an address of a block that is kept for the holder's pod, also one that cools: cooling protects
    /// only from other pods.
    fn hand_out_kept(&mut self, name: &str, id: HolderId, wish: &Wish) -> Option<(String, Hold)> {
        let pod = self.attachments.get(&id).map(|it| it.pod.uid.as_str()).filter(|uid| !uid.is_empty())?;
        let kept = |block: &&Owned| block.facts.pool == name && block.pod.as_deref() == Some(pod);
        let kept = self.blocks.values().filter(kept).filter(|block| block.is_usable());
        let (uid, address) = kept.into_iter().find_map(|block| wish.in_kept(block))?;
        let block = self.blocks.get_mut(&uid)?;
        let hold = block.engine.hold(id, Choice::Named(address), self.now).ok()?.hold();
        Some((uid, hold))
    }

    /// Fails the calls that will get no address, as far as the node can know, latest first.
    pub(super) fn fail_hopeless(&mut self, name: &str) {
        let Some(pool) = self.pools.get(name) else { return };
        if pool.is_giving() && pool.is_sliced() {
            return self.refuse_waiting(name);
        }
        let error: CallError = match &pool.facts {
            None => PoolError::Gone(name.to_owned()).into(),
            Some(facts) if facts.deleting => PoolError::Deleting(name.to_owned()).into(),
            Some(_) if !pool.is_refused() => return,
            Some(_) => match &pool.trouble {
                None => PoolError::Gone(name.to_owned()).into(),
                Some(trouble) => trouble.error(name).into(),
            },
        };
        let coming = if pool.is_giving() { self.coming(name) } else { 0 };
        let hopeless = |id: &&HolderId| {
            // A block that is kept for a pod does not come because somebody asks for one.
            !pool.is_giving() || self.attachments.get(id).is_none_or(|it| !it.wish.kept_for_pod)
        };
        let waiting: Vec<HolderId> = pool.queue.iter().filter(hopeless).copied().collect();
        let served = usize::try_from(coming).unwrap_or(usize::MAX).min(waiting.len());
        for id in waiting.into_iter().skip(served).rev() {
            if let Some(pool) = self.pools.get_mut(name) {
                pool.queue.retain(|waiting| *waiting != id);
            }
            self.fail_adds(id, &error);
            self.attachments.remove(&id);
        }
    }

    /// Fails the calls that waited too long.
    pub(super) fn expire(&mut self, name: &str) {
        let Some(pool) = self.pools.get(name) else { return };
        let trouble = pool.trouble.as_ref().map(|trouble| trouble.message.clone());
        let waiting: Vec<HolderId> = pool.queue.iter().copied().collect();
        let (now, patience) = (self.now, self.settings.patience);
        for id in waiting {
            let Some(attachment) = self.attachments.get_mut(&id) else { continue };
            let over = |(_, since): &(_, tenure_handles::Timestamp)| since.plus(patience) <= now;
            let (late, left): (Vec<_>, Vec<_>) = attachment.adds.drain(..).partition(over);
            let nobody = left.is_empty();
            attachment.adds = left;
            for (ticket, _) in late {
                let (pool, trouble) = (name.to_owned(), trouble.clone());
                self.answer(ticket, Err(PoolError::TimedOut { pool, waited: patience, trouble }.into()));
            }
            if nobody {
                self.attachments.remove(&id);
                if let Some(pool) = self.pools.get_mut(name) {
                    pool.queue.retain(|waiting| *waiting != id);
                }
            }
        }
    }
}
