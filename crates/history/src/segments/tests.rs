use proptest::prelude::*;

use super::*;
use crate::testing::at;

proptest! {
    #[test]
    fn the_limit_holds_whatever_is_written_and_the_youngest_always_stays(
        limit in 1_600_u64..10_000, days in 1_u64..100,
        writes in prop::collection::vec((1_u64..100, 0_i64..200_000), 1..300),
    ) {
        let limits = Limits { bytes: limit, age: Duration::from_hours(days * 24) };
        let mut segments = Segments::new(limits, []);
        // What was written, in the simplest form: number of the file, bytes, time.
        let mut written: Vec<(u64, u64, i64)> = Vec::new();
        let mut now = 1_000_000_000;
        for (bytes, passed) in writes {
            now += passed;
            let place = segments.place(bytes, at(now));
            let mut gone = Vec::new();
            while let Some(number) = segments.expired(bytes, at(now)) {
                segments.removed(number);
                gone.push(number);
            }
            prop_assert!(segments.room() >= bytes);
            prop_assert!(!gone.contains(&place.number), "the file that is written goes");
            let is_gone = |(number, ..): &(u64, u64, i64)| gone.contains(number);
            let removed: Vec<_> = written.extract_if(.., |it| is_gone(it)).collect();
            segments.appended(bytes, [at(now)]);
            written.push((place.number, bytes, now));
            let total: u64 = written.iter().map(|(_, bytes, _)| bytes).sum();
            prop_assert_eq!(segments.bytes(), total);
            prop_assert!(total <= limit, "{total} bytes of {limit}");
            prop_assert_eq!(segments.begins(), written.iter().map(|(.., time)| at(*time)).min());
            let step = i64::try_from(days * 24 * 3600 / 16).unwrap();
            let oldest = written.iter().map(|(.., time)| now - time).max().unwrap();
            prop_assert!(oldest <= 17 * step, "something is {oldest} s old");
            // What is neither too old nor too much stays.
            if !removed.is_empty() && removed.iter().all(|(.., time)| now - time <= 16 * step) {
                prop_assert!(total + limit / 16 > limit, "{total} bytes are left of {limit}");
            }
            let since: Vec<u64> = segments.since(Some(at(now))).iter().map(|segment| segment.number).collect();
            prop_assert!(since.contains(&place.number));
        }
    }
}

#[test]
fn a_file_that_was_found_is_written_on_and_an_old_or_full_one_is_not() {
    let limits = Limits { bytes: 1_600, age: Duration::from_secs(1_600) };
    let found = |bytes, second| Segment { number: 7, bytes, span: Some((at(second), at(second))) };
    let number = |segment| Segments::new(limits, [segment]).place(10, at(1_000)).number;
    assert_eq!(number(found(90, 1_000)), 7);
    assert_eq!(number(found(91, 1_000)), 8, "it is full");
    assert_eq!(number(found(10, 899)), 8, "it is old");
    assert_eq!(number(found(10, 2_000)), 7, "the clock was set back");
    assert_eq!(
        Segments::new(limits, []).place(10_000, at(0)).number,
        1,
        "whatever is written must go somewhere"
    );
}
