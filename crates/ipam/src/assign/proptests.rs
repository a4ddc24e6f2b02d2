//! Reservations against a plain list that is searched from the front.

use proptest::prelude::*;

use super::*;
use crate::range::{Range, Usable};

const PODS: [&str; 4] = ["ns/a", "ns/b", "ns/c", "other/a"];
const IFNAMES: [&str; 3] = ["eth0", "net1", ""];
const CONTAINERS: [&str; 5] = ["1", "2", "3", "4", "5"];

fn range() -> Range {
    Range::new("10.0.0.0/29".parse().unwrap(), Usable::WithoutEdges).unwrap()
}

fn reservation() -> impl Strategy<Value = Reservation> {
    let names =
        (prop::sample::select(&CONTAINERS), prop::sample::select(&PODS), prop::sample::select(&IFNAMES));
    (names, 0_u128..12).prop_map(|((id, podref, ifname), offset)| Reservation {
        id: id.into(),
        podref: podref.into(),
        uid: String::new(),
        ifname: ifname.into(),
        address: range().cidr().first().plus(offset).unwrap(),
    })
}

#[derive(Clone, Debug)]
enum Operation {
    Assign(&'static str, &'static str, &'static str),
    Release(&'static str, &'static str),
}

fn operation() -> impl Strategy<Value = Operation> {
    let id = || prop::sample::select(&CONTAINERS);
    // A request always names its interface.
    let ifname = || prop::sample::select(&IFNAMES[..2]);
    prop_oneof![
        (id(), prop::sample::select(&PODS), ifname())
            .prop_map(|(id, pod, ifname)| Operation::Assign(id, pod, ifname)),
        (id(), ifname()).prop_map(|(id, ifname)| Operation::Release(id, ifname)),
    ]
}

fn first(list: &[Reservation], matches: impl Fn(&Reservation, &str) -> bool, ifname: &str) -> Option<usize> {
    let find = |ifname: &str| list.iter().position(|known| known.ifname == ifname && matches(known, ifname));
    find(ifname).or_else(|| find(""))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn reservations_do_what_a_plain_list_does(
        known in prop::collection::vec(reservation(), 0..6),
        operations in prop::collection::vec(operation(), 0..30),
    ) {
        let mut list = known.clone();
        let mut reservations = Reservations::new(range(), known);
        for operation in operations {
            match operation {
                Operation::Assign(id, podref, ifname) => {
                    let known = first(&list, |known, _| known.podref == podref, ifname);
                    let expected = if let Some(at) = known {
                        (list[at].id, list[at].ifname) = (id.into(), ifname.into());
                        Some(list[at].address)
                    } else {
                        let taken = |address: &Address| list.iter().any(|known| known.address == *address);
                        let free = range().walk_from(range().first()).find(|address| !taken(address));
                        list.extend(free.map(|address| {
                            let (id, podref, ifname) = (id.into(), podref.into(), ifname.into());
                            Reservation { id, podref, uid: String::new(), ifname, address }
                        }));
                        free
                    };
                    prop_assert_eq!(reservations.assign(Request { id, podref, ifname }).ok(), expected);
                }
                Operation::Release(id, ifname) => {
                    let known = first(&list, |known, _| known.id == id, ifname);
                    prop_assert_eq!(reservations.release(id, ifname), known.map(|at| list.remove(at).address));
                }
            }
            prop_assert_eq!(reservations.list().cloned().collect::<Vec<_>>(), list.clone());
        }
    }
}
