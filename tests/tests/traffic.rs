//! Traffic of the test bed itself: connections that go on in another namespace, and questions that are answered in turn.
//! Needs root and iproute2.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use tenure_handles::{Clock, SystemClock};
use tenure_testbed::hosts::{Host, NetworkNamespace, Packet, Segment};
use tenure_testbed::traffic::{Answerer, Asker, Bytes, Frozen, Pace, Talker, TrafficError, limit_rate};
use tenure_testbed::wait::PATIENCE;

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// A client, and two places of which one at a time has the address.
struct Places {
    wire: Segment,
    client: Host,
    hosts: [Host; 2],
    addresses: [IpAddr; 2],
}

impl Places {
    fn new() -> Result<Self> {
        let wire = Segment::new("wire")?;
        let [client, here, there] = ["client", "here", "there"].map(|name| Host::new(name).unwrap());
        wire.connect(&client, "eth0", &["192.0.2.1/24", "2001:db8::1/64"])?;
        wire.connect(&here, "eth0", &["192.0.2.9/24", "2001:db8::9/64"])?;
        wire.connect(&there, "eth0", &[])?;
        let addresses = ["192.0.2.9".parse()?, "2001:db8::9".parse()?];
        Ok(Self { wire, client, hosts: [here, there], addresses })
    }

    /// Takes the addresses from one place to the other; what was frozen is thawed there by `thaw`.
    fn swap<T>(&mut self, thaw: impl FnOnce(&NetworkNamespace) -> Result<T, TrafficError>) -> Result<T> {
        self.hosts[0].ip("address flush dev eth0 scope global\n")?;
        self.hosts[1].address("eth0", &["192.0.2.9/24", "2001:db8::9/64"])?;
        let thawed = thaw(self.hosts[1].namespace())?;
        // Only now is the new place found, as it would be by an announcement: before, it did not know the connection.
        self.client.ip("neigh flush dev eth0\n")?;
        self.hosts.swap(0, 1);
        Ok(thawed)
    }
}

fn flags(packet: &Packet, from: IpAddr) -> Option<u8> {
    let ip = packet.ip().filter(|ip| ip.protocol == 6 && ip.source == from)?;
    packet.bytes.get(14 + if ip.source.is_ipv4() { 20 } else { 40 } + 13).copied()
}

#[test]
fn a_connection_goes_on_in_another_namespace_and_comes_back() -> Result {
    let mut bed = Places::new()?;
    let capture = bed.wire.capture()?;
    for address in bed.addresses {
        for pace in [Pace::STREAM, Pace::TICKS] {
            let at = SocketAddr::new(address, 8080);
            let (calling, called) =
                Talker::connected(bed.client.namespace(), bed.hosts[0].namespace(), at, pace)?;
            let calling = calling.start()?;
            let mut called = called;
            for _ in 0..4 {
                let talking = called.start()?;
                std::thread::sleep(Duration::from_millis(50));
                called = talking.stop()?;
                let frozen = called.freeze()?;
                bed.swap(|there| called.thaw(&frozen, there))?;
            }
            let talking = called.start()?;
            std::thread::sleep(Duration::from_millis(300));
            let (called, calling) = (talking.stop()?, calling.stop()?);
            assert!(calling.counts().1 > 0 && called.counts().1 > 0);
            Talker::finish(calling, called, PATIENCE)?;
        }
    }
    let (reset, packets) = (0x04, capture.stop());
    for address in bed.addresses {
        let resets =
            packets.iter().filter(|packet| flags(packet, address).is_some_and(|flags| flags & reset != 0));
        assert_eq!(resets.count(), 0, "nobody resets a connection that has only gone elsewhere");
    }
    Ok(())
}

#[test]
fn what_is_in_full_queues_goes_along() -> Result {
    let mut bed = Places::new()?;
    for address in bed.addresses {
        let at = SocketAddr::new(address, 8080);
        let listener = bed.hosts[0].run(|| TcpListener::bind(at))??;
        let mut client = bed.client.run(|| TcpStream::connect(at))??;
        let (server, _) = listener.accept()?;
        let (to_server, to_client) = (Bytes::new(1), Bytes::new(2));
        // Nobody reads, so that the server has bytes of all kinds: come and not read, sent and not read, never sent.
        client.write_all(&to_server.next(50_000))?;
        server.set_nonblocking(true)?;
        let mut said = 0;
        while let Ok(count) = (&server).write(&to_client.next(said + 64_000)[said..]) {
            said += count;
        }
        server.set_nonblocking(false)?;
        let mut one = [0];
        assert_eq!(server.peek(&mut one)?, 1);

        let frozen = Frozen::freeze(server)?;
        let image = frozen.image().clone();
        assert_eq!(image.queued().0, 50_000);
        assert!(
            0 < image.unsent() && image.unsent() <= image.queued().1,
            "{} of {:?}",
            image.unsent(),
            image.queued()
        );
        let server = bed.swap(|there| image.thaw(there))?;

        client.shutdown(Shutdown::Write)?;
        let writing = std::thread::spawn(move || -> std::io::Result<Vec<u8>> {
            let mut heard = Vec::new();
            (&server).read_to_end(&mut heard)?;
            (&server).write_all(b"the end")?;
            Ok(heard)
        });
        let mut heard = Vec::new();
        client.set_read_timeout(Some(PATIENCE))?;
        client.read_to_end(&mut heard)?;
        assert!(heard == [&to_client.next(said), b"the end".as_slice()].concat(), "{} bytes", heard.len());
        assert!(writing.join().unwrap()? == to_server.next(50_000));
    }
    Ok(())
}

#[test]
fn what_the_kernel_sends_until_a_connection_is_frozen_counts_as_sent() -> Result {
    let mut bed = Places::new()?;
    for address in bed.addresses {
        let at = SocketAddr::new(address, 8080);
        let listener = bed.hosts[0].run(|| TcpListener::bind(at))??;
        let mut client = bed.client.run(|| TcpStream::connect(at))??;
        client.set_read_timeout(Some(PATIENCE))?;
        let reading = std::thread::spawn(move || -> std::io::Result<Vec<u8>> {
            let mut heard = Vec::new();
            client.read_to_end(&mut heard)?;
            Ok(heard)
        });
        let (mut server, _) = listener.accept()?;
        // The port is needed where the connection comes back to.
        drop(listener);
        let mut says = Bytes::new(2);
        for _ in 0..20 {
            // More than is sent in the meantime: something is always left for the kernel's timer.
            limit_rate(&server, 5_000_000)?;
            (&server).write_all(&says.next(250_000))?;
            says.advance(250_000);
            let frozen = Frozen::freeze(server)?;
            server = bed.swap(|there| frozen.image().thaw(there))?;
        }
        server.shutdown(Shutdown::Write)?;
        let heard = reading.join().unwrap()?;
        Bytes::new(2).expect(&heard).map_err(|strange| strange.to_string())?;
        assert_eq!(heard.len() as u64, says.place());
    }
    Ok(())
}

#[test]
fn a_frozen_connection_takes_nothing_in_and_is_left_without_a_word() -> Result {
    let bed = Places::new()?;
    let at = SocketAddr::new(bed.addresses[0], 8080);
    let listener = bed.hosts[0].run(|| TcpListener::bind(at))??;
    let mut client = bed.client.run(|| TcpStream::connect(at))??;
    let (server, _) = listener.accept()?;
    let frozen = Frozen::freeze(server)?;
    let capture = bed.wire.capture()?;
    client.write_all(b"is anybody there?")?;
    capture.wait_for(PATIENCE, |packet| packet.ip().is_some_and(|ip| ip.destination == at.ip()))?;
    // By now what was sent last has arrived, or was thrown away.
    bed.client.ping(at.ip(), PATIENCE)?;
    drop(frozen);
    bed.client.ping(at.ip(), PATIENCE)?;
    let said = capture.stop().iter().filter(|packet| flags(packet, at.ip()).is_some()).count();
    assert_eq!(said, 0, "neither an acknowledgement nor a goodbye");
    Ok(())
}

#[test]
fn a_connection_that_has_ended_cannot_be_frozen() -> Result {
    let bed = Places::new()?;
    let at = SocketAddr::new(bed.addresses[1], 8080);
    let listener = bed.hosts[0].run(|| TcpListener::bind(at))??;
    let client = bed.client.run(|| TcpStream::connect(at))??;
    let (mut server, _) = listener.accept()?;
    drop(client);
    assert_eq!(server.read(&mut [0])?, 0);
    let error = Frozen::freeze(server).unwrap_err();
    assert!(matches!(error, TrafficError::State { state: 8, .. }), "{error}");
    Ok(())
}

#[test]
fn questions_are_answered_by_the_one_who_has_the_address() -> Result {
    let bed = Places::new()?;
    let at = SocketAddr::new(bed.addresses[0], 7);
    let from = SocketAddr::new("192.0.2.1".parse()?, 7000);
    let here = Answerer::start(bed.hosts[0].namespace(), at, "here")?;
    let asker = Asker::start(bed.client.namespace(), from, at, Duration::from_millis(2))?;
    asker.wait_for("here", Duration::ZERO, PATIENCE).unwrap();
    let left = SystemClock.elapsed();
    bed.hosts[0].ip("address flush dev eth0 scope global\n")?;
    bed.hosts[1].address("eth0", &["192.0.2.9/24"])?;
    let there = Answerer::start(bed.hosts[1].namespace(), at, "there")?;
    bed.client.ip("neigh flush dev eth0\n")?;
    let reached = asker.wait_for("there", left, PATIENCE).unwrap();
    assert!(reached > left);
    drop((here, there));
    let questions = asker.stop();
    assert!(questions.iter().all(|question| question.answers.len() < 2));
    let names: Vec<&str> =
        questions.iter().flat_map(|question| &question.answers).map(|answer| answer.by.as_str()).collect();
    let first = names.iter().position(|name| *name == "there").unwrap();
    assert!(
        names[..first].iter().all(|name| *name == "here")
            && names[first..].iter().all(|name| *name == "there")
    );
    Ok(())
}
