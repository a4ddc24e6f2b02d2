use proptest::prelude::*;
use serde_json::json;

use super::*;

fn spec(value: serde_json::Value) -> AddressPoolSpec {
    serde_json::from_value(value).unwrap()
}

fn engine(value: serde_json::Value) -> EnginePool {
    EnginePool::try_from(&spec(value)).unwrap()
}

fn intervals(set: &IntervalSet) -> Vec<(u128, u128)> {
    set.iter().map(|interval| (*interval.start(), *interval.end())).collect()
}

#[test]
fn a_pool_of_the_design_document_is_cut_as_it_says() {
    let engine = engine(json!({"subnets": [{"ipv4": "10.2.0.0/16", "ipv6": "fd01:0203:0405:0607::/112"}]}));
    let block = engine.pool().block(16).unwrap();
    assert_eq!(block.to_string(), "10.2.2.0/27 and fd01:203:405:607::200/123");
    assert_eq!(engine.pool().block_count(), 2048);
    assert_eq!((engine.rest(), engine.exclusions().len()), (None, 0));
}

#[test]
fn exclusions_of_every_form_leave_their_addresses_out_of_the_space() {
    let engine = engine(json!({
        "blockSizeBits": 4,
        "subnets": [{"ipv4": "10.2.0.0/24"}],
        "exclude": ["10.2.0.1", "10.2.0.4/30", "10.2.0.13-10.2.0.11"],
    }));
    let space = engine.space(&engine.pool().block(0).unwrap()).unwrap();
    let usable: Vec<u128> = (0..16).filter(|offset| space.is_usable(*offset)).collect();
    assert_eq!(usable, [0, 2, 3, 8, 9, 10, 14, 15]);
    assert_eq!(engine.address_capacity(), 256 - 8);
}

#[test]
fn an_excluded_address_takes_its_partner_with_it() {
    let engine = engine(json!({
        "blockSizeBits": 2,
        "subnets": [{"ipv4": "10.2.0.0/28", "ipv6": "fd00::/124"}],
        "exclude": ["10.2.0.0/31", "fd00::2/127", "fd00::f"],
    }));
    let space = engine.space(&engine.pool().block(3).unwrap()).unwrap();
    assert_eq!(space.capacity(), 3);
    assert_eq!(
        intervals(&engine.excluded_blocks()),
        [(0, 0)],
        "both halves of block 0 are excluded, by one family each"
    );
    assert_eq!(engine.address_capacity(), 16 - 5);
}

#[test]
fn blocks_that_are_excluded_as_a_whole_are_found_without_walking() {
    let engine = engine(json!({
        "subnets": [{"ipv6": "fd00::/64"}, {"ipv4": "10.2.0.0/24"}],
        "exclude": ["fd00::/65", "10.2.0.31-10.2.0.129"],
    }));
    let first_of_second = 1_u128 << 59;
    assert_eq!(
        intervals(&engine.excluded_blocks()),
        [(0, (1 << 58) - 1), (first_of_second + 1, first_of_second + 3)],
        "blocks 0 and 4 of the second subnet keep some addresses"
    );
    assert_eq!(engine.pool().lowest_free(&engine.excluded_blocks()), Some(1 << 58));
}

#[test]
fn a_pool_of_all_addresses_counts_as_far_as_numbers_go() {
    let engine = engine(json!({"blockSizeBits": 0, "subnets": [{"ipv6": "::/0"}], "exclude": ["8000::/1"]}));
    assert_eq!(intervals(&engine.excluded_blocks()), [(1 << 127, u128::MAX)]);
    assert_eq!(engine.address_capacity(), (1 << 127) - 1, "2^128 does not fit, so one is missing");
}

#[test]
fn usage_counts_blocks_and_addresses() {
    let engine = engine(json!({
        "blockSizeBits": 4,
        "subnets": [{"ipv4": "10.2.0.0/25"}],
        "exclude": ["10.2.0.0", "10.2.0.16/28"],
    }));
    let set =
        |list: &[(u128, u128)]| list.iter().map(|(first, last)| *first..=*last).collect::<IntervalSet>();
    let (blocks, addresses) = engine.usage(&set(&[(0, 0), (2, 2)]), &set(&[(2, 3)]));
    assert_eq!(blocks, PoolUsage::new(8, 2, 4), "blocks 0 and 2 are carved, 1 is excluded, 3 withheld");
    assert_eq!(addresses, PoolUsage::new(111, 31, 64));
    let (blocks, addresses) = engine.usage(&IntervalSet::new(), &IntervalSet::new());
    assert_eq!((blocks, addresses), (PoolUsage::new(8, 0, 7), PoolUsage::new(111, 0, 111)));
}

#[test]
fn cooling_is_read_in_every_unit() {
    for (text, expected) in [
        ("0s", Duration::ZERO),
        ("30s", Duration::from_secs(30)),
        ("1m30s", Duration::from_secs(90)),
        ("500ms", Duration::from_millis(500)),
        ("1.5h", Duration::from_mins(90)),
        ("24h", Duration::from_hours(24)),
    ] {
        let engine = engine(json!({"subnets": [{"ipv4": "10.2.0.0/16"}], "cooling": text}));
        assert_eq!(engine.rest(), Some(expected), "{text}");
    }
}

#[test]
fn what_was_stored_before_the_rules_is_refused_with_its_field_and_value() {
    let subnets = json!([{"ipv4": "10.2.0.0/16"}]);
    for (value, message) in [
        (
            json!({"subnets": [{"ipv4": "10.2.0.0/16"}, {"ipv6": "fd00::"}]}),
            "spec.subnets[1].ipv6: cannot read a network from \"fd00::\"",
        ),
        (
            json!({"subnets": [{"ipv4": "fd00::/112"}]}),
            "spec.subnets: subnet 0 has fd00::/112 as its IPv4 network",
        ),
        (
            json!({"subnets": [{"ipv4": "10.2.0.0/16"}, {"ipv4": "10.2.3.0/24"}]}),
            "spec.subnets: subnet 1, 10.2.3.0/24, overlaps subnet 0",
        ),
        (
            json!({"subnets": subnets, "blockSizeBits": -1}),
            "spec.blockSizeBits: -1 is no block size; accepted is 0 to 64",
        ),
        (json!({"subnets": subnets, "blockSizeBits": 65}), "spec.blockSizeBits: 65 is no block size"),
        (
            json!({"subnets": subnets, "exclude": ["10.2.0.1", "10.2.0.1-"]}),
            "spec.exclude[1]: cannot read an address from \"\"",
        ),
        (
            json!({"subnets": subnets, "exclude": ["10.2.0.1-fd00::1"]}),
            "spec.exclude[0]: cannot read a range of addresses from \"10.2.0.1-fd00::1\"",
        ),
        (
            json!({"subnets": subnets, "cooling": "soon"}),
            "spec.cooling: cannot read a duration from \"soon\"",
        ),
        (json!({"subnets": subnets, "cooling": ""}), "spec.cooling: cannot read a duration from \"\""),
        (json!({"subnets": subnets, "cooling": "25h"}), "spec.cooling: cannot read a duration from \"25h\""),
        (json!({"subnets": subnets, "cooling": "-1s"}), "spec.cooling: cannot read a duration from \"-1s\""),
    ] {
        let error = EnginePool::try_from(&spec(value)).unwrap_err().to_string();
        assert!(error.starts_with(message), "expected {message}\n     got {error}");
    }
}

/// A small pool of one or two subnets with some exclusions.
fn small_pool() -> impl Strategy<Value = EnginePool> {
    let excluded = proptest::collection::vec((0_u32..160, 0_u32..40), 0..6);
    (0_i32..4, 4_u32..7, any::<bool>(), excluded).prop_map(|(block_bits, host_bits, dual, excluded)| {
        let subnet = |number: u32| {
            let ipv4 = format!("10.0.0.{}/{}", number * 64, 32 - host_bits);
            if dual {
                json!({"ipv4": ipv4, "ipv6": format!("fd00::{number}:0/{}", 128 - host_bits)})
            } else {
                json!({"ipv4": ipv4})
            }
        };
        let exclude: Vec<String> = excluded
            .into_iter()
            .enumerate()
            .map(|(place, (first, length))| match place % 2 {
                1 if dual => format!("fd00::{:x}-fd00::{:x}", first % 64, first % 64 + length),
                _ => format!("10.0.0.{first}-10.0.0.{}", first + length),
            })
            .collect();
        engine(json!({"blockSizeBits": block_bits, "subnets": [subnet(0), subnet(1)], "exclude": exclude}))
    })
}

proptest! {
    #[test]
    fn counts_agree_with_walking_every_block(pool in small_pool(), carved: [bool; 8], withheld: [bool; 8]) {
        let chosen = |flags: [bool; 8]| {
            let blocks = (0..pool.pool().block_count()).filter(|index| flags[(index % 8) as usize]);
            blocks.map(|index| index..=index).collect::<IntervalSet>()
        };
        let (carved, withheld) = (chosen(carved), chosen(withheld));
        let (mut all, mut in_carved, mut free_blocks, mut free) = (0, 0, 0, 0);
        for index in 0..pool.pool().block_count() {
            let usable = pool.space(&pool.pool().block(index).unwrap()).unwrap().capacity();
            prop_assert_eq!(usable == 0, pool.excluded_blocks().contains(index), "block {}", index);
            all += usable;
            if carved.contains(index) {
                in_carved += usable;
            } else if usable > 0 && !withheld.contains(index) {
                free_blocks += 1;
                free += usable;
            }
        }
        prop_assert_eq!(pool.address_capacity(), all);
        let (blocks, addresses) = pool.usage(&carved, &withheld);
        prop_assert_eq!(blocks, PoolUsage::new(pool.pool().block_count(), carved.len(), free_blocks));
        prop_assert_eq!(addresses, PoolUsage::new(all, in_carved, free));
    }
}
