//! DEL and GC: an interface is removed before its address is freed, and the address is freed before the call
//! is answered.

use std::collections::BTreeSet;

use super::attach::Purpose;
use super::attachment::{AddressLocation, Attachment, Deleter, Former, Phase};
use super::commit::AfterCommit;
use super::event::{Attach, Wish};
use super::{Action, CallError, Done, Job, KernelError, Node, Planted, Ticket};
use crate::journal::{Record, Released};
use crate::key::{HoldKey, HolderId, Pod};

/// A GC in progress.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    left: BTreeSet<HolderId>,
    ended: usize,
    errors: Vec<CallError>,
}

impl Sweep {
    /// A GC that ends when all these holds have ended.
    pub(super) fn of(ids: &[HolderId]) -> Self {
        Self { left: ids.iter().copied().collect(), ..Self::default() }
    }
}

impl Node {
    pub(super) fn del(&mut self, ticket: Ticket, key: HoldKey, interface: bool) {
        if let Err(failure) = self.ready() {
            return self.answer(ticket, Err(failure));
        }
        let id = key.id();
        let other = self.attachments.keys().next().copied();
        let other = other.filter(|_| self.has_planted(Planted::LateReleaseFrees));
        match self.attachments.get_mut(&id) {
            Some(attachment) if attachment.key == key => {
                attachment.interface |= interface;
                self.remove(id, Deleter::Call(ticket));
            }
            None if let Some(other) = other => self.remove(other, Deleter::Call(ticket)),
            // There may be an interface that nobody knows of; checking costs next to nothing.
            None if interface => {
                let (pod, pool) = (Pod::default(), String::new());
                let mut attachment = Attachment::new(Attach {
                    key,
                    pool,
                    pod,
                    netns: String::new(),
                    wiring: None,
                    wish: Wish::default(),
                    claim_use: None,
                });
                attachment.interface = true;
                attachment.dels.push(Deleter::Call(ticket));
                self.attachments.insert(id, attachment);
                self.unwire(id);
            }
            _ => self.answer(ticket, Ok(Done::Removed)),
        }
    }

    pub(super) fn gc(&mut self, ticket: Ticket, network: &str, alive: &BTreeSet<(String, String)>) {
        if let Err(failure) = self.ready() {
            return self.answer(ticket, Err(failure));
        }
        let dead: Vec<HolderId> = self
            .attachments
            .iter()
            // Holds in progress were requested after the list of live ones was made.
            .filter(|(_, it)| it.phase == Phase::Held && it.key.network() == network)
            .filter(|(_, it)| {
                !alive.contains(&(it.key.container().to_owned(), it.key.interface().to_owned()))
            })
            .map(|(id, _)| *id)
            .collect();
        if dead.is_empty() {
            return self.answer(ticket, Ok(Done::Swept(0)));
        }
        self.sweeps.insert(ticket, Sweep::of(&dead));
        for id in dead {
            self.remove(id, Deleter::Sweep(ticket));
        }
    }

    /// Ends a hold in any phase.
    pub(super) fn remove(&mut self, id: HolderId, deleter: Deleter) {
        let Some(attachment) = self.attachments.get_mut(&id) else { return };
        attachment.dels.push(deleter);
        let cancelled: Vec<Ticket> = attachment.next.drain(..).map(|(ticket, _)| ticket).collect();
        for ticket in cancelled {
            self.answer(ticket, Err(CallError::Deleted));
        }
        let Some(attachment) = self.attachments.get_mut(&id) else { return };
        match attachment.phase {
            Phase::Waiting => {
                let pool = attachment.pool.clone();
                if let Some(pool) = self.pools.get_mut(&pool) {
                    pool.queue.retain(|waiting| *waiting != id);
                }
                self.touch(&pool);
                self.fail_adds(id, &CallError::Deleted);
                self.finish(id);
            }
            Phase::Attaching(_) => self.undo(id, &CallError::Deleted),
            Phase::Held => self.unwire(id),
            Phase::Unwiring | Phase::Releasing => {}
        }
    }

    /// Removes the interface if it is ours; then frees the address.
    pub(super) fn unwire(&mut self, id: HolderId) {
        let job = Job(self.number());
        let Some(attachment) = self.attachments.get_mut(&id) else { return };
        if !attachment.interface {
            return self.release(id);
        }
        attachment.phase = Phase::Unwiring;
        let (key, pod) = (attachment.key.clone(), attachment.pod.clone());
        self.jobs.insert(job, Purpose::Unwire(id));
        self.actions.push(Action::Unwire { job, key, pod });
    }

    pub(super) fn unwired(&mut self, job: Job) {
        if let Some(Purpose::Unwire(id)) = self.take_job(job, |it| matches!(it, Purpose::Unwire(_))) {
            self.release(id);
        }
    }

    /// The address stays held: nobody else may get it while packets for it may still arrive here.
    pub(super) fn unwiring_failed(&mut self, job: Job, error: KernelError) {
        let Some(Purpose::Unwire(id)) = self.take_job(job, |it| matches!(it, Purpose::Unwire(_))) else {
            return;
        };
        let failure = CallError::from(error);
        let Some(attachment) = self.attachments.get_mut(&id) else { return };
        attachment.phase = Phase::Held;
        let claim = attachment.use_state().map(|use_state| use_state.claim.clone());
        let dels = std::mem::take(&mut attachment.dels);
        let next: Vec<Ticket> = attachment.next.drain(..).map(|(ticket, _)| ticket).collect();
        if attachment.place == AddressLocation::Nowhere {
            self.attachments.remove(&id);
        }
        for ticket in next {
            self.answer(ticket, Err(failure.clone()));
        }
        self.tell_deleters(id, dels, &Err(failure));
        if let Some(claim) = claim {
            self.judge(&claim);
        }
    }

    /// Records that the address is free. It is free only once that is committed: otherwise, after a crash,
    /// the journal could say that one holder has it while the kernel says that the next one uses it.
    fn release(&mut self, id: HolderId) {
        let Some(attachment) = self.attachments.get_mut(&id) else { return };
        let record = if let Some(hold) = attachment.held() {
            let rest = self.blocks.get(&hold.block).map(|block| block.engine.rest()).unwrap_or_default();
            let (at, until) = (self.now, self.now.plus(rest));
            Record::Released(Released { hold, at, until })
        } else if let Some(use_record) = attachment.use_record() {
            Record::ClaimUseEnded(use_record)
        } else {
            return self.free(id);
        };
        attachment.phase = Phase::Releasing;
        let position = self.record(record);
        if self.has_planted(Planted::DelBeforeCommit) {
            return self.free(id);
        }
        self.commits.after(position, AfterCommit::Released(id));
    }

    /// Frees the address and ends the hold.
    pub(super) fn free(&mut self, id: HolderId) {
        let now = self.now;
        let Some(attachment) = self.attachments.get_mut(&id) else { return };
        match std::mem::replace(&mut attachment.place, AddressLocation::Nowhere) {
            AddressLocation::Nowhere => {}
            AddressLocation::Claim(use_state) => {
                self.depart(id, &use_state.claim);
                self.finish(id);
                return self.judge(&use_state.claim);
            }
            AddressLocation::Stray(addresses) => {
                let interface = attachment.interface;
                let former = Former { key: attachment.key.clone(), pod: attachment.pod.clone() };
                self.slice_holders.remove(id, &former.key, &former.pod);
                self.former.insert(id, former);
                self.cool_stray(id, &addresses, interface);
            }
            AddressLocation::Block { uid, hold } => {
                let former = Former { key: attachment.key.clone(), pod: attachment.pod.clone() };
                self.slice_holders.remove(id, &former.key, &former.pod);
                self.former.insert(id, former);
                if let Some(block) = self.blocks.get_mut(&uid) {
                    block.engine.release(&id, hold.sequence, now);
                    if block.engine.is_empty() {
                        block.empty_since = now;
                    }
                    let pool = block.facts.pool.clone();
                    self.touch(&pool);
                }
                let addresses: Vec<_> = hold.addresses.iter().collect();
                self.cool_elsewhere(id, &addresses, &uid);
            }
        }
        self.finish(id);
    }

    /// Nothing is held any more: answers the deleters and starts the ADDs that came meanwhile.
    pub(super) fn finish(&mut self, id: HolderId) {
        let Some(attachment) = self.attachments.remove(&id) else { return };
        self.tell_deleters(id, attachment.dels, &Ok(Done::Removed));
        for (ticket, attach) in attachment.next {
            self.add(ticket, attach);
        }
    }

    /// Answers the calls that wanted a hold to end.
    pub(super) fn tell_deleters(
        &mut self,
        id: HolderId,
        dels: Vec<Deleter>,
        outcome: &Result<Done, CallError>,
    ) {
        for deleter in dels {
            match deleter {
                Deleter::Call(ticket) => self.answer(ticket, outcome.clone()),
                Deleter::Sweep(ticket) => self.swept(ticket, id, outcome),
            }
        }
    }

    fn swept(&mut self, ticket: Ticket, id: HolderId, outcome: &Result<Done, CallError>) {
        let Some(sweep) = self.sweeps.get_mut(&ticket) else { return };
        sweep.left.remove(&id);
        match outcome {
            Ok(_) => sweep.ended += 1,
            Err(error) => sweep.errors.push(error.clone()),
        }
        if !sweep.left.is_empty() {
            return;
        }
        let Some(sweep) = self.sweeps.remove(&ticket) else { return };
        let outcome = if sweep.errors.is_empty() {
            Ok(Done::Swept(sweep.ended))
        } else {
            Err(CallError::Unswept { ended: sweep.ended, errors: sweep.errors })
        };
        self.answer(ticket, outcome);
    }
}
