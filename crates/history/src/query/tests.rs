use proptest::prelude::*;
use tenure_view::{End, Holder, Pod};

use super::*;
use crate::testing::at;

fn values(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn period(container: &str, from: i64, to: Option<i64>) -> Period {
    let pod = Some(Pod { namespace: "ns".into(), name: format!("p-{container}"), uid: String::new() });
    let holder = Holder { network: "n".into(), container: container.into(), interface: "eth0".into(), pod };
    Period {
        holder,
        addresses: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
        from: Some(at(from)),
        to: to.map(at),
        end: to.map(|_| End::Released),
        ..Period::default()
    }
}

#[test]
fn a_question_is_read_as_it_was_written_and_a_wrong_one_is_refused_by_name() {
    let time = "2026-11-15T09:00:00Z";
    for who in [
        Who::Address("fd00::1".parse().unwrap()),
        Who::Pod { namespace: "ns".into(), name: "web-1".into() },
        Who::Container("c0ffee".into()),
    ] {
        let query = Query { who, from: Some(time.parse().unwrap()), to: None };
        let written = query.encode();
        let pairs: Vec<(&str, &str)> = written.split('&').filter_map(|pair| pair.split_once('=')).collect();
        assert_eq!(Query::parse(&values(&pairs)), Ok(query), "{written}");
    }
    for (bad, said) in [
        (vec![("address", "10.0.0.256")], "address is \"10.0.0.256\"; accepted is an IPv4 or IPv6 address"),
        (vec![("pod", "web")], "pod is \"web\"; accepted is NAMESPACE/NAME"),
        (
            vec![("address", "10.0.0.1"), ("from", "now")],
            "from is \"now\"; accepted is a time such as 2026-11-15T09:00:00Z",
        ),
        (
            vec![("address", "10.0.0.1"), ("node", "x")],
            "\"node\" is unknown; accepted are address, pod, container, from, to",
        ),
        (vec![("address", "10.0.0.1"), ("pod", "a/b")], "accepted is one of address, pod and container"),
        (vec![], "accepted is one of address, pod and container"),
    ] {
        assert_eq!(Query::parse(&values(&bad)), Err(said.to_owned()));
    }
}

#[test]
fn of_a_period_that_was_said_twice_the_end_counts_and_the_youngest_answers_stay() {
    let query = Query { who: Who::Address("10.0.0.1".parse().unwrap()), from: None, to: None };
    let mut answers = Collector::new(query, 2);
    answers.take(period("b", 20, None));
    answers.take(period("b", 20, Some(25)));
    answers.take(period("b", 20, None));
    answers.take(period("a", 10, Some(15)));
    assert!(!answers.more);
    answers.take(period("c", 30, None));
    assert_eq!(answers.finish(), (vec![period("b", 20, Some(25)), period("c", 30, None)], true));
}

proptest! {
    /// A line that does not contain the needle has no answer.
    #[test]
    fn the_needle_is_in_every_line_with_an_answer(name in "\\PC{1,6}", cut in 1_usize..6) {
        let period = period(&name, 10, Some(20));
        let pod = period.holder.pod.clone().unwrap();
        let line = serde_json::to_string(&period).unwrap();
        let beginning: String = name.chars().take(cut).collect();
        for who in [
            Who::Address("fd00::1".parse().unwrap()),
            Who::Pod { namespace: pod.namespace, name: pod.name },
            Who::Container(beginning),
        ] {
            let query = Query { who, from: None, to: None };
            prop_assert!(query.matches(&period), "{query:?}");
            prop_assert!(line.contains(&query.needle()), "{line} has no {}", query.needle());
        }
    }

    #[test]
    fn a_period_is_an_answer_if_and_only_if_it_shares_a_moment_with_the_time(
        from in 0_i64..20, len in 1_i64..20, begin in 0_i64..40, width in 0_i64..10,
    ) {
        let period = period("a", from, Some(from + len));
        let query = Query {
            who: Who::Container("a".into()),
            from: Some(at(begin)),
            to: Some(at(begin + width)),
        };
        let shares = (begin..=begin + width).any(|second| (from..from + len).contains(&second));
        prop_assert_eq!(query.matches(&period), shares);
    }
}
