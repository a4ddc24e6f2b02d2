use tenure_ipam::{Sequence, Subnet};

use super::*;
use crate::key::{HoldKey, Pod};

fn held(container: &str, last: u8, sequence: u64) -> Held {
    Held {
        block: "uid-1".into(),
        key: HoldKey::new("net", container, "eth0").unwrap(),
        pod: Pod::default(),
        interface: true,
        addresses: Addresses { ipv4: Some([10, 0, 0, last].into()), ipv6: None },
        sequence: Sequence::from_u64(sequence),
        since: Timestamp::from_millis(1_000 + sequence),
        netns: String::new(),
    }
}

fn released(container: &str, last: u8, sequence: u64, at: u64) -> Record {
    let (at, until) = (Timestamp::from_millis(at), Timestamp::from_millis(at + 30_000));
    Record::Released(Released { hold: held(container, last, sequence), at, until })
}

fn image(records: impl IntoIterator<Item = Record>) -> Image {
    let mut image = Image::default();
    records.into_iter().for_each(|record| image.apply(record));
    image
}

fn holders(image: &Image) -> Vec<(String, u64)> {
    image.holds().map(|held| (held.key.container().to_owned(), held.sequence.as_u64())).collect()
}

#[test]
fn a_late_or_repeated_release_never_touches_a_successor() {
    let records = [
        Record::Held(held("a", 1, 1)),
        released("a", 1, 1, 2_000),
        Record::Held(held("b", 1, 2)),
        released("a", 1, 1, 2_000),
    ];
    assert_eq!(holders(&image(records)), [("b".to_owned(), 2)]);
}

#[test]
fn a_hold_that_moves_to_another_block_is_held_once() {
    let mut moved = held("a", 1, 1);
    moved.block = "uid-2".into();
    let image = image([Record::Held(held("a", 1, 7)), Record::Held(moved.clone())]);
    assert_eq!(image.holds().collect::<Vec<_>>(), [&moved]);
}

#[test]
fn when_the_release_is_missing_the_address_still_has_one_holder() {
    let image = image([Record::Held(held("a", 1, 1)), Record::Held(held("b", 1, 2))]);
    assert_eq!(holders(&image), [("b".to_owned(), 2)]);
    let released_first = self::image([released("a", 1, 1, 2_000), Record::Held(held("a", 1, 1))]);
    assert_eq!(holders(&released_first), [("a".to_owned(), 1)], "a hold stands rather than getting lost");
}

#[test]
fn a_forgotten_block_takes_everything_with_it() {
    let subnet = Subnet::single("10.0.0.0/29".parse().unwrap());
    let facts = BlockFacts {
        uid: "uid-1".into(),
        name: "p-0".into(),
        pool: "p".into(),
        subnet,
        realm: String::new(),
    };
    let image = image([
        Record::Owned(facts),
        Record::Fenced { uid: "uid-1".into() },
        released("a", 1, 1, 2_000),
        Record::Forgotten { uid: "uid-1".into() },
    ]);
    assert!(image.is_empty());
}

#[test]
fn pruning_drops_what_has_cooled_but_never_the_youngest_number() {
    let mut image = image([
        released("a", 1, 1, 2_000),
        released("b", 2, 2, 2_100),
        released("c", 3, 3, 40_000),
        Record::Held(held("d", 4, 40)),
        released("e", 5, 50, 41_000),
        released("z", 6, 60, 2_000),
    ]);
    image.prune();
    let (_, block) = image.blocks().next().unwrap();
    let left: Vec<&str> = block.freed().iter().map(|(held, _)| held.key.container()).collect();
    assert_eq!(left, ["z", "c", "e"], "c and e cool, z has the youngest number");
    assert_eq!(holders(&image), [("d".to_owned(), 40)]);
}

#[test]
fn the_records_of_an_image_lead_back_to_it() {
    let image = image([
        Record::Fenced { uid: "uid-9".into() },
        Record::Held(held("a", 1, 1)),
        released("b", 2, 2, 5_000),
        Record::Held(held("c", 3, 3)),
    ]);
    assert_eq!(self::image(image.records()), image);
}

fn use_record(container: &str, since: u64, reached: bool) -> ClaimUseRecord {
    ClaimUseRecord {
        claim: "claim".into(),
        claim_name: "shop/vm".into(),
        pool: String::new(),
        key: HoldKey::new("net", container, "eth0").unwrap(),
        pod: Pod::default(),
        interface: true,
        addresses: vec![("10.9.0.7".parse().unwrap(), 32)],
        reached,
        since: Timestamp::from_millis(since),
        netns: String::new(),
    }
}

#[test]
fn claim_users_of_one_claim_are_side_by_side_and_a_late_end_never_touches_a_successor() {
    let first = use_record("a", 1_000, true);
    let records = [
        Record::ClaimUse(first.clone()),
        Record::ClaimUse(use_record("b", 1_001, false)),
        Record::ClaimUseEnded(first.clone()),
        Record::ClaimUse(use_record("a", 2_000, true)),
        Record::ClaimUseEnded(first),
        Record::ClaimUse(use_record("b", 1_001, true)),
    ];
    let image = image(records);
    let claim_uses: Vec<_> =
        image.claim_uses().map(|it| (it.key.container(), it.since.as_millis(), it.reached)).collect();
    assert_eq!(claim_uses.len(), 2);
    assert!(
        claim_uses.contains(&("a", 2_000, true)) && claim_uses.contains(&("b", 1_001, true)),
        "{claim_uses:?}"
    );
    assert!(!image.is_empty() && image.holds().next().is_none());
}

#[test]
fn a_key_holds_an_address_of_a_block_or_of_a_claim() {
    let hold = Record::Held(held("a", 1, 1));
    let claim_use = Record::ClaimUse(use_record("a", 5_000, true));
    let moved = image([hold.clone(), claim_use.clone()]);
    assert_eq!((moved.holds().count(), moved.claim_uses().count()), (0, 1));
    let back = image([claim_use, hold]);
    assert_eq!((back.holds().count(), back.claim_uses().count()), (1, 0));
}
