//! What comes out of what is heard.

use super::super::GONE;
use super::*;

fn at(name: &str, uid: &str, version: u128) -> Identity {
    Identity { key: name.into(), uid: uid.into(), version }
}

fn seen(name: &str, uid: &str, value: u8) -> Change<u8> {
    Change::Seen { key: name.into(), uid: uid.into(), value }
}

fn gone(name: &str, uid: &str) -> Change<u8> {
    Change::Gone { key: name.into(), uid: uid.into() }
}

#[test]
fn an_object_that_cannot_be_read_is_not_gone() {
    let mut cache = Cache::default();
    cache.hear(Heard::Applied(at("a", "1", 1), Some(7)));
    for heard in [Heard::Begin, Heard::Unread(at("a", "1", 2)), Heard::Unread(at("b", "2", 2)), Heard::Finish]
    {
        assert_eq!(cache.hear(heard), []);
    }
    assert_eq!((cache.facts("a"), cache.facts("b")), (Some(&7), None));
    let replaced = cache.hear(Heard::Unread(at("a", "another", 3)));
    assert_eq!(replaced, [gone("a", "1")], "what was read was of its predecessor");
}

#[test]
fn an_object_is_told_when_it_comes_and_when_what_is_kept_of_it_changes() {
    let mut cache = Cache::default();
    assert_eq!(cache.hear(Heard::Applied(at("a", "1", 1), Some(7))), [seen("a", "1", 7)]);
    assert_eq!(cache.hear(Heard::Applied(at("a", "1", 2), Some(7))), []);
    assert_eq!(cache.hear(Heard::Applied(at("a", "1", 3), Some(8))), [seen("a", "1", 8)]);
    assert_eq!(cache.hear(Heard::Applied(at("a", "1", 2), Some(9))), [], "an older version undoes nothing");
    assert_eq!(cache.facts("a"), Some(&8));
}

#[test]
fn what_vanished_between_two_lists_is_gone_once() {
    let mut cache = Cache::default();
    cache.hear(Heard::Applied(at("a", "1", 1), Some(7)));
    cache.hear(Heard::Applied(at("b", "2", 2), Some(7)));
    cache.hear(Heard::Begin);
    assert_eq!(cache.hear(Heard::Listed(at("b", "2", 2), Some(7))), []);
    assert_eq!(cache.hear(Heard::Finish), [gone("a", "1")]);
    assert_eq!(cache.hear(Heard::Left(at("a", "1", 2))), []);
    assert!(cache.is_complete());
}

#[test]
fn another_uid_under_the_same_name_is_an_end_and_a_beginning() {
    let mut cache = Cache::default();
    cache.hear(Heard::Applied(at("a", "old", 1), Some(7)));
    assert_eq!(
        cache.hear(Heard::Applied(at("a", "new", 5), Some(7))),
        [gone("a", "old"), seen("a", "new", 7)]
    );
    assert_eq!(
        cache.hear(Heard::Left(at("a", "old", 4))),
        [],
        "a late deletion does not touch the successor"
    );
    assert_eq!(cache.uid("a"), Some("new"));
    cache.hear(Heard::Begin);
    assert_eq!(
        cache.hear(Heard::Listed(at("a", "newer", 9), Some(7))),
        [gone("a", "new"), seen("a", "newer", 7)]
    );
    assert_eq!(cache.hear(Heard::Finish), []);
}

#[test]
fn what_is_gone_is_not_brought_back_by_a_late_event() {
    let mut cache = Cache::default();
    cache.hear(Heard::Applied(at("a", "1", 1), Some(7)));
    assert_eq!(cache.hear(Heard::Left(at("a", "1", 2))), [gone("a", "1")]);
    assert_eq!(cache.hear(Heard::Applied(at("a", "1", 2), Some(7))), []);
    cache.hear(Heard::Begin);
    assert_eq!(
        cache.hear(Heard::Listed(at("a", "1", 2), Some(7))),
        [seen("a", "1", 7)],
        "unless a later list has it"
    );
}

/// The write was done, then somebody deleted the object, then a list left it out, and only then the write was answered.
#[test]
fn the_late_answer_to_a_call_does_not_bring_back_what_a_list_has_left_out() {
    let mut cache = Cache::default();
    cache.hear(Heard::Applied(at("a", "1", 5), Some(7)));
    let call = cache.epoch();
    cache.hear(Heard::Begin);
    assert_eq!(cache.hear(Heard::Answered(call, at("a", "1", 6), Some(8))), [], "the list may be newer");
    assert_eq!(cache.hear(Heard::Finish), [gone("a", "1")]);
    assert_eq!(
        cache.hear(Heard::Answered(call, at("a", "1", 6), Some(8))),
        [],
        "nobody would say when it went"
    );
    assert_eq!(
        cache.hear(Heard::Answered(call, at("b", "2", 6), Some(8))),
        [],
        "neither of one that was made"
    );
    assert_eq!(cache.hear(Heard::Applied(at("a", "1", 7), Some(8))), [seen("a", "1", 8)], "the watch knows");
}

#[test]
fn the_answer_to_a_call_counts_before_the_watch_repeats_it() {
    let mut cache = Cache::default();
    cache.hear(Heard::Begin);
    cache.hear(Heard::Finish);
    let call = cache.epoch();
    assert_eq!(cache.hear(Heard::Answered(call, at("a", "1", 6), Some(8))), [seen("a", "1", 8)]);
    assert_eq!(cache.hear(Heard::Applied(at("a", "1", 6), Some(8))), []);
}

#[test]
fn a_list_is_the_truth_also_when_versions_went_back() {
    let mut cache = Cache::default();
    cache.hear(Heard::Applied(at("a", "1", 100), Some(7)));
    cache.hear(Heard::Begin);
    assert_eq!(cache.hear(Heard::Listed(at("a", "1", 50), Some(8))), [seen("a", "1", 8)]);
    cache.hear(Heard::Finish);
    assert_eq!(cache.hear(Heard::Applied(at("a", "1", 51), Some(9))), [seen("a", "1", 9)]);
}

#[test]
fn what_became_another_ones_may_come_back() {
    let mut cache = Cache::default();
    cache.hear(Heard::Applied(at("a", "1", 1), Some(7)));
    assert_eq!(cache.let_go("a".into(), "1".into()), [gone("a", "1")]);
    assert_eq!(cache.hear(Heard::Applied(at("a", "1", 3), Some(7))), [seen("a", "1", 7)]);
    // A watch that selects cannot tell the two apart.
    assert_eq!(cache.hear(Heard::Left(at("a", "1", 4))), [gone("a", "1")]);
    assert_eq!(cache.hear(Heard::Applied(at("a", "1", 4), Some(7))), []);
    assert_eq!(cache.hear(Heard::Applied(at("a", "1", 5), Some(7))), [seen("a", "1", 7)]);
    assert_eq!(cache.hear(Heard::Gone("a".into(), "1".into())), [gone("a", "1")]);
    assert_eq!(cache.hear(Heard::Applied(at("a", "1", 6), Some(7))), [], "but gone for good is for good");
}

#[test]
fn a_namespace_is_not_taken_for_another_that_begins_like_it() {
    let mut cache = Cache::default();
    for (namespace, value) in [("a", 1), ("ab", 2), ("a-b", 3), ("a", 4)] {
        let identity = at(&place(namespace, &format!("n{value}")), &value.to_string(), 1);
        cache.hear(Heard::Applied(identity, Some(value)));
    }
    let of = |namespace: &str| cache.of_namespace(namespace).copied().collect::<Vec<u8>>();
    assert_eq!((of("a"), of("ab"), of("a-b"), of("b")), (vec![1, 4], vec![2], vec![3], vec![]));
}

#[test]
fn what_is_gone_is_not_remembered_without_bound() {
    let mut cache: Cache<Seen<u8>> = Cache::default();
    for number in 0..GONE + 10 {
        cache.hear(Heard::Gone("a".into(), number.to_string()));
    }
    assert_eq!((cache.gone.len(), cache.gone_in_order.len()), (GONE, GONE));
}

#[test]
fn an_old_answer_that_says_that_an_object_is_anothers_undoes_nothing() {
    let mut cache = Cache::default();
    cache.hear(Heard::Applied(at("a", "1", 5), Some(7)));
    assert_eq!(cache.hear(Heard::Applied(at("a", "1", 4), None)), []);
    assert_eq!(cache.hear(Heard::Applied(at("a", "1", 6), None)), [gone("a", "1")]);
}
