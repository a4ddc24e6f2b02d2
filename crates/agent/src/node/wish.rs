//! Assigning with a preference: only some of a block's addresses are accepted, or one is preferred.

use tenure_ipam::block::State;
use tenure_ipam::{Address, Choice, Hold};

use super::Node;
use super::block::Owned;
use super::event::Wish;
use crate::key::HolderId;

impl Wish {
    /// Whether the address is accepted.
    fn allows(&self, address: Address) -> bool {
        self.within.as_ref().is_none_or(|range| range.contains(address))
    }

    /// The best free address of a block.
    fn free_in(&self, block: &Owned) -> Option<Address> {
        let free = |address: &Address| {
            self.allows(*address) && matches!(block.engine.state(*address), Ok(State::Free))
        };
        if let Some(preferred) = self.preferred.filter(free) {
            return Some(preferred);
        }
        if !self.only.is_empty() {
            return self.only.iter().copied().find(free);
        }
        match &self.within {
            Some(range) => block.engine.lowest_free_within(range),
            None => block
                .networks()
                .find_map(|network| block.engine.lowest_free_within(&tenure_ipam::Range::every(network))),
        }
    }

    /// An accepted address of a block that is kept for the pod, free or cooling, and the block's UID.
    pub(super) fn in_kept(&self, block: &Owned) -> Option<(String, Address)> {
        let address = self.free_in(block).or_else(|| self.coolest_in(block).map(|(_, address)| address))?;
        Some((block.facts.uid.clone(), address))
    }

    /// The accepted address of a block that has cooled longest, and until when it would cool.
    fn coolest_in(&self, block: &Owned) -> Option<(tenure_handles::Timestamp, Address)> {
        let reserved = block.engine.reserved();
        let listed = |address: &Address| self.only.is_empty() || self.only.contains(address);
        block.engine.cooling().filter(|it| !reserved.contains(it.offset)).find_map(|it| {
            let address = it.addresses.iter().find(|address| self.allows(*address) && listed(address))?;
            Some((it.until, address))
        })
    }
}

impl Node {
    /// Assigns an accepted address, if there is one.
    pub(super) fn assign_wished(&mut self, name: &str, id: HolderId, wish: &Wish) -> Option<(String, Hold)> {
        let (uid, address) = self
            .own_again(name, id, wish)
            .or_else(|| self.best_free(name, wish))
            .or_else(|| self.coolest(name, wish).filter(|_| self.gives_way(name, id)))?;
        let block = self.blocks.get_mut(&uid)?;
        let hold = block.engine.hold(id, Choice::Named(address), self.now).ok()?.hold();
        Some((uid, hold))
    }

    /// The preferred address, if it cools and the same pod had it last: cooling protects only from other
    /// pods.
    fn own_again(&self, name: &str, id: HolderId, wish: &Wish) -> Option<(String, Address)> {
        let preferred = wish.preferred.filter(|address| wish.allows(*address))?;
        let pod = &self.attachments.get(&id)?.pod;
        let block = self.usable_blocks(name).find(|block| block.has(preferred))?;
        let Ok(State::Cooling(cooling)) = block.engine.state(preferred) else { return None };
        let last = &self.former.get(cooling.last.key)?.pod;
        let same = !pod.name.is_empty() && (&last.namespace, &last.name) == (&pod.namespace, &pod.name);
        (same && !block.engine.reserved().contains(cooling.offset))
            .then(|| (block.facts.uid.clone(), preferred))
    }

    /// The best free address of the first block that has one: the lowest block, or the fullest.
    fn best_free(&self, name: &str, wish: &Wish) -> Option<(String, Address)> {
        let found = self.usable_blocks(name).filter_map(|block| {
            let address = wish.free_in(block)?;
            let rank = wish.only.iter().position(|only| *only == address);
            let fullness = if wish.lowest { 0 } else { block.engine.counts().free };
            let preferred = wish.preferred != Some(address);
            Some(((preferred, rank, fullness, address), &block.facts.uid))
        });
        found.min().map(|((.., address), uid)| (uid.clone(), address))
    }

    fn coolest(&self, name: &str, wish: &Wish) -> Option<(String, Address)> {
        let found =
            self.usable_blocks(name).filter_map(|block| Some((wish.coolest_in(block)?, &block.facts.uid)));
        found.min().map(|((_, address), uid)| (uid.clone(), address))
    }
}
