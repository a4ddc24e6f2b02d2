use super::*;

fn spec(cidr: &str, start: &str, end: &str, exclude: &[&str]) -> NodeIPRange {
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    NodeIPRange {
        cidr: cidr.to_owned(),
        start: text(start),
        end: text(end),
        exclude: exclude.iter().map(|it| (*it).to_owned()).collect(),
    }
}

fn range(cidr: &str, start: &str, end: &str, exclude: &[&str]) -> NodeRange {
    NodeRange::of(&spec(cidr, start, end, exclude)).unwrap()
}

fn offset(range: &NodeRange, address: &str) -> u128 {
    range.offset(address.parse().unwrap()).unwrap()
}

#[test]
fn the_first_pool_of_the_seed_is_as_it_says() {
    let pool = range("10.10.10.0/24", "10.10.10.1", "10.10.10.10", &["10.10.10.4", "10.10.10.7"]);
    let status =
        NodeIPPoolStatus { allocated_offsets: Some(vec![0, 1, 2, 4, 5, 7]), ..NodeIPPoolStatus::default() };
    let taken = pool.decode(&status);
    let addresses: Vec<String> =
        taken.offsets.iter().map(|offset| pool.address(*offset).unwrap().to_string()).collect();
    assert_eq!(
        addresses,
        ["10.10.10.1", "10.10.10.2", "10.10.10.3", "10.10.10.5", "10.10.10.6", "10.10.10.8"]
    );
    assert_eq!((pool.size(), pool.capacity(), pool.prefix()), (10, 8, 24));
    assert!(!pool.is_usable("10.10.10.4".parse().unwrap()));
    let mut written = NodeIPPoolStatus::default();
    pool.encode(&mut written, taken.offsets).unwrap();
    assert_eq!(written, status);
}

#[test]
fn the_small_example_of_the_seed_is_as_it_says() {
    let pool = range("10.10.11.0/24", "10.10.11.4", "10.10.11.10", &["10.10.11.5", "10.10.11.7"]);
    for (address, expected) in [("10.10.11.4", 0), ("10.10.11.5", 1), ("10.10.11.6", 2), ("10.10.11.10", 6)] {
        assert_eq!(offset(&pool, address), expected, "{address}");
    }
}

#[test]
fn the_large_example_of_the_seed_follows_its_rule_and_not_its_list() {
    let pool = range("10.10.11.0/16", "10.10.11.4", "10.10.12.10", &["10.10.11.5", "10.10.12.7"]);
    // The seed has 251 for 10.10.12.1 and 260 for 10.10.12.10: it leaves out 10.10.11.255 and 10.10.12.0, which are hosts of a /16.
    for (address, expected) in [
        ("10.10.11.254", 250),
        ("10.10.11.255", 251),
        ("10.10.12.0", 252),
        ("10.10.12.1", 253),
        ("10.10.12.7", 259),
        ("10.10.12.10", 262),
    ] {
        assert_eq!(offset(&pool, address), expected, "{address}");
    }
    assert!(pool.is_usable("10.10.11.255".parse().unwrap()) && pool.is_usable("10.10.12.0".parse().unwrap()));
    assert_eq!((pool.size(), pool.capacity()), (263, 261));
}

#[test]
fn the_ipv6_example_of_the_seed_follows_its_rule_and_not_its_list() {
    let pool = range(
        "2001:4860:4860::/116",
        "2001:4860:4860::000F",
        "2001:4860:4860::00FF",
        &["2001:4860:4860::0010", "2001:4860:4860::001F"],
    );
    // The seed has 17, 18 and 239 for the last three.
    for (address, expected) in [
        ("2001:4860:4860::f", 0),
        ("2001:4860:4860::10", 1),
        ("2001:4860:4860::1f", 16),
        ("2001:4860:4860::20", 17),
        ("2001:4860:4860::ff", 240),
    ] {
        assert_eq!(offset(&pool, address), expected, "{address}");
    }
}

#[test]
fn network_and_broadcast_address_are_never_allocated() {
    let whole = range("10.0.0.0/24", "", "", &[]);
    assert_eq!(
        (whole.first().to_string(), whole.last().to_string()),
        ("10.0.0.1".into(), "10.0.0.254".into())
    );
    let edges = range("10.0.0.0/24", "10.0.0.0", "10.0.0.255", &[]);
    assert_eq!((edges.size(), edges.capacity()), (256, 254));
    let six = range("fd00::/120", "fd00::", "fd00::ff", &[]);
    assert_eq!((six.size(), six.capacity()), (256, 255), "IPv6 has no broadcast address");
    for (cidr, capacity) in [("10.0.0.0/31", 2), ("10.0.0.1/32", 1), ("fd00::/127", 2), ("10.0.0.0/30", 2)] {
        assert_eq!(range(cidr, "", "", &[]).capacity(), capacity, "{cidr}");
    }
}

#[test]
fn a_large_pool_has_a_bitmap_that_fits_into_an_object_when_all_is_taken() {
    for (cidr, capacity) in [("10.0.0.0/16", 65_534), ("fd00::/112", 65_535), ("10.0.0.0/8", MOST)] {
        let pool = range(cidr, "", "", &[]);
        assert_eq!(pool.capacity(), capacity, "{cidr}");
        let mut status = NodeIPPoolStatus::default();
        pool.encode(&mut status, 0..pool.size()).unwrap();
        let bitmap = status.allocated_bitmap.as_ref().unwrap();
        assert!(status.allocated_offsets.is_none() && bitmap.len() < 262_144, "{} bytes", bitmap.len());
        assert_eq!(pool.decode(&status).offsets.len() as u128, pool.size());
    }
}

#[test]
fn what_cannot_be_read_of_a_record_is_named() {
    let pool = range("10.0.0.0/24", "10.0.0.1", "10.0.0.10", &[]);
    let status = NodeIPPoolStatus {
        allocated_offsets: Some(vec![0, 10, -1, 0]),
        allocated_bitmap: Some("?".to_owned()),
        ..NodeIPPoolStatus::default()
    };
    let taken = pool.decode(&status);
    assert_eq!(taken.offsets, [0].into());
    let said: Vec<String> = taken.refused.iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 4, "{said:?}");
    assert!(said[0].starts_with("offset 10 is outside"), "{said:?}");
}

#[test]
fn a_pool_that_makes_no_sense_says_why() {
    let said = |spec: NodeIPRange| NodeRange::of(&spec).unwrap_err().to_string();
    assert!(said(spec("10.0.0.0", "", "", &[])).starts_with("spec.range.cidr: "));
    assert!(said(spec("10.0.0.0/24", "x", "", &[])).starts_with("spec.range.start: "));
    assert!(said(spec("10.0.0.0/24", "", "", &["x"])).starts_with("spec.range.exclude: "));
    assert!(said(spec("10.0.0.0/24", "10.0.1.1", "", &[])).starts_with("spec.range: "));
}
