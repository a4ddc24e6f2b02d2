//! Everything that waits for the journal.

use std::collections::BTreeMap;

use super::attachment::Phase;
use super::view::JournalView;
use super::{CallError, Node, Report};
use crate::key::HolderId;

/// How far the journal is committed, and what waits for it.
#[derive(Debug, Default)]
pub(super) struct Commits {
    /// The position of the last record.
    position: u64,
    committed: u64,
    awaited: BTreeMap<u64, AfterCommit>,
    broken: bool,
}

/// What continues once a record is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AfterCommit {
    /// A hold: its ADD may be answered.
    Held(HolderId),
    /// A release: the address is free, and its DEL may be answered.
    Released(HolderId),
    /// A fence: the block's object may be deleted, but not earlier. An agent that restarts during the
    /// deletion must know not to use the block.
    Fenced(String),
}

impl Commits {
    pub(super) fn next_position(&mut self) -> u64 {
        self.position += 1;
        self.position
    }

    pub(super) fn after(&mut self, position: u64, then: AfterCommit) {
        self.awaited.insert(position, then);
    }

    /// Whether the record at this position is committed.
    pub(super) fn is_committed(&self, position: u64) -> bool {
        position <= self.committed
    }

    /// Whether the journal cannot be written at present.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// The state for people.
    pub(super) fn view(&self) -> JournalView {
        JournalView { records: self.position, committed: self.committed, broken: self.broken }
    }

    fn take(&mut self, up_to: u64) -> BTreeMap<u64, AfterCommit> {
        self.committed = self.committed.max(up_to.min(self.position));
        let later = self.awaited.split_off(&(self.committed + 1));
        std::mem::replace(&mut self.awaited, later)
    }
}

impl Node {
    pub(super) fn committed(&mut self, up_to: u64) {
        if std::mem::take(&mut self.commits.broken) {
            self.report(Report::JournalHealed);
        }
        for then in self.commits.take(up_to).into_values() {
            match then {
                AfterCommit::Held(id) => {
                    if let Some(setting) = self.attaching(id) {
                        setting.committed = true;
                    }
                    self.proceed(id);
                }
                AfterCommit::Released(id) => {
                    if self.attachments.get(&id).is_some_and(|it| it.phase == Phase::Releasing) {
                        self.free(id);
                    }
                }
                AfterCommit::Fenced(uid) => self.dismiss(&uid),
            }
        }
    }

    /// Fails the calls whose answers wait for the journal. Their work continues, and a repeated call finds it
    /// done.
    pub(super) fn journal_failed(&mut self, message: &str) {
        if !std::mem::replace(&mut self.commits.broken, true) {
            self.report(Report::JournalFailed { message: message.to_owned() });
        }
        let failure = CallError::Journal(message.to_owned());
        let waiting: Vec<HolderId> = self.commits.awaited.values().filter_map(AfterCommit::holder).collect();
        for id in waiting {
            self.fail_adds(id, &failure);
            let Some(attachment) = self.attachments.get_mut(&id) else { continue };
            if attachment.phase == Phase::Releasing {
                let dels = std::mem::take(&mut attachment.dels);
                let next: Vec<_> = attachment.next.drain(..).collect();
                for (ticket, _) in next {
                    self.answer(ticket, Err(failure.clone()));
                }
                self.tell_deleters(id, dels, &Err(failure.clone()));
            }
        }
    }
}

impl AfterCommit {
    fn holder(&self) -> Option<HolderId> {
        match self {
            Self::Held(id) | Self::Released(id) => Some(*id),
            Self::Fenced(_) => None,
        }
    }
}
