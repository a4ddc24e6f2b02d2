use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::prelude::*;
use tenure_handles::Timestamp;
use tenure_ipam::{Addresses, Sequence, Subnet};

use super::*;
use crate::journal::record::{BlockFacts, ClaimUseRecord, Held, Released};
use crate::key::{HoldKey, Pod};

prop_compose! {
    fn any_held()(
        block in "[a-c]",
        network in "[a/]{0,5}",
        container in "[a-d]",
        (namespace, name) in (".{0,5}", ".{0,5}"),
        interface: bool,
        (ipv4, ipv6) in (0..8_u32, 0..8_u128, 0..3).prop_map(|(v4, v6, families)| {
            ((families != 1).then(|| v4.into()), (families != 0).then(|| v6.into()))
        }),
        sequence in 1..20_u64,
        since in 0..100_u64,
        netns in "(/run/netns/[a-c])?",
    ) -> Held {
        Held {
            block,
            key: HoldKey::new(network, container, "eth0").unwrap(),
            pod: Pod { namespace, name, uid: String::new() },
            interface,
            addresses: Addresses { ipv4, ipv6 },
            sequence: Sequence::from_u64(sequence),
            since: Timestamp::from_millis(since),
            netns,
        }
    }
}

prop_compose! {
    /// Two claim users may have the same addresses.
    fn any_use_record()(
        claim in "[x-z]",
        (claim_name, pool) in (".{0,5}", ".{0,5}"),
        container in "[a-d]",
        part in 0..3_u32,
        (interface, reached) in any::<(bool, bool)>(),
        addresses in vec(prop_oneof![
            (0..8_u32, 0..=32_u8).prop_map(|(bits, prefix)| (Ipv4Addr::from(bits).into(), prefix)),
            (0..8_u128, 0..=128_u8).prop_map(|(bits, prefix)| (Ipv6Addr::from(bits).into(), prefix)),
        ], 0..4),
        since in 0..100_u64,
        netns in "(/run/netns/[a-c])?",
    ) -> ClaimUseRecord {
        ClaimUseRecord {
            claim,
            claim_name,
            pool,
            key: HoldKey::new("net", container, "eth0").unwrap().part(part),
            pod: Pod { namespace: "shop".into(), name: "vm".into(), uid: "u".into() },
            interface,
            addresses: addresses.into_iter().map(|(ip, prefix): (IpAddr, u8)| (ip.into(), prefix)).collect(),
            reached,
            since: Timestamp::from_millis(since),
            netns,
        }
    }
}

fn any_record() -> impl Strategy<Value = Record> {
    let cidr = "10\\.0\\.[0-9]\\.0/(2[4-9]|3[0-2])";
    prop_oneof![
        ("[a-c]", ".{0,5}", ".{0,5}", cidr, any::<bool>()).prop_map(|(uid, name, pool, ipv4, dual)| {
            let ipv6 = dual.then(|| "fd00::/120".parse().unwrap());
            let subnet = Subnet { ipv4: Some(ipv4.parse().unwrap()), ipv6 };
            Record::Owned(BlockFacts {
                uid,
                name,
                subnet,
                realm: if dual { pool.clone() } else { String::new() },
                pool,
            })
        }),
        "[a-c]".prop_map(|uid| Record::Fenced { uid }),
        "[a-c]".prop_map(|uid| Record::Forgotten { uid }),
        any_held().prop_map(Record::Held),
        (any_held(), 0..100_u64, 0..100_u64).prop_map(|(hold, at, rest)| {
            let (at, until) = (Timestamp::from_millis(at), Timestamp::from_millis(at + rest));
            Record::Released(Released { hold, at, until })
        }),
        any_use_record().prop_map(Record::ClaimUse),
        any_use_record().prop_map(Record::ClaimUseEnded),
    ]
}

proptest! {
    #[test]
    fn every_record_reads_back(record in any_record()) {
        prop_assert_eq!(message::decode(&message::encode(&record)), Some(record));
    }

    #[test]
    fn any_journal_reads_back_also_compacted(records in vec(any_record(), 0..40)) {
        let origin = Origin { boot: "b".into(), node: "n".into() };
        let mut bytes = begin(&origin);
        let mut image = Image::default();
        for record in records {
            put(&record, &mut bytes);
            image.apply(record);
        }
        let reading = read(&bytes).unwrap();
        prop_assert_eq!(&reading.image, &image);
        let mut compacted = begin(&origin);
        image.records().for_each(|record| put(&record, &mut compacted));
        let again = read(&compacted).unwrap();
        prop_assert_eq!(again.image.blocks().collect::<Vec<_>>(), image.blocks().collect::<Vec<_>>());
        prop_assert_eq!(again.image.claim_uses().collect::<Vec<_>>(), image.claim_uses().collect::<Vec<_>>());
        image.prune();
        let holds: Vec<_> = reading.image.holds().collect();
        prop_assert_eq!(image.holds().collect::<Vec<_>>(), holds, "pruning loses no hold");
    }

    #[test]
    fn invariant_10_no_bytes_make_reading_a_journal_panic(
        garbage in vec(any::<u8>(), 0..300),
        records in vec(any_record(), 0..5),
        cut in any::<prop::sample::Index>(),
    ) {
        let _ = read(&garbage);
        let mut bytes = begin(&Origin::default());
        for record in &records {
            put(record, &mut bytes);
        }
        let at = cut.index(bytes.len());
        let _ = read(&[&bytes[..at], &garbage].concat());
        bytes.extend(garbage);
        if let Ok(reading) = read(&bytes) {
            prop_assert!(reading.records >= records.len() as u64, "what came before the garbage is there");
        }
    }
}
