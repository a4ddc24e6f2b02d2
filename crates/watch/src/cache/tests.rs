//! What a cache takes in, and what it does not.

use k8s_openapi::api::core::v1::Node;

use super::*;

fn node(name: &str, uid: &str, version: u64) -> Node {
    let mut node = Node::default();
    node.metadata.name = Some(name.into());
    node.metadata.uid = Some(uid.into());
    node.metadata.resource_version = Some(version.to_string());
    node
}

#[test]
fn an_old_event_does_not_undo_the_answer_to_a_write() {
    let mut cache = Cache::default();
    cache.apply(node("a", "1", 20));
    cache.apply(node("a", "1", 9));
    assert_eq!(cache.get("a").unwrap().resource_version().as_deref(), Some("20"));
}

#[test]
fn a_list_is_the_truth_also_after_the_database_was_restored_from_an_older_backup() {
    let mut cache = Cache::default();
    cache.apply(node("older", "1", 20));
    cache.apply(node("deleted", "2", 21));
    cache.apply(node("later", "3", 22));
    cache.remove("deleted", "2");
    cache.begin();
    cache.list(node("older", "1", 9));
    cache.list(node("deleted", "2", 5));
    cache.finish();
    assert_eq!(cache.get("older").unwrap().resource_version().as_deref(), Some("9"));
    assert!(cache.get("deleted").is_some(), "it is there again");
    assert!(cache.get("later").is_none(), "it was made after the backup");
}

#[test]
fn what_a_list_does_not_mention_is_gone() {
    let mut cache = Cache::default();
    cache.apply(node("a", "1", 1));
    cache.apply(node("b", "2", 2));
    cache.begin();
    cache.list(node("b", "2", 2));
    cache.finish();
    assert_eq!((cache.get("a").is_none(), cache.get("b").is_some()), (true, true));
}

#[test]
fn an_object_that_cannot_be_read_is_not_gone() {
    let mut cache = Cache::default();
    cache.begin();
    cache.apply(node("a", "1", 1));
    cache.keep("b", "2");
    cache.finish();
    cache.begin();
    cache.keep("a", "1");
    cache.keep("b", "2");
    cache.finish();
    assert!(cache.get("a").is_some(), "what was last read of it stays");
    assert_eq!(cache.unreadable().collect::<Vec<_>>(), ["a", "b"]);
    cache.keep("a", "another");
    assert!(cache.get("a").is_none() && cache.is_unreadable("a"), "but not of its predecessor");
    cache.apply(node("b", "2", 5));
    assert!(cache.get("b").is_some() && !cache.is_unreadable("b"));
    cache.remove("a", "another");
    cache.begin();
    cache.finish();
    assert!(cache.is_empty() && cache.unreadable().next().is_none());
}

#[test]
fn a_late_deletion_does_not_touch_a_successor_of_the_same_name() {
    let mut cache = Cache::default();
    cache.apply(node("a", "new", 5));
    cache.remove("a", "old");
    assert!(cache.get("a").is_some());
}

#[test]
fn the_late_answer_to_a_write_does_not_bring_back_what_is_gone() {
    let mut cache = Cache::default();
    cache.apply(node("a", "1", 5));
    cache.remove("a", "1");
    cache.apply(node("a", "1", 6));
    assert!(cache.get("a").is_none());
    cache.apply(node("a", "2", 9));
    assert!(cache.get("a").is_some(), "a successor has another UID");
    for number in 0..GONE + 10 {
        cache.remove("b", &number.to_string());
    }
    assert_eq!(cache.gone.len(), GONE, "and the memory of the dead is bounded");
}

#[test]
fn a_list_that_was_asked_for_before_an_object_went_does_not_bring_it_back() {
    let mut cache = Cache::default();
    cache.apply(node("a", "1", 5));
    cache.begin();
    cache.remove("a", "1");
    cache.list(node("a", "1", 5));
    cache.finish();
    assert!(cache.get("a").is_none());
    cache.begin();
    cache.list(node("a", "1", 5));
    cache.finish();
    assert!(cache.get("a").is_some(), "but a later list does");
}

#[test]
fn an_answer_counts_only_if_no_list_was_under_way_since_the_call() {
    let mut cache: Cache<Node> = Cache::default();
    let call = cache.epoch();
    assert!(cache.epoch().is_quiet_since(call));
    cache.begin();
    assert!(!cache.epoch().is_quiet_since(call), "a list is under way");
    let during = cache.epoch();
    assert!(!cache.epoch().is_quiet_since(during), "the list may be older or newer than the call");
    cache.begin();
    cache.finish();
    assert!(!cache.epoch().is_quiet_since(call) && !cache.epoch().is_quiet_since(during));
    let after = cache.epoch();
    assert!(cache.epoch().is_quiet_since(after));
}

#[test]
fn a_successor_of_the_same_name_ends_what_was_there() {
    let mut cache = Cache::default();
    cache.apply(node("a", "old", 5));
    cache.apply(node("a", "new", 6));
    cache.apply(node("a", "old", 7));
    assert_eq!(cache.get("a").and_then(ResourceExt::uid).as_deref(), Some("new"));
}

#[test]
fn readers_learn_of_what_a_restored_database_shows() {
    let (mut cache, mut cursor) = (Cache::default(), Cursor::default());
    for (name, version) in [("same", 3), ("older", 20), ("later", 22)] {
        cache.apply(node(name, name, version));
    }
    cache.begin();
    cache.finish();
    for (name, version) in [("same", 3), ("older", 20), ("later", 22)] {
        cache.apply(node(name, &format!("{name} again"), version));
    }
    cache.changed(&mut cursor);
    cache.begin();
    cache.list(node("same", "same again", 3));
    cache.list(node("older", "older again", 9));
    cache.finish();
    let Changed::Keys(keys) = cache.changed(&mut cursor) else { panic!("everything is to be looked at") };
    assert_eq!(keys.iter().map(AsRef::as_ref).collect::<Vec<_>>(), ["later", "older"]);
}

#[test]
fn what_is_kept_at_a_version_is_known_again_and_nothing_else_is() {
    let mut nodes = Cache::default();
    assert!(!nodes.keeps("a", Some("1"), 5));
    nodes.apply(node("a", "1", 5));
    assert!(nodes.keeps("a", Some("1"), 5));
    for other in
        [("b", Some("1"), 5), ("a", Some("2"), 5), ("a", None, 5), ("a", Some("1"), 4), ("a", Some("1"), 6)]
    {
        assert!(!nodes.keeps(other.0, other.1, other.2), "{other:?}");
    }
    // A watch that shows it during a list shows that it is there.
    nodes.begin();
    assert!(nodes.keeps("a", Some("1"), 5));
    nodes.finish();
    assert!(nodes.get("a").is_some());
    // If it can be read again, that is news.
    nodes.keep("a", "1");
    assert!(!nodes.keeps("a", Some("1"), 5));
}
