//! A write in flight. Its live reads and the write are separate steps, and anything may happen between them.

use tenure_api::coil::{AddressBlock, AddressPool};

use super::super::Planted;
use super::super::model::{Outcome, Server};
use crate::coil::{Because, BlockWrite, belongs_to, locks};
use crate::write::Write;

pub(super) struct Flight {
    write: Write,
    stage: Stage,
}

enum Stage {
    /// Nothing was done yet.
    New,
    /// These names have yet to be occupied.
    Locks(Vec<AddressBlock>),
    /// Live reads have agreed.
    Agreed,
}

/// The outcome of a step.
pub(super) enum Delivered {
    Further,
    Over,
    /// The controller has deleted this block.
    Deleted(Box<AddressBlock>),
}

impl Flight {
    pub(super) fn of(write: Write) -> Self {
        Self { write, stage: Stage::New }
    }

    /// Whether anything was read or written for it.
    pub(super) fn is_under_way(&self) -> bool {
        !matches!(self.stage, Stage::New)
    }

    /// Takes the next step. `listed` is the list of pools that its leader keeps; if it is `stale`, it is used where
    /// it is good enough.
    pub(super) fn go_on(
        &mut self,
        server: &mut Server,
        listed: &mut Option<Vec<AddressPool>>,
        stale: bool,
        planted: Option<Planted>,
    ) -> Delivered {
        let write = self.write.clone();
        let Some(of_block) = write.of::<BlockWrite>() else {
            server.write(&write);
            return Delivered::Over;
        };
        match (of_block, &mut self.stage) {
            (BlockWrite::Create { block }, Stage::New) => {
                let kept = listed.as_ref().filter(|_| stale).and_then(|pools| locks(pools, block).ok());
                let found = kept.map_or_else(
                    || {
                        let live: Vec<AddressPool> = server.pools.values().cloned().collect();
                        let found = locks(&live, block);
                        *listed = Some(live);
                        found
                    },
                    Ok,
                );
                match found {
                    _ if planted == Some(Planted::OwnNumbersOnly) => self.stage = Stage::Agreed,
                    Ok(_) if planted == Some(Planted::NoLocks) => self.stage = Stage::Agreed,
                    Ok(mut all) => {
                        all.reverse();
                        self.stage = Stage::Locks(all);
                    }
                    Err(_) => return Delivered::Over,
                }
                Delivered::Further
            }
            (BlockWrite::Create { .. }, Stage::Locks(locks)) => match locks.pop() {
                Some(lock) if server.occupy(&lock) => Delivered::Further,
                Some(_) => Delivered::Over,
                None => {
                    self.stage = Stage::Agreed;
                    Delivered::Further
                }
            },
            (BlockWrite::Create { block }, Stage::Agreed) => {
                // No creation outlives its pool so long that another one has its name.
                let owner = block.pool().and_then(|pool| server.pools.get(pool));
                if owner.is_some_and(|pool| belongs_to(block, pool)) {
                    server.create(block);
                }
                Delivered::Over
            }
            (BlockWrite::MarkBlock { node, .. }, Stage::New) => self.agree(!server.is_in_use(node)),
            (BlockWrite::MarkBlock { block, mark, .. }, _) => {
                server.annotate_block(block, Some(mark.as_str()));
                Delivered::Over
            }
            (BlockWrite::ReleaseBlock { block, node, because, .. }, Stage::New) => {
                let used = match planted {
                    Some(Planted::NodeGoneIsEnough) => server.nodes.contains_key(node),
                    _ => server.is_in_use(node),
                };
                if used && *because == Because::NodeIsGone {
                    server.annotate_block(block, None);
                }
                self.agree(!used)
            }
            (BlockWrite::ReleaseBlock { block, .. }, _) => {
                let there = server.blocks.get(&block.name).cloned();
                let deleted = server.delete_block(block);
                match there {
                    Some(there) if deleted == Outcome::Done => Delivered::Deleted(Box::new(there)),
                    _ => Delivered::Over,
                }
            }
            (BlockWrite::Unlock { pools, .. }, Stage::New) => self.agree(!server.has_any(pools)),
            (BlockWrite::Unlock { block, .. }, _) => {
                server.delete_block(block);
                Delivered::Over
            }
            _ => {
                server.write(&write);
                Delivered::Over
            }
        }
    }

    fn agree(&mut self, agreed: bool) -> Delivered {
        self.stage = Stage::Agreed;
        if agreed { Delivered::Further } else { Delivered::Over }
    }
}
