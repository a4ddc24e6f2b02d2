//! What each format accepts.

use proptest::prelude::*;

use super::*;

#[test]
fn each_format_accepts_and_refuses() {
    for (format, good, bad) in [
        (
            "ipv4",
            vec!["10.0.0.1", "010.0.0.1", "::ffff:1.2.3.4"],
            vec!["10.0.0", "10.0.0.256", "fd00::1", ""],
        ),
        ("ipv6", vec!["::", "fd00::1", "::ffff:1.2.3.4"], vec!["10.0.0.1", "fd00::1%eth0", ":::"]),
        (
            "cidr",
            vec!["10.0.0.0/8", "10.1.2.3/08", "fd00::/64"],
            vec!["10.0.0.0", "10.0.0.0/33", "fd00::/129", "x/1"],
        ),
        (
            "date-time",
            vec!["2026-01-02T03:04:05Z", "2026-01-02t03:04:05.123+01:00"],
            vec!["2026-01-02", "2026-13-02T03:04:05Z", "2026-01-02T25:04:05Z"],
        ),
        ("date", vec!["2026-01-31"], vec!["2026-02-30", "26-01-01"]),
        ("duration", vec!["1h30m", "-1.5s", "0", "2 weeks", "3 days"], vec!["", "x", "1"]),
        ("uuid", vec!["123e4567-e89b-12d3-a456-426614174000"], vec!["123e4567"]),
        ("uuid4", vec!["123e4567-e89b-42d3-a456-426614174000"], vec!["123e4567-e89b-12d3-a456-426614174000"]),
        (
            "mac",
            vec!["00:11:22:33:44:55", "0011.2233.4455", "00-11-22-33-44-55"],
            vec!["00:11", "00:11:22:33:44:5g"],
        ),
        ("hostname", vec!["example.com", "a"], vec!["-a", "a..b", "under_score.com"]),
        ("uri", vec!["https://a/b?c=d", "/path", "urn:x"], vec!["", "no scheme", "http://a b", "%zz"]),
        ("email", vec!["a@b.c", "N <a@b>"], vec!["a", "@b", "a@"]),
        ("byte", vec!["YQ==", "YWJj"], vec!["", "Y", "Y*=="]),
        ("hexcolor", vec!["#fff", "a1b2c3"], vec!["#ffff"]),
        ("rgbcolor", vec!["rgb(1, 2, 255)"], vec!["rgb(1,2,256)"]),
        ("ssn", vec!["123-45-6789"], vec!["12-345-6789"]),
        ("isbn10", vec!["0321751043"], vec!["0321751044"]),
        ("isbn13", vec!["978-0321751041"], vec!["9780321751042"]),
        ("isbn", vec!["0321751043", "978-0321751041"], vec!["1"]),
        ("creditcard", vec!["4111 1111 1111 1111"], vec!["4111 1111 1111 1112"]),
        ("bsonobjectid", vec!["507f1f77bcf86cd799439011"], vec!["507f"]),
        ("password", vec!["", "x"], vec![]),
        ("k8s-short-name", vec!["a-b"], vec!["a.b", "A"]),
        ("k8s-long-name", vec!["a.b"], vec!["a..b"]),
    ] {
        let format = Format::named(format).unwrap();
        for text in good {
            assert!(format.accepts(text), "{format:?} {text:?}");
        }
        for text in bad {
            assert!(!format.accepts(text), "{format:?} {text:?}");
        }
    }
}

#[test]
fn unknown_formats_are_ignored() {
    for name in ["int32", "int64", "ip", "float", ""] {
        assert_eq!(Format::named(name), None);
    }
}

#[test]
fn durations_are_nanoseconds() {
    assert_eq!(parse_go_duration("1h2m3.5s"), Some(3_723_500_000_000));
    assert_eq!(parse_go_duration("-1us"), Some(-1_000));
    assert_eq!(parse_go_duration("1"), None);
    assert_eq!(parse_duration("1 day"), Some(86_400_000_000_000));
}

proptest! {
    #[test]
    fn no_text_makes_a_format_panic(text in "\\PC{0,40}", loose in "[0-9a-f:./\\[\\]@%T+-]{0,30}") {
        for name in ["uri", "email", "hostname", "ipv4", "ipv6", "cidr", "mac", "uuid", "isbn", "creditcard", "date", "duration", "datetime", "byte"] {
            let format = Format::named(name).unwrap();
            let _ = format.accepts(&text);
            let _ = format.accepts(&loose);
        }
    }

    #[test]
    fn what_the_standard_library_parses_is_an_address(address: std::net::IpAddr) {
        prop_assert!(parse_ip(&address.to_string()));
    }
}
