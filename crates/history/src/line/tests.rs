use proptest::prelude::*;
use tenure_view::{Holder, Pod};

use super::*;

fn held(container: &str, second: i64) -> Entry {
    let pod = Some(Pod { namespace: "ns".into(), name: container.into(), uid: String::new() });
    let holder = Holder { network: "net".into(), container: container.into(), interface: "eth0".into(), pod };
    let at = Timestamp::from_second(second).unwrap();
    let period = Period {
        holder,
        addresses: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
        from: Some(at),
        sequence: u64::MAX,
        ..Period::default()
    };
    Entry { at, what: What::Held(period) }
}

fn bytes(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in entries {
        put(entry, &mut bytes);
    }
    bytes
}

#[test]
fn people_can_read_a_line() {
    let text = String::from_utf8(bytes(&[held("web", 0)])).unwrap();
    let (sum, rest) = text.split_once(' ').unwrap();
    assert_eq!(sum.len(), DIGITS);
    assert_eq!(
        rest,
        "{\"at\":\"1970-01-01T00:00:00Z\",\"held\":{\"network\":\"net\",\"container\":\"web\",\"interface\":\"eth0\",\
         \"pod\":{\"namespace\":\"ns\",\"name\":\"web\"},\"sequence\":18446744073709551615,\
         \"addresses\":[\"10.0.0.1\",\"fd00::1\"],\"from\":\"1970-01-01T00:00:00Z\"}}\n"
    );
}

#[test]
fn a_line_of_a_newer_agent_is_whole_and_no_entry() {
    let text = r#"{"at":"2026-11-15T09:00:00Z","evaporated":{"why":"sun"}}"#;
    let line = format!("{:08x} {text}\n", crc32(text.as_bytes()));
    let found: Vec<Line<'_>> = lines(line.as_bytes()).collect();
    assert_eq!(found, [Line::Whole(text)]);
    assert_eq!(entry(text), None);
}

proptest! {
    #[test]
    fn what_was_written_is_read(containers in prop::collection::vec("\\PC{0,8}", 0..6)) {
        let entries: Vec<Entry> = containers.iter().zip(0..).map(|(name, second)| held(name, second)).collect();
        let bytes = bytes(&entries);
        let read: Vec<Entry> = lines(&bytes).map(|line| match line {
            Line::Whole(text) => entry(text).unwrap(),
            other => panic!("{other:?}"),
        }).collect();
        prop_assert_eq!(read, entries);
    }

    #[test]
    fn damage_takes_no_more_than_the_lines_that_it_touches(
        at in 0_usize..10_000, byte: u8, cut in 0_usize..400,
    ) {
        let entries: Vec<Entry> = (0..5).map(|second| held("c", second)).collect();
        let mut bytes = bytes(&entries);
        let at = at % bytes.len();
        let line_len = bytes.len() / 5;
        let same = bytes[at] == byte;
        bytes[at] = byte;
        let cut = cut.min(line_len - 1);
        bytes.truncate(bytes.len() - cut);
        let (mut whole, mut damaged, mut torn) = (0, 0, 0);
        for line in lines(&bytes) {
            match line {
                Line::Whole(text) => {
                    prop_assert!(entries.contains(&entry(text).unwrap()), "{text} was never written");
                    whole += 1;
                }
                Line::Damaged => damaged += 1,
                Line::Torn(len) => torn += len,
            }
        }
        // A byte concerns one line, or two if it was the newline between them; and a cut the last.
        let lost = usize::from(!same) * 2 + usize::from(cut > 0);
        prop_assert!(whole >= 5 - lost, "{whole} whole, {damaged} damaged, {torn} bytes torn");
        prop_assert!(cut == 0 || torn > 0 || byte == b'\n');
    }

    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>) {
        for line in lines(&bytes) {
            if let Line::Whole(text) = line {
                let _ = entry(text);
            }
        }
    }
}
