//! Who answers for an address while it moves a hundred times: always one, and never two.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenure_testbed::hosts::{Capture, Direction, Packet, Segment};
use tenure_testbed::traffic::{Answerer, Asker, Question, answered};
use tenure_testbed::wait::{PATIENCE, until};

use crate::stage::{NETWORK, Stage, routes_to, sends_to};
use tenure_tests::moves::{figures, now, say};

const MOVES: usize = 100;
/// How often somebody asks.
const EVERY: Duration = Duration::from_millis(2);
/// How long a commit is looked at after its first answer, before the next one.
const SETTLED: Duration = Duration::from_millis(30);
/// Longer than anything of an address stays where it was.
const LONG: Duration = Duration::from_millis(1500);
const QUESTIONS: u16 = 7;

/// A move: which name answers from it on, and when.
struct Move {
    to: &'static str,
    /// When the mover said so.
    said: Duration,
    /// When the first answer came.
    reached: Duration,
}

#[test]
fn over_a_hundred_moves_never_two_answer_for_one_address() {
    let stage = Stage::new();
    let wire = Arc::new(Segment::new("wire").unwrap());
    let machines = stage.machines(&wire);
    let addresses = stage.claim("service", NETWORK, "eth0", &json!({}));
    let refers = json!({"annotations": {"tenure/claim": "service"}});
    let names = ["here", "there"];
    let here = stage.pod(&machines[0], names[0], &refers);
    assert_eq!(here.add(), addresses);
    let there = stage.pod(&machines[1], names[1], &refers);
    assert_eq!(there.add(), addresses);
    let client = stage.pod(&machines[2], "client", &json!({}));
    let own = client.add();

    // Both answer all the time, each in its own name: who is heard is the network's choice alone.
    let at: Vec<SocketAddr> = addresses.iter().map(|address| SocketAddr::new(*address, QUESTIONS)).collect();
    let both = |at: &SocketAddr| {
        [&here, &there].map(|pod| Answerer::start(pod.network.namespace(), *at, &pod.name).unwrap())
    };
    let answerers: Vec<_> = at.iter().map(both).collect();
    let captures = [machines[0].host.capture().unwrap(), machines[1].host.capture().unwrap()];
    let on_wire = wire.capture().unwrap();
    let ask = |at: &SocketAddr| {
        let own = own.iter().find(|own| own.is_ipv4() == at.is_ipv4()).unwrap();
        Asker::start(client.network.namespace(), SocketAddr::new(*own, 7000), *at, EVERY).unwrap()
    };
    let askers: Vec<Asker> = at.iter().map(ask).collect();
    for asker in &askers {
        asker.wait_for(names[0], Duration::ZERO, PATIENCE).expect("the first pod is reached");
    }
    let mut moves: Vec<Vec<Move>> = at.iter().map(|_| Vec::new()).collect();
    for number in 1..=MOVES {
        let to = names[number % 2];
        let said = stage.change(to, &json!({"annotations": {"tenure/active": number.to_string()}}));
        for (asker, moves) in askers.iter().zip(&mut moves) {
            let reached = asker
                .wait_for(to, said, PATIENCE)
                .unwrap_or_else(|| panic!("move {number}: {to} is not reached"));
            moves.push(Move { to, said, reached });
        }
        // A host that hears late of this move may send to the pod of before after it has heard of the next one.
        let target = &machines[number % 2];
        until("every host sends the address to its pod", || {
            machines
                .iter()
                .all(|machine| addresses.iter().all(|it| sends_to(machine, *it, target)))
                .then_some(())
        });
        // Some moves follow when nothing of the one before is left, and most much earlier.
        std::thread::sleep(if number % 25 == 0 { LONG } else { SETTLED });
    }
    let ended = now();
    for ((asker, moves), at) in askers.into_iter().zip(&moves).zip(&at) {
        let times: Vec<Duration> = moves.iter().map(|it| it.reached.saturating_sub(it.said)).collect();
        say(&format!("{at}: from the mover's word to the first answer: {}", figures(&times)));
        judge(&asker.stop(), moves, ended);
    }
    drop(answerers);
    judge_captures(&captures.map(Capture::stop), &names, &at);
    assert_eq!(
        claimed_on_segment(&on_wire.stop(), &addresses),
        Vec::<String>::new(),
        "a routed address is on no segment"
    );
    let holders = stage.holders("service");
    assert_eq!(holders["active"]["pod"], names[0], "{holders}");
    assert_eq!(holders["number"], MOVES + 1, "{holders}");

    here.del();
    there.del();
    stage.delete_pod(names[0]);
    stage.delete_pod(names[1]);
    stage.delete_claim("service");
    until("all routes to go", || {
        let left =
            machines.iter().flat_map(|machine| addresses.iter().flat_map(|it| routes_to(machine, *it)));
        let left: Vec<String> = left.collect();
        if now().saturating_sub(ended) > Duration::from_secs(20) {
            say(&format!("left: {left:?}"));
        }
        left.is_empty().then_some(())
    });
}

/// That each question has one answer or none, and from each move's first answer on only the new one answers.
fn judge(questions: &[Question], moves: &[Move], ended: Duration) {
    let unanswered = questions.iter().filter(|question| question.answers.is_empty()).count();
    say(&format!("{} questions, {unanswered} without an answer", questions.len()));
    for (number, question) in questions.iter().enumerate() {
        assert!(question.answers.len() < 2, "question {number} was answered twice: {question:?}");
    }
    for (number, it) in moves.iter().enumerate() {
        let next = moves.get(number + 1).map_or(ended, |next| next.said);
        let within = questions.iter().filter(|question| question.at >= it.said && question.at < next);
        let by: Vec<&str> =
            within.flat_map(|question| &question.answers).map(|answer| answer.by.as_str()).collect();
        let first = by.iter().position(|name| *name == it.to).unwrap();
        let back = by[first..].iter().filter(|name| **name != it.to).count();
        assert_eq!(
            back,
            0,
            "move {}: after the first answer of {} the other answers: {by:?}",
            number + 1,
            it.to
        );
    }
    // Nobody was away for long: an address that moves is not an address that is gone.
    let gaps = questions.windows(2).filter(|pair| !pair[0].answers.is_empty() && pair[1].answers.is_empty());
    say(&format!("{} interruptions", gaps.count()));
}

/// That on their way out of the hosts no two answers are to one question.
fn judge_captures(captures: &[Vec<Packet>; 2], names: &[&str], at: &[SocketAddr]) {
    for at in at {
        let mut seen: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        for (packets, name) in captures.iter().zip(names) {
            let mut own: Vec<(u64, String)> = packets
                .iter()
                .filter(|packet| packet.direction == Direction::Received)
                .filter_map(|packet| answered(packet, *at))
                // The other host's answers to this host's clients come by here.
                .filter(|(_, by)| by == name)
                .collect();
            assert!(!own.is_empty(), "{name} answers sometimes");
            own.sort();
            own.dedup();
            for (question, by) in own {
                seen.entry(question).or_default().push(by);
            }
        }
        let twice: Vec<_> = seen.iter().filter(|(_, by)| by.len() > 1).collect();
        assert!(twice.is_empty(), "answered by both: {twice:?}");
    }
}

/// Who says on the segment that an address is there: by ARP, or by a neighbour advertisement.
pub fn claimed_on_segment(packets: &[Packet], addresses: &[IpAddr]) -> Vec<String> {
    let claims = |packet: &&Packet| {
        let by_arp = packet.arp().is_some_and(|arp| addresses.contains(&arp.sender.into()));
        by_arp || packet.advertised().is_some_and(|address| addresses.contains(&address.into()))
    };
    packets.iter().filter(claims).map(Packet::to_string).collect()
}
