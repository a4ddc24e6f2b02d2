use tenure_handles::Timestamp;
use tenure_ipam::{Addresses, Sequence, Subnet};

use super::*;
use crate::journal::record::{BlockFacts, ClaimUseRecord, Held, Released};
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

/// Two claim users of one claim have the same addresses.
fn use_record(number: u8) -> ClaimUseRecord {
    let held = held(number);
    ClaimUseRecord {
        claim: "c1a1".into(),
        claim_name: "shop/vm".into(),
        pool: "default".into(),
        key: HoldKey::new("k8s", format!("g{number}"), "eth0").unwrap(),
        pod: held.pod,
        interface: true,
        addresses: vec![("10.9.0.7".parse().unwrap(), 32), ("fd09::7".parse().unwrap(), 128)],
        reached: number == 1,
        since: held.since,
        netns: "/run/netns/g".into(),
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
    records.extend([1, 2].map(|number| Record::ClaimUse(use_record(number))));
    records.push(Record::ClaimUseEnded(use_record(2)));
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

/// A hold as agents before claims read it.
#[derive(Clone, PartialEq, prost::Message)]
struct HoldBefore {
    #[prost(string, tag = "1")]
    block: String,
    #[prost(string, tag = "3")]
    container: String,
    #[prost(bool, tag = "8")]
    interface: bool,
    #[prost(bytes = "vec", tag = "9")]
    ipv4: Vec<u8>,
    #[prost(bytes = "vec", tag = "10")]
    ipv6: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RecordBefore {
    #[prost(message, optional, tag = "4")]
    held: Option<HoldBefore>,
}

/// An agent that knows no claim users keeps their addresses back: each is a hold of a block of which it knows nothing.
#[test]
fn a_claim_user_is_a_hold_of_an_unknown_block_to_agents_before_claims() {
    let read = |number| {
        let body = message::encode(&Record::ClaimUse(use_record(number)));
        RecordBefore::decode(&*body).unwrap().held.unwrap()
    };
    let (one, two) = (read(1), read(2));
    assert_eq!((one.container.as_str(), one.interface), ("g1", true));
    assert_eq!(one.ipv4, [10, 9, 0, 7]);
    assert_eq!(one.ipv6.len(), 16);
    assert_ne!(one.block, two.block, "else one would take the other's place");
    assert!(!one.block.is_empty());
}
