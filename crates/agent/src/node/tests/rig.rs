//! A node with a world around it that does what the node says, at once or when told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_cni::Failure;
use tenure_handles::Timestamp;
use tenure_ipam::{Addresses, Cidr, Subnet};

use crate::journal::{Image, Record};
use crate::key::{HoldKey, Pod};
use crate::node::{
    Action, AskId, Attach, CallError, Done, Event, Found, Job, Link, Node, PoolFacts, Refusal, RefusalKind,
    Report, SeenBlock, Settings, Ticket, Wiring, Wish,
};

pub(super) const NODE: &str = "node-1";

/// A node and what came of it.
pub(super) struct Rig {
    pub(super) node: Node,
    pub(super) now: Timestamp,
    /// Whether the journal commits and the kernel obeys at once.
    pub(super) prompt: bool,
    pub(super) answers: BTreeMap<Ticket, Result<Done, CallError>>,
    /// In the order in which they were answered.
    pub(super) order: Vec<Ticket>,
    pub(super) asked: Vec<(AskId, String)>,
    pub(super) returned: Vec<(String, String)>,
    /// Blocks whose release was objected to.
    pub(super) kept: Vec<String>,
    pub(super) reports: Vec<Report>,
    pub(super) exported: BTreeSet<Cidr>,
    pub(super) jobs: Vec<Action>,
    pub(super) records: Vec<Record>,
    pub(super) repaired: Vec<(HoldKey, Addresses)>,
    pub(super) looks: Vec<Action>,
    /// What others were asked.
    pub(super) questions: Vec<Action>,
    /// What was asked about the reach of claim users.
    pub(super) reaches: Vec<Action>,
    tickets: u64,
}

pub(super) fn key(container: &str) -> HoldKey {
    HoldKey::new("net", container, "eth0").unwrap()
}

pub(super) fn pod(container: &str) -> Pod {
    Pod { namespace: "shop".into(), name: format!("pod-{container}"), uid: String::new() }
}

pub(super) fn attach(container: &str, pool: &str) -> Attach {
    let netns = format!("/run/netns/{container}");
    let wiring = Some(Wiring { netns: netns.clone(), ..Wiring::default() });
    Attach {
        key: key(container),
        pool: pool.into(),
        pod: pod(container),
        netns,
        wiring,
        wish: Wish::default(),
        claim_use: None,
    }
}

/// Block `index` of a pool of eights: 10.0.0.0/29 and following.
pub(super) fn block(pool: &str, index: u8) -> SeenBlock {
    SeenBlock {
        name: format!("{pool}-{index}"),
        uid: format!("{pool}-{index}-uid"),
        node: NODE.into(),
        pool: pool.into(),
        subnet: Subnet::single(format!("10.0.{}.{}/29", pool.len(), index * 8).parse().unwrap()),
        reserved: false,
        deleting: false,
        releasing: false,
        draining: false,
        pod: None,
    }
}

pub(super) fn facts() -> PoolFacts {
    PoolFacts { block_bits: 3, ..PoolFacts::default() }
}

pub(super) fn exhausted() -> Refusal {
    Refusal { kind: RefusalKind::Exhausted, message: "all 4 blocks are carved".into() }
}

pub(super) fn unreachable() -> Refusal {
    Refusal { kind: RefusalKind::Unreachable, message: "connection refused".into() }
}

impl Rig {
    /// A node that has just been started.
    pub(super) fn started(settings: Settings) -> Self {
        Self {
            node: Node::new(settings),
            now: Timestamp::from_millis(1_000_000),
            prompt: true,
            answers: BTreeMap::new(),
            order: Vec::new(),
            asked: Vec::new(),
            returned: Vec::new(),
            kept: Vec::new(),
            reports: Vec::new(),
            exported: BTreeSet::new(),
            jobs: Vec::new(),
            records: Vec::new(),
            repaired: Vec::new(),
            looks: Vec::new(),
            questions: Vec::new(),
            reaches: Vec::new(),
            tickets: 0,
        }
    }

    /// A node that has read everything: the pool `default` and these blocks of it.
    pub(super) fn with_blocks(indexes: impl IntoIterator<Item = u8>) -> Self {
        let mut rig = Self::started(Settings::new(NODE));
        rig.event(Event::PoolChanged { name: "default".into(), facts: facts() });
        for index in indexes {
            rig.event(Event::BlockSeen(block("default", index)));
        }
        rig.read(Image::default(), Vec::new());
        rig
    }

    pub(super) fn read(&mut self, journal: Image, kernel: Vec<Found>) {
        self.event(Event::Journal(journal));
        self.event(Event::Kernel(kernel));
        self.event(Event::ApiRead);
    }

    /// The same node after a crash: what the journal has, and what the kernel says.
    pub(super) fn restarted(&self, kernel: Vec<Found>) -> Self {
        let mut rig = Self::started(Settings::new(NODE));
        rig.now = self.now;
        rig.event(Event::PoolChanged { name: "default".into(), facts: facts() });
        rig.read_journal_of(self, kernel);
        rig
    }

    fn read_journal_of(&mut self, before: &Self, kernel: Vec<Found>) {
        let mut image = Image::default();
        before.records.iter().cloned().for_each(|record| image.apply(record));
        self.event(Event::Journal(image));
        self.event(Event::Kernel(kernel));
    }

    pub(super) fn event(&mut self, event: Event) {
        let mut events = vec![event];
        while !events.is_empty() {
            let event = events.remove(0);
            let actions = self.node.handle(event, self.now);
            let mut position = None;
            for action in actions {
                match action {
                    Action::Record { position: at, record } => {
                        position = Some(at);
                        self.records.push(record);
                    }
                    Action::Wire(_) | Action::Unwire { .. } | Action::Inspect(_) => self.jobs.push(action),
                    Action::Answer { ticket, outcome } => {
                        assert!(
                            self.answers.insert(ticket, outcome).is_none(),
                            "{ticket:?} was answered twice"
                        );
                        self.order.push(ticket);
                    }
                    Action::AskForBlock { ask, pool, .. } => self.asked.push((ask, pool)),
                    Action::ReturnBlock { name, uid, .. } => self.returned.push((name, uid)),
                    Action::KeepBlock { name, .. } => self.kept.push(name),
                    Action::Export(networks) => self.exported = networks,
                    Action::Repair(holds) => self.repaired = holds,
                    Action::Look { .. } => self.looks.push(action),
                    Action::Consult { .. } | Action::AskAboutPods(_) => self.questions.push(action),
                    Action::Reach { .. } | Action::Announce { .. } => self.reaches.push(action),
                    Action::Report(report) => self.reports.push(report),
                }
            }
            if self.prompt {
                events.extend(position.map(|up_to| Event::Committed { up_to }));
                events.extend(self.jobs.drain(..).map(|job| done(&job)));
            }
        }
    }

    pub(super) fn commit(&mut self) {
        let up_to = self.records.len() as u64;
        self.event(Event::Committed { up_to });
    }

    /// Lets the kernel do what it was asked for.
    pub(super) fn obey(&mut self) {
        let jobs: Vec<Action> = self.jobs.drain(..).collect();
        for job in jobs {
            self.event(done(&job));
        }
    }

    /// The kernel's only job.
    pub(super) fn job(&self) -> Job {
        let [job] = &self.jobs[..] else { panic!("{:?}", self.jobs) };
        number(job)
    }

    pub(super) fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    pub(super) fn add(&mut self, container: &str) -> Ticket {
        self.add_of(attach(container, "default"))
    }

    pub(super) fn add_of(&mut self, attach: Attach) -> Ticket {
        let ticket = self.ticket();
        self.event(Event::Add { ticket, attach });
        ticket
    }

    pub(super) fn del(&mut self, container: &str) -> Ticket {
        let ticket = self.ticket();
        self.event(Event::Del { ticket, key: key(container), interface: true });
        ticket
    }

    /// Adds, and says the address that was given.
    pub(super) fn give(&mut self, container: &str) -> String {
        let ticket = self.add(container);
        self.address(ticket)
    }

    pub(super) fn address(&self, ticket: Ticket) -> String {
        match self.answers.get(&ticket) {
            Some(Ok(Done::Added { addresses, .. })) => addresses.to_string(),
            other => panic!("{ticket:?} got {other:?}"),
        }
    }

    /// What a STATUS of the plugin is answered.
    pub(super) fn status(&self) -> Result<(), Failure> {
        self.node.status().map_err(crate::coil::unavailable)
    }

    /// What the plugin's caller is told.
    pub(super) fn failure(&self, ticket: Ticket) -> Failure {
        match self.answers.get(&ticket) {
            Some(Err(error)) => error.clone().into(),
            other => panic!("{ticket:?} got {other:?}"),
        }
    }

    pub(super) fn is_open(&self, ticket: Ticket) -> bool {
        !self.answers.contains_key(&ticket)
    }

    pub(super) fn removed(&self, ticket: Ticket) -> bool {
        self.answers.get(&ticket) == Some(&Ok(Done::Removed))
    }

    pub(super) fn pass(&mut self, duration: Duration) {
        self.now = self.now.plus(duration);
        self.event(Event::Tick);
    }

    /// Answers the first wish with a block.
    pub(super) fn grant(&mut self, index: u8) {
        let (ask, pool) = self.asked.remove(0);
        let block = block(&pool, index);
        self.event(Event::BlockGranted { ask, block: block.name.clone() });
        self.event(Event::BlockSeen(block));
    }

    pub(super) fn refuse(&mut self, refusal: Refusal) {
        let (ask, _) = self.asked.remove(0);
        self.event(Event::BlockRefused { ask, refusal });
    }
}

/// What the kernel says when it has done a job.
pub(super) fn done(job: &Action) -> Event {
    match job {
        Action::Wire(job) => {
            let host_name = format!("tnr{}", job.key.container());
            Event::Wired { job: job.job, link: Link { host_name, mtu: 1500, ..Link::default() } }
        }
        Action::Unwire { job, .. } => Event::Unwired { job: *job },
        Action::Inspect(job) => Event::Inspected { job: job.job, differences: Vec::new() },
        other => panic!("{other:?} is no job"),
    }
}

fn number(job: &Action) -> Job {
    match job {
        Action::Wire(job) | Action::Inspect(job) => job.job,
        Action::Unwire { job, .. } => *job,
        other => panic!("{other:?} is no job"),
    }
}
