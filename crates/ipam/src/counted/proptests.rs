//! Counted intervals against a plain list of intervals, at the bottom, in the middle and at the top of the line.

use proptest::prelude::*;

use super::*;

/// The window of the number line that the model knows.
const SPAN: u128 = 24;

fn base() -> impl Strategy<Value = u128> {
    prop_oneof![Just(0), Just(1 << 64), Just(u128::MAX - SPAN + 1)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn it_counts_what_a_plain_list_of_intervals_covers(
        base in base(),
        operations in prop::collection::vec((0..SPAN, 0..SPAN, any::<bool>(), any::<usize>()), 0..60),
    ) {
        let (mut counted, mut model) = (CountedIntervals::default(), Vec::<(u128, u128)>::new());
        for (first, last, insert, which) in operations {
            if insert || model.is_empty() {
                counted.insert(base + first, base + last);
                if first <= last {
                    model.push((base + first, base + last));
                }
            } else {
                let (first, last) = model.swap_remove(which % model.len());
                counted.remove(first, last);
            }
            for value in (0..SPAN).map(|value| base + value) {
                let count = model.iter().filter(|(first, last)| (*first..=*last).contains(&value)).count();
                prop_assert_eq!(counted.count(value), count);
            }
            let covered: IntervalSet = model.iter().map(|(first, last)| *first..=*last).collect();
            prop_assert_eq!(counted.covered(), &covered);
            let counts: Vec<usize> = std::iter::once(0).chain(counted.steps.values().copied()).collect();
            prop_assert!(counts.windows(2).all(|pair| pair[0] != pair[1]), "{:?}", counted.steps);
        }
        for (first, last) in model {
            counted.remove(first, last);
        }
        prop_assert_eq!(counted, CountedIntervals::default(), "nothing is left");
    }
}

#[test]
fn what_was_never_put_in_takes_nothing_out_of_others() {
    let mut counted = CountedIntervals::default();
    counted.insert(3, 5);
    counted.insert(5, 9);
    counted.remove(0, 4);
    assert_eq!(counted.covered().iter().collect::<Vec<_>>(), [5..=9]);
    counted.insert(0, u128::MAX);
    assert_eq!((counted.count(0), counted.count(5), counted.count(u128::MAX)), (1, 3, 1));
    counted.remove(0, u128::MAX);
    assert_eq!((counted.count(4), counted.count(5), counted.count(9), counted.count(10)), (0, 2, 1, 0));
}
