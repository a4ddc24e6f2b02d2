//! What `tenure who --at`, `--history` and `tenure pod` say, letter by letter.

use proptest::prelude::*;
use serde_json::{Value, json};
use tenure_view::{Claim, Gap, History, Holder, Pod};

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn period(pod: &str, from: i64, to: Option<i64>) -> Period {
    let pod = Pod { namespace: "ns".into(), name: pod.into(), uid: String::new() };
    let container = format!("c-{}", pod.name);
    let holder = Holder { network: "k8s".into(), container, interface: "eth0".into(), pod: Some(pod) };
    Period {
        holder,
        pool: "default".into(),
        block: "default-0".into(),
        block_uid: "uid".into(),
        addresses: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
        from: Some(at(from)),
        to: to.map(at),
        end: to.map(|_| End::Released),
        ..Period::default()
    }
}

fn told(histories: impl IntoIterator<Item = (&'static str, Result<Vec<Period>, &'static str>)>) -> Told {
    let history = |node: &str, periods| History {
        node: node.into(),
        time: at(1_000),
        begins: Some(at(0)),
        periods,
        ..History::default()
    };
    let histories = histories.into_iter().map(|(node, told)| {
        let told = told.map(|periods| history(node, periods)).map_err(str::to_owned);
        (node.to_owned(), told)
    });
    Told { histories: histories.collect(), made: BTreeMap::new(), cluster: true }
}

fn said(told: &Told, second: i64) -> (StateAt, String) {
    let at = at(second);
    let past = merge(told, (Some(at), Some(at)));
    let answer = answer_at(&past, "10.0.0.1".parse().unwrap(), at, told.cluster);
    (answer.state, text_at(&answer))
}

#[test]
fn the_holder_at_a_time_is_shown_with_all_that_leads_to_it() {
    let told = told([
        ("node1", Ok(vec![period("web-1", 10, Some(20))])),
        ("node2", Ok(vec![period("web-2", 30, None)])),
    ]);
    assert_eq!(
        said(&told, 15),
        (
            StateAt::Held,
            "\
10.0.0.1 was held by ns/web-1 on node node1 at 1970-01-01T00:00:15Z
pod:          ns/web-1
interface:    eth0 of container c-web-1, network k8s
node:         node1
block:        default-0
pool:         default
from:         1970-01-01T00:00:10Z
to:           1970-01-01T00:00:20Z
with:         fd00::1
"
            .to_owned()
        )
    );
    let (state, text) = said(&told, 25);
    assert_eq!(state, StateAt::Nobody);
    assert_eq!(
        text,
        "nobody held 10.0.0.1 at 1970-01-01T00:00:25Z; nodes that were removed since then cannot be asked\n"
    );
    assert_eq!(said(&told, 500).0, StateAt::Held, "who has it still had it then");
}

#[test]
fn what_is_not_known_is_said_and_what_a_new_node_cannot_know_does_not_matter() {
    let mut told = told([("node1", Ok(vec![])), ("node2", Err("no pod with the label runs there"))]);
    assert_eq!(said(&told, 25).0, StateAt::Unknown, "a node could not be asked");
    told.histories.remove("node2");
    assert_eq!(said(&told, 25).0, StateAt::Nobody);
    let gap =
        Gap { kind: GapKind::Before, from: None, to: Some(at(50)), message: "its log begins later".into() };
    told.histories.get_mut("node1").unwrap().as_mut().unwrap().gaps.push(gap);
    assert_eq!(said(&told, 25).0, StateAt::Unknown, "the log begins later");
    told.made.insert("node1".into(), at(40));
    assert_eq!(said(&told, 25).0, StateAt::Nobody, "there was no such node");
    assert_eq!(said(&told, 45).0, StateAt::Unknown);

    let unseen = Period { end: Some(End::Unseen), seen: Some(at(60)), ..period("web", 55, Some(70)) };
    told.histories.get_mut("node1").unwrap().as_mut().unwrap().periods.push(unseen);
    let (state, text) = said(&told, 65);
    assert_eq!(state, StateAt::Maybe);
    assert!(
        text.starts_with(
            "10.0.0.1 may have been held by ns/web on node node1 at 1970-01-01T00:01:05Z: it had it at 1970-01-01T00:01:00Z, and at \
             1970-01-01T00:01:10Z it was found to be over\n"
        ),
        "{text}"
    );
}

#[test]
fn of_two_holders_of_a_claim_the_one_that_packets_reach_comes_first() {
    let user = |pod: &str, reached| {
        let claim = Some(Claim { name: "ns/vm".into(), uid: "u".into(), reached });
        Period { claim, block: String::new(), ..period(pod, 10, None) }
    };
    let told = told([("node1", Ok(vec![user("old", false)])), ("node2", Ok(vec![user("new", true)]))]);
    let (_, text) = said(&told, 20);
    assert!(text.starts_with("10.0.0.1 was held by ns/new on node node2"), "{text}");
    assert!(
        text.contains("packets:      arrived") && text.contains("packets:      did not arrive"),
        "{text}"
    );
}

#[test]
fn a_list_has_all_periods_of_all_nodes_in_order_and_notes_of_what_it_lacks() {
    let told = told([
        ("node1", Ok(vec![period("a", 10, Some(20)), period("c", 40, None)])),
        ("node2", Ok(vec![period("b", 30, Some(35))])),
        ("node3", Err("connection refused")),
    ]);
    let past = merge(&told, (None, None));
    let output = past.output(Format::Table, holders).unwrap();
    assert_eq!(
        output.text,
        "\
FROM                   TO                     HOLDER   NODE    POOL      CLAIM
1970-01-01T00:00:10Z   1970-01-01T00:00:20Z   ns/a     node1   default   -
1970-01-01T00:00:30Z   1970-01-01T00:00:35Z   ns/b     node2   default   -
1970-01-01T00:00:40Z   now                    ns/c     node1   default   -
"
    );
    assert_eq!((output.notes.as_str(), output.code), ("node node3: connection refused\n", COULD_NOT_LOOK));
    let json: Value = serde_json::from_str(&past.output(Format::Json, holders).unwrap().text).unwrap();
    assert_eq!(
        json["unknown"],
        json!([{"node": "node3", "kind": "unreachable", "message": "connection refused"}])
    );
    assert_eq!(
        (&json["periods"][0]["node"], &json["periods"][0]["pod"]["name"]),
        (&json!("node1"), &json!("a"))
    );
}

#[test]
fn many_nodes_whose_logs_begin_later_are_one_note() {
    let names: Vec<String> = (0..7).map(|number| format!("n{number}")).collect();
    let mut told = Told::default();
    for (name, begins) in names.iter().zip([30, 20, 40, 50, 60, 70, 80]) {
        let gap = Gap {
            kind: GapKind::Before,
            from: None,
            to: Some(at(begins)),
            message: format!("from {begins}"),
        };
        told.histories.insert(name.clone(), Ok(History { gaps: vec![gap], ..History::default() }));
    }
    let notes = merge(&told, (None, None)).notes();
    assert_eq!(notes, ["the histories of 7 nodes begin later: n1 first (from 20), n6 last (from 80)"]);
}

#[test]
fn a_time_is_absolute_or_ago() {
    let now = at(1_000_000);
    for (text, expected) in [
        ("1970-01-02T00:00:00Z", 86_400),
        ("1970-01-02T02:00:00+02:00", 86_400),
        ("2h", 1_000_000 - 7_200),
        ("-90m", 1_000_000 - 5_400),
        ("3d ago", 1_000_000 - 259_200),
    ] {
        assert_eq!(moment_before(text, now), Ok(at(expected)), "{text}");
    }
    for bad in ["", "yesterday", "5", "2026-11-15", "99999999999d"] {
        let error = moment_before(bad, now).unwrap_err();
        assert!(error.contains(bad) && error.contains("accepted are"), "{error}");
    }
}

proptest! {
    #[test]
    fn whoever_had_it_is_found_whatever_else_nodes_tell(
        spans in prop::collection::vec((0_usize..3, 0_i64..50, 1_i64..50), 0..12), second in 0_i64..100,
    ) {
        let nodes = ["a", "b", "c"];
        let mut told = told(nodes.map(|node| (node, Ok(Vec::new()))));
        for (index, (node, from, len)) in spans.iter().enumerate() {
            let history = told.histories.get_mut(nodes[*node]).unwrap().as_mut().unwrap();
            history.periods.push(period(&format!("p{index}"), *from, Some(from + len)));
        }
        let mut expected: Vec<String> = spans.iter().enumerate()
            .filter(|(_, (_, from, len))| (*from..from + len).contains(&second))
            .map(|(index, _)| format!("p{index}"))
            .collect();
        expected.sort();
        let past = merge(&told, (Some(at(second)), Some(at(second))));
        let found = past.at(at(second)).into_iter();
        let mut found: Vec<String> =
            found.map(|(_, row)| row.period.holder.pod.as_ref().unwrap().name.clone()).collect();
        found.sort();
        prop_assert_eq!(&found, &expected);
        prop_assert_eq!(said(&told, second).0 == StateAt::Held, !expected.is_empty());
    }
}
