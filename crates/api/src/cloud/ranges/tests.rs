use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::cloud::{AliasPool, AliasRange, AliasRecord, IPLedger, IPLedgerSpec};

fn spec(cidr: &str, more: &[&str], exclude: &[&str]) -> AliasPoolSpec {
    let range =
        |cidr: &&str| AliasRange { cidr: (*cidr).to_owned(), secondary_range_name: "more".to_owned() };
    AliasPoolSpec {
        cidr: cidr.to_owned(),
        ranges: more.iter().map(range).collect(),
        exclude: exclude.iter().map(|&text| text.to_owned()).collect(),
        ..AliasPoolSpec::default()
    }
}

fn address(text: &str) -> Address {
    text.parse().unwrap()
}

#[test]
fn a_16_is_allocatable_to_the_last_address_in_256_small_ledgers() {
    let ranges = Ranges::of(&spec("10.111.0.0/16", &[], &[])).unwrap();
    assert_eq!((ranges.capacity(), ranges.ledgers()), (65_534, 256));
    let mut records: BTreeMap<u128, Vec<u8>> = BTreeMap::new();
    for number in 1..=65_534 {
        let address = address("10.111.0.0").plus(number).unwrap();
        assert!(ranges.is_usable(address), "{address}");
        let place = ranges.place(address).unwrap();
        assert_eq!(ranges.address(place), Some(address));
        records.entry(place.ledger).or_default().push(place.offset);
    }
    assert_eq!(records.len(), 256);
    assert_eq!(records.values().map(Vec::len).max(), Some(256), "no address has the place of another");
    for edge in ["10.111.0.0", "10.111.255.255", "10.112.0.1"] {
        assert!(!ranges.is_usable(address(edge)), "{edge}");
    }
}

#[test]
fn a_full_ledger_is_small() {
    let record = AliasRecord {
        node: "gke-production-europe-west4-default-pool-1a2b3c4d-wxyz".to_owned(),
        grant: "0123456789abcdef.12".to_owned(),
        moving: None,
        prefix: None,
        freed: Some(MicroTime(Timestamp::from_second(1_794_000_000).unwrap())),
    };
    let records = (0..256).map(|offset: u32| (offset.to_string(), record.clone())).collect();
    let spec = IPLedgerSpec {
        pool: "ippool-production".to_owned(),
        index: 255,
        cidr: "10.111.255.0/24".to_owned(),
        records,
    };
    let ledger = IPLedger { metadata: kube::core::ObjectMeta::default(), spec };
    let size = serde_json::to_vec(&ledger).unwrap().len();
    assert!(size < 40_000, "{size} bytes");
}

#[test]
fn ledgers_are_numbered_through_the_ranges_and_keep_their_numbers_when_ranges_are_appended() {
    let before = Ranges::of(&spec("10.0.0.0/23", &["10.9.0.0/26"], &[])).unwrap();
    let after = Ranges::of(&spec("10.0.0.0/23", &["10.9.0.0/26", "10.5.0.0/24"], &[])).unwrap();
    let ledgers = |ranges: &Ranges| -> Vec<String> {
        (0..8).filter_map(|index| ranges.ledger(index)).map(|(cidr, name)| format!("{cidr} {name}")).collect()
    };
    assert_eq!(ledgers(&before), ["10.0.0.0/24 live", "10.0.1.0/24 live", "10.9.0.0/26 more"]);
    assert_eq!(
        ledgers(&after),
        ["10.0.0.0/24 live", "10.0.1.0/24 live", "10.9.0.0/26 more", "10.5.0.0/24 more"]
    );
    assert_eq!((before.ledgers(), after.ledgers()), (3, 4));
    assert_eq!(after.place(address("10.9.0.5")), Some(LedgerOffset { ledger: 2, offset: 5 }));
    assert_eq!(after.place(address("10.8.0.5")), None);
    assert_eq!(after.address(LedgerOffset { ledger: 2, offset: 64 }), None, "the ledger has 64 addresses");
}

#[test]
fn what_is_excluded_is_not_counted() {
    let ranges =
        Ranges::of(&spec("10.0.0.0/24", &[], &["10.0.0.5", "10.0.0.16/28", "10.0.0.49-10.0.0.40"])).unwrap();
    assert_eq!(ranges.capacity(), 254 - 1 - 16 - 10);
    assert!(!ranges.is_usable(address("10.0.0.44")) && ranges.is_usable(address("10.0.0.50")));
    assert!(ranges.place(address("10.0.0.44")).is_some(), "what has it already has a record");
}

#[test]
fn a_pool_without_addresses_is_refused_by_its_field() {
    for (spec, said) in [
        (spec("10.0.0.0", &[], &[]), "spec.cidr: cannot read a network from \"10.0.0.0\""),
        (spec("10.0.0.0/24", &["x"], &[]), "spec.ranges[0].cidr: cannot read a network from \"x\""),
        (spec("10.0.0.0/31", &[], &[]), "spec.cidr: net mask is too short: 10.0.0.0/31"),
        (spec("10.0.0.0/24", &[], &["y"]), "spec.exclude: cannot read"),
    ] {
        let error = Ranges::of(&spec).unwrap_err().to_string();
        assert!(error.starts_with(said), "{error}");
    }
}

#[test]
fn ledgers_are_named_for_pool_and_number() {
    assert_eq!(ledger_name("ippool-default", 17).unwrap(), "ippool-default-17");
    let error = ledger_name("A", 0).unwrap_err().to_string();
    assert!(error.starts_with("naming a ledger of a pool: pool \"A\""), "{error}");
}

#[test]
fn an_object_of_the_prototype_is_read_and_written_as_it_was() {
    let object = serde_json::json!({
        "apiVersion": "ipam.gcp-cni.cast.ai/v1alpha1",
        "kind": "IPPool",
        "metadata": {"name": "ippool-default"},
        "spec": {
            "cidr": "10.111.0.0/16",
            "subnet": "projects/p/regions/europe-west4/subnetworks/default",
            "secondaryRangeName": "live",
            "allocations": {"10.111.0.5": {
                "podName": "web-0", "podNamespace": "shop", "podUID": "d9607e19-f88f-11e6-a518-42010a800195",
                "nodeName": "gke-a", "allocatedAt": "2026-01-02T03:04:05Z",
            }},
        },
        "status": {"capacity": 65534, "allocated": 1, "available": 65533, "lastUpdated": "2026-01-02T03:04:05Z"},
    });
    let pool: AliasPool = serde_json::from_value(object.clone()).unwrap();
    assert_eq!(serde_json::to_value(&pool).unwrap(), object);
    assert_eq!(pool.spec.allocations["10.111.0.5"].node_name, "gke-a");
    let bare = serde_json::json!({
        "metadata": {"name": "a"},
        "spec": {"cidr": "10.111.0.0/16", "subnet": "projects/p/regions/r/subnetworks/s",
            "allocations": {"10.111.0.5": {"podName": "", "podNamespace": "", "podUID": "", "nodeName": "", "allocatedAt": null}}},
        "status": {"lastUpdated": null},
    });
    let pool: AliasPool = serde_json::from_value(bare).unwrap();
    assert_eq!(pool.spec.secondary_range_name, "live");
}

proptest! {
    #[test]
    fn every_address_has_one_place_and_every_place_one_address(
        prefixes in proptest::collection::vec(18_u8..=30, 1..5), number in 0_u128..20_000
    ) {
        // Networks 10.0.0.0, 10.1.0.0, … do not overlap.
        let cidrs: Vec<String> = prefixes.iter().enumerate().map(|(at, prefix)| format!("10.{at}.0.0/{prefix}")).collect();
        let more: Vec<&str> = cidrs[1..].iter().map(String::as_str).collect();
        let ranges = Ranges::of(&spec(&cidrs[0], &more, &[])).unwrap();
        let place = LedgerOffset { ledger: number % ranges.ledgers(), offset: u8::try_from(number % 251).unwrap() };
        if let Some(address) = ranges.address(place) {
            prop_assert_eq!(ranges.place(address), Some(place));
        }
        let (ledger, _) = ranges.ledger(place.ledger).unwrap();
        prop_assert!(ledger.size() <= LEDGER_SIZE);
        prop_assert_eq!(ranges.place(ledger.last()).unwrap().ledger, place.ledger);
        prop_assert!(ranges.ledger(ranges.ledgers()).is_none());
    }
}
