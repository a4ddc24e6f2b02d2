//! Who is suspect, and for how long.

use tenure_api::whereabouts::{IPPoolSpec, OverlappingRangeIPReservationSpec};

use super::*;

fn pool(records: &[(&str, &str, &str)]) -> IPPool {
    let record = |(key, id, podref): &(&str, &str, &str)| {
        let (id, podref) = ((*id).into(), (*podref).into());
        let record = Allocation { id, podref, ifname: Some("net1".into()), ..Allocation::default() };
        ((*key).to_owned(), record)
    };
    let allocations = records.iter().map(record).collect();
    IPPool::new("10.10.10.0-24", IPPoolSpec { range: "10.10.10.0/24".into(), allocations })
}

fn reservation(name: &str, podref: &str) -> OverlappingRangeIPReservation {
    let spec = OverlappingRangeIPReservationSpec { podref: podref.into(), ..Default::default() };
    OverlappingRangeIPReservation::new(name, spec)
}

fn pod(addresses: Option<&[&str]>) -> LivingPod {
    let addresses = addresses.map(|all| all.iter().map(|text| text.parse().unwrap()).collect());
    LivingPod { addresses, ..LivingPod::default() }
}

fn pods(all: &[(&str, LivingPod)]) -> BTreeMap<String, LivingPod> {
    all.iter().map(|(name, pod)| ((*name).to_owned(), pod.clone())).collect()
}

fn looks(
    pool: &IPPool,
    reservations: &[OverlappingRangeIPReservation],
    pods: &BTreeMap<String, LivingPod>,
    seconds: &[u64],
) -> Vec<Unused> {
    let mut reconciler = Reconciler::new(Patience { between: Duration::from_secs(30) });
    let pools = [pool.clone()];
    let look = |second: &u64| {
        let now = Timestamp::from_millis(second * 1000);
        reconciler.look(Inputs { pools: &pools, reservations, pods, now })
    };
    seconds.iter().map(look).collect()
}

#[test]
fn two_looks_are_needed_and_time_between_them() {
    let pool = pool(&[("1", "c", "ns/gone")]);
    let unused: Vec<usize> =
        looks(&pool, &[], &pods(&[]), &[0, 10, 29, 30]).iter().map(|u| u.records.len()).collect();
    assert_eq!(unused, [0, 0, 0, 1]);
}

#[test]
fn a_record_that_was_rewritten_between_looks_is_a_new_suspect() {
    let mut reconciler = Reconciler::new(Patience { between: Duration::from_secs(30) });
    let pods = pods(&[]);
    let mut look = |id: &str, second: u64| {
        let pools = [pool(&[("1", id, "ns/a")])];
        let now = Timestamp::from_millis(second * 1000);
        let reservations: [OverlappingRangeIPReservation; 0] = [];
        reconciler.look(Inputs { pools: &pools, reservations: &reservations, pods: &pods, now }).records.len()
    };
    assert_eq!([look("c1", 0), look("c2", 40), look("c2", 60), look("c2", 70)], [0, 0, 0, 1]);
}

#[test]
fn a_missing_annotation_releases_nothing() {
    let pool = pool(&[("1", "c", "ns/p")]);
    let all = pods(&[("ns/p", pod(None))]);
    let reservations = [reservation("10.10.10.1", "ns/p")];
    assert_eq!(looks(&pool, &reservations, &all, &[0, 100]).pop(), Some(Unused::default()));
    // Nor does one that does not mention this network.
    let all = pods(&[("ns/p", pod(Some(&["192.168.0.1"])))]);
    assert_eq!(looks(&pool, &[], &all, &[0, 100]).pop().unwrap().records, []);
}

#[test]
fn of_two_records_of_one_interface_the_one_that_the_pod_does_not_have_goes() {
    let pool = pool(&[("1", "c", "ns/p"), ("2", "c", "ns/p")]);
    let all = pods(&[("ns/p", pod(Some(&["10.10.10.1"])))]);
    let unused = looks(&pool, &[], &all, &[0, 100]).pop().unwrap();
    assert!(matches!(&unused.records[..], [Request { act: Act::Forget { key, .. }, .. }] if key == "2"));
}

#[test]
fn reservations_are_matched_with_their_network_and_with_a_zero_at_the_end() {
    let all =
        pods(&[("ns/p", pod(Some(&["10.10.10.1"]))), ("ns/q", pod(Some(&["2001:db8:480:603d:304:403::"])))]);
    let reservations = [
        reservation("blue-10.10.10.1", "ns/p"),
        reservation("2001-db8-480-603d-304-403--0", "ns/q"),
        reservation("10.10.10.7", "ns/gone"),
        reservation("10.10.10.8", "ns/p"),
    ];
    let unused = looks(&pool(&[]), &reservations, &all, &[0, 100]).pop().unwrap();
    let names: Vec<_> = unused.reservations.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["10.10.10.7", "10.10.10.8"]);
}

#[test]
fn a_pod_that_has_ended_holds_nothing() {
    let pool = pool(&[("1", "c", "ns/p")]);
    let all = pods(&[("ns/p", LivingPod { finished: true, ..LivingPod::default() })]);
    assert_eq!(looks(&pool, &[], &all, &[0, 100]).pop().unwrap().records.len(), 1);
}

#[test]
fn a_record_whose_pod_was_replaced_by_one_of_the_same_name_goes_after_two_looks() {
    let living = |uid: &str, addresses: Option<&[&str]>| {
        pods(&[("ns/p", LivingPod { uid: uid.into(), ..pod(addresses) })])
    };
    let mut of_first = pool(&[("1", "c1", "ns/p")]);
    of_first.spec.allocations.get_mut("1").unwrap().poduid = Some("first".into());
    let gone = |pool: &IPPool, pods: &BTreeMap<String, LivingPod>| {
        looks(pool, &[], pods, &[0, 29, 30]).iter().map(|it| it.records.len()).collect::<Vec<_>>()
    };
    assert_eq!(gone(&of_first, &living("first", None)), [0, 0, 0]);
    assert_eq!(gone(&of_first, &living("second", None)), [0, 0, 1]);
    // A status may say that an address is used, never that it is not.
    assert_eq!(gone(&of_first, &living("second", Some(&["10.10.10.1"]))), [0, 0, 0]);
    let mut both = pool(&[("1", "c1", "ns/p"), ("2", "c2", "ns/p")]);
    both.spec.allocations.values_mut().for_each(|record| record.poduid = Some("first".into()));
    assert_eq!(gone(&both, &living("first", Some(&["10.10.10.2"]))), [0, 0, 0]);
    // Whereabouts' record, beside one of the pod that lives, of another container.
    both.spec.allocations.get_mut("1").unwrap().poduid = None;
    assert_eq!(gone(&both, &living("first", None)), [0, 0, 1]);
    both.spec.allocations.get_mut("1").unwrap().id = "c2".into();
    assert_eq!(gone(&both, &living("first", None)), [0, 0, 0]);
}

#[test]
fn a_network_status_is_read_as_addresses_and_what_cannot_be_read_says_nothing() {
    let status =
        r#"[{"name": "a", "ips": ["10.0.0.1", "fd00::1/64"]}, {"name": "b"}, {"name": "c", "ips": null}]"#;
    let expected = ["10.0.0.1", "fd00::1"].map(|text| text.parse().unwrap());
    assert_eq!(addresses_of_status(status), Some(BTreeSet::from(expected)));
    for unreadable in ["", "{}", "[", r#"[{"ips": ["10.0.0.x"]}]"#] {
        assert_eq!(addresses_of_status(unreadable), None, "{unreadable}");
    }
}

#[test]
fn a_claims_record_and_its_reservation_are_nobodys_to_release_here() {
    let pool = pool(&[("1", "claim/uid-1", "ns/vm.net"), ("2", "c", "ns/vm.net")]);
    let reservations = [reservation("10.10.10.1", "ns/vm.net"), reservation("10.10.10.2", "ns/vm.net")];
    let last = looks(&pool, &reservations, &pods(&[]), &[0, 60]).remove(1);
    let keys: Vec<&Act> = last.records.iter().map(|request| &request.act).collect();
    assert!(matches!(keys[..], [Act::Forget { key, .. }] if key == "2"), "{keys:?}");
    assert_eq!(last.reservations, [("10.10.10.2".to_owned(), None)]);
}
