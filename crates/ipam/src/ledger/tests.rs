//! Records of others, read and written.

use std::collections::BTreeMap;

use super::*;

fn address(text: &str) -> Address {
    text.parse().unwrap()
}

fn offsets(cidr: &str) -> Offsets {
    Offsets::of(&cidr.parse().unwrap())
}

/// A record with these keys.
fn map(keys: &[&'static str]) -> BTreeMap<&'static str, usize> {
    keys.iter().map(|key| (*key, key.len())).collect()
}

fn texts<V>(decoded: &Decoded<V>) -> Vec<String> {
    decoded.entries.iter().map(|(address, _)| address.to_string()).collect()
}

#[test]
fn an_offset_map_has_all_128_bits_in_both_directions() {
    let pool = offsets("2001:db8::/32");
    let held = ["2001:db8:ffff::1", "2001:db8::1"].map(|ip| (address(ip), ip));
    let record = pool.encode_map(held).unwrap();
    assert_eq!(record.keys().collect::<Vec<_>>(), ["1", "79226953588444722964369244161"]);
    assert_eq!(texts(&pool.decode_map(record)), ["2001:db8::1", "2001:db8:ffff::1"]);

    let pool = offsets("fd00::/64");
    let decoded = pool.decode_map(map(&["9223372036854775807", "9223372036854775808"]));
    assert_eq!(texts(&decoded), ["fd00::7fff:ffff:ffff:ffff", "fd00::8000:0:0:0"]);
    assert!(decoded.refused.is_empty());
}

#[test]
fn the_base_of_a_range_with_host_bits_is_its_network_address() {
    assert_eq!(texts(&offsets("10.0.0.7/24").decode_map(map(&["1"]))), ["10.0.0.1"]);
    assert_eq!(offsets("10.0.0.250/16").offset(address("10.0.1.5")), Ok(261));
}

#[test]
fn what_is_no_offset_of_the_range_is_reported_beside_what_is() {
    let keys = ["-1", "", "+3", "0x10", " 4", "300", "99999999999999999999999999999999999999999", "٣", "2"];
    let decoded = offsets("10.0.0.0/24").decode_map(map(&keys));
    assert_eq!(texts(&decoded), ["10.0.0.2"]);
    let mut refused: Vec<String> = decoded.refused.iter().map(ToString::to_string).collect();
    refused.sort();
    assert_eq!(refused.len(), keys.len() - 1);
    assert!(refused.contains(&"offset \"-1\" is not a number: accepted are decimal digits".to_owned()));
    assert!(
        refused.contains(&"offset 300 is outside 10.0.0.0 to 10.0.0.255: accepted is 0 to 255".to_owned())
    );
}

#[test]
fn two_keys_that_name_one_address_are_reported() {
    let decoded = offsets("10.0.0.0/24").decode_map(map(&["7", "007"]));
    assert_eq!(texts(&decoded), ["10.0.0.7"]);
    assert_eq!(
        decoded.complete().unwrap_err().to_string(),
        "offset 7 stands for 10.0.0.7, which the record has already"
    );
}

#[test]
fn a_list_counts_from_its_first_address_and_excluded_ones_count_too() {
    let pool = Offsets::between(address("10.10.10.1"), address("10.10.10.10")).unwrap();
    let held = [0, 1, 2, 4, 5, 7];
    let decoded = pool.decode_list(held);
    assert_eq!(
        texts(&decoded),
        ["10.10.10.1", "10.10.10.2", "10.10.10.3", "10.10.10.5", "10.10.10.6", "10.10.10.8"]
    );
    let addresses = decoded.entries.iter().rev().map(|(address, ())| *address);
    assert_eq!(pool.encode_list(addresses).unwrap(), held.map(u128::try_from).map(Result::unwrap));
    let decoded = pool.decode_list([-1_i64, 3, 3, 10]);
    assert_eq!((decoded.entries.len(), decoded.refused.len()), (1, 3));
    assert!(Offsets::between(address("10.0.0.2"), address("10.0.0.1")).is_err());
}

#[test]
fn a_bitmap_is_one_large_number_with_a_bit_for_each_offset() {
    let pool = offsets("10.0.0.0/24");
    for (held, text) in [
        (vec![], ""),
        (vec![0], "AQ=="),
        (vec![8], "AQA="),
        (vec![0, 1, 2, 4, 5, 7], "tw=="),
        (vec![255], "gAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="),
    ] {
        let addresses: Vec<Address> = held.iter().map(|offset| pool.address(*offset).unwrap()).collect();
        assert_eq!(pool.encode_bitmap(addresses.clone()).unwrap(), text);
        let decoded = pool.decode_bitmap(text);
        assert_eq!(decoded.entries.iter().map(|(address, ())| *address).collect::<Vec<_>>(), addresses);
    }
    assert_eq!(texts(&pool.decode_bitmap("AAAAAQ==")), ["10.0.0.0"]);
}

#[test]
fn a_bitmap_that_is_not_one_or_too_long_is_refused() {
    let pool = offsets("10.0.0.0/24");
    let error = pool.decode_bitmap("not base64!").complete().unwrap_err();
    assert!(error.to_string().starts_with("bitmap \"not base64!\" is not readable"), "{error}");
    let beyond = pool.decode_bitmap("AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    assert_eq!(
        beyond.complete().unwrap_err().to_string(),
        "offset 256 is outside 10.0.0.0 to 10.0.0.255: accepted is 0 to 255"
    );
    let wide = offsets("fd00::/64");
    let error = wide.encode_bitmap([wide.address(1 << 40).unwrap()]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "1099511627776 is too large an offset for a bitmap: accepted is less than 4194304"
    );
    let huge = "/".repeat(1_000_000);
    assert!(matches!(wide.decode_bitmap(&huge).complete(), Err(LedgerError::TooLong { .. })));
}

#[test]
fn an_address_without_an_offset_and_an_address_twice_cannot_be_written() {
    let pool = offsets("10.0.0.0/24");
    let error = pool.encode_list([address("10.0.1.0")]).unwrap_err();
    assert_eq!(error.to_string(), "10.0.1.0 has no offset in 10.0.0.0 to 10.0.0.255");
    assert!(pool.encode_list([address("fd00::")]).is_err());
    assert!(pool.encode_list([address("9.255.255.255")]).is_err());
    let twice = [address("10.0.0.1"); 2];
    assert!(matches!(pool.encode_list(twice), Err(LedgerError::Duplicate { .. })));
    assert!(matches!(
        pool.encode_map(twice.map(|address| (address, ()))),
        Err(LedgerError::Duplicate { .. })
    ));
}
