//! Fences: once a block is no longer this node's, nothing is assigned from it, at once and for good.
//!
//! Its holds stay until they are released, because their pods run and need their addresses. The node reports
//! them.

use std::collections::{BTreeSet, VecDeque};

use super::attachment::{Attachment, Phase};
use super::block::Object;
use super::commit::AfterCommit;
use super::{CallError, Fence, Node, Planted, Report};
use crate::journal::{Held, Record};
use crate::key::HolderId;

/// How many UIDs of forgotten blocks are remembered. Events are late by seconds, not by thousands of blocks.
const REMEMBERED: usize = 4096;

/// UIDs of blocks that were fenced and forgotten. A late event about one must not bring it back.
#[derive(Debug, Default)]
pub(super) struct Lost {
    known: BTreeSet<String>,
    order: VecDeque<String>,
}

impl Lost {
    pub(super) fn insert(&mut self, uid: &str) {
        if self.known.insert(uid.to_owned()) {
            self.order.push_back(uid.to_owned());
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    pub(super) fn contains(&self, uid: &str) -> bool {
        self.known.contains(uid)
    }
}

impl Node {
    pub(super) fn block_gone(&mut self, uid: &str) {
        if let Some(start) = &mut self.start {
            start.blocks.remove(uid);
            return;
        }
        if self.has_planted(Planted::GoneBlockServes) {
            return;
        }
        if self.has_planted(Planted::PanicsAtSurprise) {
            assert!(self.blocks.contains_key(uid), "a block that nobody knows is gone");
        }
        let Some(block) = self.blocks.get_mut(uid) else { return self.lost.insert(uid) };
        block.object = Object::Gone;
        self.fence(uid, Fence::Gone);
        self.dismiss(uid);
    }

    /// Stops assigning from a block. The first reason counts.
    pub(super) fn fence(&mut self, uid: &str, fence: Fence) {
        let Some(block) = self.blocks.get_mut(uid).filter(|block| block.fence.is_none()) else { return };
        block.fence = Some(fence.clone());
        let (name, pool, realm) =
            (block.facts.name.clone(), block.facts.pool.clone(), block.facts.realm.clone());
        let position = self.record(Record::Fenced { uid: uid.to_owned() });
        self.commits.after(position, AfterCommit::Fenced(uid.to_owned()));
        if let Some(block) = self.blocks.get_mut(uid) {
            block.fence_position = position;
        }
        self.touch(&pool);
        if fence != Fence::Returned {
            let holds = self.holds_in(uid);
            let block = name.clone();
            let pool = pool.clone();
            self.report(Report::Fenced { pool, block, uid: uid.to_owned(), realm, fence, holds });
        }
        self.undo_in(uid, &name);
        self.unshadow(uid);
    }

    /// The holds in a block.
    pub(super) fn holds_in(&self, uid: &str) -> Vec<Held> {
        self.attachments.values().filter(|it| it.block() == Some(uid)).filter_map(Attachment::held).collect()
    }

    /// Ends the ADDs in progress that have an address of this block: they were not answered yet.
    fn undo_in(&mut self, uid: &str, name: &str) {
        let under_way = self.attachments.iter().filter(|(_, it)| {
            let fresh = matches!(&it.phase, Phase::Attaching(setting) if setting.fresh && !setting.undo);
            fresh && it.block() == Some(uid)
        });
        let under_way: Vec<HolderId> = under_way.map(|(id, _)| *id).collect();
        for id in under_way {
            self.undo(id, &CallError::BlockTaken(name.to_owned()));
        }
    }

    /// Makes blocks usable again that overlapped with this one.
    pub(super) fn unshadow(&mut self, uid: &str) {
        let shadowed = self.blocks.iter().filter(|(_, block)| block.shadow.as_deref() == Some(uid));
        let shadowed: Vec<String> = shadowed.map(|(uid, _)| uid.clone()).collect();
        for uid in shadowed {
            self.clear(&uid);
        }
    }
}
