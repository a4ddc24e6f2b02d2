use tenure_handles::Timestamp;
use tenure_ipam::{Addresses, Sequence, Subnet};

use super::*;
use crate::journal::record::{BlockFacts, Held, Released};
use crate::key::{HoldKey, Pod};

fn origin() -> Origin {
    Origin { boot: "2b7f".into(), node: "node-1".into() }
}

fn held(number: u8) -> Held {
    Held {
        block: "9d5d1f9a".into(),
        key: HoldKey::new("k8s", format!("c{number}"), "eth0").unwrap(),
        pod: Pod { namespace: "shop".into(), name: format!("web-{number}"), uid: "u".into() },
        interface: number.is_multiple_of(2),
        addresses: Addresses { ipv4: Some([10, 0, 0, number].into()), ipv6: Some(u128::from(number).into()) },
        sequence: Sequence::from_u64(number.into()),
        since: Timestamp::from_millis(1_800_000_000_000),
        netns: String::new(),
    }
}

/// Five holds, of which every other is released: what a journal of a node looks like.
fn records() -> Vec<Record> {
    let subnet = Subnet::dual("10.0.0.0/27".parse().unwrap(), "fd00::/123".parse().unwrap());
    let facts = BlockFacts {
        uid: "9d5d1f9a".into(),
        name: "default-0".into(),
        pool: "default".into(),
        subnet,
        realm: String::new(),
    };
    let mut records = vec![Record::Owned(facts)];
    for number in 1..=5 {
        records.push(Record::Held(held(number)));
        if number.is_multiple_of(2) {
            let at = Timestamp::from_millis(1_800_000_001_000);
            let until = Timestamp::from_millis(1_800_000_031_000);
            records.push(Record::Released(Released { hold: held(number), at, until }));
        }
    }
    records.push(Record::Fenced { uid: "another".into() });
    records.push(Record::Forgotten { uid: "another".into() });
    records
}

fn image(records: &[Record]) -> Image {
    let mut image = Image::default();
    records.iter().cloned().for_each(|record| image.apply(record));
    image
}

/// A journal, and after how many bytes each record of it is whole.
fn journal(records: &[Record]) -> (Vec<u8>, Vec<usize>) {
    let mut bytes = begin(&origin());
    let mut ends = vec![bytes.len()];
    for record in records {
        put(record, &mut bytes);
        ends.push(bytes.len());
    }
    (bytes, ends)
}

#[test]
fn what_is_written_reads_back() {
    let (bytes, _) = journal(&records());
    let reading = read(&bytes).unwrap();
    assert_eq!(reading.origin, origin());
    assert_eq!(reading.image, image(&records()));
    assert_eq!(reading.records, records().len() as u64);
    assert_eq!((reading.whole, reading.torn, reading.damaged), (bytes.len(), 0, 0));
}

/// No hold that was committed is lost, and none that was released and committed comes back.
#[test]
fn cut_at_every_byte_it_says_exactly_what_was_whole() {
    let (records, (bytes, ends)) = (records(), journal(&records()));
    for len in ends[0]..bytes.len() {
        let reading = read(&bytes[..len]).unwrap();
        let whole = ends.iter().rposition(|end| *end <= len).unwrap();
        assert_eq!(reading.image, image(&records[..whole]), "cut at {len}");
        assert_eq!((reading.whole, reading.torn, reading.damaged), (ends[whole], len - ends[whole], 0));
    }
    for len in 0..ends[0] {
        assert!(read(&bytes[..len]).is_err(), "cut at {len}, within its beginning");
    }
}

/// Damage is never taken for a tail that was torn, and costs the damaged record only.
#[test]
fn every_flipped_byte_is_noticed_and_only_its_record_is_lost() {
    let (records, (bytes, ends)) = (records(), journal(&records()));
    for at in 0..bytes.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            match read(&damaged) {
                Err(_) => assert!(at < ends[0], "byte {at} is not of its beginning"),
                Ok(reading) => {
                    assert!(at >= ends[0]);
                    assert!(reading.damaged > 0 && reading.torn == 0, "byte {at}: {reading:?}");
                    let hit = ends.iter().rposition(|end| *end <= at).unwrap();
                    let mut others = records.clone();
                    others.remove(hit);
                    assert_eq!(reading.image, image(&others), "byte {at}");
                }
            }
        }
    }
}

#[test]
fn a_journal_of_another_version_is_refused_by_number() {
    let mut bytes = begin(&origin());
    bytes[7] = 9;
    let error = read(&bytes).unwrap_err();
    assert_eq!(error.to_string(), "the journal is of version 9, accepted is version 1");
}
