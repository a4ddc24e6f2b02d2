use tenure_api::whereabouts::NodeSlicePoolSpec;

use super::*;

fn pool(taken: Option<&str>, generation: i64) -> NodeSlicePool {
    let spec = NodeSlicePoolSpec { range: "10.0.0.0/16".to_owned(), slice_size: "/24".to_owned() };
    let mut pool = NodeSlicePool::new("net", spec);
    pool.metadata.uid = Some("u".to_owned());
    pool.metadata.generation = Some(generation);
    pool.metadata.annotations = taken.map(|taken| BTreeMap::from([(TAKEN.to_owned(), taken.to_owned())]));
    pool
}

fn told(said: Option<&str>) -> Told {
    let mut object =
        PoolId::of_node("net", "a", "10.0.3.0/24".parse().unwrap()).empty_object(0, State::Unique).unwrap();
    let annotations = object.metadata.annotations.get_or_insert_default();
    annotations.extend(said.map(|said| (GIVEN.to_owned(), said.to_owned())));
    Told::by(&object)
}

#[test]
fn what_is_written_is_read() {
    let given = Given::of(&pool(Some("7.3"), 3));
    assert_eq!((given.taken, given.whole()), (7, "10.0.0.0/16".parse().ok()));
    assert_eq!(told(Some(&given.text())), Told::Given(given));
    for (said, is) in [(None, Told::Nothing), (Some(""), Told::Withdrawn), (Some("{"), Told::Nothing)] {
        assert_eq!(told(said), is, "{said:?}");
    }
}

#[test]
fn a_slice_is_of_an_object_only_if_that_has_the_name_of_the_node_and_the_slice() {
    let given = Given::of(&pool(None, 1));
    let object =
        PoolId::of_node("net", "a", "10.0.3.0/24".parse().unwrap()).empty_object(0, State::Unique).unwrap();
    assert_eq!(given.slice_of(&object, "a"), "10.0.3.0/24".parse().ok());
    assert_eq!(given.slice_of(&object, "b"), None);
    let other = Given { network: "other".to_owned(), ..given };
    assert_eq!(other.slice_of(&object, "a"), None);
}

#[test]
fn a_hint_stands_until_a_slice_was_taken_or_somebody_wrote_who_does_not_say_so() {
    let given = Given::of(&pool(Some("7.3"), 3));
    for (taken, generation, stands) in [
        (Some("7.3"), 3, true),
        // Nodes came.
        (Some("7.9"), 9, true),
        // One has lost its slice.
        (Some("8.9"), 9, false),
        // Another program wrote it.
        (Some("7.3"), 4, false),
        (None, 3, false),
        (Some("7"), 3, false),
        (Some("x.3"), 3, false),
    ] {
        let now = pool(taken, generation).metadata;
        assert_eq!(given.stands(&now), stands, "{taken:?} {generation}");
        let another = ObjectMeta { uid: Some("v".to_owned()), ..now };
        assert!(!given.stands(&another));
    }
    assert!(!Given::of(&pool(None, 1)).stands(&pool(None, 1).metadata), "nobody has counted");
}

#[test]
fn an_object_is_told_what_the_patch_says_and_taken_back_it_keeps_the_rest() {
    let id = PoolId::of_node("net", "a", "10.0.3.0/24".parse().unwrap());
    let given = Given::of(&pool(None, 1));
    let mut bare = given.object(&id).unwrap();
    (bare.metadata.labels, bare.metadata.annotations) =
        (None, Some([("x".to_owned(), "y".to_owned())].into()));
    let mut object = bare.clone();
    for said in [Some(&given), None] {
        let mut patched = serde_json::to_value(&object).unwrap();
        json_patch::merge(&mut patched["metadata"], &retold(&id, said).unwrap());
        object = retell(&object, &id, said).unwrap();
        assert_eq!(serde_json::from_value::<IPPool>(patched).unwrap(), object);
        assert_eq!(object.metadata.annotations.as_ref().unwrap()["x"], "y");
        assert_eq!(Told::by(&object), said.cloned().map_or(Told::Withdrawn, Told::Given));
        assert_eq!(given.slice_of(&object, "a"), Some(id.range));
    }
    assert_eq!(object.metadata.labels.unwrap().len(), 2, "whose it is does not change");
}

#[test]
fn the_number_grows_when_slices_are_taken_whatever_the_clock_says() {
    let now = Timestamp::from_millis(100);
    assert_eq!(taken_after(None, false, now), "100.1");
    for (before, takes, after) in [
        (Some("7.3"), false, "7.4"),
        (Some("7.3"), true, "100.4"),
        (Some("100.3"), true, "101.4"),
        (Some("900.3"), true, "901.4"),
        (None, false, "100.4"),
        (Some("?"), true, "100.4"),
    ] {
        assert_eq!(taken_after(Some(&pool(before, 3).metadata), takes, now), after, "{before:?}");
    }
}
