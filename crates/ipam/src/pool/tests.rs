//! Blocks numbered through the list, and the ways in which a pool may not change.

use proptest::prelude::*;

use super::*;

fn single(text: &str) -> Subnet {
    Subnet::single(text.parse().unwrap())
}

fn dual(ipv4: &str, ipv6: &str) -> Subnet {
    Subnet::dual(ipv4.parse().unwrap(), ipv6.parse().unwrap())
}

#[test]
fn blocks_are_numbered_through_all_subnets_and_the_lowest_free_one_is_found() {
    let pool =
        Pool::new([dual("10.2.0.0/29", "fd01:0203::/125"), dual("10.3.0.0/30", "fd02::/126")], 1).unwrap();
    assert_eq!((pool.block_count(), pool.address_count()), (6, 12));
    let mut taken = IntervalSet::new();
    for index in 0..6 {
        assert_eq!(pool.lowest_free(&taken), Some(index));
        taken.insert(index, index);
    }
    assert_eq!(pool.lowest_free(&taken), None);
    taken.remove(4, 4);
    assert_eq!(pool.lowest_free(&taken), Some(4));
    assert_eq!(pool.block(4), Some(dual("10.3.0.0/31", "fd02::/127")));
    assert_eq!(pool.block(6), None);
}

#[test]
fn a_pool_of_more_than_two_to_the_64th_blocks_works() {
    let pool = Pool::new([single("fd00::/16"), single("10.0.0.0/8")], 5).unwrap();
    assert_eq!(pool.block_count(), (1 << 107) + (1 << 19));
    let mut taken = IntervalSet::new();
    taken.insert(0, (1 << 70) - 1);
    let index = pool.lowest_free(&taken).unwrap();
    assert_eq!((index, pool.block(index)), (1 << 70, Some(single("fd00:0:0:800::/123"))));
    assert_eq!(pool.index_of(&single("fd00:0:0:800::/123")), Some(1 << 70));
    assert_eq!(pool.block(pool.last_index()), Some(single("10.255.255.224/27")));
    let all = Pool::new([single("::/0")], 0).unwrap();
    assert_eq!(
        (all.block_count(), all.block(u128::MAX)),
        (u128::MAX, Some(single("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128")))
    );
    assert!(matches!(
        Pool::new([single("::/0"), single("10.0.0.0/8")], 0),
        Err(PoolError::TooManyBlocks { position: 1 })
    ));
}

#[test]
fn a_list_that_makes_no_pool_is_refused_by_position_value_and_what_would_do() {
    let empty = Subnet { ipv4: None, ipv6: None };
    let swapped = Subnet { ipv4: "fd00::/64".parse().ok(), ipv6: None };
    for (subnets, bits, message) in [
        (vec![], 5, "the pool has no subnet: accepted is a list of at least one"),
        (vec![empty], 5, "subnet 0 has no network: accepted is an IPv4 network, an IPv6 network or both"),
        (vec![swapped], 5, "subnet 0 has fd00::/64 as its IPv4 network: accepted is an IPv4 network"),
        (
            vec![single("10.0.0.0/24"), single("10.1.0.0/28")],
            5,
            "subnet 1, 10.1.0.0/28, is smaller than a block of 2^5 addresses: accepted is a network with at least 5 host \
             bits, and it has 4",
        ),
        (
            vec![dual("10.0.0.0/24", "fd00::/64")],
            5,
            "subnet 0 pairs 10.0.0.0/24 with fd00::/64, which have 8 and 64 host bits: accepted is an IPv6 prefix of 120",
        ),
        (
            vec![single("10.1.0.0/16"), single("fd00::/64"), single("10.0.0.0/8")],
            5,
            "subnet 2, 10.0.0.0/8, overlaps subnet 0, 10.1.0.0/16: accepted are disjoint subnets",
        ),
    ] {
        assert_eq!(Pool::new(subnets, bits).unwrap_err().to_string(), message);
    }
    assert!(matches!(Pool::new([single("10.0.0.0/8")], 200), Err(PoolError::TooSmall { .. })));
}

#[test]
fn blocks_that_overlap_another_network_are_told_apart() {
    let pool = Pool::new([single("10.0.0.0/24"), dual("10.1.0.0/24", "fd00::/120")], 5).unwrap();
    let overlap = |text: &str| pool.indexes_overlapping(&text.parse().unwrap()).collect::<Vec<_>>();
    assert_eq!(overlap("10.0.0.0/8"), [0..=7, 8..=15]);
    assert_eq!(overlap("10.0.0.64/26"), [2..=3]);
    assert_eq!(overlap("10.1.0.33/32"), [9..=9]);
    assert_eq!(overlap("fd00::80/121"), [12..=15]);
    assert_eq!(overlap("10.2.0.0/16"), []);
    let between = |first: &str, last: &str| {
        pool.indexes_between(first.parse().unwrap(), last.parse().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(between("10.0.0.255", "10.1.0.31"), [7..=7, 8..=8]);
    assert_eq!(between("9.0.0.0", "10.0.0.0"), [0..=0]);
    assert_eq!(between("10.0.1.0", "10.0.255.255"), []);
    assert_eq!(between("fd00::1f", "fd00::20"), [8..=9]);
}

#[test]
fn a_block_of_a_pool_becomes_the_space_of_a_block() {
    assert_eq!(dual("10.0.0.0/27", "fd00::/123").space().unwrap().unwrap().capacity(), 32);
    assert_eq!(single("fd00::/123").space().unwrap().unwrap().capacity(), 32);
    assert_eq!(Subnet { ipv4: None, ipv6: None }.space(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn every_block_is_found_by_its_number_and_by_every_address(
        shapes in prop::collection::vec((0_u8..4, 0_u8..3), 1..5),
        block_bits in 0_u8..=2,
        taken in prop::collection::vec(0_u128..40, 0..40),
    ) {
        let subnets: Vec<Subnet> = (0_u32..).zip(&shapes).map(|(n, (more, kind))| {
            let cidr = |family: Family, bits| {
                Cidr::new(Address::new(family, bits).unwrap(), family.bits() - block_bits - more).unwrap()
            };
            let ipv4 = cidr(Family::V4, u128::from(0x0a00_0000 + n * 64));
            let ipv6 = cidr(Family::V6, u128::from(n) << 100);
            [Subnet::single(ipv4), Subnet::single(ipv6), Subnet::dual(ipv4, ipv6)][usize::from(*kind)]
        }).collect();
        let pool = Pool::new(subnets.clone(), block_bits).unwrap();
        let cut = |cidr: Cidr| Slices::new(cidr, cidr.family().bits() - block_bits).unwrap();
        let naive: Vec<Subnet> = subnets.iter().flat_map(|subnet| {
            let (ipv4, ipv6) = (subnet.ipv4.map(cut), subnet.ipv6.map(cut));
            let count = ipv4.or(ipv6).unwrap().count();
            (0..count).map(move |index| Subnet {
                ipv4: ipv4.and_then(|slices| slices.get(index)),
                ipv6: ipv6.and_then(|slices| slices.get(index)),
            })
        }).collect();
        prop_assert_eq!(pool.block_count(), naive.len() as u128);
        prop_assert_eq!(pool.subnets().collect::<Vec<_>>(), subnets);
        for (index, block) in (0_u128..).zip(&naive) {
            prop_assert_eq!(pool.block(index), Some(*block));
            prop_assert_eq!(pool.index_of(block), Some(index));
            for cidr in [block.ipv4, block.ipv6].into_iter().flatten() {
                prop_assert_eq!(pool.index_of_address(cidr.last()), Some(index));
                prop_assert_eq!(pool.indexes_overlapping(&cidr).collect::<Vec<_>>(), [index..=index]);
            }
        }
        let set: IntervalSet = taken.iter().map(|index| *index..=*index).collect();
        prop_assert_eq!(pool.lowest_free(&set), (0..pool.block_count()).find(|index| !taken.contains(index)));
    }
}
