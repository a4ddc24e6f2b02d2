use std::fs;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use tenure_handles::Timestamp;
use tenure_ipam::{Addresses, Sequence, Subnet};

use super::*;
use crate::journal::record::{BlockFacts, Held, Known, Released};
use crate::key::{HoldKey, Pod};

fn here() -> Origin {
    Origin { boot: "boot-1".into(), node: "node-1".into() }
}

fn open(directory: &Path, origin: &Origin) -> (Opened, Receiver<Commit>) {
    let (told, tells) = mpsc::channel();
    let opened = Journal::open(directory, origin, move |commit| drop(told.send(commit))).unwrap();
    (opened, tells)
}

fn held(number: u64) -> Held {
    Held {
        block: "uid-1".into(),
        key: HoldKey::new("net", format!("c{number}"), "eth0").unwrap(),
        pod: Pod::default(),
        interface: true,
        addresses: Addresses {
            ipv4: Some(u32::try_from(0x0a00_0000 + number % 1024).unwrap().into()),
            ipv6: None,
        },
        sequence: Sequence::from_u64(number + 1),
        since: Timestamp::from_millis(number),
        netns: String::new(),
    }
}

fn owned() -> Record {
    let subnet = Subnet::single("10.0.0.0/22".parse().unwrap());
    Record::Owned(BlockFacts {
        uid: "uid-1".into(),
        name: "p-0".into(),
        pool: "p".into(),
        subnet,
        realm: String::new(),
    })
}

fn containers(image: &Image) -> Vec<String> {
    let mut containers: Vec<String> = image.holds().map(|held| held.key.container().to_owned()).collect();
    containers.sort();
    containers
}

/// Appends, and waits until all is committed.
fn append(opened: &Opened, tells: &Receiver<Commit>, records: Vec<Record>, position: u64) {
    opened.journal.append(records).unwrap();
    while tells.recv_timeout(Duration::from_secs(10)).unwrap() != Commit::UpTo(position) {}
}

/// Appends here and now, as soon as the journal's thread, which has told its last commit, has put the writer down.
fn append_now(opened: &Opened, mut records: Vec<Record>) -> Commit {
    for _ in 0..10_000 {
        match opened.journal.append_now(records) {
            Ok(commit) => return commit,
            Err(back) => records = back,
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("the journal's thread keeps the writer")
}

#[test]
fn what_was_committed_is_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let (opened, tells) = open(directory.path(), &here());
    assert!(opened.image.is_empty() && opened.notes.is_empty());
    append(&opened, &tells, vec![owned(), Record::Held(held(1)), Record::Held(held(2))], 3);
    // Not even the end of the process matters: the bytes are in the file.
    let copy = tempfile::tempdir().unwrap();
    fs::copy(opened.journal.path(), copy.path().join("journal")).unwrap();
    let (again, _) = open(copy.path(), &here());
    assert_eq!(containers(&again.image), ["c1", "c2"]);
    assert!(again.notes.is_empty());
}

#[test]
fn many_records_share_few_writes_and_all_are_committed_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let (opened, tells) = open(directory.path(), &here());
    for number in 0..500 {
        opened.journal.append(vec![Record::Held(held(number))]).unwrap();
    }
    let mut last = 0;
    while last < 500 {
        let Commit::UpTo(position) = tells.recv_timeout(Duration::from_secs(10)).unwrap() else { panic!() };
        assert!(position > last);
        last = position;
    }
    drop(opened);
    assert_eq!(open(directory.path(), &here()).0.image.holds().count(), 500);
}

/// A directory in memory, where journals are.
fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

#[test]
fn in_memory_a_record_is_committed_when_the_call_returns() {
    let directory = in_memory();
    let (opened, tells) = open(directory.path(), &here());
    for number in 1..=3 {
        assert_eq!(append_now(&opened, vec![Record::Held(held(number))]), Commit::UpTo(number));
    }
    let bytes = fs::read(opened.journal.path()).unwrap();
    let copy = tempfile::tempdir().unwrap();
    fs::write(copy.path().join("journal"), bytes).unwrap();
    assert_eq!(containers(&open(copy.path(), &here()).0.image), ["c1", "c2", "c3"]);
    // What others were told to write counts as well, and nobody is told twice.
    append(&opened, &tells, vec![Record::Held(held(4))], 4);
    assert_eq!(append_now(&opened, vec![Record::Held(held(5))]), Commit::UpTo(5));
    assert!(tells.try_recv().is_err());
}

#[test]
fn records_overtake_none_that_were_given_before_them() {
    let directory = in_memory();
    let (opened, tells) = open(directory.path(), &here());
    let mut told = 0;
    for number in 1..=500 {
        let records = vec![Record::Held(held(number))];
        let records = if number % 3 == 0 { Err(records) } else { opened.journal.append_now(records) };
        match records {
            Ok(commit) => assert_eq!(commit, Commit::UpTo(number), "all before it are committed, too"),
            Err(records) => {
                opened.journal.append(records).unwrap();
                told = number;
            }
        }
    }
    while tells.recv_timeout(Duration::from_secs(10)).unwrap() != Commit::UpTo(told) {}
    drop(opened);
    let (opened, _) = open(directory.path(), &here());
    assert_eq!((opened.image.holds().count(), opened.notes.len()), (500, 0));
}

#[test]
fn what_was_written_here_and_now_does_not_make_the_file_grow_either() {
    let directory = in_memory();
    let (opened, tells) = open(directory.path(), &here());
    for round in 0..5_000 {
        let (hold, at) = (held(round), Timestamp::from_millis(round));
        let released = Record::Released(Released { hold: hold.clone(), at, until: at });
        if let Err(records) = opened.journal.append_now(vec![Record::Held(hold), released]) {
            append(&opened, &tells, records, 2 * (round + 1));
        }
    }
    let path = opened.journal.path().to_owned();
    drop(opened);
    let len = fs::metadata(&path).unwrap().len();
    assert!(len < 300_000, "10,000 records of about 100 bytes leave {len}");
}

#[test]
fn where_a_write_may_wait_for_a_disk_the_thread_does_it() {
    let directory = tempfile::tempdir().unwrap();
    let (mut opened, tells) = open(directory.path(), &here());
    let file = fs::File::open(opened.journal.path()).unwrap();
    assert_eq!(opened.journal.in_memory, tenure_linux::memory::holds(file));
    opened.journal.in_memory = false;
    let records = opened.journal.append_now(vec![Record::Held(held(1))]).unwrap_err();
    append(&opened, &tells, records, 1);
}

#[test]
fn a_write_here_and_now_that_fails_is_left_to_the_thread_and_all_that_comes_later_as_well() {
    let directory = in_memory();
    let (opened, tells) = open(directory.path(), &here());
    let path = opened.journal.path().to_owned();
    let whole = {
        let read_only = fs::File::open(&path).unwrap();
        let mut writer = opened.journal.writer.lock().unwrap();
        let whole = fs::OpenOptions::new().append(true).open(&path).unwrap();
        writer.replace_file(read_only);
        whole
    };
    let failed = opened.journal.append_now(vec![Record::Held(held(1))]).unwrap();
    assert!(matches!(failed, Commit::Failed(_)), "{failed:?}");
    let later = opened.journal.append_now(vec![Record::Held(held(2))]).unwrap_err();
    opened.journal.writer.lock().unwrap().replace_file(whole);
    append(&opened, &tells, later, 2);
    drop(opened);
    assert_eq!(containers(&open(directory.path(), &here()).0.image), ["c1", "c2"]);
}

#[test]
fn what_waits_when_it_is_closed_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let (opened, _tells) = open(directory.path(), &here());
    opened.journal.append(vec![Record::Held(held(7))]).unwrap();
    drop(opened);
    assert_eq!(containers(&open(directory.path(), &here()).0.image), ["c7"]);
}

#[test]
fn a_torn_end_is_cut_and_said_and_writing_goes_on_behind_it() {
    let directory = tempfile::tempdir().unwrap();
    let (opened, tells) = open(directory.path(), &here());
    append(&opened, &tells, vec![Record::Held(held(1))], 1);
    let path = opened.journal.path().to_owned();
    drop(opened);
    let whole = fs::read(&path).unwrap();
    let torn = &whole[whole.len() - 30..whole.len() - 5];
    let mut longer = Vec::new();
    crate::journal::codec::put(&Record::Held(held(2)), &mut longer);
    longer.truncate(longer.len() - 3);
    fs::write(&path, [&whole[..], &longer].concat()).unwrap();
    let (opened, tells) = open(directory.path(), &here());
    assert_eq!(opened.notes, [Note::Torn { path: path.clone(), bytes: longer.len() }]);
    assert_eq!(containers(&opened.image), ["c1"], "{} bytes of noise", torn.len());
    append(&opened, &tells, vec![Record::Held(held(3))], 1);
    drop(opened);
    let (opened, _) = open(directory.path(), &here());
    assert_eq!(containers(&opened.image), ["c1", "c3"]);
    assert!(opened.notes.is_empty());
}

#[test]
fn a_journal_of_another_boot_is_set_aside_and_said() {
    let directory = tempfile::tempdir().unwrap();
    let (opened, tells) = open(directory.path(), &here());
    append(&opened, &tells, vec![Record::Held(held(1))], 1);
    drop(opened);
    let other = Origin { boot: "boot-2".into(), ..here() };
    let (opened, _) = open(directory.path(), &other);
    assert!(opened.image.is_empty());
    let [Note::SetAside { path, reason: Reason::Foreign { .. } }] = &opened.notes[..] else {
        panic!("{:?}", opened.notes)
    };
    assert!(path.exists(), "it can still be looked into");
    let said = opened.notes[0].to_string();
    assert!(said.contains("boot-1") && said.contains(&other.boot), "{said}");
}

/// Its containers run, whatever the node is called now.
#[test]
fn a_journal_of_another_name_of_this_node_counts_and_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let (opened, tells) = open(directory.path(), &here());
    append(&opened, &tells, vec![Record::Held(held(1))], 1);
    drop(opened);
    let other = Origin { node: "node-2".into(), ..here() };
    for notes in [1, 0] {
        let (opened, _) = open(directory.path(), &other);
        assert_eq!((containers(&opened.image), opened.notes.len()), (vec!["c1".to_owned()], notes));
        assert_eq!(opened.image.known(), Known::All, "it is whole");
    }
}

/// Until the node has marked what it doubts, every start finds that holds may be missing.
#[test]
fn a_journal_that_is_missing_damaged_or_no_journal_says_so_until_that_was_dealt_with() {
    let lost = |directory: &Path| {
        let opened = Journal::open_or_doubt(directory, &here(), Missing::Lost, |_| {}).unwrap();
        (opened.image.known(), opened.notes.len())
    };
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(lost(directory.path()), (Known::Lost, 1), "there is none, and an agent ran");
    assert_eq!(lost(directory.path()), (Known::Lost, 0), "a crash at once forgets nothing of that");
    let (opened, tells) = open(directory.path(), &here());
    append(&opened, &tells, vec![Record::Held(held(1)), Record::Known(Known::Asking)], 2);
    drop(opened);
    assert_eq!(lost(directory.path()), (Known::Asking, 0));
    let path = directory.path().join("journal");
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x20;
    fs::write(&path, &bytes).unwrap();
    assert_eq!(lost(directory.path()), (Known::Lost, 1));
    fs::write(&path, "nonsense").unwrap();
    assert_eq!(lost(directory.path()), (Known::Lost, 1));
    let fresh = tempfile::tempdir().unwrap();
    let (opened, _) = open(fresh.path(), &here());
    assert_eq!(opened.image.known(), Known::All, "no agent ran on this boot");
}

#[test]
fn a_damaged_journal_is_set_aside_and_what_is_left_of_it_is_used() {
    let directory = tempfile::tempdir().unwrap();
    let (opened, tells) = open(directory.path(), &here());
    append(&opened, &tells, (1..=3).map(|number| Record::Held(held(number))).collect(), 3);
    let path = opened.journal.path().to_owned();
    drop(opened);
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x20;
    fs::write(&path, &bytes).unwrap();
    let (opened, _) = open(directory.path(), &here());
    assert_eq!(containers(&opened.image), ["c1", "c3"]);
    let [Note::SetAside { path: aside, reason: Reason::Damaged { records: 2, .. } }] = &opened.notes[..]
    else {
        panic!("{:?}", opened.notes)
    };
    assert_eq!(fs::read(aside).unwrap(), bytes);
    drop(opened);
    let (opened, _) = open(directory.path(), &here());
    assert_eq!((containers(&opened.image), opened.notes.len()), (vec!["c1".to_owned(), "c3".to_owned()], 0));
}

#[test]
fn something_else_under_its_name_is_set_aside_however_often() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..12 {
        fs::write(directory.path().join("journal"), format!("not a journal {round}")).unwrap();
        let (opened, _) = open(directory.path(), &here());
        let [Note::SetAside { path, .. }] = &opened.notes[..] else { panic!("{:?}", opened.notes) };
        assert_eq!(fs::read(path).unwrap(), format!("not a journal {round}").as_bytes());
    }
    assert!(fs::read_dir(directory.path()).unwrap().count() <= 8 + 2, "and they do not fill the disk");
}

#[test]
fn two_processes_cannot_have_it_open() {
    let directory = tempfile::tempdir().unwrap();
    let (opened, _tells) = open(directory.path(), &here());
    let refused = Journal::open(directory.path(), &here(), |_| {});
    assert!(matches!(refused, Err(OpenError::Locked { .. })), "{refused:?}");
    drop(opened);
    open(directory.path(), &here());
}

#[test]
fn it_does_not_grow_with_what_is_over() {
    let directory = tempfile::tempdir().unwrap();
    let (opened, tells) = open(directory.path(), &here());
    append(&opened, &tells, vec![owned(), Record::Held(held(9_999))], 2);
    let mut position = 2;
    for round in 0..100 {
        let records: Vec<Record> = (0..50)
            .flat_map(|number| {
                let hold = held(round * 50 + number);
                let at = Timestamp::from_millis(round * 50 + number);
                [Record::Held(hold.clone()), Record::Released(Released { hold, at, until: at })]
            })
            .collect();
        position += records.len() as u64;
        append(&opened, &tells, records, position);
    }
    let path = opened.journal.path().to_owned();
    drop(opened);
    let len = fs::metadata(&path).unwrap().len();
    assert!(len < 300_000, "10,000 records of about 100 bytes leave {len}");
    assert_eq!(containers(&open(directory.path(), &here()).0.image), ["c9999"]);
}

#[test]
fn a_full_disk_is_said_and_everything_is_written_when_it_is_not_full_any_more() {
    let directory = tempfile::tempdir().unwrap();
    let (told, tells) = mpsc::channel();
    let path = directory.path().join("journal");
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let writer = Mutex::new(Writer::new(path.clone(), full, 0, here(), Image::default()));
    let (commands, received) = mpsc::channel();
    commands.send(Command::Append(vec![Record::Held(held(1))])).unwrap();
    commands.send(Command::Stop).unwrap();
    writer::run(&writer, &received, &AtomicUsize::new(2), move |commit| drop(told.send(commit)));
    let Commit::Failed(message) = tells.recv().unwrap() else { panic!("written to a full disk") };
    assert!(message.contains("No space left"), "{message}");
    // A file that refuses once: the record is still there for the next attempt.
    let (file, len) = writer::write_anew(&path, &here(), &Image::default()).unwrap();
    let read_only = fs::File::open(&path).unwrap();
    let mut writer = Writer::new(path.clone(), read_only, len, here(), Image::default());
    assert!(writer.try_commit(vec![Record::Held(held(1))]).is_err());
    writer.replace_file(file);
    assert_eq!(writer.try_commit(vec![Record::Held(held(2))]).unwrap(), 2);
    drop(writer);
    assert_eq!(containers(&open(directory.path(), &here()).0.image), ["c1", "c2"]);
}
