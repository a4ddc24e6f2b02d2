//! Whereabouts' requests, one behaviour a test.

use super::*;
use crate::range::{Range, Usable};

fn reservation(id: &str, podref: &str, ifname: &str, ip: &str) -> Reservation {
    Reservation {
        id: id.into(),
        podref: podref.into(),
        uid: String::new(),
        ifname: ifname.into(),
        address: ip.parse().unwrap(),
    }
}

fn range() -> Range {
    Range::new("192.168.1.0/24".parse().unwrap(), Usable::WithoutEdges).unwrap()
}

fn assign(reservations: &mut Reservations, id: &str, podref: &str, ifname: &str) -> String {
    reservations.assign(Request { id, podref, ifname }).unwrap().to_string()
}

fn list(reservations: &Reservations) -> Vec<Reservation> {
    reservations.list().cloned().collect()
}

#[test]
fn a_pod_that_is_added_again_keeps_its_address_and_takes_the_new_container() {
    let mut reservations =
        Reservations::new(range(), [reservation("a", "default/mypod", "net1", "192.168.1.5")]);
    assert_eq!(assign(&mut reservations, "b", "default/mypod", "net1"), "192.168.1.5");
    assert_eq!(list(&reservations), [reservation("b", "default/mypod", "net1", "192.168.1.5")]);
    assert_eq!(reservations.release("a", "net1"), None);
    assert_eq!(reservations.release("b", "net1"), Some("192.168.1.5".parse().unwrap()));
}

#[test]
fn another_interface_or_pod_gets_the_lowest_free_address() {
    let mut reservations =
        Reservations::new(range(), [reservation("a", "default/mypod", "net1", "192.168.1.5")]);
    assert_eq!(assign(&mut reservations, "b", "default/mypod", "net2"), "192.168.1.1");
    assert_eq!(assign(&mut reservations, "c", "other/mypod", "net1"), "192.168.1.2");
    assert_eq!(list(&reservations).len(), 3);
}

#[test]
fn an_address_that_is_outside_the_window_or_the_network_now_is_kept() {
    let range = range().between(Some("192.168.1.100".parse().unwrap()), None).unwrap();
    let known = [
        reservation("a", "d/p1", "eth0", "192.168.1.5"),
        reservation("b", "d/p2", "eth0", "10.0.0.1"),
        reservation("c", "d/p3", "eth0", "fd00::1"),
    ];
    let mut reservations = Reservations::new(range, known.clone());
    assert_eq!(assign(&mut reservations, "a", "d/p1", "eth0"), "192.168.1.5");
    assert_eq!(assign(&mut reservations, "b", "d/p2", "eth0"), "10.0.0.1");
    assert_eq!(assign(&mut reservations, "c", "d/p3", "eth0"), "fd00::1");
    assert_eq!(list(&reservations), known);
    assert_eq!(assign(&mut reservations, "d", "d/p4", "eth0"), "192.168.1.100");
    assert_eq!(reservations.release("b", "eth0"), Some("10.0.0.1".parse().unwrap()));
}

#[test]
fn only_the_container_and_interface_that_match_are_released_and_of_several_the_first() {
    let known = [
        reservation("aaa", "d/p1", "net1", "192.168.1.1"),
        reservation("aaa", "d/p1", "net1", "192.168.1.9"),
        reservation("aaa", "d/p1", "eth0", "192.168.1.3"),
    ];
    let mut reservations = Reservations::new(range(), known.clone());
    assert_eq!(reservations.release("zzz", "net1"), None);
    assert_eq!(reservations.release("aaa", "net7"), None);
    assert_eq!(reservations.release("aaa", "net1"), Some("192.168.1.1".parse().unwrap()));
    assert_eq!(list(&reservations), known[1..]);
    assert_eq!(assign(&mut reservations, "x", "d/p2", "net1"), "192.168.1.1");
}

#[test]
fn a_record_without_interface_belongs_to_the_first_that_asks() {
    let mut reservations = Reservations::new(range(), [reservation("a", "default/mypod", "", "192.168.1.5")]);
    assert_eq!(assign(&mut reservations, "b", "default/mypod", "net1"), "192.168.1.5");
    assert_eq!(list(&reservations), [reservation("b", "default/mypod", "net1", "192.168.1.5")]);
    assert_eq!(assign(&mut reservations, "b", "default/mypod", "net2"), "192.168.1.1");
}

#[test]
fn a_record_without_interface_is_released_by_its_container() {
    let mut reservations = Reservations::new(range(), [reservation("aaa", "d/p1", "", "192.168.1.1")]);
    assert_eq!(reservations.release("bbb", "net1"), None);
    assert_eq!(reservations.release("aaa", "net1"), Some("192.168.1.1".parse().unwrap()));
    assert_eq!(list(&reservations), []);
}

#[test]
fn invariant_1_an_address_that_two_records_name_is_free_when_both_are_released() {
    let known =
        [reservation("a", "d/p1", "eth0", "192.168.1.1"), reservation("b", "d/p2", "eth0", "192.168.1.1")];
    for order in [["a", "b"], ["b", "a"]] {
        let mut reservations = Reservations::new(range(), known.clone());
        reservations.release(order[0], "eth0").unwrap();
        assert_eq!(assign(&mut reservations, "c", "d/p3", "eth0"), "192.168.1.2");
        reservations.release(order[1], "eth0").unwrap();
        assert_eq!(assign(&mut reservations, "d", "d/p4", "eth0"), "192.168.1.1");
    }
}

#[test]
fn a_full_range_is_refused() {
    let small = Range::new("10.0.0.0/30".parse().unwrap(), Usable::WithoutEdges).unwrap();
    let mut reservations = Reservations::new(small, []);
    assign(&mut reservations, "a", "d/p1", "eth0");
    assign(&mut reservations, "b", "d/p2", "eth0");
    let request = Request { id: "c", podref: "d/p3", ifname: "eth0" };
    assert!(matches!(reservations.assign(request), Err(HoldError::Exhausted { .. })));
    assert_eq!(list(&reservations).len(), 2);
}
