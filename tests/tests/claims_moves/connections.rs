//! TCP connections live through moves of the address of one of their ends.
//!
//! What is done here to a pod's connections is done to a container by CRIU and to a virtual machine by its hypervisor: the
//! pod stops, its connections are taken over by the pod on the other host, which goes on with them, and only then the mover
//! says so. From that moment on the address is to arrive there: the time until it does is the blackout beyond the freeze.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_testbed::hosts::{NetworkNamespace, Packet, Segment};
use tenure_testbed::traffic::{Answerer, Asker, Frozen, Pace, Talker, Talking};
use tenure_testbed::wait::{PATIENCE, until};

use crate::route_log::RouteLog;
use crate::stage::{NETWORK, Placed, Stage, figures, now, say};

/// No blackout is as long as this, also on a machine that is busy with other things. (What it is to be is a measurement.)
const BOUND: Duration = Duration::from_secs(5);
/// How much a pod that goes on is let talk before it moves again.
const A_WHILE: Duration = Duration::from_millis(150);
/// The ports of the conversations, of the questions and of whoever asks.
const PORT: u16 = 8000;
const QUESTIONS: u16 = 7;
const ASKING: u16 = 7000;

/// A conversation that lives through moves: the client's end and the server's.
struct Conversation {
    pace: Pace,
    client: Talking,
    server: Option<Talker>,
}

/// All that goes on with a claim's addresses: over each family a stream, a conversation of short messages, and questions.
struct Traffic {
    addresses: Vec<IpAddr>,
    conversations: Vec<Conversation>,
    askers: Vec<Asker>,
    answerers: Vec<Answerer>,
}

/// How long things took after a pod went on elsewhere.
#[derive(Debug, Default)]
struct Blackouts {
    /// From the stop to the moment of going on: the mover's, not ours.
    freeze: Vec<Duration>,
    /// Until a question was answered.
    questions: Vec<Duration>,
    /// Until a message came.
    messages: Vec<Duration>,
    /// Until something of the stream came.
    streams: Vec<Duration>,
}

impl Traffic {
    fn start(client: &Placed<'_>, from: &[IpAddr], server: &Placed<'_>, addresses: &[IpAddr]) -> Self {
        let (client, server) = (client.network.namespace(), server.network.namespace());
        let mut conversations = Vec::new();
        for address in addresses {
            for (number, pace) in (0..).zip([Pace::STREAM, Pace::TICKS]) {
                let at = SocketAddr::new(*address, PORT + number);
                let (calling, called) = Talker::connected(client, server, at, pace).unwrap();
                conversations.push(Conversation {
                    pace,
                    client: calling.start().unwrap(),
                    server: Some(called),
                });
            }
        }
        let asker = |address: &IpAddr| {
            let own = from.iter().find(|own| own.is_ipv4() == address.is_ipv4()).unwrap();
            let (from, to) = (SocketAddr::new(*own, ASKING), SocketAddr::new(*address, QUESTIONS));
            Asker::start(client, from, to, Duration::from_millis(1)).unwrap()
        };
        let askers = addresses.iter().map(asker).collect();
        Self { addresses: addresses.to_vec(), conversations, askers, answerers: Vec::new() }
    }

    /// The pod goes on: it talks and answers.
    fn go_on(&mut self, pod: &Placed<'_>) -> Vec<Talking> {
        let answerer = |address: &IpAddr| {
            Answerer::start(pod.network.namespace(), SocketAddr::new(*address, QUESTIONS), &pod.name).unwrap()
        };
        self.answerers = self.addresses.iter().map(answerer).collect();
        self.conversations.iter_mut().map(|it| it.server.take().unwrap().start().unwrap()).collect()
    }

    /// The pod stops in the middle of all that it does.
    fn stop(&mut self, talking: Vec<Talking>) -> Vec<Frozen> {
        self.answerers.clear();
        let stopped: Vec<Talker> = talking.into_iter().map(|it| it.stop().unwrap()).collect();
        let freeze = |(conversation, server): (&mut Conversation, Talker)| {
            let frozen = server.freeze().unwrap();
            conversation.server = Some(server);
            frozen
        };
        self.conversations.iter_mut().zip(stopped).map(freeze).collect()
    }

    /// What was stopped is taken over by another namespace.
    fn take_over(&mut self, frozen: &[Frozen], there: &NetworkNamespace) {
        for (conversation, frozen) in self.conversations.iter_mut().zip(frozen) {
            conversation.server.as_mut().unwrap().thaw(frozen, there).unwrap();
        }
    }

    /// Waits until everything arrives at a pod that goes on since `since`.
    fn measure(&self, pod: &Placed<'_>, since: Duration, blackouts: &mut Blackouts) {
        for asker in &self.askers {
            let answered = asker.wait_for(&pod.name, since, BOUND);
            let answered = answered.unwrap_or_else(|| panic!("{} is not reached within {BOUND:?}", pod.name));
            blackouts.questions.push(answered.saturating_sub(since));
        }
    }

    /// Both ends have heard exactly what the other has said, and nobody was asked twice or answered for another.
    fn finish(self, talking: Vec<Talking>) {
        for (conversation, server) in self.conversations.into_iter().zip(talking) {
            let (client, server) = (conversation.client.stop().unwrap(), server.stop().unwrap());
            let silence = client.longest_silence.as_secs_f64() * 1e3;
            say(&format!(
                "{} bytes a pause: {:?}, longest silence at the client {silence:.1} ms",
                conversation.pace.bytes,
                client.counts()
            ));
            Talker::finish(client, server, PATIENCE).unwrap();
        }
        for asker in self.askers {
            let questions = asker.stop();
            let most = questions.iter().map(|question| question.answers.len()).max();
            assert_eq!(most, Some(1), "a question is answered once");
        }
    }
}

impl Blackouts {
    /// Waits until something new was heard in each conversation that goes on since `since`.
    fn hear(&mut self, traffic: &Traffic, talking: &[Talking], since: Duration) {
        for (conversation, talking) in traffic.conversations.iter().zip(talking) {
            // TCP itself waits the longer the more it has lost: that is bounded by the time that nothing was answered, and not ours.
            let heard = talking.first_heard(PATIENCE);
            let heard =
                heard.unwrap_or_else(|| panic!("nothing came within {PATIENCE:?}: {:?}", conversation.pace));
            let of_pace = match conversation.pace {
                Pace::TICKS => &mut self.messages,
                _ => &mut self.streams,
            };
            of_pace.push(heard.saturating_sub(since));
        }
    }

    fn print(&self, what: &str) {
        let Self { freeze, questions, messages, streams } = self;
        let rows = [
            ("freeze", freeze),
            ("blackout beyond it, questions", questions),
            ("messages", messages),
            ("streams", streams),
        ];
        let rows: Vec<String> =
            rows.iter().map(|(name, times)| format!("  {name}: {}", figures(times))).collect();
        say(&format!("{what}\n{}", rows.join("\n")));
    }
}

/// Ends the pod's part of `talking`, lets it go on in `to`, tells the mover's word, and waits until `to` is reached.
fn carry<'a>(
    traffic: &mut Traffic,
    talking: Vec<Talking>,
    from: &Placed<'a>,
    to: &Placed<'a>,
    word: impl FnOnce(),
    blackouts: &mut Blackouts,
) -> Vec<Talking> {
    let stopped = now();
    let frozen = traffic.stop(talking);
    traffic.take_over(&frozen, to.network.namespace());
    let talking = traffic.go_on(to);
    let gone_on = now();
    blackouts.freeze.push(gone_on.saturating_sub(stopped));
    word();
    traffic.measure(to, gone_on, blackouts);
    // Whatever still arrived at the source would be answered with a reset, if its connections were closed before.
    until("the source to give up the address", || {
        (!traffic.addresses.iter().any(|address| from.has_route(116, *address))).then_some(())
    });
    drop(frozen);
    blackouts.hear(traffic, &talking, gone_on);
    std::thread::sleep(A_WHILE);
    talking
}

/// Packets of these addresses that end a connection by force.
fn resets(packets: &[Packet], addresses: &[IpAddr]) -> Vec<String> {
    let reset = |packet: &&Packet| {
        let Some(ip) = packet.ip().filter(|ip| ip.protocol == 6) else { return false };
        let flags = 14 + if ip.source.is_ipv4() { 20 } else { 40 } + 13;
        let ours = addresses.contains(&ip.source) || addresses.contains(&ip.destination);
        ours && packet.bytes.get(flags).is_some_and(|flags| flags & 0x04 != 0)
    };
    packets.iter().filter(reset).map(Packet::to_string).collect()
}

/// That at each move the target's export route came before the source's went. `moves`: from which host to which.
fn assert_made_before_broken(logs: &[RouteLog], moves: &[(usize, usize)], addresses: &[IpAddr]) {
    for address in addresses {
        let mut next: Vec<_> =
            logs.iter().map(|log| log.of(*address).into_iter().filter(|it| it.table == 119)).collect();
        let first = next[moves[0].0].next().unwrap();
        assert!(!first.gone, "{first:?}");
        for (from, to) in moves {
            let (made, broken) = (next[*to].next().unwrap(), next[*from].next().unwrap());
            assert!(!made.gone && broken.gone && made.at < broken.at, "{address}: {made:?}, then {broken:?}");
        }
    }
}

#[test]
fn connections_live_through_moves_that_any_mover_tells_by_an_annotation() {
    let stage = Stage::new();
    let wire = Arc::new(Segment::new("wire").unwrap());
    let machines = stage.machines(&wire);
    let logs = [RouteLog::start(&machines[0].host), RouteLog::start(&machines[1].host)];
    let addresses = stage.claim("service", NETWORK, "eth0", &json!({}));
    assert_eq!(addresses.len(), 2, "{addresses:?}");
    let refers = json!({"annotations": {"tenure/claim": "service"}});
    let one = stage.pod(&machines[0], "one", &refers);
    let client = stage.pod(&machines[2], "client", &json!({}));
    let own = client.add();
    assert_eq!(one.add(), addresses);
    let other = stage.pod(&machines[1], "other", &refers);
    assert_eq!(other.add(), addresses, "the second pod has the same");
    assert!(!other.has_route(116, addresses[0]) && !other.has_route(119, addresses[0]), "and is not reached");

    let capture = wire.capture().unwrap();
    let mut traffic = Traffic::start(&client, &own, &one, &addresses);
    let mut talking = traffic.go_on(&one);
    std::thread::sleep(A_WHILE);
    let (mut blackouts, mut moves) = (Blackouts::default(), Vec::new());
    let pods = [&one, &other];
    for number in 0..6_usize {
        let (from, to) = (number % 2, (number + 1) % 2);
        let active = json!({"annotations": {"tenure/active": format!("{}", number + 1)}});
        let word = || _ = stage.change(&pods[to].name, &active);
        talking = carry(&mut traffic, talking, pods[from], pods[to], word, &mut blackouts);
        moves.push((from, to));
        until("the source to export the address no longer", || {
            (!addresses.iter().any(|address| pods[from].has_route(119, *address))).then_some(())
        });
        assert!(addresses.iter().all(|address| pods[to].has_route(119, *address)), "the target exports it");
    }
    traffic.finish(talking);
    blackouts.print("moves by annotation");
    assert_eq!(resets(&capture.stop(), &addresses), Vec::<String>::new());
    assert_made_before_broken(&logs, &moves, &addresses);
}

#[test]
fn connections_live_through_migrations_that_kubevirt_tells_by_its_labels() {
    let stage = Stage::new();
    let wire = Arc::new(Segment::new("wire").unwrap());
    let machines = stage.machines(&wire);
    let addresses = stage.claim("machine.default", NETWORK, "eth0", &json!({"kubevirt.io/vm": "machine"}));
    let client = stage.pod(&machines[2], "client", &json!({}));
    let own = client.add();
    let mut running = stage.pod(&machines[0], "virt-launcher-machine-0", &launcher("machine"));
    stage.change(&running.name, &json!({"labels": {"kubevirt.io/nodeName": machines[0].name}}));
    assert_eq!(running.add(), addresses);

    let capture = wire.capture().unwrap();
    let mut traffic = Traffic::start(&client, &own, &running, &addresses);
    let mut talking = traffic.go_on(&running);
    std::thread::sleep(A_WHILE);
    let mut blackouts = Blackouts::default();
    for number in 1..=4_usize {
        let machine = &machines[number % 2];
        let target = stage.pod(machine, &format!("virt-launcher-machine-{number}"), &launcher("machine"));
        assert_eq!(target.add(), addresses, "while the machine still runs on the other host");
        let ready = json!({
            "labels": {"kubevirt.io/nodeName": machine.name},
            "annotations": {"kubevirt.io/migration-target-ready-timestamp": format!("2026-11-16T05:31:0{number}Z")},
        });
        let word = || _ = stage.change(&target.name, &ready);
        talking = carry(&mut traffic, talking, &running, &target, word, &mut blackouts);
        // The source's launcher ends when the machine is gone from it, and its sandbox later.
        stage.finish(&running.name);
        running.del();
        stage.delete_pod(&running.name);
        running = target;
    }
    traffic.finish(talking);
    blackouts.print("migrations as KubeVirt tells them");
    assert_eq!(resets(&capture.stop(), &addresses), Vec::<String>::new());
}

/// The metadata of a pod in which KubeVirt runs this machine.
fn launcher(vmi: &str) -> Value {
    json!({
        "labels": {"kubevirt.io": "virt-launcher", "vm.kubevirt.io/name": vmi},
        "annotations": {"kubevirt.io/domain": vmi},
        "ownerReferences": [{
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": vmi,
            "uid": "5e0f3c9a-0000-4000-8000-000000000001", "controller": true, "blockOwnerDeletion": true,
        }],
    })
}
