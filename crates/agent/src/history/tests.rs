//! A node with a journal and a history on disk: holds, releases, restarts and crashes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tenure_handles::ManualClock;
use tenure_history::Who;
use tenure_ipam::{Addresses, Sequence, Subnet};
use tenure_testbed::wait::until;
use tenure_view::{GapKind, Had};

use super::*;
use crate::journal::{Commit, Journal, Opened};
use crate::key::{HoldKey, Pod};

/// What an agent has of a journal and a history.
struct Bed {
    directory: tempfile::TempDir,
    clock: Arc<ManualClock>,
    boot: String,
}

struct Running {
    journal: Journal,
    history: Arc<NodeHistory>,
}

impl Bed {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_800_000_000_000)));
        Self { directory: tempfile::tempdir().unwrap(), clock, boot: "boot-1".into() }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn start(&self) -> Running {
        self.start_in(&self.path("state"))
    }

    fn start_in(&self, state: &Path) -> Running {
        let origin = crate::journal::Origin { boot: self.boot.clone(), node: "node1".into() };
        let cell = Arc::<std::sync::OnceLock<Arc<NodeHistory>>>::default();
        let told = {
            let cell = Arc::clone(&cell);
            move |commit| {
                if let (Commit::UpTo(up_to), Some(history)) = (commit, cell.get()) {
                    history.committed(up_to);
                }
            }
        };
        let Opened { journal, image, .. } = Journal::open(&self.path("run"), &origin, told).unwrap();
        let (clock, of) = (Arc::clone(&self.clock) as Arc<dyn Clock>, ("node1", self.boot.as_str()));
        let history = NodeHistory::start(state, Limits::default(), of, &image, clock).unwrap();
        let history = Arc::new(history);
        cell.set(Arc::clone(&history)).ok().unwrap();
        let running = Running { journal, history };
        until("the log to be read", || running.ask("10.0.0.1").ok().map(drop));
        running
    }

    fn pass(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    fn held(&self, address: u8, sequence: u64) -> Held {
        Held {
            block: "uid-1".into(),
            key: HoldKey::new("net", format!("c{sequence}"), "eth0").unwrap(),
            pod: Pod { namespace: "ns".into(), name: format!("p{sequence}"), uid: String::new() },
            interface: true,
            addresses: Addresses { ipv4: Some([10, 0, 0, address].into()), ipv6: None },
            sequence: Sequence::from_u64(sequence),
            since: self.clock.now(),
            netns: String::new(),
        }
    }
}

impl Running {
    /// As the agent's executor does it.
    fn record(&self, records: Vec<Record>) {
        self.history.taken(self.history.copy(&records));
        self.journal.append(records).unwrap();
    }

    fn release(&self, hold: Held, at: Timestamp) {
        self.record(vec![Record::Released(Released { hold, at, until: at.plus(Duration::from_secs(30)) })]);
    }

    fn ask(&self, address: &str) -> Result<tenure_view::History, String> {
        let query = Query { who: Who::Address(address.parse().unwrap()), from: None, to: None };
        self.history.log.ask(&query).map_err(|error| error.to_string())
    }

    /// The periods of an address, once there are so many: pod, whether it has ended, and how.
    fn periods(&self, address: &str, count: usize) -> Vec<(String, Option<End>)> {
        until("the records to be written", || {
            let told = self.ask(address).unwrap();
            let pod = |period: &Period| period.holder.pod.as_ref().unwrap().name.clone();
            let periods: Vec<_> = told.periods.iter().map(|period| (pod(period), period.end)).collect();
            (periods.len() == count).then_some(periods)
        })
    }

    fn stop(self) {
        let Self { journal, history } = self;
        drop(journal);
        history.stop();
    }
}

fn owned() -> Record {
    let (uid, name, pool) = ("uid-1".into(), "default-0".into(), "default".into());
    let subnet = Subnet::single("10.0.0.0/24".parse().unwrap());
    Record::Owned(BlockFacts { uid, name, pool, subnet, realm: String::new() })
}

#[test]
fn who_had_an_address_is_known_after_a_restart_and_after_a_reboot() {
    let mut bed = Bed::new();
    let running = bed.start();
    let (first, second) = (bed.held(1, 1), bed.held(2, 2));
    running.record(vec![owned(), Record::Held(first.clone()), Record::Held(second.clone())]);
    bed.pass(60);
    running.release(first.clone(), bed.clock.now());
    assert_eq!(running.periods("10.0.0.1", 1), [("p1".into(), Some(End::Released))]);
    running.stop();
    bed.pass(60);

    let running = bed.start();
    let again = bed.held(1, 3);
    running.record(vec![Record::Held(again)]);
    let released = ("p1".to_owned(), Some(End::Released));
    assert_eq!(running.periods("10.0.0.1", 2), [released.clone(), ("p3".into(), None)]);
    let told = running.ask("10.0.0.1").unwrap();
    let period = &told.periods[1];
    assert_eq!(
        (period.block.as_str(), period.pool.as_str()),
        ("default-0", "default"),
        "also after a restart"
    );
    let since = first.since;
    let at = |seconds| since.plus(Duration::from_secs(seconds)).to_jiff();
    assert_eq!([0, 59, 60].map(|seconds| told.periods[0].had(at(seconds))), [Had::Yes, Had::Yes, Had::No]);
    assert_eq!(told.gaps.iter().map(|gap| gap.kind).collect::<Vec<_>>(), [GapKind::Before, GapKind::Down]);
    running.stop();

    // The journal is gone with the pods that it described.
    bed.boot = "boot-2".into();
    bed.pass(60);
    let running = bed.start();
    assert_eq!(running.periods("10.0.0.1", 2), [released, ("p3".into(), Some(End::Unseen))]);
    assert_eq!(running.periods("10.0.0.2", 1), [("p2".into(), Some(End::Unseen))]);
}

#[test]
fn a_crash_loses_nothing_that_the_journal_has_and_says_nothing_twice() {
    let bed = Bed::new();
    let running = bed.start();
    let hold = bed.held(1, 1);
    running.record(vec![owned(), Record::Held(hold.clone())]);
    assert_eq!(running.periods("10.0.0.1", 1), [("p1".into(), None)]);
    running.stop();
    // The last line was torn, and the release came to the journal alone.
    let file = bed.path("state/history/0000000001.history");
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let torn = lines.iter().position(|line| line.contains("\"held\"")).unwrap();
    let kept = format!("{}\n{}", lines[..torn].join("\n"), &lines[torn][..40]);
    std::fs::write(&file, kept).unwrap();
    bed.pass(60);
    let running = bed.start();
    assert_eq!(running.periods("10.0.0.1", 1), [("p1".into(), None)], "the journal knows it");
    running.record(vec![Record::Held(hold.clone())]);
    running.release(hold.clone(), bed.clock.now());
    running.release(hold, bed.clock.now());
    until("the release", || {
        let told = running.ask("10.0.0.1").unwrap();
        (told.periods[0].end == Some(End::Released)).then(|| assert_eq!(told.periods.len(), 1))
    });
}

#[test]
fn without_a_place_to_write_records_go_on_and_questions_say_why_there_is_no_answer() {
    let bed = Bed::new();
    // A file is where the directory should be.
    std::fs::write(bed.path("file"), "").unwrap();
    let origin = crate::journal::Origin { boot: bed.boot.clone(), node: "node1".into() };
    let (told, commits) = std::sync::mpsc::channel();
    let opened = Journal::open(&bed.path("run"), &origin, move |commit| drop(told.send(commit))).unwrap();
    let (clock, of) = (Arc::clone(&bed.clock) as Arc<dyn Clock>, ("node1", "boot-1"));
    let history = NodeHistory::start(&bed.path("file"), Limits::default(), of, &opened.image, clock).unwrap();
    let running = Running { journal: opened.journal, history: Arc::new(history) };
    running.record(vec![owned(), Record::Held(bed.held(1, 1))]);
    assert_eq!(commits.recv().unwrap(), Commit::UpTo(2), "the journal has it");
    running.history.committed(2);
    let problem = until("an answer", || running.ask("10.0.0.1").err().filter(|it| !it.contains("again")));
    assert!(problem.starts_with("the log of this node's history cannot be read: "), "{problem}");
    until("the count", || (running.history.log.counts().failed == 1).then_some(()));
}

#[test]
fn what_the_journal_does_not_commit_is_not_told() {
    let bed = Bed::new();
    let running = bed.start();
    let records = vec![owned(), Record::Held(bed.held(1, 1)), Record::Held(bed.held(2, 2))];
    running.history.taken(running.history.copy(&records));
    running.history.committed(2);
    assert_eq!(running.periods("10.0.0.1", 1), [("p1".into(), None)]);
    assert_eq!(running.ask("10.0.0.2").unwrap().periods, []);
    running.history.committed(3);
    running.periods("10.0.0.2", 1);
}
