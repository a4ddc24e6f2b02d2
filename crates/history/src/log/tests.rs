//! A log on a disk that fails, is full, or is torn by crashes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use tenure_view::{GapKind, Had};

use super::*;
use crate::query::Who;
use crate::testing::{self, at, released};

/// A disk in memory.
#[derive(Clone, Debug, Default)]
struct Disk {
    files: Arc<Mutex<BTreeMap<u64, Vec<u8>>>>,
    full: Arc<AtomicBool>,
}

impl Disk {
    fn bytes(&self) -> u64 {
        self.files.lock().unwrap().values().map(|file| file.len() as u64).sum()
    }

    /// The process is killed within a write of this many bytes.
    fn tear(&self, bytes: usize) {
        if let Some(mut file) = self.files.lock().unwrap().last_entry() {
            file.get_mut().extend(std::iter::repeat_n(b'{', bytes));
        }
    }
}

impl Storage for Disk {
    fn list(&self) -> io::Result<Vec<u64>> {
        Ok(self.files.lock().unwrap().keys().copied().collect())
    }
    fn read(&self, number: u64) -> io::Result<Vec<u8>> {
        self.files.lock().unwrap().get(&number).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
    fn write(&self, number: u64, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut files = self.files.lock().unwrap();
        let file = files.entry(number).or_default();
        file.truncate(usize::try_from(at).unwrap());
        assert_eq!(file.len() as u64, at, "it writes behind the end");
        if self.full.load(Ordering::SeqCst) {
            // A part of it may be written.
            file.extend_from_slice(&bytes[..bytes.len() / 2]);
            return Err(io::ErrorKind::StorageFull.into());
        }
        file.extend_from_slice(bytes);
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
    fn remove(&self, number: u64) -> io::Result<()> {
        self.files.lock().unwrap().remove(&number).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

const LIMITS: Limits = Limits { bytes: 64 << 10, age: Duration::from_hours(24) };

fn held(address: u8, sequence: u64, second: i64) -> Period {
    testing::held(&format!("c{sequence}"), address, sequence, second)
}

fn change(period: Period, second: i64) -> Vec<Change> {
    vec![Change { at: at(second), period }]
}

fn started() -> What {
    What::Started { node: "n".into(), boot: "b".into(), version: "1".into() }
}

fn ask(log: &Log<Disk>, address: u8, from: Option<i64>, to: Option<i64>, now: i64) -> History {
    let query = Query { who: Who::Address([10, 0, 0, address].into()), from: from.map(at), to: to.map(at) };
    log.ask(&query, "n", at(now)).unwrap()
}

#[test]
fn what_happens_while_a_disk_is_full_is_written_later_and_what_is_too_much_is_admitted() {
    let disk = Disk::default();
    let log = Log::open(disk.clone(), Limits { bytes: 1 << 20, ..LIMITS }).unwrap();
    log.mark(started(), at(5));
    let (first, second) = (held(1, 1, 10), held(2, 2, 20));
    assert_eq!(log.take(change(first.clone(), 10), at(10)), Written { entries: 1, ..Written::default() });
    disk.full.store(true, Ordering::SeqCst);
    let written = log.take(change(second.clone(), 20), at(20));
    assert!(written.problem.is_some_and(|problem| problem.contains("storage")));
    log.take(change(released(&first, 30), 30), at(30));
    let answer = ask(&log, 1, Some(25), Some(25), 40);
    assert_eq!((answer.periods, answer.gaps), (vec![released(&first, 30)], vec![]), "it waits, and is known");
    assert_eq!(log.waiting(), 2);
    disk.full.store(false, Ordering::SeqCst);
    assert_eq!(log.take(change(released(&second, 50), 50), at(50)).entries, 3);
    assert_eq!(log.waiting(), 0);

    disk.full.store(true, Ordering::SeqCst);
    let mut lost = 0;
    for number in 0..=MOST_KEPT as u64 / 2 {
        let hold = held(3, 10 + number, 60);
        lost += log.take(change(hold.clone(), 60), at(60)).lost;
        lost += log.take(change(released(&hold, 70), 70), at(70)).lost;
    }
    assert_eq!((lost, log.waiting()), (2, MOST_KEPT + 1));
    assert_eq!(ask(&log, 3, Some(65), Some(65), 80).gaps.len(), 1, "before it is written, too");
    disk.full.store(false, Ordering::SeqCst);
    log.mark(What::Alive {}, at(90));
    let again = Log::open(disk, LIMITS).unwrap();
    let gap = &ask(&again, 3, Some(65), Some(65), 100).gaps[0];
    assert_eq!((gap.kind, gap.from, gap.to), (GapKind::Lost, Some(at(50)), Some(at(90))));
    assert!(gap.message.starts_with("2 records could not be written between "), "{}", gap.message);
    assert_eq!(ask(&again, 2, Some(25), Some(25), 100).periods, [released(&second, 50)]);
}

#[test]
fn a_file_that_is_gone_or_damaged_takes_nothing_else_with_it() {
    let disk = Disk::default();
    let log = Log::open(disk.clone(), LIMITS).unwrap();
    log.mark(started(), at(1));
    // More than the limit, so that the oldest files go.
    for number in 0..600 {
        let hold = held(1, number + 1, 10 * i64::try_from(number).unwrap());
        let second = 10 * i64::try_from(number).unwrap();
        log.take(change(hold.clone(), second), at(second));
        log.take(change(released(&hold, second + 5), second + 5), at(second + 5));
    }
    assert!(disk.bytes() <= LIMITS.bytes && disk.bytes() > LIMITS.bytes / 2, "{} bytes", disk.bytes());
    let begins = log.extent().1.unwrap();
    let answer = ask(&log, 1, None, None, 6_000);
    assert_eq!((answer.begins, answer.gaps[0].kind), (Some(begins), GapKind::Before));
    assert!(answer.periods.len() > 100 && answer.periods.len() < 600);
    assert!(answer.periods.iter().all(|period| period.to.unwrap() >= begins), "a period that ended was kept");
    // One line in the middle is damaged.
    let middle = *disk.files.lock().unwrap().keys().nth(8).unwrap();
    disk.files.lock().unwrap().get_mut(&middle).unwrap()[40] ^= 1;
    let again = Log::open(disk, LIMITS).unwrap();
    let damaged = ask(&again, 1, None, None, 6_000);
    assert!(damaged.periods.len() + 1 >= answer.periods.len());
    assert_eq!(
        damaged.gaps.iter().filter(|gap| gap.kind == GapKind::Damaged).count(),
        1,
        "{:?}",
        damaged.gaps
    );
}

/// What happens to an agent.
#[derive(Clone, Debug)]
enum Step {
    Add(u8),
    Del(u8),
    /// It is killed while this many bytes are written, and starts again a while later.
    Crash {
        torn: usize,
        late: bool,
    },
    Stop,
    Full(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0_u8..4).prop_map(Step::Add),
        6 => (0_u8..4).prop_map(Step::Del),
        1 => (0_usize..200, any::<bool>()).prop_map(|(torn, late)| Step::Crash { torn, late }),
        1 => Just(Step::Stop),
        1 => any::<bool>().prop_map(Step::Full),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    /// The log never says that somebody had an address who had not; and says that nobody had it, with no gap at that time, only
    /// if nobody had.
    #[test]
    fn it_never_says_more_than_was_nor_less_than_it_admits(steps in steps()) {
        let disk = Disk::default();
        let mut log = Log::open(disk.clone(), LIMITS).unwrap();
        log.start(started(), Vec::new(), at(0));
        let mut holds: BTreeMap<u8, Period> = BTreeMap::new();
        let mut truth: Vec<BTreeMap<u8, String>> = vec![BTreeMap::new()];
        let (mut sequence, mut second) = (0, 0);
        for step in steps {
            second += 1;
            match step {
                Step::Add(address) if !holds.contains_key(&address) => {
                    sequence += 1;
                    let hold = held(address, sequence, second);
                    holds.insert(address, hold.clone());
                    log.take(change(hold, second), at(second));
                }
                Step::Del(address) => {
                    if let Some(hold) = holds.remove(&address) {
                        log.take(change(released(&hold, second), second), at(second));
                    }
                }
                Step::Crash { torn, late } => {
                    disk.tear(torn);
                    log = Log::open(disk.clone(), LIMITS).unwrap();
                    if late {
                        // Nothing happens while no agent runs, but containers that end.
                        let now = holds.iter().map(|(address, it)| (*address, it.holder.container.clone()));
                        truth.push(now.collect());
                        second += 1;
                        holds.pop_first();
                    }
                    log.start(started(), holds.values().cloned().collect(), at(second));
                }
                Step::Stop => {
                    log.mark(What::Stopped {}, at(second));
                    log = Log::open(disk.clone(), LIMITS).unwrap();
                    log.start(started(), holds.values().cloned().collect(), at(second));
                }
                Step::Full(full) => disk.full.store(full, Ordering::SeqCst),
                Step::Add(_) => {}
            }
            let now = holds.iter().map(|(address, it)| (*address, it.holder.container.clone()));
            truth.push(now.collect());
        }
        prop_assert!(disk.bytes() <= LIMITS.bytes + 200, "{} bytes", disk.bytes());
        for (second, expected) in (0..).zip(&truth) {
            for address in 0..4 {
                let answer = ask(&log, address, Some(second), Some(second), 1_000);
                let had: Vec<(Had, &str)> = answer.periods.iter()
                    .map(|period| (period.had(at(second)), period.holder.container.as_str()))
                    .collect();
                let certain: Vec<&str> =
                    had.iter().filter(|(had, _)| *had == Had::Yes).map(|(_, name)| *name).collect();
                match expected.get(&address) {
                    Some(holder) if certain.is_empty() => {
                        let admits = !answer.gaps.is_empty() || had.iter().any(|(_, name)| name == holder);
                        prop_assert!(admits, "second {second}: {holder} is not known: {answer:?}");
                    }
                    Some(holder) => prop_assert_eq!(certain, [holder.as_str()], "second {}", second),
                    None => prop_assert!(
                        certain.is_empty() || !answer.gaps.is_empty(),
                        "second {second}: nobody had it: {answer:?}"
                    ),
                }
            }
        }
    }
}
