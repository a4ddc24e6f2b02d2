//! Offsets, exclusions, list and bitmap, and growth, against sets of plain numbers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

/// A pool in numbers: the network of a prefix length, first and last host part, and excluded host parts.
#[derive(Clone, Debug)]
struct Model {
    six: bool,
    bits: u8,
    first: u128,
    last: u128,
    excluded: Vec<(u128, u128)>,
}

impl Model {
    fn base(&self) -> u128 {
        if self.six { 0xfd00 << 112 } else { 10 << 24 }
    }

    fn address(&self, host: u128) -> Address {
        let bits = self.base() + host;
        if self.six {
            Address::from(IpAddr::from(Ipv6Addr::from_bits(bits)))
        } else {
            Address::from(IpAddr::from(Ipv4Addr::from_bits(u32::try_from(bits).unwrap())))
        }
    }

    fn spec(&self) -> NodeIPRange {
        let length = if self.six { 128 } else { 32 } - self.bits;
        NodeIPRange {
            cidr: format!("{}/{length}", self.address(0)),
            start: Some(self.address(self.first).to_string()),
            end: Some(self.address(self.last).to_string()),
            exclude: self
                .excluded
                .iter()
                .map(|(low, high)| format!("{}-{}", self.address(*low), self.address(*high)))
                .collect(),
        }
    }

    /// Whether a host part is allocated, said in plain numbers.
    fn is_usable(&self, host: u128) -> bool {
        let edge = self.bits >= 2 && (host == 0 || !self.six && host + 1 == 1 << self.bits);
        let excluded = self.excluded.iter().any(|(low, high)| (*low..=*high).contains(&host));
        (self.first..=self.last).contains(&host) && !edge && !excluded
    }
}

prop_compose! {
    fn models()(six in any::<bool>(), bits in 0_u8..13)
        (six in Just(six), bits in Just(bits),
         ends in (0..1_u128 << bits, 0..1_u128 << bits),
         excluded in proptest::collection::vec((0..1_u128 << bits, 0..1_u128 << bits), 0..4))
        -> Model
    {
        let ordered = |(one, other): (u128, u128)| (one.min(other), one.max(other));
        let (first, last) = ordered(ends);
        let excluded = excluded.into_iter().map(ordered).map(|(low, high)| (low, high.min(low + 9))).collect();
        Model { six, bits, first, last, excluded }
    }
}

proptest! {
    #[test]
    fn every_address_has_the_offset_of_its_distance_from_the_start(model in models(), host in 0_u128..8192) {
        let pool = NodeRange::of(&model.spec()).unwrap();
        prop_assert_eq!(pool.size(), model.last - model.first + 1);
        let usable = (model.first..=model.last).filter(|host| model.is_usable(*host)).count();
        prop_assert_eq!(pool.capacity(), usable as u128);
        let host = host % (1 << model.bits);
        let address = model.address(host);
        prop_assert_eq!(pool.is_usable(address), model.is_usable(host));
        let inside = (model.first..=model.last).contains(&host);
        prop_assert_eq!(pool.offset(address).ok(), inside.then(|| host - model.first));
        if inside {
            prop_assert_eq!(pool.address(host - model.first).unwrap(), address);
        }
    }

    #[test]
    fn list_and_bitmap_say_what_was_written(model in models(), taken in proptest::collection::btree_set(0_u128..4096, 0..40)) {
        let pool = NodeRange::of(&model.spec()).unwrap();
        let taken: BTreeSet<u128> = taken.into_iter().filter(|offset| *offset < pool.size()).collect();
        let mut status = NodeIPPoolStatus::default();
        pool.encode(&mut status, taken.iter().copied()).unwrap();
        prop_assert_eq!(status.allocated_bitmap.is_some(), pool.size() > LISTED);
        prop_assert_eq!(pool.decode(&status), Taken { offsets: taken, refused: Vec::new() });
    }

    #[test]
    fn a_pool_that_grows_keeps_every_offset(model in models(), more in 0_u128..4096, taken in proptest::collection::btree_set(0_u128..4096, 0..40)) {
        let pool = NodeRange::of(&model.spec()).unwrap();
        let taken: BTreeSet<u128> = taken.into_iter().filter(|offset| *offset < pool.size()).collect();
        let mut status = NodeIPPoolStatus::default();
        pool.encode(&mut status, taken.iter().copied()).unwrap();
        let larger = Model { last: (model.last + more).min((1 << model.bits) - 1), ..model };
        let grown = NodeRange::of(&larger.spec()).unwrap();
        // A list that has become too small a form for the pool is read all the same, and written as a bitmap.
        prop_assert_eq!(grown.decode(&status).offsets, taken);
        prop_assert_eq!(grown.first(), pool.first());
    }

    #[test]
    fn the_allocator_gives_every_usable_address_once_lowest_first(model in models()) {
        let pool = NodeRange::of(&model.spec()).unwrap();
        let mut block = pool.block::<u128>(Duration::ZERO);
        let now = now();
        let usable: Vec<u128> = (model.first..=model.last).filter(|host| model.is_usable(*host)).collect();
        for (key, host) in usable.iter().enumerate() {
            let hold = block.hold(key as u128, tenure_ipam::Choice::LowestFree, now).unwrap().hold();
            prop_assert_eq!(hold.addresses.iter().next(), Some(model.address(*host)));
        }
        prop_assert!(block.hold(u128::MAX, tenure_ipam::Choice::LowestFree, now).is_err());
    }
}

fn now() -> tenure_handles::Timestamp {
    tenure_handles::Timestamp::from_millis(1_800_000_000_000)
}
