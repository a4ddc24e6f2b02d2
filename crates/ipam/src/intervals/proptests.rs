//! Interval sets against plain sets of small numbers, at the bottom, in the middle and at the top of the line.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// The window of the number line that the model knows.
const SPAN: u128 = 24;

#[derive(Clone, Debug)]
enum Operation {
    Insert(u128, u128),
    Remove(u128, u128),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        (0..SPAN, 0..SPAN).prop_map(|(first, last)| Operation::Insert(first, last)),
        (0..SPAN, 0..SPAN).prop_map(|(first, last)| Operation::Remove(first, last)),
        (0..SPAN).prop_map(|value| Operation::Insert(value, value)),
        (0..SPAN).prop_map(|value| Operation::Remove(value, value)),
    ]
}

fn base() -> impl Strategy<Value = u128> {
    prop_oneof![Just(0), Just(1 << 64), Just(u128::MAX - SPAN + 1)]
}

fn members(intervals: impl Iterator<Item = RangeInclusive<u128>>) -> BTreeSet<u128> {
    intervals.flatten().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn it_is_the_set_that_a_plain_set_is(base in base(), operations in prop::collection::vec(operation(), 0..40)) {
        let (mut set, mut model) = (IntervalSet::new(), BTreeSet::new());
        for operation in operations {
            match operation {
                Operation::Insert(first, last) => {
                    set.insert(base + first, base + last);
                    model.extend((first..=last).map(|value| base + value));
                }
                Operation::Remove(first, last) => {
                    set.remove(base + first, base + last);
                    (first..=last).for_each(|value| { model.remove(&(base + value)); });
                }
            }
            prop_assert_eq!(members(set.iter()), model.clone());
            prop_assert_eq!(set.len(), model.len() as u128);
            prop_assert_eq!(set.is_empty(), model.is_empty());
            prop_assert_eq!(&set, &set.iter().collect::<IntervalSet>());
            let all: Vec<_> = set.iter().collect();
            prop_assert!(all.windows(2).all(|pair| *pair[1].start() - *pair[0].end() > 1), "{:?}", all);
        }
        let numbers = (0..SPAN).map(|value| base + value);
        for value in numbers.clone() {
            prop_assert_eq!(set.contains(value), model.contains(&value));
            let gap = numbers.clone().find(|gap| *gap >= value && !model.contains(gap));
            let beyond = (base + (SPAN - 1)).checked_add(1);
            prop_assert_eq!(set.next_gap(value), gap.or(beyond));
            for last in numbers.clone() {
                let window: BTreeSet<u128> = (value..=last).collect();
                prop_assert_eq!(members(set.within(value, last)), window.intersection(&model).copied().collect());
                prop_assert_eq!(members(set.gaps_within(value, last)), window.difference(&model).copied().collect());
                if value <= last {
                    prop_assert_eq!(set.covers(value, last), window.is_subset(&model));
                }
            }
        }
    }
}

#[test]
fn the_whole_line_is_one_interval() {
    let mut set = IntervalSet::new();
    set.insert(1, u128::MAX);
    set.insert(0, 0);
    assert_eq!(set.iter().collect::<Vec<_>>(), [0..=u128::MAX]);
    assert_eq!((set.len(), set.is_empty(), set.next_gap(0)), (u128::MAX, false, None));
    set.remove(7, 7);
    assert_eq!((set.len(), set.next_gap(0), set.iter().count()), (u128::MAX, Some(7), 2));
    set.remove(0, u128::MAX);
    assert_eq!((set.len(), set.is_empty()), (0, true));
}
