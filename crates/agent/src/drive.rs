//! The loop around a node: events go in one by one, actions go to the executor, and a timer ticks when the
//! node asks for it. It decides nothing.
//!
//! Results of work in progress come before new calls, so that work is finished before more is started.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tenure_handles::Clock;
use tokio::sync::{mpsc, oneshot};

use crate::journal::Record;
use crate::node::{Action, CallError, Done, Event, Node, Ticket};

/// Performs actions. Slow actions run elsewhere, and their results come back as events.
pub trait Executor: Send + 'static {
    /// Appends to the journal; [`Event::Committed`] comes back.
    fn record(&mut self, records: Vec<Record>);
    /// Appends to the journal immediately and returns the result, if that is faster than passing the records
    /// to another thread; otherwise returns the records.
    fn record_at_once(&mut self, records: Vec<Record>) -> Result<Event, Vec<Record>> {
        Err(records)
    }
    /// Performs any action other than an answer or a record. Must not block.
    fn carry_out(&mut self, action: Action);
    /// Performs an action immediately if that takes less than about a millisecond, because passing it to
    /// another thread and back would take almost as long; otherwise returns the action.
    #[expect(
        clippy::result_large_err,
        reason = "returning the action is no failure, and it is not worth a heap allocation"
    )]
    fn at_once(&mut self, action: Action) -> Result<Event, Action> {
        Err(action)
    }
}

/// A handle to a running node. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Handle {
    events: mpsc::UnboundedSender<Box<Event>>,
    questions: mpsc::UnboundedSender<Question>,
}

/// Drives a node.
#[derive(Debug)]
pub struct Driver<C, E> {
    node: Node,
    clock: C,
    executor: E,
    inbox: Inbox,
    open: HashMap<Ticket, oneshot::Sender<Outcome>>,
    tickets: u64,
    /// Events caused by an event, and actions still to perform: empty between events, kept to reuse their
    /// memory.
    events: VecDeque<Event>,
    jobs: Vec<Action>,
}

/// The answer to a call.
pub type Outcome = Result<Done, CallError>;

#[derive(Debug)]
struct Inbox {
    events: mpsc::UnboundedReceiver<Box<Event>>,
    questions: mpsc::UnboundedReceiver<Question>,
}

enum Message {
    Event(Box<Event>),
    Question(Question),
}

enum Question {
    Call { event: Box<dyn FnOnce(Ticket) -> Event + Send>, answer: oneshot::Sender<Outcome> },
    Look(Box<dyn FnOnce(&Node) + Send>),
}

impl std::fmt::Debug for Question {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Call { .. } => f.write_str("Call"),
            Self::Look(_) => f.write_str("Look"),
        }
    }
}

/// The channel to a driver that does not exist yet: its executor needs the channel to report results.
#[derive(Debug)]
pub struct NodeChannel {
    handle: Handle,
    inbox: Inbox,
}

impl NodeChannel {
    /// A channel.
    #[expect(clippy::new_without_default, reason = "a channel that nobody reads is no default")]
    pub fn new() -> Self {
        let (events, told) = mpsc::unbounded_channel();
        let (questions, asked) = mpsc::unbounded_channel();
        Self { handle: Handle { events, questions }, inbox: Inbox { events: told, questions: asked } }
    }

    /// The handle to the node.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// The driver at the other end.
    pub fn driver<C: Clock, E: Executor>(self, node: Node, clock: C, executor: E) -> Driver<C, E> {
        let (open, events, jobs) = (HashMap::new(), VecDeque::new(), Vec::new());
        Driver { node, clock, executor, inbox: self.inbox, open, tickets: 0, events, jobs }
    }
}

impl Handle {
    /// Sends the node an event.
    pub fn tell(&self, event: Event) {
        // Fails only while the agent is ending.
        let _ = self.events.send(Box::new(event));
    }

    /// Makes a call to the node and waits for its answer.
    pub async fn call(&self, event: impl FnOnce(Ticket) -> Event + Send + 'static) -> Outcome {
        let (answer, answered) = oneshot::channel();
        let _ = self.questions.send(Question::Call { event: Box::new(event), answer });
        answered.await.unwrap_or(Err(CallError::Ending))
    }

    /// Runs a function on the node and returns its result.
    pub async fn look<R: Send + 'static>(
        &self,
        look: impl FnOnce(&Node) -> R + Send + 'static,
    ) -> Result<R, CallError> {
        let (answer, answered) = oneshot::channel();
        let _ = self.questions.send(Question::Look(Box::new(move |node| drop(answer.send(look(node))))));
        answered.await.map_err(|_| CallError::Ending)
    }
}

impl<C: Clock, E: Executor> Driver<C, E> {
    /// Drives the node until `ended`, or until all handles are dropped. Work in progress stays as it is:
    /// waiting callers are told to try again, and the journal knows what was done.
    pub async fn run(mut self, ended: impl Future<Output = ()> + Send) {
        let mut ended = std::pin::pin!(ended);
        loop {
            let wake = self.node.next_wake();
            let message = tokio::select! {
                biased;
                () = &mut ended => None,
                event = self.inbox.events.recv() => event.map(Message::Event),
                question = self.inbox.questions.recv() => question.map(Message::Question),
                () = sleep(wake.map(|at| at.since(self.clock.now()))) => Some(tick()),
            };
            // Due timers come before later messages; otherwise a busy node would never get to them.
            if message.is_some() && wake.is_some_and(|at| at <= self.clock.now()) {
                self.handle(Event::Tick);
            }
            let worked = match message {
                None => return,
                Some(Message::Event(event)) => self.handle(*event),
                Some(Message::Question(Question::Look(look))) => {
                    look(&self.node);
                    false
                }
                Some(Message::Question(Question::Call { event, answer })) => {
                    self.tickets += 1;
                    let ticket = Ticket(self.tickets);
                    self.open.insert(ticket, answer);
                    self.handle(event(ticket))
                }
            };
            if worked {
                // Callers that have their answer now must not wait for those of others.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Makes the node handle an event and all events that it causes at once. True if there was something to
    /// do.
    fn handle(&mut self, event: Event) -> bool {
        self.events.push_back(event);
        let mut worked = false;
        while let Some(event) = self.events.pop_front() {
            let mut records = Vec::new();
            let mut actions = self.node.handle(event, self.clock.now());
            for action in actions.drain(..) {
                match action {
                    Action::Record { record, .. } => {
                        if records.is_empty() {
                            // Usually it is the only one, and records are large.
                            records.reserve_exact(1);
                        }
                        records.push(record);
                    }
                    Action::Answer { ticket, outcome } => {
                        if let Some(answer) = self.open.remove(&ticket) {
                            // A caller that no longer waits will call again.
                            let _ = answer.send(outcome);
                        }
                    }
                    action => self.jobs.push(action),
                }
            }
            self.node.reuse(actions);
            // First, because they are written while the rest is done.
            if !records.is_empty() {
                match self.executor.record_at_once(records) {
                    Ok(event) => self.events.push_back(event),
                    Err(records) => self.executor.record(records),
                }
            }
            for job in self.jobs.drain(..) {
                match self.executor.at_once(job) {
                    Ok(event) => self.events.push_back(event),
                    Err(job) => self.executor.carry_out(job),
                }
            }
            worked |= !self.events.is_empty();
        }
        worked
    }
}

fn tick() -> Message {
    Message::Event(Box::new(Event::Tick))
}

/// Sleeps that long; forever for `None`.
async fn sleep(wake: Option<Duration>) {
    match wake {
        // A clock that stands between two milliseconds must not make the timer spin.
        Some(wake) => tokio::time::sleep(wake.max(Duration::from_millis(1))).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tenure_handles::{ManualClock, Timestamp};
    use tenure_ipam::Subnet;

    use super::*;
    use crate::journal::Image;
    use crate::key::{HoldKey, Pod};
    use crate::node::{Attach, PoolError, PoolFacts, SeenBlock, Settings, Wish};

    struct Idle;

    impl Executor for Idle {
        fn record(&mut self, _: Vec<Record>) {}
        fn carry_out(&mut self, _: Action) {}
    }

    /// Commits everything at once.
    struct Prompt(u64);

    impl Executor for Prompt {
        fn record(&mut self, records: Vec<Record>) {
            panic!("these were written already: {records:?}");
        }
        fn record_at_once(&mut self, records: Vec<Record>) -> Result<Event, Vec<Record>> {
            self.0 += records.len() as u64;
            Ok(Event::Committed { up_to: self.0 })
        }
        fn carry_out(&mut self, _: Action) {}
    }

    #[tokio::test]
    async fn what_is_written_at_once_is_answered_without_anybody_else() {
        let channel = NodeChannel::new();
        let node = channel.handle();
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_000_000)));
        let driver = channel.driver(Node::new(Settings::new("node-1")), clock, Prompt(0));
        tokio::spawn(driver.run(std::future::pending()));
        let facts = PoolFacts { block_bits: 3, ..PoolFacts::default() };
        node.tell(Event::PoolChanged { name: "default".into(), facts });
        node.tell(Event::BlockSeen(SeenBlock {
            name: "default-0".into(),
            uid: "uid-1".into(),
            node: "node-1".into(),
            pool: "default".into(),
            subnet: Subnet::single("10.1.0.0/29".parse().unwrap()),
            reserved: false,
            deleting: false,
            releasing: false,
            draining: false,
            pod: None,
        }));
        node.tell(Event::Journal(Image::default()));
        node.tell(Event::Kernel(Vec::new()));
        node.tell(Event::ApiRead);
        let key = HoldKey::new("net", "a", "eth0").unwrap();
        let (pool, pod, netns) = ("default".into(), Pod::default(), String::new());
        let attach = Attach {
            key: key.clone(),
            pool,
            pod,
            netns,
            wiring: None,
            wish: Wish::default(),
            claim_use: None,
        };
        let added = node.call(move |ticket| Event::Add { ticket, attach }).await.unwrap();
        assert!(matches!(added, Done::Added { .. }), "{added:?}");
        let removed = node.call(move |ticket| Event::Del { ticket, key, interface: false }).await.unwrap();
        assert_eq!(removed, Done::Removed);
    }

    #[tokio::test]
    async fn what_happened_comes_before_what_is_asked_for() {
        let channel = NodeChannel::new();
        let node = channel.handle();
        let mut asked = std::pin::pin!(node.look(|node| node.pools().len()));
        assert!(futures::poll!(&mut asked).is_pending());
        node.tell(Event::PoolChanged { name: "default".into(), facts: PoolFacts::default() });
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_000_000)));
        let driver = channel.driver(Node::new(Settings::new("node-1")), clock, Idle);
        tokio::spawn(driver.run(std::future::pending()));
        assert_eq!(asked.await, Ok(1));
    }

    #[tokio::test]
    async fn what_is_due_is_not_forgotten_because_something_else_came_first() {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_000_000)));
        let channel = NodeChannel::new();
        let node = channel.handle();
        let driver = channel.driver(Node::new(Settings::new("node-1")), Arc::clone(&clock), Idle);
        tokio::spawn(driver.run(std::future::pending()));
        node.tell(Event::Journal(Image::default()));
        node.tell(Event::Kernel(Vec::new()));
        let facts = PoolFacts { block_bits: 3, ..PoolFacts::default() };
        node.tell(Event::PoolChanged { name: "default".into(), facts });
        node.tell(Event::ApiRead);
        let key = HoldKey::new("net", "a", "eth0").unwrap();
        let (pool, pod, netns) = ("default".into(), Pod::default(), String::new());
        let attach = Attach { key, pool, pod, netns, wiring: None, wish: Wish::default(), claim_use: None };
        let waiting = tokio::spawn({
            let node = node.clone();
            async move { node.call(move |ticket| Event::Add { ticket, attach }).await }
        });
        while node.look(|node| node.pools()[0].waiting).await != Ok(1) {
            tokio::task::yield_now().await;
        }
        // The deadline is over, and something else happens before the timer fires.
        clock.advance(Duration::from_secs(11));
        node.tell(Event::PoolGone { name: "another".into() });
        let outcome = tokio::time::timeout(Duration::from_secs(5), waiting).await;
        let failure = outcome.expect("it is answered").unwrap().unwrap_err();
        assert!(matches!(failure, CallError::Pool(PoolError::TimedOut { .. })), "{failure:?}");
    }
}
