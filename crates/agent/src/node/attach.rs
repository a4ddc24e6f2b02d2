//! ADD and CHECK, and the kernel's results for them.

use tenure_ipam::{Address, Hold, Subnet};

use super::attachment::{AddressLocation, Attaching, Attachment, Phase, Wire};
use super::commit::AfterCommit;
use super::event::{Attach, Link, Wiring};
use super::{Action, CallError, Done, Job, KernelError, Node, Planted, PoolError, Ticket, WireJob};
use crate::journal::Record;
use crate::key::HolderId;

/// The purpose of a kernel job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Wire(HolderId),
    Unwire(HolderId),
    Inspect(Ticket),
}

impl Node {
    pub(super) fn add(&mut self, ticket: Ticket, attach: Attach) {
        if let Err(failure) = self.ready() {
            return self.answer(ticket, Err(failure));
        }
        let (id, now) = (attach.key.id(), self.now);
        let anew = self.has_planted(Planted::AddAgainAnew);
        let Some(attachment) = self.attachments.get_mut(&id) else {
            return if let Some(claim_use) = attach.claim_use.clone() {
                self.use_claim(ticket, attach, claim_use);
            } else if let Some(former) = self.former_self(&attach) {
                self.take_over(former, ticket, attach);
            } else {
                self.begin(ticket, attach);
            };
        };
        if attachment.key != attach.key {
            let failure = CallError::SameId {
                asked: Box::new(attach.key.clone()),
                other: Box::new(attachment.key.clone()),
            };
            return self.answer(ticket, Err(failure));
        }
        if attachment.is_unknown() && attachment.phase == Phase::Held && attach.claim_use.is_none() {
            // It has no address to keep, and creating its interface again does no harm.
            self.trust(id);
            self.attachments.remove(&id);
            return self.begin(ticket, attach);
        }
        if attachment.is_leaving() {
            attachment.next.push((ticket, attach));
            return;
        }
        if let Some(failure) = attachment.refuses(attach.claim_use.as_ref()) {
            return self.answer(ticket, Err(failure));
        }
        match attachment.phase {
            Phase::Held if anew && attach.claim_use.is_none() => {
                self.attachments.remove(&id);
                self.begin(ticket, attach);
            }
            Phase::Held => self.repeat(id, ticket, attach),
            _ => attachment.adds.push((ticket, now)),
        }
    }

    /// Queues a new holder for an address; [`Node::settle`] serves it at once if one is free.
    fn begin(&mut self, ticket: Ticket, attach: Attach) {
        let pool = self.pools.get_mut(&attach.pool);
        let facts = pool.as_ref().and_then(|pool| pool.facts.as_ref());
        let problem = match facts {
            _ if self.commits.is_broken() => Some(CallError::JournalBroken),
            None => Some(no_pool(&attach)),
            Some(facts) if facts.deleting => Some(PoolError::Deleting(attach.pool.clone()).into()),
            Some(_) => None,
        };
        match (problem, pool) {
            (None, Some(pool)) => {
                let id = attach.key.id();
                pool.queue.push_back(id);
                self.touch(&attach.pool);
                let mut attachment = Attachment::new(attach);
                attachment.adds.push((ticket, self.now));
                self.attachments.insert(id, attachment);
            }
            (problem, _) => {
                let failure = problem.unwrap_or_else(|| no_pool(&attach));
                self.answer(ticket, Err(failure));
            }
        }
    }

    /// An ADD for an existing hold: the address stays, and the interface is verified.
    fn repeat(&mut self, id: HolderId, ticket: Ticket, attach: Attach) {
        let (now, job) = (self.now, Job(self.number()));
        self.trust(id);
        let committed = !self.recognise(id, &attach);
        self.remember_namespace(id, &attach.netns);
        let Some(attachment) = self.attachments.get_mut(&id) else { return };
        attachment.silenced = false;
        let (addresses, reached) = (attachment.addresses(), attachment.is_routed());
        let Some(wiring) = attach.wiring else {
            if !committed {
                attachment.adds.push((ticket, now));
                let wire = Wire::Nothing;
                attachment.phase = Phase::Attaching(Attaching { fresh: false, committed, wire, undo: false });
                return self.announce(id);
            }
            self.announce(id);
            let subnet = self.subnet_of(id);
            return self.answer(ticket, Ok(Done::Added { addresses, subnet, link: None, new: false }));
        };
        attachment.interface = true;
        attachment.adds.push((ticket, now));
        let wire = Wire::Running(job);
        attachment.phase = Phase::Attaching(Attaching { fresh: false, committed, wire, undo: false });
        self.jobs.insert(job, Purpose::Wire(id));
        let wire_job = WireJob { job, key: attach.key, pod: attach.pod, addresses, reached, wiring };
        self.actions.push(Action::Wire(wire_job));
    }

    /// Records the holder's current namespace.
    fn remember_namespace(&mut self, id: HolderId, netns: &str) {
        let Some(attachment) = self.attachments.get_mut(&id) else { return };
        if !netns.is_empty() && attachment.netns != netns {
            netns.clone_into(&mut attachment.netns);
            if let Some(held) = attachment.held() {
                self.record(Record::Held(held));
            }
            self.write_claim_user(id, false);
        }
    }

    /// Requests the interface of a holder that is being set up.
    pub(super) fn wire(&mut self, id: HolderId, wiring: Wiring) {
        let job = Job(self.number());
        let Some(attachment) = self.attachments.get_mut(&id) else { return };
        let (key, pod) = (attachment.key.clone(), attachment.pod.clone());
        let (addresses, reached) = (attachment.addresses(), attachment.is_routed());
        if let Phase::Attaching(setting) = &mut attachment.phase {
            setting.wire = Wire::Running(job);
        }
        self.jobs.insert(job, Purpose::Wire(id));
        self.actions.push(Action::Wire(WireJob { job, key, pod, addresses, reached, wiring }));
    }

    /// A waiting holder got an address: records and wires it at the same time. If the agent dies in between,
    /// either of the two is enough to find the hold again.
    pub(super) fn set_up(&mut self, id: HolderId, uid: String, hold: Hold) {
        let Some(attachment) = self.attachments.get_mut(&id) else { return };
        attachment.since = self.now;
        attachment.place = AddressLocation::Block { uid, hold };
        let wiring = attachment.wiring.take();
        attachment.phase =
            Phase::Attaching(Attaching { fresh: true, committed: false, wire: Wire::Nothing, undo: false });
        self.index_slice_holder(id);
        let Some(attachment) = self.attachments.get(&id) else { return };
        if let Some(held) = attachment.held() {
            let position = self.record(Record::Held(held));
            self.commits.after(position, AfterCommit::Held(id));
        }
        if let Some(wiring) = wiring {
            self.wire(id, wiring);
        }
    }

    pub(super) fn wired(&mut self, job: Job, link: Link) {
        let Some(Purpose::Wire(id)) = self.take_job(job, |purpose| matches!(purpose, Purpose::Wire(_)))
        else {
            return;
        };
        if let Some(setting) = self.attaching(id) {
            setting.wire = Wire::Done(link);
        }
        self.proceed(id);
    }

    pub(super) fn wiring_failed(&mut self, job: Job, error: KernelError) {
        let Some(Purpose::Wire(id)) = self.take_job(job, |purpose| matches!(purpose, Purpose::Wire(_)))
        else {
            return;
        };
        let Some(setting) = self.attaching(id) else { return };
        setting.wire = Wire::Nothing;
        if setting.fresh {
            // The kernel may have kept a part, which must go before the address is freed.
            self.undo(id, &error.into());
        } else {
            // A running pod keeps its address, whatever the result of this check of its interface.
            let undo = setting.undo;
            self.fail_adds(id, &error.into());
            match self.attachments.get_mut(&id) {
                Some(attachment) if !undo => attachment.phase = Phase::Held,
                _ => self.proceed(id),
            }
        }
    }

    /// Fails an ADD in progress: answers the waiting calls at once and undoes the rest.
    pub(super) fn undo(&mut self, id: HolderId, failure: &CallError) {
        self.fail_adds(id, failure);
        if let Some(setting) = self.attaching(id) {
            setting.undo = true;
        }
        self.proceed(id);
    }

    /// Continues to set up a holder once nothing that it waits for is left.
    pub(super) fn proceed(&mut self, id: HolderId) {
        let Some(attachment) = self.attachments.get_mut(&id) else { return };
        let Phase::Attaching(setting) = &mut attachment.phase else { return };
        if matches!(setting.wire, Wire::Running(_)) {
            return;
        }
        if setting.undo {
            return self.unwire(id);
        }
        if !setting.committed {
            return;
        }
        let link = match std::mem::replace(&mut setting.wire, Wire::Nothing) {
            Wire::Done(link) => Some(link),
            Wire::Nothing | Wire::Running(_) => None,
        };
        let mut new = setting.fresh;
        attachment.phase = Phase::Held;
        let addresses = attachment.addresses();
        let adds = std::mem::take(&mut attachment.adds);
        let subnet = self.subnet_of(id);
        for (ticket, _) in adds {
            self.answer(ticket, Ok(Done::Added { addresses, subnet, link: link.clone(), new }));
            // The later calls asked for what the first one got.
            new = false;
        }
    }

    pub(super) fn check(&mut self, ticket: Ticket, attach: Attach, expected: &[Address]) {
        if let Err(failure) = self.ready() {
            return self.answer(ticket, Err(failure));
        }
        let attachment = self.attachments.get(&attach.key.id()).filter(|it| it.key == attach.key);
        let attachment = attachment.or_else(|| self.adopted_for(&attach.key, &attach.pool));
        let held =
            attachment.filter(|attachment| matches!(attachment.phase, Phase::Held | Phase::Attaching(_)));
        let Some(attachment) = held else {
            return self.answer(ticket, Err(CallError::NothingHeld(attach.key)));
        };
        let (addresses, every) = (attachment.addresses(), attachment.every_address());
        let reached = attachment.is_routed();
        if let Some(other) = expected.iter().find(|address| !every.contains(address)) {
            let error =
                CallError::OtherAddress { key: Box::new(attach.key), expected: *other, held: addresses };
            return self.answer(ticket, Err(error));
        }
        match attach.wiring {
            None => self.answer(ticket, Ok(Done::Checked)),
            Some(wiring) => {
                let job = Job(self.number());
                self.jobs.insert(job, Purpose::Inspect(ticket));
                let inspect = WireJob { job, key: attach.key, pod: attach.pod, addresses, reached, wiring };
                self.actions.push(Action::Inspect(inspect));
            }
        }
    }

    pub(super) fn inspected(&mut self, job: Job, differences: Vec<String>) {
        let Some(Purpose::Inspect(ticket)) = self.take_job(job, |it| matches!(it, Purpose::Inspect(_)))
        else {
            return;
        };
        let outcome =
            if differences.is_empty() { Ok(Done::Checked) } else { Err(CallError::Differs(differences)) };
        self.answer(ticket, outcome);
    }

    /// The networks of the block with the holder's address.
    fn subnet_of(&self, id: HolderId) -> Option<Subnet> {
        let block = self.attachments.get(&id)?.block()?;
        self.blocks.get(block).map(|block| block.facts.subnet)
    }

    /// Removes a job of this kind from the list. Late or repeated jobs and those from before a restart are
    /// not in it.
    pub(super) fn take_job(&mut self, job: Job, is: impl Fn(&Purpose) -> bool) -> Option<Purpose> {
        self.jobs.get(&job).is_some_and(is).then(|| self.jobs.remove(&job)).flatten()
    }

    /// The state of a holder that is being set up.
    pub(super) fn attaching(&mut self, id: HolderId) -> Option<&mut Attaching> {
        match &mut self.attachments.get_mut(&id)?.phase {
            Phase::Attaching(setting) => Some(setting),
            Phase::Waiting | Phase::Held | Phase::Unwiring | Phase::Releasing => None,
        }
    }

    /// Fails all ADDs that wait for a holder.
    pub(super) fn fail_adds(&mut self, id: HolderId, failure: &CallError) {
        let Some(attachment) = self.attachments.get_mut(&id) else { return };
        for (ticket, _) in std::mem::take(&mut attachment.adds) {
            self.answer(ticket, Err(failure.clone()));
        }
    }
}

fn no_pool(attach: &Attach) -> CallError {
    PoolError::Missing { pool: attach.pool.clone(), pod: attach.pod.clone() }.into()
}
