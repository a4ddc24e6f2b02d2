//! Bytes that are almost a snapshot: accepted only if they are exactly one.

use proptest::prelude::*;
use tenure_handles::Timestamp;

use super::*;
use crate::block::{Choice, MoveId, Sequence};
use crate::range::{Exclusion, Range};

/// A block with something in every part of its snapshot.
fn full_of_everything() -> Block<(String, u64)> {
    let now = Timestamp::from_millis(5_000);
    let range = Range::every("10.0.0.0/24".parse().unwrap());
    let exclusions =
        ["10.0.0.3/32", "10.0.0.96/28"].map(|text| Exclusion::from(text.parse::<crate::Cidr>().unwrap()));
    let mut block = Block::new(range.without(exclusions), std::time::Duration::from_millis(1_234));
    let address = |offset| block_address(offset);
    block.reserve(address(8), address(12)).unwrap();
    block.reserve(address(200), address(201)).unwrap();
    let mut sequences = Vec::new();
    for n in 0..20 {
        sequences.push(block.hold(("key".into(), n), Choice::NextAfterLast, now).unwrap().hold().sequence);
    }
    for n in [3_u64, 7, 5] {
        block.release(&("key".into(), n), sequences[usize::try_from(n).unwrap()], now);
    }
    block.replay(("stray".into(), 1), address(100), Some(Sequence(77))).unwrap();
    for (n, id) in [(1_u64, 4), (2, 5), (4, 6)] {
        let from = ("key".into(), n);
        block
            .begin_move(&from, sequences[usize::try_from(n).unwrap()], ("moved".into(), n), MoveId(id))
            .unwrap();
    }
    block.commit_move(&("moved".into(), 1), MoveId(4)).unwrap();
    block.abort_move(&("moved".into(), 2), MoveId(5)).unwrap();
    block
}

fn block_address(offset: u128) -> crate::Address {
    "10.0.0.0".parse::<crate::Address>().unwrap().plus(offset).unwrap()
}

fn sealed(content: &[u8]) -> Vec<u8> {
    let mut bytes = HEAD.to_vec();
    bytes.extend_from_slice(content);
    let sum = checksum(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn a_block_with_something_in_every_part_comes_back() {
    let bytes = full_of_everything().snapshot();
    assert_eq!(Block::<(String, u64)>::restore(&bytes).unwrap().snapshot(), bytes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn invariant_10_no_bytes_make_restore_panic(content in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Block::<String>::restore(&content).is_err());
        let bytes = sealed(&content);
        if let Ok(block) = Block::<u64>::restore(&bytes) {
            prop_assert_eq!(block.snapshot(), bytes);
        }
    }

    #[test]
    fn invariant_10_a_changed_snapshot_with_a_right_checksum_is_refused_or_means_what_it_says(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..3), 1..4),
    ) {
        let whole = full_of_everything().snapshot();
        let mut content = whole[HEAD.len()..whole.len() - CHECKSUM_LEN].to_vec();
        for (at, byte, kind) in changes {
            let at = at.index(content.len());
            match kind {
                0 => content[at] = byte,
                1 => content.insert(at, byte),
                _ => { content.remove(at); }
            }
        }
        let bytes = sealed(&content);
        if let Ok(mut block) = Block::<(String, u64)>::restore(&bytes) {
            prop_assert_eq!(block.snapshot(), bytes);
            // It is a working block: everything in it can be released, and everything free be held.
            let now = Timestamp::from_millis(u64::MAX);
            let holds: Vec<_> = block.holds().map(|entry| (entry.active.key.clone(), entry.active.sequence)).collect();
            for (key, sequence) in holds {
                block.release(&key, sequence, now);
            }
            let _ = block.hold(("new".into(), 0), Choice::LowestFree, now);
            let _ = block.hold(("new".into(), 1), Choice::NextAfterLast, now);
            let counts = block.counts();
            prop_assert!(counts.free <= counts.capacity);
        }
    }
}
