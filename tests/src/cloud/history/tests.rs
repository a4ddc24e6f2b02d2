//! Logs that somebody made up: each judge finds what is wrong with them, and nothing where nothing is.

use super::*;

fn seconds(at: u64) -> Duration {
    Duration::from_secs(at)
}

fn change(at: u64, plane: Plane, instance: &str, there: bool) -> Change {
    Change {
        at: seconds(at),
        plane,
        zone: "europe-west4-a".to_owned(),
        instance: instance.to_owned(),
        range: "10.111.0.5/32".to_owned(),
        there,
    }
}

/// Both planes, the second one second later.
fn both(at: u64, instance: &str, there: bool) -> [Change; 2] {
    [change(at, Plane::Configuration, instance, there), change(at + 1, Plane::Data, instance, there)]
}

fn promise(pod: &str, instance: &str, told: u64, until: Option<u64>) -> Promise {
    Promise {
        address: "10.111.0.5".parse().unwrap(),
        instance: instance.to_owned(),
        pod: pod.to_owned(),
        told: seconds(told),
        until: until.map(seconds),
    }
}

fn logged(at: Duration, call: Call, path: &str) -> Logged {
    Logged { at, call, path: path.to_owned(), status: 200 }
}

fn moved() -> Vec<Change> {
    [both(1, "a", true), both(10, "a", false), both(14, "b", true)].concat()
}

#[test]
fn a_range_on_two_machines_is_found() {
    assert_eq!(on_two_machines(&moved()), Vec::<String>::new());
    let early = [both(1, "a", true), both(8, "b", true), both(10, "a", false)].concat();
    let found = on_two_machines(&early);
    assert_eq!(found, [r#"10.111.0.5/32 is on ["a", "b"] at 8s"#]);
}

#[test]
fn an_address_of_two_pods_is_found() {
    let (source, target) = (promise("s", "a", 3, Some(9)), promise("d", "b", 16, None));
    assert_eq!(unkept(&[source.clone(), target.clone()], &moved()), Vec::<String>::new());
    let lasting = Promise { until: Some(seconds(17)), ..source };
    let found = unkept(&[lasting, target], &moved());
    assert!(found.contains(&"s and d both have 10.111.0.5".to_owned()), "{found:?}");
}

#[test]
fn an_address_that_is_not_there_or_is_lost_is_found() {
    // Configured, and not arrived.
    let found = unkept(&[promise("d", "b", 14, None)], &moved());
    assert_eq!(found, ["d was told 10.111.0.5/32, which b did not have"]);
    let found = unkept(&[promise("s", "a", 3, None)], &moved());
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("s has 10.111.0.5/32, and a lost it at 10s"), "{found:?}");
    assert_eq!(unkept(&[promise("s", "a", 3, Some(10))], &moved()), Vec::<String>::new());
}

#[test]
fn a_minute_with_too_many_requests_is_found() {
    let log: Vec<Logged> = (0..30)
        .flat_map(|number| {
            let at = Duration::from_secs(4 * number);
            [logged(at, Call::UpdateInterface, ""), logged(at, Call::GetOperation, "")]
        })
        .collect();
    assert_eq!(over_budget(&log, 15, 15), Vec::<String>::new());
    assert_eq!(over_budget(&log, 14, 15), ["15 reads in the minute from 0ns, and 14 are allowed"]);
    assert_eq!(over_budget(&log, 15, 14), ["15 updates in the minute from 0ns, and 14 are allowed"]);
}

#[test]
fn what_the_cloud_takes_for_a_move_is_added_up() {
    let update = |at: u64, instance: &str| {
        let path = format!("/zones/z/instances/{instance}/updateNetworkInterface?networkInterface=nic0");
        logged(seconds(at), Call::UpdateInterface, &path)
    };
    let log = [update(0, "a"), update(7, "a"), update(12, "b")];
    let address = "10.111.0.5".parse().unwrap();
    let delay = delay_of_move(&log, &moved(), address, (Some("a"), "b"), seconds(5)).unwrap();
    assert_eq!(delay, Delay { removal: seconds(3), addition: seconds(2), arrival: seconds(1) });
    assert_eq!(delay.sum(), seconds(6));
    let gone = delay_of_move(&log, &moved(), address, (None, "b"), seconds(5)).unwrap();
    assert_eq!(gone.sum(), seconds(3));
    assert_eq!(delay_of_move(&log, &moved(), address, (Some("a"), "b"), seconds(11)), None, "it was before");
}
