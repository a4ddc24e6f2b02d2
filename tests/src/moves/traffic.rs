//! TCP connections, messages and questions that go on while the address of one of their ends moves to another host.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tenure_testbed::hosts::{NetworkNamespace, Packet};
use tenure_testbed::traffic::{Answerer, Asker, Frozen, Pace, Talker, Talking};
use tenure_testbed::wait::PATIENCE;

use super::stage::{Placed, figures, say};

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

/// All that goes on with the addresses of a pod: over each family a stream, a conversation of short messages, and questions.
pub struct Traffic {
    pub addresses: Vec<IpAddr>,
    conversations: Vec<Conversation>,
    askers: Vec<Asker>,
    answerers: Vec<Answerer>,
}

/// How long things took after a pod went on elsewhere.
#[derive(Debug, Default)]
pub struct Blackouts {
    /// From the stop to the moment of going on: the mover's, not ours.
    pub freeze: Vec<Duration>,
    /// Until a question was answered.
    pub questions: Vec<Duration>,
    /// Until a message came.
    pub messages: Vec<Duration>,
    /// Until something of the stream came.
    pub streams: Vec<Duration>,
}

impl Traffic {
    pub fn start(client: &Placed<'_>, from: &[IpAddr], server: &Placed<'_>, addresses: &[IpAddr]) -> Self {
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
    pub fn go_on(&mut self, pod: &Placed<'_>) -> Vec<Talking> {
        let answerer = |address: &IpAddr| {
            Answerer::start(pod.network.namespace(), SocketAddr::new(*address, QUESTIONS), &pod.name).unwrap()
        };
        self.answerers = self.addresses.iter().map(answerer).collect();
        self.conversations.iter_mut().map(|it| it.server.take().unwrap().start().unwrap()).collect()
    }

    /// The pod stops in the middle of all that it does.
    pub fn stop(&mut self, talking: Vec<Talking>) -> Vec<Frozen> {
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
    pub fn take_over(&mut self, frozen: &[Frozen], there: &NetworkNamespace) {
        for (conversation, frozen) in self.conversations.iter_mut().zip(frozen) {
            conversation.server.as_mut().unwrap().thaw(frozen, there).unwrap();
        }
    }

    /// Waits until every question is answered by a pod that goes on since `since`.
    pub fn measure(&self, pod: &Placed<'_>, since: Duration, within: Duration, blackouts: &mut Blackouts) {
        for asker in &self.askers {
            let answered = asker.wait_for(&pod.name, since, within);
            let answered =
                answered.unwrap_or_else(|| panic!("{} is not reached within {within:?}", pod.name));
            blackouts.questions.push(answered.saturating_sub(since));
        }
    }

    /// Both ends have heard exactly what the other has said, and nobody was asked twice or answered for another.
    pub fn finish(self, talking: Vec<Talking>) {
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
    pub fn hear(&mut self, traffic: &Traffic, talking: &mut Vec<Talking>, since: Duration) {
        for (number, conversation) in traffic.conversations.iter().enumerate() {
            // TCP itself waits the longer the more it has lost: that is bounded by the time that nothing was answered, and not ours.
            let Some(heard) = talking[number].first_heard(PATIENCE) else {
                let client = if conversation.client.has_ended() { "failed too" } else { "goes on" };
                let server = talking.swap_remove(number).stop();
                panic!("{:?}: nothing came; the client {client}; the server: {server:?}", conversation.pace);
            };
            let of_pace = match conversation.pace {
                Pace::TICKS => &mut self.messages,
                _ => &mut self.streams,
            };
            of_pace.push(heard.saturating_sub(since));
        }
    }

    pub fn print(&self, what: &str) {
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

/// Packets of these addresses that end a connection by force.
pub fn resets(packets: &[Packet], addresses: &[IpAddr]) -> Vec<String> {
    let reset = |packet: &&Packet| {
        let Some(ip) = packet.ip().filter(|ip| ip.protocol == 6) else { return false };
        let flags = 14 + if ip.source.is_ipv4() { 20 } else { 40 } + 13;
        let ours = addresses.contains(&ip.source) || addresses.contains(&ip.destination);
        ours && packet.bytes.get(flags).is_some_and(|flags| flags & 0x04 != 0)
    };
    packets.iter().filter(reset).map(Packet::to_string).collect()
}
