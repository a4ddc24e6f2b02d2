//! An address that moves on an Ethernet segment, where nobody routes: one pod answers for it, and the other is quiet.

use std::net::{IpAddr, SocketAddr};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_handles::{Clock, SystemClock};
use tenure_testbed::binaries::{Binaries, Program};
use tenure_testbed::hosts::{ArpOperation, Direction, Host, MacAddress, Packet, Segment};
use tenure_testbed::traffic::{Answerer, Asker};
use tenure_testbed::wait::PATIENCE;

use tenure_tests::agent::Called;
use tenure_tests::moves::{NAMESPACE, Placed, figures, insist, now, plugins, say};

use crate::stage::Stage;

const MOVES: usize = 10;
const INTERFACE: &str = "net1";
const QUESTIONS: u16 = 7;
/// The neighbour that asks anew all the time, and has no answer meanwhile.
const FORGETFUL: &str = "curious";
/// A move is over for somebody who asks when so many answers in a row came from the target. Two hosts do not hear of a move in
/// the same instant.
const SETTLED: usize = 200;
/// How long an announcement is repeated.
const ANNOUNCED: Duration = Duration::from_millis(1200);
/// How long one pod has the address before it moves on.
const BETWEEN: Duration = Duration::from_millis(600);

/// A network of macvlan interfaces on the hosts' uplinks, of both families.
fn lan() -> Value {
    let ranges = json!([{"range": "10.99.0.0/24", "exclude": ["10.99.0.224/27"]}, {"range": "fd99::/112", "exclude": ["fd99::f000/116"]}]);
    json!({
        "cniVersion": "1.0.0", "name": "lan", "type": "macvlan", "master": "uplink", "mode": "bridge",
        "allowPersistentIPs": true, "ipam": {"type": "whereabouts", "ipRanges": ranges},
    })
}

/// Calls the plugin of the network as a runtime does.
fn call(pod: &Placed<'_>, directory: &tempfile::TempDir, verb: &str) -> Called {
    let input = directory.path().join(pod.container());
    std::fs::write(&input, lan().to_string()).unwrap();
    let command = pod.machine.host.command("sh").args(["-c", r#"exec "$0" <"$1""#]);
    let command = command.arg(directory.path().join("macvlan")).arg(input).env("CNI_COMMAND", verb);
    let command = command.env("CNI_PATH", directory.path()).env("CNI_CONTAINERID", pod.container());
    let command =
        command.env("CNI_NETNS", &pod.path).env("CNI_IFNAME", INTERFACE).env("CNI_ARGS", pod.args());
    let began = now();
    let output = command.output().unwrap();
    Called {
        code: output.status.code().unwrap(),
        json: serde_json::from_slice(&output.stdout).unwrap_or_default(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        took: now().saturating_sub(began),
    }
}

/// The hardware address of a pod's interface.
fn mac(pod: &Placed<'_>) -> String {
    let link = pod.network.namespace().ip_json(&["link", "show", INTERFACE]).unwrap();
    link[0]["address"].as_str().unwrap().to_owned()
}

/// Somebody else on the segment.
fn neighbour(wire: &Segment, number: u8) -> Host {
    let host = Host::new(&format!("neighbour{number}")).unwrap();
    let addresses = [format!("10.99.0.{number}/24"), format!("fd99::f{number}/112")];
    wire.connect(&host, "eth0", &[&addresses[0], &addresses[1]]).unwrap();
    host
}

/// Asks for the hardware address of these anew all the time, until its host ends.
fn forget_neighbours(host: &Host) {
    let forever = "while :; do ip neigh flush dev eth0; sleep 0.02; done";
    host.command("sh").args(["-c", forever]).stdin(Stdio::null()).spawn().unwrap();
}

/// A mover's word.
struct Word {
    /// Which pod is to have the address.
    to: usize,
    said: Duration,
    /// When everyone who asks heard only that pod.
    settled: Duration,
}

/// What a host heard of where an address is.
#[derive(Debug)]
enum Heard {
    /// It asked.
    Asked,
    /// It was told, because it asked.
    Told(MacAddress),
    /// Everyone was told.
    Announced(MacAddress),
}

fn heard(packet: &Packet, address: IpAddr) -> Option<Heard> {
    let to_all = packet.destination.0[0] & 1 == 1;
    let sent = packet.direction == Direction::Sent;
    if let Some(arp) = packet.arp() {
        let asks = sent && arp.operation == ArpOperation::Request && address == IpAddr::from(arp.target);
        // A request tells, too, but nobody has asked for it: one that is to all is an announcement.
        let answers = to_all || arp.operation == ArpOperation::Reply;
        let tells = !sent && answers && address == IpAddr::from(arp.sender);
        let told = || if to_all { Heard::Announced(arp.sender_mac) } else { Heard::Told(arp.sender_mac) };
        return if asks && to_all { Some(Heard::Asked) } else { tells.then(told) };
    }
    if sent {
        return packet.solicited().filter(|it| address == IpAddr::from(*it) && to_all).map(|_| Heard::Asked);
    }
    let told = || if to_all { Heard::Announced(packet.source) } else { Heard::Told(packet.source) };
    packet.advertised().filter(|it| address == IpAddr::from(*it)).map(|_| told())
}

#[test]
fn on_a_segment_one_pod_answers_for_the_address_and_the_target_says_so_at_each_move() {
    let binaries = Binaries::locate([Program::Macvlan]).unwrap();
    let own = tenure_tests::programs::plugin();
    let directory = plugins(&[("macvlan", binaries.path(Program::Macvlan).unwrap()), ("whereabouts", &own)]);
    let stage = Stage::new();
    let wire = Arc::new(Segment::new("wire").unwrap());
    let machines = stage.machines(&wire);
    stage.attachment("lan", &lan());
    let addresses = stage.claim("vm", "lan", INTERFACE, &json!({}));
    assert_eq!(addresses.len(), 2, "{addresses:?}");
    let selection = json!([{"name": "lan", "namespace": NAMESPACE, "interface": INTERFACE, "ipam-claim-reference": "vm"}]);
    let refers = json!({"annotations": {"k8s.v1.cni.cncf.io/networks": selection.to_string()}});
    let names = ["here", "there"];
    let pods = [stage.pod(&machines[0], names[0], &refers), stage.pod(&machines[1], names[1], &refers)];
    assert_eq!(insist(names[0], || call(&pods[0], &directory, "ADD")).addresses(), addresses);

    let at: Vec<SocketAddr> = addresses.iter().map(|address| SocketAddr::new(*address, QUESTIONS)).collect();
    let answer = |pod: &Placed<'_>| -> Vec<Answerer> {
        at.iter().map(|at| Answerer::start(pod.network.namespace(), *at, &pod.name).unwrap()).collect()
    };
    let first = answer(&pods[0]);
    // One who believes what it was told once, and one who asks anew all the time.
    let (steady, curious) = (neighbour(&wire, 241), neighbour(&wire, 242));
    let ask = |host: &Host, number: u8| -> Vec<Asker> {
        let own: [IpAddr; 2] =
            [format!("10.99.0.{number}").parse().unwrap(), format!("fd99::f{number}").parse().unwrap()];
        let each = own.iter().zip(&at);
        each.map(|(own, at)| {
            Asker::start(host.namespace(), SocketAddr::new(*own, 7000), *at, Duration::from_millis(2))
                .unwrap()
        })
        .collect()
    };
    let (steady_asks, curious_asks) = (ask(&steady, 241), ask(&curious, 242));
    for asker in steady_asks.iter().chain(&curious_asks) {
        asker.wait_for(names[0], Duration::ZERO, PATIENCE).expect("the first pod is reached");
    }
    let capture = curious.capture().unwrap();
    forget_neighbours(&curious);
    // Nothing of the first one's coming is said any more.
    std::thread::sleep(ANNOUNCED);
    // The second pod comes: it has the address, and nobody is to notice.
    assert_eq!(insist(names[1], || call(&pods[1], &directory, "ADD")).addresses(), addresses);
    // Who made its interface may have announced it, and the first one has to say that it is wrong.
    let came = now();
    std::thread::sleep(ANNOUNCED);
    let macs = [mac(&pods[0]), mac(&pods[1])];
    let second = answer(&pods[1]);

    let settle = |to: usize, since: Duration| {
        let all = steady_asks.iter().chain(&curious_asks);
        let each = all.map(|asker| {
            let settled = asker.wait_for_only(names[to], since, SETTLED, PATIENCE);
            settled.unwrap_or_else(|| panic!("not only {} is reached", names[to]))
        });
        each.max().unwrap()
    };
    let mut words = vec![Word { to: 0, said: came, settled: settle(0, came) }];
    std::thread::sleep(BETWEEN);
    let mut times = Vec::new();
    for number in 1..=MOVES {
        let to = number % 2;
        let said = stage.change(names[to], &json!({"annotations": {"tenure/active": number.to_string()}}));
        for asker in steady_asks.iter().chain(&curious_asks) {
            let reached = asker.wait_for(names[to], said, PATIENCE);
            let reached = reached.unwrap_or_else(|| panic!("move {number}: {} is not reached", names[to]));
            times.push(reached.saturating_sub(said));
        }
        words.push(Word { to, said, settled: settle(to, said) });
        std::thread::sleep(BETWEEN);
    }
    let ended = now();
    say(&format!("on a segment, from the mover's word to the first answer: {}", figures(&times)));
    let packets = capture.stop();
    drop((first, second));
    // Captures have the machine's time of day, and questions the time since its start.
    let epoch = Duration::from_millis(SystemClock.now().as_millis()).saturating_sub(now());
    for address in &addresses {
        judge(&packets, *address, &words, &macs, epoch, ended);
    }
    let askers = [("steady", steady_asks), (FORGETFUL, curious_asks)];
    let askers =
        askers.into_iter().flat_map(|(who, askers)| askers.into_iter().map(move |asker| (who, asker)));
    for ((who, asker), at) in askers.zip(at.iter().cycle()) {
        let questions = asker.stop();
        assert!(questions.iter().all(|question| question.answers.len() < 2), "a question is answered once");
        for (number, word) in words.iter().enumerate() {
            let next = words.get(number + 1).map_or(ended, |next| next.said);
            let settled = questions.iter().filter(|it| it.at >= word.settled && it.at < next);
            let (none, some): (Vec<_>, Vec<_>) = settled.partition(|it| it.answers.is_empty());
            let (lost, answered) = (none.len(), some.len());
            // How many are lost on the way depends on how busy this machine is.
            assert!(
                answered > 0 || who == FORGETFUL,
                "move {number} of {at}: the {who} neighbour has no answer and lacks {lost}"
            );
            let answers = some.iter().flat_map(|it| &it.answers);
            let other: Vec<_> = answers.filter(|it| it.by != names[word.to]).collect();
            assert!(
                other.is_empty(),
                "move {number} of {at}: the {who} neighbour has {} answers of the other",
                other.len()
            );
        }
    }
    for pod in &pods {
        call(pod, &directory, "DEL").succeeded();
    }
}

/// That who asks is told by one, after each changeover by the one that has the address; and that this one said so to everyone.
fn judge(
    packets: &[Packet],
    address: IpAddr,
    words: &[Word],
    macs: &[String; 2],
    epoch: Duration,
    ended: Duration,
) {
    let all: Vec<(Duration, Heard)> =
        packets.iter().filter_map(|it| Some((it.at.saturating_sub(epoch), heard(it, address)?))).collect();
    let (mut asked, mut doubled) = (0, 0);
    for (number, Word { to, said, settled }) in words.iter().enumerate() {
        let next = words.get(number + 1).map_or(ended, |next| next.said);
        let here: Vec<&(Duration, Heard)> = all.iter().filter(|(at, _)| at >= said && *at < next).collect();
        let announced =
            here.iter().any(|(_, it)| matches!(it, Heard::Announced(mac) if mac.to_string() == macs[*to]));
        assert!(announced || number == 0, "move {number} of {address}: the target told nobody: {here:?}");
        // Each question with what was told until the next one.
        let mut questions: Vec<(Duration, Vec<String>)> = Vec::new();
        for (at, it) in here {
            match (it, questions.last_mut()) {
                (Heard::Asked, _) => questions.push((*at, Vec::new())),
                (Heard::Told(mac), Some((_, told))) => told.push(mac.to_string()),
                (Heard::Told(_) | Heard::Announced(_), _) => {}
            }
        }
        for (at, told) in questions {
            asked += 1;
            assert!(
                at < *settled || told.iter().all(|mac| *mac == macs[*to]),
                "move {number} of {address}: told by {told:?} {:?} after the mover's word",
                at.saturating_sub(*said)
            );
            doubled += usize::from(told.windows(2).any(|pair| pair[0] != pair[1]));
        }
    }
    assert!(asked > words.len(), "{asked} questions");
    say(&format!("{address}: asked {asked} times where it is; told by both {doubled} times"));
}
