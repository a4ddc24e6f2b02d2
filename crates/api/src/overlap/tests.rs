use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn pool(name: &str, created: Option<&str>, subnets: &Value) -> AddressPool {
    serde_json::from_value(json!({
        "apiVersion": "coil.cybozu.com/v2",
        "kind": "AddressPool",
        "metadata": {"name": name, "creationTimestamp": created},
        "spec": {"blockSizeBits": 5, "subnets": subnets},
    }))
    .unwrap()
}

fn withheld(overlap: &Overlap) -> Vec<(u128, u128)> {
    overlap.withheld.iter().map(|interval| (*interval.start(), *interval.end())).collect()
}

const OLD: Option<&str> = Some("2026-01-01T00:00:00Z");
const NEW: Option<&str> = Some("2026-01-02T00:00:00Z");

#[test]
fn pools_that_share_nothing_do_not_overlap() {
    let a = pool("a", OLD, &json!([{"ipv4": "10.0.0.0/24"}, {"ipv6": "fd00::/112"}]));
    let b = pool("b", NEW, &json!([{"ipv4": "10.0.1.0/24", "ipv6": "fd00::1:0/120"}]));
    assert_eq!(overlaps([&a, &b]), Overlaps::default());
}

#[test]
fn the_younger_pool_carries_the_overlap_and_keeps_its_other_blocks() {
    let older = pool("z-older", OLD, &json!([{"ipv4": "10.0.1.0/26"}]));
    let younger = pool("a-younger", NEW, &json!([{"ipv4": "10.9.0.0/27"}, {"ipv4": "10.0.0.0/16"}]));
    for order in [[&older, &younger], [&younger, &older]] {
        let found = overlaps(order);
        assert_eq!(found.younger.keys().collect::<Vec<_>>(), ["a-younger"]);
        let overlap = &found.younger["a-younger"];
        assert_eq!(
            withheld(overlap),
            [(9, 10)],
            "10.0.1.0/26 is the ninth and tenth block of 32 after the first subnet's one"
        );
        assert_eq!(overlap.reason(), "OverlapsOlderPool");
        assert_eq!(
            overlap.message(),
            "10.0.1.0/26 belongs to the older pool \"z-older\"; 2 blocks are not handed out from here"
        );
    }
}

#[test]
fn a_pool_inside_an_older_one_hands_out_nothing() {
    let older = pool("older", OLD, &json!([{"ipv4": "10.0.0.0/8"}]));
    let younger = pool("younger", NEW, &json!([{"ipv4": "10.1.0.0/24"}, {"ipv4": "10.2.0.0/24"}]));
    let found = overlaps([&older, &younger]);
    let overlap = &found.younger["younger"];
    assert_eq!((withheld(overlap), overlap.everything), (vec![(0, 15)], true));
    assert_eq!(overlap.reason(), "InsideOlderPool");
    assert_eq!(
        overlap.message(),
        "10.1.0.0/24, 10.2.0.0/24 belongs to the older pool \"older\"; no block is handed out from here"
    );
}

#[test]
fn one_shared_address_withholds_its_block_and_no_other() {
    let older = pool("older", OLD, &json!([{"ipv6": "fd00::21/123"}]));
    let younger = pool("younger", NEW, &json!([{"ipv4": "10.0.0.0/24", "ipv6": "fd00::/120"}]));
    let found = overlaps([&older, &younger]);
    assert_eq!(withheld(&found.younger["younger"]), [(1, 1)], "the pair goes, though IPv4 is its own");
    assert!(found.younger["younger"].message().ends_with("; 1 block is not handed out from here"));
}

#[test]
fn of_pools_of_the_same_second_the_name_decides_and_an_unstored_one_is_youngest() {
    let subnets = json!([{"ipv4": "10.0.0.0/24"}]);
    let (a, b) = (pool("a", OLD, &subnets), pool("b", OLD, &subnets));
    assert_eq!(overlaps([&b, &a]).younger.keys().collect::<Vec<_>>(), ["b"]);
    let unstored = pool("0", None, &subnets);
    assert_eq!(overlaps([&unstored, &a]).younger.keys().collect::<Vec<_>>(), ["0"]);
}

#[test]
fn every_older_pool_is_named() {
    let a = pool("a", OLD, &json!([{"ipv4": "10.0.0.0/24"}]));
    let b = pool("b", OLD, &json!([{"ipv4": "10.0.1.0/24"}]));
    let c = pool("c", NEW, &json!([{"ipv4": "10.0.0.0/16"}]));
    let found = overlaps([&c, &b, &a]);
    assert_eq!(found.younger.keys().collect::<Vec<_>>(), ["c"]);
    assert_eq!(found.younger["c"].older.keys().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(withheld(&found.younger["c"]), [(0, 15)]);
}

#[test]
fn a_pool_that_cannot_be_understood_is_named_and_the_others_are_compared() {
    let bad = pool("bad", OLD, &json!([{"ipv4": "10.0.0.0"}]));
    let a = pool("a", OLD, &json!([{"ipv4": "10.0.0.0/24"}]));
    let b = pool("b", NEW, &json!([{"ipv4": "10.0.0.0/25"}]));
    let found = overlaps([&bad, &a, &b]);
    assert!(
        found.invalid["bad"].to_string().starts_with("spec.subnets[0].ipv4: cannot read a network"),
        "{found:?}"
    );
    assert_eq!(found.younger.keys().collect::<Vec<_>>(), ["b"]);
}

proptest! {
    #[test]
    fn no_address_can_be_handed_out_by_two_pools(
        lists in proptest::collection::vec(proptest::collection::vec((0_u8..64, 24_u8..27), 1..4), 2..6)
    ) {
        let mut pools = Vec::new();
        for (number, list) in lists.iter().enumerate() {
            let subnets: Vec<Value> =
                list.iter().map(|(place, prefix)| json!({"ipv4": format!("10.0.{}.{}/{prefix}", place / 4, place % 4 * 64)})).collect();
            let pool = pool(&format!("p{number}"), OLD, &json!(subnets));
            // Subnets that overlap inside a pool are no pool.
            if EnginePool::try_from(&pool.spec).is_ok() {
                pools.push(pool);
            }
        }
        let found = overlaps(&pools);
        prop_assert!(found.invalid.is_empty());
        let mut owner: BTreeMap<Cidr, String> = BTreeMap::new();
        for pool in &pools {
            let engine = EnginePool::try_from(&pool.spec).unwrap();
            let overlap = found.younger.get(&pool.name_any());
            for index in 0..engine.pool().block_count() {
                if overlap.is_some_and(|overlap| overlap.withheld.contains(index)) {
                    continue;
                }
                let block = engine.pool().block(index).unwrap().ipv4.unwrap();
                let other = owner.insert(block, pool.name_any());
                prop_assert!(other.is_none(), "{} is in {:?} and {}", block, other, pool.name_any());
            }
        }
        // And nothing is withheld from everybody: each block that some pool has, one pool assigns.
        for pool in &pools {
            let engine = EnginePool::try_from(&pool.spec).unwrap();
            for index in 0..engine.pool().block_count() {
                let block = engine.pool().block(index).unwrap().ipv4.unwrap();
                prop_assert!(owner.contains_key(&block), "{} is handed out by nobody", block);
            }
        }
    }
}
